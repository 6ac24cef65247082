//! Classes as large as a listing certifies, and one larger; and values, of a broker that takes less than others.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Landing};
use coordproto::listing::KEYS_MAX;
use engine::broker::{Settings, SyncInterval};
use engine::lease::Terms;
use engine::store::nats::NatsBucket;
use engine::store::{Bucket, BucketSpec, Certified, Expect, Put, Store, VALUE_BYTES_MAX, Write};
use futures_util::stream::{self, StreamExt};
use tests::{Brokers, Fixture, cases, class, eventually, held, resource, terms};

use crate::{alone, alone_with};

/// How long a listing may take, whatever its size.
const WITHIN: Duration = Duration::from_secs(60);

/// One broker that is written to faster than it syncs: what is measured here are listings.
fn one_broker() -> Settings {
    Settings { sync: SyncInterval::Every(Duration::from_secs(60)), ..Settings::new(1) }
}

async fn opened(brokers: &Brokers) -> NatsBucket {
    let spec = BucketSpec { name: "sizes".into(), age: None, raise_age: false, replicas: 1 };
    brokers.store().await.open(&spec).await.expect("the bucket opens")
}

async fn fill(bucket: &NatsBucket, seats: std::ops::Range<u64>, value: &Bytes) {
    let writes = stream::iter(seats).map(async |i| {
        let key = resource(&format!("seat:s{i:06}")).key().clone();
        let put = bucket.put(&key, Write::Value(value.clone()), Expect::Any).await.expect("a definite answer");
        assert!(matches!(put, Put::Stored(_)));
    });
    // No more than the broker keeps for one connection.
    let at_once = (32 << 20) / (value.len() + 1024);
    writes.buffer_unordered(at_once.clamp(8, 1024)).for_each(async |()| ()).await;
}

async fn strategies(bucket: &NatsBucket) -> [Certified; 2] {
    [Certified::Leader, Certified::Quorum(bucket.barrier(bucket.deadline()).await.expect("a definite answer"))]
}

#[test]
fn a_hundred_thousand_keys_are_listed_and_one_more_is_refused() {
    alone_with(one_broker(), async |brokers| {
        let (bucket, env, value) = (opened(brokers).await, &brokers.env, Bytes::from(vec![b'v'; 200]));
        let mut written = 0;
        for n in [30_001, KEYS_MAX, KEYS_MAX + 1] {
            let began = env.now();
            fill(&bucket, written..n, &value).await;
            println!("{} keys written in {:?}", n - written, env.now().since(began));
            written = n;
            for certified in strategies(&bucket).await {
                let began = env.now();
                let listed = bucket.list(&class("seat").filter(), &certified, began + WITHIN).await;
                let strategy = if certified == Certified::Leader { "leader" } else { "quorum" };
                println!("{n} keys, {strategy}: {:?}", env.now().since(began));
                if n > KEYS_MAX {
                    let refused = listed.expect_err("more than is certified");
                    assert_eq!(refused.cause, Cause::TooMany { keys: n, most: KEYS_MAX });
                    assert_eq!((refused.op, &*refused.resource), ("list", "sizes seat.>"));
                    continue;
                }
                let listing = listed.unwrap_or_else(|unknown| panic!("{n} keys, {strategy}: {unknown}"));
                assert_eq!(listing.entries.len() as u64, n, "{strategy}");
                for (i, (key, version)) in listing.entries.iter().enumerate() {
                    assert_eq!(key.as_str(), format!("seat.s{i:06}"), "{strategy}");
                    assert_eq!(version.value.as_ref(), Some(&value), "{strategy}");
                }
            }
        }
    });
}

/// More than 64 MB of values, which is where a member ends an answer.
#[test]
fn values_that_one_answer_does_not_carry_are_listed() {
    alone_with(one_broker(), async |brokers| {
        let (bucket, env) = (opened(brokers).await, &brokers.env);
        let value = Bytes::from(vec![b'v'; VALUE_BYTES_MAX]);
        let n = 80;
        fill(&bucket, 0..n, &value).await;
        for certified in strategies(&bucket).await {
            let began = env.now();
            let listing = bucket.list(&class("seat").filter(), &certified, began + WITHIN).await;
            let listing = listing.unwrap_or_else(|unknown| panic!("{certified:?}: {unknown}"));
            println!("{n} values of {VALUE_BYTES_MAX} bytes, {certified:?}: {:?}", env.now().since(began));
            assert_eq!(listing.entries.len() as u64, n);
            assert!(listing.entries.iter().all(|(_, version)| version.value.as_ref() == Some(&value)));
        }
    });
}

/// A broker that an operator has configured for messages of 64 KiB, and told so while it ran.
#[test]
fn what_a_broker_does_not_take_is_refused_by_record_size_and_limit() {
    const MAX_PAYLOAD: usize = 1 << 16;
    alone(1, async |brokers| {
        let member = &brokers.members()[0];
        let config = brokers.cluster.directory().join(member.name()).join("nats.conf");
        // A lease whose record the broker takes for now.
        let leases = brokers.leases(&brokers.store().await, &brokers.config("payload", Duration::from_secs(600))).await;
        let ask = Terms { meta: Some("x".repeat(2 * MAX_PAYLOAD).into()), ..terms(&leases, "node:n1", "n1:1") };
        let lease = held(&leases, &ask).await;
        let mut config = OpenOptions::new().append(true).open(config).expect("the member's configuration");
        writeln!(config, "max_payload: {MAX_PAYLOAD}").expect("appended");
        let pid = member.pid().expect("it runs").to_string();
        assert!(Command::new("kill").args(["-HUP", &pid]).status().expect("kill runs").success());
        let store = eventually(&brokers.env, "the broker takes less", || async {
            let store = brokers.store().await;
            (store.jetstream().max_payload() == MAX_PAYLOAD).then_some(store)
        })
        .await;
        let fixture = |prefix: &str| {
            let (env, store, prefix) = (brokers.env.clone(), store.clone(), prefix.to_owned());
            Fixture { env, store, prefix, replicas: 1, leaps: false }
        };
        let spec = BucketSpec { name: "payload".into(), age: None, raise_age: false, replicas: 1 };
        assert_eq!(store.open(&spec).await.expect("the bucket opens").value_bytes_max(), 65_280);
        Box::pin(cases::values::what_is_too_large_is_refused_by_record_size_and_limit(fixture("payload_above"))).await;
        Box::pin(cases::values::a_value_at_the_limit_is_whole(fixture("payload_at"))).await;
        assert_eq!(store.jetstream().stats().disconnects, 0, "nobody's connection was ended");
        // One from before is ended by the first message that is too large, and then knows.
        let told = eventually(&brokers.env, "the holder is told", || async {
            let told = leases.renew(&mut lease.clone()).await.expect_err("the broker takes it no more");
            matches!(told.cause, Cause::TooLarge(_)).then_some(told)
        })
        .await;
        assert_eq!((told.op, &*told.resource, told.landing), ("renew", "node:n1", Landing::Settled), "{told}");
        assert!(told.to_string().contains(" bytes for node.n1 in payload_leases"), "{told}");
        // What a release leaves keeps what was said of the holder, so that it is as large.
        let told = leases.release(&lease).await.expect_err("nor that");
        assert!(matches!(told.cause, Cause::TooLarge(_)), "{told}");
    });
}
