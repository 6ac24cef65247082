//! Waiting for an instant more finely than the runtime's timer, which counts whole milliseconds.
//!
//! An operation of 0.3 ms that is started up to 2 ms late has a corrected latency that says more of the generator than of
//! the server. So on Linux the kernel's own timer wakes the waiter within some tens of microseconds. It only ever wakes
//! earlier what [`Env::sleep_until`] would wake too: where it is missing, or time is a test's, the runtime's timer decides
//! alone.

use engine::env::{Env, Mono};

/// Something to wait with, one wait at a time.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    #[cfg(target_os = "linux")]
    kernel: kernel::Lazy,
}

impl Timer {
    /// Waits until `at`; returns at once when it has passed. Cancel-safe.
    pub(crate) async fn wait_until(&mut self, env: &Env, at: Mono) {
        let wait = at.since(env.now());
        if wait.is_zero() {
            return;
        }
        #[cfg(target_os = "linux")]
        tokio::select! {
            () = self.kernel.expired(wait) => {
                // The two clocks may differ by a hair, and under a test's clock by any amount.
                if env.now() >= at {
                    return;
                }
            }
            () = env.sleep_until(at) => return,
        }
        env.sleep_until(at).await;
    }
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    /// A timer of the kernel, made when first needed, since that takes a runtime.
    #[derive(Debug, Default)]
    pub(super) enum Lazy {
        #[default]
        Unmade,
        /// The system has none to give.
        Missing,
        Made(AsyncFd<OwnedFd>),
    }

    impl Lazy {
        /// Returns when `wait` has passed; never when there is no such timer.
        pub(super) async fn expired(&mut self, wait: Duration) {
            if matches!(self, Lazy::Unmade) {
                *self = make().map_or(Lazy::Missing, Lazy::Made);
            }
            let Lazy::Made(timer) = self else { return std::future::pending().await };
            let once = Itimerspec {
                it_interval: Timespec::default(),
                it_value: Timespec {
                    tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: wait.subsec_nanos().into(),
                },
            };
            // Setting it again also forgets an expiry that nobody waited for.
            if timerfd_settime(&*timer, TimerfdTimerFlags::empty(), &once).is_err() {
                return std::future::pending().await;
            }
            loop {
                let Ok(mut ready) = timer.readable().await else { return std::future::pending().await };
                // Readiness may be left over from a wait that was cancelled; an expiry can be read.
                let mut expiries = [0; 8];
                match ready.try_io(|timer| Ok(rustix::io::read(timer, &mut expiries)?)) {
                    Ok(Ok(_)) => return,
                    Ok(Err(_)) => return std::future::pending().await,
                    Err(_) => {}
                }
            }
        }
    }

    #[expect(
        deprecated,
        reason = "its successor is unsafe, and asks for what an OwnedFd is: one descriptor, kept open"
    )]
    fn make() -> Option<AsyncFd<OwnedFd>> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use futures_util::FutureExt;

    #[tokio::test]
    async fn it_never_wakes_early() {
        let env = Env::seeded(1);
        let mut timer = Timer::default();
        for micros in [0, 1, 50, 999, 1_000, 2_500] {
            let at = env.now() + Duration::from_micros(micros);
            timer.wait_until(&env, at).await;
            assert!(env.now() >= at, "{micros}");
        }
        timer.wait_until(&env, env.now()).await;
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_nothing_to_the_next() {
        let env = Env::seeded(1);
        let mut timer = Timer::default();
        // A machine that stands still for 5 ms between the two ends the wait instead, and then there is none to cancel.
        while timer.wait_until(&env, env.now() + Duration::from_millis(5)).now_or_never().is_some() {}
        env.sleep(Duration::from_millis(10)).await;
        let at = env.now() + Duration::from_millis(20);
        timer.wait_until(&env, at).await;
        assert!(env.now() >= at);
    }

    #[tokio::test(start_paused = true)]
    async fn under_the_clock_of_a_test_no_time_passes() {
        let env = Env::seeded(1);
        let mut timer = Timer::default();
        let at = env.now() + Duration::from_secs(3600);
        timer.wait_until(&env, at).await;
        assert_eq!(env.now(), at);
    }
}
