//! The only clock and the only randomness of the process.
//!
//! Two kinds of time, kept apart by type. [`Mono`] never steps and measures waits, deadlines and a holder's own bound on its
//! lease. Wall time ([`Env::wall`]) is for people and records; it decides nothing about another node's lease, which is judged
//! on the broker's clock alone.
//!
//! Every wait goes through here, so that a test on a paused tokio clock runs the same code without waiting. Everything
//! random is drawn from one seed, which a run prints.

use std::future::Future;
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// An instant of the process's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mono(tokio::time::Instant);

impl Mono {
    /// How long before `self` the instant `earlier` was; zero if it was not before.
    pub fn since(self, earlier: Mono) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
}

impl Add<Duration> for Mono {
    type Output = Mono;

    fn add(self, wait: Duration) -> Mono {
        Mono(self.0 + wait)
    }
}

/// The work did not finish in the time it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not done in the time given")]
pub struct Elapsed;

/// The clock and the randomness a component was built with. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    rng: Arc<Mutex<fastrand::Rng>>,
}

impl Env {
    /// The system's clock, and randomness that replays for the same `seed`.
    pub fn seeded(seed: u64) -> Env {
        Env { rng: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))) }
    }

    /// The system's clock, and a seed of its own.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn system() -> Env {
        Env::seeded(fastrand::Rng::new().u64(..))
    }

    /// The monotonic instant.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn now(&self) -> Mono {
        Mono(tokio::time::Instant::now())
    }

    /// The wall clock of this machine.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    /// Waits for `wait`.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub async fn sleep(&self, wait: Duration) {
        tokio::time::sleep(wait).await;
    }

    /// Waits until `at`; returns at once when it has passed.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub async fn sleep_until(&self, at: Mono) {
        tokio::time::sleep_until(at.0).await;
    }

    /// Runs `work`, dropping it unfinished at `at`.
    ///
    /// # Errors
    /// When the instant came first.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub async fn within<F: Future>(&self, at: Mono, work: F) -> Result<F::Output, Elapsed> {
        tokio::time::timeout_at(at.0, work).await.map_err(|_| Elapsed)
    }

    /// A random number below `bound`; 0 when `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.rng.lock().u64(0..bound) }
    }

    /// A random 64-bit number.
    pub fn random(&self) -> u64 {
        self.rng.lock().u64(..)
    }

    /// A random wait between zero and `most`.
    pub fn jitter(&self, most: Duration) -> Duration {
        Duration::from_nanos(self.below(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_one_sequence() {
        let (a, b) = (Env::seeded(7), Env::seeded(7));
        let draw = |e: &Env| (0..100).map(|_| e.random()).collect::<Vec<_>>();
        assert_eq!(draw(&a), draw(&b));
        assert_ne!(draw(&a), draw(&Env::seeded(8)));
    }

    #[test]
    fn jitter_stays_within_its_bound() {
        let env = Env::seeded(1);
        for _ in 0..1000 {
            assert!(env.jitter(Duration::from_millis(3)) < Duration::from_millis(3));
        }
        assert_eq!(env.jitter(Duration::ZERO), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn work_past_its_deadline_is_dropped() {
        let env = Env::seeded(1);
        let start = env.now();
        let late = env.within(start + Duration::from_secs(1), env.sleep(Duration::from_secs(2))).await;
        assert_eq!(late, Err(Elapsed));
        assert_eq!(env.now().since(start), Duration::from_secs(1));
    }
}
