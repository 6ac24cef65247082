//! Batched direct gets against brokers: what one answer holds, and what becomes of one that does not come.

#![expect(clippy::unwrap_used, reason = "a test that meets an error ends with it")]

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Landing, Unknown};
use coordproto::api::requests::{Storage, StreamConfig};
use coordproto::api::{Marker, Put};
use engine::broker::{Cluster, Settings};
use engine::env::Env;
use engine::jetstream::{Jetstream, Kind, Many, Meter, Options, Record, Snapshot, Tombstone, Values, Write};
use engine::tasks;
use futures_util::StreamExt;
use futures_util::stream;

const STREAM: &str = "KV_t";

async fn cluster(members: u8) -> Cluster {
    // Longer than the default: several suites may share two cores.
    let settings = Settings { ready_within: Duration::from_secs(60), ..Settings::new(members) };
    Cluster::start(settings, Env::system()).await.unwrap()
}

/// A connection to the first member, and a bucket of one-revision records with as many copies as there are members.
async fn bucket(cluster: &Cluster) -> Jetstream {
    let (urls, base) = (&cluster.access().urls()[..1], cluster.access().connect_options().await.unwrap());
    let js = Jetstream::connect(Env::seeded(1), urls, base, Options::named("test")).await.unwrap();
    let config = StreamConfig::bucket("t", Duration::ZERO, Storage::File, cluster.members().len());
    // A server that listens may still be starting JetStream, and a write reaches a stream only once its member has heard of
    // it.
    until(&js, async || js.create_stream(&config, js.deadline()).await.is_ok()).await;
    until(&js, async || js.put("$KV.t.first", Write::default(), Bytes::new(), js.deadline()).await.is_ok()).await;
    until(&js, async || js.purge(STREAM, "$KV.t.>", None, js.deadline()).await.is_ok()).await;
    js
}

async fn until(js: &Jetstream, condition: impl AsyncFn() -> bool) {
    let env = js.env();
    let waited = env.within(env.now() + Duration::from_secs(60), async {
        while !condition().await {
            env.sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.expect("the condition did not come about within 60 s");
}

async fn put(js: &Jetstream, key: &str, write: Write, value: &str) -> u64 {
    let value = Bytes::copy_from_slice(value.as_bytes());
    match js.put(&format!("$KV.t.{key}"), write, value, js.deadline()).await.unwrap() {
        Put::Stored { revision, .. } => revision,
        Put::Lost(race) => panic!("lost: {race:?}"),
    }
}

/// Writes `<prefix>.0000` and so on.
async fn fill(js: &Jetstream, prefix: &str, keys: usize) {
    let writes = (0..keys).map(|n| async move { put(js, &format!("{prefix}.{n:04}"), Write::at(0), "v").await });
    stream::iter(writes).buffer_unordered(64).for_each(|_| async {}).await;
}

async fn many(js: &Jetstream, keys: &[&str]) -> Result<Many, Unknown> {
    let subjects: Vec<String> = keys.iter().map(|key| format!("$KV.t.{key}")).collect();
    js.last_many(STREAM, &subjects, js.deadline()).await
}

async fn snapshot(js: &Jetstream, keys: &[&str]) -> Snapshot {
    match many(js, keys).await.unwrap() {
        Many::Snapshot(snapshot) => snapshot,
        Many::TooMuch => panic!("{keys:?}: too much"),
    }
}

fn names(records: &[Record]) -> Vec<&str> {
    let mut names: Vec<&str> = records.iter().map(|record| record.subject.strip_prefix("$KV.t.").unwrap()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_class_and_one_key_beside_it_come_in_one_round_trip() {
    let cluster = cluster(1).await;
    let js = bucket(&cluster).await;
    fill(&js, "a", 100).await;
    let barrier = put(&js, "b.x", Write::at(0), "barrier").await;
    put(&js, "c.other", Write::at(0), "v").await;
    let before = js.stats();
    let (found, cost) = Meter::measure(snapshot(&js, &["a.*", "b.x"])).await;
    assert_eq!(found.records.len(), 101);
    assert_eq!(found.last_seq, Some(barrier + 1), "as far as the stream, not as far as what matches");
    assert!(found.records.windows(2).all(|pair| pair[0].revision < pair[1].revision));
    let last = &found.records[100];
    assert_eq!(
        (&*last.subject, last.revision, &last.value[..], last.marker),
        ("$KV.t.b.x", barrier, &b"barrier"[..], None)
    );
    let leaders = js.last(STREAM, "$KV.t.b.x", js.deadline()).await.unwrap().unwrap();
    assert_eq!(last.time, leaders.time);
    // A busy machine may draw a second attempt, which is counted beside the request.
    let spent = js.stats().since(&before);
    assert_eq!((cost.requests, cost.rounds, spent.of(Kind::Direct)), (1, 1, 1));
    assert_eq!(cost.resends, spent.resends);
    assert!(cost.bytes_out > 40 && cost.bytes_in > 101 * 100, "{cost:?}");
    assert_eq!(js.stats().in_flight, 0);
}

#[tokio::test]
async fn a_record_that_several_filters_match_comes_once() {
    let cluster = cluster(1).await;
    let js = bucket(&cluster).await;
    fill(&js, "a", 3).await;
    let found = snapshot(&js, &["a.0001", "a.*", ">", "a.0001"]).await;
    assert_eq!(names(&found.records), ["a.0000", "a.0001", "a.0002"]);
}

#[tokio::test]
async fn a_key_without_a_record_is_left_out() {
    let cluster = cluster(1).await;
    let js = bucket(&cluster).await;
    let found = snapshot(&js, &["a.0000"]).await;
    assert_eq!(found, Snapshot { records: vec![], last_seq: None }, "a stream without a record");
    fill(&js, "a", 3).await;
    let found = snapshot(&js, &["a.0002", "a.9999", "a.0000", "b.none"]).await;
    assert_eq!(names(&found.records), ["a.0000", "a.0002"]);
    assert_eq!(snapshot(&js, &["b.none", "b.*"]).await, Snapshot { records: vec![], last_seq: None });
    let sent = js.stats().total();
    assert_eq!(snapshot(&js, &[]).await, Snapshot::default());
    assert_eq!(js.stats().total(), sent);
}

#[tokio::test]
async fn markers_are_told_from_records_here_and_in_a_pass_without_values() {
    let cluster = cluster(1).await;
    let js = bucket(&cluster).await;
    let tombstone = |tombstone, revision| Write { tombstone: Some(tombstone), ..Write::at(revision) };
    for (key, gone) in [("a.0", None), ("a.1", Some(Tombstone::Delete)), ("a.2", Some(Tombstone::Purge))] {
        let revision = put(&js, key, Write::at(0), "value").await;
        if let Some(gone) = gone {
            put(&js, key, tombstone(gone, revision), "").await;
        }
    }
    put(&js, "a.3", Write::at(0), "").await;
    let want = [("a.0", None), ("a.1", Some(Marker::Delete)), ("a.2", Some(Marker::Purge)), ("a.3", None)]
        .map(|(key, marker)| (format!("$KV.t.{key}"), marker));
    let found = snapshot(&js, &["a.*"]).await;
    let told: Vec<_> = found.records.iter().map(|r| (r.subject.to_string(), r.marker)).collect();
    assert_eq!(told, want);
    let mut pass = js.pass(STREAM, "$KV.t.a.*", Values::Without, js.deadline()).await.unwrap();
    for record in found.records {
        let delivered = pass.next(js.deadline()).await.unwrap().record;
        assert_eq!(delivered, Record { value: Bytes::new(), ..record });
    }
    pass.end(js.deadline()).await.unwrap();
}

#[tokio::test]
async fn more_than_one_answer_carries_is_too_much() {
    let cluster = cluster(1).await;
    let js = bucket(&cluster).await;
    fill(&js, "a", 1024).await;
    assert_eq!(snapshot(&js, &["a.*"]).await.records.len(), 1024);
    fill(&js, "b", 1).await;
    assert_eq!(many(&js, &["a.*", "b.*"]).await, Ok(Many::TooMuch));
    // A request that the broker would end the connection for is not sent.
    let long = "k".repeat(1100);
    let sent = js.stats().total();
    assert_eq!(many(&js, &vec![&*long; 1024]).await, Ok(Many::TooMuch));
    assert_eq!((js.stats().total(), js.stats().disconnects), (sent, 0));
    assert_eq!(snapshot(&js, &vec![&*long; 900]).await, Snapshot::default());
}

#[tokio::test]
async fn where_no_member_answers_nothing_is_said_about_the_records() {
    let cluster = cluster(1).await;
    let js = bucket(&cluster).await;
    let soon = js.env().now() + Duration::from_secs(3);
    let nobody = js.last_many("KV_none", &["$KV.none.a"], soon).await;
    assert_eq!(nobody, Err(Unknown::settled("batched read", "KV_none", Cause::NoResponders)));
    assert!(js.stats().resends > 0);
    assert_eq!(js.stats().in_flight, 0);
}

/// A connection without the layer under test. A server ends one whose client is slow to say who it is.
async fn plain(cluster: &Cluster) -> async_nats::Client {
    let env = Env::system();
    let deadline = env.now() + Duration::from_secs(60);
    loop {
        match cluster.access().connect_options().await.unwrap().connect(cluster.access().urls()).await {
            Ok(client) => return client,
            Err(error) => assert!(env.now() < deadline, "{error}"),
        }
    }
}

/// The stream's members take no direct gets at first, and somebody else answers in their place.
#[tokio::test]
async fn an_answer_that_cannot_be_believed_is_asked_for_again() {
    let cluster = cluster(1).await;
    let js = bucket(&cluster).await;
    fill(&js, "a", 3).await;
    let mut config = js.info(STREAM, None, js.deadline()).await.unwrap().unwrap().config().unwrap();
    config.allow_direct = false;
    js.update_stream(&config, js.deadline()).await.unwrap();

    let client = plain(&cluster).await;
    let mut heard = client.subscribe("$JS.API.DIRECT.GET.KV_t").await.unwrap();
    client.flush().await.unwrap();
    let asking = {
        let js = js.clone();
        tasks::spawn(async move { snapshot(&js, &["a.*"]).await })
    };
    for _ in 0..2 {
        let request = heard.next().await.unwrap();
        assert_eq!(request.payload, r#"{"multi_last":["$KV.t.a.*"]}"#);
        client.publish(request.reply.unwrap(), "a record without headers".into()).await.unwrap();
    }
    config.allow_direct = true;
    js.update_stream(&config, js.deadline()).await.unwrap();
    assert_eq!(names(&asking.join().await.records), ["a.0000", "a.0001", "a.0002"]);
}

#[tokio::test]
async fn a_lost_connection_ends_every_attempt_at_once() {
    let cluster = cluster(1).await;
    let js = bucket(&cluster).await;
    fill(&js, "a", 3).await;
    cluster.members()[0].pause().await.unwrap();
    let far = js.env().now() + Duration::from_secs(3600);
    let asking = {
        let js = js.clone();
        tasks::spawn(async move { js.last_many(STREAM, &["$KV.t.a.*"], far).await })
    };
    until(&js, async || js.stats().resends >= 1 && js.stats().in_flight >= 2).await;
    cluster.members()[0].kill().await.unwrap();
    let unknown = asking.join().await.unwrap_err();
    assert_eq!((unknown.cause, unknown.landing), (Cause::Disconnected, Landing::Settled));
    assert_eq!(js.stats().in_flight, 0);
    let sent = js.stats().total();
    assert_eq!(js.last_many(STREAM, &["$KV.t.a.*"], far).await.unwrap_err().cause, Cause::Disconnected);
    assert_eq!(js.stats().total(), sent);
}

#[tokio::test]
async fn a_frozen_member_stops_no_batch() {
    let cluster = cluster(3).await;
    let js = bucket(&cluster).await;
    let first = put(&js, "a.first", Write::at(0), "v").await;
    fill(&js, "a", 100).await;
    let [_own, others @ ..] = cluster.members() else { panic!("three members") };
    // A member takes part once it has nearly caught up with the stream; until it does, no request goes to it. The client's own
    // must, so that one is left whoever is frozen: it answers by itself then.
    until(&js, async || {
        for member in others {
            member.pause().await.unwrap();
        }
        let soon = js.env().now() + Duration::from_millis(200);
        let alone = js.last_many(STREAM, &["$KV.t.a.*"], soon).await.is_ok();
        others.iter().for_each(|member| member.resume().unwrap());
        alone
    })
    .await;
    // Each of the others in turn, until one was frozen that takes part.
    let turn = Cell::new(0);
    until(&js, async || {
        let member = &others[turn.replace(turn.get() + 1) % 2];
        let before = js.stats();
        member.pause().await.unwrap();
        for n in 0..30 {
            let found = match many(&js, &["a.*"]).await {
                Ok(Many::Snapshot(found)) => found,
                other => panic!("batch {n}: {other:?}"),
            };
            // A member that is behind has what there was when the stream had come so far, and all of it.
            let revisions: Vec<u64> = found.records.iter().map(|record| record.revision).collect();
            let until = found.last_seq.map_or(first, |last| last + 1);
            assert_eq!(revisions, (first..until).collect::<Vec<_>>(), "batch {n}");
        }
        member.resume().unwrap();
        let spent = js.stats().since(&before);
        assert_eq!((spent.of(Kind::Direct), spent.in_flight), (30, 0));
        spent.resends > 0
    })
    .await;
}
