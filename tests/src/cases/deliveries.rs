//! Claims on deliveries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coordproto::answer::Landing;
use coordproto::record::claim;
use coordproto::slot::CLAIMS;
use engine::slots::claims::{Attempt, Delivery, DeliveryClaims, FailsOpen, Release};
use engine::store::counting::{Calls, Counting};
use engine::store::faulty::{Fault, Faulty, Verb};
use engine::store::{Bucket, BucketSpec, Store};
use futures_util::future::{join, join_all};
use futures_util::stream::{self, StreamExt};
use jiff::{SignedDuration, Timestamp};

use crate::Fixture;
use crate::bench::{assert_refused, assert_unknown, bucket, counted, failing, failing_at, stored};

const MINUTE: Duration = Duration::from_secs(60);

async fn claims<S: Store>(t: &Fixture<S>) -> DeliveryClaims<S> {
    claims_on(t, &t.store).await
}

async fn claims_on<S: Store, T: Store>(t: &Fixture<S>, store: &T) -> DeliveryClaims<T> {
    DeliveryClaims::open(store, &t.settings()).await.expect("the bucket opens")
}

/// The instant at which the cases begin, and so many seconds after it.
fn at(seconds: i64) -> Timestamp {
    let began: Timestamp = "2026-01-02T03:04:05Z".parse().expect("an instant");
    began + SignedDuration::from_secs(seconds)
}

fn attempt<S: Store>(claims: &DeliveryClaims<S>, id: &str) -> Attempt {
    claims.attempt("slack", id).expect("a good id")
}

/// Claims for a minute.
async fn claim<S: Store>(claims: &DeliveryClaims<S>, attempt: &Attempt, seconds: i64) -> Delivery {
    claims.claim(attempt, MINUTE, at(seconds)).await.expect("a definite answer")
}

fn seen(until: i64) -> Delivery {
    Delivery::Seen { until: at(until) }
}

/// The first node that is delivered something has it, and the others are told until when; another source's is another.
pub async fn a_delivery_is_first_once<S: Store>(t: Fixture<S>) {
    let store = Counting::new(t.store.clone());
    let c = claims_on(&t, &store).await;
    let (one, other) = (attempt(&c, "x1"), attempt(&c, "x1"));
    store.take();
    assert_eq!(claim(&c, &one, 0).await, Delivery::First);
    assert_eq!(store.take(), Calls { put: 1, ..Calls::default() });
    assert_eq!(claim(&c, &other, 1).await, seen(60));
    assert_eq!(store.take(), Calls { put: 1, read: 1, ..Calls::default() });
    assert_eq!(claim(&c, &one, 2).await, Delivery::First, "asked again it is told the same");
    assert_eq!(claim(&c, &other, 59).await, seen(60), "and that moves no deadline");
    assert_eq!(claim(&c, &attempt(&c, "x2"), 0).await, Delivery::First);
    let elsewhere = c.attempt("github", "x1").unwrap();
    assert_eq!(claim(&c, &elsewhere, 0).await, Delivery::First);
    for (source, id) in [("a|b", "c"), ("a", "b|c"), ("a", "b.c"), ("a b", "*"), ("é", ">")] {
        let awkward = c.attempt(source, id).unwrap();
        assert_eq!(claim(&c, &awkward, 0).await, Delivery::First, "{source} {id}");
        let again = c.attempt(source, id).unwrap();
        assert_eq!(claim(&c, &again, 0).await, seen(60), "{source} {id}");
    }
}

/// A claim lapses at the deadline in its record, on the clock of whoever claims next, and the next is told nothing of it.
pub async fn a_claim_lapses_at_its_own_deadline<S: Store>(t: Fixture<S>) {
    let c = claims(&t).await;
    let (short, long) = (attempt(&c, "short"), attempt(&c, "long"));
    assert_eq!(c.claim(&short, 5 * MINUTE, at(0)).await.unwrap(), Delivery::First);
    assert_eq!(c.claim(&long, 30 * MINUTE, at(0)).await.unwrap(), Delivery::First);
    let next = attempt(&c, "short");
    assert_eq!(claim(&c, &next, 299).await, seen(300));
    assert_eq!(claim(&c, &next, 300).await, Delivery::First);
    assert_eq!(claim(&c, &short, 301).await, seen(360), "it is the next one's");
    assert_eq!(claim(&c, &attempt(&c, "long"), 1799).await, seen(1800));
    assert_eq!(claim(&c, &long, 1800).await, Delivery::First, "its own has lapsed, and is claimed anew");
    assert_eq!(claim(&c, &attempt(&c, "long"), 1800).await, seen(1860));
}

/// Without a deadline that can be read a claim would never lapse, so it is no claim.
pub async fn a_claim_without_a_readable_deadline_is_taken_over<S: Store>(t: Fixture<S>) {
    let (c, b) = (claims(&t).await, bucket(&t, &CLAIMS).await);
    for (nth, broken) in ["", "garbage", "{}", r#"{"by":"n1","until":"soon"}"#].into_iter().enumerate() {
        let id = format!("x{nth}");
        stored(&b, &claim::key("slack", &id).unwrap(), broken).await;
        let own = attempt(&c, &id);
        assert_eq!(c.release(&own).await.unwrap(), Release::NotHeld, "{broken:?} is not its own");
        assert_eq!(claim(&c, &own, 0).await, Delivery::First, "{broken:?}");
        assert_eq!(claim(&c, &attempt(&c, &id), 0).await, seen(60), "{broken:?}");
    }
    // A newer build's says more, and one without an attempt is nobody's own.
    stored(&b, &claim::key("slack", "newer").unwrap(), r#"{"node":{"id":1},"until":"2026-01-02T03:05:05Z"}"#).await;
    let own = attempt(&c, "newer");
    assert_eq!(claim(&c, &own, 0).await, seen(60));
    assert_eq!(c.release(&own).await.unwrap(), Release::NotHeld);
}

/// Of many at once one is first, whatever stood there.
pub async fn of_many_attempts_one_is_first<S: Store>(t: Fixture<S>) {
    let nodes = [claims(&t).await, claims(&t).await];
    let b = bucket(&t, &CLAIMS).await;
    for (id, before) in
        [("fresh", None), ("lapsed", Some(r#"{"until":"2026-01-02T03:04:04Z","by":"n9"}"#)), ("broken", Some("?"))]
    {
        if let Some(before) = before {
            stored(&b, &claim::key("slack", id).unwrap(), before).await;
        }
        let attempts: Vec<Attempt> = (0..16).map(|_| attempt(&nodes[0], id)).collect();
        let told = join_all(attempts.iter().enumerate().map(|(i, attempt)| claim(&nodes[i % 2], attempt, 0))).await;
        assert_eq!(told.iter().filter(|told| **told == Delivery::First).count(), 1, "{id}: {told:?}");
        assert!(told.iter().all(|told| *told == Delivery::First || *told == seen(60)), "{id}: {told:?}");
    }
}

/// A thousand deliveries, each to two nodes at once, are handled a thousand times.
pub async fn a_thousand_deliveries_to_two_nodes_are_handled_once_each<S: Store>(t: Fixture<S>) {
    let nodes = [claims(&t).await, claims(&t).await];
    let handled = stream::iter(0..1000)
        .map(|nth| {
            let (id, nodes) = (format!("d{nth}"), &nodes);
            async move {
                let (one, two) = (attempt(&nodes[0], &id), attempt(&nodes[1], &id));
                let (one, two) = join(claim(&nodes[0], &one, 0), claim(&nodes[1], &two, 0)).await;
                [one, two].into_iter().filter(|told| *told == Delivery::First).count()
            }
        })
        .buffer_unordered(64);
    let handled: Vec<usize> = handled.collect().await;
    assert!(handled.len() == 1000 && handled.iter().all(|times| *times == 1), "{handled:?}");
}

/// An attempt gives back its own claim and no other's, and there may be none.
pub async fn a_release_gives_back_ones_own<S: Store>(t: Fixture<S>) {
    let (store, asked) = (Counting::new(t.store.clone()), Calls { read: 1, ..Calls::default() });
    let c = claims_on(&t, &store).await;
    let one = attempt(&c, "x1");
    store.take();
    assert_eq!(c.release(&one).await.unwrap(), Release::NotHeld, "there is none");
    assert_eq!(store.take(), asked, "nothing was written");
    assert_eq!(claim(&c, &one, 0).await, Delivery::First);
    assert_eq!(c.release(&attempt(&c, "x1")).await.unwrap(), Release::NotHeld, "it is another's");
    assert_eq!(claim(&c, &attempt(&c, "x1"), 0).await, seen(60));
    assert_eq!(c.release(&one).await.unwrap(), Release::Released);
    assert_eq!(c.release(&one).await.unwrap(), Release::NotHeld, "it is gone");
    let later = attempt(&c, "x1");
    assert_eq!(claim(&c, &later, 1).await, Delivery::First);
    assert_eq!(c.release(&one).await.unwrap(), Release::NotHeld, "it is a later one's");
    // A claim that has lapsed is its attempt's until another takes it over.
    let last = attempt(&c, "x1");
    assert_eq!(claim(&c, &last, 61).await, Delivery::First);
    assert_eq!(c.release(&later).await.unwrap(), Release::NotHeld);
    assert_eq!(claim(&c, &attempt(&c, "x1"), 61).await, seen(121));
    assert_eq!(c.release(&last).await.unwrap(), Release::Released);
}

/// Whoever releases late while another takes over takes nothing from it.
pub async fn a_late_release_takes_nothing_from_the_next<S: Store>(t: Fixture<S>) {
    let c = claims(&t).await;
    for round in 0..20 {
        let id = format!("x{round}");
        let (late, next) = (attempt(&c, &id), attempt(&c, &id));
        assert_eq!(claim(&c, &late, 0).await, Delivery::First);
        let (_, told) = join(c.release(&late), claim(&c, &next, 60)).await;
        assert_eq!(told, Delivery::First, "round {round}");
        assert_eq!(claim(&c, &attempt(&c, &id), 60).await, seen(120), "round {round}");
        assert_eq!(c.release(&next).await.unwrap(), Release::Released, "round {round}");
    }
}

/// A claim may last as long as the bucket keeps it, is refused above that, and is never made shorter.
pub async fn a_claim_lasts_no_longer_than_the_age_in_force<S: Store>(t: Fixture<S>) {
    let (store, asked) = counted(&t);
    let c = claims_on(&t, &store).await;
    let (half_an_hour, second) = (30 * MINUTE, Duration::from_secs(1));
    for (ttl, named) in
        [(half_an_hour + second, "1800s"), (half_an_hour + Duration::from_nanos(1), "1800s"), (Duration::ZERO, "0ns")]
    {
        let refused = c.claim(&attempt(&c, "x1"), ttl, at(0)).await;
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains(named)), "{refused:?}");
        assert_refused(refused, "ttl");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing was asked");
    assert_eq!(c.claim(&attempt(&c, "x1"), half_an_hour, at(0)).await.unwrap(), Delivery::First);
    assert_eq!(claim(&c, &attempt(&c, "x1"), 1799).await, seen(1800));
    // The age in force is that of whoever was first, and no setting's.
    let mut settings = t.settings();
    settings.prefix = format!("{}_young", t.prefix);
    let spec = BucketSpec::of(&CLAIMS, &settings.prefix, settings.retention, t.replicas);
    t.store.open(&BucketSpec { age: Some(10 * MINUTE), ..spec }).await.unwrap();
    let young = DeliveryClaims::open(&t.store, &settings).await.unwrap();
    assert_eq!((c.longest_claim(), young.longest_claim()), (half_an_hour, 10 * MINUTE));
    let refused = young.claim(&attempt(&young, "x1"), 10 * MINUTE + second, at(0)).await;
    assert!(refused.as_ref().is_err_and(|error| error.to_string().contains("600s")), "{refused:?}");
    assert_refused(refused, "ttl");
    assert_eq!(young.claim(&attempt(&young, "x1"), 10 * MINUTE, at(0)).await.unwrap(), Delivery::First);
}

/// What names no delivery is no attempt, and two deliveries without an id are not one.
pub async fn what_names_no_delivery_is_refused<S: Store>(t: Fixture<S>) {
    let (store, asked) = counted(&t);
    let c = claims_on(&t, &store).await;
    let long = "a".repeat(10 * 1024);
    for (source, id, what) in [
        ("slack", "", "delivery id"),
        ("", "x1", "source"),
        ("slack", "x\n1", "delivery id"),
        ("slack", "x\u{0}1", "delivery id"),
        ("sl\tack", "x1", "source"),
        ("slack", &long, "delivery id"),
        (&long, "x1", "source"),
    ] {
        assert_refused(c.attempt(source, id).map_err(Into::into), what);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing was asked");
}

/// Without an answer nothing is suppressed; and what came to stand nevertheless can be given back.
pub async fn a_claim_without_an_answer_suppresses_nothing<S: Store>(t: Fixture<S>) {
    let c = claims(&t).await;
    for (fault, landed) in [(Fault::DropRequest, false), (Fault::DropReply, true)] {
        let f = claims_on(&t, &failing(&t, fault)).await;
        let one = attempt(&f, &format!("{fault:?}"));
        let unanswered = f.claim(&one, MINUTE, at(0)).await;
        assert_unknown(unanswered.clone(), "claim", Landing::InFlight);
        assert_eq!(unanswered.fails_open().unwrap(), Delivery::First);
        assert_unknown(f.release(&one).await, "release", Landing::Settled);
        let other = attempt(&c, &format!("{fault:?}"));
        if landed {
            assert_eq!(claim(&c, &other, 0).await, seen(60));
            let unread = claims_on(&t, &failing_at(&t, Verb::Read, fault)).await;
            assert_unknown(unread.claim(&other, MINUTE, at(0)).await, "claim", Landing::Settled);
        }
        let want = if landed { Release::Released } else { Release::NotHeld };
        assert_eq!(c.release(&one).await.unwrap(), want, "{fault:?}");
        assert_eq!(claim(&c, &other, 0).await, Delivery::First, "{fault:?}");
    }
    let refused = c.claim(&attempt(&c, "x1"), Duration::ZERO, at(0)).await.fails_open();
    assert_eq!(refused.unwrap_err().what, "ttl");
}

/// A member that is behind knows an earlier claim. It frees no delivery, and takes nobody's claim.
pub async fn the_past_frees_no_delivery<S: Store>(t: Fixture<S>) {
    let behind = Arc::new(AtomicUsize::new(0));
    let left = behind.clone();
    let store = Faulty::new(t.store.clone(), t.env.clone(), move |call| {
        let take = |n: usize| n.checked_sub(1);
        let stale = call.verb == Verb::Read && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if stale { Fault::Stale } else { Fault::None }
    });
    let c = claims_on(&t, &store).await;
    let (one, two, three) = (attempt(&c, "x1"), attempt(&c, "x1"), attempt(&c, "x1"));
    assert_eq!(claim(&c, &one, 0).await, Delivery::First);
    assert_eq!(claim(&c, &two, 60).await, Delivery::First);
    assert_eq!(claim(&c, &three, 60).await, seen(120), "and the one before has passed by");
    for reads in 1..4 {
        behind.store(reads, Ordering::Relaxed);
        assert_eq!(claim(&c, &three, 60).await, seen(120), "{reads}");
        behind.store(reads, Ordering::Relaxed);
        assert_eq!(c.release(&one).await.unwrap(), Release::NotHeld, "{reads}");
        behind.store(0, Ordering::Relaxed);
        let b = bucket(&t, &CLAIMS).await;
        let stands = b.get(&claim::key("slack", "x1").unwrap()).await.unwrap().expect("it stands");
        assert!(stands.value.is_some(), "{reads}");
    }
    assert_eq!(c.release(&two).await.unwrap(), Release::Released);
}
