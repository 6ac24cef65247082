//! `report.json`: what a run found, in a form that stays.
//!
//! Its shape is fixed by `docs/report.schema.json` from version 1 on. All durations and instants are integer nanoseconds,
//! `*_ns`; instants (`t_ns`, `start_ns`, `first_ns`, ...) count from the run's origin, at `started_at`, so that latencies,
//! brokers and faults share one time axis. What was not measured is null, never zero and never absent.
//!
//! The verdict follows from the anomalies and from nothing else; see [`Findings`]. A report of an interrupted run is
//! written by the same code with `interrupted: true` and the duration it really had.

mod anomalies;
mod ops;
mod write;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::sampler::{RaftLag, Usage};
use crate::slo::Judged;
use crate::soak::Trend;
use crate::stall::StallTotals;

pub use anomalies::{Anomalies, Findings, Verdict};
pub use ops::{
    Arrivals, Columns, Distribution, Lateness, Measurements, Operation, SeriesOp, SeriesPoint, TimeBlock, Window,
};
pub use write::{WriteError, ensure_writable, write_distributions};

/// The contents of `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The version of the schema.
    pub schema_version: SchemaVersion,
    /// Names this run among others.
    pub run_id: String,
    /// The wall clock at the run's origin, in RFC 3339.
    pub started_at: jiff::Timestamp,
    /// How long was measured, without bring-up and warm-up.
    pub duration_ns: u64,
    /// Whether the run was ended before its time.
    pub interrupted: bool,
    /// The command line, with [`command_line`]'s omissions.
    pub command: Vec<String>,
    /// What all randomness was drawn from.
    pub seed: u64,
    /// The parameters of the workload as they were understood; durations with their unit.
    pub params: serde_json::Map<String, serde_json::Value>,
    /// Where it ran.
    pub environment: Environment,
    /// The verdict and the anomalies behind it.
    #[serde(flatten)]
    pub findings: Findings,
    /// What was measured of each operation.
    #[serde(flatten)]
    pub measurements: Measurements,
    /// How the seats came up; null for a workload without any.
    pub bring_up: Option<BringUp>,
    /// The parts of the run, in order.
    pub phases: Vec<Phase>,
    /// What each broker used.
    pub servers: Vec<Server>,
    /// What the generator used.
    pub own: Own,
    /// What happened to the brokers, in order.
    pub faults: Vec<Fault>,
    /// What the run was asked to keep to, and whether it did.
    pub slos: Vec<Judged>,
    /// What must not grow, and whether it did; empty where that was not watched.
    pub trends: Vec<Trend>,
}

/// Version 1, the only one there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "u32", try_from = "u32")]
pub struct SchemaVersion;

impl From<SchemaVersion> for u32 {
    fn from(_: SchemaVersion) -> u32 {
        1
    }
}

impl TryFrom<u32> for SchemaVersion {
    type Error = String;

    fn try_from(version: u32) -> Result<SchemaVersion, String> {
        if version == 1 {
            Ok(SchemaVersion)
        } else {
            Err(format!("a report of schema version {version}; this reads 1"))
        }
    }
}

/// How the seats came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BringUp {
    /// How many.
    pub seats: u64,
    /// From the first claim to the last seat held.
    pub duration_ns: u64,
}

/// A part of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Its name, such as `bring_up`, `warm_up`, `steady`.
    pub name: String,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Mean CPU of all brokers together in it, 100 for one core busy throughout; null when not all were sampled.
    pub brokers_cpu_percent: Option<f64>,
    /// The generator's; null when it was not sampled.
    pub generator_cpu_percent: Option<f64>,
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Its name in the cluster.
    pub name: String,
    /// What it used.
    #[serde(flatten)]
    pub usage: Usage,
    /// How far its copies of streams were behind.
    #[serde(flatten)]
    pub lag: RaftLag,
}

/// The generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Own {
    /// What it used.
    #[serde(flatten)]
    pub usage: Usage,
    /// Mean CPU of everything else on its machine over the measured time, beside the embedded brokers and what a hypervisor
    /// took included; 100 for one core busy throughout, null when not sampled.
    pub other_cpu_percent: Option<f64>,
    /// When it did not run although it should have.
    pub stalls: Stalls,
}

/// The generator's stalls. Their time is in corrected latencies and lateness, and not in service latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct Stalls {
    pub count: u64,
    pub total_ns: u64,
    pub longest_ns: u64,
}

impl From<StallTotals> for Stalls {
    fn from(totals: StallTotals) -> Stalls {
        use crate::histogram::nanos;
        Stalls { count: totals.count, total_ns: nanos(totals.total), longest_ns: nanos(totals.longest) }
    }
}

/// Something that happened to a broker: done on purpose, or found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When.
    pub t_ns: u64,
    /// What kind, in snake case: `kill`, `pause`, `restart`; `exit` for an end that nobody here asked for.
    pub kind: String,
    /// The broker it was done to.
    pub server: String,
    /// What was done, such as `killed by signal 9`: it reads on from "n2 was".
    pub detail: String,
}

/// A command line as a report may hold it: the user and password of a URL are left out, since reports are passed around.
pub fn command_line(arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    arguments.into_iter().map(|argument| without_credentials(&argument)).collect()
}

fn without_credentials(argument: &str) -> String {
    // Several URLs may stand in one argument, separated by commas.
    let mut text = String::with_capacity(argument.len());
    let mut rest = argument;
    while let Some(scheme_end) = rest.find("://").map(|at| at + 3) {
        let (before, after) = rest.split_at(scheme_end);
        text.push_str(before);
        let authority = &after[..after.find(['/', ',', '?', '#', ' ']).unwrap_or(after.len())];
        if let Some(at) = authority.rfind('@') {
            text.push_str("***");
            rest = &after[at..];
        } else {
            rest = after;
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
pub(crate) mod tests;
