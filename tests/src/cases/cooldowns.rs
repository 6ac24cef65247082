//! Cooling credentials.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coordproto::answer::{Cause, Landing};
use coordproto::record::cooldown::{CAP, Credential, retry_after};
use coordproto::slot::COOLDOWNS;
use engine::slots::cooldowns::{Cool, Cooldowns, Cooling, Holds};
use engine::store::counting::{Calls, Counting};
use engine::store::faulty::{Fault, Faulty, Verb};
use engine::store::{Bucket, Expect, Put, Store, Write};
use futures_util::FutureExt;
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};

use crate::bench::{assert_unknown, bucket, failing, failing_at, raw_key, stored, unknown};
use crate::{Fixture, eventually};

async fn cooldowns<S: Store>(t: &Fixture<S>) -> Cooldowns<S> {
    cooldowns_on(t, &t.store).await
}

async fn cooldowns_on<S: Store, T: Store>(t: &Fixture<S>, store: &T) -> Cooldowns<T> {
    Cooldowns::open(store, &t.settings()).await.expect("the bucket opens")
}

/// The instant at which the cases begin, and so many seconds after it.
fn at(seconds: i64) -> Timestamp {
    let began: Timestamp = "2026-01-02T03:04:05Z".parse().expect("an instant");
    began + SignedDuration::from_secs(seconds)
}

fn credential(entry: &str, secret: &str) -> Credential {
    Credential::new(entry, secret.as_bytes()).expect("a good entry")
}

fn cooling(credential: &Credential, until: i64) -> Cooling {
    Cooling { credential: credential.clone(), until: at(until) }
}

/// What one node is told all read, for as long as it says; the later of two instants stays, whichever came first.
pub async fn the_later_instant_stays<S: Store>(t: Fixture<S>) {
    let store = Counting::new(t.store.clone());
    let (c, peer) = (cooldowns_on(&t, &store).await, cooldowns(&t).await);
    let fast = credential("fast", "sk-1");
    assert_eq!(peer.since(at(0)).await.unwrap(), []);
    store.take();
    assert_eq!(c.cool(&fast, at(60)).await.unwrap(), Cool::Cooled);
    assert_eq!(store.take(), Calls { put: 1, ..Calls::default() });
    t.lists([cooling(&fast, 60)], || async { peer.since(at(0)).await.unwrap() }).await;
    assert_eq!(c.cool(&fast, at(3600)).await.unwrap(), Cool::Cooled, "it is extended");
    for earlier in [0, 60, 3599, 3600] {
        assert_eq!(c.cool(&fast, at(earlier)).await.unwrap(), Cool::Already(at(3600)), "{earlier}");
    }
    t.lists([cooling(&fast, 3600)], || async { peer.since(at(3599)).await.unwrap() }).await;
    // It may be tried again.
    t.lists([], || async { peer.since(at(3600)).await.unwrap() }).await;
    // A vendor's word becomes the longest instant that the bucket keeps.
    let asked = retry_after(Some("999999999"), at(0));
    assert_eq!(c.cool(&fast, asked).await.unwrap(), Cool::Cooled);
    let day = SignedDuration::try_from(CAP).unwrap().as_secs();
    t.lists([cooling(&fast, day)], || async { peer.since(at(day - 1)).await.unwrap() }).await;
    assert!(bucket(&t, &COOLDOWNS).await.age().is_some_and(|age| age >= CAP), "it is kept that long");
}

/// A credential cools under the entry that was refused, and what is stored of it is a hint.
pub async fn a_credential_cools_under_its_entry<S: Store>(t: Fixture<S>) {
    let c = cooldowns(&t).await;
    let mut all = vec![credential("fast", "sk-1"), credential("fast", "sk-2"), credential("a|b. é", "sk-1")];
    for (nth, credential) in all.iter().enumerate() {
        assert_eq!(c.cool(credential, at(60 + nth as i64)).await.unwrap(), Cool::Cooled);
    }
    let smart = credential("smart", "sk-1");
    let told = c.since(at(0)).await.unwrap();
    assert!(!told.iter().any(|cooling| cooling.credential == smart), "the same credential, another limit");
    let mut names: Vec<Credential> = told.into_iter().map(|cooling| cooling.credential).collect();
    names.sort_unstable();
    all.sort_unstable();
    assert_eq!(names, all);
    assert_eq!((all[1].entry(), all[1].hint().len()), ("fast", 12));
    let b = bucket(&t, &COOLDOWNS).await;
    let stands = b.get(smart.key()).await.unwrap();
    assert_eq!(stands, None);
    let stands = b.get(all[1].key()).await.unwrap().unwrap();
    let kept = format!("{} {:?}", all[1].key(), stands.value);
    assert!(!kept.contains("sk-"), "{kept}");
}

/// Of many who say when, the latest is heard.
pub async fn of_many_instants_the_latest_stays<S: Store>(t: Fixture<S>) {
    let nodes = [cooldowns(&t).await, cooldowns(&t).await];
    for round in 0..5 {
        let fast = credential("fast", &format!("sk-{round}"));
        let told = join_all((0..16).map(|nth| nodes[nth % 2].cool(&fast, at(60 + nth as i64)))).await;
        assert!(matches!(told[15], Ok(Cool::Cooled) | Err(_)), "{told:?}");
        for (nth, told) in told.into_iter().enumerate() {
            // One that was not heard in the time that it may take, on a busy machine, is said again.
            if told.is_err() && !t.leaps {
                assert_eq!(unknown(told).cause, Cause::Timeout);
                eventually(&t.env, "it is heard", || async { nodes[0].cool(&fast, at(60 + nth as i64)).await.ok() })
                    .await;
            } else {
                told.expect("a definite answer");
            }
        }
        t.lists([cooling(&fast, 75)], || async { nodes[0].since(at(74)).await.unwrap() }).await;
        // Over, so that the next round begins with nothing that cools.
        let b = bucket(&t, &COOLDOWNS).await;
        assert!(matches!(b.put(fast.key(), Write::Removal, Expect::Any).await.unwrap(), Put::Stored(_)));
    }
}

/// Rows that have lapsed, that cannot be read, or that name no credential are left out, and the others are told.
pub async fn what_says_nothing_is_left_out<S: Store>(t: Fixture<S>) {
    let (c, b) = (cooldowns(&t).await, bucket(&t, &COOLDOWNS).await);
    let (fast, over, broken) = (credential("fast", "sk-1"), credential("over", "sk-1"), credential("broken", "sk-1"));
    assert_eq!(c.cool(&fast, at(60)).await.unwrap(), Cool::Cooled);
    assert_eq!(c.cool(&over, at(30)).await.unwrap(), Cool::Cooled);
    stored(&b, broken.key(), "garbage").await;
    for foreign in ["node.n1", "fast", "fast=7Cnohint"] {
        stored(&b, &raw_key(foreign), r#"{"until":"2026-01-02T04:04:05Z"}"#).await;
    }
    t.lists([cooling(&fast, 60)], || async { c.since(at(30)).await.unwrap() }).await;
    // What cannot be read keeps nobody from being told.
    assert_eq!(c.cool(&broken, at(45)).await.unwrap(), Cool::Cooled);
    t.lists([cooling(&broken, 45), cooling(&fast, 60)], || async { c.since(at(30)).await.unwrap() }).await;
    stored(&b, broken.key(), r#"{"by":{"node":1},"until":"2026-01-02T03:05:00Z"}"#).await;
    assert_eq!(c.cool(&broken, at(50)).await.unwrap(), Cool::Already(at(55)), "a newer build's says more");
}

/// Without an answer nothing new is known, and nothing that was known is over.
pub async fn without_an_answer_every_cooldown_holds<S: Store>(t: Fixture<S>) {
    let c = cooldowns(&t).await;
    for (fault, landed) in [(Fault::DropRequest, false), (Fault::DropReply, true)] {
        let fast = credential("fast", &format!("{fault:?}"));
        let f = cooldowns_on(&t, &failing(&t, fault)).await;
        assert_unknown(f.cool(&fast, at(60)).await, "cool", Landing::InFlight);
        let unread = f.since(at(0)).await;
        assert_unknown(unread.clone(), "since", Landing::Settled);
        assert_eq!(unread.holds(), [], "no news");
        let told = c.since(at(0)).await.holds();
        assert_eq!(told.contains(&cooling(&fast, 60)), landed, "{fault:?}");
        let want = if landed { Cool::Already(at(60)) } else { Cool::Cooled };
        assert_eq!(c.cool(&fast, at(60)).await.unwrap(), want, "{fault:?}");
        let unread = cooldowns_on(&t, &failing_at(&t, Verb::Read, fault)).await;
        assert_unknown(unread.cool(&fast, at(90)).await, "cool", Landing::Settled);
    }
}

/// A word that was begun is told to the end, whoever goes away meanwhile; and it takes no longer than it may.
pub async fn a_word_is_told_to_the_end_and_in_time<S: Store>(t: Fixture<S>) {
    let c = cooldowns(&t).await;
    let slow = |wait| failing_at(&t, Verb::Put, Fault::Delay(wait));
    let fast = credential("fast", "sk-1");
    let f = cooldowns_on(&t, &slow(Duration::from_millis(50))).await;
    let told = eventually(&t.env, "the others are told", || async {
        assert!(f.cool(&fast, at(60)).now_or_never().is_none(), "it is given up at once");
        c.since(at(0)).await.ok()?.pop()
    })
    .await;
    assert_eq!(told, cooling(&fast, 60));
    let f = cooldowns_on(&t, &slow(Duration::from_secs(3600))).await;
    let late = unknown(f.cool(&fast, at(90)).await);
    assert_eq!((late.op, &*late.resource), ("cool", &*fast.to_string()));
    assert_eq!((late.cause, late.landing), (Cause::Timeout, Landing::InFlight));
}

/// A member that is behind knows an earlier instant. It makes nothing shorter, and a reader that it answers hears late.
pub async fn the_past_shortens_no_cooldown<S: Store>(t: Fixture<S>) {
    let behind = Arc::new(AtomicUsize::new(0));
    let left = behind.clone();
    let store = Faulty::new(t.store.clone(), t.env.clone(), move |call| {
        let take = |n: usize| n.checked_sub(1);
        let stale = matches!(call.verb, Verb::Read | Verb::Pass)
            && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if stale { Fault::Stale } else { Fault::None }
    });
    let (c, peer) = (cooldowns_on(&t, &store).await, cooldowns(&t).await);
    let fast = credential("fast", "sk-1");
    for until in [60, 120] {
        assert_eq!(c.cool(&fast, at(until)).await.unwrap(), Cool::Cooled);
        t.lists([cooling(&fast, until)], || async { c.since(at(0)).await.unwrap() }).await;
    }
    for reads in 1..4 {
        behind.store(reads, Ordering::Relaxed);
        assert_eq!(c.cool(&fast, at(90)).await.unwrap(), Cool::Already(at(120)), "{reads}");
    }
    behind.store(1, Ordering::Relaxed);
    assert_eq!(c.since(at(0)).await.unwrap(), [cooling(&fast, 60)], "an older row, which extends nothing");
    // And the next reading has it.
    t.lists([cooling(&fast, 120)], || async { c.since(at(0)).await.unwrap() }).await;
    t.lists([cooling(&fast, 120)], || async { peer.since(at(60)).await.unwrap() }).await;
}
