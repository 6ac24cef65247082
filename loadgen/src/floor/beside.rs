//! The floor beside another scenario, in the same run on the same brokers: what its operations would take if nothing but their
//! requests did.
//!
//! A scenario says for each operation which bare request it comes closest to, and how many are under way at once
//! ([`Scenario::floor`](crate::scenario::Scenario::floor)). They are made when the scenario is over, for a moment each, on
//! streams of their own and without anything beside them. An operation's *ratio to floor* is its median, from the actual send,
//! over theirs.

use std::time::Duration;

use engine::env::Env;
use engine::store::nats::Nats;
use serde_json::{Map, Value, json};

use super::Bare;
use super::ground::Ground;
use super::params::Load;
use crate::histogram::{Percentiles, nanos};
use crate::recorder::Outcome;
use crate::report::Report;
use crate::table::units::{count, per_second, time};
use crate::target::{Target, Unavailable};

/// How long each load is measured.
const EACH: Duration = Duration::from_secs(2);

/// The bare requests that a scenario's operations are held against.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// Keys of the class that is listed, where any is.
    pub keys: usize,
    /// Operations by their names, each with its load.
    pub ops: Vec<(&'static str, Load)>,
}

/// What bare requests took.
struct Took {
    load: Load,
    /// How many were answered yes, and in what time.
    ok: u64,
    length: Duration,
    latency: Percentiles,
}

/// The buckets that this makes.
pub(crate) fn buckets(prefix: &str) -> Vec<String> {
    Ground::buckets(prefix)
}

/// Makes the bare requests, and answers for each operation what they took, as a report has it.
///
/// # Errors
/// When the brokers cannot be reached so, or do not answer often enough for a median.
pub(crate) async fn measure(
    beside: &Beside,
    env: &Env,
    target: &Target,
    first: &Nats,
    prefix: &str,
) -> Result<Map<String, Value>, Unavailable> {
    let mut loads: Vec<Load> = Vec::new();
    for (_, load) in &beside.ops {
        if !loads.contains(load) {
            loads.push(*load);
        }
    }
    let named = (prefix, target.replicas(first));
    let ground = Ground::prepare(env, target.access(), first, named, beside.keys, &loads).await?;
    let mut all = Vec::new();
    for load in loads {
        let Bare { took: length, measured } = ground.alone(&load, EACH).await?;
        let latency = Percentiles::from(&measured.latency(&[Outcome::Ok]).corrected);
        if latency.p50_ns.is_none() {
            return Err(Unavailable::NoFloor { request: load.request.name(), within: EACH });
        }
        all.push(Took { load, ok: measured.counts.of(Outcome::Ok), length, latency });
    }
    let of = |load: &Load| all.iter().find(|took| took.load == *load).map(reported);
    Ok(beside.ops.iter().filter_map(|(op, load)| Some(((*op).to_owned(), of(load)?))).collect())
}

fn reported(took: &Took) -> Value {
    let Load { request, connections, in_flight, bursts, .. } = took.load;
    json!({
        "request": request.name(),
        "connections": connections,
        "in_flight": in_flight,
        "bursts": bursts,
        "ok": took.ok,
        "took_ns": nanos(took.length),
        "p50_ns": took.latency.p50_ns,
        "p99_ns": took.latency.p99_ns,
    })
}

/// A line for each operation that has a floor, its own figure or not.
pub(crate) fn remarks(report: &Report) -> Vec<String> {
    let floor = report.params.get("floor").and_then(Value::as_object);
    floor.into_iter().flatten().filter_map(|(op, floor)| remark(report, op, floor)).collect()
}

fn remark(report: &Report, op: &str, floor: &Value) -> Option<String> {
    let own = &report.measurements.ops.get(op)?.latency_ok.service;
    let Some(own) = own.p50_ns else {
        return Some(format!("{op}: no ratio to floor: it was answered {} times itself", count(own.count)));
    };
    let number = |name: &str| floor.get(name)?.as_u64();
    let bare = number("p50_ns").filter(|p50| *p50 > 0)?;
    let burst = if floor.get("bursts")?.as_bool()? { "in bursts of" } else { "at once," };
    let (connections, in_flight) = (number("connections")?, count(number("in_flight")?));
    Some(format!(
        "{op}: ratio to floor {:.2} (p50 {}; bare {} {burst} {in_flight} over {connections}: {}, {})",
        own as f64 / bare as f64,
        time(own),
        floor.get("request")?.as_str()?,
        time(bare),
        per_second(number("ok")?, number("took_ns")?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor::Request;
    use crate::report::Anomalies;
    use crate::report::tests::full;

    #[test]
    fn an_operation_has_its_ratio_once_both_were_measured() {
        let mut report = full(Anomalies::default());
        let took = |p50: Option<u64>| {
            let load = Load { bursts: true, ..Load::of(Request::Cas, 1, 100) };
            let latency = Percentiles { p50_ns: p50, ..Percentiles::default() };
            reported(&Took { load, ok: 46_000, length: EACH, latency })
        };
        let floor = json!({ "release": took(Some(150_000)), "renew": took(Some(150_000)), "never": took(Some(1)) });
        report.params.insert("floor".into(), floor);
        let line = "renew: ratio to floor 3.00 (p50 450 us; bare cas in bursts of 100 over 1: 150 us, 23,000/s)";
        assert_eq!(remarks(&report), ["release: no ratio to floor: it was answered 0 times itself", line]);
        report.params.clear();
        assert_eq!(remarks(&report), [] as [&str; 0]);
    }
}
