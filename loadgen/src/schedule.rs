//! When operations are meant to start: an open-loop schedule.
//!
//! Each intended start follows from its number alone, `start + i * period / count` in whole nanoseconds, so nothing drifts
//! however long the run and however late the generator. A schedule never skips: a generator that was held up is handed
//! every start it missed, at once and in order, and the recorder keeps how late each was. Whoever stops early takes what
//! is already due with [`Schedule::next_due`] and lets it go, which counts it as dropped.
//!
//! It does not bound how much is in flight: an open loop asks regardless of the answers.

use std::time::Duration;

use engine::env::{Env, Mono};

use crate::rate::Rate;
use crate::timer::Timer;

/// The intended starts of one kind of operation, handed out in order.
#[derive(Debug)]
pub struct Schedule {
    start: Mono,
    rate: Rate,
    len: u64,
    next: u64,
    timer: Timer,
}

impl Schedule {
    /// Starts at `rate` from `start` on, all of them before `start + length`. The first is due at `start`.
    pub fn new(start: Mono, rate: Rate, length: Duration) -> Schedule {
        Schedule { start, rate, len: rate.starts_within(length), next: 0, timer: Timer::default() }
    }

    /// How many starts there are in all.
    pub fn total(&self) -> u64 {
        self.len
    }

    /// Waits until the next start is due and returns its intended instant; at once when it has passed. `None` after the
    /// last. Cancel-safe: a start whose wait was cancelled is handed out by the next call.
    ///
    /// # Panics
    /// Outside a tokio runtime with time and I/O enabled.
    pub async fn next(&mut self, env: &Env) -> Option<Mono> {
        let at = self.peek()?;
        self.timer.wait_until(env, at).await;
        self.next += 1;
        Some(at)
    }

    /// The next start if it is due by `now`, without waiting.
    pub fn next_due(&mut self, now: Mono) -> Option<Mono> {
        let at = self.peek().filter(|at| *at <= now)?;
        self.next += 1;
        Some(at)
    }

    fn peek(&self) -> Option<Mono> {
        (self.next < self.len).then(|| self.start + self.rate.offset(self.next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(schedule: &mut Schedule, start: Mono, now: Mono) -> Vec<u128> {
        std::iter::from_fn(|| schedule.next_due(now)).map(|at| at.since(start).as_nanos()).collect()
    }

    #[test]
    fn nothing_drifts() {
        let env = Env::seeded(1);
        let start = env.now();
        let hour = Duration::from_secs(3600);
        let mut schedule = Schedule::new(start, "667/s".parse().unwrap(), hour);
        assert_eq!(schedule.total(), 667 * 3600);
        let starts = all(&mut schedule, start, start + hour);
        assert_eq!(starts.len() as u64, 667 * 3600);
        // A whole second is hit to the nanosecond even though 1/667 s is not a whole number of them.
        assert!(starts.iter().step_by(667).enumerate().all(|(second, at)| *at == second as u128 * 1_000_000_000));
        assert!(starts.is_sorted());
    }

    #[test]
    fn the_length_is_an_exclusive_end() {
        let env = Env::seeded(1);
        let start = env.now();
        let starts = |rate: &str, ms: u64| {
            let mut schedule = Schedule::new(start, rate.parse().unwrap(), Duration::from_millis(ms));
            let handed_out = all(&mut schedule, start, start + Duration::from_secs(100));
            assert_eq!(handed_out.len() as u64, schedule.total());
            handed_out
        };
        assert_eq!(starts("2/s", 1000), [0, 500_000_000]);
        assert_eq!(starts("2/s", 1001), [0, 500_000_000, 1_000_000_000]);
        assert_eq!(starts("1/m", 10), [0]);
        assert_eq!(starts("1/m", 0), [] as [u128; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_generator_is_handed_every_start_it_missed() {
        let env = Env::seeded(1);
        let start = env.now();
        let mut schedule = Schedule::new(start, "1000/s".parse().unwrap(), Duration::from_secs(1));
        let mut intended = Vec::new();
        let mut late = 0;
        while let Some(at) = schedule.next(&env).await {
            if intended.len() == 100 {
                env.sleep(Duration::from_millis(500)).await;
            }
            late += u32::from(env.now().since(at) >= Duration::from_millis(2));
            intended.push(at.since(start).as_millis());
        }
        assert_eq!(intended, (0..1000).collect::<Vec<_>>());
        assert!((498..=500).contains(&late), "{late}");
    }
}
