//! Which node keeps a batch.

use coordproto::slot::CUSTODY;
use engine::slots::custody::{Copy, Custody, Holds};
use engine::store::Store;
use engine::store::counting::Counting;
use engine::store::faulty::Fault;
use futures_util::future::join_all;

use crate::Fixture;
use crate::rows::{bucket, faulty, may_land, refused, settled, stands, stored, unasked, undecodable, unreadable};

async fn custody<S: Store, T: Store>(t: &Fixture<T>, store: &S) -> Custody<S> {
    Custody::open(store, &t.settings()).await.expect("the bucket opens")
}

/// The first who claims a batch keeps it, and everyone is told so, that one too.
pub async fn a_batch_has_one_keeper<S: Store>(t: Fixture<S>) {
    let c = custody(&t, &t.store).await;
    for node in ["n1", "n2", "n1", "n3"] {
        assert_eq!(c.claim_custody("b/1", node).await.unwrap(), "n1", "asked by {node}");
    }
    assert_eq!(c.claim_custody("b/2", "n2").await.unwrap(), "n2", "another is another");
}

/// Of many who claim at once all are told the same one.
pub async fn of_many_who_claim_a_batch_all_are_told_one_keeper<S: Store>(t: Fixture<S>) {
    let c = custody(&t, &t.store).await;
    for round in 0..5 {
        let batch = format!("b{round}");
        let nodes: Vec<String> = (0..16).map(|i| format!("n{i}")).collect();
        let told = join_all(nodes.iter().map(|node| c.claim_custody(&batch, node))).await;
        let keeper = c.claim_custody(&batch, "late").await.unwrap();
        assert!(nodes.contains(&keeper), "round {round}: {keeper}");
        for told in told {
            assert_eq!(told.expect("a definite answer"), keeper, "round {round}");
        }
    }
}

/// Without a batch or a node nothing is asked.
pub async fn custody_of_nothing_is_refused<S: Store>(t: Fixture<S>) {
    let store = Counting::new(t.store.clone());
    let c = custody(&t, &store).await;
    store.take();
    for (batch, node, what) in [("", "n1", "batch"), ("b", "", "node"), (&*"a".repeat(2000), "n1", "batch")] {
        assert_eq!(refused(c.claim_custody(batch, node).await), what);
    }
    unasked(&store);
}

/// Without an answer nobody is told a keeper; asked again, whoever has it is told that.
pub async fn without_an_answer_nobody_is_told_a_keeper<S: Store>(t: Fixture<S>) {
    let c = custody(&t, &t.store).await;
    for (batch, fault, keeper) in [("lost", Fault::DropRequest, "n2"), ("landed", Fault::DropReply, "n1")] {
        let unanswered = custody(&t, &faulty(&t, fault)).await.claim_custody(batch, "n1").await;
        may_land(unanswered.clone());
        assert_eq!(unanswered.holds("n1").unwrap(), Copy::KeepAndAskAgain, "its copy may be the only one");
        for node in ["n2", "n1"] {
            let told = c.claim_custody(batch, node).await;
            assert_eq!(told.as_deref(), Ok(keeper));
            assert_eq!(told.holds(node).unwrap(), if node == keeper { Copy::Keep } else { Copy::Delete });
        }
    }
    settled(custody(&t, &unreadable(&t)).await.claim_custody("lost", "n1").await);
    assert_eq!(c.claim_custody("", "n1").await.holds("n1").unwrap_err().what, "batch");
}

/// A keeper that cannot be read is unknown, and is not replaced.
pub async fn a_keeper_that_cannot_be_read_is_unknown<S: Store>(t: Fixture<S>) {
    let (c, b) = (custody(&t, &t.store).await, bucket(&t, &CUSTODY).await);
    for value in ["garbage", r#"{"batch":"b"}"#, r#"{"batch":"b","node":""}"#, r#"{"batch":"c","node":"n1"}"#] {
        let revision = stored(&b, "b", value).await;
        undecodable(c.claim_custody("b", "n1").await, "b");
        assert_eq!(stands(&b, "b").await.expect("it stands").0, revision);
    }
    stored(&b, "b", r#"{"events":4,"batch":"b","node":"n9"}"#).await;
    assert_eq!(c.claim_custody("b", "n1").await.unwrap(), "n9", "a newer build's");
}
