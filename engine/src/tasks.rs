//! The only place that starts a task or a thread.
//!
//! A [`Task`] belongs to whoever holds it: dropping the handle ends the task. Work that must outlive its caller (giving a
//! lease back after the claimer went away) is started with [`detach`], and says at the call site why it may.

use std::future::Future;
use std::io;

use crate::jetstream::Meter;

/// A running task that ends when this handle is dropped.
#[must_use = "dropping the handle ends the task"]
pub struct Task<T>(tokio::task::JoinHandle<T>);

impl<T> Task<T> {
    /// Waits for the task's result.
    ///
    /// # Panics
    /// When the task panicked: its panic goes on here.
    pub async fn join(mut self) -> T {
        match (&mut self.0).await {
            Ok(value) => value,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => panic!("a task was ended from outside while it was waited for: {error}"),
            },
        }
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a task owned by the handle returned.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn spawn<F>(work: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Task(tokio::task::spawn(work))
}

/// Starts a task that outlives its caller. The work bounds itself, and what it asks of a broker is counted as the caller's.
///
/// It is called from destructors, so it also takes a thread without a runtime: the process is going down then, and the work
/// is not done. Whatever relies on it has an end of its own, a TTL or a broker's timeout.
pub fn detach<F>(work: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(Meter::carried(work))),
        Err(_) => tracing::debug!("task_not_started_without_a_runtime"),
    }
}

/// Runs blocking work beside the runtime's workers.
///
/// # Panics
/// When the work panicked: its panic goes on here.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub async fn blocking<F, T>(work: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Task(tokio::task::spawn_blocking(work)).join().await
}

/// Starts a named OS thread.
///
/// # Errors
/// When the system has no thread to give.
pub fn thread<F, T>(name: &str, work: F) -> io::Result<std::thread::JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    std::thread::Builder::new().name(name.to_owned()).spawn(work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn work_detached_without_a_runtime_is_left_undone() {
        detach(async { unreachable!("nothing runs it") });
    }

    #[tokio::test]
    async fn dropping_the_handle_ends_the_task() {
        let alive = Arc::new(());
        let inside = alive.clone();
        let task = spawn(async move {
            std::future::pending::<()>().await;
            drop(inside);
        });
        drop(task);
        while Arc::strong_count(&alive) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
