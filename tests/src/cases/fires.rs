//! Claimed dispatches.

use coordproto::slot::FIRES;
use engine::slots::fires::{FailsClosed, Fire, Fires};
use engine::store::Store;
use engine::store::counting::Counting;
use engine::store::faulty::Fault;
use futures_util::future::join_all;
use jiff::Timestamp;

use crate::Fixture;
use crate::rows::{bucket, faulty, may_land, refused, settled, stands, stored, unasked, unreadable};

async fn fires<S: Store, T: Store>(t: &Fixture<T>, store: &S) -> Fires<S> {
    Fires::open(store, &t.settings()).await.expect("the bucket opens")
}

fn at() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("an instant")
}

/// A dispatch is claimed by the first who claims it, and by nobody after.
pub async fn a_fire_is_claimed_once<S: Store>(t: Fixture<S>) {
    let f = fires(&t, &t.store).await;
    assert_eq!(f.claim_fire("standup|2026-01-02T09:00", at()).await.unwrap(), Fire::Claimed);
    for _ in 0..3 {
        assert_eq!(f.claim_fire("standup|2026-01-02T09:00", at()).await.unwrap(), Fire::Taken);
    }
    assert_eq!(f.claim_fire("standup|2026-01-03T09:00", at()).await.unwrap(), Fire::Claimed, "another is another");
    let b = bucket(&t, &FIRES).await;
    let (_, record) = stands(&b, "standup=7C2026-01-02T09=3A00").await.expect("it is recorded");
    assert_eq!(record.as_deref(), Some(&br#"{"at":"2026-01-02T03:04:05Z"}"#[..]));
}

/// Of many who claim at once one fires.
pub async fn of_many_who_claim_a_fire_one_fires<S: Store>(t: Fixture<S>) {
    let f = fires(&t, &t.store).await;
    for round in 0..5 {
        let name = format!("standup {round}");
        let told = join_all((0..32).map(|_| f.claim_fire(&name, at()))).await;
        assert!(told.iter().all(Result::is_ok), "round {round}: {told:?}");
        assert_eq!(told.into_iter().filter(|told| told.clone().fails_closed()).count(), 1, "round {round}");
    }
}

/// A dispatch without a name is refused before anything is asked, and nobody fires it.
pub async fn a_fire_without_a_name_is_refused<S: Store>(t: Fixture<S>) {
    let store = Counting::new(t.store.clone());
    let f = fires(&t, &store).await;
    store.take();
    for name in ["", &"é".repeat(400)] {
        let told = f.claim_fire(name, at()).await;
        assert!(!told.clone().fails_closed());
        assert_eq!(refused(told), "fire");
    }
    unasked(&store);
}

/// A claim without an answer may have landed, and is not fired; whoever asks again after that is told that it is taken.
pub async fn an_unanswered_fire_is_not_fired<S: Store>(t: Fixture<S>) {
    let f = fires(&t, &t.store).await;
    for (name, fault, then) in [("lost", Fault::DropRequest, Fire::Claimed), ("landed", Fault::DropReply, Fire::Taken)]
    {
        let told = fires(&t, &faulty(&t, fault)).await.claim_fire(name, at()).await;
        assert!(!told.clone().fails_closed(), "{name}");
        may_land(told);
        assert_eq!(f.claim_fire(name, at()).await.unwrap(), then, "{name}");
    }
    let told = fires(&t, &unreadable(&t)).await.claim_fire("lost", at()).await;
    assert!(!told.clone().fails_closed());
    settled(told);
}

/// A claim is its being there: one that nobody can read, and one that a newer build wrote, are claims.
pub async fn a_fire_that_cannot_be_read_is_taken<S: Store>(t: Fixture<S>) {
    let (f, b) = (fires(&t, &t.store).await, bucket(&t, &FIRES).await);
    for (name, value) in [("garbage", "garbage"), ("newer", r#"{"by":"n1"}"#)] {
        let revision = stored(&b, name, value).await;
        assert_eq!(f.claim_fire(name, at()).await.unwrap(), Fire::Taken);
        assert_eq!(stands(&b, name).await, Some((revision, Some(value.into()))), "nothing was written");
    }
}
