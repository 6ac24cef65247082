//! What a run of listings is asked to be, the operations that it records, and whose turn it is.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use coordproto::listing::KEYS_MAX;

use crate::rate::{Rate, RateError};
use crate::recorder::{Op, Recorder};

/// The most connections that writers share.
const WRITING: usize = 16;

/// The most listings of one way in a row.
const TURN: u64 = 100;

/// A turn is shorter where there are so many keys that its listings have more than this many together.
const KEYS_A_TURN: u64 = 10_000;

/// What a run is asked to be.
#[derive(Clone, Debug)]
pub struct Params {
    /// Keys that are there throughout.
    pub keys: usize,
    /// How many of them are rewritten.
    pub churned: usize,
    /// How fast.
    pub churn: Churn,
    /// Readers, each with a connection of its own.
    pub readers: usize,
    /// Ways of listing, each once, in the order of their turns.
    pub strategies: Vec<Strategy>,
    /// Listings of each way; none where the duration decides.
    pub count: Option<u64>,
    /// How long is measured, where no count is given.
    pub duration: Duration,
}

impl Params {
    /// Keys beyond [`Params::keys`] that come and go: one of each writer, unless that made the class larger than a listing
    /// may be.
    pub fn extra(&self) -> usize {
        self.churned.min(KEYS_MAX as usize - self.keys)
    }

    /// Connections of the writers.
    pub fn writing(&self) -> usize {
        self.churned.min(WRITING)
    }

    /// Listings of one way in a row, by all readers together. At least one of each reader, so that they are all at the same
    /// way.
    pub fn turn(&self) -> u64 {
        (KEYS_A_TURN / self.keys as u64).min(TURN).max(self.readers as u64)
    }
}

/// How fast keys are rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Churn {
    /// Each key by a loop of its own, which writes again when it was answered.
    Tight,
    /// So many writes in all, spread over the keys, whether or not earlier ones were answered.
    Rate(Rate),
}

impl FromStr for Churn {
    type Err = RateError;

    fn from_str(input: &str) -> Result<Churn, RateError> {
        if input == "tight" { Ok(Churn::Tight) } else { input.parse().map(Churn::Rate) }
    }
}

impl fmt::Display for Churn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Churn::Tight => f.write_str("tight"),
            Churn::Rate(rate) => rate.fmt(f),
        }
    }
}

/// A way of listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Strategy {
    /// Certified by the leader's index.
    Leader,
    /// Proved by a write that a quorum acknowledged.
    Quorum,
    /// A pass alone, until it says that nothing is pending.
    Naive,
}

impl Strategy {
    /// All of them, in the order in which they are counted.
    pub const ALL: [Strategy; 3] = [Strategy::Leader, Strategy::Quorum, Strategy::Naive];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Leader => "leader",
            Strategy::Quorum => "quorum",
            Strategy::Naive => "naive",
        }
    }
}

/// The operations that a run records.
#[derive(Clone)]
pub struct Ops {
    /// A listing, by [`Strategy`].
    listing: [Op; 3],
    /// The write that a quorum's listing stands on.
    pub barrier: Op,
    /// A key's rewriting.
    pub write: Op,
    /// The first write of a key, or that of one that was removed.
    pub create: Op,
    /// The removal of a key that comes and goes.
    pub remove: Op,
}

impl Ops {
    /// Declares the operations to a recorder.
    pub fn declare(recorder: &mut Recorder) -> Ops {
        Ops {
            listing: Strategy::ALL.map(|strategy| recorder.declare(Ops::name(strategy))),
            barrier: recorder.declare("barrier"),
            write: recorder.declare("write"),
            create: recorder.declare("create"),
            remove: recorder.declare("remove"),
        }
    }

    /// The name of a listing in this way.
    pub(super) fn name(strategy: Strategy) -> &'static str {
        match strategy {
            Strategy::Leader => "listing/leader",
            Strategy::Quorum => "listing/quorum",
            Strategy::Naive => "listing/naive",
        }
    }

    /// A listing in this way.
    pub fn listing(&self, strategy: Strategy) -> &Op {
        &self.listing[strategy as usize]
    }
}

/// The listings yet to make, in the order in which they are handed out: a turn of one way, then one of the next.
pub(super) struct Turns {
    strategies: Vec<Strategy>,
    length: u64,
    /// Of each way, in all.
    count: u64,
    handed_out: AtomicU64,
}

impl Turns {
    pub(super) fn new(params: &Params) -> Turns {
        let count = params.count.unwrap_or(u64::MAX);
        Turns { strategies: params.strategies.clone(), length: params.turn(), count, handed_out: AtomicU64::new(0) }
    }

    /// How to list next; none when all was handed out.
    pub(super) fn next(&self) -> Option<Strategy> {
        let number = self.handed_out.fetch_add(1, Ordering::Relaxed);
        let ways = self.strategies.len() as u64;
        let (round, within) = (number / (self.length * ways), number % (self.length * ways));
        // The last round has shorter turns.
        let length = self.count.saturating_sub(round.saturating_mul(self.length)).min(self.length);
        let way = within.checked_div(length).filter(|way| *way < ways)?;
        Some(self.strategies[way as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(keys: usize, readers: usize, count: Option<u64>) -> Params {
        let strategies = vec![Strategy::Naive, Strategy::Leader];
        let duration = Duration::from_secs(1);
        Params { keys, churned: 3, churn: Churn::Tight, readers, strategies, count, duration }
    }

    #[test]
    fn each_way_has_its_turn_until_all_have_their_count() {
        let turns = Turns::new(&params(5, 2, Some(250)));
        let order: Vec<Strategy> = std::iter::from_fn(|| turns.next()).collect();
        let runs: Vec<(Strategy, usize)> = order.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
        let (naive, leader) = (Strategy::Naive, Strategy::Leader);
        assert_eq!(runs, [(naive, 100), (leader, 100), (naive, 100), (leader, 100), (naive, 50), (leader, 50)]);
        assert_eq!((turns.next(), turns.next()), (None, None));
    }

    #[test]
    fn a_turn_of_many_keys_is_short() {
        let turn = |keys, readers| params(keys, readers, None).turn();
        assert_eq!([turn(5, 2), turn(1_000, 2), turn(100_000, 2), turn(5, 300)], [100, 10, 2, 300]);
    }

    #[test]
    fn no_key_comes_and_goes_that_would_make_the_class_too_large() {
        let extra = |keys| params(keys, 2, None).extra();
        assert_eq!([extra(5), extra(99_998), extra(100_000)], [3, 2, 0]);
    }
}
