//! Opening buckets: adopted as found, created when missing, refused when short of copies.

use std::time::Duration;

use coordproto::key::KEY_BYTES_MAX;
use coordproto::slot::{DUTIES, DUTY_TTL_MAX, LEASES, Retention, SLOTS, Slot};
use engine::lease::{Config, Leases, Refusal};
use engine::slots::Settings;
use engine::slots::fires::{Fire, Fires};
use engine::slots::shared::Shared;
use engine::store::counting::Counting;
use engine::store::{Bucket, BucketSpec, Expect, NAME_BYTES_MAX, OpenError, Put, Store, Write};
use jiff::Timestamp;

use crate::{Fixture, held, list, refused, resource, terms};

/// The age that the first node asked for is in force for every node after it, and what they claim lasts that long.
pub async fn the_first_nodes_ttl_is_in_force<S: Store>(t: Fixture<S>) {
    let first = t.leases_of(Duration::from_secs(45)).await;
    let second = t.leases_of(Duration::from_secs(10)).await;
    assert_eq!(second.lease_ttl(), Duration::from_secs(45));
    held(&second, &terms(&second, "seat:a", "n2:1")).await;
    let view = first.get(&resource("seat:a")).await.unwrap().expect("held");
    let lasts = view.deadline.duration_since(view.acquired_at.expect("a tenure has a beginning"));
    assert!(lasts.as_secs() > 40, "{lasts:?}");
}

/// An age need not be a whole number of milliseconds, and a TTL is one: what is in force can be claimed with.
pub async fn the_ttl_in_force_can_be_asked_for<S: Store>(t: Fixture<S>) {
    let leases = t.leases_of(Duration::from_micros(45_000_300)).await;
    assert_eq!(leases.lease_ttl(), Duration::from_secs(45));
    held(&leases, &terms(&leases, "seat:a", "n1:1")).await;
    let peer = refused(&leases, &terms(&leases, "seat:a", "n2:1")).await;
    assert_eq!(peer, Refusal::Held { by: "n1:1".into(), epoch: Some(1) });
}

/// A fleet short of copies does not start, and both counts are named; one with more passes.
pub async fn a_bucket_short_of_copies_is_refused<S: Store>(t: Fixture<S>) {
    let open = async |replicas, prefix: &str| {
        let config = Config { replicas, prefix: format!("{}_{prefix}", t.prefix), ..t.config() };
        Leases::open(t.env.clone(), &t.store, &config).await.map(drop)
    };
    open(1, "one").await.unwrap();
    let short = open(3, "one").await.unwrap_err();
    let OpenError::Replicas { bucket, have, want } = &short else { panic!("{short}") };
    assert_eq!((*have, *want), (1, 3));
    assert!(bucket.starts_with(&t.prefix), "{short}");
    assert!(short.to_string().contains("1 replica(s)") && short.to_string().contains("configured for 3"), "{short}");
    open(t.replicas, "more").await.unwrap();
    open(1, "more").await.unwrap();
}

/// The duties' age is raised to three hours, and never lowered.
pub async fn the_duties_age_is_only_raised<S: Store>(t: Fixture<S>) {
    for (prefix, found, want) in
        [("short", DUTY_TTL_MAX / 3, DUTY_TTL_MAX), ("long", DUTY_TTL_MAX * 2, DUTY_TTL_MAX * 2)]
    {
        let config = Config { prefix: format!("{}_{prefix}", t.prefix), ..t.config() };
        let spec = BucketSpec::of(&DUTIES, &config.prefix, config.lease_ttl, config.replicas);
        t.store.open(&BucketSpec { age: Some(found), raise_age: false, ..spec.clone() }).await.unwrap();
        t.leases_with(config).await;
        let bucket = t.store.open(&BucketSpec { age: Some(found), raise_age: false, ..spec }).await.unwrap();
        assert_eq!(bucket.age(), Some(want), "{prefix}");
    }
}

/// What no broker can keep is refused before one is asked.
pub async fn an_impossible_retention_is_refused_before_anything_is_asked<S: Store>(t: Fixture<S>) {
    let counting = Counting::new(t.store.clone());
    for (bad, rule) in [
        (Config { lease_ttl: Duration::from_millis(99), ..t.config() }, "at least 100ms"),
        (Config { replicas: 2, ..t.config() }, "1, 3 or 5"),
        (Config { replicas: 0, ..t.config() }, "1, 3 or 5"),
        (Config { prefix: "a b".into(), ..t.config() }, "A-Z a-z 0-9 _ -"),
        (Config { prefix: "x".repeat(NAME_BYTES_MAX - 6), ..t.config() }, "at most 252"),
    ] {
        let error = Leases::open(t.env.clone(), &counting, &bad).await.map(drop).unwrap_err();
        assert!(matches!(error, OpenError::BadArgument(_)) && error.to_string().contains(rule), "{error}");
    }
    assert_eq!(counting.take().total(), 0);
    // The longest name is one that the broker takes.
    let fill = NAME_BYTES_MAX - t.prefix.len() - 1;
    let longest = BucketSpec {
        name: format!("{}_{}", t.prefix, "x".repeat(fill)),
        age: None,
        raise_age: false,
        replicas: t.replicas,
    };
    let bucket = t.store.open(&longest).await.unwrap();
    let key = resource(&format!("seat:{}", "k".repeat(KEY_BYTES_MAX - "seat.".len()))).key().clone();
    assert!(matches!(bucket.put(&key, Write::Value("v".into()), Expect::At(0)).await.unwrap(), Put::Stored(_)));
    assert_eq!(list(&bucket, "seat").await.unwrap().entries.len(), 1, "with the longest key in it");
}

/// One call opens every bucket of the table. The next node, however it is configured, adopts them all, and the families of
/// both stand on the same records.
pub async fn every_bucket_of_the_table_is_opened_and_adopted<S: Store>(t: Fixture<S>) {
    let ours = t.settings();
    let retention = Retention {
        lease_ttl: Duration::from_secs(10),
        rate_window: Duration::from_secs(60),
        reconcile_interval: Duration::from_secs(1),
    };
    let theirs = Settings { retention, ..t.settings() };
    let first = Shared::open(&t.env, &t.store, &ours).await.unwrap();
    let second = Shared::open(&t.env, &t.store, &theirs).await.unwrap();
    for shared in [&first, &second] {
        assert!(shared.opened().iter().map(|(slot, _)| *slot).eq(SLOTS));
        for (slot, bucket) in shared.opened() {
            assert_eq!(bucket.name(), format!("{}_{}", t.prefix, slot.name));
            assert_eq!(bucket.age(), slot.age.of(&ours.retention), "{}", slot.name);
        }
    }
    let (a, b) = (Fires::open(&first, &ours).await.unwrap(), Fires::open(&second, &theirs).await.unwrap());
    let at = Timestamp::UNIX_EPOCH;
    assert_eq!(
        (a.claim_fire("x", at).await.unwrap(), b.claim_fire("x", at).await.unwrap()),
        (Fire::Claimed, Fire::Taken)
    );
    let config = |lease_ttl| Config { lease_ttl, ..t.config() };
    let leases = t.leases_on(&first, config(ours.retention.lease_ttl)).await;
    held(&leases, &terms(&leases, "seat:a", "n1:1")).await;
    let leases = t.leases_on(&second, config(retention.lease_ttl)).await;
    assert_eq!(leases.lease_ttl(), ours.retention.lease_ttl, "what is in force is the first node's");
    refused(&leases, &terms(&leases, "seat:a", "n2:1")).await;
}

/// A fleet short of copies does not boot, and the error names every bucket that is short, with both counts.
pub async fn every_bucket_short_of_copies_is_named<S: Store>(t: Fixture<S>) {
    let copies = |replicas| Settings { replicas, ..t.settings() };
    Shared::open(&t.env, &t.store, &copies(1)).await.unwrap();
    let error = Shared::open(&t.env, &t.store, &copies(3)).await.map(drop).unwrap_err();
    assert!(!error.is_retriable(), "{error}");
    let short = |slot: &Slot| OpenError::Replicas { bucket: format!("{}_{}", t.prefix, slot.name), have: 1, want: 3 };
    assert_eq!(error.failed, SLOTS.map(short));
    assert!(error.to_string().starts_with("21 of 21 buckets cannot be used; bucket "), "{error}");
    Shared::open(&t.env, &t.store, &copies(1)).await.expect("nothing was done to them");
}

/// Opening at once from many nodes ends well for all of them, on one set of buckets.
pub async fn many_nodes_open_at_once<S: Store>(t: Fixture<S>) {
    let all = futures_util::future::join_all((0..8).map(|_| t.leases())).await;
    held(&all[0], &terms(&all[0], "seat:a", "n1:1")).await;
    for leases in &all {
        assert_eq!(leases.get(&resource("seat:a")).await.unwrap().expect("held").owner, "n1:1");
    }
    let spec = BucketSpec::of(&LEASES, &t.prefix, Duration::from_secs(1), t.replicas);
    assert_eq!(t.store.open(&spec).await.unwrap().age(), Some(Duration::from_secs(45)));
}
