//! What is told to whoever follows a bucket while members die, restart and hand over: every change, or that it ended and then
//! everything. And what nobody is told: that a lease has lapsed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Error};
use coordproto::key::Key;
use coordproto::record::lease::LeaseRecord;
use coordproto::record::seat_pause::{self, SeatPauseRecord};
use coordproto::slot::LEASES;
use engine::broker::Member;
use engine::slots::pauses::{Pause, PausedSeat, SeatPauses};
use engine::store::follow::{Follow, News};
use engine::store::nats::{Nats, NatsBucket};
use engine::store::{BucketSpec, Certified, Store};
use futures_util::future::join_all;
use tests::{Brokers, class, eventually, held, terms};

use crate::{alone, beside_others, definite, still_held};

/// How long after a pause everybody who follows has heard of it.
const NEWS_WITHIN: Duration = Duration::from_secs(30);

/// How much later than its TTL a lapsed lease may still be listed: the broker's own delay, and a loaded machine's.
const SLACK: Duration = Duration::from_secs(3);

/// A node that follows: what it was told, and so takes to be paused.
struct Follower {
    follow: Follow<NatsBucket, PausedSeat>,
    paused: BTreeSet<String>,
}

impl Follower {
    /// Begins, and looks until it was told everything.
    async fn begun(brokers: &Brokers, pauses: &SeatPauses<Nats>) -> Follower {
        let mut follower = Follower { follow: pauses.follow(), paused: BTreeSet::new() };
        let all = async { while !matches!(follower.look().await, News::All { .. }) {} };
        brokers.env.within(brokers.env.now() + NEWS_WITHIN * 3, all).await.expect("it begins");
        follower
    }

    /// Does what the next news say.
    async fn look(&mut self) -> News<PausedSeat> {
        let news = self.follow.next().await;
        match &news {
            News::All { entries, .. } => self.paused = entries.iter().map(|(_, seat)| seat.handle.clone()).collect(),
            News::Changed(_, Some(seat)) => drop(self.paused.insert(seat.handle.clone())),
            News::Changed(key, None) => drop(self.paused.remove(&seat_pause::handle(key).expect("a seat's"))),
            News::Ended(_) => {}
        }
        news
    }

    /// Looks until it takes a seat to be paused; answers how it came to.
    async fn heard(&mut self, brokers: &Brokers, handle: &str) -> String {
        let (mut ends, mut how) = (Vec::new(), "before");
        let news = async {
            while !self.paused.contains(handle) {
                how = match self.look().await {
                    News::Changed(..) => "as a change",
                    News::All { .. } => "anew",
                    News::Ended(unknown) => {
                        ends.push(unknown.to_string());
                        "never"
                    }
                };
            }
        };
        let told = brokers.env.within(brokers.env.now() + NEWS_WITHIN, news).await;
        assert!(told.is_ok(), "{handle}: silence after {ends:?}");
        format!("{how} after {ends:?}")
    }

    /// Pauses a seat and waits until this one has heard of it, and with it of every other that is paused.
    async fn hears_of_a_pause(&mut self, brokers: &Brokers, pauses: &SeatPauses<Nats>, handle: &str) {
        paused(brokers, pauses, handle).await;
        let since = brokers.env.now();
        let how = self.heard(brokers, handle).await;
        println!("{handle}: told {:?} after the pause, {how}", brokers.env.now().since(since));
        self.has_all(brokers, pauses).await;
    }

    async fn has_all(&self, brokers: &Brokers, pauses: &SeatPauses<Nats>) {
        let listed = Box::pin(definite(brokers, || pauses.list())).await;
        assert!(self.paused.iter().eq(listed.iter().map(|seat| &seat.handle)), "{:?}: {listed:?}", self.paused);
    }
}

async fn pauses(brokers: &Brokers, store: &Nats, prefix: &str) -> SeatPauses<Nats> {
    SeatPauses::open(store, &brokers.settings(prefix)).await.expect("the bucket opens")
}

/// Pauses a seat that nobody else pauses. A pause whose answer was lost is found when it is asked for again.
async fn paused(brokers: &Brokers, pauses: &SeatPauses<Nats>, handle: &str) {
    let at = brokers.env.wall();
    let record = SeatPauseRecord { by: "ada".to_owned(), why: String::new(), at, turn_stopped: false };
    let told = definite(brokers, async || match pauses.pause(handle, &record).await {
        Ok(told) => Ok(told),
        Err(Error::Unknown(unknown)) => Err(unknown),
        Err(Error::BadArgument(error)) => panic!("{error}"),
    });
    match told.await {
        Pause::Paused(_) => {}
        Pause::AlreadyPaused(seat) => assert_eq!((&*seat.handle, &seat.record), (handle, &record)),
    }
}

#[test]
fn a_pause_after_a_restart_is_told_to_whoever_did_not_look_meanwhile() {
    alone(1, async |brokers| {
        let p = pauses(brokers, &brokers.store().await, "restarted").await;
        let mut follower = Follower::begun(brokers, &p).await;
        for (handle, orderly) in [("killed", false), ("restarted", true)] {
            let member = &brokers.members()[0];
            if orderly { member.terminate().await } else { member.kill().await }.expect("ended");
            brokers.start_the_rest().await;
            follower.hears_of_a_pause(brokers, &p, handle).await;
        }
    });
}

/// Waits until a stream has no consumer.
async fn no_consumer(brokers: &Brokers, stream: &str) {
    eventually(&brokers.env, "no consumer is left behind", || async {
        (brokers.consumers(stream).await? == 0).then_some(())
    })
    .await;
}

/// A follow over a connection to `home`, whose consumer runs on another member.
async fn apart<'a>(
    brokers: &'a Brokers,
    at_home: &SeatPauses<Nats>,
    home: &Member,
    stream: &str,
) -> (Follower, &'a Member) {
    for _ in 0..20 {
        no_consumer(brokers, stream).await;
        let follower = Follower::begun(brokers, at_home).await;
        let runs = eventually(&brokers.env, "the consumer runs", || brokers.consumer_member(stream)).await;
        if runs.name() != home.name() {
            return (follower, runs);
        }
    }
    panic!("every consumer runs on {}", home.name());
}

/// Nobody looks while a member ends and comes back: the one that the client is connected to, or the one that delivers.
#[test]
fn no_members_restart_makes_a_follow_silent() {
    const STREAM: &str = "KV_apart_positions";
    alone(3, async |brokers| {
        let (p, home) = (pauses(brokers, &brokers.store().await, "apart").await, &brokers.members()[0]);
        let at_home = pauses(brokers, &brokers.store_at(home).await, "apart").await;
        for whose in ["client", "consumer"] {
            for orderly in [false, true] {
                let (mut follower, runs) = apart(brokers, &at_home, home, STREAM).await;
                let name = |what: &str| format!("{whose}-{}-{what}", if orderly { "stopped" } else { "killed" });
                let member = if whose == "client" { home } else { runs };
                if orderly { member.terminate().await } else { member.kill().await }.expect("ended");
                paused(brokers, &p, &name("away")).await;
                brokers.start_the_rest().await;
                follower.hears_of_a_pause(brokers, &p, &name("back")).await;
            }
        }
        no_consumer(brokers, STREAM).await;
    });
}

/// The member that delivers dies and stays away: whoever looks hears of that in seconds, and of every pause.
#[test]
fn a_follow_whose_member_died_goes_on_with_another() {
    const STREAM: &str = "KV_died_positions";
    alone(3, async |brokers| {
        let (p, home) = (pauses(brokers, &brokers.store().await, "died").await, &brokers.members()[0]);
        let at_home = pauses(brokers, &brokers.store_at(home).await, "died").await;
        let (mut follower, runs) = apart(brokers, &at_home, home, STREAM).await;
        runs.kill().await.expect("killed");
        for handle in ["first", "second"] {
            follower.hears_of_a_pause(brokers, &p, handle).await;
        }
        drop(follower);
        brokers.start_the_rest().await;
        no_consumer(brokers, STREAM).await;
    });
}

#[test]
fn twenty_follows_hear_of_every_pause_through_changes_of_leader() {
    const STREAM: &str = "KV_twenty_positions";
    beside_others(async |brokers| {
        let p = pauses(brokers, &brokers.store().await, "twenty").await;
        let mut followers = join_all((0..20).map(|_| Follower::begun(brokers, &p))).await;
        let (mut changed, mut slowest) = (0, Duration::ZERO);
        for round in 0..8 {
            let before = brokers.leader(STREAM).await.name();
            eventually(&brokers.env, "the leader steps down", || async {
                brokers.step_down(STREAM).await.then_some(())
            })
            .await;
            let handle = format!("s{round}");
            paused(brokers, &p, &handle).await;
            let since = brokers.env.now();
            let how = join_all(followers.iter_mut().map(|follower| follower.heard(brokers, &handle))).await;
            slowest = slowest.max(brokers.env.now().since(since));
            let anew = how.iter().filter(|how| how.starts_with("anew")).count();
            println!("{handle}: 20 heard after {:?}, {anew} of them anew", brokers.env.now().since(since));
            changed += u32::from(brokers.leader(STREAM).await.name() != before);
        }
        println!("{changed} changes of leader, the slowest 20 heard within {slowest:?}");
        assert!(changed > 0, "no leader changed");
        for follower in followers {
            follower.has_all(brokers, &p).await;
        }
        // Nor does one that is dropped at any moment of its opening leave anything behind.
        let given_up = (0..20).map(async |_| {
            let cut = brokers.env.now() + brokers.env.jitter(Duration::from_millis(30));
            let mut follow = p.follow();
            brokers.env.within(cut, follow.next()).await.is_err()
        });
        let given_up = join_all(given_up).await.into_iter().filter(|cut| *cut).count();
        println!("{given_up} of 20 were given up while they were opened");
        no_consumer(brokers, STREAM).await;
    });
}

/// Expiry is read, not pushed: a node that only followed would take the dead for alive for ever.
#[test]
fn a_lapsed_lease_is_told_to_nobody_and_is_off_the_list() {
    fn owner(_: &Key, _: u64, value: &Bytes) -> Result<Option<String>, Cause> {
        LeaseRecord::decode(value).map(|record| record.owner)
    }

    beside_others(async |brokers| {
        let ttl = Duration::from_secs(2);
        let config = brokers.config("unpushed", ttl);
        let store = brokers.store().await;
        let leases = brokers.leases(&store, &config).await;
        let bucket = store.open(&BucketSpec::of(&LEASES, "unpushed", ttl, config.replicas)).await.expect("it opens");
        let dead = Box::pin(held(&leases, &terms(&leases, "node:n1", "n1:1"))).await;
        // The broker counts from when it stored it, which is before it said so.
        let lapses = brokers.env.now() + ttl;
        let mut alive = Box::pin(held(&leases, &terms(&leases, "node:n2", "n2:1"))).await;
        let mut follow = Follow::new(bucket, class("node").filter(), owner);
        let News::All { entries, .. } = follow.next().await else { panic!("nothing is failing") };
        let mut copy: BTreeMap<Key, Option<String>> = entries.into_iter().collect();
        let (env, (of_dead, of_alive)) = (&brokers.env, (dead.resource().key(), alive.resource().key().clone()));
        let (mut told, mut off) = (0, None);
        // One TTL of looking goes on once the dead one is off the list.
        while off.is_none_or(|off| env.now().since(off) < ttl) {
            let began = env.now();
            alive = still_held(brokers, &leases, alive).await;
            let asked = env.now();
            let nodes = definite(brokers, async || leases.list(&class("node"), &Certified::Leader).await).await;
            let lists = |owner: &str| nodes.iter().any(|view| view.owner == owner);
            assert!(lists("n2:1") || env.now() >= alive.good_until(), "a node that renews is listed");
            if off.is_none() && !lists("n1:1") {
                off = Some(env.now());
            }
            assert!(!lists("n1:1") || asked <= lapses + SLACK, "still listed");
            // A tick, as far as anything is told meanwhile.
            while let Ok(news) = env.within(began + ttl / 10, follow.next()).await {
                let News::Changed(key, Some(owner)) = news else { panic!("{news:?}") };
                assert_eq!((&key, owner.as_deref()), (&of_alive, Some("n2:1")), "nothing else happened");
                copy.insert(key, owner);
                told += 1;
            }
        }
        let off = off.expect("it is off the list").since(dead.confirmed());
        println!("ttl {ttl:?}: off the list after {off:?}; {told} changes were told, none of the lapsed lease");
        assert!(off >= ttl && told > 0);
        assert!(copy[of_dead].is_some(), "whoever only followed has it still");
    });
}
