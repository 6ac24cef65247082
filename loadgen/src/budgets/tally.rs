//! What the charges came to, by the number of chargers and the way.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use coordproto::answer::Cause;
use engine::slots::budgets::{Charge, ChargeError, Gate};
use engine::store::counting::Calls;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::{Params, Way};
use crate::histogram::{Percentile, Samples, nanos};

/// In so many blocks of turns at most the ways are held against each other.
const BLOCKS: usize = 10;

/// The count of all charges. Clones are handles to the same.
#[derive(Clone, Default)]
pub struct Tally(Arc<Mutex<Vec<Line>>>);

/// The charges of so many chargers in one way.
struct Line {
    chargers: usize,
    way: Way,
    charges: Charges,
}

/// What charges came to.
#[derive(Clone, Debug, Default)]
pub struct Charges {
    /// Rounds, in each of which every charger charged once.
    pub rounds: u64,
    /// From the beginning of a round until its last charge was answered, all rounds together.
    pub busy: Duration,
    /// Charges that were admitted.
    pub admitted: u64,
    /// Charges that were refused, and counted like the others.
    pub refused: u64,
    /// Charges without an answer.
    pub unknown: u64,
    /// Those of them that ran out of attempts.
    pub exhausted: u64,
    /// Requests of all of them.
    pub requests: u64,
    /// Those of them that were writes.
    pub attempts: u64,
    /// How long each waited for its answer.
    pub waits: Samples,
    /// At the end of each turn, how many had been answered so far and how long it had been busy.
    turns: Vec<(u64, Duration)>,
}

impl Charges {
    /// Charges that were answered.
    pub fn answered(&self) -> u64 {
        self.admitted + self.refused
    }

    /// One charge's answer, and how long it took.
    pub(super) fn told(&mut self, answer: &Result<Charge, ChargeError>, took: Duration) {
        match answer {
            Ok(Charge { gate, .. }) => {
                let counter = if *gate == Gate::Admitted { &mut self.admitted } else { &mut self.refused };
                *counter += 1;
                self.waits.record(took);
            }
            Err(ChargeError::Unknown(unknown) | ChargeError::SeatUncounted { unknown, .. }) => {
                self.unknown += 1;
                self.exhausted += u64::from(matches!(unknown.cause, Cause::Contended { .. }));
            }
            Err(ChargeError::BadArgument(_)) => {}
        }
    }

    /// One round's cost.
    pub(super) fn round(&mut self, took: Duration, calls: Calls) {
        self.rounds += 1;
        self.busy += took;
        self.requests += calls.total();
        self.attempts += calls.put;
    }

    /// A turn is over.
    pub(super) fn turned(&mut self) {
        self.turns.push((self.answered(), self.busy));
    }

    /// How many were answered in a second, over those of the first turns; none where no time was spent.
    fn rate(&self, turns: Range<usize>) -> Option<f64> {
        let until =
            |turns: usize| turns.checked_sub(1).and_then(|last| self.turns.get(last)).copied().unwrap_or_default();
        let ((before, idle), (answered, busy)) = (until(turns.start), until(turns.end));
        Some((answered - before) as f64 / (busy - idle).as_secs_f64()).filter(|rate| rate.is_finite())
    }

    /// How many times another way's rate this one's was, in each block of turns. Ways have their turns one after another, so a
    /// block of both was one stretch of time.
    fn times(&self, other: &Charges) -> Vec<f64> {
        let turns = self.turns.len().min(other.turns.len());
        let blocks = turns.min(BLOCKS);
        let block = |number: usize| turns * number / blocks..turns * (number + 1) / blocks;
        let times =
            |block: Range<usize>| Some(self.rate(block.clone())? / other.rate(block).filter(|rate| *rate > 0.0)?);
        (0..blocks).map(block).filter_map(times).map(rounded).collect()
    }

    fn reported(&self) -> Value {
        let ended = self.answered() + self.unknown;
        let each = |total: u64| (ended > 0).then(|| rounded(total as f64 / ended as f64));
        let at = |percentile| self.waits.percentile(percentile).map(nanos);
        let rate = self.answered() as f64 / self.busy.as_secs_f64();
        json!({
            "rounds": self.rounds,
            "admitted": self.admitted,
            "refused": self.refused,
            "unknown": self.unknown,
            "exhausted": self.exhausted,
            "answered_per_second": rate.is_finite().then(|| rounded(rate)),
            "requests_per_charge": each(self.requests),
            "attempts_per_charge": each(self.attempts),
            "wait_p50_ns": at(Percentile::P50),
            "wait_p99_ns": at(Percentile::P99),
            "wait_max_ns": self.waits.max().map(nanos),
        })
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl Tally {
    /// Changes what the charges of so many chargers in one way came to.
    pub(super) fn with<T>(&self, chargers: usize, way: Way, change: impl FnOnce(&mut Charges) -> T) -> T {
        let mut lines = self.0.lock();
        let found = lines.iter().position(|line| line.chargers == chargers && line.way == way);
        let at = found.unwrap_or_else(|| {
            lines.push(Line { chargers, way, charges: Charges::default() });
            lines.len() - 1
        });
        change(&mut lines[at].charges)
    }

    /// What the charges of so many chargers in one way came to.
    pub fn of(&self, chargers: usize, way: Way) -> Charges {
        self.with(chargers, way, |charges| charges.clone())
    }

    /// Numbers and ways whose charges were all without an answer.
    pub(super) fn never_answered(&self) -> u64 {
        let lines = self.0.lock();
        lines.iter().filter(|line| line.charges.unknown > 0 && line.charges.answered() == 0).count() as u64
    }

    /// What a report says of them.
    pub(super) fn reported(&self, params: &Params) -> Value {
        let of = |chargers: usize| {
            let way = |way: &Way| {
                let (charges, later) =
                    (self.of(chargers, *way), params.ways.iter().skip_while(|other| *other != way).skip(1));
                let mut reported = charges.reported();
                let times = |other: &Way| (other.name(), charges.times(&self.of(chargers, *other)));
                reported["times"] = later.map(times).collect();
                (way.name().to_owned(), reported)
            };
            let ways: Map<String, Value> = params.ways.iter().map(way).collect();
            json!({ "chargers": chargers, "nodes": params.nodes_of(chargers), "ways": ways })
        };
        params.chargers.iter().map(|chargers| of(*chargers)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Charges whose turns had so many answers in so many seconds each.
    fn of(turns: impl IntoIterator<Item = (u64, u64)>) -> Charges {
        let mut charges = Charges::default();
        for (answered, seconds) in turns {
            charges.admitted += answered;
            charges.busy += Duration::from_secs(seconds);
            charges.turned();
        }
        charges
    }

    #[test]
    fn ways_are_compared_block_by_block_of_their_turns() {
        // The machine is ever slower, and both ways with it.
        let (own, other) = (of((1..=30).map(|turn| (600, turn))), of((1..=30).map(|turn| (300, turn))));
        assert_eq!(own.times(&other), [2.0; 10]);
        let [whole, cut] = [of([(30, 1), (40, 1), (50, 1)]), of([(10, 1), (10, 1)])];
        assert_eq!((whole.times(&cut), cut.times(&whole)), (vec![3.0, 4.0], vec![0.333, 0.25]));
        let silent = of([(0, 1), (10, 1)]);
        assert_eq!(whole.times(&silent), [4.0], "of nothing there are no times");
        assert_eq!(silent.times(&whole), [0.0, 0.25]);
        assert_eq!((whole.times(&of([])), whole.times(&of([(0, 0)]))), (vec![], vec![]));
    }
}
