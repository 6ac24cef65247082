//! The listings as what is around them sees them: how they are opened on brokers, and what they say of themselves.

use std::collections::BTreeMap;
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
use crate::report::{Anomalies, BringUp, Operation, Report, TimeBlock};
use crate::rounds::shown;
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
        let lines = |strategy| [remark(report, strategy), compared(report, strategy)];
        Strategy::ALL.into_iter().flat_map(lines).flatten().collect()
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

/// In so many parts of a run's time its ways are held against each other. Each has several turns of every way, unless the run
/// is a short one.
const PARTS: u64 = 8;

/// What the listings of one way came to; how many had no answer, where none had one; none when there were none.
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
    Some(format!(
        "{name}: of {}, {} short, {} double, {} old; {:.2} requests each, {reads:.3} leader reads",
        count(answered),
        share("short")?,
        share("double")?,
        share("old")?,
        operation(report, strategy)?.requests_per_op?,
    ))
}

/// How long the listings of one way took beside those of the way that it is compared with; none where either has no answer.
fn compared(report: &Report, strategy: Strategy) -> Option<String> {
    let other = match strategy {
        Strategy::Leader => Strategy::Naive,
        Strategy::Quorum => Strategy::Leader,
        Strategy::Naive => return None,
    };
    let times = shown(&times(operation(report, strategy)?, operation(report, other)?))?;
    Some(format!("{}: p50 {times} times {}'s", strategy.name(), other.name()))
}

/// The ratio of two operations' medians in each part of the time in which both had an answer.
fn times(own: &Operation, other: &Operation) -> Vec<f64> {
    let all = || own.blocks.iter().chain(&other.blocks).map(|block| block.t_ns);
    let Some((first, last)) = all().min().zip(all().max()) else { return Vec::new() };
    let of_part = |op: &Operation, part: u64| {
        let within = |block: &&TimeBlock| (block.t_ns - first) * PARTS / (last - first + 1) == part;
        median(op.blocks.iter().filter(within))
    };
    (0..PARTS).filter_map(|part| Some(of_part(own, part)? / of_part(other, part)?)).collect()
}

/// The median of what was answered yes in some blocks, in microseconds; none where nothing was.
fn median<'a>(blocks: impl Iterator<Item = &'a TimeBlock>) -> Option<f64> {
    let mut counts = BTreeMap::<u64, u64>::new();
    for (top, count) in blocks.flat_map(|block| &block.ok_us.0) {
        *counts.entry(*top).or_default() += count;
    }
    let half = counts.values().sum::<u64>().div_ceil(2);
    let mut up_to = 0;
    let reaches = |(_, count): &(&u64, &u64)| {
        up_to += **count;
        up_to >= half
    };
    counts.iter().find(reaches).map(|(top, _)| *top as f64)
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
    use crate::report::Distribution;
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
        for (way, ms) in [("leader", Some(3)), ("quorum", None), ("naive", Some(2))] {
            let mut op = op.clone();
            op.arrivals.unknown = 0;
            op.blocks = ms.map_or_else(Vec::new, |ms| vec![block(0, ms)]);
            report.measurements.ops.insert(format!("listing/{way}"), op);
        }
        let lines = Listing::remarks(&report);
        let expected = [
            "leader: of 20,000, none short, none double, 2.4 % old; 1.00 requests each, 0.073 leader reads",
            "leader: p50 1.50 times naive's",
            "naive: of 20,000, 74.1 % short, none double, <0.1 % old; 1.00 requests each, 0.000 leader reads",
        ];
        assert_eq!(lines, expected);
        assert!(lines.iter().all(|line| line.len() <= 120), "{lines:?}");
        report.params.clear();
        report.measurements.ops.clear();
        assert_eq!(Listing::remarks(&report), [] as [&str; 0], "before anything was listed");
    }

    /// A block with three answers of so many milliseconds and one of a second.
    fn block(second: u64, ms: u64) -> TimeBlock {
        let ok_us = Distribution([(ms * 1_000, 3), (1_000_000, 1)].into());
        TimeBlock { t_ns: second * 1_000_000_000, ended: 4, requests: 4, ok_us, refused_us: Distribution::default() }
    }

    #[test]
    fn ways_are_compared_part_by_part_of_the_run() {
        let renew = full(Anomalies::default()).measurements.ops["renew"].clone();
        let of = |blocks: Vec<TimeBlock>| Operation { blocks, ..renew.clone() };
        // The machine was three times as slow in the last quarter, and gave one of the two a bad second.
        let slow = |second: u64| if second < 18 { 1 } else { 3 };
        let naive = of((0..24).map(|second| block(second, 10 * slow(second))).collect());
        let own = |second: u64| if second == 4 { 90 } else { 20 * slow(second) };
        assert_eq!(times(&of((0..24).map(|second| block(second, own(second))).collect()), &naive), [2.0; 8]);
        let half = of((0..12).map(|second| block(second, 15)).collect());
        assert_eq!(times(&half, &naive), [1.5; 4], "where both were answered");
        assert_eq!(times(&of(Vec::new()), &naive), [] as [f64; 0]);
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
                op.blocks.clear();
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
