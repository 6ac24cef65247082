//! Listings through faults: the leader deposed, killed or frozen, the metadata's leader killed, followers frozen and
//! restarted. Each listing is whole or unknown within its deadline, and how long it takes until there is a whole one again is
//! printed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coordproto::answer::{Cause, Unknown};
use coordproto::key::Key;
use engine::broker::Member;
use engine::env::Mono;
use engine::store::nats::{Nats, NatsBucket};
use engine::store::{Barrier, Bucket, BucketSpec, Certified, Expect, Listing, Put, Store, Write};
use engine::tasks::{self, Task};
use futures_util::future::{join, join_all};
use parking_lot::Mutex;
use tests::{Brokers, class, eventually, resource};

use crate::alone;

const STREAM: &str = "KV_recovered";
const KEYS: usize = 60;
/// The deadline of one listing, its barrier included.
const WITHIN: Duration = Duration::from_secs(2);
/// How late a busy machine may let a task that was due run.
const SLACK: Duration = Duration::from_secs(10);
/// How much sooner than the metadata have a leader again it is said to be without it. That one leads is noticed by asking.
const SOONER: Duration = Duration::from_millis(500);
/// How long a member is frozen.
const FROZEN: Duration = Duration::from_secs(5);

/// What certifies a listing of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Strategy {
    Leader,
    /// A barrier written for the listing.
    Quorum,
    /// The node's last acknowledged heartbeat.
    Heartbeat,
}

const STRATEGIES: [Strategy; 3] = [Strategy::Leader, Strategy::Quorum, Strategy::Heartbeat];

/// A node's last heartbeat, and what was acknowledged before it was sent.
type Heartbeat = Arc<Mutex<Option<(Barrier, Vec<u64>)>>>;

/// One listing of the loop.
struct Round {
    at: &'static str,
    strategy: Strategy,
    began: Mono,
    ended: Mono,
    answer: Result<(), Unknown>,
}

/// The records, who writes them, and what is known to be written.
struct Fleet<'a> {
    brokers: &'a Brokers,
    keys: Arc<Vec<Key>>,
    acked: Arc<Vec<AtomicU64>>,
    rounds: Arc<Mutex<Vec<Round>>>,
    _tasks: Vec<Task<()>>,
}

async fn opened(store: &Nats) -> NatsBucket {
    let spec = BucketSpec { name: "recovered".into(), age: None, raise_age: false, replicas: 3 };
    store.open(&spec).await.expect("the bucket opens")
}

/// Writes a record; the revision, unless that is unknown.
async fn written(bucket: &NatsBucket, key: &Key) -> Option<u64> {
    match bucket.put(key, Write::Value("v".into()), Expect::Any).await {
        Ok(Put::Stored(revision)) => Some(revision),
        Ok(Put::Lost(race)) => panic!("{key}: {race:?} without an expectation"),
        Err(error) => {
            assert!(error.unknown().is_some(), "{error}");
            None
        }
    }
}

/// Fails for a listing that is not of all keys, or of which a quorum proved something older than was acknowledged before.
fn judge(strategy: Strategy, listing: &Listing, keys: &[Key], known: &[u64]) {
    let listed: Vec<&Key> = listing.entries.iter().map(|(key, _)| key).collect();
    assert!(listed.iter().copied().eq(keys), "{strategy:?}: {} of {KEYS} keys: {listed:?}", listed.len());
    for ((key, version), known) in listing.entries.iter().zip(known) {
        assert!(strategy == Strategy::Leader || version.revision >= *known, "{key}: {version:?}, {known} is known");
    }
}

impl<'a> Fleet<'a> {
    /// Three nodes, each connected to one member: it rewrites a third of the records, and lists them all in three ways.
    async fn start(brokers: &'a Brokers) -> Fleet<'a> {
        let keys: Vec<Key> = (0..KEYS).map(|i| resource(&format!("seat:s{i:03}")).key().clone()).collect();
        let fleet = Fleet {
            brokers,
            keys: Arc::new(keys),
            acked: Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect()),
            rounds: Arc::default(),
            _tasks: Vec::new(),
        };
        let nodes = join_all(brokers.members().iter().map(async |m| opened(&brokers.store_at(m).await).await)).await;
        for (key, acked) in fleet.keys.iter().zip(&*fleet.acked) {
            acked.store(written(&nodes[0], key).await.expect("nothing is failing yet"), Ordering::SeqCst);
        }
        let mut tasks = Vec::new();
        for (n, bucket) in nodes.into_iter().enumerate() {
            let at = ["n1", "n2", "n3"][n];
            let heartbeat = Heartbeat::default();
            tasks.push(fleet.writer(n, bucket.clone(), heartbeat.clone()));
            for strategy in STRATEGIES {
                tasks.push(fleet.lister(at, strategy, bucket.clone(), heartbeat.clone()));
            }
        }
        Fleet { _tasks: tasks, ..fleet }
    }

    fn known(acked: &[AtomicU64]) -> Vec<u64> {
        acked.iter().map(|acked| acked.load(Ordering::SeqCst)).collect()
    }

    fn writer(&self, n: usize, bucket: NatsBucket, heartbeat: Heartbeat) -> Task<()> {
        let (keys, acked) = (self.keys.clone(), self.acked.clone());
        let own = resource(&format!("node:n{}", n + 1)).key().clone();
        tasks::spawn(async move {
            loop {
                let (sent, known) = (bucket.env().now(), Fleet::known(&acked));
                if let Some(revision) = written(&bucket, &own).await {
                    let barrier = Barrier { bucket: bucket.name().into(), key: own.clone(), revision, sent };
                    *heartbeat.lock() = Some((barrier, known));
                }
                for i in (n..KEYS).step_by(3) {
                    if let Some(revision) = written(&bucket, &keys[i]).await {
                        acked[i].fetch_max(revision, Ordering::SeqCst);
                    }
                    bucket.env().sleep(Duration::from_millis(5)).await;
                }
            }
        })
    }

    fn lister(&self, at: &'static str, strategy: Strategy, bucket: NatsBucket, heartbeat: Heartbeat) -> Task<()> {
        let (keys, acked, rounds) = (self.keys.clone(), self.acked.clone(), self.rounds.clone());
        tasks::spawn(async move {
            let env = bucket.env().clone();
            loop {
                let (began, known) = (env.now(), Fleet::known(&acked));
                let by = began + WITHIN;
                let answer = async {
                    let (certified, known) = match strategy {
                        Strategy::Leader => (Certified::Leader, known),
                        Strategy::Quorum => (Certified::Quorum(bucket.barrier(by).await?), known),
                        Strategy::Heartbeat => {
                            let last = eventually(&env, "a heartbeat", || async { heartbeat.lock().clone() }).await;
                            (Certified::Quorum(last.0), last.1)
                        }
                    };
                    let listing = bucket.list(&class("seat").filter(), &certified, by).await?;
                    judge(strategy, &listing, &keys, &known);
                    Ok(())
                }
                .await;
                let ended = env.now();
                rounds.lock().push(Round { at, strategy, began, ended, answer });
                env.sleep(Duration::from_millis(20)).await;
            }
        })
    }

    /// Waits until every node but the `away` one lists again in every way, counted from `since`; prints how long it took.
    async fn back(&self, fault: &str, since: Mono, away: Option<&str>) -> BTreeMap<(Strategy, &'static str), Duration> {
        let nodes = ["n1", "n2", "n3"].into_iter().filter(|at| Some(*at) != away);
        let all = nodes.count() * 3;
        let found = eventually(&self.brokers.env, &format!("{fault}: everybody lists again"), || async {
            let mut first = BTreeMap::new();
            for round in self.rounds.lock().iter().filter(|round| round.began >= since && round.answer.is_ok()) {
                if Some(round.at) != away {
                    first.entry((round.strategy, round.at)).or_insert_with(|| round.ended.since(since));
                }
            }
            (first.len() == all).then_some(first)
        })
        .await;
        for strategy in STRATEGIES {
            let each: Vec<_> = found.iter().filter(|((of, _), _)| *of == strategy).collect();
            let each: Vec<String> =
                each.iter().map(|((_, at), took)| format!("{at} {} ms", took.as_millis())).collect();
            println!("{fault}, {strategy:?}: {}", each.join(", "));
        }
        found
    }

    /// Takes the rounds so far, and fails for one that outlived its deadline.
    fn settle(&self, fault: &str) {
        for strategy in STRATEGIES {
            let (mut good, mut longest, mut unknown) = (0, Duration::ZERO, BTreeMap::<String, u32>::new());
            for round in self.rounds.lock().iter().filter(|round| round.strategy == strategy) {
                longest = longest.max(round.ended.since(round.began));
                match &round.answer {
                    Ok(()) => good += 1,
                    Err(Unknown { op, cause: Cause::Stale { .. }, .. }) => {
                        *unknown.entry(format!("{op}: a stale answer")).or_default() += 1;
                    }
                    Err(why) => *unknown.entry(format!("{}: {}", why.op, why.cause)).or_default() += 1,
                }
            }
            println!("{fault}, {strategy:?}: {good} whole, longest {} ms, unknown {unknown:?}", longest.as_millis());
            assert!(longest < WITHIN + SLACK, "{fault}, {strategy:?}: a listing took {longest:?}");
        }
        self.rounds.lock().clear();
    }

    async fn whole_again(&self, fault: &str) {
        self.brokers.start_the_rest().await;
        self.back(&format!("{fault}, whole again"), self.brokers.env.now(), None).await;
        assert!(self._tasks.iter().all(|task| !task.is_finished()), "{fault}: somebody failed");
        self.settle(fault);
    }

    /// A member that leads neither the stream nor the metadata.
    async fn bystander(&self) -> &Member {
        let (leader, meta) = (self.brokers.leader(STREAM).await, self.brokers.meta_leader().await);
        let other = self.brokers.members().iter().find(|m| m.name() != leader.name() && m.name() != meta.name());
        other.expect("three members")
    }
}

#[test]
fn listings_are_whole_or_unknown_through_every_fault_and_come_back() {
    alone(3, async |brokers| {
        let env = &brokers.env;
        let fleet = Fleet::start(brokers).await;
        fleet.back("calm", env.now(), None).await;
        fleet.settle("calm");

        let began = env.now();
        eventually(env, "the leader steps down", || async { brokers.step_down(STREAM).await.then_some(()) }).await;
        fleet.back("the leader steps down", began, None).await;
        fleet.whole_again("the leader steps down").await;

        let leader = brokers.leader(STREAM).await;
        leader.kill().await.expect("killed");
        fleet.back("the leader is killed", env.now(), Some(leader.name())).await;
        fleet.whole_again("the leader is killed").await;

        // With the metadata led by somebody else than the stream.
        eventually(env, "two members lead", || async {
            let apart = brokers.meta_leader().await.name() != brokers.leader(STREAM).await.name();
            if !apart {
                brokers.step_down(STREAM).await;
            }
            apart.then_some(())
        })
        .await;
        let meta = brokers.meta_leader().await;
        meta.kill().await.expect("killed");
        // What began before it was dead may not have needed it.
        let dead = env.now();
        let elected = async {
            eventually(env, "another leads the metadata", || async {
                (brokers.meta_leader().await.name() != meta.name()).then_some(())
            })
            .await;
            env.now().since(dead)
        };
        let back = fleet.back("the metadata's leader is killed", dead, Some(meta.name()));
        let (back, elected) = join(back, elected).await;
        let last = back.iter().filter(|((strategy, _), _)| *strategy == Strategy::Leader).map(|(_, took)| *took).max();
        let last = last.expect("they list again");
        println!("the metadata's leader is killed: another leads them after {elected:?}");
        assert!(last < WITHIN || last + SOONER < elected, "dark for the metadata's election: {last:?} of {elected:?}");
        fleet.whole_again("the metadata's leader is killed").await;

        let follower = fleet.bystander().await;
        let began = env.now();
        follower.pause().await.expect("paused");
        fleet.back("a follower is frozen", began, Some(follower.name())).await;
        env.sleep_until(began + FROZEN).await;
        follower.resume().expect("resumed");
        fleet.whole_again("a follower is frozen").await;

        let follower = fleet.bystander().await;
        let began = env.now();
        follower.restart().await.expect("restarted");
        fleet.back("a follower is restarted", began, None).await;
        fleet.whole_again("a follower is restarted").await;

        let leader = brokers.leader(STREAM).await;
        let began = env.now();
        leader.pause().await.expect("paused");
        fleet.back("the leader is frozen", began, Some(leader.name())).await;
        leader.resume().expect("resumed");
        fleet.whole_again("the leader is frozen").await;
    });
}
