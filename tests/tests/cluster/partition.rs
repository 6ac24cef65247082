//! A leader cut off from the other members, and what those are told who can reach it alone.
//!
//! It goes on taking itself for the leader until it notices, 10 to 20 seconds later, while the others elect another one and
//! take writes. In that time it answers with what was, as a leader; nothing in such an answer gives it away. Longest lies one
//! that leads the members' own group, too, since that is the second thing a member asks itself before it answers.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::Key;
use engine::broker::Member;
use engine::env::{Env, Mono};
use engine::store::nats::NatsBucket;
use engine::store::{Bucket, BucketSpec, Certified, Expect, Put, Race, Store, Write};
use futures_util::future::{join_all, join3};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tests::{Brokers, Links, class, eventually, resource};

use crate::{alone_with_links, definite};

/// How often the cut-off leader is asked.
const PACE: Duration = Duration::from_millis(250);
/// How many questions in a row without an answer say that it has noticed. A slow machine costs one before that its answer.
const ENOUGH: usize = 10;
/// How long it may take until then: twice the broker's own 10 s, and time to spare.
const NOTICED_WITHIN: Duration = Duration::from_secs(40);

/// How long a listing may take.
const LISTED_WITHIN: Duration = Duration::from_secs(2);
/// How long one attempt to write waits: what is sent before a leader is elected is never answered.
const ATTEMPT: Duration = Duration::from_millis(500);

const OLD: &[u8] = b"old";
const NEW: &[u8] = b"new";
const NEVER: &[u8] = b"never";

/// One record, and its bucket through either side of a cut to come.
struct Parting<'a> {
    brokers: &'a Brokers,
    links: &'a Links,
    /// The leader, of the bucket's stream and of the members.
    leader: &'a Member,
    /// Through the leader and no other member.
    alone: NatsBucket,
    /// Through one of the others.
    others: NatsBucket,
    key: Key,
    /// The record's revision before the cut.
    old: u64,
}

/// What came of a cut, which lasts.
struct Parted<T> {
    /// When the leader was cut off.
    cut: Mono,
    /// When the others had acknowledged the new revision.
    acknowledged: Mono,
    /// The new revision.
    new: u64,
    /// What the cut-off leader answered.
    told: Vec<Told<T>>,
}

/// One question and its answer.
struct Told<T> {
    asked: Mono,
    answered: Mono,
    answer: Result<T, Unknown>,
}

impl<'a> Parting<'a> {
    /// A bucket with the old value in it, led by the member that leads the members.
    async fn before(brokers: &'a Brokers, links: &'a Links, bucket: &str) -> Parting<'a> {
        let leader = brokers.meta_leader().await;
        let other = brokers.members().iter().find(|member| member.name() != leader.name()).expect("three members");
        let spec = BucketSpec { name: bucket.to_owned(), age: None, raise_age: false, replicas: 3 };
        let open = async |member| brokers.store_at(member).await.open(&spec).await.expect("the bucket opens");
        let (alone, others) = (open(leader).await, open(other).await);
        brokers.lead(&format!("KV_{bucket}"), leader).await;
        let key = resource("seat:s").key().clone();
        let old = overwritten(brokers, &others, &key, 0, OLD).await;
        for bucket in [&alone, &others] {
            let read = definite(brokers, async || bucket.get(&key).await).await.expect("written");
            assert_eq!(read.revision, old);
        }
        Parting { brokers, links, leader, alone, others, key, old }
    }

    /// Cuts the leader off and asks it, over and over, until it has noticed. The others are given the new value meanwhile,
    /// and the leader another one that nobody may ever see.
    async fn part<T>(&self, ask: impl AsyncFn(&NatsBucket) -> Result<T, Unknown>) -> Parted<T> {
        let env = &self.brokers.env;
        self.links.cut(&[self.leader]);
        let cut = env.now();
        let noticed = Cell::new(false);
        let asks = async {
            let told = until_noticed(env, async || ask(&self.alone).await).await;
            noticed.set(true);
            told
        };
        let lost_writes = async {
            while !noticed.get() {
                let write = Write::Value(Bytes::from_static(NEVER));
                match self.alone.put(&self.key, write, Expect::At(self.old)).await {
                    // The one before it is still under way.
                    Ok(Put::Lost(Race::InProcess)) | Err(Error::Unknown(_)) => {}
                    other => panic!("a write through the cut-off leader: {other:?}"),
                }
                env.sleep(PACE).await;
            }
        };
        let writes = async {
            let new = overwritten(self.brokers, &self.others, &self.key, self.old, NEW).await;
            (new, env.now())
        };
        let (told, (), (new, acknowledged)) = Box::pin(join3(asks, lost_writes, writes)).await;
        let read = definite(self.brokers, async || self.others.get(&self.key).await).await.expect("written");
        assert_eq!((read.revision, read.value.as_deref()), (new, Some(NEW)));
        println!("cut: the others acknowledged a write after {:?}", acknowledged.since(cut));
        Parted { cut, acknowledged, new, told }
    }

    /// Heals, and waits until both sides read the new value. Neither reads anything else.
    async fn heal(&self, new: u64) {
        let env = &self.brokers.env;
        self.links.heal();
        let healed = env.now();
        let reads = [(&self.alone, "the leader that was"), (&self.others, "the others")].map(async |(bucket, who)| {
            eventually(env, "the new value is read", || async {
                let read = bucket.get(&self.key).await.ok()?.expect("never absent");
                assert_eq!((read.revision, read.value.as_deref()), (new, Some(NEW)), "through {who}");
                Some(())
            })
            .await;
            println!("healed: the new value is read through {who} after {:?}", env.now().since(healed));
        });
        join_all(reads).await;
    }
}

impl<T> Parted<T> {
    /// The definite answers.
    fn answers(&self, what: &str) -> Vec<&T> {
        let definite = self.told.iter().filter_map(|told| Some((told, told.answer.as_ref().ok()?)));
        let (definite, answers): (Vec<_>, Vec<_>) = definite.unzip();
        let last = definite.iter().map(|told| told.answered).max();
        let unknown: Vec<_> = self.told.iter().filter_map(|told| told.answer.as_ref().err()).collect();
        println!(
            "{what}: {} answers until {:?} after the cut, {:?} after the others' write; then {} unknown, {}",
            answers.len(),
            last.map(|last| last.since(self.cut)),
            last.map(|last| last.since(self.acknowledged)),
            unknown.len(),
            unknown[0],
        );
        answers
    }
}

/// Asks at a steady pace, without waiting for answers, until there are no more of them: the last questions are all unknown,
/// and enough of them. In the order they were asked.
async fn until_noticed<T>(env: &Env, ask: impl AsyncFn() -> Result<T, Unknown>) -> Vec<Told<T>> {
    let (mut told, mut open): (Vec<Told<T>>, _) = (Vec::new(), FuturesUnordered::new());
    let until = env.now() + NOTICED_WITHIN;
    let in_a_row = |told: &mut Vec<Told<T>>| {
        told.sort_by_key(|told| told.asked);
        told.iter().rev().take_while(|told| told.answer.is_err()).count()
    };
    loop {
        open.push(async {
            let asked = env.now();
            let answer = ask().await;
            Told { asked, answered: env.now(), answer }
        });
        let next = env.now() + PACE;
        while let Ok(Some(one)) = env.within(next, open.next()).await {
            told.push(one);
        }
        env.sleep_until(next).await;
        if open.len() + in_a_row(&mut told) >= ENOUGH {
            // Those still open are waited for: on a slow machine they are no more than late.
            while let Some(one) = open.next().await {
                told.push(one);
            }
            if in_a_row(&mut told) >= ENOUGH {
                return told;
            }
        }
        assert!(env.now() < until, "the cut-off leader answers after {NOTICED_WITHIN:?}");
    }
}

/// Writes `value` over the revision `before`, as often as it takes; answers its revision.
async fn overwritten(brokers: &Brokers, bucket: &NatsBucket, key: &Key, before: u64, value: &'static [u8]) -> u64 {
    let in_doubt = Cell::new(false);
    eventually(&brokers.env, "a write is acknowledged", || async {
        let put = bucket.put(key, Write::Value(Bytes::from_static(value)), Expect::At(before));
        match brokers.env.within(brokers.env.now() + ATTEMPT, put).await {
            Ok(Ok(Put::Stored(revision))) => Some(revision),
            // An attempt before this one, whose answer never came.
            Ok(Ok(Put::Lost(Race::Newer(revision)))) if in_doubt.get() => Some(revision),
            Ok(Ok(Put::Lost(Race::InProcess))) => None,
            Ok(Ok(lost)) => panic!("nobody else's write may land: {lost:?}"),
            Ok(Err(Error::Unknown(_))) | Err(_) => {
                in_doubt.set(true);
                None
            }
            Ok(Err(Error::BadArgument(error))) => panic!("{error}"),
        }
    })
    .await
}

#[test]
fn a_cut_off_leader_answers_what_was_until_it_notices_and_then_nothing() {
    alone_with_links(3, async |brokers, links| {
        let parting = Parting::before(brokers, links, "parted").await;
        let parted = parting.part(async |bucket| bucket.get(&parting.key).await).await;
        for read in parted.answers("get") {
            let read = read.as_ref().expect("never absent");
            assert_eq!((read.revision, read.value.as_deref()), (parting.old, Some(OLD)));
        }
        parting.heal(parted.new).await;
    });
}

/// What the cut-off leader certifies may be old for as long as it takes itself for the leader. What a quorum has to prove is
/// unknown all that time: a barrier of its own is never acknowledged, and one that the others acknowledged is not in its copy.
#[test]
fn a_listing_that_a_quorum_proves_is_never_old_through_a_cut_off_leader() {
    alone_with_links(3, async |brokers, links| {
        let parting = Parting::before(brokers, links, "listed").await;
        let filter = class("seat").filter();
        let proved = RefCell::new(Vec::new());
        let parted = parting
            .part(async |bucket| {
                let by = brokers.env.now() + LISTED_WITHIN;
                let by_barrier_of = async |whose: &NatsBucket| {
                    let barrier = whose.barrier(by).await?;
                    bucket.list(&filter, &Certified::Quorum(barrier), by).await
                };
                let certified = bucket.list(&filter, &Certified::Leader, by);
                let (certified, own, theirs) =
                    Box::pin(join3(certified, by_barrier_of(bucket), by_barrier_of(&parting.others))).await;
                proved.borrow_mut().push((own, theirs));
                certified
            })
            .await;
        for listing in parted.answers("list, certified by the leader") {
            let [(key, version)] = &listing.entries[..] else { panic!("never short: {listing:?}") };
            assert_eq!((key, version.revision, version.value.as_deref()), (&parting.key, parting.old, Some(OLD)));
        }
        let mut behind = 0;
        for (own, theirs) in proved.take() {
            let own = own.expect_err("a quorum that nobody had");
            assert_eq!(own.op, "barrier", "{own}");
            let theirs = theirs.expect_err("a copy from before the barrier");
            behind += u32::from(matches!(theirs.cause, Cause::Stale { .. }));
        }
        println!(
            "list, proved by a quorum: unknown every time, {behind} times because the copy was from before the barrier"
        );
        assert!(behind > 0, "the others never had a barrier for it to be behind of");
        parting.heal(parted.new).await;
        let proved = definite(brokers, async || {
            let by = brokers.env.now() + LISTED_WITHIN;
            let barrier = parting.alone.barrier(by).await?;
            parting.alone.list(&filter, &Certified::Quorum(barrier), by).await
        })
        .await;
        assert_eq!(proved.entries[0].1.revision, parted.new, "healed, it proves the new value");
    });
}
