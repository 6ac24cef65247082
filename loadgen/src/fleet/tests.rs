//! Whole runs on the memory twin, on a clock that waits for nobody: what a right store comes to, to the last count, and that
//! each way of lying fails the run under its own name.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use coordproto::answer::{Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::{Drained, Index, Standing, Version};
use engine::env::Mono;
use engine::store::faulty::{Call, Fault, Faulty, Verb};
use engine::store::memory::Memory;
use engine::store::{Bucket, BucketSpec, Copy, Drains, Expect, OpenError, Put, Values, Write};
use parking_lot::Mutex;

use super::*;
use crate::recorder::{Counts, Outcome};
use crate::report::{Anomalies, Findings, Verdict};
use crate::scenario::{Scenario, Start};

const S: Duration = Duration::from_secs(1);

fn params() -> Params {
    Params {
        seats: 30,
        nodes: 3,
        heartbeat: S * 15,
        claimers: 10,
        claims: 95,
        duration: S * 60,
        warmup: S * 15,
        steady: false,
        seed: 42,
    }
}

fn fleet(env: &Env, params: Params) -> Fleet {
    Fleet::new(params, Start { env: env.clone(), origin: env.now(), prefix: "t".into(), replicas: 1 })
}

async fn run<St: Store>(env: &Env, store: St, interrupt: impl Future<Output = ()>) -> (Fleet, Ran) {
    let fleet = fleet(env, params());
    let leases = fleet.open(async |_| Ok::<_, OpenError>(store.clone())).await.unwrap();
    let ran = fleet.run(&leases, interrupt).await;
    (fleet, ran)
}

async fn whole<St: Store>(store: impl FnOnce(Memory, Env) -> St) -> (Fleet, Ran) {
    let env = Env::seeded(42);
    let store = store(Memory::new(env.clone()), env.clone());
    run(&env, store, std::future::pending()).await
}

fn counts(fleet: &Fleet, name: &str) -> (Counts, Counts) {
    let all = fleet.recorder.snapshot();
    let op = all.into_iter().find(|op| op.name == name).unwrap();
    (op.measured.counts, op.warmup)
}

/// All of them scheduled, started and answered: so many yes and so many no.
fn answered(ok: u64, refused: u64) -> Counts {
    Counts { scheduled: ok + refused, started: ok + refused, outcomes: [ok, refused, 0, 0] }
}

#[tokio::test(start_paused = true)]
async fn a_right_store_is_found_right_to_the_last_count() {
    let (fleet, ran) = whole(|memory, _| memory).await;
    assert_eq!(fleet.model.anomalies(), Anomalies::default());
    let came_to = CameTo { seats_held: Some(30), claims_settled: 95 };
    assert_eq!(ran, Ran { interrupted: false, brought_up: true, came_to });
    // Nodes beat at 0, 5 and 10 s of every 15. Warm-up takes 15 s, and the quiet third ends 20 s later.
    assert_eq!(counts(&fleet, "sweep"), (Counts::default(), answered(33, 0)));
    assert_eq!(counts(&fleet, "renew"), (answered(4 * 30, 0), answered(20, 0)));
    assert_eq!(counts(&fleet, "presence"), (answered(4 * 3, 0), answered(2, 0)));
    assert_eq!(counts(&fleet, "renew_retry"), (Counts::default(), Counts::default()));
    assert_eq!(counts(&fleet, "membership/leader").0, answered(60, 0));
    assert_eq!(
        counts(&fleet, "membership/quorum"),
        (answered(4 * 3, 0), answered(2, 0)),
        "one of each presence renewed"
    );
    // Nine waves with two seats each, and a last one of five claims of one seat.
    assert_eq!(counts(&fleet, "claim").0, answered(19, 76));
    assert_eq!(counts(&fleet, "get").0, answered(19, 0));
    assert_eq!(counts(&fleet, "release").0, answered(19, 0));
    let all = fleet.recorder.snapshot();
    assert!(all.iter().all(|op| op.measured.lateness.max().is_none_or(|late| late.is_zero())), "nothing is late");
    let parts: Vec<_> = fleet.parts.entered(fleet.env.now()).iter().map(|(part, a, b)| (*part, b.since(*a))).collect();
    let lengths = [0, 15, 20, 40, 0].map(|seconds| S * seconds);
    let names = ["bring_up", "warm_up", "quiet", "contest", "drain"];
    assert_eq!(parts, names.into_iter().zip(lengths).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_run_accounts_for_what_was_due_and_for_nothing_else() {
    let env = Env::seeded(42);
    let start = env.now();
    // Waves begin at 35, 39 and 43 s. A claimer that is held up at the first misses the others.
    let slow = |call: &Call<'_>| match call.verb {
        Verb::Read if call.about.contains("contest") => Fault::Delay(S * 12),
        _ => Fault::None,
    };
    let store = Faulty::new(Memory::new(env.clone()), env.clone(), slow);
    let (fleet, ran) = run(&env, store, env.sleep_until(start + S * 45)).await;
    assert!(ran.interrupted && ran.brought_up && ran.came_to.seats_held.is_none(), "{ran:?}");
    let (claims, _) = counts(&fleet, "claim");
    assert_eq!((claims.scheduled, claims.started, claims.dropped()), (30, 10, 20));
    assert_eq!(counts(&fleet, "membership/leader").0, answered(30, 0));
    // At 45 s itself one would have been due.
    assert_eq!(counts(&fleet, "renew").0, answered(2 * 30, 0));
    assert_eq!(fleet.model.anomalies(), Anomalies::default());
    let (last, began, _) = *fleet.parts.entered(env.now()).last().unwrap();
    assert_eq!((last, began.since(start)), ("drain", S * 45));
}

/// For hours on end: claims go on throughout, for the few seats that were given back, and each of them is won once.
#[tokio::test(start_paused = true)]
async fn a_steady_fleet_makes_no_new_seats() {
    let env = Env::seeded(42);
    let params = Params { claimers: 8, claims: 8 * 600, duration: S * 585, steady: true, ..params() };
    let fleet = fleet(&env, params);
    let written: Arc<Mutex<HashSet<String>>> = Arc::default();
    let log = written.clone();
    let store = Faulty::new(Memory::new(env.clone()), env.clone(), move |call: &Call<'_>| {
        if call.verb == Verb::Put && call.about.contains("contest") {
            log.lock().insert(format!("{} {}", call.bucket, call.about));
        }
        Fault::None
    });
    let leases = fleet.open(async |_| Ok::<_, OpenError>(store.clone())).await.unwrap();
    let ran = fleet.run(&leases, std::future::pending()).await;
    let came_to = CameTo { seats_held: Some(30), claims_settled: 8 * 600 };
    assert_eq!((fleet.model.anomalies(), ran.came_to), (Anomalies::default(), came_to));
    let (claims, warmup) = counts(&fleet, "claim");
    assert_eq!((claims, warmup), (answered(2 * 585, 6 * 585), answered(2 * 15, 6 * 15)));
    let written = written.lock();
    assert!(written.len() <= 2 * 2, "two seats and their counters: {written:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bring_up_is_interrupted_at_once_and_given_up_in_the_end() {
    let env = Env::seeded(42);
    let start = env.now();
    let claims_lost = |call: &Call<'_>| match call.verb {
        Verb::Put if call.bucket.ends_with("leases") => Fault::DropRequest,
        _ => Fault::None,
    };
    let store = || Faulty::new(Memory::new(env.clone()), env.clone(), claims_lost);
    let (fleet, ran) = run(&env, store(), env.sleep_until(start + S * 5)).await;
    assert_eq!(ran, Ran { interrupted: true, ..Ran::default() });
    assert!(env.now().since(start) < S * 7, "{:?}", env.now().since(start));
    assert_eq!(fleet.recorder.totals(), Counts::default());

    let again = env.now();
    let (fleet, ran) = run(&env, store(), std::future::pending()).await;
    assert_eq!(ran, Ran { interrupted: true, ..Ran::default() });
    assert!((60..70).contains(&env.now().since(again).as_secs()), "{:?}", env.now().since(again));
    assert_eq!(fleet.model.anomalies(), Anomalies::default(), "unknown is no anomaly");
}

#[tokio::test(start_paused = true)]
async fn an_outage_makes_unknowns_and_retries_but_no_anomaly() {
    let env = Env::seeded(42);
    let start = env.now();
    let clock = env.clone();
    // It takes with it the answers of one node's burst at 20 s, of its presence, and of two readings.
    let outage = move |_: &Call<'_>| match clock.now().since(start).as_millis() {
        20_000..21_500 => Fault::DropReply,
        _ => Fault::None,
    };
    let store = Faulty::new(Memory::new(env.clone()), env.clone(), outage);
    let (fleet, ran) = run(&env, store, std::future::pending()).await;
    assert_eq!(fleet.model.anomalies(), Anomalies::default());
    assert_eq!(ran.came_to.seats_held, Some(30));
    let unknown = |name| counts(&fleet, name).0.of(Outcome::Unknown);
    assert_eq!(["renew", "presence", "membership/leader", "claim"].map(unknown), [10, 1, 2, 0]);
    // Without its renewal a presence proves nothing, so that beat has no such reading.
    assert_eq!(counts(&fleet, "membership/quorum").0, answered(4 * 3 - 1, 0));
    let (retries, _) = counts(&fleet, "renew_retry");
    assert!(retries.of(Outcome::Ok) == 11 && retries.scheduled <= 33, "a node's seats and its presence: {retries:?}");
}

/// Readings without an answer for ten seconds each, and a burst of renewals that was lost: what is unconfirmed is asked again
/// within the second.
#[tokio::test(start_paused = true)]
async fn a_reading_that_hangs_holds_back_no_renewal() {
    let env = Env::seeded(42);
    let (start, clock) = (env.now(), env.clone());
    let renewed: Arc<Mutex<Vec<u128>>> = Arc::default();
    let log = renewed.clone();
    let hanging = move |call: &Call<'_>| match (clock.now().since(start).as_millis(), call.verb) {
        (_, Verb::Copy) if call.about.starts_with("node") => Fault::Delay(S * 60),
        // The burst of the node that beats at 20 s, and not its presence.
        (20_000..20_100, Verb::Put) if call.about.starts_with("seat.s") => Fault::DropRequest,
        (now @ 20_100..35_000, Verb::Put) if call.about.starts_with("seat.s") => {
            log.lock().push(now);
            Fault::None
        }
        _ => Fault::None,
    };
    let store = Faulty::new(Memory::new(env.clone()), env.clone(), hanging);
    let (fleet, ran) = run(&env, store, std::future::pending()).await;
    assert_eq!((fleet.model.anomalies(), ran.came_to.seats_held), (Anomalies::default(), Some(30)));
    assert_eq!(counts(&fleet, "renew_retry").0, answered(10, 0));
    let again = renewed.lock().iter().filter(|at| **at < 21_000).count();
    assert_eq!((again, renewed.lock().len()), (10, 30), "and the bursts of the two other nodes");
    // Every beat had one, and it ended.
    assert_eq!(counts(&fleet, "membership/quorum").0, Counts { scheduled: 12, started: 12, outcomes: [0, 0, 12, 0] });
}

/// A node whose readings outlast its heartbeat has one at a time. Those that fell due meanwhile are dropped, and of the others
/// each has its end, the last one's too.
#[tokio::test(start_paused = true)]
async fn a_node_has_one_reading_at_a_time() {
    let env = Env::seeded(42);
    let fleet = fleet(&env, Params { nodes: 1, heartbeat: S * 6, ..params() });
    let (start, clock) = (env.now(), env.clone());
    let read: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let log = read.clone();
    let hanging = move |call: &Call<'_>| {
        if call.verb == Verb::Copy && call.about.starts_with("node") {
            log.lock().push(clock.now().since(start));
            return Fault::Delay(S * 60);
        }
        Fault::None
    };
    let store = Faulty::new(Memory::new(env.clone()), env.clone(), hanging);
    let leases = fleet.open(async |_| Ok::<_, OpenError>(store.clone())).await.unwrap();
    let ran = fleet.run(&leases, std::future::pending()).await;
    assert_eq!((fleet.model.anomalies(), ran.came_to.seats_held), (Anomalies::default(), Some(30)));
    let read = read.lock();
    assert!(read.windows(2).all(|two| two[1] - two[0] == S * 12), "two beats each: {read:?}");
    let (measured, warmup) = counts(&fleet, "membership/quorum");
    let presences = counts(&fleet, "presence");
    assert_eq!((read.len(), measured.started, measured.dropped()), (6, 5, 5));
    for (readings, presences) in [(measured, presences.0), (warmup, presences.1)] {
        assert_eq!(readings.scheduled, presences.of(Outcome::Ok), "one of each presence renewed");
        assert_eq!((readings.in_flight(), readings.of(Outcome::Unknown)), (0, readings.started));
    }
    let (last, began, ended) = *fleet.parts.entered(env.now()).last().unwrap();
    assert!(last == "drain" && ended.since(began) > S, "the last of them is waited for");
}

/// The store away for two beats in three: whoever asks again in between loses nothing, presences included.
#[tokio::test(start_paused = true)]
async fn an_outage_shorter_than_the_ttl_costs_nobody_a_lease() {
    let env = Env::seeded(42);
    let (start, clock) = (env.now(), env.clone());
    let outage = move |_: &Call<'_>| match clock.now().since(start).as_millis() {
        // Every node beats twice in it, and the next time when its TTL is over.
        20_500..51_000 => Fault::DropRequest,
        _ => Fault::None,
    };
    let store = Faulty::new(Memory::new(env.clone()), env.clone(), outage);
    let (fleet, ran) = run(&env, store, std::future::pending()).await;
    assert_eq!((fleet.model.anomalies(), ran.came_to.seats_held), (Anomalies::default(), Some(30)));
    let refused = |name| counts(&fleet, name).0.of(Outcome::Refused);
    assert_eq!(["renew", "renew_retry", "presence"].map(refused), [0, 0, 0]);
    assert_eq!(counts(&fleet, "sweep").0, Counts::default());
}

/// The store away for longer than the TTL, so that every lease ends: all are held again within seconds, nothing of it is an
/// anomaly, and the nodes' heartbeats are as far apart as before.
#[tokio::test(start_paused = true)]
async fn after_an_outage_longer_than_the_ttl_all_is_held_again_and_heartbeats_stay_apart() {
    let env = Env::seeded(42);
    let params = Params { seats: 600, nodes: 30, duration: S * 135, ..params() };
    let fleet = fleet(&env, params);
    let (start, clock) = (env.now(), env.clone());
    let written: Arc<Mutex<Vec<u128>>> = Arc::default();
    let log = written.clone();
    let outage = move |call: &Call<'_>| match clock.now().since(start).as_millis() {
        45_000..105_000 => Fault::DropRequest,
        now => {
            if call.verb == Verb::Put && call.bucket.ends_with("leases") && call.about.starts_with("seat.s") {
                log.lock().push(now);
            }
            Fault::None
        }
    };
    let store = Faulty::new(Memory::new(env.clone()), env.clone(), outage);
    let leases = fleet.open(async |_| Ok::<_, OpenError>(store.clone())).await.unwrap();
    let ran = fleet.run(&leases, std::future::pending()).await;
    assert_eq!((fleet.model.anomalies(), ran.came_to.seats_held), (Anomalies::default(), Some(600)));
    let lost: u64 =
        ["renew", "renew_retry", "presence"].map(|name| counts(&fleet, name).0.of(Outcome::Refused)).iter().sum();
    let again = counts(&fleet, "sweep").0.of(Outcome::Ok);
    assert_eq!((lost, again), (630, 630), "every seat and every presence");
    let all = fleet.recorder.snapshot();
    let sweep = &all.iter().find(|op| op.name == "sweep").unwrap().measured;
    let seconds =
        sweep.over_time(S).into_iter().enumerate().filter(|(_, point)| point.outcomes[Outcome::Ok as usize] > 0);
    let seconds: Vec<usize> = seconds.map(|(second, _)| second).collect();
    assert!(seconds.iter().all(|second| (105..110).contains(second)), "held again within five seconds: {seconds:?}");

    // One renewal of each seat in 15 s, and nothing else.
    let written = written.lock();
    let within = |from, to| written.iter().filter(move |at| (from..to).contains(*at));
    for period in [30_000, 120_000, 135_000] {
        assert_eq!(within(period, period + 15_000).count(), 600, "from {period} ms");
        let most = (0..150).map(|i| within(period + i * 100, period + i * 100 + 100).count()).max();
        assert_eq!(most, Some(20), "one node's seats at a time, from {period} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn every_lie_fails_the_run_under_its_own_name() {
    for lie in [Lie::Free, Lie::FreeAndUncounted, Lie::Absent, Lie::HiddenNode, Lie::HiddenSeat, Lie::Forgotten] {
        let (fleet, ran) = whole(|below, _| Lying { below, lie, writes: Arc::default() }).await;
        let found = fleet.model.anomalies();
        assert!(ran.brought_up && !ran.interrupted, "{lie:?}: {ran:?}");
        assert_eq!(Findings::from(found).verdict(), Verdict::Failed, "{lie:?}");
        match lie {
            // Each of the 95 claims is granted, 4 or 5 for each of 19 seats.
            Lie::Free => assert!(found.double_holders == 76 && found.epochs_reused == 0, "{found:?}"),
            Lie::FreeAndUncounted => assert_eq!((found.double_holders, found.epochs_reused), (76, 76), "{found:?}"),
            Lie::Absent => assert_eq!(found, Anomalies { winners_told_not_held: 19, ..Anomalies::default() }),
            // In each of the watcher's readings and of the other two nodes'. Its own have lost their proof, and are unknown.
            Lie::HiddenNode => {
                assert_eq!(found, Anomalies { memberships_short: 60 + 9, ..Anomalies::default() });
                assert_eq!(counts(&fleet, "membership/quorum").0.of(Outcome::Unknown), 4);
            }
            Lie::HiddenSeat => assert_eq!(found, Anomalies { seats_not_held: 1, ..Anomalies::default() }),
            Lie::Forgotten => {
                assert_eq!(found, Anomalies { live_leases_lost: 1, ..Anomalies::default() });
                assert_eq!(ran.came_to.seats_held, Some(30), "it is claimed again");
            }
        }
    }
}

/// One way of not telling the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    /// Contested seats read as free, and a write over one is stored whatever it expects.
    Free,
    /// That, and their counters read as absent too.
    FreeAndUncounted,
    /// A contested seat that is held reads as free.
    Absent,
    /// A listing lacks a node.
    HiddenNode,
    /// A listing lacks a seat.
    HiddenSeat,
    /// A seat's record is forgotten when it is renewed first.
    Forgotten,
}

#[derive(Clone)]
struct Lying<T> {
    below: T,
    lie: Lie,
    writes: Arc<AtomicU64>,
}

impl<St: Store> Store for Lying<St> {
    type Bucket = Lying<St::Bucket>;

    async fn open(&self, spec: &BucketSpec) -> Result<Self::Bucket, OpenError> {
        Ok(Lying { below: self.below.open(spec).await?, lie: self.lie, writes: self.writes.clone() })
    }
}

impl<B: Bucket> Lying<B> {
    fn lies_about(&self, key: &Key) -> bool {
        let contested = key.as_str().contains("contest");
        let leases = self.below.name().ends_with("leases");
        match self.lie {
            Lie::Free | Lie::Absent => contested && leases,
            Lie::FreeAndUncounted => contested,
            Lie::HiddenNode => leases && key.as_str().ends_with("n001"),
            Lie::HiddenSeat => leases && key.as_str().ends_with("s00007"),
            Lie::Forgotten => leases && key.as_str().ends_with("s00011"),
        }
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
        let absent = match self.lie {
            Lie::Free | Lie::FreeAndUncounted | Lie::Absent => self.lies_about(key),
            _ => false,
        };
        Ok(version.filter(|_| !absent))
    }

    async fn put(&self, key: &Key, write: Write, expect: Expect) -> Result<Put, Error> {
        let expect = match self.lie {
            Lie::Free | Lie::FreeAndUncounted if self.lies_about(key) => Expect::Any,
            _ => expect,
        };
        // The two writes of the claim come first.
        if self.lie == Lie::Forgotten && self.lies_about(key) && self.writes.fetch_add(1, Ordering::Relaxed) == 2 {
            self.below.purge(key, u64::MAX).await?;
        }
        self.below.put(key, write, expect).await
    }

    async fn purge(&self, key: &Key, through: u64) -> Result<u64, Unknown> {
        self.below.purge(key, through).await
    }

    async fn index(&self, filter: &Filter, by: Mono) -> Result<Index, Unknown> {
        let index = self.below.index(filter, by).await?;
        if matches!(self.lie, Lie::HiddenNode | Lie::HiddenSeat) {
            let keys = index.keys().filter(|key| !self.lies_about(key)).collect();
            return Ok(Index::of_keys(keys, index.stream()));
        }
        Ok(index)
    }

    async fn pass(&self, filter: &Filter, values: Values, by: Mono) -> Result<B::Pass, Unknown> {
        self.below.pass(filter, values, by).await
    }

    async fn copy(&self, names: &[&str], by: Mono) -> Result<Copy, Unknown> {
        let copy = self.below.copy(names, by).await?;
        Ok(match copy {
            Copy::Whole(mut held) if matches!(self.lie, Lie::HiddenNode | Lie::HiddenSeat) => {
                held.entries.retain(|(key, _)| !self.lies_about(key));
                Copy::Whole(held)
            }
            other => other,
        })
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
