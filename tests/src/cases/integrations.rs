//! The states of integrations.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use coordproto::answer::Landing;
use coordproto::slot::INTEGRATIONS;
use engine::slots::integrations::{Delete, Integration, Integrations};
use engine::store::faulty::{Fault, Faulty, Verb};
use engine::store::{Bucket, Store};
use futures_util::future::{join, join_all};

use crate::Fixture;
use crate::bench::{assert_refused, assert_unknown, bucket, counted, failing, failing_at, raw_key, stored};

async fn integrations<S: Store>(store: &S, t: &Fixture<impl Store>) -> Integrations<S> {
    Integrations::open(store, &t.settings()).await.expect("the bucket opens")
}

fn state(surface: &str, record: impl Into<Bytes>) -> Integration {
    Integration { surface: surface.to_owned(), record: record.into() }
}

/// The last write stands, whatever it is made of, and a listing has every surface by its name.
pub async fn the_last_state_of_a_surface_stands<S: Store>(t: Fixture<S>) {
    let (i, b) = (integrations(&t.store, &t).await, bucket(&t, &INTEGRATIONS).await);
    assert_eq!(i.list().await.unwrap(), []);
    let whole: Vec<u8> = (0..=255).collect();
    let mut want = Vec::new();
    for surface in ["webhook", "a.b", "a0", "a-b", "é", "*", "a:b", &"s".repeat(900)] {
        for record in [&b"first"[..], b"", &whole] {
            i.put(surface, Bytes::copy_from_slice(record)).await.unwrap();
        }
        want.push(state(surface, whole.clone()));
    }
    want.sort_unstable_by(|a, b| a.surface.cmp(&b.surface));
    stored(&b, &raw_key("of.two"), "segments").await;
    t.lists(want, || async { i.list().await.unwrap() }).await;
}

/// A surface is forgotten once, nothing is left of it, and it can come back.
pub async fn a_surface_is_forgotten_once<S: Store>(t: Fixture<S>) {
    let (i, b) = (integrations(&t.store, &t).await, bucket(&t, &INTEGRATIONS).await);
    assert_eq!(i.delete("webhook").await.unwrap(), Delete::NotThere);
    i.put("webhook", "1".into()).await.unwrap();
    i.put("chat", "1".into()).await.unwrap();
    assert_eq!(i.delete("webhook").await.unwrap(), Delete::Deleted);
    assert_eq!(i.delete("webhook").await.unwrap(), Delete::NotThere);
    assert_eq!(b.get(&raw_key("webhook")).await.unwrap(), None, "nothing is left of it");
    t.lists([state("chat", "1")], || async { i.list().await.unwrap() }).await;
    i.put("webhook", "2".into()).await.unwrap();
    t.lists([state("chat", "1"), state("webhook", "2")], || async { i.list().await.unwrap() }).await;
}

/// Of many who forget a surface at once one has; a state that is written meanwhile stands or was forgotten, and nothing else.
pub async fn of_many_who_forget_a_surface_one_has<S: Store>(t: Fixture<S>) {
    let i = integrations(&t.store, &t).await;
    for round in 0..5 {
        i.put("webhook", "old".into()).await.unwrap();
        let told = join_all((0..8).map(|_| i.delete("webhook"))).await;
        let told: Vec<Delete> = told.into_iter().map(|told| told.expect("a definite answer")).collect();
        assert_eq!(told.iter().filter(|told| **told == Delete::Deleted).count(), 1, "round {round}: {told:?}");
        i.put("webhook", "old".into()).await.unwrap();
        let (put, deleted) = join(i.put("webhook", "new".into()), i.delete("webhook")).await;
        put.expect("a definite answer");
        assert_eq!(deleted.expect("a definite answer"), Delete::Deleted, "something stood there all the time");
        let good = |stands: &Vec<Integration>| stands.is_empty() || *stands == [state("webhook", "new")];
        let stands = t.listed(|| async { i.list().await.unwrap() }, good).await;
        assert!(good(&stands), "round {round}: {stands:?}");
    }
}

/// A state that was written after the one that was seen is forgotten too.
pub async fn what_is_written_meanwhile_is_forgotten_too<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, &INTEGRATIONS).await;
    let left = Arc::new(AtomicUsize::new(0));
    let now = left.clone();
    let behind = Faulty::new(t.store.clone(), t.env.clone(), move |call| {
        let stale = call.verb == Verb::Read
            && now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok();
        if stale { Fault::Stale } else { Fault::None }
    });
    let f = integrations(&behind, &t).await;
    let fb = t.settings().open(&behind, &INTEGRATIONS).await.expect("the bucket opens");
    for record in ["1", "2", "3"] {
        stored(&b, &raw_key("webhook"), record).await;
        fb.get(&raw_key("webhook")).await.unwrap().expect("it stands");
    }
    left.store(1, Ordering::Relaxed);
    assert_eq!(f.delete("webhook").await.unwrap(), Delete::Deleted);
    assert_eq!(b.get(&raw_key("webhook")).await.unwrap(), None);
}

/// What breaks a rule is refused before anything is asked.
pub async fn a_bad_surface_is_refused_before_anything_is_asked<S: Store>(t: Fixture<S>) {
    let (store, asked) = counted(&t);
    let i = integrations(&store, &t).await;
    for surface in ["", &"a".repeat(5000), &"é".repeat(256)] {
        assert_refused(i.put(surface, "x".into()).await, "surface");
        assert_refused(i.delete(surface).await, "surface");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing was asked");
    assert_refused(i.put("webhook", Bytes::from(vec![0; 2 << 20])).await, "value");
    assert_eq!(i.list().await.unwrap(), []);
}

/// Without an answer nothing is said of a surface, and what may have been written is told to be so.
pub async fn without_an_answer_nothing_is_said_of_a_surface<S: Store>(t: Fixture<S>) {
    let i = integrations(&t.store, &t).await;
    for (fault, landed) in [(Fault::DropRequest, false), (Fault::DropReply, true)] {
        let f = integrations(&failing(&t, fault), &t).await;
        i.put("old", "1".into()).await.unwrap();
        assert_unknown(f.list().await, "list", Landing::Settled);
        assert_unknown(f.put("new", "1".into()).await, "put", Landing::InFlight);
        assert_unknown(f.delete("old").await, "delete", Landing::Settled);
        let f = integrations(&failing_at(&t, Verb::Put, fault), &t).await;
        assert_unknown(f.delete("old").await, "delete", Landing::InFlight);
        let surfaces =
            || async { i.list().await.unwrap().into_iter().map(|state| state.surface).collect::<Vec<String>>() };
        t.lists(if landed { ["new"] } else { ["old"] }, surfaces).await;
    }
}
