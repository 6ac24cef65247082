//! The listings as what is around them sees them: how they are opened on brokers, and what they say of themselves.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::store::BucketSpec;
use engine::store::nats::Nats;
use serde_json::Value;

use super::{Account, Clients, LISTING, LOAD, Listing, Ops, Params, Strategy, Tally};
use crate::duration;
use crate::floor::beside::Beside;
use crate::floor::{Load, Request};
use crate::recorder::{Outcome, Recorder};
use crate::report::{Anomalies, BringUp, Operation, Report};
use crate::scenario::{DRAIN, Parts, Ran, Scenario, Start};
use crate::table::units::{count, percent};
use crate::target::{Target, Unavailable};

impl Scenario for Listing {
    const NAME: &'static str = "listing";
    const CLIENTS: &'static str = "readers";
    const MEASURED_FROM: &'static str = LISTING;

    type Params = Params;
    type CameTo = ();

    fn clients(params: &Params) -> usize {
        params.readers + params.writing()
    }

    fn schedule_digest(_params: &Params) -> Option<u64> {
        None
    }

    /// A listing beside as many bare passes over as many keys, at rest.
    fn floor(params: &Params) -> Beside {
        let pass = Load::of(Request::Pass, params.readers, params.readers);
        let of = |strategy: &Strategy| (Ops::name(*strategy), pass);
        Beside { keys: params.keys, ops: params.strategies.iter().map(of).collect() }
    }

    fn new(params: Params, Start { env, origin, prefix, replicas }: Start) -> Listing {
        let mut recorder = Recorder::new(origin);
        let ops = Ops::declare(&mut recorder);
        let account = Arc::new(Account::new(&params));
        let bucket = BucketSpec { name: format!("{prefix}_listing"), age: None, raise_age: false, replicas };
        let (tally, unsettled, parts) = (Tally::default(), AtomicU64::new(0), Parts::default());
        Listing { env, params, bucket, recorder, ops, account, tally, unsettled, parts }
    }

    async fn open_and_run(
        &self,
        target: &Target,
        first: &Nats,
        interrupt: impl Future<Output = ()>,
    ) -> Result<Ran<()>, Unavailable> {
        let store = async |client: usize| match client {
            0 => Ok(first.clone()),
            _ => target.store(client).await,
        };
        let mut interrupt = std::pin::pin!(interrupt);
        let clients: Clients<Nats> = tokio::select! {
            clients = self.open(&store) => clients?,
            () = &mut interrupt => return Ok(Ran { interrupted: true, ..Ran::default() }),
        };
        let (bucket, replicas) = (&self.bucket.name, self.bucket.replicas);
        tracing::info!(clients = Listing::clients(&self.params), bucket, replicas, "listing_connected");
        Ok(self.run(clients, interrupt).await)
    }

    fn buckets(&self) -> Vec<String> {
        vec![self.bucket.name.clone()]
    }

    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn parts(&self) -> &Parts {
        &self.parts
    }

    fn anomalies(&self) -> Anomalies {
        let unsettled = self.unsettled.load(Ordering::Relaxed) + self.unanswered();
        Anomalies { ops_unsettled: unsettled, ..self.tally.anomalies() }
    }

    fn params(&self, (): &()) -> Vec<(&'static str, Value)> {
        let params = &self.params;
        let length = match params.count {
            Some(count) => ("count", count.into()),
            None => ("duration", duration::format(params.duration).into()),
        };
        vec![
            ("keys", params.keys.into()),
            ("churned", params.churned.into()),
            ("extra", params.extra().into()),
            ("churn", params.churn.to_string().into()),
            ("readers", params.readers.into()),
            ("strategies", params.strategies.iter().map(|strategy| strategy.name()).collect()),
            length,
            ("turn", params.turn().into()),
            ("listings", self.tally.reported(&params.strategies)),
        ]
    }

    fn bring_up(&self) -> Option<BringUp> {
        None
    }

    fn progress(&self, part: &str) -> Option<String> {
        match part {
            "opening" => Some(format!("connecting {} clients", Listing::clients(&self.params))),
            LOAD => Some(format!("{} of {} keys written", self.account.written(), self.account.keys().len())),
            _ => {
                let each = self.params.strategies.iter().map(|strategy| {
                    let listings = self.tally.of(*strategy);
                    let [answered, short, unknown] = [listings.answered, listings.short, listings.unknown].map(count);
                    format!("{} {answered} ({short} short, {unknown} unknown)", strategy.name())
                });
                Some(each.collect::<Vec<_>>().join(", "))
            }
        }
    }

    fn remarks(report: &Report) -> Vec<String> {
        Strategy::ALL.into_iter().filter_map(|strategy| remark(report, strategy)).collect()
    }
}

impl Listing {
    /// Ways that were tried and never answered, once no listing begins any more: nothing wrong was seen of them, and nothing
    /// could be verified.
    fn unanswered(&self) -> u64 {
        if self.parts.began(LISTING).is_none() || self.parts.began(DRAIN).is_none() {
            return 0;
        }
        let ops = self.recorder.snapshot();
        let unknown = |name: &str| {
            ops.iter().filter(|op| op.name == name).map(|op| op.measured.counts.of(Outcome::Unknown)).sum::<u64>()
        };
        let ways = self.params.strategies.iter();
        ways.filter(|way| self.tally.of(**way).answered == 0 && without_answer(**way, unknown).total() > 0).count()
            as u64
    }
}

/// Listings of one way that were not answered.
struct WithoutAnswer {
    listings: u64,
    /// Those that never began, because the write that they stand on was unknown.
    barriers: u64,
}

impl WithoutAnswer {
    fn total(&self) -> u64 {
        self.listings + self.barriers
    }
}

/// Listings of one way that were not answered, where `unknown` says how many of an operation are.
fn without_answer(strategy: Strategy, unknown: impl Fn(&str) -> u64) -> WithoutAnswer {
    let barriers = if strategy == Strategy::Quorum { unknown("barrier") } else { 0 };
    WithoutAnswer { listings: unknown(Ops::name(strategy)), barriers }
}

/// What the listings of one way came to, and how long they took beside those of the way that it is compared with; how many
/// had no answer, where none had one; none when there were none.
fn remark(report: &Report, strategy: Strategy) -> Option<String> {
    let name = strategy.name();
    let counts = report.params.get("listings")?.get(name)?;
    let of = |count: &str| counts.get(count)?.as_u64();
    let answered = of("answered")?;
    if answered == 0 {
        return unanswered(report, strategy);
    }
    let share = |count: &str| of(count).map(|count| share(count, answered));
    let reads = counts.get("leader_reads_per_listing")?.as_f64()?;
    let compared = match strategy {
        Strategy::Leader => Some(Strategy::Naive),
        Strategy::Quorum => Some(Strategy::Leader),
        Strategy::Naive => None,
    };
    let median = |strategy: Strategy| operation(report, strategy)?.latency.corrected.p50_ns.filter(|p50| *p50 > 0);
    let times = compared.and_then(|other| Some((median(strategy)? as f64 / median(other)? as f64, other.name())));
    let times = times.map_or_else(String::new, |(times, other)| format!("; p50 {times:.2} times {other}'s"));
    Some(format!(
        "{name}: of {}, {} short, {} double, {} old; {:.2} requests each, {reads:.3} leader reads{times}",
        count(answered),
        share("short")?,
        share("double")?,
        share("old")?,
        operation(report, strategy)?.requests_per_op?,
    ))
}

/// How many listings of a way of which none was answered are unknown; none when there were none.
fn unanswered(report: &Report, strategy: Strategy) -> Option<String> {
    let unknown = |name: &str| report.measurements.ops.get(name).map_or(0, |op| op.arrivals.unknown);
    let without = without_answer(strategy, unknown);
    let barriers = match without.barriers {
        0 => String::new(),
        barriers => format!(", {} of them without a barrier", count(barriers)),
    };
    let total = without.total();
    (total > 0).then(|| format!("{}: none answered, {} unknown{barriers}", strategy.name(), count(total)))
}

fn operation(report: &Report, strategy: Strategy) -> Option<&Operation> {
    report.measurements.ops.get(Ops::name(strategy))
}

/// A share of a whole; zero only when there is none.
fn share(part: u64, whole: u64) -> String {
    match part as f64 * 100.0 / whole as f64 {
        _ if part == 0 => "none".to_owned(),
        share if share < 0.1 => "<0.1 %".to_owned(),
        share => percent(share),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::tests::full;

    #[test]
    fn each_way_has_a_line_that_fits_and_says_what_it_came_to() {
        let mut report = full(Anomalies::default());
        let op = report.measurements.ops["renew"].clone();
        let counts = |short: u64, old: u64, reads: f64| json!({ "answered": 20_000, "short": short, "double": 0, "old": old, "leader_reads_per_listing": reads });
        let listings = json!({
            "leader": counts(0, 480, 0.073),
            "quorum": { "answered": 0, "short": 0, "double": 0, "old": 0, "leader_reads_per_listing": null },
            "naive": counts(14_820, 3, 0.0),
        });
        report.params.insert("listings".into(), listings);
        for (way, times) in [("leader", 3), ("quorum", 1), ("naive", 2)] {
            let mut op = op.clone();
            op.arrivals.unknown = 0;
            op.latency.corrected.p50_ns = Some(1_000_000 * times);
            report.measurements.ops.insert(format!("listing/{way}"), op);
        }
        let lines = Listing::remarks(&report);
        let expected = [
            "leader: of 20,000, none short, none double, 2.4 % old; 1.00 requests each, 0.073 leader reads; p50 1.50 times naive's",
            "naive: of 20,000, 74.1 % short, none double, <0.1 % old; 1.00 requests each, 0.000 leader reads",
        ];
        assert_eq!(lines, expected);
        assert!(lines.iter().all(|line| line.len() <= 120), "{lines:?}");
        report.params.clear();
        assert_eq!(Listing::remarks(&report), [] as [&str; 0], "before anything was listed");
    }

    #[test]
    fn a_way_without_an_answer_has_a_line_with_its_unknowns() {
        let mut report = full(Anomalies::default());
        let op = report.measurements.ops["renew"].clone();
        let silent = json!({ "answered": 0, "leader_reads_per_listing": null });
        report.params.insert("listings".into(), json!({ "leader": silent, "quorum": silent, "naive": silent }));
        let mut lines = |unknown: [(&str, u64); 4]| {
            for (name, unknown) in unknown {
                let mut op = op.clone();
                op.arrivals.unknown = unknown;
                report.measurements.ops.insert(name.into(), op);
            }
            Listing::remarks(&report)
        };
        let of = |leader, quorum, naive, barrier| {
            [("listing/leader", leader), ("listing/quorum", quorum), ("listing/naive", naive), ("barrier", barrier)]
        };
        let leader = "leader: none answered, 1,200 unknown";
        assert_eq!(
            lines(of(1_200, 0, 0, 30)),
            [leader, "quorum: none answered, 30 unknown, 30 of them without a barrier"]
        );
        assert_eq!(
            lines(of(1_200, 7, 1, 0)),
            [leader, "quorum: none answered, 7 unknown", "naive: none answered, 1 unknown"]
        );
        assert_eq!(lines(of(0, 0, 0, 0)), [] as [&str; 0], "none had its turn");
    }
}
