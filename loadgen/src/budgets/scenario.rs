//! The charges as what is around them sees them: how they are opened on brokers, and what they say of themselves.

use std::future::Future;

use engine::store::nats::Nats;
use parking_lot::Mutex;
use serde_json::Value;

use super::{CHARGING, Charging, Clients, Ops, Params, Tally, Way};
use crate::duration;
use crate::floor::beside::Beside;
use crate::floor::{Load, Request};
use crate::recorder::Recorder;
use crate::report::{Anomalies, BringUp, Report};
use crate::rounds::shown;
use crate::scenario::{DRAIN, Parts, Ran, Scenario, Start};
use crate::table::units::{count, time};
use crate::target::{Target, Unavailable};

/// The most bare charges at once.
const BARE_MOST: usize = 32;

impl Scenario for Charging {
    const NAME: &'static str = "budgets";
    const CLIENTS: &'static str = "nodes";
    const MEASURED_FROM: &'static str = CHARGING;
    const NO_FLOOR: &'static str =
        "charges are held against as many bare ones at once, of a single number of --chargers up to 32";

    type Params = Params;
    type CameTo = ();

    fn clients(params: &Params) -> usize {
        params.most_nodes()
    }

    fn schedule_digest(_params: &Params) -> Option<u64> {
        None
    }

    /// A charge beside a bare one of the same company, with as many at once. An operation is of all numbers of chargers together,
    /// so of several there is none, and no more are made at once than there are seats to charge.
    fn floor(params: &Params) -> Beside {
        let [chargers @ 1..=BARE_MOST] = params.chargers[..] else { return Beside::default() };
        let bare = Load { shared: true, ..Load::of(Request::TwoWrites, chargers, chargers) };
        Beside { keys: 0, ops: params.ways.iter().map(|way| (way.operation(), bare)).collect() }
    }

    fn new(params: Params, Start { env, origin, prefix, replicas }: Start) -> Charging {
        let mut recorder = Recorder::new(origin);
        let ops = Ops::declare(&mut recorder);
        let (tally, found, parts) = (Tally::default(), Mutex::default(), Parts::default());
        Charging { env, params, prefix, replicas, recorder, ops, tally, found, parts }
    }

    async fn open_and_run(
        &self,
        target: &Target,
        first: &Nats,
        interrupt: impl Future<Output = ()>,
    ) -> Result<Ran<()>, Unavailable> {
        let store = async |node: usize| match node {
            0 => Ok(first.clone()),
            _ => target.store(node).await,
        };
        let mut interrupt = std::pin::pin!(interrupt);
        let clients: Clients<Nats> = tokio::select! {
            clients = self.open(&store) => clients?,
            () = &mut interrupt => return Ok(Ran { interrupted: true, ..Ran::default() }),
        };
        let (buckets, replicas) = (&self.prefix, self.replicas);
        tracing::info!(nodes = self.params.most_nodes(), buckets, replicas, "budgets_connected");
        Ok(self.run(clients, interrupt).await)
    }

    fn buckets(&self) -> Vec<String> {
        let name = |way: &Way| format!("{}_{}", self.settings(*way).prefix, coordproto::slot::BUDGETS.name);
        self.params.ways.iter().map(name).collect()
    }

    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn parts(&self) -> &Parts {
        &self.parts
    }

    fn anomalies(&self) -> Anomalies {
        let mut found = *self.found.lock();
        if self.parts.began(DRAIN).is_some() {
            found.ops_unsettled += self.tally.never_answered();
        }
        found
    }

    fn params(&self, (): &()) -> Vec<(&'static str, Value)> {
        let params = &self.params;
        let length = match params.rounds {
            Some(rounds) => ("rounds", rounds.into()),
            None => ("duration", duration::format(params.duration).into()),
        };
        vec![
            ("chargers", params.chargers.clone().into()),
            ("nodes", params.nodes.into()),
            ("ways", params.ways.iter().map(|way| way.name()).collect()),
            length,
            ("charges", self.tally.reported(params)),
        ]
    }

    fn bring_up(&self) -> Option<BringUp> {
        None
    }

    fn progress(&self, part: &str) -> Option<String> {
        (part == "opening").then(|| format!("connecting {} nodes", self.params.most_nodes()))
    }

    fn remarks(report: &Report) -> Vec<String> {
        let lines = report.params.get("charges").and_then(Value::as_array).into_iter().flatten();
        let of = |line| Way::ALL.into_iter().flat_map(move |way| [remark(line, way), compared(line, way)]);
        lines.flat_map(of).flatten().collect()
    }
}

/// What the charges of so many chargers in one way came to; none when there were none.
fn remark(line: &Value, way: Way) -> Option<String> {
    let own = line.get("ways")?.get(way.name())?;
    let number = |name: &str| own.get(name)?.as_f64();
    let name = name(line, way)?;
    let unknown = own.get("unknown")?.as_u64()?;
    let Some(answered) = number("answered_per_second").filter(|rate| *rate > 0.0) else {
        return (unknown > 0).then(|| format!("{name}: none answered, {} unknown", count(unknown)));
    };
    let wait = own.get("wait_p50_ns")?.as_u64().map_or_else(String::new, |ns| format!(", p50 {}", time(ns)));
    let exhausted = own.get("exhausted")?.as_u64()?;
    Some(format!(
        "{name}: {}/s, {:.3} requests, {:.3} attempts each, {} exhausted{wait}",
        count(answered.round() as u64),
        number("requests_per_charge")?,
        number("attempts_per_charge")?,
        if exhausted == 0 { "none".to_owned() } else { count(exhausted) },
    ))
}

/// How the throughput of one way compares with that of those after it; none where there is nothing to compare.
fn compared(line: &Value, way: Way) -> Option<String> {
    let times = line.get("ways")?.get(way.name())?.get("times")?;
    let against = |other: Way| {
        let blocks: Vec<f64> = times.get(other.name())?.as_array()?.iter().filter_map(Value::as_f64).collect();
        Some(format!("{} times {}", shown(&blocks)?, other.name()))
    };
    let all: Vec<String> = Way::ALL.into_iter().filter_map(against).collect();
    Some(format!("{}: {}", name(line, way)?, all.join(", "))).filter(|_| !all.is_empty())
}

/// The number of chargers and the way.
fn name(line: &Value, way: Way) -> Option<String> {
    Some(format!("{} {}", count(line.get("chargers")?.as_u64()?), way.name()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::tests::full;

    #[test]
    fn each_way_has_a_line_that_fits_and_says_what_it_came_to() {
        let mut report = full(Anomalies::default());
        let came_to = |rate: f64, requests: f64, exhausted: u64, times: Value| {
            json!({
                "answered_per_second": rate, "requests_per_charge": requests, "attempts_per_charge": requests / 2.0,
                "unknown": exhausted, "exhausted": exhausted, "wait_p50_ns": 37_000_000, "times": times,
            })
        };
        let silent =
            json!({ "answered_per_second": 0.0, "unknown": 320, "exhausted": 0, "wait_p50_ns": null, "times": {} });
        let ways = json!({
            "combined": came_to(26_315.4, 0.022, 0, json!({ "uncombined": [69.25, 71.0, 60.5], "plain": [200.123] })),
            "uncombined": came_to(380.0, 4.0, 0, json!({ "plain": [2.5, 3.0] })),
            "plain": came_to(131.5, 11.25, 7, json!({})),
        });
        let charges = json!([
            { "chargers": 1_000, "ways": ways },
            { "chargers": 32, "ways": { "combined": silent } },
        ]);
        report.params.insert("charges".into(), charges);
        let lines = Charging::remarks(&report);
        let expected = [
            "1,000 combined: 26,315/s, 0.022 requests, 0.011 attempts each, none exhausted, p50 37.0 ms",
            "1,000 combined: 69.25 (60.50 to 71.00) times uncombined, 200.12 times plain",
            "1,000 uncombined: 380/s, 4.000 requests, 2.000 attempts each, none exhausted, p50 37.0 ms",
            "1,000 uncombined: 2.75 (2.50 to 3.00) times plain",
            "1,000 plain: 132/s, 11.250 requests, 5.625 attempts each, 7 exhausted, p50 37.0 ms",
            "32 combined: none answered, 320 unknown",
        ];
        assert_eq!(lines, expected);
        report.params.clear();
        assert_eq!(Charging::remarks(&report), [] as [&str; 0], "before anything was charged");
    }
}
