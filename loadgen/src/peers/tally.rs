//! What each piece of work came to in each column, round by round.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::listed::Wrongs;
use super::ratios;
use super::turns::{Column, Does, Figure, TURNS, Turn};
use super::work::Piece;
use crate::histogram::{Percentile, nanos};
use crate::recorder::{Op, Recorder};
use crate::rounds::spread;

/// The operation of the writes that proved listings stand on.
const BARRIER: &str = "barrier/layer";

/// What was measured. Clones are handles to the same.
#[derive(Clone)]
pub(super) struct Tally {
    ops: Arc<BTreeMap<&'static str, Op>>,
    rounds: Arc<Mutex<Rounds>>,
}

/// The rounds of every turn by its name, in order.
pub(super) type Rounds = BTreeMap<&'static str, Vec<Round>>;

/// A turn of one round.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    /// None where nothing was asked.
    pub(super) per_second: Option<f64>,
    pub(super) p50_ns: Option<u64>,
    pub(super) p99_ns: Option<u64>,
    pub(super) servers_cpu_percent: Option<f64>,
    pub(super) wrong: u64,
    pub(super) unknown: u64,
    pub(super) ok: u64,
    /// What was wrong with the wrong ones, where they are listings that were read.
    pub(super) listed: Option<Wrongs>,
}

impl Round {
    /// One of its figures.
    pub(super) fn figure(&self, figure: Figure) -> Option<f64> {
        match figure {
            Figure::Rate => self.per_second,
            Figure::Median => self.p50_ns.map(|ns| ns as f64),
            Figure::Cpu => self.servers_cpu_percent,
        }
    }
}

impl Tally {
    /// One that declares every turn in which something is asked to a recorder; bare requests are recorded apart.
    pub(super) fn new(recorder: &mut Recorder) -> Tally {
        let asked = |turn: &&Turn| turn.work.does != Does::Idle && turn.column != Column::Floor;
        let names = TURNS.iter().filter(asked).map(|turn| turn.name).chain([BARRIER]);
        let ops = names.map(|name| (name, recorder.declare(name))).collect();
        Tally { ops: Arc::new(ops), rounds: Arc::default() }
    }

    /// Where a turn's operations are recorded.
    pub(super) fn op(&self, turn: &Turn) -> Op {
        self.ops[turn.name].clone()
    }

    /// Where the writes are recorded that proved listings stand on.
    pub(super) fn barrier(&self) -> Op {
        self.ops[BARRIER].clone()
    }

    /// A turn is over.
    pub(super) fn took(&self, turn: &Turn, piece: &Piece, servers_cpu_percent: Option<f64>) {
        let at = |percentile| piece.latency.percentile(percentile).map(nanos);
        let round = Round {
            per_second: (turn.work.does != Does::Idle)
                .then(|| piece.ok as f64 / piece.took.as_secs_f64().max(f64::MIN_POSITIVE)),
            p50_ns: at(Percentile::P50).or_else(|| piece.latency.max().map(nanos)),
            p99_ns: at(Percentile::P99),
            servers_cpu_percent,
            wrong: piece.wrong,
            unknown: piece.unknown,
            ok: piece.ok,
            listed: piece.listed,
        };
        self.rounds.lock().entry(turn.name).or_default().push(round);
    }

    /// What something came to in the layer's turns at some works, over all rounds.
    pub(super) fn of_the_layer(&self, at: impl Fn(Does) -> bool, of: impl Fn(&Round) -> u64) -> u64 {
        let rounds = self.rounds.lock();
        let turns = TURNS.iter().filter(|turn| turn.column == Column::Layer && at(turn.work.does));
        turns.filter_map(|turn| rounds.get(turn.name)).flatten().map(of).sum()
    }

    /// As a report has it, by turn: medians over the rounds, and the least and the most of them.
    pub(super) fn reported(&self) -> Value {
        let rounds = self.rounds.lock();
        let each = rounds.iter().map(|(turn, rounds)| {
            let sum = |of: fn(&Round) -> u64| rounds.iter().map(of).sum::<u64>();
            let spread = |of: fn(&Round) -> Option<f64>| reported(&rounds.iter().filter_map(of).collect::<Vec<_>>());
            let listed = |of: fn(Wrongs) -> u64| rounds.iter().map(|round| round.listed.map(of)).sum::<Option<u64>>();
            let value = json!({
                "rounds": rounds.len(),
                "ok": sum(|round| round.ok),
                "wrong": sum(|round| round.wrong),
                "short": listed(|wrongs| wrongs.short),
                "double": listed(|wrongs| wrongs.double),
                "old": listed(|wrongs| wrongs.old),
                "unknown": sum(|round| round.unknown),
                "per_second": spread(|round| round.per_second),
                "p50_ns": spread(|round| round.p50_ns.map(|ns| ns as f64)),
                "p99_ns": spread(|round| round.p99_ns.map(|ns| ns as f64)),
                "servers_cpu_percent": spread(|round| round.servers_cpu_percent),
            });
            ((*turn).to_owned(), value)
        });
        Value::Object(each.collect())
    }

    /// As a report has it, by work: the layer against the others.
    pub(super) fn ratios(&self) -> Value {
        ratios::reported(&self.rounds.lock())
    }
}

fn reported(values: &[f64]) -> Value {
    let of = |(median, least, most)| json!({ "median": median, "least": least, "most": most });
    spread(values).map_or(Value::Null, of)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::env::Env;

    use super::*;

    fn turn(name: &str) -> &'static Turn {
        TURNS.iter().find(|turn| turn.name == name).unwrap()
    }

    #[test]
    fn a_turn_has_the_median_of_its_rounds_and_how_far_they_are_apart() {
        let mut recorder = Recorder::new(Env::seeded(1).now());
        let tally = Tally::new(&mut recorder);
        for (ok, wrong) in [(30, 0), (10, 2), (20, 1)] {
            let piece = Piece { ok, wrong, took: Duration::from_secs(1), ..Piece::default() };
            tally.took(turn("claim/kv"), &piece, None);
            tally.took(turn("claim_read/layer"), &piece, None);
        }
        tally.took(turn("idle/kv"), &Piece::default(), Some(2.5));
        let reported = tally.reported();
        let claims = &reported["claim/kv"];
        assert_eq!(claims["per_second"], json!({ "median": 20.0, "least": 10.0, "most": 30.0 }));
        assert_eq!((&claims["wrong"], &claims["p50_ns"]), (&json!(3), &Value::Null));
        assert_eq!(reported["idle/kv"]["per_second"], Value::Null, "nothing was asked");
        let wrong = |does| tally.of_the_layer(|known| known == does, |round| round.wrong);
        assert_eq!((wrong(Does::ClaimAndRead), wrong(Does::Claim)), (3, 0));
    }

    #[test]
    fn what_is_wrong_with_listings_is_told_where_they_were_read() {
        let mut recorder = Recorder::new(Env::seeded(1).now());
        let tally = Tally::new(&mut recorder);
        for wrongs in [Wrongs { short: 1, double: 0, old: 2 }, Wrongs { short: 0, double: 3, old: 2 }] {
            let piece = Piece { ok: 9, wrong: 3, listed: Some(wrongs), ..Piece::default() };
            tally.took(turn("list_5_churn/kv"), &piece, None);
        }
        tally.took(turn("list_5/floor"), &Piece { ok: 9, ..Piece::default() }, None);
        let reported = tally.reported();
        let of = |turn: &str| ["wrong", "short", "double", "old"].map(|what| reported[turn][what].clone());
        assert_eq!(of("list_5_churn/kv"), [json!(6), json!(1), json!(3), json!(4)]);
        assert_eq!(of("list_5/floor"), [json!(0), Value::Null, Value::Null, Value::Null]);
    }
}
