//! The client layer against a broker: one server, restarted, frozen and killed.

#![expect(clippy::unwrap_used, reason = "a test that meets an error ends with it")]

use std::time::Duration;

use async_nats::ConnectOptions;
use bytes::Bytes;
use coordproto::answer::{Cause, Error, Landing, Unknown};
use coordproto::api::requests::{Storage, StreamConfig};
use coordproto::api::verdict::Created;
use coordproto::api::{Leadership, Marker, Put, Race, Stored};
use engine::broker::{Cluster, Member, Settings};
use engine::env::Env;
use engine::jetstream::{Jetstream, Kind, Meter, Options, Tombstone, Values, Write};
use engine::tasks;
use futures_util::StreamExt;

const STREAM: &str = "KV_t";

const LEADERLESS: &str =
    r#"{"error":{"code":503,"err_code":10008,"description":"unavailable"},"stream":"KV_x","seq":0}"#;

/// A broker for one test.
struct Server(Cluster);

async fn server() -> Server {
    // Longer than the default: several suites may share two cores.
    let settings = Settings { ready_within: Duration::from_secs(60), ..Settings::new(1) };
    Server(Cluster::start(settings, Env::system()).await.unwrap())
}

impl Server {
    fn member(&self) -> &Member {
        &self.0.members()[0]
    }

    async fn freeze(&self) {
        self.member().pause().await.unwrap();
    }

    fn thaw(&self) {
        self.member().resume().unwrap();
    }

    async fn kill(&self) {
        self.member().kill().await.unwrap();
    }

    async fn start(&self) {
        self.member().start().await.unwrap();
    }

    async fn options(&self) -> ConnectOptions {
        self.0.access().connect_options().await.unwrap()
    }
}

async fn connect(server: &Server) -> Jetstream {
    connect_with(server, Options::named("test")).await
}

async fn connect_with(server: &Server, options: Options) -> Jetstream {
    let (urls, base) = (server.0.access().urls(), server.options().await);
    Jetstream::connect(Env::seeded(1), urls, base, options).await.unwrap()
}

/// A connection, and a bucket of one-revision records.
async fn bucket(server: &Server) -> Jetstream {
    let jetstream = connect(server).await;
    let config = StreamConfig::bucket("t", Duration::ZERO, Storage::File, 1);
    // A server that listens may still be starting JetStream.
    until(&jetstream, async || jetstream.create_stream(&config, jetstream.deadline()).await == Ok(Created::Stands))
        .await;
    jetstream
}

async fn until(jetstream: &Jetstream, condition: impl AsyncFn() -> bool) {
    let env = jetstream.env();
    let waited = env.within(env.now() + Duration::from_secs(30), async {
        while !condition().await {
            env.sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.expect("the condition did not come about within 30 s");
}

async fn put(jetstream: &Jetstream, key: &str, write: Write, value: &'static str) -> Put {
    let subject = format!("$KV.t.{key}");
    jetstream.put(&subject, write, Bytes::from_static(value.as_bytes()), jetstream.deadline()).await.unwrap()
}

async fn last(jetstream: &Jetstream, key: &str) -> Result<Option<Stored>, Unknown> {
    jetstream.last(STREAM, &format!("$KV.t.{key}"), jetstream.deadline()).await
}

fn stored(put: Put) -> u64 {
    match put {
        Put::Stored { revision, .. } => revision,
        Put::Lost(race) => panic!("lost: {race:?}"),
    }
}

#[tokio::test]
async fn a_record_lives_through_its_revisions() {
    let server = server().await;
    let js = bucket(&server).await;
    assert_eq!(last(&js, "a").await, Ok(None));
    let first = stored(put(&js, "a", Write::at(0), "one").await);
    assert_eq!(put(&js, "a", Write::at(0), "again").await, Put::Lost(Race::Newer(first)));
    let second = stored(put(&js, "a", Write::at(first), "two").await);
    assert_eq!(put(&js, "a", Write::at(first), "late").await, Put::Lost(Race::Newer(second)));
    let found = last(&js, "a").await.unwrap().unwrap();
    assert_eq!((found.revision, &found.value[..], found.marker), (second, &b"two"[..], None));

    let gone = Write { tombstone: Some(Tombstone::Delete), ..Write::at(second) };
    let third = stored(put(&js, "a", gone, "").await);
    assert_eq!(last(&js, "a").await.unwrap().unwrap().marker, Some(Marker::Delete));
    let purge = Write { tombstone: Some(Tombstone::Purge), ..Write::at(third) };
    let fourth = stored(put(&js, "a", purge, "").await);
    assert_eq!(last(&js, "a").await.unwrap().unwrap().marker, Some(Marker::Purge));

    let purge_through = |through| js.purge(STREAM, "$KV.t.a", Some(through), js.deadline());
    assert_eq!(purge_through(fourth - 1).await, Ok(0));
    assert_eq!(purge_through(fourth).await, Ok(1));
    assert_eq!(last(&js, "a").await, Ok(None));
    assert_eq!(put(&js, "a", Write::at(fourth), "x").await, Put::Lost(Race::Vanished));
    stored(put(&js, "a", Write::default(), "unconditional").await);
}

#[tokio::test]
async fn the_index_names_every_subject_and_only_those_asked_for() {
    let server = server().await;
    let js = bucket(&server).await;
    for key in ["a.x", "a.y", "b.x"] {
        stored(put(&js, key, Write::at(0), "v").await);
    }
    let index = js.info(STREAM, Some("$KV.t.a.>"), js.deadline()).await.unwrap().unwrap();
    assert_eq!(index.subjects.iter().collect::<Vec<_>>(), ["$KV.t.a.x", "$KV.t.a.y"]);
    assert_eq!((index.total, index.messages, index.last_seq), (2, 3, 3));
    assert_eq!(index.leadership, Leadership::Single);
    let nothing = js.info(STREAM, Some("$KV.t.none.>"), js.deadline()).await.unwrap().unwrap();
    assert!(nothing.subjects.is_empty());
    assert!(js.info("KV_none", None, js.deadline()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_configuration_is_read_changed_and_sent_back() {
    let server = server().await;
    let js = bucket(&server).await;
    let config = async || js.info(STREAM, None, js.deadline()).await.unwrap().unwrap().config().unwrap();
    let mut changed = config().await;
    changed.max_age = Duration::from_secs(600);
    js.update_stream(&changed, js.deadline()).await.unwrap();
    assert_eq!(config().await.max_age, Duration::from_secs(600));
    let differing = StreamConfig::bucket("t", Duration::from_secs(1), Storage::File, 1);
    assert_eq!(js.create_stream(&differing, js.deadline()).await, Ok(Created::Differs));
}

#[tokio::test]
async fn a_stream_made_again_is_not_taken_for_a_stale_answer() {
    let server = server().await;
    let js = bucket(&server).await;
    stored(put(&js, "a", Write::at(0), "v").await);
    assert_eq!(js.info(STREAM, None, js.deadline()).await.unwrap().unwrap().last_seq, 1);
    let other = connect(&server).await;
    assert_eq!(other.delete_stream(STREAM, other.deadline()).await, Ok(true));
    assert_eq!(other.delete_stream(STREAM, other.deadline()).await, Ok(false));
    bucket(&server).await;
    assert_eq!(js.info(STREAM, None, js.deadline()).await.unwrap().unwrap().last_seq, 0);
}

#[tokio::test]
async fn a_write_that_no_stream_takes_did_not_happen() {
    let server = server().await;
    let js = bucket(&server).await;
    let lost = js.put("$KV.none.a", Write::at(0), Bytes::new(), js.deadline()).await;
    assert_eq!(lost, Err(Unknown::settled("put", "$KV.none.a", Cause::NoResponders).into()));
}

#[tokio::test]
async fn a_value_over_the_limit_is_refused_and_harms_nobody() {
    let server = server().await;
    let js = bucket(&server).await;
    let write =
        async |len: usize| js.put("$KV.t.big", Write::default(), Bytes::from(vec![b'x'; len]), js.deadline()).await;
    let limit = js.max_payload();
    assert!(write(limit).await.is_ok());
    for len in [limit + 1, 8 * limit] {
        match write(len).await {
            Err(Error::BadArgument(error)) => {
                let text = error.to_string();
                assert!(text.contains(&len.to_string()) && text.contains(&limit.to_string()), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(js.put("$KV.t.big", Write::at(1), Bytes::from(vec![b'x'; limit]), js.deadline()).await.is_err());
    stored(put(&js, "a", Write::at(0), "v").await);
    assert_eq!(js.stats().disconnects, 0);
}

#[tokio::test]
async fn a_pass_delivers_every_record_and_then_every_change() {
    let server = server().await;
    let js = bucket(&server).await;
    for n in 0..300 {
        stored(put(&js, &format!("a.{n:03}"), Write::at(0), "v").await);
    }
    stored(put(&js, "a.000", Write { tombstone: Some(Tombstone::Delete), ..Write::at(1) }, "").await);
    stored(put(&js, "b.other", Write::at(0), "v").await);
    let mut pass = js.pass(STREAM, "$KV.t.a.>", Values::With, js.deadline()).await.unwrap();
    assert_eq!(pass.to_deliver(), 300);
    let mut seen = Vec::new();
    loop {
        let delivery = pass.next(js.deadline()).await.unwrap();
        seen.push((delivery.record.subject.to_string(), delivery.record.marker));
        if delivery.pending == 0 {
            break;
        }
    }
    seen.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(seen.len(), 300);
    assert_eq!(seen[0], ("$KV.t.a.000".to_owned(), Some(Marker::Delete)));
    assert_eq!(seen[299], ("$KV.t.a.299".to_owned(), None));
    let change = stored(put(&js, "a.007", Write::default(), "new").await);
    let delivery = pass.next(js.deadline()).await.unwrap();
    assert_eq!((delivery.record.revision, &delivery.record.value[..]), (change, &b"new"[..]));
    // A deadline does not end a pass.
    let soon = pass.next(js.env().now()).await.unwrap_err();
    assert_eq!(soon.cause, Cause::Timeout);
    let change = stored(put(&js, "a.008", Write::default(), "new").await);
    assert_eq!(pass.next(js.deadline()).await.unwrap().record.revision, change);
    pass.end(js.deadline()).await.unwrap();
    assert_eq!(consumers(&js).await, 0);
}

async fn consumers(js: &Jetstream) -> u64 {
    js.info(STREAM, None, js.deadline()).await.unwrap().unwrap().consumers
}

#[tokio::test]
async fn a_pass_that_is_dropped_leaves_no_consumer_behind() {
    let server = server().await;
    let js = bucket(&server).await;
    drop(js.pass(STREAM, "$KV.t.>", Values::With, js.deadline()).await.unwrap());
    until(&js, async || consumers(&js).await == 0).await;
}

#[tokio::test]
async fn a_pass_that_took_several_consumers_leaves_one() {
    let server = server().await;
    let js = bucket(&server).await;
    for key in ["a", "b", "c"] {
        stored(put(&js, key, Write::at(0), "v").await);
    }
    server.freeze().await;
    let opening = {
        let js = js.clone();
        tasks::spawn(async move { js.pass(STREAM, "$KV.t.>", Values::With, js.deadline()).await.unwrap() })
    };
    until(&js, async || js.stats().of(Kind::ConsumerCreate) >= 2 && js.stats().resends >= 2).await;
    server.thaw();
    let mut pass = opening.join().await;
    assert_eq!(pass.to_deliver(), 3);
    until(&js, async || consumers(&js).await == 1).await;
    for pending in [2, 1, 0] {
        assert_eq!(pass.next(js.deadline()).await.unwrap().pending, pending);
    }
    pass.end(js.deadline()).await.unwrap();
    assert_eq!(consumers(&js).await, 0);
}

#[tokio::test]
async fn a_lost_connection_ends_what_is_under_way_and_comes_back() {
    let server = server().await;
    let js = bucket(&server).await;
    let mut pass = js.pass(STREAM, "$KV.t.>", Values::With, js.deadline()).await.unwrap();
    let mut link = js.link();
    // Frozen, the server answers nothing, so that all of these are under way when it dies.
    server.freeze().await;
    let far = js.env().now() + Duration::from_secs(300);
    let under_way: Vec<_> = (0..100)
        .map(|n| {
            let js = js.clone();
            tasks::spawn(async move {
                let subject = format!("$KV.t.{n}");
                let read = js.last(STREAM, &subject, far);
                let write = js.put(&subject, Write::at(0), Bytes::new(), far);
                let (read, write) = tokio::join!(read, write);
                (read.unwrap_err(), write.unwrap_err())
            })
        })
        .collect();
    // Every write, and as many reads as may be under way.
    until(&js, async || js.stats().in_flight == 100 + 64).await;
    server.kill().await;
    for task in under_way {
        let (read, write) = task.join().await;
        assert_eq!((read.cause, read.landing), (Cause::Disconnected, Landing::Settled));
        let write = write.unknown().cloned().unwrap();
        assert_eq!((write.cause, write.landing), (Cause::Disconnected, Landing::InFlight));
    }
    link.wait_for(|link| !link.up && link.losses == 1).await.unwrap();
    assert_eq!(pass.next(far).await.unwrap_err().cause, Cause::Disconnected);
    assert_eq!(js.stats().in_flight, 0);
    // Without a connection nothing waits and nothing is queued.
    let sent = js.stats().total();
    let refused = last(&js, "a").await.unwrap_err();
    assert_eq!((refused.cause, refused.landing), (Cause::Disconnected, Landing::Settled));
    assert!(js.publish("$KV.t.a", Bytes::new()).await.is_err());
    assert_eq!(js.stats().total(), sent);

    server.start().await;
    link.wait_for(|link| link.up).await.unwrap();
    until(&js, async || last(&js, "fresh").await == Ok(None)).await;
    stored(put(&js, "fresh", Write::at(0), "v").await);
}

#[tokio::test]
async fn a_read_asks_again_until_its_deadline_and_a_write_does_not() {
    let server = server().await;
    let js = bucket(&server).await;
    stored(put(&js, "a", Write::at(0), "v").await);
    server.freeze().await;
    let soon = js.env().now() + Duration::from_secs(2);
    let before = js.stats();
    let (read, write) =
        tokio::join!(js.last(STREAM, "$KV.t.a", soon), js.put("$KV.t.a", Write::at(1), Bytes::new(), soon));
    assert_eq!(read, Err(Unknown::settled("read", "$KV.t.a", Cause::Timeout)));
    assert_eq!(write, Err(Unknown::in_flight("put", "$KV.t.a", Cause::Timeout).into()));
    let spent = js.stats().since(&before);
    assert_eq!((spent.of(Kind::Publish), spent.of(Kind::LeaderRead), spent.timeouts), (1, 1, 2));
    assert!(spent.resends >= 1, "{spent:?}");
    assert_eq!(spent.in_flight, 0);
    // The replies to all of them come late, reach nobody, and leave the connection in order.
    server.thaw();
    until(&js, async || js.stats().since(&before).late >= 2 + spent.resends).await;
    assert_eq!(last(&js, "a").await.unwrap().unwrap().revision, 2);
}

#[tokio::test]
async fn a_frozen_broker_is_noticed() {
    let server = server().await;
    let js = bucket(&server).await;
    let mut link = js.link();
    server.freeze().await;
    link.wait_for(|link| !link.up).await.unwrap();
    assert_eq!(last(&js, "a").await.unwrap_err().cause, Cause::Disconnected);
    server.thaw();
    until(&js, async || last(&js, "a").await == Ok(None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_requests_than_may_be_under_way_take_their_turns() {
    let server = server().await;
    bucket(&server).await;
    // Their turns come however busy the machine is; how soon is not what is asked here.
    let js =
        connect_with(&server, Options { request_timeout: Duration::from_secs(60), ..Options::named("test") }).await;
    let work: Vec<_> = (0..3000)
        .map(|n| {
            let js = js.clone();
            tasks::spawn(async move {
                let key = format!("k{n}");
                let revision = stored(put(&js, &key, Write::at(0), "v").await);
                let found = last(&js, &key).await.unwrap().unwrap();
                assert_eq!(found.revision, revision);
            })
        })
        .collect();
    for task in work {
        task.join().await;
    }
    let stats = js.stats();
    assert_eq!((stats.of(Kind::Publish), stats.of(Kind::LeaderRead), stats.in_flight), (3000, 3000, 0));
}

#[tokio::test]
async fn one_of_many_writers_at_one_revision_wins() {
    let server = server().await;
    let js = bucket(&server).await;
    let mut revision = stored(put(&js, "a", Write::at(0), "v").await);
    for _ in 0..50 {
        let writes = (0..20).map(|_| put(&js, "a", Write::at(revision), "v"));
        let results = futures_util::future::join_all(writes).await;
        let won: Vec<_> = results.iter().filter(|put| matches!(put, Put::Stored { .. })).collect();
        assert_eq!(won.len(), 1);
        revision = stored(*won[0]);
    }
}

#[tokio::test]
async fn an_operation_is_told_what_it_cost() {
    let server = server().await;
    let js = bucket(&server).await;
    let (revision, cost) = Meter::measure(async { stored(put(&js, "a", Write::at(0), "v").await) }).await;
    assert_eq!((cost.requests, cost.rounds, cost.resends), (1, 1, 0));
    let (_, cost) = Meter::measure(async {
        stored(put(&js, "a", Write::at(revision), "w").await);
        tokio::join!(last(&js, "a"), js.info(STREAM, None, js.deadline()))
    })
    .await;
    assert_eq!((cost.requests, cost.rounds), (3, 2));
    assert!(cost.bytes_out > 100 && cost.bytes_in > 500, "{cost:?}");
}

/// A connection without the layer under test. A server ends one whose client is slow to say who it is.
async fn plain(server: &Server) -> async_nats::Client {
    let env = Env::system();
    let deadline = env.now() + Duration::from_secs(60);
    loop {
        match server.options().await.connect(server.0.access().urls()).await {
            Ok(client) => return client,
            Err(error) => assert!(env.now() < deadline, "{error}"),
        }
    }
}

/// A member of a cluster that does not exist: it hears `subject` and answers every message with `replies`, one after another.
async fn member(server: &Server, subject: &str, replies: &'static [&'static str]) -> tasks::Task<()> {
    let client = plain(server).await;
    let mut heard = client.subscribe(subject.to_owned()).await.unwrap();
    // The server takes a connection's commands in order: once it has answered a later one, it knows the subscription.
    let echo = client.new_inbox();
    let mut echoes = client.subscribe(echo.clone()).await.unwrap();
    client.publish(echo, Bytes::new()).await.unwrap();
    echoes.next().await.unwrap();
    tasks::spawn(async move {
        while let Some(message) = heard.next().await {
            for reply in replies {
                client.publish(message.reply.clone().unwrap(), Bytes::from_static(reply.as_bytes())).await.unwrap();
            }
        }
    })
}

#[tokio::test]
async fn a_stale_members_error_does_not_hide_the_leaders_acknowledgement() {
    let server = server().await;
    let js = connect(&server).await;
    const ACK: &str = r#"{"stream":"KV_x","seq":9}"#;
    const BEHIND: &str =
        r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"KV_x","seq":0}"#;
    let cases = [&[LEADERLESS, ACK][..], &[BEHIND, LEADERLESS, ACK], &["garbage", ACK], &[ACK, LEADERLESS]];
    for (n, replies) in cases.into_iter().enumerate() {
        let subject = format!("$KV.x.{n}");
        let _member = member(&server, &subject, replies).await;
        until(&js, async || match js.put(&subject, Write::at(8), Bytes::new(), js.deadline()).await {
            Ok(Put::Stored { revision: 9, duplicate: false }) => true,
            // On a busy machine the acknowledgement may take longer than it is waited for after an error, which is the answer
            // then. Not before it.
            Err(Error::Unknown(Unknown { cause, landing: Landing::InFlight, .. })) if replies[0] != ACK => {
                let told =
                    matches!(cause, Cause::Leaderless | Cause::Stale { answered: 3, known: 8 } | Cause::Garbage(_));
                assert!(told, "{replies:?}: {cause}");
                false
            }
            other => panic!("{replies:?}: {other:?}"),
        })
        .await;
    }
}

#[tokio::test]
async fn an_error_that_nothing_better_follows_is_the_answer_long_before_the_deadline() {
    let server = server().await;
    let js = connect(&server).await;
    const NONE: &str =
        r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 0"},"stream":"KV_x","seq":0}"#;
    let _members = [member(&server, "$KV.x.a", &[LEADERLESS]).await, member(&server, "$KV.x.b", &[NONE]).await];
    let far = js.env().now() + Duration::from_secs(3600);
    let refused = js.put("$KV.x.a", Write::at(8), Bytes::new(), far).await;
    assert_eq!(refused, Err(Unknown::in_flight("put", "$KV.x.a", Cause::Leaderless).into()));
    assert_eq!(js.put("$KV.x.b", Write::at(8), Bytes::new(), far).await, Ok(Put::Lost(Race::Vanished)));
    assert_eq!(js.stats().timeouts, 0);
}

#[tokio::test]
async fn a_read_waits_past_members_without_a_leader() {
    let server = server().await;
    let js = bucket(&server).await;
    stored(put(&js, "a", Write::at(0), "v").await);
    let _member = member(&server, "$JS.API.STREAM.MSG.GET.KV_t", &[LEADERLESS, "garbage"]).await;
    for _ in 0..20 {
        assert_eq!(last(&js, "a").await.unwrap().unwrap().revision, 1);
    }
    let _member = member(&server, "$JS.API.STREAM.MSG.GET.KV_none", &[LEADERLESS]).await;
    let soon = js.env().now() + Duration::from_secs(3);
    let unknown = js.last("KV_none", "$KV.none.a", soon).await.unwrap_err();
    assert_eq!(unknown.landing, Landing::Settled);
    assert!(matches!(unknown.cause, Cause::Leaderless | Cause::Unavailable { err_code: 10059, .. }), "{unknown}");
}
