//! What each node managed to apply.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Error, Landing};
use coordproto::key::Key;
use coordproto::record::status::{self, ApplyStatus, CUT, StatusRecord};
use coordproto::slot::{Retention, STATUS};
use engine::slots::Settings;
use engine::slots::status::{NodeStatus, Statuses};
use engine::store::faulty::{Call, Fault, Faulty, Verb};
use engine::store::{Bucket, Expect, Put, Store, VALUE_BYTES_MAX, Write};
use futures_util::future::join_all;

use crate::{Fixture, eventually};

async fn statuses<S: Store>(t: &Fixture<S>) -> Statuses<S> {
    on(t, &t.store).await
}

async fn on<S: Store, T: Store>(t: &Fixture<S>, store: &T) -> Statuses<T> {
    Statuses::open(store, &t.settings()).await.expect("the bucket opens")
}

/// The bucket below, to write what this build does not write.
async fn bucket<S: Store>(t: &Fixture<S>) -> S::Bucket {
    t.settings().open(&t.store, &STATUS).await.expect("the bucket opens")
}

async fn stored<B: Bucket>(bucket: &B, key: &Key, write: Write) {
    let put = bucket.put(key, write, Expect::Any).await.expect("a definite answer");
    assert!(matches!(put, Put::Stored(_)), "{put:?}");
}

fn ok(epoch: u64) -> StatusRecord {
    StatusRecord { epoch, revision: format!("cfg-{epoch}"), status: ApplyStatus::Ok, error: String::new() }
}

fn failed(epoch: u64, error: &str) -> StatusRecord {
    StatusRecord { status: ApplyStatus::Error, error: error.to_owned(), ..ok(epoch) }
}

/// The fleet's nodes and what they reported, in the order that they are told.
async fn fleet<S: Store>(s: &Statuses<S>) -> Vec<(String, StatusRecord)> {
    let told = s.fleet().await.expect("a definite answer");
    told.nodes.into_iter().map(|NodeStatus { node, report, .. }| (node, report)).collect()
}

fn rows(want: &[(&str, StatusRecord)]) -> Vec<(String, StatusRecord)> {
    want.iter().map(|(node, report)| ((*node).to_owned(), report.clone())).collect()
}

/// Waits until the broker's clock has moved on, so that what is written now is written later.
async fn later<S: Store>(t: &Fixture<S>) {
    t.env.sleep(Duration::from_millis(2)).await;
}

/// Every node's last report is told, the freshest first; a node that reports again moves to the front.
pub async fn the_fleet_is_told_freshest_first<S: Store>(t: Fixture<S>) {
    let s = statuses(&t).await;
    assert_eq!(fleet(&s).await, []);
    let degraded = StatusRecord { status: ApplyStatus::Degraded, ..failed(41, "half of it") };
    for (node, report) in [("n2", ok(40)), ("n1", failed(41, "no such image")), ("n3", degraded.clone())] {
        s.record_apply(node, &report).await.unwrap();
        later(&t).await;
    }
    let want = rows(&[("n3", degraded.clone()), ("n1", failed(41, "no such image")), ("n2", ok(40))]);
    t.lists(want, || fleet(&s)).await;
    s.record_apply("n2", &ok(41)).await.unwrap();
    later(&t).await;
    // The same again is a report too, and so is one of an epoch that went before.
    s.record_apply("n1", &failed(40, "no such image")).await.unwrap();
    let want = rows(&[("n1", failed(40, "no such image")), ("n2", ok(41)), ("n3", degraded)]);
    t.lists(want, || fleet(&s)).await;
    let told = s.fleet().await.unwrap();
    assert!(told.nodes.iter().all(|row| row.reported_at <= told.clock), "{told:?}");
    assert!(told.nodes.is_sorted_by(|a, b| a.reported_at >= b.reported_at), "{told:?}");
}

/// Of reports of one instant the nodes' ids decide, and of many reports of one node at once one stands, whole.
pub async fn many_report_at_once<S: Store>(t: Fixture<S>) {
    let s = statuses(&t).await;
    let names: Vec<String> = (0..16).map(|i| format!("n{i:02}")).collect();
    for told in join_all(names.iter().map(|node| {
        let s = &s;
        async move { s.record_apply(node, &ok(1)).await }
    }))
    .await
    {
        told.unwrap();
    }
    let told = s.fleet().await.unwrap();
    assert!(told.nodes.is_sorted_by_key(|row| (std::cmp::Reverse(row.reported_at), row.node.clone())), "{told:?}");
    let mut nodes: Vec<String> = told.nodes.into_iter().map(|row| row.node).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, names);
    let reports: Vec<StatusRecord> = (1..17).map(|epoch| failed(epoch, &format!("error {epoch}"))).collect();
    for told in join_all(reports.iter().map(|report| s.record_apply("n00", report))).await {
        told.unwrap();
    }
    let good =
        |told: &Vec<(String, StatusRecord)>| told.len() == 16 && told[0].0 == "n00" && reports.contains(&told[0].1);
    let told = t.listed(|| fleet(&s), good).await;
    assert!(good(&told), "{told:?}");
}

/// An error is at most 2,000 bytes in the store, cut between characters, and says that it was cut.
pub async fn a_long_error_is_cut_by_the_store<S: Store>(t: Fixture<S>) {
    let (s, b) = (statuses(&t).await, bucket(&t).await);
    for (error, size) in [
        (format!("a{}", "é".repeat(1_500)), 1_999),
        (format!("ab{}", "🙂".repeat(600)), 1_998),
        ("x".repeat(8 << 20), 2_000),
    ] {
        s.record_apply("n1", &failed(1, &error)).await.unwrap();
        let told = t.listed(|| fleet(&s), |told| told[0].1.error.len() == size).await;
        let kept = &told[0].1.error;
        assert_eq!(kept.len(), size);
        assert!(error.starts_with(kept.strip_suffix(CUT).expect("a mark")));
        let value = b.get(&status::key("n1").unwrap()).await.unwrap().unwrap().value.unwrap();
        assert!(value.len() < 2_100, "and no more than that is in the store");
    }
    for error in ["x".repeat(2_000), "é".repeat(1_000), String::new()] {
        s.record_apply("n1", &failed(1, &error)).await.unwrap();
        t.lists(error, || async { fleet(&s).await.remove(0).1.error }).await;
    }
}

/// A node's id is kept byte for byte, or refused before anything is asked; and so is a record that no value can hold.
pub async fn node_ids_are_kept_to_the_byte_or_refused<S: Store>(t: Fixture<S>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let store = Faulty::new(t.store.clone(), t.env.clone(), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Fault::None
    });
    let s = on(&t, &store).await;
    for node in ["", &"a".repeat(5_000)] {
        let Err(Error::BadArgument(refused)) = s.record_apply(node, &ok(1)).await else { panic!("{node:?}") };
        assert_eq!(refused.what, "node");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing was asked");
    let immense = StatusRecord { revision: "r".repeat(VALUE_BYTES_MAX), ..ok(1) };
    let Err(Error::BadArgument(refused)) = s.record_apply("n1", &immense).await else { panic!("it fits nowhere") };
    assert_eq!(refused.what, "value");
    let mut nodes: Vec<String> = ["node-0", "A.b_C-1", "a.b", "a:b", "*", ">", " ", "é", "e\u{301}", "🙂", "a\u{0}b"]
        .map(str::to_owned)
        .to_vec();
    for node in &nodes {
        s.record_apply(node, &ok(1)).await.unwrap();
    }
    let mut told: Vec<String> = fleet(&s).await.into_iter().map(|(node, _)| node).collect();
    told.sort_unstable();
    nodes.sort_unstable();
    assert_eq!(told, nodes);
}

/// A row that cannot be read is no report, and neither is one that was removed or has a key of another shape; the others stand.
pub async fn an_unreadable_report_is_left_out<S: Store>(t: Fixture<S>) {
    let (s, b) = (statuses(&t).await, bucket(&t).await);
    s.record_apply("n1", &ok(1)).await.unwrap();
    for broken in ["garbage", "", "{}", r#"{"epoch":1,"revision":"cfg-1","status":"splendid"}"#] {
        stored(&b, &status::key("n2").unwrap(), Write::Value(Bytes::from(broken))).await;
        t.lists(rows(&[("n1", ok(1))]), || fleet(&s)).await;
    }
    stored(&b, &Key::parse("a.b").unwrap(), Write::Value(ok(1).encode())).await;
    stored(&b, &status::key("n3").unwrap(), Write::Removal).await;
    t.lists(rows(&[("n1", ok(1))]), || fleet(&s)).await;
    later(&t).await;
    let newer = r#"{"epoch":7,"revision":"cfg-7","status":"ok","shards":{"n":3}}"#;
    stored(&b, &status::key("n4").unwrap(), Write::Value(Bytes::from(newer))).await;
    later(&t).await;
    s.record_apply("n2", &ok(2)).await.unwrap();
    // What a newer build adds is no obstacle.
    let newest = || async { fleet(&s).await[..2].to_vec() };
    t.lists(rows(&[("n2", ok(2)), ("n4", ok(7))]), newest).await;
}

/// A report that was unreadable once is not left out on the word of a member that is behind.
pub async fn the_past_leaves_no_report_out<S: Store>(t: Fixture<S>) {
    let (s, b) = (statuses(&t).await, bucket(&t).await);
    let faulty = Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::None);
    let f = on(&t, &faulty).await;
    stored(&b, &status::key("n1").unwrap(), Write::Value(Bytes::from("garbage"))).await;
    assert_eq!(fleet(&f).await, []);
    s.record_apply("n1", &ok(1)).await.unwrap();
    t.lists(rows(&[("n1", ok(1))]), || fleet(&f)).await;
    let reads = Arc::new(AtomicUsize::new(0));
    let count = reads.clone();
    faulty.choose(move |call: &Call<'_>| {
        count.fetch_add(usize::from(call.verb == Verb::Read), Ordering::Relaxed);
        if call.verb == Verb::Pass { Fault::Stale } else { Fault::None }
    });
    assert_eq!(fleet(&f).await, rows(&[("n1", ok(1))]));
    assert_eq!(reads.load(Ordering::Relaxed), 1, "the leader was asked");
    faulty.choose(|call: &Call<'_>| match call.verb {
        Verb::Pass => Fault::Stale,
        Verb::Read => Fault::DropRequest,
        _ => Fault::None,
    });
    assert_eq!(f.fleet().await.unwrap_err().op, "fleet", "and without its answer there is none");
}

/// Without an answer nothing is said of the fleet; and a report may still land, or has.
pub async fn without_an_answer_nothing_is_said_of_the_fleet<S: Store>(t: Fixture<S>) {
    let s = statuses(&t).await;
    s.record_apply("n1", &ok(1)).await.unwrap();
    for (fault, stands) in [(Fault::DropRequest, ok(1)), (Fault::DropReply, ok(2))] {
        let f = on(&t, &Faulty::new(t.store.clone(), t.env.clone(), move |_| fault)).await;
        let unknown = f.fleet().await.unwrap_err();
        assert_eq!((unknown.op, unknown.landing), ("fleet", Landing::Settled), "{unknown}");
        let unknown = f.record_apply("n1", &ok(2)).await.unwrap_err().unknown().cloned().expect("unknown");
        assert_eq!((unknown.op, &*unknown.resource, unknown.landing), ("record_apply", "n1", Landing::InFlight));
        t.lists(rows(&[("n1", stands)]), || fleet(&s)).await;
    }
}

/// A node that stops reporting is not told of any more after four intervals, and one that goes on is.
pub async fn a_node_that_stops_reporting_vanishes<S: Store>(t: Fixture<S>) {
    let retention = Retention { reconcile_interval: Duration::from_secs(1), ..Retention::default() };
    let s = Statuses::open(&t.store, &Settings { retention, ..t.settings() }).await.expect("the bucket opens");
    s.record_apply("gone", &ok(1)).await.unwrap();
    let gone_at = s.fleet().await.unwrap().nodes[0].reported_at;
    let mut epoch = 1;
    let told = eventually(&t.env, "it vanishes", || {
        epoch += 1;
        let (s, report) = (&s, ok(epoch));
        async move {
            s.record_apply("alive", &report).await.unwrap();
            let told = s.fleet().await.unwrap();
            // On a machine that is busy for so long even this one may have vanished again.
            let freshest = told.nodes.first()?.node.clone();
            assert!(freshest == "alive" || !t.leaps, "{told:?}");
            (told.nodes.len() == 1 && freshest == "alive").then_some(told)
        }
    })
    .await;
    assert!(told.clock >= gone_at + 4 * retention.reconcile_interval, "{told:?}");
}
