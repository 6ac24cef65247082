//! The floor as what is around it sees it: how it is opened on brokers, and what it says of itself.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::store::nats::Nats;
use serde_json::{Map, Value, json};

use super::ground::Ground;
use super::params::CELLS;
use super::{Account, CELLS_BEGIN, Floor, Load, Measured, Params};
use crate::duration;
use crate::histogram::nanos;
use crate::recorder::Recorder;
use crate::report::{Anomalies, BringUp, Report};
use crate::scenario::{Parts, Ran, Scenario, Start};
use crate::table::units::{count, per_second, percent, time};
use crate::target::{Target, Unavailable};

impl Scenario for Floor {
    const NAME: &'static str = "floor";
    const CLIENTS: &'static str = "request";
    const MEASURED_FROM: &'static str = CELLS_BEGIN;

    type Params = Params;
    type CameTo = ();

    /// Those of the cell with the most, and the one that makes the streams.
    fn clients(params: &Params) -> usize {
        params.cells().map(|cell| cell.load.connections).max().unwrap_or(0) + 1
    }

    fn schedule_digest(_params: &Params) -> Option<u64> {
        None
    }

    fn new(params: Params, Start { env, origin, prefix, replicas }: Start) -> Floor {
        let mut recorder = Recorder::new(origin);
        let measured = |cell: &'static super::Cell, recorder: &mut Recorder| Measured {
            cell,
            op: recorder.declare(cell.name),
            took: Default::default(),
            account: Account::default(),
        };
        let cells = params.cells().map(|cell| measured(cell, &mut recorder)).collect();
        let (unsettled, parts) = (AtomicU64::new(0), Parts::default());
        Floor { env, params, prefix, replicas, recorder, cells, unsettled, parts }
    }

    async fn open_and_run(
        &self,
        target: &Target,
        first: &Nats,
        interrupt: impl Future<Output = ()>,
    ) -> Result<Ran<()>, Unavailable> {
        let mut interrupt = std::pin::pin!(interrupt);
        let loads: Vec<Load> = self.params.cells().map(|cell| cell.load).collect();
        let (named, keys) = ((&*self.prefix, self.replicas), self.params.keys);
        let ground = tokio::select! {
            ground = Ground::prepare(&self.env, target.access(), first, named, keys, &loads) => ground?,
            () = &mut interrupt => return Ok(Ran { interrupted: true, ..Ran::default() }),
        };
        tracing::info!(cells = self.cells.len(), each = ?self.params.each(), buckets = self.prefix, "floor_prepared");
        let interrupted = self.work(&ground, interrupt).await;
        Ok(Ran { interrupted, brought_up: true, came_to: () })
    }

    fn buckets(&self) -> Vec<String> {
        Ground::buckets(&self.prefix)
    }

    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn parts(&self) -> &Parts {
        &self.parts
    }

    fn anomalies(&self) -> Anomalies {
        Anomalies { ops_unsettled: self.unsettled.load(Ordering::Relaxed), ..Anomalies::default() }
    }

    fn params(&self, (): &()) -> Vec<(&'static str, Value)> {
        let requests = self.params.requests.iter().map(|request| request.name());
        let cells: Map<String, Value> = self.cells.iter().map(reported).collect();
        vec![
            ("requests", requests.collect()),
            ("keys", self.params.keys.into()),
            ("duration", duration::format(self.params.duration).into()),
            ("cells", cells.into()),
        ]
    }

    fn bring_up(&self) -> Option<BringUp> {
        None
    }

    fn progress(&self, part: &str) -> Option<String> {
        (part == "opening").then(|| "filling streams".to_owned())
    }

    /// A line for each cell, in their order.
    fn remarks(report: &Report) -> Vec<String> {
        CELLS.iter().filter_map(|cell| remark(report, cell.name)).collect()
    }
}

/// What a report says of a cell that its operation does not.
fn reported(measured: &Measured) -> (String, Value) {
    let Load { request, connections, in_flight, shared, .. } = measured.cell.load;
    let cell = json!({
        "request": request.name(),
        "connections": connections,
        "in_flight": in_flight,
        "shared": shared,
        "took_ns": measured.took.lock().map(nanos),
        "charges": measured.account.reported(),
    });
    (measured.cell.name.to_owned(), cell)
}

/// What came of a cell; none of one that was not measured to its end.
fn remark(report: &Report, name: &str) -> Option<String> {
    let cell = report.params.get("cells")?.get(name)?;
    let (took, op) = (cell.get("took_ns")?.as_u64()?, report.measurements.ops.get(name)?);
    let phase = report.phases.iter().find(|phase| phase.name == name);
    let cpu = |of: Option<f64>| of.map_or_else(|| "?".to_owned(), percent);
    let latency = &op.latency_ok.corrected;
    let at = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), time);
    let lost = cell.get("charges").and_then(|charges| charges.get("lost")?.as_object());
    let lost: Vec<String> = lost
        .into_iter()
        .flatten()
        .map(|(code, times)| format!(", {} lost by {code}", count(times.as_u64().unwrap_or_default())))
        .collect();
    Some(format!(
        "{name}: {}, p50 {}, p99 {}; CPU of the client {}, of the brokers {}{}",
        per_second(op.arrivals.ok, took),
        at(latency.p50_ns),
        at(latency.p99_ns),
        cpu(phase.and_then(|phase| phase.generator_cpu_percent)),
        cpu(phase.and_then(|phase| phase.brokers_cpu_percent)),
        lost.concat(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::full;

    #[test]
    fn a_cell_has_a_line_once_it_was_measured() {
        let mut report = full(Anomalies::default());
        let op = report.measurements.ops["claim"].clone();
        report.measurements.ops.insert("batch/together".into(), op.clone());
        report.measurements.ops.insert("cas/c1_f1".into(), op);
        report.phases[0].name = "batch/together".into();
        report.phases[0].generator_cpu_percent = Some(12.0);
        let charges = json!({ "landed": 50, "lost": { "10071": 1234, "10164": 2 } });
        let cells = json!({
            "batch/together": { "took_ns": 2_000_000_000_u64, "charges": charges },
            "cas/c1_f1": { "took_ns": null, "charges": null },
        });
        report.params.insert("cells".into(), cells);
        let line = "batch/together: 25.0/s, p50 24.0 ms, p99 ?; CPU of the client 12.0 %, of the brokers 40.0 %, \
                    1,234 lost by 10071, 2 lost by 10164";
        assert_eq!(Floor::remarks(&report), [line]);
    }
}
