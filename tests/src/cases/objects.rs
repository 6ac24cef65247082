//! Where the company's files are, and what the collector found.

use coordproto::record::objects::CollectionRecord;
use coordproto::slot::OBJECTS;
use engine::slots::objects::{FailsClosed, MustNotBoot, Objects};
use engine::store::counting::Counting;
use engine::store::faulty::Fault;
use engine::store::{Bucket, Store, VALUE_BYTES_MAX};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::Fixture;
use crate::rows::{bucket, faulty, may_land, refused, settled, stands, stored, unasked, undecodable, unreadable};

async fn objects<S: Store, T: Store>(t: &Fixture<T>, store: &S) -> Objects<S> {
    Objects::open(store, &t.settings()).await.expect("the bucket opens")
}

fn pass(node: &str, found: Value) -> CollectionRecord {
    CollectionRecord { node: node.to_owned(), at: "2026-01-02T03:04:05Z".parse().expect("an instant"), found }
}

/// The first node's store is the one, and every node is told it, to the byte.
pub async fn the_first_backend_is_the_one<S: Store>(t: Fixture<S>) {
    let o = objects(&t, &t.store).await;
    let first = "s3:https://s3.example:9000/files/ä/";
    for backend in [first, "nats", first, "s3:https://s3.example:9000/files/a/"] {
        assert_eq!(o.agree_backend(backend).await.unwrap(), first);
    }
    assert_eq!(bucket(&t, &OBJECTS).await.age(), None, "it is standing state");
}

/// Of many nodes that boot at once all are told the same store.
pub async fn of_many_that_boot_all_agree_on_one_backend<S: Store>(t: Fixture<S>) {
    let o = objects(&t, &t.store).await;
    let backends: Vec<String> = (0..16).map(|i| format!("s3:e/b{i}/")).collect();
    let told = join_all(backends.iter().map(|backend| o.agree_backend(backend))).await;
    let one = o.agree_backend("nats").await.unwrap();
    assert!(backends.contains(&one), "{one}");
    for told in told {
        assert_eq!(told.expect("a definite answer"), one);
    }
}

/// The newest pass replaces the one before, and stands beside the backend.
pub async fn the_newest_collection_is_told<S: Store>(t: Fixture<S>) {
    let o = objects(&t, &t.store).await;
    assert_eq!(o.collection().await.unwrap(), None);
    o.agree_backend("nats").await.unwrap();
    for pass in [pass("n1", json!({"orphans": 3})), pass("n2", json!([])), pass("n2", Value::Null)] {
        o.record_collection(&pass).await.unwrap();
        assert_eq!(o.collection().await.unwrap(), Some(pass));
    }
    assert_eq!(o.agree_backend("s3:e/b/").await.unwrap(), "nats");
}

/// What has no name, and a report too large, are refused before anything is asked.
pub async fn a_backend_without_a_name_is_refused<S: Store>(t: Fixture<S>) {
    let store = Counting::new(t.store.clone());
    let o = objects(&t, &store).await;
    store.take();
    assert_eq!(refused(o.agree_backend("").await), "backend");
    assert_eq!(refused(o.record_collection(&pass("", Value::Null)).await), "node");
    unasked(&store);
    let large = json!("x".repeat(VALUE_BYTES_MAX));
    assert_eq!(refused(o.record_collection(&pass("n1", large)).await), "value");
    assert_eq!(o.collection().await.unwrap(), None);
}

/// Without an answer nobody agrees, and nothing is said of the collector.
pub async fn without_an_answer_nobody_agrees_on_a_backend<S: Store>(t: Fixture<S>) {
    let o = objects(&t, &t.store).await;
    settled(objects(&t, &unreadable(&t)).await.collection().await);
    for (fault, landed) in [(Fault::DropRequest, false), (Fault::DropReply, true)] {
        let f = objects(&t, &faulty(&t, fault)).await;
        settled(f.collection().await);
        may_land(f.record_collection(&pass("n1", Value::Null)).await);
        assert_eq!(o.collection().await.unwrap().is_some(), landed, "{fault:?}");
        let unanswered = f.agree_backend("nats").await;
        may_land(unanswered.clone());
        assert!(matches!(unanswered.fails_closed("nats"), Err(MustNotBoot::Unknown(_))), "no answer, no boot");
        assert_eq!(stands(&bucket(&t, &OBJECTS).await, "backend").await.is_some(), landed, "{fault:?}");
    }
    settled(objects(&t, &unreadable(&t)).await.agree_backend("nats").await);
    assert_eq!(o.agree_backend("s3:e/b/").await.unwrap(), "nats", "it had landed");
    assert_eq!(o.agree_backend("nats").await.fails_closed("nats"), Ok(()));
    let differs = o.agree_backend("s3:e/b/").await.fails_closed("s3:e/b/").unwrap_err();
    assert!(differs.to_string().contains("in \"nats\"") && differs.to_string().contains("s3:e/b/"), "{differs}");
    assert!(matches!(o.agree_backend("").await.fails_closed(""), Err(MustNotBoot::BadArgument(_))));
}

/// A backend that cannot be read is unknown, and nobody records another in its place.
pub async fn a_backend_that_cannot_be_read_is_unknown<S: Store>(t: Fixture<S>) {
    let (o, b) = (objects(&t, &t.store).await, bucket(&t, &OBJECTS).await);
    for value in ["garbage", "{}", r#"{"backend":""}"#, r#"{"backend":null}"#] {
        let revision = stored(&b, "backend", value).await;
        undecodable(o.agree_backend("nats").await, "backend");
        assert_eq!(stands(&b, "backend").await.expect("it stands").0, revision);
    }
    stored(&b, "backend", r#"{"v":2,"backend":"s3:e/b/"}"#).await;
    assert_eq!(o.agree_backend("nats").await.unwrap(), "s3:e/b/", "a newer build's");
    stored(&b, "collection", "garbage").await;
    undecodable(o.collection().await, "collection");
    o.record_collection(&pass("n1", Value::Null)).await.unwrap();
    assert_eq!(o.collection().await.unwrap(), Some(pass("n1", Value::Null)), "the next pass puts it right");
}
