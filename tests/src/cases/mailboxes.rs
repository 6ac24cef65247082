//! Mailboxes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use coordproto::answer::{Cause, Landing};
use coordproto::record::mailbox::MailboxRecord;
use coordproto::slot::MAILBOXES;
use engine::slots::mailboxes::{Create, Delete, Mailbox, Mailboxes, Update};
use engine::store::faulty::{Fault, Verb};
use engine::store::{Bucket, Store};
use futures_util::future::{join, join_all};
use jiff::Timestamp;

use crate::Fixture;
use crate::bench::{
    assert_refused, assert_undecodable, assert_unknown, bucket, counted, failing, failing_at, raw_key, stored, unknown,
};

async fn mailboxes<S: Store>(store: &S, t: &Fixture<impl Store>) -> Mailboxes<S> {
    Mailboxes::open(store, &t.settings()).await.expect("the bucket opens")
}

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(1_767_322_800 + 60 * minute).expect("an instant")
}

fn present() -> MailboxRecord {
    MailboxRecord::default()
}

fn mailbox(handle: &str, record: &MailboxRecord, revision: u64) -> Mailbox {
    Mailbox { handle: handle.to_owned(), record: record.clone(), revision }
}

async fn created<S: Store>(mailboxes: &Mailboxes<S>, handle: &str, record: &MailboxRecord) -> u64 {
    match mailboxes.create(handle, record).await.expect("a definite answer") {
        Create::Created(revision) => revision,
        Create::Exists(mailbox) => panic!("{mailbox:?} exists"),
    }
}

async fn updated<S: Store>(mailboxes: &Mailboxes<S>, handle: &str, record: &MailboxRecord, revision: u64) -> u64 {
    match mailboxes.update(handle, record, revision).await.expect("a definite answer") {
        Update::Updated(revision) => revision,
        other => panic!("{other:?}"),
    }
}

/// A mailbox is recorded once, and whoever records it again is told what became of it.
pub async fn a_mailbox_is_recorded_once<S: Store>(t: Fixture<S>) {
    let m = mailboxes(&t.store, &t).await;
    assert_eq!(m.get("alpha").await.unwrap(), None);
    let first = created(&m, "alpha", &present()).await;
    let stands = mailbox("alpha", &present(), first);
    assert_eq!(m.create("alpha", &present().absent(at(9))).await.unwrap(), Create::Exists(stands.clone()));
    assert_eq!(m.get("alpha").await.unwrap(), Some(stands));
    let retiring = present().absent(at(0)).retiring(at(5));
    let second = updated(&m, "alpha", &retiring, first).await;
    assert_eq!(m.create("alpha", &present()).await.unwrap(), Create::Exists(mailbox("alpha", &retiring, second)));
}

/// A seat is missed, stamped, marked, and its record deleted; each step names the revision before it and no other.
pub async fn every_change_of_a_mailbox_is_conditional<S: Store>(t: Fixture<S>) {
    let m = mailboxes(&t.store, &t).await;
    assert_eq!(m.update("alpha", &present(), 0).await.unwrap(), Update::Gone);
    assert_eq!(m.delete("alpha", 0).await.unwrap(), Delete::Gone);
    assert_eq!(bucket(&t, &MAILBOXES).await.get(&raw_key("alpha")).await.unwrap(), None, "nothing was written");
    let (absent, retiring) = (present().absent(at(0)), present().absent(at(0)).retiring(at(5)));
    let first = created(&m, "alpha", &present()).await;
    let second = updated(&m, "alpha", &absent, first).await;
    let third = updated(&m, "alpha", &retiring, second).await;
    let stands = mailbox("alpha", &retiring, third);
    for stale in [0, first, second] {
        assert_eq!(m.update("alpha", &present(), stale).await.unwrap(), Update::Changed(stands.clone()), "at {stale}");
        assert_eq!(m.delete("alpha", stale).await.unwrap(), Delete::Changed(stands.clone()), "at {stale}");
    }
    assert_eq!(m.get("alpha").await.unwrap(), Some(stands));
    assert_eq!(m.delete("alpha", third).await.unwrap(), Delete::Deleted);
    assert_eq!(bucket(&t, &MAILBOXES).await.get(&raw_key("alpha")).await.unwrap(), None, "nothing is left of it");
    assert_eq!(m.update("alpha", &present(), third).await.unwrap(), Update::Gone);
    assert_eq!(m.delete("alpha", third).await.unwrap(), Delete::Gone);
    assert!(created(&m, "alpha", &present()).await > third, "a revision is never given twice");
}

/// A returning seat and the sweep write one record. Whatever the sweep is about to do, stamp, mark or delete, one of the two
/// happens and the other is told so; and a seat that comes back while its record is deleted ends up with a record of its own.
pub async fn a_returning_seat_and_the_sweep_do_not_both_win<S: Store>(t: Fixture<S>) {
    let m = mailboxes(&t.store, &t).await;
    for round in 0..60 {
        let handle = format!("seat-{round}");
        let absent = present().absent(at(0));
        let retiring = absent.retiring(at(5));
        let revision = created(&m, &handle, &absent).await;
        // On members that are apart the two overlap at some distance or other.
        let back = async {
            t.env.sleep(Duration::from_micros(50 * (round % 20))).await;
            m.update(&handle, &absent.present(), revision).await.expect("a definite answer")
        };
        let (back, marked) = join(back, m.update(&handle, &retiring, revision)).await;
        let stands = m.get(&handle).await.unwrap().expect("it stands");
        match (back, marked.expect("a definite answer")) {
            (Update::Updated(won), Update::Changed(seen)) => {
                assert_eq!((&seen, seen.revision, &seen.record), (&stands, won, &present()), "round {round}");
            }
            (Update::Changed(seen), Update::Updated(won)) => {
                assert_eq!((&seen, seen.revision, &seen.record), (&stands, won, &retiring), "round {round}");
            }
            both => panic!("round {round}: {both:?}"),
        }

        let revision = updated(&m, &handle, &retiring, stands.revision).await;
        let back = async {
            t.env.sleep(Duration::from_micros(50 * (round % 20))).await;
            m.update(&handle, &retiring.present(), revision).await.expect("a definite answer")
        };
        let (back, deleted) = join(back, m.delete(&handle, revision)).await;
        match (back, deleted.expect("a definite answer")) {
            (Update::Updated(won), Delete::Changed(seen)) => {
                assert_eq!(seen, mailbox(&handle, &present(), won), "round {round}");
                assert_eq!(m.get(&handle).await.unwrap(), Some(seen), "round {round}");
            }
            (Update::Gone, Delete::Deleted) => {
                assert_eq!(m.get(&handle).await.unwrap(), None, "round {round}");
                let anew = created(&m, &handle, &present()).await;
                assert!(anew > revision, "round {round}");
            }
            both => panic!("round {round}: {both:?}"),
        }

        let revision = m.get(&handle).await.unwrap().expect("it stands").revision;
        let (back, deleted) = join(m.create(&handle, &present()), m.delete(&handle, revision)).await;
        assert_eq!(deleted.expect("a definite answer"), Delete::Deleted, "a record that exists is not written over");
        let stands = m.get(&handle).await.unwrap();
        match back.expect("a definite answer") {
            Create::Created(won) => assert_eq!(stands, Some(mailbox(&handle, &present(), won)), "round {round}"),
            Create::Exists(_) => assert_eq!(stands, None, "round {round}"),
        }
    }
}

/// Of many nodes that record, stamp or delete at once, one has.
pub async fn of_many_changes_of_a_mailbox_one_happens<S: Store>(t: Fixture<S>) {
    let m = mailboxes(&t.store, &t).await;
    for round in 0..5 {
        let told = join_all((0..8).map(|_| async { m.create("alpha", &present()).await })).await;
        let told: Vec<Create> = told.into_iter().map(|told| told.expect("a definite answer")).collect();
        let stands = m.get("alpha").await.unwrap().expect("it stands");
        assert_eq!(told.iter().filter(|told| **told == Create::Created(stands.revision)).count(), 1, "{told:?}");
        assert_eq!(told.iter().filter(|told| **told == Create::Exists(stands.clone())).count(), 7, "{told:?}");
        let stamps: Vec<MailboxRecord> = (0..8).map(|i| present().absent(at(i))).collect();
        let told = join_all(stamps.iter().map(|stamp| m.update("alpha", stamp, stands.revision))).await;
        let told: Vec<Update> = told.into_iter().map(|told| told.expect("a definite answer")).collect();
        let stands = m.get("alpha").await.unwrap().expect("it stands");
        assert_eq!(told.iter().filter(|told| **told == Update::Updated(stands.revision)).count(), 1, "{told:?}");
        assert_eq!(told.iter().filter(|told| **told == Update::Changed(stands.clone())).count(), 7, "{told:?}");
        let told = join_all((0..8).map(|_| m.delete("alpha", stands.revision))).await;
        let told: Vec<Delete> = told.into_iter().map(|told| told.expect("a definite answer")).collect();
        assert_eq!(told.iter().filter(|told| **told == Delete::Deleted).count(), 1, "{told:?}");
        assert_eq!(told.iter().filter(|told| **told == Delete::Gone).count(), 7, "round {round}: {told:?}");
    }
}

/// A listing has every mailbox, by handle, and what a newer build keeps in a record is written back.
pub async fn mailboxes_are_listed_by_handle<S: Store>(t: Fixture<S>) {
    let (m, b) = (mailboxes(&t.store, &t).await, bucket(&t, &MAILBOXES).await);
    assert_eq!(m.list().await.unwrap(), []);
    let mut want = Vec::new();
    for (i, handle) in ["b", "a.b", "a-b", "a0", "a", "é", "*", "a:b", &"s".repeat(900)].into_iter().enumerate() {
        let record = if i % 2 == 0 { present() } else { present().absent(at(i as i64)) };
        want.push(mailbox(handle, &record, created(&m, handle, &record).await));
    }
    want.sort_unstable_by(|a, b| a.handle.cmp(&b.handle));
    stored(&b, &raw_key("of.two"), "segments").await;
    t.lists(want, || async { m.list().await.unwrap() }).await;
    let newer = stored(&b, &raw_key("a"), r#"{"moved_to":{"node":"n2"}}"#).await;
    let seen = m.get("a").await.unwrap().expect("it stands");
    updated(&m, "a", &seen.record.absent(at(1)), newer).await;
    let stands = m.get("a").await.unwrap().expect("it stands");
    assert_eq!((stands.record.absent_since, &stands.record.newer["moved_to"]["node"]), (Some(at(1)), &"n2".into()));
}

/// A record that cannot be read is unknown in every answer that it is part of, by name; corrected, it is a record.
pub async fn an_unreadable_mailbox_is_unknown<S: Store>(t: Fixture<S>) {
    let (m, b) = (mailboxes(&t.store, &t).await, bucket(&t, &MAILBOXES).await);
    let other = created(&m, "beta", &present()).await;
    let before = created(&m, "a.b", &present()).await;
    let broken = stored(&b, &raw_key("a=2Eb"), r#"{"absent_since":"soon"}"#).await;
    assert_undecodable(m.get("a.b").await, "get", "a.b");
    assert_undecodable(m.create("a.b", &present()).await, "create", "a.b");
    assert_undecodable(m.update("a.b", &present(), before).await, "update", "a.b");
    assert_undecodable(m.delete("a.b", before).await, "delete", "a.b");
    assert_undecodable(t.listed(|| m.list(), Result::is_err).await, "list", "a=2Eb");
    assert_eq!(m.get("beta").await.unwrap(), Some(mailbox("beta", &present(), other)), "the others are as they were");
    assert_eq!(b.get(&raw_key("a=2Eb")).await.unwrap().map(|version| version.revision), Some(broken));
    let revision = updated(&m, "a.b", &present(), broken).await;
    let want = vec![mailbox("a.b", &present(), revision), mailbox("beta", &present(), other)];
    t.lists(Some(want), || async { m.list().await.ok() }).await;
}

/// A handle that no seat can have is refused before anything is asked.
pub async fn a_bad_mailbox_is_refused_before_anything_is_asked<S: Store>(t: Fixture<S>) {
    let (store, asked) = counted(&t);
    let m = mailboxes(&store, &t).await;
    for handle in ["", ":", "a:", ":a", "a::b", &"a".repeat(5000), &"é".repeat(256)] {
        assert_refused(m.get(handle).await, "handle");
        assert_refused(m.create(handle, &present()).await, "handle");
        assert_refused(m.update(handle, &present(), 1).await, "handle");
        assert_refused(m.delete(handle, 1).await, "handle");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing was asked");
    let mut large = present();
    large.newer.insert("much".to_owned(), "x".repeat(2 << 20).into());
    assert_refused(m.create("alpha", &large).await, "value");
    assert_refused(m.update("alpha", &large, 1).await, "value");
}

/// Without an answer nothing is said of a mailbox, and what may have been written is told to be so.
pub async fn without_an_answer_nothing_is_said_of_a_mailbox<S: Store>(t: Fixture<S>) {
    let m = mailboxes(&t.store, &t).await;
    for (fault, landed) in [(Fault::DropRequest, false), (Fault::DropReply, true)] {
        let (old, end) = (format!("old-{fault:?}"), format!("end-{fault:?}"));
        let (old_at, end_at) = (created(&m, &old, &present()).await, created(&m, &end, &present()).await);
        let f = mailboxes(&failing(&t, fault), &t).await;
        assert_unknown(f.get(&old).await, "get", Landing::Settled);
        assert_unknown(f.list().await, "list", Landing::Settled);
        assert_unknown(f.create("new", &present()).await, "create", Landing::InFlight);
        assert_unknown(f.update(&old, &present().absent(at(0)), old_at).await, "update", Landing::InFlight);
        assert_unknown(f.update(&old, &present().absent(at(0)), 0).await, "update", Landing::Settled);
        assert_unknown(f.delete(&end, end_at).await, "delete", Landing::InFlight);
        assert_unknown(f.delete(&end, 0).await, "delete", Landing::Settled);
        assert_eq!(m.get("new").await.unwrap().is_some(), landed, "{fault:?}");
        assert_eq!(m.get(&old).await.unwrap().map(|mailbox| mailbox.revision != old_at), Some(landed), "{fault:?}");
        assert_eq!(m.get(&end).await.unwrap().is_none(), landed, "{fault:?}");
    }
}

/// A member that is behind says of a seat that it is missing when it is back. Nothing is retired on its word.
pub async fn the_past_retires_nothing<S: Store>(t: Fixture<S>) {
    let m = mailboxes(&t.store, &t).await;
    let f = mailboxes(&failing_at(&t, Verb::Read, Fault::Stale), &t).await;
    let absent = present().absent(at(0));
    let first = created(&m, "alpha", &absent).await;
    f.get("alpha").await.unwrap().expect("it is missing");
    let back = updated(&m, "alpha", &present(), first).await;
    f.get("alpha").await.unwrap().expect("it is back");
    assert_eq!(f.get("alpha").await.unwrap(), Some(mailbox("alpha", &absent, first)), "it is behind from now on");
    let marked = f.update("alpha", &absent.retiring(at(5)), first).await.map(drop);
    for lost in [marked, f.delete("alpha", first).await.map(drop)] {
        let lost = unknown(lost);
        assert_eq!((lost.cause, lost.landing), (Cause::Contended { rounds: 8 }, Landing::Settled));
    }
    assert_eq!(m.get("alpha").await.unwrap(), Some(mailbox("alpha", &present(), back)));
}
