//! Whole runs on the memory twin, on a clock that waits for nobody: a pass alone is short there too and the others are not,
//! and each way of lying fails the run under its own name.

use coordproto::answer::{Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::{Drained, Index, Standing, Version as Stored};
use engine::env::Mono;
use engine::store::faulty::{Call, Fault, Faulty, Verb};
use engine::store::memory::Memory;
use engine::store::{Copy, Drains, Expect, Put, Values, Write};

use super::*;
use crate::histogram::Percentiles;
use crate::recorder::{Counts, Outcome};
use crate::report::{Anomalies, Findings, Verdict};
use crate::scenario::{Scenario, Start};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn params() -> Params {
    Params {
        keys: 5,
        churned: 3,
        churn: Churn::Tight,
        readers: 2,
        strategies: Strategy::ALL.to_vec(),
        count: Some(300),
        duration: S * 60,
    }
}

/// A store in which a write takes one millisecond and so does every delivery of a pass, so that keys are rewritten while
/// they are listed.
fn store(env: &Env) -> Faulty<Memory> {
    let slow = |call: &Call<'_>| match call.verb {
        Verb::Put => Fault::Delay(MS),
        Verb::Pass => Fault::Slow(MS),
        _ => Fault::None,
    };
    Faulty::new(Memory::new(env.clone()), env.clone(), slow)
}

async fn run<St: Store>(env: &Env, params: Params, store: St, interrupt: impl Future<Output = ()>) -> (Listing, Ran) {
    let start = Start { env: env.clone(), origin: env.now(), prefix: "t".into(), replicas: 1 };
    let listing = Listing::new(params, start);
    let clients = listing.open(async |_| Ok::<_, OpenError>(store.clone())).await.unwrap();
    let ran = listing.run(clients, interrupt).await;
    (listing, ran)
}

async fn whole(params: Params) -> (Listing, Ran) {
    let env = Env::seeded(42);
    run(&env, params, store(&env), std::future::pending()).await
}

fn counts(listing: &Listing, name: &str) -> (Counts, Counts) {
    let all = listing.recorder.snapshot();
    let op = all.into_iter().find(|op| op.name == name).unwrap();
    (op.measured.counts, op.warmup)
}

fn ended(ok: u64) -> Counts {
    Counts { scheduled: ok, started: ok, outcomes: [ok, 0, 0, 0] }
}

#[tokio::test(start_paused = true)]
async fn under_churn_a_pass_alone_is_short_and_the_others_are_not() {
    let (listing, ran) = whole(params()).await;
    assert_eq!(listing.anomalies(), Anomalies::default());
    assert_eq!(ran, Ran { interrupted: false, brought_up: true, came_to: () });
    let of = |strategy| listing.tally.of(strategy);
    let [leader, quorum, naive] = Strategy::ALL.map(of);
    assert_eq!([leader.answered, quorum.answered, naive.answered], [300; 3]);
    assert!(naive.short > 150, "{naive:?}");
    assert_eq!((leader.short, leader.double, quorum.short, quorum.double, quorum.old), (0, 0, 0, 0, 0));
    assert!(leader.leader_reads > 0, "what the pass missed is read: {leader:?}");
    assert_eq!((quorum.leader_reads, naive.leader_reads), (0, 0));
    for name in ["listing/leader", "listing/quorum", "listing/naive", "barrier"] {
        assert_eq!(counts(&listing, name).0, ended(300), "{name}");
    }
    assert_eq!(counts(&listing, "create").1, ended(8), "five keys and three that come and go");
    let [rewritten, removed, made] = ["write", "remove", "create"].map(|name| counts(&listing, name).0.of(Outcome::Ok));
    assert!(removed > 0 && made.abs_diff(removed) <= 3, "{made} made, {removed} removed");
    assert!(rewritten > (removed + made) * 40, "{rewritten} rewritten");
    let parts: Vec<_> = listing.parts.entered(listing.env.now()).into_iter().map(|(part, ..)| part).collect();
    assert_eq!(parts, ["load", "listing", "drain"]);
}

#[tokio::test(start_paused = true)]
async fn at_a_rate_every_write_begins_when_it_is_due_and_the_time_ends_the_run() {
    let params = Params { churn: "100/s".parse().unwrap(), count: None, duration: S * 10, ..params() };
    let (listing, ran) = whole(params).await;
    assert!(ran.brought_up && !ran.interrupted && listing.anomalies() == Anomalies::default());
    let all = ["write", "remove", "create"].map(|name| counts(&listing, name).0);
    assert_eq!(all.iter().map(|counts| counts.scheduled).sum::<u64>(), 1000);
    assert!(all.iter().all(|counts| counts.dropped() == 0 && counts.in_flight() == 0), "{all:?}");
    let late = |op: &crate::recorder::Snapshot| op.measured.lateness.max().is_some_and(|late| late > MS);
    assert!(!listing.recorder.snapshot().iter().any(late));
    let began = listing.parts.began("drain").unwrap().since(listing.parts.began("listing").unwrap());
    assert_eq!(began, S * 10);
}

/// A thousand writes a second for ten seconds, a millisecond each, through a store that answers nothing for two of them.
async fn through_a_stall(churn: Churn) -> (u64, Percentiles) {
    let env = Env::seeded(42);
    let (start, clock) = (env.now(), env.clone());
    let (from, to) = (MS * 5_050, MS * 7_050);
    let stalling = move |call: &Call<'_>| match (call.verb, clock.now().since(start)) {
        (Verb::Put, now) if now >= from && now < to => Fault::Delay(to + MS - now),
        (Verb::Put, _) => Fault::Delay(MS),
        (Verb::Pass, _) => Fault::Delay(S),
        _ => Fault::None,
    };
    let store = Faulty::new(Memory::new(env.clone()), env.clone(), stalling);
    let (count, duration, strategies) = (None, S * 10, vec![Strategy::Naive]);
    let params = Params { churned: 1, churn, readers: 1, strategies, count, duration, ..params() };
    let (listing, ran) = run(&env, params, store, std::future::pending()).await;
    assert!(ran.brought_up && listing.anomalies() == Anomalies::default());
    let all = ["write", "remove", "create"].map(|name| counts(&listing, name).0);
    assert!(all.iter().all(|counts| counts.scheduled == counts.of(Outcome::Ok)), "{all:?}");
    let write = listing.recorder.snapshot().into_iter().find(|op| op.name == "write").unwrap().measured;
    let corrected = Percentiles::from(&write.latency(&[Outcome::Ok]).corrected);
    (all.iter().map(|counts| counts.scheduled).sum(), corrected)
}

#[tokio::test(start_paused = true)]
async fn whoever_would_have_asked_during_a_stall_is_in_the_percentiles() {
    let (scheduled, latency) = through_a_stall("1000/s".parse().unwrap()).await;
    assert_eq!(scheduled, 10_000);
    let within = |found: Option<u64>, expected: Duration| {
        let (found, expected) = (found.unwrap() as f64, expected.as_nanos() as f64);
        assert!((found / expected - 1.0).abs() < 0.05, "{found} is not {expected}: {latency:?}");
    };
    assert!(latency.p50_ns <= Some(2_000_000), "{latency:?}");
    within(latency.p90_ns, S);
    within(latency.p99_ns, MS * 1900);
    within(latency.p99_9_ns, MS * 1990);
    within(latency.max_ns, S * 2);

    // A closed loop asks once during the stall, and its p99.9 knows nothing of it.
    let (scheduled, latency) = through_a_stall(Churn::Tight).await;
    assert!(scheduled < 8_100 && latency.p99_9_ns <= Some(2_000_000), "{scheduled}: {latency:?}");
    within(latency.max_ns, S * 2);
}

#[tokio::test(start_paused = true)]
async fn an_interruption_ends_it_with_what_was_counted() {
    let env = Env::seeded(42);
    let params = Params { count: None, duration: S * 3600, ..params() };
    let (listing, ran) = run(&env, params, store(&env), env.sleep(S * 5)).await;
    assert!(ran.interrupted && ran.brought_up, "{ran:?}");
    assert!(listing.tally.of(Strategy::Leader).answered > 0 && listing.anomalies() == Anomalies::default());
    assert_eq!(listing.recorder.totals().in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_answers_nothing_comes_up_and_in_an_outage_listings_are_unknown() {
    let env = Env::seeded(42);
    let silent = |call: &Call<'_>| match call.verb {
        Verb::Put => Fault::DropRequest,
        _ => Fault::None,
    };
    let (began, never) = (env.now(), Faulty::new(Memory::new(env.clone()), env.clone(), silent));
    let (listing, ran) = run(&env, params(), never, std::future::pending()).await;
    assert_eq!((ran, listing.anomalies()), (Ran { interrupted: true, ..Ran::default() }, Anomalies::default()));
    assert!((60..70).contains(&env.now().since(began).as_secs()));

    let (start, clock) = (env.now(), env.clone());
    let outage = move |call: &Call<'_>| match (clock.now().since(start).as_millis(), call.verb) {
        (500..3_000, _) => Fault::DropReply,
        (_, Verb::Put) => Fault::Delay(MS),
        (_, Verb::Pass) => Fault::Slow(MS),
        _ => Fault::None,
    };
    let store = Faulty::new(Memory::new(env.clone()), env.clone(), outage);
    let (listing, ran) = run(&env, params(), store, std::future::pending()).await;
    assert!(ran.brought_up && listing.anomalies() == Anomalies::default(), "{:?}", listing.anomalies());
    let unknown = ["listing/leader", "listing/quorum", "listing/naive", "barrier"];
    let unknown: u64 = unknown.map(|name| counts(&listing, name).0.of(Outcome::Unknown)).iter().sum();
    assert!(unknown > 0);
}

/// A run of which nothing in one way could be verified does not end well: not when its listings have no answer, and not when
/// what they stand on has none.
#[tokio::test(start_paused = true)]
async fn a_way_that_is_never_answered_fails_the_run() {
    for (verb, unknown, answered) in [
        // Whatever certifies a listing, it asks for the index.
        (Verb::Index, &["listing/leader", "listing/quorum"][..], [0, 0, 300]),
        (Verb::Copy, &["listing/quorum"], [300, 0, 300]),
        (Verb::Pass, &["listing/naive"], [300, 300, 0]),
        (Verb::Put, &["barrier"], [300, 0, 300]),
    ] {
        let env = Env::seeded(42);
        let silent = move |call: &Call<'_>| match call.verb {
            Verb::Put if verb == Verb::Put && call.about == Key::barrier().as_str() => Fault::DropRequest,
            asked if asked == verb && verb != Verb::Put => Fault::DropRequest,
            _ => Fault::None,
        };
        let params = Params { churned: 0, ..params() };
        let store = Faulty::new(Memory::new(env.clone()), env.clone(), silent);
        let (listing, ran) = run(&env, params, store, std::future::pending()).await;
        assert_eq!(ran, Ran { interrupted: false, brought_up: true, came_to: () }, "{verb:?}");
        assert_eq!(Strategy::ALL.map(|way| listing.tally.of(way).answered), answered, "{verb:?}");
        for op in unknown {
            assert_eq!(counts(&listing, op).0.of(Outcome::Unknown), 300, "{verb:?}: {op}");
        }
        let unsettled = Anomalies { ops_unsettled: unknown.len() as u64, ..Anomalies::default() };
        assert_eq!(listing.anomalies(), unsettled, "{verb:?}");
        assert_eq!(Findings::from(listing.anomalies()).verdict(), Verdict::Failed, "{verb:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_lie_fails_the_run_under_its_own_name() {
    for lie in [Lie::Hidden, Lie::Old] {
        let env = Env::seeded(42);
        let lying = Lying { below: store(&env), lie };
        let (listing, ran) = run(&env, params(), lying, std::future::pending()).await;
        assert!(ran.brought_up && !ran.interrupted, "{lie:?}: {ran:?}");
        let found = listing.anomalies();
        assert_eq!(Findings::from(found).verdict(), Verdict::Failed, "{lie:?}");
        let expected = match lie {
            // By the leader and by a quorum.
            Lie::Hidden => Anomalies { listing_short: 600, ..Anomalies::default() },
            Lie::Old => Anomalies { listing_old: 300, ..Anomalies::default() },
        };
        assert_eq!(found, expected, "{lie:?}");
    }
}

/// A class that is large enough to be listed by a drain: the same listings, and the same ways to be found out.
#[tokio::test(start_paused = true)]
async fn what_a_drain_hides_is_found_too() {
    for lie in [None, Some(Lie::Hidden)] {
        let env = Env::seeded(42);
        let drained = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let counted = drained.clone();
        let store = Faulty::new(Memory::new(env.clone()), env.clone(), move |call: &Call<'_>| {
            counted.fetch_add(u64::from(call.verb == Verb::Drain), std::sync::atomic::Ordering::Relaxed);
            Fault::None
        });
        let params = Params { keys: 1_100, churned: 0, count: Some(20), readers: 1, ..params() };
        let listing = match lie {
            None => run(&env, params, store, std::future::pending()).await.0,
            Some(lie) => run(&env, params, Lying { below: store, lie }, std::future::pending()).await.0,
        };
        assert!(drained.load(std::sync::atomic::Ordering::Relaxed) > 0);
        let short = if lie.is_none() { 0 } else { 40 };
        assert_eq!(listing.anomalies(), Anomalies { listing_short: short, ..Anomalies::default() }, "{lie:?}");
    }
}

/// One way of not telling the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    /// An index and a copy lack a key that is there.
    Hidden,
    /// A copy holds keys as they were first written, and its barrier as it is.
    Old,
}

#[derive(Clone)]
struct Lying<T> {
    below: T,
    lie: Lie,
}

impl<St: Store> Store for Lying<St> {
    type Bucket = Lying<St::Bucket>;

    async fn open(&self, spec: &BucketSpec) -> Result<Self::Bucket, OpenError> {
        Ok(Lying { below: self.below.open(spec).await?, lie: self.lie })
    }
}

impl<B> Lying<B> {
    fn hides(&self, key: &Key) -> bool {
        self.lie == Lie::Hidden && key.as_str().ends_with("k000004")
    }
}

impl<B: Bucket> Bucket for Lying<B> {
    type Pass = B::Pass;

    fn name(&self) -> &str {
        self.below.name()
    }

    fn age(&self) -> Option<Duration> {
        self.below.age()
    }

    fn value_bytes_max(&self) -> usize {
        self.below.value_bytes_max()
    }

    fn env(&self) -> &Env {
        self.below.env()
    }

    fn deadline(&self) -> Mono {
        self.below.deadline()
    }

    async fn read(&self, key: &Key, by: Mono) -> Result<Option<Stored>, Unknown> {
        self.below.read(key, by).await
    }

    async fn put(&self, key: &Key, write: Write, expect: Expect) -> Result<Put, Error> {
        self.below.put(key, write, expect).await
    }

    async fn purge(&self, key: &Key, through: u64) -> Result<u64, Unknown> {
        self.below.purge(key, through).await
    }

    async fn index(&self, filter: &Filter, by: Mono) -> Result<Index, Unknown> {
        let index = self.below.index(filter, by).await?;
        let named = index.keys().filter(|key| !self.hides(key)).collect();
        Ok(Index::of_keys(named, index.stream()))
    }

    async fn pass(&self, filter: &Filter, values: Values, by: Mono) -> Result<B::Pass, Unknown> {
        self.below.pass(filter, values, by).await
    }

    async fn copy(&self, names: &[&str], by: Mono) -> Result<Copy, Unknown> {
        let copy = self.below.copy(names, by).await?;
        let Copy::Whole(mut held) = copy else { return Ok(copy) };
        held.entries.retain(|(key, _)| !self.hides(key));
        if self.lie == Lie::Old {
            held.entries
                .iter_mut()
                .filter(|(key, _)| key.as_str().contains(".k"))
                .for_each(|(_, held)| held.revision = 1);
        }
        Ok(Copy::Whole(held))
    }

    async fn drain(&self, by: Mono) -> Result<Drained, Unknown> {
        let mut drained = self.below.drain(by).await?;
        let before = drained.entries.len() as u64;
        drained.entries.retain(|(key, _)| !self.hides(key));
        drained.after.records -= before - drained.entries.len() as u64;
        Ok(drained)
    }

    async fn standing(&self, by: Mono) -> Result<Standing, Unknown> {
        self.below.standing(by).await
    }

    fn drains(&self) -> &Drains {
        self.below.drains()
    }
}
