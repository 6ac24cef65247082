//! Times in which the generator itself did not run.
//!
//! A stopped process, a paused virtual machine or a starved runtime reads its replies late. Measured naively, that pause
//! becomes the server's latency. A watch beats every 20 ms; where 250 ms or more pass between two beats, the generator
//! stalled, and that time is taken out of the service latency of the operations that were on their way. The corrected
//! latency keeps it, since whoever asked did wait, and so does the generator's own lateness.
//!
//! Nothing here tells why the generator stood still.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::env::{Env, Mono};
use parking_lot::Mutex;

use crate::histogram::nanos;

const BEAT: Duration = Duration::from_millis(20);
/// Far above what a busy runtime is late by, and below any pause one would look for in a report.
const STALL: Duration = Duration::from_millis(250);
/// Stalls remembered for operations still on their way. An operation that spans more is corrected for the last ones only.
const REMEMBERED: usize = 64;
const NOBODY_WATCHES: u64 = u64::MAX;

/// The stalls of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallTotals {
    /// How many there were.
    pub count: u64,
    /// How long they were together.
    pub total: Duration,
    /// How long the longest was.
    pub longest: Duration,
}

/// Instants are nanoseconds since the run's origin.
pub(crate) struct Stalls {
    origin: Mono,
    beat: AtomicU64,
    last_end: AtomicU64,
    ended: Mutex<Ended>,
}

#[derive(Default)]
struct Ended {
    recent: VecDeque<(u64, u64)>,
    totals: StallTotals,
}

impl Stalls {
    pub(crate) fn new(origin: Mono) -> Stalls {
        Stalls {
            origin,
            beat: AtomicU64::new(NOBODY_WATCHES),
            last_end: AtomicU64::new(0),
            ended: Mutex::new(Ended::default()),
        }
    }

    /// Beats until dropped.
    pub(crate) async fn watch(&self, env: &Env) {
        // Without a beat that goes on, every later operation would look stalled.
        struct Unwatched<'a>(&'a AtomicU64);
        impl Drop for Unwatched<'_> {
            fn drop(&mut self) {
                self.0.store(NOBODY_WATCHES, Ordering::Release);
            }
        }
        let _unwatched = Unwatched(&self.beat);
        loop {
            self.beat(env.now());
            env.sleep(BEAT).await;
        }
    }

    fn beat(&self, now: Mono) {
        let now = nanos(now.since(self.origin));
        let last = self.beat.load(Ordering::Acquire);
        if last != NOBODY_WATCHES && now.saturating_sub(last) >= nanos(STALL) {
            let mut ended = self.ended.lock();
            let lasted = Duration::from_nanos(now - last);
            ended.totals.count += 1;
            ended.totals.total += lasted;
            ended.totals.longest = ended.totals.longest.max(lasted);
            if ended.recent.len() == REMEMBERED {
                ended.recent.pop_front();
            }
            ended.recent.push_back((last, now));
            self.last_end.store(now, Ordering::Release);
        }
        self.beat.store(now, Ordering::Release);
    }

    /// How much of the time from `from` to `to` the generator did not run.
    pub(crate) fn within(&self, from: Mono, to: Mono) -> Duration {
        let (from, to) = (nanos(from.since(self.origin)), nanos(to.since(self.origin)));
        let beat = self.beat.load(Ordering::Acquire);
        if beat == NOBODY_WATCHES {
            return Duration::ZERO;
        }
        // The stall that just ended may not have been noticed yet: whoever is resumed first records first.
        let mut stalled = 0;
        if to.saturating_sub(beat) >= nanos(STALL) {
            stalled += to - beat.max(from);
        }
        if self.last_end.load(Ordering::Acquire) > from {
            let ended = self.ended.lock();
            // One that ends after the beat read above is that same unnoticed one, counted already.
            let known = ended.recent.iter().filter(|(_, end)| *end <= beat);
            stalled += known.map(|(start, end)| (*end).min(to).saturating_sub((*start).max(from))).sum::<u64>();
        }
        Duration::from_nanos(stalled)
    }

    pub(crate) fn totals(&self) -> StallTotals {
        self.ended.lock().totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_known_before_and_after_it_was_noticed() {
        let origin = Env::seeded(1).now();
        let at = |ms: u64| origin + Duration::from_millis(ms);
        let ms = Duration::from_millis;
        let stalls = Stalls::new(origin);
        assert_eq!(stalls.within(at(0), at(9000)), ms(0), "nobody watches");
        for beat in [0, 20, 40, 60] {
            stalls.beat(at(beat));
        }
        // Stopped from 60 to 2,060 ms. An operation sent at 50 is read before the watch beats again.
        assert_eq!(stalls.within(at(50), at(2061)), ms(2001));
        assert_eq!(stalls.within(at(70), at(2061)), ms(1991));
        stalls.beat(at(2062));
        assert_eq!(stalls.within(at(50), at(2063)), ms(2002));
        assert_eq!(stalls.within(at(2062), at(2070)), ms(0));
        assert_eq!(stalls.totals(), StallTotals { count: 1, total: ms(2002), longest: ms(2002) });
        // A second one, as long as the threshold, and an operation across both.
        stalls.beat(at(2312));
        assert_eq!(stalls.within(at(50), at(2320)), ms(2252));
        // A late beat below the threshold is no stall.
        stalls.beat(at(2561));
        assert_eq!(stalls.within(at(2312), at(2561)), ms(0));
        assert_eq!(stalls.totals(), StallTotals { count: 2, total: ms(2252), longest: ms(2002) });
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_leaves_no_endless_stall() {
        let env = Env::seeded(1);
        let stalls = Stalls::new(env.now());
        let start = env.now();
        env.within(start + Duration::from_secs(1), stalls.watch(&env)).await.unwrap_err();
        env.sleep(Duration::from_secs(100)).await;
        assert_eq!(stalls.within(start, env.now()), Duration::ZERO);
        assert_eq!(stalls.totals(), StallTotals::default());
    }
}
