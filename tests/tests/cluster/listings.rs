//! What listings leave behind: nothing.

use std::time::Duration;

use engine::env::Elapsed;
use futures_util::StreamExt;
use futures_util::stream;
use tests::{class, eventually, held, terms};

use crate::beside_others;

const STREAM: &str = "KV_listed_leases";

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
        leases.list(&seats).await.expect("nothing is failing");
        let one = env.now().since(one);
        let lists = stream::iter(0..330).map(async |n| {
            // Every eleventh is dropped at a random moment of it.
            let cut = if n % 11 == 0 { env.jitter(one * 2) } else { Duration::from_secs(60) };
            let listed = env.within(env.now() + cut, leases.list(&seats)).await;
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
