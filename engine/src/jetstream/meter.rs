//! What one operation costs: the requests made while a future runs, wherever in it they are made.
//!
//! The meter travels with the task, and with work that [outlives its caller](crate::tasks::detach) into the task that does it.
//! Other work that an operation hands to another task is not seen unless it is measured there.

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;

tokio::task_local! {
    static METER: Meter;
}

/// What an operation cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Requests sent, without re-sends.
    pub requests: u64,
    /// Round trips one after another: how often a request began while none of the operation's own was outstanding.
    pub rounds: u64,
    /// Reads asked again.
    pub resends: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes received, deliveries included.
    pub bytes_in: u64,
}

/// The meter of one operation.
#[derive(Clone, Default)]
pub struct Meter(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    cost: Cost,
    outstanding: u32,
}

impl Meter {
    /// Runs `work` and says what it cost. Measured within another measurement, it counts for both.
    pub async fn measure<F: Future>(work: F) -> (F::Output, Cost) {
        let meter = Meter::default();
        let output = METER.scope(meter.clone(), work).await;
        let cost = meter.0.lock().cost;
        let _ = METER.try_with(|outer| outer.absorb(cost));
        (output, cost)
    }

    /// `work`, on the meter of the task that asks for it, in whichever task it is done.
    pub(crate) fn carried<F: Future>(work: F) -> impl Future<Output = F::Output> {
        let meter = METER.try_with(Meter::clone).ok();
        async move {
            match meter {
                Some(meter) => METER.scope(meter, work).await,
                None => work.await,
            }
        }
    }

    fn absorb(&self, inner: Cost) {
        let cost = &mut self.0.lock().cost;
        cost.requests += inner.requests;
        cost.rounds += inner.rounds;
        cost.resends += inner.resends;
        cost.bytes_out += inner.bytes_out;
        cost.bytes_in += inner.bytes_in;
    }

    /// The task's meter, with one more request outstanding until the guard goes.
    pub(super) fn request() -> Outstanding {
        let meter = METER.try_with(Meter::clone).ok();
        if let Some(meter) = &meter {
            let state = &mut *meter.0.lock();
            state.cost.requests += 1;
            state.cost.rounds += u64::from(state.outstanding == 0);
            state.outstanding += 1;
        }
        Outstanding(meter)
    }

    /// Counts what a consumer delivered to this task.
    pub(super) fn delivered(bytes: usize) {
        let _ = METER.try_with(|meter| meter.0.lock().cost.bytes_in += bytes as u64);
    }
}

/// A request that is under way, for its operation's meter.
pub(super) struct Outstanding(Option<Meter>);

impl Outstanding {
    pub(super) fn sent(&self, bytes: usize) {
        self.with(|cost| cost.bytes_out += bytes as u64);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.with(|cost| cost.bytes_in += bytes as u64);
    }

    pub(super) fn resent(&self) {
        self.with(|cost| cost.resends += 1);
    }

    fn with(&self, count: impl FnOnce(&mut Cost)) {
        if let Some(meter) = &self.0 {
            count(&mut meter.0.lock().cost);
        }
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        if let Some(meter) = &self.0 {
            meter.0.lock().outstanding -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn request(bytes: usize) {
        let outstanding = Meter::request();
        outstanding.sent(bytes);
        tokio::task::yield_now().await;
        outstanding.received(1);
    }

    #[tokio::test]
    async fn rounds_are_what_happens_one_after_another() {
        let ((), cost) = Meter::measure(async {
            request(10).await;
            tokio::join!(request(1), request(2), request(3));
            request(20).await;
        })
        .await;
        assert_eq!(cost, Cost { requests: 5, rounds: 3, resends: 0, bytes_out: 36, bytes_in: 5 });
    }

    #[tokio::test]
    async fn a_request_outside_any_measurement_counts_for_nobody() {
        request(10).await;
        let ((), cost) = Meter::measure(async {}).await;
        assert_eq!(cost, Cost::default());
    }

    #[tokio::test]
    async fn what_is_handed_to_another_task_is_the_operations_own() {
        let ((), cost) = Meter::measure(async {
            let (done, told) = tokio::sync::oneshot::channel();
            crate::tasks::detach(async {
                request(10).await;
                request(10).await;
                let _ = done.send(());
            });
            told.await.unwrap();
        })
        .await;
        assert_eq!((cost.requests, cost.rounds), (2, 2));
    }

    #[tokio::test]
    async fn an_inner_measurement_counts_for_the_outer_too() {
        let (inner, outer) = Meter::measure(async {
            request(1).await;
            Meter::measure(request(2)).await.1
        })
        .await;
        assert_eq!((inner.requests, outer.requests, outer.bytes_out), (1, 2, 3));
    }
}
