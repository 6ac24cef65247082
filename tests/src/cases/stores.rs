//! The store port itself.

use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::Error;
use coordproto::key::Key;
use coordproto::listing::Version;
use engine::store::{Bucket, BucketSpec, Expect, Put, Race, Store, VALUE_BYTES_MAX, Write};

use crate::{Fixture, class, eventually, list, resource, watch};

/// The case's bucket.
pub(super) async fn bucket<S: Store>(t: &Fixture<S>, age: Option<Duration>) -> S::Bucket {
    bucket_through(t, &t.store, age).await
}

/// The case's bucket, through another store.
pub(super) async fn bucket_through<S: Store, T: Store>(t: &Fixture<S>, store: &T, age: Option<Duration>) -> T::Bucket {
    let spec = BucketSpec { name: format!("{}_kv", t.prefix), age, raise_age: false, replicas: t.replicas };
    store.open(&spec).await.expect("the bucket opens")
}

pub(super) fn key(name: &str) -> Key {
    resource(name).key().clone()
}

pub(super) fn value(text: &str) -> Write {
    Write::Value(Bytes::copy_from_slice(text.as_bytes()))
}

pub(super) async fn stored<B: Bucket>(bucket: &B, name: &str, write: Write, expect: Expect) -> u64 {
    match bucket.put(&key(name), write, expect).await.expect("a definite answer") {
        Put::Stored(revision) => revision,
        Put::Lost(race) => panic!("{name} at {expect:?}: {race:?}"),
    }
}

/// A write is stored where its expectation is met, and told what stands where it is not.
pub async fn a_write_meets_its_expectation_or_loses<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, None).await;
    assert_eq!(b.get(&key("seat:a")).await.unwrap(), None);
    let first = stored(&b, "seat:a", value("1"), Expect::At(0)).await;
    let a = key("seat:a");
    let put = |expect| b.put(&a, value("x"), expect);
    assert_eq!(put(Expect::At(0)).await.unwrap(), Put::Lost(Race::Newer(first)));
    let second = stored(&b, "seat:a", value("2"), Expect::At(first)).await;
    assert!(second > first);
    assert_eq!(put(Expect::At(first)).await.unwrap(), Put::Lost(Race::Newer(second)));
    let third = stored(&b, "seat:a", value("3"), Expect::Any).await;
    let read = b.get(&key("seat:a")).await.unwrap().expect("there");
    assert_eq!((read.revision, read.value), (third, Some(Bytes::from_static(b"3"))));
    let absent = b.put(&key("seat:b"), value("x"), Expect::At(third)).await.unwrap();
    assert_eq!(absent, Put::Lost(Race::Vanished));
}

/// A removal leaves a marker with a revision; it is no live key, and is written over at its revision.
pub async fn a_removal_leaves_a_marker<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, None).await;
    let first = stored(&b, "seat:a", value("1"), Expect::At(0)).await;
    let marker = stored(&b, "seat:a", Write::Removal, Expect::At(first)).await;
    let read = b.get(&key("seat:a")).await.unwrap().expect("a marker");
    assert_eq!((read.revision, read.value), (marker, None));
    t.lists(vec![], || async { list(&b, "seat").await.unwrap().entries }).await;
    assert_eq!(
        b.index(&class("seat").filter(), b.deadline()).await.unwrap().keys().collect::<Vec<_>>(),
        [key("seat:a")]
    );
    let over = b.put(&key("seat:a"), value("2"), Expect::At(0)).await.unwrap();
    assert_eq!(over, Put::Lost(Race::Newer(marker)));
    stored(&b, "seat:a", value("2"), Expect::At(marker)).await;
}

/// A purge erases up to a revision and leaves what is later.
pub async fn a_purge_erases_no_later_revision<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, None).await;
    let first = stored(&b, "seat:a", value("1"), Expect::At(0)).await;
    let second = stored(&b, "seat:a", value("2"), Expect::At(first)).await;
    assert_eq!(b.purge(&key("seat:a"), first).await.unwrap(), 0);
    assert_eq!(b.get(&key("seat:a")).await.unwrap().expect("there").revision, second);
    assert_eq!(b.purge(&key("seat:a"), second).await.unwrap(), 1);
    assert_eq!(b.get(&key("seat:a")).await.unwrap(), None);
    assert_eq!(b.purge(&key("seat:a"), second).await.unwrap(), 0);
    stored(&b, "seat:a", value("3"), Expect::At(0)).await;
}

/// A listing is the live keys of its filter, in order, each at its newest version.
pub async fn a_listing_is_the_live_keys_of_its_filter<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, None).await;
    assert_eq!(list(&b, "seat").await.unwrap().entries, [], "an empty bucket is an answer");
    for i in (0..50).rev() {
        stored(&b, &format!("seat:s{i:02}"), value("old"), Expect::At(0)).await;
    }
    stored(&b, "node:n1", value("n"), Expect::At(0)).await;
    for i in 0..10 {
        stored(&b, &format!("seat:s{i:02}"), Write::Removal, Expect::Any).await;
        stored(&b, &format!("seat:s{:02}", i + 10), value("new"), Expect::Any).await;
    }
    let of = |i| Bytes::from_static(if i < 20 { b"new" } else { b"old" });
    let want: Vec<_> = (10..50).map(|i| (format!("seat.s{i:02}"), Some(of(i)))).collect();
    t.lists(want, || async {
        let listing = list(&b, "seat").await.unwrap();
        let clock = listing.clock;
        let entry = |(key, version): (Key, Version)| {
            assert!(version.written <= clock, "the broker's clock is inside the listing");
            (key.as_str().to_owned(), version.value)
        };
        listing.entries.into_iter().map(entry).collect::<Vec<_>>()
    })
    .await;
    assert_eq!(b.index(&class("seat").filter(), b.deadline()).await.unwrap().names().count(), 50, "markers are named");
    assert_eq!(list(&b, "other").await.unwrap().entries, []);
}

/// A watch begins with a listing and goes on with every change of its filter, none repeated.
pub async fn a_watch_begins_with_a_listing_and_misses_no_change<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, None).await;
    stored(&b, "seat:a", value("1"), Expect::At(0)).await;
    stored(&b, "node:n", value("1"), Expect::At(0)).await;
    let mut watch = watch(&b, "seat").await.unwrap();
    let began: Vec<_> = watch.listing.entries.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(began, ["seat.a"]);
    let mut want = Vec::new();
    for i in 0..20 {
        let name = if i % 2 == 0 { "seat:a" } else { "seat:b" };
        want.push((key(name), stored(&b, name, value(&i.to_string()), Expect::Any).await));
        stored(&b, "node:n", value("x"), Expect::Any).await;
    }
    want.push((key("seat:a"), stored(&b, "seat:a", Write::Removal, Expect::Any).await));
    let mut seen = Vec::new();
    let until = t.env.now() + Duration::from_secs(20);
    // One revision is kept for each key, so a change that was overtaken before it was delivered may be left out; the last
    // one of each key may not.
    while seen.last() != want.last() {
        let (key, version) = t.env.within(until, watch.changes.next()).await.expect("the last change").unwrap();
        assert!(seen.last().is_none_or(|(_, before)| *before < version.revision), "in order, each once");
        seen.push((key, version.revision));
        assert_eq!(version.value.is_none(), seen.last() == want.last(), "the last one is the removal");
    }
    assert!(seen.iter().all(|change| want.contains(change)));
    assert!(seen.contains(&want[want.len() - 2]), "the last change of the other key");
}

/// A key is gone once its bucket's age has passed since it was written last.
pub async fn a_record_ends_with_the_buckets_age<S: Store>(t: Fixture<S>) {
    let age = Duration::from_millis(1_200);
    let b = bucket(&t, Some(age)).await;
    assert_eq!(b.age(), Some(age));
    let began = t.env.now();
    stored(&b, "seat:a", value("1"), Expect::At(0)).await;
    stored(&b, "seat:b", value("1"), Expect::At(0)).await;
    eventually(
        &t.env,
        "the record that nobody rewrites is gone, and a rewrite started the other's age again",
        || async {
            stored(&b, "seat:b", value("2"), Expect::Any).await;
            let gone = b.get(&key("seat:a")).await.unwrap().is_none();
            (gone && b.get(&key("seat:b")).await.unwrap().is_some()).then_some(())
        },
    )
    .await;
    assert!(t.env.now().since(began) >= age);
    stored(&b, "seat:a", value("again"), Expect::At(0)).await;
}

/// A value at the ceiling is stored; one above is refused by name and size before anything is sent.
pub async fn a_value_above_the_ceiling_is_refused<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, None).await;
    let of = |bytes| Write::Value(Bytes::from(vec![b'x'; bytes]));
    stored(&b, "seat:a", of(VALUE_BYTES_MAX), Expect::At(0)).await;
    let read = b.get(&key("seat:a")).await.unwrap().expect("there");
    assert_eq!(read.value.expect("a value").len(), VALUE_BYTES_MAX);
    for bytes in [VALUE_BYTES_MAX + 1, 1 << 20, 8 << 20] {
        let error = b.put(&key("seat:b"), of(bytes), Expect::At(0)).await.unwrap_err();
        assert!(matches!(error, Error::BadArgument(_)), "{error}");
        assert!(error.to_string().contains(&bytes.to_string()) && error.to_string().contains("seat.b"), "{error}");
        stored(&b, "seat:c", value("the connection lives"), Expect::Any).await;
    }
    assert_eq!(b.get(&key("seat:b")).await.unwrap(), None);
}

/// The broker's clock runs, and has reached what was written.
pub async fn the_brokers_clock_has_reached_what_was_written<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, None).await;
    for _ in 0..10 {
        stored(&b, "seat:a", value("1"), Expect::Any).await;
        let written = b.get(&key("seat:a")).await.unwrap().expect("there").written;
        assert!(written <= b.clock().await.unwrap());
    }
}
