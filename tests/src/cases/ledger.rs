//! The completion ledger.

use std::sync::atomic::Ordering;

use coordproto::answer::Landing;
use coordproto::record::ledger::{self, LedgerRecord};
use coordproto::slot::LEDGER;
use engine::slots::ledger::{FailsOpen, Ledger, Recorded, Worked};
use engine::store::counting::{Calls, Counting};
use engine::store::faulty::{Fault, Faulty, Verb};
use engine::store::{Bucket, Expect, Put, Store, VALUE_BYTES_MAX, Write};
use futures_util::future::join_all;
use jiff::Timestamp;

use crate::Fixture;
use crate::bench::{
    assert_refused, assert_undecodable, assert_unknown, bucket, counted, failing, failing_at, stored, unknown,
};

async fn ledger<S: Store>(t: &Fixture<S>) -> Ledger<S> {
    ledger_on(t, &t.store).await
}

async fn ledger_on<S: Store, T: Store>(t: &Fixture<S>, store: &T) -> Ledger<T> {
    Ledger::open(store, &t.settings()).await.expect("the bucket opens")
}

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("an instant")
}

async fn recorded<S: Store>(ledger: &Ledger<S>, scope: &str, key: &str, detail: &str) -> Recorded {
    ledger.record(scope, key, detail, now()).await.expect("a definite answer")
}

/// The keys that were worked, and how.
fn told(worked: &Worked) -> Vec<(&str, &str)> {
    worked.records().iter().map(|(key, record)| (&**key, &*record.detail)).collect()
}

/// A trigger is recorded once, and whoever records it again has succeeded and changed nothing.
pub async fn a_trigger_is_recorded_once<S: Store>(t: Fixture<S>) {
    let l = ledger(&t).await;
    assert_eq!(told(&l.worked("alpha", &["e1"]).await.unwrap()), []);
    assert_eq!(recorded(&l, "alpha", "e1", "replied").await, Recorded::First);
    assert_eq!(recorded(&l, "alpha", "e1", "replied twice").await, Recorded::Before);
    let worked = l.worked("alpha", &["e1", "e2"]).await.unwrap();
    assert!(worked.contains("e1") && !worked.contains("e2"), "{worked:?}");
    assert_eq!(worked.records()["e1"], LedgerRecord { detail: "replied".into(), at: now() });
    // One that was taken out is not worked, and can be worked anew.
    let (b, key) = (bucket(&t, &LEDGER).await, ledger::key("alpha", "e1").unwrap());
    assert!(matches!(b.put(&key, Write::Removal, Expect::Any).await.unwrap(), Put::Stored(_)));
    assert_eq!(told(&l.worked("alpha", &["e1"]).await.unwrap()), []);
    assert_eq!(recorded(&l, "alpha", "e1", "again").await, Recorded::First);
}

/// A key is its scope's own, whatever the two are made of.
pub async fn a_trigger_is_its_scopes_own<S: Store>(t: Fixture<S>) {
    let l = ledger(&t).await;
    let pairs =
        [("alpha", "e1"), ("beta", "e1"), ("a|b", "c"), ("a", "b|c"), ("a.b", "c:d"), ("*", ">"), ("é", "\u{0}")];
    for (scope, key) in pairs {
        assert_eq!(told(&l.worked(scope, &[key]).await.unwrap()), [], "{scope} {key:?}");
        assert_eq!(recorded(&l, scope, key, scope).await, Recorded::First, "{scope} {key:?}");
    }
    for (scope, key) in pairs {
        assert_eq!(told(&l.worked(scope, &[key, "e2"]).await.unwrap()), [(key, scope)], "{scope} {key:?}");
    }
}

/// Many keys are read at once, one request for each and none for none.
pub async fn many_keys_are_one_answer<S: Store>(t: Fixture<S>) {
    let store = Counting::new(t.store.clone());
    let l = ledger_on(&t, &store).await;
    let keys: Vec<String> = (0..200).map(|nth| format!("e{nth:03}")).collect();
    let done: Vec<&str> = keys.iter().step_by(3).map(String::as_str).collect();
    let told_recorded = join_all(done.iter().map(|key| recorded(&l, "alpha", key, "done"))).await;
    assert!(told_recorded.iter().all(|told| *told == Recorded::First), "{told_recorded:?}");
    store.take();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let worked = l.worked("alpha", &keys).await.unwrap();
    assert_eq!(store.take(), Calls { read: 200, ..Calls::default() });
    assert_eq!(worked.records().keys().collect::<Vec<_>>(), done);
    assert_eq!(
        told(&l.worked("alpha", &["e000", "e000"]).await.unwrap()),
        [("e000", "done")],
        "asked twice, told once"
    );
    store.take();
    assert_eq!(l.worked("alpha", &[]).await.unwrap(), Worked::default());
    assert_eq!(store.take(), Calls::default());
}

/// Of many who record at once one is first, and its words stand.
pub async fn of_many_who_record_one_is_first<S: Store>(t: Fixture<S>) {
    let l = ledger(&t).await;
    for round in 0..5 {
        let key = format!("e{round}");
        let details: Vec<String> = (0..16).map(|nth| format!("by {nth}")).collect();
        let answers = join_all(details.iter().map(|detail| recorded(&l, "alpha", &key, detail))).await;
        let first: Vec<&String> =
            details.iter().zip(&answers).filter(|(_, told)| **told == Recorded::First).map(|(by, _)| by).collect();
        let worked = l.worked("alpha", &[&key]).await.unwrap();
        assert_eq!(first, [&worked.records()[&key].detail], "round {round}");
    }
}

/// What names no trigger, and what is too much to say of one, is refused before anything is asked.
pub async fn what_names_no_trigger_is_refused<S: Store>(t: Fixture<S>) {
    let (store, asked) = counted(&t);
    let l = ledger_on(&t, &store).await;
    let long = "a".repeat(5000);
    for (scope, key, what) in
        [("", "e1", "scope"), ("alpha", "", "key"), (&long, "e1", "scope"), ("alpha", &long, "key")]
    {
        assert_refused(l.record(scope, key, "done", now()).await, what);
        assert_refused(l.worked(scope, &["good", key]).await, what);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing was asked");
    let refused = ledger(&t).await.record("alpha", "e1", &"a".repeat(VALUE_BYTES_MAX), now()).await;
    assert_refused(refused, "value");
    assert_eq!(told(&l.worked("alpha", &["e1"]).await.unwrap()), []);
}

/// One key that cannot be read leaves the whole question without an answer, and the work is done.
pub async fn one_failed_read_fails_the_whole_answer<S: Store>(t: Fixture<S>) {
    let l = ledger(&t).await;
    let keys = ["e1", "e2", "e3"];
    for key in keys {
        assert_eq!(recorded(&l, "alpha", key, "done").await, Recorded::First);
    }
    for fault in [Fault::DropRequest, Fault::DropReply] {
        let lost = ledger::key("alpha", "e2").unwrap();
        let store =
            Faulty::new(
                t.store.clone(),
                t.env.clone(),
                move |call| {
                    if call.about == lost.as_str() { fault } else { Fault::None }
                },
            );
        let f = ledger_on(&t, &store).await;
        let unread = unknown(f.worked("alpha", &keys).await);
        assert_eq!((unread.op, &*unread.resource, unread.landing), ("worked", "alpha e2", Landing::Settled));
        let open = f.worked("alpha", &keys).await.fails_open().unwrap();
        assert!(keys.iter().all(|key| !open.contains(key)), "{open:?}");
        let rest = f.worked("alpha", &["e1", "e3"]).await.fails_open().unwrap();
        assert_eq!(told(&rest), [("e1", "done"), ("e3", "done")], "nothing else is in doubt");
    }
    assert_eq!(l.worked("", &keys).await.fails_open().unwrap_err().what, "scope");
}

/// A record that cannot be read is there, so nobody records over it; and what it says of its trigger is unknown.
pub async fn an_unreadable_record_is_unknown_and_stays<S: Store>(t: Fixture<S>) {
    let (l, b) = (ledger(&t).await, bucket(&t, &LEDGER).await);
    let key = ledger::key("alpha", "e1").unwrap();
    for broken in ["", "garbage", "{}", r#"{"detail":"done","at":"noon"}"#] {
        stored(&b, &key, broken).await;
        assert_undecodable(l.worked("alpha", &["e0", "e1"]).await, "worked", "alpha e1");
        assert_eq!(recorded(&l, "alpha", "e1", "done").await, Recorded::Before, "{broken:?}");
        assert_eq!(b.get(&key).await.unwrap().unwrap().value.as_deref(), Some(broken.as_bytes()));
    }
    stored(&b, &key, r#"{"turn":{"of":2},"detail":"done","at":"2026-01-02T03:04:05Z"}"#).await;
    assert_eq!(told(&l.worked("alpha", &["e1"]).await.unwrap()), [("e1", "done")], "a newer build's says more");
}

/// A record without an answer may stand, and is found when it does.
pub async fn a_record_without_an_answer_may_stand<S: Store>(t: Fixture<S>) {
    let l = ledger(&t).await;
    for (fault, landed) in [(Fault::DropRequest, false), (Fault::DropReply, true)] {
        let key = format!("{fault:?}");
        let f = ledger_on(&t, &failing(&t, fault)).await;
        assert_unknown(f.record("alpha", &key, "done", now()).await, "record", Landing::InFlight);
        assert_unknown(f.worked("alpha", &[&key]).await, "worked", Landing::Settled);
        assert_eq!(l.worked("alpha", &[&key]).await.unwrap().contains(&key), landed, "{fault:?}");
        let want = if landed { Recorded::Before } else { Recorded::First };
        assert_eq!(recorded(&l, "alpha", &key, "again").await, want, "{fault:?}");
        let unread = ledger_on(&t, &failing_at(&t, Verb::Read, fault)).await;
        assert_unknown(unread.record("alpha", &key, "more", now()).await, "record", Landing::Settled);
    }
}
