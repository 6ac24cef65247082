//! Whole runs on the memory twin, on a clock that waits for nobody: what a right store comes to, that what is unknown is no
//! anomaly, and that each way of lying, in each family, fails the run under its own name.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use coordproto::answer::{Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::{Drained, Index, Standing, Version};
use engine::env::Mono;
use engine::store::faulty::{Call, Fault, Faulty, Odds, Verb};
use engine::store::memory::Memory;
use engine::store::{Bucket, BucketSpec, Copy, Drains, Expect, Put, Race, Values, Write};
use parking_lot::Mutex;

use super::streams::{Each, ROUND, ROUNDS};
use super::*;
use crate::recorder::{Counts, Outcome, Snapshot};
use crate::report::{Anomalies, Findings, Verdict};
use crate::scenario::{Scenario, Start};

const S: Duration = Duration::from_secs(1);

/// Few seats that are busy, so that everything there is happens to them.
fn params() -> Params {
    Params { seats: 60, turns: "1/20s".parse().unwrap(), duration: S * 75, seed: 42 }
}

async fn run<St: Store>(env: &Env, params: Params, store: St, interrupt: impl Future<Output = ()>) -> (Mix, Ran) {
    let start = Start { env: env.clone(), origin: env.now(), prefix: "t".into(), replicas: 1 };
    let mix = Mix::new(params, start);
    let nodes = mix.open(async |_| Ok::<_, OpenError>(store.clone())).await.unwrap();
    let ran = mix.run(nodes, interrupt).await;
    (mix, ran)
}

async fn whole<St: Store>(store: impl FnOnce(Memory, Env) -> St) -> (Mix, Ran) {
    let env = Env::seeded(42);
    let store = store(Memory::new(env.clone()), env.clone());
    run(&env, params(), store, std::future::pending()).await
}

fn all(snapshot: &[Snapshot], of: impl Fn(Counts) -> u64) -> BTreeMap<&'static str, u64> {
    snapshot.iter().map(|op| (op.name, of(op.measured.counts) + of(op.warmup))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_right_store_is_found_right_and_every_family_had_its_part() {
    let (mix, ran) = whole(|memory, _| memory).await;
    assert_eq!(mix.model.anomalies(), Anomalies::default());
    assert_eq!(ran, Ran { interrupted: false, brought_up: true, came_to: CameTo { seats_held: Some(60) } });
    let snapshot = mix.recorder.snapshot();
    let definite = all(&snapshot, |counts| counts.of(Outcome::Ok) + counts.of(Outcome::Refused));
    let missing: Vec<_> = ops::NAMES.into_iter().filter(|name| definite[name] == 0).collect();
    assert_eq!(missing, [] as [&str; 0], "what the mix never does");
    let without = |counts: Counts| counts.of(Outcome::Unknown) + counts.of(Outcome::Error) + counts.dropped();
    assert_eq!(all(&snapshot, without).values().sum::<u64>(), 0, "{:?}", all(&snapshot, without));
    // The clock of a test counts whole milliseconds.
    let late = |op: &&Snapshot| op.measured.lateness.max().is_some_and(|late| late > S / 1_000);
    assert_eq!(snapshot.iter().filter(late).map(|op| op.name).collect::<Vec<_>>(), [] as [&str; 0]);
}

/// What the table says is what happens: so many of each in the measured time.
#[tokio::test(start_paused = true)]
async fn the_streams_keep_their_proportions() {
    let (mix, _) = whole(|memory, _| memory).await;
    let snapshot = mix.recorder.snapshot();
    let scheduled: BTreeMap<_, _> = snapshot.iter().map(|op| (op.name, op.measured.counts.scheduled)).collect();
    // Of 60 seats and 3 nodes in 75 s, of which 15 are warm-up before.
    assert_eq!(scheduled["renew"], 60 * 5);
    assert_eq!(scheduled["status/record"], 3 * 5);
    assert_eq!(scheduled["cooldowns/since"], 3 * 5);
    assert_eq!(scheduled["positions_node/record"], 3 * 3 * 5);
    let turns = 60 * 75 / 20;
    // A turn's second steps are measured with the time that they are due at, so a few of those before count too.
    let near = |name: &str, expected: u64| scheduled[name].abs_diff(expected) <= expected / 10 + 3;
    assert!(near("claims/claim", turns + turns / 20 * 2), "{scheduled:?}");
    assert!(near("ledger/record", turns + turns / 20) && near("budgets/charge", turns * u64::from(ROUNDS)));
    assert!(near("follows/follow", turns / 2) && near("positions_floor/list", turns / 2));
}

/// The page has the table of the code, line by line.
#[test]
fn the_page_says_the_proportions_that_are_kept() {
    let page = include_str!("../../../docs/mix.md");
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, each, rate, ..] = cells[..] else { return None };
        let each = match each {
            "seat" => Each::Seat,
            "node" => Each::Node,
            "company" => Each::Company,
            _ => return None,
        };
        Some((name.to_owned(), each, rate.trim_matches('`').to_owned()))
    });
    let kept = streams("1/5m".parse().unwrap());
    let kept: Vec<_> =
        kept.into_iter().map(|stream| (stream.name.to_owned(), stream.each, stream.rate.to_string())).collect();
    // The heartbeat is the fleet's own.
    let rows: Vec<_> = rows.filter(|(name, ..)| name != "heartbeat").collect();
    assert_eq!(rows, kept);
    for said in [format!("{ROUNDS} rounds"), format!("{} s apart", ROUND.as_secs())] {
        assert!(page.contains(&said), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_run_ends_in_order_and_finds_nothing() {
    let env = Env::seeded(42);
    let (mix, ran) = run(&env, params(), Memory::new(env.clone()), env.sleep_until(env.now() + S * 40)).await;
    assert!(ran.interrupted && ran.brought_up, "{ran:?}");
    assert_eq!(mix.model.anomalies(), Anomalies::default());
    assert_eq!(mix.recorder.totals().in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_bring_up_that_gets_nowhere_is_given_up() {
    let silent = |call: &Call<'_>| match call.verb {
        Verb::Put if call.bucket.ends_with("leases") => Fault::DropRequest,
        _ => Fault::None,
    };
    let (mix, ran) = whole(|memory, env| Faulty::new(memory, env, silent)).await;
    assert_eq!((ran, mix.model.anomalies()), (Ran { interrupted: true, ..Ran::default() }, Anomalies::default()));
}

/// Requests and replies that are lost, writes that land late, calls that overtake one another: whatever is unknown then is
/// counted as unknown, and nothing that follows from it is wrong.
#[tokio::test(start_paused = true)]
async fn what_is_unknown_is_no_anomaly() {
    for seed in 0..4 {
        let odds = Odds { drop_request: 4, drop_reply: 4, late: 4, delay: 20, wait: S * 3, ..Odds::default() };
        let env = Env::seeded(seed);
        let store = Faulty::seeded(Memory::new(env.clone()), env.clone(), odds);
        let (mix, ran) = run(&env, params(), store, std::future::pending()).await;
        assert!(ran.brought_up, "{seed}");
        assert_eq!(mix.model.anomalies(), Anomalies::default(), "{seed}");
        assert!(mix.recorder.totals().of(Outcome::Unknown) > 20, "{seed}");
    }
}

/// One way of not telling the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    /// What is there reads as absent.
    Blind,
    /// A read answers what stood there first.
    Old,
    /// A write is stored whatever it expects.
    Ungated,
    /// A first write is stored, and told that another was faster.
    Denied,
    /// Every fourth write is told to be stored, and is not.
    Dropped,
    /// A listing lacks it.
    Hidden,
    /// A removal is told to be stored, and is not.
    Kept,
    /// A removal that nobody who watches hears of.
    Unheard,
}

/// A lie about the records of a family: the end of the bucket's name, and what their keys have in them.
type About = (Lie, &'static str, &'static str);

#[tokio::test(start_paused = true)]
async fn every_lie_fails_the_run_under_its_own_name() {
    let lies: [(About, &str); 36] = [
        ((Lie::Ungated, "fires", ""), "winners_doubled"),
        ((Lie::Denied, "fires", ""), "winners_missing"),
        ((Lie::Ungated, "claims", ""), "winners_doubled"),
        ((Lie::Ungated, "custody", ""), "winners_doubled"),
        ((Lie::Ungated, "rebases", ""), "winners_doubled"),
        ((Lie::Blind, "rebases", ""), "records_wrong"),
        ((Lie::Ungated, "channels", ""), "winners_doubled"),
        ((Lie::Dropped, "channels", ""), "records_wrong"),
        ((Lie::Hidden, "channels", ""), "listing_short"),
        ((Lie::Kept, "follows", ""), "winners_doubled"),
        ((Lie::Blind, "follows", ""), "records_wrong"),
        ((Lie::Ungated, "sandbox_runs", ""), "winners_doubled"),
        ((Lie::Dropped, "sandbox_runs", ""), "winners_doubled"),
        ((Lie::Hidden, "sandbox_runs", ""), "listing_short"),
        ((Lie::Ungated, "mailboxes", ""), "winners_doubled"),
        ((Lie::Hidden, "mailboxes", "s00007"), "listing_short"),
        ((Lie::Blind, "ledger", ""), "records_wrong"),
        ((Lie::Dropped, "ledger", ""), "records_wrong"),
        ((Lie::Ungated, "ledger", ""), "winners_doubled"),
        ((Lie::Dropped, "rate", ""), "valve_wrong"),
        ((Lie::Dropped, "budgets", "org"), "spend_off"),
        ((Lie::Dropped, "budgets", "seat"), "spend_off"),
        ((Lie::Blind, "budgets", "seat"), "spend_off"),
        ((Lie::Dropped, "config", "pointer"), "records_wrong"),
        ((Lie::Blind, "config", "pointer"), "records_wrong"),
        ((Lie::Blind, "secrets", ""), "records_wrong"),
        ((Lie::Old, "secrets", ""), "records_wrong"),
        ((Lie::Hidden, "secrets", "SECRET_39"), "listing_short"),
        ((Lie::Hidden, "integrations", "surface1"), "listing_short"),
        ((Lie::Hidden, "cooldowns", ""), "listing_short"),
        ((Lie::Hidden, "status", "n001"), "listing_short"),
        ((Lie::Old, "objects", "collection"), "records_wrong"),
        ((Lie::Blind, "positions", "node."), "records_wrong"),
        ((Lie::Hidden, "positions", "floor."), "listing_short"),
        ((Lie::Ungated, "positions", "maintenance."), "winners_doubled"),
        ((Lie::Unheard, "positions", "seat_pause."), "records_wrong"),
    ];
    let mut missed = Vec::new();
    for (about, expected) in lies {
        let (mix, _) = whole(|memory, _| Lying { below: memory, about, first: Arc::default() }).await;
        let found = mix.model.anomalies();
        let under = found.each().into_iter().find(|(name, _)| *name == expected).unwrap();
        if under.1 == 0 || Findings::from(found).verdict() != Verdict::Failed {
            missed.push((about, expected, found));
        }
    }
    assert_eq!(missed, [], "lies that are not found under their names");
}

#[derive(Clone)]
struct Lying<T> {
    below: T,
    about: About,
    /// What stood first under each key, and how many writes there were.
    first: Arc<Mutex<(HashMap<Key, Version>, u64)>>,
}

impl<St: Store> Store for Lying<St> {
    type Bucket = Lying<St::Bucket>;

    async fn open(&self, spec: &BucketSpec) -> Result<Self::Bucket, OpenError> {
        Ok(Lying { below: self.below.open(spec).await?, about: self.about, first: self.first.clone() })
    }
}

impl<B: Bucket> Lying<B> {
    fn lies(&self, lie: Lie, key: &Key) -> bool {
        let (told, bucket, part) = self.about;
        told == lie && self.below.name().ends_with(&format!("_{bucket}")) && key.as_str().contains(part)
    }

    fn fourth(&self) -> bool {
        let writes = &mut self.first.lock().1;
        *writes += 1;
        writes.is_multiple_of(4)
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

    async fn read(&self, key: &Key, by: Mono) -> Result<Option<Version>, Unknown> {
        let version = self.below.read(key, by).await?;
        if self.lies(Lie::Old, key)
            && let Some(version) = &version
        {
            return Ok(Some(self.first.lock().0.entry(key.clone()).or_insert_with(|| version.clone()).clone()));
        }
        Ok(version.filter(|_| !self.lies(Lie::Blind, key)))
    }

    async fn put(&self, key: &Key, write: Write, expect: Expect) -> Result<Put, Error> {
        let removal = matches!(write, Write::Removal);
        let unheard = removal && self.lies(Lie::Unheard, key);
        let dropped = self.lies(Lie::Dropped, key) && self.fourth();
        if unheard || dropped || removal && self.lies(Lie::Kept, key) {
            let stands = self.below.read(key, self.deadline()).await?;
            if unheard {
                self.below.purge(key, u64::MAX).await?;
            }
            return Ok(Put::Stored(stands.map_or(1, |version| version.revision + 1)));
        }
        let fresh = expect == Expect::At(0);
        let expect = if self.lies(Lie::Ungated, key) { Expect::Any } else { expect };
        let put = self.below.put(key, write, expect).await?;
        Ok(match put {
            Put::Stored(revision) if fresh && self.lies(Lie::Denied, key) => Put::Lost(Race::Newer(revision)),
            put => put,
        })
    }

    async fn purge(&self, key: &Key, through: u64) -> Result<u64, Unknown> {
        self.below.purge(key, through).await
    }

    async fn index(&self, filter: &Filter, by: Mono) -> Result<Index, Unknown> {
        let index = self.below.index(filter, by).await?;
        let named = index.keys().filter(|key| !self.lies(Lie::Hidden, key)).collect();
        Ok(Index::of_keys(named, index.stream()))
    }

    async fn pass(&self, filter: &Filter, values: Values, by: Mono) -> Result<B::Pass, Unknown> {
        self.below.pass(filter, values, by).await
    }

    async fn copy(&self, names: &[&str], by: Mono) -> Result<Copy, Unknown> {
        self.below.copy(names, by).await
    }

    async fn drain(&self, by: Mono) -> Result<Drained, Unknown> {
        self.below.drain(by).await
    }

    async fn standing(&self, by: Mono) -> Result<Standing, Unknown> {
        self.below.standing(by).await
    }

    fn drains(&self) -> &Drains {
        self.below.drains()
    }
}
