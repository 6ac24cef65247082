//! Buckets that were made a moment ago, and all of a fleet's at once.

use bytes::Bytes;
use coordproto::slot::SLOTS;
use engine::jetstream::Meter;
use engine::slots::shared::Shared;
use engine::store::{Bucket, BucketSpec, Expect, Put, Store, Write};
use futures_util::future::join_all;
use tests::{eventually, resource};

use crate::{alone, beside_others};

/// Nodes at every member open a fresh bucket at once, and write with the next request: the members that do not lead it have
/// heard of it by then.
#[test]
fn a_bucket_takes_writes_as_soon_as_it_is_open() {
    beside_others(async |brokers| {
        let stores = join_all(brokers.members().iter().map(|member| brokers.store_at(member))).await;
        for round in 0..8 {
            let spec = BucketSpec { name: format!("fresh{round}"), age: None, raise_age: false, replicas: 3 };
            let nodes = stores.iter().enumerate().map(async |(n, store)| {
                let bucket = store.open(&spec).await.expect("the bucket opens");
                let key = resource(&format!("seat:n{n}")).key().clone();
                let put = bucket.put(&key, Write::Value(Bytes::from_static(b"1")), Expect::At(0)).await;
                assert!(matches!(put.expect("a definite answer"), Put::Stored(_)));
            });
            join_all(nodes).await;
            assert!(stores[0].delete(&spec.name).await.expect("nothing is failing"));
        }
    });
}

/// Three nodes boot at once on brokers that have nothing yet, and then each again. Two requests open a bucket that stands: a
/// look at it, and a write that shows that writes reach it. How long it takes is printed, for whoever measures.
#[test]
fn a_fleet_opens_every_bucket_at_boot() {
    alone(3, async |brokers| {
        let stores = join_all(brokers.members().iter().map(|member| brokers.store_at(member))).await;
        let settings = brokers.settings("fleet");
        let boot = async |store| {
            let began = brokers.env.now();
            let (shared, cost) = Meter::measure(Shared::open(&brokers.env, store, &settings)).await;
            let shared = shared.expect("every bucket opens");
            let took = brokers.env.now().since(began);
            println!(
                "{} buckets in {took:?}, {} requests in {} rounds",
                shared.opened().len(),
                cost.requests,
                cost.rounds
            );
            cost.requests
        };
        println!("fresh, three nodes at once:");
        join_all(stores.iter().map(boot)).await;
        println!("that stand:");
        for store in &stores {
            // A bucket whose answer is late is asked about once more.
            let want = 2 * SLOTS.len() as u64;
            eventually(&brokers.env, "each bucket is opened with two requests", || async {
                let requests = boot(store).await;
                assert!(requests >= want, "{requests} requests");
                (requests == want).then_some(())
            })
            .await;
        }
    });
}
