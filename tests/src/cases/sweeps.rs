//! The sweep of removal markers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Landing};
use coordproto::key::{Filter, Key};
use coordproto::slot::{Age, Remover, Retention, SECRETS, SLOTS, Slot};
use engine::store::counting::Counting;
use engine::store::faulty::{Fault, Faulty, Verb};
use engine::store::sweep::{Swept, coordination_markers, sweep};
use engine::store::{Bucket, BucketSpec, Expect, Put, Race, Store, Write};

use crate::{Fixture, before_it_goes_on, eventually, list, resource};

/// A slot as those that are swept.
const LOCAL: Slot = Slot { name: "local", ..SECRETS };

/// How long a sweep may take here.
const WITHIN: Duration = Duration::from_secs(60);

async fn open<S: Store, T>(t: &Fixture<T>, store: &S, slot: &Slot) -> S::Bucket {
    // No age may take what a sweep is to take, however slow the machine.
    let hour = Duration::from_secs(3600);
    let retention = Retention { lease_ttl: hour, rate_window: hour, reconcile_interval: hour };
    let spec = BucketSpec::of(slot, &t.prefix, retention, t.replicas);
    store.open(&spec).await.expect("the bucket opens")
}

fn key(name: &str) -> Key {
    resource(name).key().clone()
}

fn value(text: &'static str) -> Write {
    Write::Value(Bytes::from_static(text.as_bytes()))
}

async fn stored<B: Bucket>(bucket: &B, key: &Key, write: Write) -> u64 {
    match bucket.put(key, write, Expect::Any).await.expect("a definite answer") {
        Put::Stored(revision) => revision,
        Put::Lost(race) => panic!("{key}: {race:?}"),
    }
}

/// Removes records that were there, so that a marker of each is.
async fn removed<B: Bucket>(bucket: &B, names: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<Key> {
    let mut keys = Vec::new();
    for name in names {
        let key = key(name.as_ref());
        stored(bucket, &key, value("was")).await;
        stored(bucket, &key, Write::Removal).await;
        keys.push(key);
    }
    keys
}

/// Sweeps the markers of at least that age.
async fn swept<B: Bucket>(bucket: &B, older_than: Duration) -> Swept {
    sweep(bucket, older_than, bucket.env().now() + WITHIN).await.expect("a sweep")
}

/// Sweeps every marker.
async fn swept_of_all<B: Bucket>(bucket: &B) -> Swept {
    swept(bucket, Duration::ZERO).await
}

/// Sweeps every marker, again and again, until `done` says so of all the sweeps together. A pass that is served by a member
/// which is behind does not see every marker, or sees some that are gone.
async fn sweep_until<B: Bucket>(bucket: &B, done: impl Fn(&Swept) -> bool) -> Swept {
    let until = bucket.env().now() + WITHIN;
    let mut all = Swept { found: 0, removed: 0, failed: 0, trouble: None };
    loop {
        let swept = swept_of_all(bucket).await;
        assert!(swept.removed + swept.failed <= swept.found, "{swept:?}");
        all.found += swept.found;
        all.removed += swept.removed;
        all.failed += swept.failed;
        all.trouble = all.trouble.or(swept.trouble);
        if done(&all) {
            return all;
        }
        assert!(bucket.env().now() < until, "not within {WITHIN:?}: {all:?}");
    }
}

/// Sweeps every marker until that many have gone, with nothing going wrong.
async fn sweep_away<B: Bucket>(bucket: &B, markers: u64) {
    let all = sweep_until(bucket, |all| all.removed >= markers).await;
    assert_eq!((all.removed, all.failed, all.trouble), (markers, 0, None));
}

/// The keys that the leader has anything of, markers included.
async fn named<B: Bucket>(bucket: &B) -> Vec<Key> {
    bucket.index(&Filter::every(), bucket.deadline()).await.unwrap().keys().collect()
}

/// A store whose fault is chosen by `choose` once everything is in place.
fn faulty<S: Store>(t: &Fixture<S>) -> Faulty<S> {
    Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::None)
}

/// A marker goes once it is as old as asked for, on the broker's clock, and none goes before.
pub async fn a_marker_goes_when_it_is_old_enough<S: Store>(t: Fixture<S>) {
    let b = open(&t, &t.store, &LOCAL).await;
    let retention = Duration::from_secs(2);
    let old = removed(&b, ["seat:old"]).await;
    assert_eq!(swept(&b, Duration::from_secs(3600)).await.found, 0, "an hour has not passed");
    let young = key("seat:young");
    eventually(&t.env, "the old one is gone and a young one was spared", || async {
        let revision = stored(&b, &young, Write::Removal).await;
        let written = b.get(&young).await.unwrap().expect("a marker").written;
        let swept = swept(&b, retention).await;
        assert!(swept.trouble.is_none() && swept.removed <= swept.found, "{swept:?}");
        // It was too young for that sweep if it still is, whatever the machine was busy with.
        let still_young = b.clock().await.unwrap() < written + retention;
        if still_young {
            assert_eq!(b.get(&young).await.unwrap().expect("too young to go").revision, revision);
        }
        (still_young && b.get(&old[0]).await.unwrap().is_none()).then_some(())
    })
    .await;
}

/// What lives stays as it is, one with nothing in it too, among markers that all go.
pub async fn what_lives_is_left_alone<S: Store>(t: Fixture<S>) {
    let b = open(&t, &t.store, &LOCAL).await;
    let mut before = Vec::new();
    for (i, text) in ["a value", "", "another"].into_iter().enumerate() {
        removed(&b, (0..20).map(|m| format!("seat:m{i}-{m}"))).await;
        let key = key(&format!("seat:live{i}"));
        stored(&b, &key, value(text)).await;
        before.push((key.clone(), b.get(&key).await.unwrap().expect("there")));
    }
    sweep_away(&b, 60).await;
    for (key, version) in &before {
        assert_eq!(b.get(key).await.unwrap().as_ref(), Some(version));
    }
    assert_eq!(named(&b).await, before.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), "and no marker is left");
    sweep_away(&b, 0).await;
}

/// A marker under a key that no name escapes to is nobody's, and is not touched.
pub async fn a_key_that_does_not_decode_is_skipped<S: Store>(t: Fixture<S>) {
    let b = open(&t, &t.store, &LOCAL).await;
    let foreign = Key::barrier();
    assert!(Key::parse(foreign.as_str()).is_err());
    let revision = stored(&b, &foreign, Write::Removal).await;
    removed(&b, ["seat:a"]).await;
    sweep_away(&b, 1).await;
    assert_eq!(b.get(&foreign).await.unwrap().expect("its marker").revision, revision);
}

/// A record that is created again after the pass has seen its marker is not taken with it.
pub async fn what_is_created_again_meanwhile_stays<S: Store>(t: Fixture<S>) {
    let (store, below) = (faulty(&t), open(&t, &t.store, &LOCAL).await);
    let b = open(&t, &store, &LOCAL).await;
    let keys = removed(&b, ["seat:a", "seat:b"]).await;
    let (again, direct) = (keys[0].clone(), below.clone());
    let seen = Arc::new(AtomicBool::new(false));
    let purged = seen.clone();
    store.choose(move |call| {
        let first = call.verb == Verb::Purge && call.about == again.as_str() && !purged.swap(true, Ordering::AcqRel);
        if first {
            before_it_goes_on(stored(&direct, &again, value("again")));
        }
        Fault::None
    });
    let all = sweep_until(&b, |all| all.removed > 0 && seen.load(Ordering::Acquire)).await;
    assert_eq!((all.removed, all.failed, all.trouble), (1, 0, None));
    let read = below.get(&keys[0]).await.unwrap().expect("created again");
    assert_eq!(read.value.as_deref(), Some(&b"again"[..]));
    assert_eq!(named(&below).await, keys[..1]);
}

/// What is counted is what the broker says went: a marker that somebody else has purged is found and not counted.
pub async fn the_count_is_the_brokers<S: Store>(t: Fixture<S>) {
    let (store, below) = (faulty(&t), open(&t, &t.store, &LOCAL).await);
    let b = open(&t, &store, &LOCAL).await;
    let keys = removed(&b, ["seat:a", "seat:b", "seat:c"]).await;
    let gone = keys[1].clone();
    let seen = Arc::new(AtomicBool::new(false));
    let purged = seen.clone();
    store.choose(move |call| {
        let first = call.verb == Verb::Purge && call.about == gone.as_str() && !purged.swap(true, Ordering::AcqRel);
        if first {
            let gone = before_it_goes_on(below.purge(&gone, u64::MAX - 1));
            assert_eq!(gone.unwrap(), 1);
        }
        Fault::None
    });
    let all = sweep_until(&b, |all| all.removed >= 2 && seen.load(Ordering::Acquire)).await;
    assert_eq!((all.removed, all.failed, &all.trouble), (2, 0, &None));
    assert!(all.found >= 3, "{all:?}");
    assert_eq!(named(&b).await, []);
}

/// A purge without an answer stops no other, is told, and is done by the next sweep if it was not.
pub async fn a_purge_that_fails_stops_no_other<S: Store>(t: Fixture<S>) {
    let store = faulty(&t);
    let b = open(&t, &store, &LOCAL).await;
    for fault in [Fault::DropRequest, Fault::DropReply] {
        let keys = removed(&b, (0..40).map(|i| format!("seat:s{i:02}"))).await;
        let failing = keys[7].clone();
        store.choose(
            move |call| {
                if call.verb == Verb::Purge && call.about == failing.as_str() { fault } else { Fault::None }
            },
        );
        let all = sweep_until(&b, |all| all.removed >= 39 && all.failed > 0).await;
        assert_eq!(all.removed, 39);
        let trouble = all.trouble.expect("it is told");
        assert_eq!((trouble.op, &trouble.cause, trouble.landing), ("sweep", &Cause::Timeout, Landing::InFlight));
        assert!(trouble.resource.contains(b.name()) && trouble.resource.contains(keys[7].as_str()), "{trouble}");
        store.choose(|_| Fault::None);
        let left = u64::from(fault == Fault::DropRequest);
        assert_eq!(named(&b).await, keys[7..][..usize::try_from(left).unwrap()]);
        sweep_away(&b, left).await;
    }
}

/// Without a clock to judge by, or without a pass, the sweep is unknown, by the bucket's name, and nothing goes.
pub async fn a_sweep_that_cannot_begin_is_unknown<S: Store>(t: Fixture<S>) {
    let store = faulty(&t);
    let b = open(&t, &store, &LOCAL).await;
    let keys = removed(&b, ["seat:a"]).await;
    for verb in [Verb::Standing, Verb::Pass] {
        store.choose(move |call| if call.verb == verb { Fault::DropRequest } else { Fault::None });
        let unknown = sweep(&b, Duration::ZERO, t.env.now() + WITHIN).await.unwrap_err();
        assert_eq!((unknown.op, &*unknown.resource, unknown.landing), ("sweep", b.name(), Landing::Settled));
        assert_eq!(named(&b).await, keys);
    }
}

/// Out of time, it sends no more purges, and tells how many are left.
pub async fn a_sweep_out_of_time_tells_what_is_left<S: Store>(t: Fixture<S>) {
    let store = faulty(&t);
    let b = open(&t, &store, &LOCAL).await;
    let keys = removed(&b, (0..40).map(|i| format!("seat:s{i:02}"))).await;
    store.choose(|call| if call.verb == Verb::Purge { Fault::Delay(2 * WITHIN) } else { Fault::None });
    eventually(&t.env, "a sweep of which the pass sees all", || async {
        let swept = sweep(&b, Duration::ZERO, t.env.now() + Duration::from_secs(2)).await.ok()?;
        assert_eq!((swept.removed, swept.failed), (0, swept.found));
        (swept.found == 40 && swept.trouble.expect("it is told").cause == Cause::Timeout).then_some(())
    })
    .await;
    assert_eq!(named(&b).await, keys);
}

/// A pass that falls quiet is ended after five seconds, and what it delivered is swept; so is what a broken one delivered,
/// which is told. The next sweep does the rest.
pub async fn a_pass_that_stops_short_is_swept_as_far_as_it_came<S: Store>(t: Fixture<S>) {
    let store = faulty(&t);
    let b = open(&t, &store, &LOCAL).await;
    removed(&b, ["seat:a", "seat:b", "seat:c", "seat:d", "seat:e"]).await;
    store.choose(|call| if call.verb == Verb::Pass { Fault::Silent(2) } else { Fault::None });
    let began = t.env.now();
    let quiet = sweep_until(&b, |all| all.removed > 0 && t.env.now().since(began) >= Duration::from_secs(5)).await;
    assert_eq!((quiet.failed, quiet.trouble), (0, None), "it was the quiet that ended it, and not its deadline");
    assert_eq!(named(&b).await.len() as u64, 5 - quiet.removed, "what it had not delivered is there");
    store.choose(|call| if call.verb == Verb::Pass { Fault::Broken(1) } else { Fault::None });
    let broken = sweep_until(&b, |all| all.removed > 0 && all.trouble.is_some()).await;
    let trouble = broken.trouble.expect("it is told");
    assert_eq!((trouble.op, &*trouble.resource, broken.failed), ("sweep", b.name(), 0));
    store.choose(|_| Fault::None);
    sweep_away(&b, 5 - quiet.removed - broken.removed).await;
    assert_eq!(named(&b).await, []);
}

/// Of all the slots, those are swept that keep markers for ever; one that cannot be asked stops none after it.
pub async fn every_slot_that_keeps_markers_is_swept<S: Store>(t: Fixture<S>) {
    const DARK: Slot = Slot { name: "dark", ..LOCAL };
    const KEPT: Slot = Slot { name: "kept", removed_by: Remover::Nobody, ..LOCAL };
    const AGED: Slot = Slot { name: "aged", age: Age::LeaseTtl, ..LOCAL };
    let store = faulty(&t);
    let (mut opened, mut all) = (Vec::new(), vec![&DARK, &LOCAL, &KEPT, &AGED]);
    all.extend(SLOTS);
    for slot in all {
        let bucket = open(&t, &store, slot).await;
        removed(&bucket, ["seat:a", "seat:b"]).await;
        opened.push((slot, bucket));
    }
    store.choose(|call| if call.bucket.ends_with("_dark") { Fault::DropRequest } else { Fault::None });
    let due: Vec<_> = opened.iter().filter(|(slot, _)| slot.is_swept()).map(|(_, bucket)| bucket).collect();
    assert!(due[0].name().ends_with("_dark") && due.len() > 1);
    // A pass that is served by a member which is behind may leave some to the next tick.
    eventually(&t.env, "all but the one are swept", || async {
        let told = coordination_markers(&opened, Duration::ZERO).await;
        assert!(told.iter().map(|(name, _)| name).eq(due.iter().map(|bucket| bucket.name())), "{told:?}");
        let (_, dark) = &told[0];
        assert_eq!(dark.as_ref().unwrap_err().op, "sweep");
        assert!(told[1..].iter().all(|(_, swept)| swept.as_ref().unwrap().trouble.is_none()), "{told:?}");
        for bucket in &due[1..] {
            if !named(*bucket).await.is_empty() {
                return None;
            }
        }
        Some(())
    })
    .await;
    store.choose(|_| Fault::None);
    for (slot, bucket) in &opened {
        let left = if slot.is_swept() && slot.name != "dark" { 0 } else { 2 };
        assert_eq!(named(bucket).await.len(), left, "{}", slot.name);
    }
    eventually(&t.env, "a later tick sweeps what could not be asked", || async {
        let told = coordination_markers(&opened, Duration::ZERO).await;
        assert!(told[0].1.is_ok(), "{told:?}");
        named(&opened[0].1).await.is_empty().then_some(())
    })
    .await;
}

/// A listing asks the leader about every marker, and about nothing once they are swept.
pub async fn a_swept_bucket_is_listed_without_a_read<S: Store>(t: Fixture<S>) {
    let store = Counting::new(t.store.clone());
    let b = open(&t, &store, &LOCAL).await;
    let live = key("seat:live");
    stored(&b, &live, value("live")).await;
    removed(&b, (0..10).map(|i| format!("seat:s{i}"))).await;
    let listed = async |reads: u64| {
        // A member that is behind, or a consumer that is long in coming, costs reads of its own.
        eventually(&t.env, &format!("a listing of {reads} reads"), || async {
            store.take();
            let keys: Vec<Key> = list(&b, "seat").await.unwrap().entries.into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys, std::slice::from_ref(&live));
            (store.take().read == reads).then_some(())
        })
        .await;
    };
    listed(10).await;
    sweep_away(&b, 10).await;
    listed(0).await;
}

/// Whether a record was created: not if it lives, over a marker, and anew where nothing is.
async fn created<B: Bucket>(bucket: &B, key: &Key, text: &'static str) -> bool {
    let mut expect = Expect::At(0);
    loop {
        match bucket.put(key, value(text), expect).await.unwrap() {
            Put::Stored(_) => return true,
            Put::Lost(_) => match bucket.get(key).await.unwrap() {
                Some(version) if version.value.is_some() => return false,
                marker => expect = Expect::At(marker.map_or(0, |marker| marker.revision)),
            },
        }
    }
}

/// Every answer about the records is the one it would have been without the sweep, however new the markers it took.
pub async fn a_sweep_changes_no_answer<S: Store>(t: Fixture<S>) {
    let answers = async |name: &'static str, sweeping: bool| {
        let b = open(&t, &t.store, &Slot { name, ..LOCAL }).await;
        let keys: Vec<Key> = ["live", "gone", "back", "never"].map(|name| key(&format!("seat:{name}"))).into();
        removed(&b, ["seat:gone", "seat:back"]).await;
        stored(&b, &keys[0], value("live")).await;
        let stale = stored(&b, &keys[1], Write::Removal).await;
        if sweeping {
            sweep_away(&b, 2).await;
            // Whoever has read the marker and is about to write over it loses, and learns that nothing stands.
            let over = b.put(&keys[1], value("over"), Expect::At(stale)).await.unwrap();
            assert_eq!(over, Put::Lost(Race::Vanished));
        }
        let value = async |key| b.get(key).await.unwrap().and_then(|version| version.value);
        let listed = async || {
            let entries = list(&b, "seat").await.unwrap().entries;
            entries.into_iter().map(|(key, version)| (key, version.value)).collect::<Vec<_>>()
        };
        let mut all = vec![(listed().await, true)];
        for key in &keys {
            let before = value(key).await;
            let created = created(&b, key, "new").await;
            all.push((vec![(key.clone(), before), (key.clone(), value(key).await)], created));
        }
        all.push((listed().await, true));
        all
    };
    assert_eq!(answers("kept", false).await, answers("swept", true).await);
}
