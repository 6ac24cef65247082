//! The mix as what is around it sees it: how it is opened on brokers, and what it says of itself.

use std::future::Future;

use engine::store::nats::Nats;
use serde_json::{Map, Value};

use super::ops::Ops;
use super::params::HEARTBEAT;
use super::streams::{Stream, streams};
use super::{CameTo, FOUNDING, MIX, Mix, Node, Params};
use crate::duration;
use crate::fleet;
use crate::floor::beside::Beside;
use crate::floor::{Load, Request};
use crate::histogram::nanos;
use crate::recorder::Recorder;
use crate::report::{Anomalies, BringUp, Report};
use crate::scenario::{Parts, Ran, Scenario, Start};
use crate::table::units::{count, per_second};
use crate::target::{Target, Unavailable};

impl Scenario for Mix {
    const NAME: &'static str = "mix";
    const CLIENTS: &'static str = "nodes";
    const MEASURED_FROM: &'static str = MIX;

    type Params = Params;
    type CameTo = CameTo;

    fn clients(params: &Params) -> usize {
        params.nodes()
    }

    fn schedule_digest(params: &Params) -> Option<u64> {
        Some(params.schedule_digest())
    }

    /// A renewal beside its node's burst, which is most of what a mix asks.
    fn floor(params: &Params) -> Beside {
        let burst = (params.seats / params.nodes()).max(1);
        Beside { keys: 0, ops: vec![("renew", Load { bursts: true, ..Load::of(Request::Cas, 1, burst) })] }
    }

    fn new(params: Params, Start { env, origin, prefix, replicas }: Start) -> Mix {
        let mut recorder = Recorder::new(origin);
        let (beat, ops) = (fleet::Ops::declare(&mut recorder), Ops::declare(&mut recorder));
        let (model, parts) = (fleet::Model::default(), Parts::default());
        Mix { env, params, prefix, replicas, recorder, beat, ops, model, parts }
    }

    async fn open_and_run(
        &self,
        target: &Target,
        first: &Nats,
        interrupt: impl Future<Output = ()>,
    ) -> Result<Ran<CameTo>, Unavailable> {
        let store = async |node: usize| match node {
            0 => Ok(first.clone()),
            _ => target.store(node).await,
        };
        let mut interrupt = std::pin::pin!(interrupt);
        let nodes: Vec<Node<Nats>> = tokio::select! {
            nodes = self.open(&store) => nodes?,
            () = &mut interrupt => return Ok(Ran { interrupted: true, ..Ran::default() }),
        };
        tracing::info!(nodes = nodes.len(), buckets = self.prefix, replicas = self.replicas, "mix_connected");
        Ok(Box::pin(self.run(nodes, interrupt)).await)
    }

    fn buckets(&self) -> Vec<String> {
        fleet::buckets(&self.prefix)
    }

    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn parts(&self) -> &Parts {
        &self.parts
    }

    fn anomalies(&self) -> Anomalies {
        self.model.anomalies()
    }

    fn params(&self, came_to: &CameTo) -> Vec<(&'static str, Value)> {
        let params = &self.params;
        let in_all =
            |stream: Stream| (stream.name.to_owned(), stream.in_all(params.seats, params.nodes()).to_string().into());
        vec![
            ("seats", params.seats.into()),
            ("nodes", params.nodes().into()),
            ("heartbeat", duration::format(HEARTBEAT).into()),
            ("turns", params.turns.to_string().into()),
            ("duration", duration::format(params.duration).into()),
            ("warmup", duration::format(params.warmup()).into()),
            ("streams", streams(params.turns).into_iter().map(in_all).collect::<Map<_, _>>().into()),
            ("seats_held_at_end", came_to.seats_held.into()),
        ]
    }

    fn bring_up(&self) -> Option<BringUp> {
        let (from, to) = self.parts.began("bring_up").zip(self.parts.began(FOUNDING))?;
        Some(BringUp { seats: self.params.seats as u64, duration_ns: nanos(to.since(from)) })
    }

    fn progress(&self, part: &str) -> Option<String> {
        let Params { seats, .. } = self.params;
        match part {
            "opening" => Some(format!("connecting {} nodes", self.params.nodes())),
            "bring_up" => Some(format!("{} of {seats} seats held", self.crew().seats_held())),
            FOUNDING => Some(format!("{seats} mailboxes and what else a company begins with")),
            _ => None,
        }
    }

    fn remarks(report: &Report) -> Vec<String> {
        in_all(report).into_iter().chain(fleet::leases_ended(report)).collect()
    }
}

/// What all families came to together.
fn in_all(report: &Report) -> Option<String> {
    let ops = report.measurements.ops.values();
    let ended = |op: &crate::report::Operation| op.arrivals.ok + op.arrivals.refused + op.arrivals.unknown;
    let (operations, requests) = ops.fold((0, 0.0), |(operations, requests), op| {
        (operations + ended(op), requests + op.requests_per_op.unwrap_or_default() * ended(op) as f64)
    });
    let rate = |count: u64| per_second(count, report.duration_ns);
    let requests = requests.round() as u64;
    (operations > 0).then(|| {
        format!(
            "{} operations, {}; {} requests to the brokers, {}",
            count(operations),
            rate(operations),
            count(requests),
            rate(requests)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::full;

    #[test]
    fn the_sum_of_all_families_has_a_line() {
        let mut report = full(Anomalies::default());
        let line = "5,990 operations, 99.8/s; 6,040 requests to the brokers, 101/s";
        assert_eq!(Mix::remarks(&report)[0], line);
        report.measurements.ops.clear();
        assert_eq!(Mix::remarks(&report), [] as [&str; 0]);
    }
}
