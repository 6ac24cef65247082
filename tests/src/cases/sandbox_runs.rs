//! Detached coding runs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Landing};
use coordproto::slot::SANDBOX_RUNS;
use engine::slots::sandbox_runs::{Create, Delete, SandboxRun, SandboxRuns, Update};
use engine::store::faulty::{Fault, Verb};
use engine::store::{Bucket, Store};
use futures_util::future::{join, join_all};

use crate::Fixture;
use crate::bench::{assert_refused, assert_unknown, bucket, counted, failing, failing_at, raw_key, stored, unknown};

async fn runs<S: Store>(store: &S, t: &Fixture<impl Store>) -> SandboxRuns<S> {
    SandboxRuns::open(store, &t.settings()).await.expect("the bucket opens")
}

fn run(turn: &str, record: impl Into<Bytes>, version: u64) -> SandboxRun {
    SandboxRun { turn: turn.to_owned(), record: record.into(), version }
}

async fn created<S: Store>(runs: &SandboxRuns<S>, turn: &str, record: impl Into<Bytes>) -> u64 {
    match runs.create(turn, record.into()).await.expect("a definite answer") {
        Create::Created(version) => version,
        Create::Exists(run) => panic!("{run:?} exists"),
    }
}

/// A run is created once, and whoever comes second is told what stands.
pub async fn a_run_is_created_once<S: Store>(t: Fixture<S>) {
    let r = runs(&t.store, &t).await;
    assert_eq!(r.get("t1").await.unwrap(), None);
    let version = created(&r, "t1", "one").await;
    assert_eq!(r.get("t1").await.unwrap(), Some(run("t1", "one", version)));
    assert_eq!(r.create("t1", "two".into()).await.unwrap(), Create::Exists(run("t1", "one", version)));
    assert_eq!(r.get("t1").await.unwrap(), Some(run("t1", "one", version)));
}

/// A record is bytes, none of them special: no byte at all, every byte, and what looks like another family's record.
pub async fn a_runs_bytes_come_back_as_they_are<S: Store>(t: Fixture<S>) {
    let r = runs(&t.store, &t).await;
    let whole: Vec<u8> = (0..=255).collect();
    let mut want = Vec::new();
    for (turn, bytes) in [("a", vec![]), ("b", whole), ("c", b"{\"not\": json".to_vec()), ("d", vec![0; 100_000])] {
        let version = created(&r, turn, bytes.clone()).await;
        want.push(run(turn, bytes, version));
        assert_eq!(r.get(turn).await.unwrap().as_ref(), want.last());
    }
    t.lists(want, || async { r.list().await.unwrap() }).await;
}

/// A change and a delete name the version that they were decided on; another version, 0 among them, changes nothing.
pub async fn every_change_of_a_run_is_conditional<S: Store>(t: Fixture<S>) {
    let r = runs(&t.store, &t).await;
    assert_eq!(r.update("t1", "x".into(), 0).await.unwrap(), Update::Gone);
    assert_eq!(r.delete("t1", 0).await.unwrap(), Delete::Gone);
    assert_eq!(bucket(&t, &SANDBOX_RUNS).await.get(&raw_key("t1")).await.unwrap(), None, "nothing was written");
    let first = created(&r, "t1", "one").await;
    let Update::Updated(second) = r.update("t1", "two".into(), first).await.unwrap() else { panic!("it stands") };
    assert!(second > first);
    let stands = run("t1", "two", second);
    for stale in [0, first] {
        assert_eq!(r.update("t1", "x".into(), stale).await.unwrap(), Update::Changed(stands.clone()), "at {stale}");
        assert_eq!(r.delete("t1", stale).await.unwrap(), Delete::Changed(stands.clone()), "at {stale}");
        assert_eq!(r.get("t1").await.unwrap(), Some(stands.clone()));
    }
    assert_eq!(r.delete("t1", second).await.unwrap(), Delete::Deleted);
    assert_eq!(r.get("t1").await.unwrap(), None);
    assert_eq!(bucket(&t, &SANDBOX_RUNS).await.get(&raw_key("t1")).await.unwrap(), None, "nothing is left of it");
    for version in [0, first, second] {
        assert_eq!(r.update("t1", "x".into(), version).await.unwrap(), Update::Gone, "at {version}");
        assert_eq!(r.delete("t1", version).await.unwrap(), Delete::Gone, "at {version}");
    }
    assert!(created(&r, "t1", "again").await > second, "a version is never given twice");
}

/// A version that no run has had is nobody's: what was never read removes nothing and changes nothing.
pub async fn a_version_from_nowhere_is_unknown_and_touches_nothing<S: Store>(t: Fixture<S>) {
    let r = runs(&t.store, &t).await;
    let version = created(&r, "t1", "one").await;
    for never in [version + 1, version + 1000] {
        assert_eq!(unknown(r.update("t1", "x".into(), never).await).op, "update");
        assert_eq!(unknown(r.delete("t1", never).await).op, "delete");
        assert_eq!(r.get("t1").await.unwrap(), Some(run("t1", "one", version)));
    }
}

/// A listing has every run, by turn id.
pub async fn runs_are_listed_by_turn<S: Store>(t: Fixture<S>) {
    let (r, b) = (runs(&t.store, &t).await, bucket(&t, &SANDBOX_RUNS).await);
    assert_eq!(r.list().await.unwrap(), []);
    let mut want = Vec::new();
    for turn in ["b", "a.b", "a-b", "a0", "a", "é", "*", "a:b", &"t".repeat(900)] {
        want.push(run(turn, turn.to_owned(), created(&r, turn, turn.to_owned()).await));
    }
    want.sort_unstable_by(|a, b| a.turn.cmp(&b.turn));
    stored(&b, &raw_key("of.two"), "segments").await;
    t.lists(want.clone(), || async { r.list().await.unwrap() }).await;
    let gone = want.remove(0);
    assert_eq!(r.delete(&gone.turn, gone.version).await.unwrap(), Delete::Deleted);
    t.lists(want, || async { r.list().await.unwrap() }).await;
}

/// Of many who create, update or delete one version at once, exactly one does; and of an update and a delete of one version.
pub async fn of_many_changes_of_a_run_one_happens<S: Store>(t: Fixture<S>) {
    let r = runs(&t.store, &t).await;
    for round in 0..5 {
        let told = join_all((0..8).map(|i| r.create("t1", i.to_string().into()))).await;
        let stands = r.get("t1").await.unwrap().expect("it is there");
        let told: Vec<Create> = told.into_iter().map(|told| told.expect("a definite answer")).collect();
        assert_eq!(told.iter().filter(|told| **told == Create::Created(stands.version)).count(), 1, "{told:?}");
        assert_eq!(told.iter().filter(|told| **told == Create::Exists(stands.clone())).count(), 7, "{told:?}");
        let told = join_all((0..8).map(|i| r.update("t1", i.to_string().into(), stands.version))).await;
        let now = r.get("t1").await.unwrap().expect("it is there");
        let told: Vec<Update> = told.into_iter().map(|told| told.expect("a definite answer")).collect();
        assert_eq!(told.iter().filter(|told| **told == Update::Updated(now.version)).count(), 1, "{told:?}");
        assert_eq!(told.iter().filter(|told| **told == Update::Changed(now.clone())).count(), 7, "{told:?}");
        let told = join_all((0..8).map(|_| r.delete("t1", now.version))).await;
        let told: Vec<Delete> = told.into_iter().map(|told| told.expect("a definite answer")).collect();
        assert_eq!(told.iter().filter(|told| **told == Delete::Deleted).count(), 1, "{told:?}");
        assert_eq!(told.iter().filter(|told| **told == Delete::Gone).count(), 7, "round {round}: {told:?}");
    }
    for round in 0..60 {
        let turn = format!("t{round}");
        let version = created(&r, &turn, "parked").await;
        // On members that are apart the two overlap at some distance or other.
        let late = async {
            t.env.sleep(Duration::from_micros(50 * (round % 20))).await;
            r.update(&turn, "resumed".into(), version).await.expect("a definite answer")
        };
        let (updated, deleted) = join(late, r.delete(&turn, version)).await;
        let stands = r.get(&turn).await.unwrap();
        match deleted.expect("a definite answer") {
            Delete::Deleted => assert_eq!((updated, stands), (Update::Gone, None), "round {round}"),
            Delete::Changed(seen) => {
                assert_eq!(updated, Update::Updated(seen.version), "round {round}");
                assert_eq!(stands, Some(seen));
            }
            Delete::Gone => panic!("nobody else deletes it"),
        }
    }
}

/// What breaks a rule is refused before anything is asked.
pub async fn a_bad_run_is_refused_before_anything_is_asked<S: Store>(t: Fixture<S>) {
    let (store, asked) = counted(&t);
    let r = runs(&store, &t).await;
    for turn in ["", &"a".repeat(5000), &"é".repeat(256)] {
        assert_refused(r.get(turn).await, "turn");
        assert_refused(r.create(turn, "x".into()).await, "turn");
        assert_refused(r.update(turn, "x".into(), 1).await, "turn");
        assert_refused(r.delete(turn, 1).await, "turn");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing was asked");
    let large = Bytes::from(vec![0; 2 << 20]);
    assert_refused(r.create("t1", large.clone()).await, "value");
    assert_refused(r.update("t1", large, 1).await, "value");
    assert_eq!(r.get("t1").await.unwrap(), None);
}

/// Without an answer nothing is said of a run, and what may have been written is told to be so.
pub async fn without_an_answer_nothing_is_said_of_a_run<S: Store>(t: Fixture<S>) {
    let r = runs(&t.store, &t).await;
    for (fault, landed) in [(Fault::DropRequest, false), (Fault::DropReply, true)] {
        let (old, end) = (format!("old-{fault:?}"), format!("end-{fault:?}"));
        let (old_at, end_at) = (created(&r, &old, "1").await, created(&r, &end, "1").await);
        let f = runs(&failing(&t, fault), &t).await;
        assert_unknown(f.get(&old).await, "get", Landing::Settled);
        assert_unknown(f.list().await, "list", Landing::Settled);
        assert_unknown(f.create("new", "1".into()).await, "create", Landing::InFlight);
        assert_unknown(f.update(&old, "2".into(), old_at).await, "update", Landing::InFlight);
        assert_unknown(f.update(&old, "2".into(), 0).await, "update", Landing::Settled);
        assert_unknown(f.delete(&end, end_at).await, "delete", Landing::InFlight);
        assert_unknown(f.delete(&end, 0).await, "delete", Landing::Settled);
        assert_eq!(r.get("new").await.unwrap().is_some(), landed, "{fault:?}");
        assert_eq!(r.get(&old).await.unwrap().map(|run| run.version != old_at), Some(landed), "{fault:?}");
        assert_eq!(r.get(&end).await.unwrap().is_none(), landed, "{fault:?}");
    }
}

/// A member that is behind says of a run what it was before. It changes nothing and is believed in nothing.
pub async fn the_past_changes_no_run<S: Store>(t: Fixture<S>) {
    let r = runs(&t.store, &t).await;
    let f = runs(&failing_at(&t, Verb::Read, Fault::Stale), &t).await;
    let first = created(&r, "t1", "one").await;
    f.get("t1").await.unwrap().expect("it is there");
    let Update::Updated(second) = r.update("t1", "two".into(), first).await.unwrap() else { panic!("it stands") };
    f.get("t1").await.unwrap().expect("it was changed");
    assert_eq!(f.get("t1").await.unwrap(), Some(run("t1", "one", first)), "it is behind from now on");
    for lost in [f.update("t1", "x".into(), first).await.map(drop), f.delete("t1", first).await.map(drop)] {
        let lost = unknown(lost);
        assert_eq!((lost.cause, lost.landing), (Cause::Contended { rounds: 8 }, Landing::Settled));
    }
    assert_eq!(r.get("t1").await.unwrap(), Some(run("t1", "two", second)));
    // The marker decided; that it could not be erased changes no answer.
    let f = runs(&failing_at(&t, Verb::Purge, Fault::DropRequest), &t).await;
    assert_eq!(f.delete("t1", second).await.unwrap(), Delete::Deleted);
    assert_eq!(f.get("t1").await.unwrap(), None);
    t.lists([], || async { f.list().await.unwrap() }).await;
    assert_eq!(f.delete("t1", second).await.unwrap(), Delete::Gone);
    assert!(created(&f, "t1", "again").await > second);
}
