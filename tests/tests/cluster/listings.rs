//! Listings and watches on three members: what nobody here wrote, and what a watch tells when the leader changes.

use std::cell::Cell;
use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::Unknown;
use coordproto::api;
use coordproto::key::{Filter, Key};
use coordproto::listing::prove;
use coordproto::slot::LEASES;
use engine::broker::Member;
use engine::jetstream::Write as Foreign;
use engine::lease::Claim;
use engine::store::nats::NatsBucket;
use engine::store::{Bucket, BucketSpec, Certified, Copy, Expect, Put, Store, Write};
use futures_util::future::{join, join_all};
use futures_util::stream::{self, StreamExt};
use tests::{class, eventually, resource, terms, watch};

use crate::{alone, alone_with_links, beside_others, claimed, definite};

/// How long a watch may take to deliver what happened, or to say that it cannot.
const NEWS_WITHIN: Duration = Duration::from_secs(30);

/// Subjects under a bucket that no name escapes to are nobody's records: no listing shows them, and none fails of them.
#[test]
fn what_nobody_here_writes_is_not_listed() {
    beside_others(async |brokers| {
        let store = brokers.store().await;
        let spec = BucketSpec { name: "foreign".into(), age: None, raise_age: false, replicas: 3 };
        let bucket = store.open(&spec).await.expect("it opens");
        let own = ["seat:a", "seat:team.lead", "node:n1"].map(|name| resource(name).key().clone());
        for key in &own {
            let put = bucket.put(key, Write::Value("v".into()), Expect::At(0)).await.expect("a definite answer");
            assert!(matches!(put, Put::Stored(_)));
        }
        for raw in ["seat.a=b", "seat.=", "seat.x=zz.y", "seat.b/c", "==", "other.=41="] {
            let by = brokers.env.now() + Duration::from_secs(5);
            let put = store.jetstream().put(&format!("$KV.foreign.{raw}"), Foreign::at(0), "v".into(), by).await;
            assert!(matches!(put.expect("a definite answer"), api::Put::Stored { .. }), "{raw}");
        }
        let barrier = bucket.barrier(bucket.deadline()).await.expect("a definite answer");
        for certified in [Certified::Leader, Certified::Quorum(barrier)] {
            for (filter, want) in [(class("seat").filter(), &own[..2]), (Filter::every(), &own[..])] {
                let listing = bucket.list(&filter, &certified, bucket.deadline()).await.expect("nothing is failing");
                let listed: HashSet<Key> = listing.entries.into_iter().map(|(key, _)| key).collect();
                assert_eq!(listed, want.iter().cloned().collect(), "{filter} {certified:?}");
            }
        }
    });
}

/// For ten seconds after a stream was made or its member started, the member that was to lead it answers for it whether it
/// leads or not, from its own copy and in the leader's name. Here it has been frozen while the others went on, and then the
/// leader has died: what it names is short, and nobody contradicts it until there is a leader again.
#[test]
fn a_member_that_speaks_in_the_leaders_name_certifies_no_listing() {
    alone(3, async |brokers| {
        let env = &brokers.env;
        let opened = async |member: &Member, spec: &BucketSpec| {
            brokers.store_at(member).await.open(spec).await.expect("the bucket opens")
        };
        let put = async |bucket: &NatsBucket, name: &str| {
            let put = bucket.put(resource(name).key(), Write::Value("v".into()), Expect::Any).await;
            assert!(matches!(put.expect("a definite answer"), Put::Stored(_)));
        };
        let mut young = 0;
        // Which member that is, is drawn for every stream: a stream of which nobody speaks beside the leader is no use.
        for round in 0..2 {
            let (spec, stream, beside) = loop {
                young += 1;
                assert!(young < 100, "nobody speaks in the leader's name");
                let spec = BucketSpec { name: format!("young{young}"), age: None, raise_age: false, replicas: 3 };
                let stream = format!("KV_{}", spec.name);
                let all = join_all(brokers.members().iter().map(|member| opened(member, &spec))).await;
                put(&all[0], "seat:a").await;
                let first = brokers.leader(&stream).await.name();
                eventually(env, "another leads", || async {
                    brokers.step_down(&stream).await;
                    (brokers.leader(&stream).await.name() != first).then_some(())
                })
                .await;
                if let Some(beside) = brokers.answering_beside_the_leader(&stream).await.pop() {
                    break (spec, stream, beside);
                }
            };
            let leader = brokers.leader(&stream).await;
            let third = brokers.members().iter().find(|m| m.name() != beside.name() && m.name() != leader.name());
            let third = third.expect("another speaks in the leader's name");
            let (reader, writer) = (opened(third, &spec).await, opened(third, &spec).await);
            beside.pause().await.expect("paused");
            for name in ["seat:b", "seat:c"] {
                put(&writer, name).await;
            }
            leader.kill().await.expect("killed");
            beside.resume().expect("resumed");
            let (mut whole, mut unknown) = (0, 0);
            let until = env.now() + Duration::from_secs(4);
            while env.now() < until {
                let by = env.now() + Duration::from_millis(1_500);
                match reader.list(&class("seat").filter(), &Certified::Leader, by).await {
                    Err(_) => unknown += 1,
                    Ok(listing) => {
                        let listed: Vec<&str> = listing.entries.iter().map(|(key, _)| key.as_str()).collect();
                        assert_eq!(listed, ["seat.a", "seat.b", "seat.c"], "round {round}, after {unknown} unknown");
                        whole += 1;
                    }
                }
            }
            println!("round {round}, bucket {young}: {whole} whole, {unknown} unknown");
            brokers.start_the_rest().await;
        }
    });
}

/// A member that was away for longer than the leader keeps its log catches up from a summary of the stream: it drops at once
/// what was overwritten meanwhile, and then gets what stands there instead, one record after another. In between it answers,
/// and what it holds has the barrier in it and none of the keys.
#[test]
fn a_member_that_catches_up_hides_no_key() {
    const SEATS: usize = 50;
    alone_with_links(3, async |brokers, links| {
        let env = &brokers.env;
        let spec = BucketSpec { name: "caught".into(), age: None, raise_age: false, replicas: 3 };
        let store = brokers.store().await;
        store.open(&spec).await.expect("the bucket opens");
        let leader = brokers.leader("KV_caught").await;
        let away = brokers.members().iter().find(|member| member.name() != leader.name()).expect("three members");
        let opened = async |member| brokers.store_at(member).await.open(&spec).await.expect("the bucket opens");
        let (near, writer) = (opened(away).await, opened(leader).await);
        // Noise, since the log is compressed: 8 MiB of it, and the leader sums up and forgets. Some of it comes to the member
        // before the seats, so that it takes its time; and some is written after them, so that the summary has them in it.
        let noise: Bytes = (0..25_000).flat_map(|_| env.random().to_le_bytes()).collect();
        let put = async |class: &str, n: usize, value: Bytes| {
            let name = resource(&format!("{class}:{n:03}"));
            let put = writer.put(name.key(), Write::Value(value), Expect::Any).await;
            assert!(matches!(put.expect("a definite answer"), Put::Stored(_)));
        };
        let overwrite = async || {
            for (class, keys, value) in [("node", 100, &noise), ("seat", SEATS, &"v".into()), ("worker", 100, &noise)] {
                let puts = (0..keys).map(|n| put(class, n, value.clone()));
                stream::iter(puts).buffer_unordered(32).for_each(|()| async {}).await;
            }
        };
        overwrite().await;
        let [hidden, listed, unknown] = [const { Cell::new(0) }; 3];
        let count = |of: &Cell<usize>| of.set(of.get() + 1);
        let mut round = 0;
        while hidden.get() == 0 {
            round += 1;
            assert!(round < 10, "nobody has met the member while it was catching up");
            brokers.lead("KV_caught", leader).await;
            let barrier = writer.barrier(writer.deadline()).await.expect("a definite answer");
            eventually(env, "the member holds the barrier", || async {
                let Ok(Copy::Whole(held)) = near.copy(&[barrier.key.as_str()], near.deadline()).await else {
                    return None;
                };
                held.entries.iter().any(|(_, version)| version.revision >= barrier.revision).then_some(())
            })
            .await;
            links.sever(&[away]);
            overwrite().await;
            let newest = writer.standing(writer.deadline()).await.expect("a definite answer").last_seq;
            links.heal();
            let (seats, quorum) = (class("seat").filter(), Certified::Quorum(barrier.clone()));
            eventually(env, "all members have caught up", || async {
                let names = [seats.as_str(), barrier.key.as_str()];
                let copies = join_all((0..16).map(|_| near.copy(&names, near.deadline())));
                let lists = join_all((0..4).map(|_| near.list(&seats, &quorum, near.deadline())));
                let (copies, lists) = join(copies, lists).await;
                let mut behind = false;
                for copy in copies {
                    let Ok(Copy::Whole(held)) = copy else { return None };
                    let proved = prove(&held.entries, &barrier.key, barrier.revision).is_ok();
                    behind |= held.last_seq.is_none_or(|last| last < newest);
                    if proved && held.entries.len() <= SEATS {
                        count(&hidden);
                    }
                }
                for list in lists {
                    match list {
                        Ok(listing) => {
                            assert_eq!(listing.entries.len(), SEATS, "round {round}");
                            count(&listed);
                        }
                        Err(_) => count(&unknown),
                    }
                }
                (!behind).then_some(())
            })
            .await;
        }
        let [hidden, listed, unknown] = [hidden, listed, unknown].map(|count| count.get());
        println!("{hidden} copies without keys in {round} rounds; {listed} listings whole, {unknown} unknown");
        assert!(listed > unknown);
    });
}

/// A watch through changes of the stream's leader, looked at all along: it delivers what was written since, or ends and
/// begins anew with everything. It is never silent.
#[test]
fn a_watch_goes_on_or_ends_when_the_leader_changes() {
    beside_others(async |brokers| {
        let ttl = Duration::from_secs(60);
        let config = brokers.config("watched", ttl);
        let store = brokers.store().await;
        let leases = brokers.leases(&store, &config).await;
        let bucket = store.open(&BucketSpec::of(&LEASES, "watched", ttl, config.replicas)).await.expect("it opens");
        let opened = async || definite(brokers, async || watch(&bucket, "seat").await).await;
        let mut open = opened().await;
        let (mut delivered, mut ended, mut changed) = (0, 0, 0);
        for round in 1..=8 {
            let before = brokers.leader("KV_watched_leases").await.name();
            eventually(&brokers.env, "the leader steps down", || async {
                brokers.step_down("KV_watched_leases").await.then_some(())
            })
            .await;
            let ask = terms(&leases, &format!("seat:s{round}"), "n1:1");
            let Claim::Held(lease) = claimed(brokers, &leases, &ask).await else { panic!("nobody else claims it") };
            let news = async {
                while open.changes.next().await?.0 != *lease.resource().key() {}
                Ok::<_, Unknown>(())
            };
            match brokers.env.within(brokers.env.now() + NEWS_WITHIN, news).await.expect("a watch is never silent") {
                Ok(()) => delivered += 1,
                Err(unknown) => {
                    println!("round {round}: {unknown}");
                    ended += 1;
                    open = opened().await;
                    assert_eq!(open.listing.entries.len(), round, "opened again, it begins with everything");
                }
            }
            changed += u32::from(brokers.leader("KV_watched_leases").await.name() != before);
        }
        println!("{changed} changes of leader: {delivered} times it went on, {ended} times it ended");
        assert!(changed > 0, "no leader changed");
        drop(open);
        eventually(&brokers.env, "no consumer is left behind", || async {
            (brokers.consumers("KV_watched_leases").await? == 0).then_some(())
        })
        .await;
    });
}
