//! What listings leave behind: nothing. And what a watch tells when the leader changes: everything, or that it ended.

use std::time::Duration;

use coordproto::answer::Unknown;
use coordproto::slot::LEASES;
use engine::env::Elapsed;
use engine::lease::Claim;
use engine::store::{BucketSpec, Certified, Store};
use futures_util::StreamExt;
use futures_util::stream;
use tests::{class, eventually, held, terms, watch};

use crate::{beside_others, claimed, definite};

const STREAM: &str = "KV_listed_leases";
/// How long a watch may take to deliver what happened, or to say that it cannot.
const NEWS_WITHIN: Duration = Duration::from_secs(10);

#[test]
fn listings_finished_or_cancelled_leave_no_consumer_behind() {
    beside_others(async |brokers| {
        let store = brokers.store().await;
        let leases = brokers.leases(&store, &brokers.config("listed", Duration::from_secs(60))).await;
        for i in 0..20 {
            held(&leases, &terms(&leases, &format!("seat:s{i}"), "n1:1")).await;
        }
        let (env, seats) = (&brokers.env, class("seat"));
        let one = env.now();
        leases.list(&seats, &Certified::Leader).await.expect("nothing is failing");
        let one = env.now().since(one);
        let lists = stream::iter(0..330).map(async |n| {
            // Every eleventh is dropped at a random moment of it.
            let cut = if n % 11 == 0 { env.jitter(one * 2) } else { Duration::from_secs(60) };
            let listed = env.within(env.now() + cut, leases.list(&seats, &Certified::Leader)).await;
            listed.map(|listed| listed.expect("nothing is failing").len())
        });
        let done: Vec<Result<usize, Elapsed>> = lists.buffer_unordered(4).collect().await;
        assert!(done.iter().flatten().all(|listed| *listed == 20));
        let cut = done.iter().filter(|done| done.is_err()).count();
        let began = env.now();
        eventually(env, "no consumer is left behind", || async {
            (brokers.consumers(STREAM).await? == 0).then_some(())
        })
        .await;
        println!("{cut} of {} were cut; no consumer left after {:?}", done.len(), env.now().since(began));
        assert!((1..=30).contains(&cut));
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
