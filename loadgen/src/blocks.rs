//! One operation in blocks of time, each with its whole distribution of latencies: what one run is held against another with.
//!
//! Operations of one moment are slow together, so a thousand of them say less than their number. A block of time counts as one
//! thing that was seen, and the differences between blocks say how sure a figure of the run is. There are between
//! 24 and 48 of them: they begin at the run's origin, a second long, and where a run outgrows 48, neighbours are joined.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::histogram::nanos;
use crate::recorder::Outcome;

/// The most blocks kept.
const MOST: usize = 48;

/// What ended in one block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// How many operations ended, in whichever way.
    pub ended: u64,
    /// Requests to the broker that they took.
    pub requests: u64,
    /// The corrected latencies of ok answers: how many of them lie in each [`bucket`], by its top in microseconds.
    pub ok: BTreeMap<u64, u64>,
    /// Those of refusals, which take other requests and so another time.
    pub refused: BTreeMap<u64, u64>,
}

impl Block {
    fn add(&mut self, other: &Block) {
        self.ended += other.ended;
        self.requests += other.requests;
        for (sum, more) in [(&mut self.ok, &other.ok), (&mut self.refused, &other.refused)] {
            more.iter().for_each(|(top, count)| *sum.entry(*top).or_default() += count);
        }
    }
}

/// One operation in blocks.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    width: Duration,
    blocks: Vec<Block>,
}

impl Default for Blocks {
    fn default() -> Blocks {
        Blocks { width: Duration::from_secs(1), blocks: Vec::new() }
    }
}

impl Blocks {
    /// Counts an operation that ended `at` after the origin in `outcome`. The latency of what was not answered is in no block.
    pub(crate) fn record(&mut self, at: Duration, requests: u64, outcome: Outcome, latency: Duration) {
        let mut index = self.index(at);
        while index >= MOST {
            self.double();
            index = self.index(at);
        }
        if index >= self.blocks.len() {
            self.blocks.resize(index + 1, Block::default());
        }
        let block = &mut self.blocks[index];
        block.ended += 1;
        block.requests += requests;
        let latencies = match outcome {
            Outcome::Ok => &mut block.ok,
            Outcome::Refused => &mut block.refused,
            Outcome::Unknown | Outcome::Error => return,
        };
        *latencies.entry(bucket(latency)).or_default() += 1;
    }

    /// The blocks at a width of `width`, which is this one's own or that doubled some times.
    pub(crate) fn of_width(&self, width: Duration) -> Vec<Block> {
        let mut all = self.clone();
        while all.width < width {
            all.double();
        }
        all.blocks
    }

    pub(crate) fn width(&self) -> Duration {
        self.width
    }

    fn index(&self, at: Duration) -> usize {
        usize::try_from(nanos(at) / nanos(self.width)).unwrap_or(usize::MAX)
    }

    fn double(&mut self) {
        self.width *= 2;
        let join = |pair: &[Block]| {
            let mut joined = Block::default();
            pair.iter().for_each(|block| joined.add(block));
            joined
        };
        self.blocks = self.blocks.chunks(2).map(join).collect();
    }
}

/// The top, in microseconds, of the bucket that a latency falls into: no more than 0.8 % above it, or a microsecond.
pub fn bucket(latency: Duration) -> u64 {
    let micros = u64::try_from(latency.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX >> 8).clamp(1, u64::MAX >> 8);
    // Eight significant bits are kept.
    let lost = (u64::BITS - micros.leading_zeros()).saturating_sub(8);
    (((micros >> lost) + 1) << lost) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_bucket_is_narrow_over_the_whole_range() {
        for micros in (1..300).chain([999, 1_000, 48_000, 59_999_999, 3_600_000_000]) {
            let top = bucket(Duration::from_micros(micros));
            assert!(top >= micros && (top - micros) * 1000 <= micros * 8, "{micros}: {top}");
            assert_eq!(bucket(Duration::from_micros(top)), top);
        }
        assert_eq!((bucket(Duration::ZERO), bucket(Duration::from_nanos(1_001))), (1, 2));
    }

    #[test]
    fn a_long_run_has_as_many_blocks_as_a_short_one_and_loses_nothing() {
        for seconds in [10, 48, 49, 1_000, 100_000] {
            let mut blocks = Blocks::default();
            for second in 0..seconds {
                let outcome = match second % 10 {
                    0 => Outcome::Unknown,
                    1..4 => Outcome::Refused,
                    _ => Outcome::Ok,
                };
                blocks.record(S * second, 3, outcome, S / 1000);
            }
            let all = blocks.of_width(blocks.width());
            assert!(all.len() <= MOST && all.len() >= (seconds as usize).min(MOST / 2), "{seconds}: {}", all.len());
            let sum = |of: fn(&Block) -> u64| all.iter().map(of).sum::<u64>();
            assert_eq!((sum(|b| b.ended), sum(|b| b.requests)), (seconds.into(), u64::from(seconds) * 3));
            let of = |digits: std::ops::Range<u32>| (0..seconds).filter(|s| digits.contains(&(s % 10))).count() as u64;
            assert_eq!(sum(|b| b.ok.values().sum()), of(4..10));
            assert_eq!(sum(|b| b.refused.values().sum()), of(1..4));
        }
    }
}
