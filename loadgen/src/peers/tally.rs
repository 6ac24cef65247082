//! What each piece of work came to on each peer, round by round.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::work::Piece;
use crate::histogram::{Percentile, nanos};
use crate::recorder::{Op, Recorder};

/// The peers, by the names of their columns.
pub(super) const PEERS: [&str; 4] = ["layer", "kv", "etcd_seats", "etcd_nodes"];

/// The pieces of work, in order.
pub(super) const WORKS: [&str; 10] = [
    "claim",
    "renew_paced",
    "renew_flat",
    "list_5",
    "list_5_churn",
    "list_100",
    "list_100_churn",
    "list_all",
    "list_all_churn",
    "charge",
];

/// A peer's turn at a piece of work: `<work>/<peer>`.
pub(super) fn turn(work: &str, peer: &str) -> &'static str {
    const NAMES: [[&str; 4]; 10] = [
        ["claim/layer", "claim/kv", "claim/etcd_seats", "claim/etcd_nodes"],
        ["renew_paced/layer", "renew_paced/kv", "renew_paced/etcd_seats", "renew_paced/etcd_nodes"],
        ["renew_flat/layer", "renew_flat/kv", "renew_flat/etcd_seats", "renew_flat/etcd_nodes"],
        ["list_5/layer", "list_5/kv", "list_5/etcd_seats", "list_5/etcd_nodes"],
        ["list_5_churn/layer", "list_5_churn/kv", "list_5_churn/etcd_seats", "list_5_churn/etcd_nodes"],
        ["list_100/layer", "list_100/kv", "list_100/etcd_seats", "list_100/etcd_nodes"],
        ["list_100_churn/layer", "list_100_churn/kv", "list_100_churn/etcd_seats", "list_100_churn/etcd_nodes"],
        ["list_all/layer", "list_all/kv", "list_all/etcd_seats", "list_all/etcd_nodes"],
        ["list_all_churn/layer", "list_all_churn/kv", "list_all_churn/etcd_seats", "list_all_churn/etcd_nodes"],
        ["charge/layer", "charge/kv", "charge/etcd_seats", "charge/etcd_nodes"],
    ];
    let at = |names: &[&str], name| names.iter().position(|known| *known == name).expect("it is one of them");
    NAMES[at(&WORKS, work)][at(&PEERS, peer)]
}

/// What was measured. Clones are handles to the same.
#[derive(Clone)]
pub(super) struct Tally {
    ops: Arc<BTreeMap<&'static str, Op>>,
    rounds: Arc<Mutex<BTreeMap<&'static str, Vec<Round>>>>,
}

/// A turn of one round.
#[derive(Clone, Debug)]
struct Round {
    per_second: f64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    servers_cpu_percent: Option<f64>,
    wrong: u64,
    unknown: u64,
    ok: u64,
}

impl Tally {
    /// One that declares every turn to a recorder.
    pub(super) fn new(recorder: &mut Recorder) -> Tally {
        let turns = WORKS.iter().flat_map(|work| PEERS.map(|peer| turn(work, peer)));
        let ops = turns.map(|turn| (turn, recorder.declare(turn))).collect();
        Tally { ops: Arc::new(ops), rounds: Arc::default() }
    }

    /// Where a turn's operations are recorded.
    pub(super) fn op(&self, turn: &str) -> Op {
        self.ops[turn].clone()
    }

    /// A turn is over.
    pub(super) fn took(&self, turn: &'static str, piece: &Piece, servers_cpu_percent: Option<f64>) {
        let at = |percentile| piece.latency.percentile(percentile).map(nanos);
        let round = Round {
            per_second: piece.ok as f64 / piece.took.as_secs_f64().max(f64::MIN_POSITIVE),
            p50_ns: at(Percentile::P50).or_else(|| piece.latency.max().map(nanos)),
            p99_ns: at(Percentile::P99),
            servers_cpu_percent,
            wrong: piece.wrong,
            unknown: piece.unknown,
            ok: piece.ok,
        };
        self.rounds.lock().entry(turn).or_default().push(round);
    }

    /// Wrong answers in a turn, over all rounds.
    pub(super) fn wrong(&self, turn: &str) -> u64 {
        self.rounds.lock().get(turn).into_iter().flatten().map(|round| round.wrong).sum()
    }

    /// As a report has it, by turn: medians over the rounds, and the least and the most of them.
    pub(super) fn reported(&self) -> Value {
        let rounds = self.rounds.lock();
        let each = rounds.iter().map(|(turn, rounds)| {
            let sum = |of: fn(&Round) -> u64| rounds.iter().map(of).sum::<u64>();
            let value = json!({
                "rounds": rounds.len(),
                "ok": sum(|round| round.ok),
                "wrong": sum(|round| round.wrong),
                "unknown": sum(|round| round.unknown),
                "per_second": spread(rounds.iter().map(|round| Some(round.per_second))),
                "p50_ns": spread(rounds.iter().map(|round| round.p50_ns.map(|ns| ns as f64))),
                "p99_ns": spread(rounds.iter().map(|round| round.p99_ns.map(|ns| ns as f64))),
                "servers_cpu_percent": spread(rounds.iter().map(|round| round.servers_cpu_percent)),
            });
            ((*turn).to_owned(), value)
        });
        Value::Object(each.collect())
    }
}

/// The median, the least and the most of what was measured; null where nothing was.
fn spread(values: impl Iterator<Item = Option<f64>>) -> Value {
    let mut values: Vec<f64> = values.flatten().collect();
    values.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (values.first(), values.last()) else { return Value::Null };
    json!({ "median": values[values.len() / 2], "least": least, "most": most })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::env::Env;

    use super::*;

    #[test]
    fn a_turn_has_the_median_of_its_rounds_and_how_far_they_are_apart() {
        let mut recorder = Recorder::new(Env::seeded(1).now());
        let tally = Tally::new(&mut recorder);
        for (ok, wrong) in [(30, 0), (10, 2), (20, 1)] {
            let piece = Piece { ok, wrong, took: Duration::from_secs(1), ..Piece::default() };
            tally.took(turn("claim", "kv"), &piece, None);
        }
        let reported = tally.reported();
        let claims = &reported["claim/kv"];
        assert_eq!(claims["per_second"], json!({ "median": 20.0, "least": 10.0, "most": 30.0 }));
        assert_eq!((&claims["wrong"], &claims["p50_ns"]), (&json!(3), &Value::Null));
        assert_eq!((tally.wrong("claim/kv"), tally.wrong("claim/layer")), (3, 0));
    }

    #[test]
    fn every_turn_is_named_after_its_work_and_its_peer() {
        for work in WORKS {
            for peer in PEERS {
                assert_eq!(turn(work, peer), format!("{work}/{peer}"));
            }
        }
    }
}
