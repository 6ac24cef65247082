//! The instants that late work is done at.

use coordproto::record::rebase::RebaseRecord;
use coordproto::slot::REBASES;
use engine::slots::rebases::Rebases;
use engine::slots::rows::{Change, Row};
use engine::store::Store;
use engine::store::counting::Counting;
use engine::store::faulty::Fault;
use futures_util::future::join_all;
use jiff::Timestamp;

use crate::Fixture;
use crate::rows::{bucket, faulty, may_land, refused, settled, stored, unasked, undecodable, unreadable};

async fn rebases<S: Store, T: Store>(t: &Fixture<T>, store: &S) -> Rebases<S> {
    Rebases::open(store, &t.settings()).await.expect("the bucket opens")
}

/// An instant, told from the others by its nanoseconds.
fn at(nanosecond: i32) -> Timestamp {
    Timestamp::new(1_767_323_045, nanosecond).expect("an instant")
}

fn row(seed: &str, nanosecond: i32, revision: u64) -> Row<RebaseRecord> {
    Row { record: RebaseRecord { seed: seed.to_owned(), at: at(nanosecond) }, revision }
}

/// Records, and expects that it was.
async fn recorded<S: Store>(rebases: &Rebases<S>, seed: &str, nanosecond: i32, version: u64) -> u64 {
    match rebases.record_rebase(seed, at(nanosecond), version).await.expect("a definite answer") {
        Change::Stored(version) => version,
        other => panic!("{other:?}"),
    }
}

/// The first attempt's instant is recorded, and every later one inherits it to the nanosecond.
pub async fn a_rebase_is_recorded_once_and_inherited<S: Store>(t: Fixture<S>) {
    let r = rebases(&t, &t.store).await;
    assert_eq!(r.rebase("turn:7").await.unwrap(), None);
    let version = recorded(&r, "turn:7", 1, 0).await;
    assert_eq!(r.rebase("turn:7").await.unwrap(), Some(row("turn:7", 1, version)));
    let told = r.record_rebase("turn:7", at(2), 0).await.unwrap();
    assert_eq!(told, Change::Changed(row("turn:7", 1, version)));
    let other = recorded(&r, "turn", 3, 0).await;
    assert_eq!(r.rebase("turn").await.unwrap(), Some(row("turn", 3, other)), "another's is another");
}

/// An instant is replaced at the version that was read, and at no other.
pub async fn a_rebase_is_replaced_at_its_version<S: Store>(t: Fixture<S>) {
    let r = rebases(&t, &t.store).await;
    let first = recorded(&r, "a", 1, 0).await;
    let second = recorded(&r, "a", 2, first).await;
    for version in [0, first] {
        let told = r.record_rebase("a", at(3), version).await.unwrap();
        assert_eq!(told, Change::Changed(row("a", 2, second)), "at {version}");
    }
    assert_eq!(r.rebase("a").await.unwrap(), Some(row("a", 2, second)));
    assert_eq!(r.record_rebase("never", at(3), first).await.unwrap(), Change::Gone);
    assert_eq!(r.rebase("never").await.unwrap(), None, "nothing was written");
    recorded(&r, "never", 4, 0).await;
}

/// Of many attempts at once one records, and all inherit what it did.
pub async fn of_many_attempts_one_records_its_instant<S: Store>(t: Fixture<S>) {
    let r = rebases(&t, &t.store).await;
    let mut version = 0;
    for round in 0..5 {
        let told = join_all((0..16).map(|i| r.record_rebase("a", at(16 * round + i), version))).await;
        let stands = r.rebase("a").await.unwrap().expect("it is recorded");
        let mut stored = Vec::new();
        for (i, told) in (0..16).zip(told) {
            match told.expect("a definite answer") {
                Change::Stored(version) => stored.push(row("a", 16 * round + i, version)),
                other => assert_eq!(other, Change::Changed(stands.clone()), "round {round}"),
            }
        }
        assert_eq!(stored, std::slice::from_ref(&stands), "round {round}");
        version = stands.revision;
    }
}

/// Work without a name is refused before anything is asked.
pub async fn a_rebase_of_nothing_is_refused<S: Store>(t: Fixture<S>) {
    let store = Counting::new(t.store.clone());
    let r = rebases(&t, &store).await;
    store.take();
    for seed in ["", &"a".repeat(2000)] {
        assert_eq!(refused(r.rebase(seed).await), "seed");
        for version in [0, 1] {
            assert_eq!(refused(r.record_rebase(seed, at(1), version).await), "seed");
        }
    }
    unasked(&store);
}

/// Without an answer no instant is recorded, and none is said not to be.
pub async fn without_an_answer_nothing_is_said_of_a_rebase<S: Store>(t: Fixture<S>) {
    let r = rebases(&t, &t.store).await;
    let version = recorded(&r, "a", 1, 0).await;
    for (seed, fault, landed) in [("lost", Fault::DropRequest, false), ("landed", Fault::DropReply, true)] {
        let f = rebases(&t, &faulty(&t, fault)).await;
        settled(f.rebase("a").await);
        may_land(f.record_rebase(seed, at(2), 0).await);
        may_land(f.record_rebase("a", at(3), version).await);
        assert_eq!(r.rebase(seed).await.unwrap().is_some(), landed);
        let stands = r.rebase("a").await.unwrap().expect("it is recorded");
        assert_eq!(stands.record.at == at(3), landed);
    }
    let f = rebases(&t, &unreadable(&t)).await;
    for version in [0, version] {
        settled(f.record_rebase("a", at(4), version).await);
    }
}

/// An instant that cannot be read is unknown, by name; nobody mints another in its place without having seen its version.
pub async fn a_rebase_that_cannot_be_read_is_unknown<S: Store>(t: Fixture<S>) {
    let (r, b) = (rebases(&t, &t.store).await, bucket(&t, &REBASES).await);
    let version = recorded(&r, "a", 1, 0).await;
    for value in ["garbage", "{}", r#"{"seed":"b","at":"2026-01-02T03:04:05Z"}"#] {
        let broken = stored(&b, "a", value).await;
        undecodable(r.rebase("a").await, "a");
        for version in [0, version] {
            undecodable(r.record_rebase("a", at(2), version).await, "a");
        }
        recorded(&r, "a", 3, broken).await;
    }
    stored(&b, "a", r#"{"v":{"n":2},"seed":"a","at":"2026-01-02T03:04:05.000000009Z"}"#).await;
    assert_eq!(r.rebase("a").await.unwrap().expect("a newer build's").record.at, at(9));
}
