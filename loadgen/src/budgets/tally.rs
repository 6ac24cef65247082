//! What the charges came to, by the number of chargers and the way.

use std::sync::Arc;
use std::time::Duration;

use coordproto::answer::Cause;
use engine::slots::budgets::{Charge, ChargeError, Gate};
use engine::store::counting::Calls;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::{Params, Way};
use crate::histogram::{Percentile, Samples, nanos};

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
            let way = |way: &Way| (way.name().to_owned(), self.of(chargers, *way).reported());
            let ways: Map<String, Value> = params.ways.iter().map(way).collect();
            json!({ "chargers": chargers, "nodes": params.nodes_of(chargers), "ways": ways })
        };
        params.chargers.iter().map(|chargers| of(*chargers)).collect()
    }
}
