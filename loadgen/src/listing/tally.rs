//! What the listings came to, by the way in which they were made.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Strategy, Wrong};
use crate::report::Anomalies;

/// The count of all listings. Clones are handles to the same.
#[derive(Clone, Default)]
pub struct Tally(Arc<Mutex<[Listings; 3]>>);

/// What the listings of one way came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listings {
    /// Those that were answered.
    pub answered: u64,
    /// Those of them that lacked a key that was live throughout.
    pub short: u64,
    /// Those of them that had a key more than once.
    pub double: u64,
    /// Those of them that had a key at an older revision than had been acknowledged before.
    pub old: u64,
    /// Those that were not answered.
    pub unknown: u64,
    /// Reads of single keys that were asked of the leader for all of them, the unknown ones included.
    pub leader_reads: u64,
}

impl Listings {
    /// Leader reads of a listing on average; none when none ended.
    fn reads_each(&self) -> Option<f64> {
        let ended = self.answered + self.unknown;
        (ended > 0).then(|| (self.leader_reads as f64 / ended as f64 * 1000.0).round() / 1000.0)
    }
}

impl Strategy {
    /// Whether each of these makes a listing in this way an anomaly.
    fn promises(self) -> Promises {
        Promises { whole: self != Strategy::Naive, new: self == Strategy::Quorum }
    }
}

/// What a way of listing promises.
struct Promises {
    /// Every key that was live throughout, each once.
    whole: bool,
    /// At the revision that was acknowledged before, or later.
    new: bool,
}

impl Tally {
    /// A listing was answered; says whether it is not what its way promises.
    pub fn answered(&self, strategy: Strategy, wrong: Wrong, leader_reads: u64) -> bool {
        let (short, double, old) = (wrong.missed > 0, wrong.twice > 0, wrong.old > 0);
        let listings = &mut self.0.lock()[strategy as usize];
        listings.answered += 1;
        listings.short += u64::from(short);
        listings.double += u64::from(double);
        listings.old += u64::from(old);
        listings.leader_reads += leader_reads;
        let promises = strategy.promises();
        promises.whole && (short || double) || promises.new && old
    }

    /// A listing was not answered.
    pub fn unknown(&self, strategy: Strategy, leader_reads: u64) {
        let listings = &mut self.0.lock()[strategy as usize];
        listings.unknown += 1;
        listings.leader_reads += leader_reads;
    }

    /// What the listings of one way came to.
    pub fn of(&self, strategy: Strategy) -> Listings {
        self.0.lock()[strategy as usize]
    }

    /// What of it must not be.
    pub fn anomalies(&self) -> Anomalies {
        let mut anomalies = Anomalies::default();
        for (strategy, listings) in Strategy::ALL.into_iter().zip(*self.0.lock()) {
            let promises = strategy.promises();
            if promises.whole {
                anomalies.listing_short += listings.short;
                anomalies.listing_double += listings.double;
            }
            if promises.new {
                anomalies.listing_old += listings.old;
            }
        }
        anomalies
    }

    /// The counts of these ways, as a report has them.
    pub fn reported(&self, strategies: &[Strategy]) -> Value {
        let each = strategies.iter().map(|strategy| {
            let listings = self.of(*strategy);
            let counts = json!({
                "answered": listings.answered,
                "short": listings.short,
                "double": listings.double,
                "old": listings.old,
                "unknown": listings.unknown,
                "leader_reads_per_listing": listings.reads_each(),
            });
            (strategy.name().to_owned(), counts)
        });
        Value::Object(each.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_way_does_not_promise_is_counted_and_no_anomaly() {
        let of = |strategy, missed, twice, old| {
            let tally = Tally::default();
            let wrong = tally.answered(strategy, Wrong { missed, twice, old }, 2);
            let listings = tally.of(strategy);
            assert_eq!((listings.answered, listings.leader_reads), (1, 2));
            assert_eq!(
                [listings.short, listings.double, listings.old],
                [missed, twice, old].map(|keys| (keys > 0) as u64)
            );
            let found = tally.anomalies();
            assert_eq!(wrong, found.total() > 0);
            [found.listing_short, found.listing_double, found.listing_old]
        };
        assert_eq!(of(Strategy::Naive, 2, 1, 1), [0, 0, 0]);
        assert_eq!(of(Strategy::Leader, 2, 1, 1), [1, 1, 0]);
        assert_eq!(of(Strategy::Quorum, 2, 1, 1), [1, 1, 1]);
        for strategy in [Strategy::Leader, Strategy::Quorum] {
            assert_eq!(of(strategy, 0, 0, 0), [0, 0, 0]);
            assert_eq!(of(strategy, 0, 1, 0), [0, 1, 0]);
        }
        assert_eq!(of(Strategy::Quorum, 0, 0, 3), [0, 0, 1]);
    }
}
