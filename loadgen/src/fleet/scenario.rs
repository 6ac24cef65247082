//! The fleet as what is around it sees it: how it is opened on brokers, and what it says of itself.

use std::future::Future;
use std::time::Duration;

use engine::lease::Leases;
use engine::store::nats::Nats;
use serde_json::Value;

use super::{CameTo, ContestOps, Fleet, Model, Ops, Params};
use crate::duration;
use crate::floor::beside::Beside;
use crate::floor::{Load, Request};
use crate::histogram::nanos;
use crate::recorder::Recorder;
use crate::report::{Anomalies, BringUp, Report, SeriesPoint};
use crate::scenario::{Parts, Ran, Scenario, Start};
use crate::table::units::{count, plural, time};
use crate::target::{Target, Unavailable};

impl Scenario for Fleet {
    const NAME: &'static str = "fleet";
    const CLIENTS: &'static str = "nodes";
    const MEASURED_FROM: &'static str = "quiet";

    type Params = Params;
    type CameTo = CameTo;

    fn clients(params: &Params) -> usize {
        params.nodes
    }

    fn schedule_digest(params: &Params) -> Option<u64> {
        Some(params.schedule_digest())
    }

    /// A renewal beside its node's burst, a claim beside as many at once as there are claimers.
    fn floor(params: &Params) -> Beside {
        let burst = (params.seats / params.nodes).max(1);
        let renew = Load { bursts: true, ..Load::of(Request::Cas, 1, burst) };
        // Claimers have the nodes' connections in turn.
        let connections = params.claimers.min(params.nodes);
        let claim = Load::of(Request::Cas, connections, params.claimers / connections * connections);
        Beside { keys: 0, ops: vec![("renew", renew), ("claim", claim)] }
    }

    fn new(params: Params, Start { env, origin, prefix, replicas }: Start) -> Fleet {
        let mut recorder = Recorder::new(origin);
        let (ops, contest_ops) = (Ops::declare(&mut recorder), ContestOps::declare(&mut recorder));
        let (model, parts) = (Model::default(), Parts::default());
        Fleet { env, params, prefix, replicas, recorder, ops, contest_ops, model, parts }
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
        let leases: Vec<Leases<Nats>> = tokio::select! {
            leases = self.open(&store) => leases?,
            () = &mut interrupt => return Ok(Ran { interrupted: true, ..Ran::default() }),
        };
        tracing::info!(nodes = leases.len(), buckets = self.prefix, replicas = self.replicas, "fleet_connected");
        Ok(Box::pin(self.run(&leases, interrupt)).await)
    }

    fn buckets(&self) -> Vec<String> {
        buckets(&self.prefix)
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
        let text = |d: Duration| Value::from(duration::format(d));
        vec![
            ("seats", params.seats.into()),
            ("nodes", params.nodes.into()),
            ("heartbeat", text(params.heartbeat)),
            ("claimers", params.claimers.into()),
            ("claims", params.claims.into()),
            ("duration", text(params.duration)),
            ("warmup", text(params.warmup)),
            ("claims_settled", came_to.claims_settled.into()),
            ("seats_held_at_end", came_to.seats_held.into()),
        ]
    }

    fn bring_up(&self) -> Option<BringUp> {
        let (from, to) = self.parts.began("bring_up").zip(self.parts.began("warm_up"))?;
        Some(BringUp { seats: self.params.seats as u64, duration_ns: nanos(to.since(from)) })
    }

    fn progress(&self, part: &str) -> Option<String> {
        match part {
            "opening" => Some(format!("connecting {} nodes", self.params.nodes)),
            "bring_up" | "warm_up" => Some(format!("{} of {} seats held", self.seats_held(), self.params.seats)),
            _ => None,
        }
    }

    fn remarks(report: &Report) -> Vec<String> {
        leases_ended(report).into_iter().collect()
    }
}

/// The bucket of every slot.
pub(crate) fn buckets(prefix: &str) -> Vec<String> {
    coordproto::slot::SLOTS.iter().map(|slot| format!("{prefix}_{}", slot.name)).collect()
}

/// How many leases ended by themselves before their holders could ask again, and how they fared since: no anomaly, and
/// nothing to leave unsaid.
pub(crate) fn leases_ended(report: &Report) -> Option<String> {
    let ops = &report.measurements.ops;
    let refused = |name| ops.get(name).map_or(0, |op| op.arrivals.refused);
    let lost: u64 = ["renew", "renew_retry", "presence"].into_iter().map(refused).sum();
    let ended = lost.saturating_sub(report.findings.anomalies().live_leases_lost);
    let again = ops.get("sweep")?.arrivals.ok;
    let claimed = |point: &&SeriesPoint| point.ops.get("sweep").is_some_and(|op| op.ok > 0);
    let last = report.measurements.series.iter().rfind(claimed).map(|point| time(point.t_ns));
    let last = last.map_or_else(String::new, |last| format!(", the last in the second from {last}"));
    let ended = (ended > 0).then(|| plural(ended, "lease", "leases"))?;
    Some(format!("{ended} ended before a renewal came through; {} claimed again{last}", count(again)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::full;

    #[test]
    fn leases_that_ended_are_told_apart_from_those_that_were_lost() {
        let mut report = full(Anomalies { live_leases_lost: 2, ..Anomalies::default() });
        let claim = report.measurements.ops["claim"].clone();
        report.measurements.ops.insert("sweep".into(), claim);
        for point in &mut report.measurements.series {
            if let Some(claims) = point.ops.get("claim").cloned() {
                point.ops.insert("sweep".into(), claims);
            }
        }
        let line =
            "57 leases ended before a renewal came through; 50 claimed again, the last in the second from 6.00 s";
        assert_eq!(Fleet::remarks(&report), [line]);
        report.measurements.ops.get_mut("renew").unwrap().arrivals.refused = 2;
        assert_eq!(Fleet::remarks(&report), [] as [&str; 0]);
    }
}
