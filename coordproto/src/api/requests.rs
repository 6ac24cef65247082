//! What is sent: API subjects, bodies, and the configurations of streams and consumers.
//!
//! The subjects and bodies of the frequent requests are written into a buffer of the caller's; the rare ones are serialised.
//! The server refuses unknown fields (10025), so nothing here is sent that a server of the pinned version does not know.

use std::time::Duration;

use bytes::BufMut;
use serde::{Deserialize, Serialize};

/// `$JS.API.<verb>.<stream>`.
pub fn stream_subject(into: &mut impl BufMut, verb: Verb, stream: &str) {
    into.put_slice(b"$JS.API.");
    into.put_slice(verb.name().as_bytes());
    into.put_slice(b".");
    into.put_slice(stream.as_bytes());
}

/// `$JS.API.CONSUMER.CREATE.<stream>.<consumer>[.<filter>]`.
pub fn consumer_create_subject(into: &mut impl BufMut, stream: &str, consumer: &str, filter: Option<&str>) {
    stream_subject(into, Verb::ConsumerCreate, stream);
    for token in [Some(consumer), filter].into_iter().flatten() {
        into.put_slice(b".");
        into.put_slice(token.as_bytes());
    }
}

/// `$JS.API.CONSUMER.DELETE.<stream>.<consumer>`.
pub fn consumer_delete_subject(into: &mut impl BufMut, stream: &str, consumer: &str) {
    stream_subject(into, Verb::ConsumerDelete, stream);
    into.put_slice(b".");
    into.put_slice(consumer.as_bytes());
}

/// `$JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>`.
pub fn consumer_next_subject(into: &mut impl BufMut, stream: &str, consumer: &str) {
    stream_subject(into, Verb::ConsumerNext, stream);
    into.put_slice(b".");
    into.put_slice(consumer.as_bytes());
}

/// What is asked of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `STREAM.MSG.GET`, answered by the leader alone.
    MessageGet,
    /// `DIRECT.GET`, answered by whichever member gets it, from its own copy. Only on a stream that allows it.
    DirectGet,
    /// `STREAM.INFO`.
    Info,
    /// `STREAM.PURGE`.
    Purge,
    /// `STREAM.CREATE`.
    Create,
    /// `STREAM.UPDATE`.
    Update,
    /// `STREAM.DELETE`.
    Delete,
    /// `CONSUMER.CREATE`; needs the meta group's leader.
    ConsumerCreate,
    /// `CONSUMER.DELETE`; needs the meta group's leader.
    ConsumerDelete,
    /// `CONSUMER.MSG.NEXT`, answered by the member that has the consumer.
    ConsumerNext,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Verb::MessageGet => "STREAM.MSG.GET",
            Verb::DirectGet => "DIRECT.GET",
            Verb::Info => "STREAM.INFO",
            Verb::Purge => "STREAM.PURGE",
            Verb::Create => "STREAM.CREATE",
            Verb::Update => "STREAM.UPDATE",
            Verb::Delete => "STREAM.DELETE",
            Verb::ConsumerCreate => "CONSUMER.CREATE",
            Verb::ConsumerDelete => "CONSUMER.DELETE",
            Verb::ConsumerNext => "CONSUMER.MSG.NEXT",
        }
    }
}

/// `{"last_by_subj":"<subject>"}`.
pub fn last_by_subject(into: &mut impl BufMut, subject: &str) {
    into.put_slice(br#"{"last_by_subj":"#);
    quoted(into, subject);
    into.put_slice(b"}");
}

/// `{"multi_last":["<filter>",...]}`: the last record of every subject that any filter matches, once. No bound on the
/// sequence goes with it, since the server repeats such a bound in place of how far it has come.
pub fn last_of_each(into: &mut impl BufMut, filters: &[impl AsRef<str>]) {
    into.put_slice(br#"{"multi_last":["#);
    for (n, filter) in filters.iter().enumerate() {
        if n > 0 {
            into.put_slice(b",");
        }
        quoted(into, filter.as_ref());
    }
    into.put_slice(b"]}");
}

/// `{"subjects_filter":"<filter>"}`: the first page of the subject index. The pages of one index are made one by one, so
/// that what moves between two of them can be missed; a second page is never asked for.
pub fn index(into: &mut impl BufMut, filter: &str) {
    into.put_slice(br#"{"subjects_filter":"#);
    quoted(into, filter);
    into.put_slice(b"}");
}

/// Purges every message that matches `filter`, up to and including sequence `through`; all of them without it. The server's
/// own bound is exclusive.
pub fn purge(into: &mut impl BufMut, filter: &str, through: Option<u64>) {
    into.put_slice(br#"{"filter":"#);
    quoted(into, filter);
    if let Some(through) = through {
        into.put_slice(br#","seq":"#);
        number(into, through.saturating_add(1));
    }
    into.put_slice(b"}");
}

/// The most bytes of the answer to one [`drain`]: a message counts with its subject, its reply subject and its headers,
/// so that fewer than 60,000 come in one, and a client has room for 65,536 before it takes them.
pub const DRAIN_BYTES: usize = 4 << 20;

/// `{"batch":..,"max_bytes":..,"no_wait":true,"expires":<ns>}`: all that a pull consumer has, up to [`DRAIN_BYTES`], and then
/// the word that there is no more.
///
/// `expires` is what makes that word come late enough. Without it the server looks at its count of what is pending, which it
/// keeps beside the store and which says 0 too early; with it, it says so when it has looked for the next message in its store
/// and got none, and only to a request that was given at least one. An error of its store is told in the same word, so that it
/// ends a drain and proves nothing.
pub fn drain(into: &mut impl BufMut, expires: Duration) {
    into.put_slice(br#"{"batch":1000000,"max_bytes":"#);
    number(into, DRAIN_BYTES as u64);
    into.put_slice(br#","no_wait":true,"expires":"#);
    number(into, u64::try_from(expires.as_nanos()).unwrap_or(u64::MAX).max(1));
    into.put_slice(b"}");
}

fn number(into: &mut impl BufMut, number: u64) {
    let (mut digits, mut rest, mut at) = ([0u8; 20], number, 20);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return into.put_slice(&digits[at..]);
        }
    }
}

/// A JSON string. Subjects are nearly always plain; the rest goes the careful way.
fn quoted(into: &mut impl BufMut, text: &str) {
    into.put_slice(b"\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => into.put_slice(&[b'\\', byte]),
            0..0x20 => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                into.put_slice(b"\\u00");
                into.put_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            _ => into.put_u8(byte),
        }
    }
    into.put_slice(b"\"");
}

/// A stream's configuration. What this build has no name for is kept as it came, so that a configuration read from a server
/// can be changed in one place and sent back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamConfig {
    /// The stream's name, `KV_<bucket>` for a bucket.
    pub name: String,
    /// The subjects it takes in; wildcards allowed.
    #[serde(default)]
    pub subjects: Vec<String>,
    /// What removes messages.
    #[serde(default)]
    pub retention: Retention,
    /// Most messages held; -1 for no bound.
    #[serde(default = "unbounded")]
    pub max_msgs: i64,
    /// Most bytes held; -1 for no bound.
    #[serde(default = "unbounded")]
    pub max_bytes: i64,
    /// How long a message is kept; zero for ever.
    #[serde(default, with = "nanoseconds")]
    pub max_age: Duration,
    /// Most messages held under one subject; -1 for no bound.
    #[serde(default = "unbounded")]
    pub max_msgs_per_subject: i64,
    /// What happens at a bound.
    #[serde(default)]
    pub discard: Discard,
    /// Where it is kept.
    #[serde(default)]
    pub storage: Storage,
    /// How many copies: 1, 3 or 5.
    #[serde(rename = "num_replicas")]
    pub replicas: usize,
    /// How long message ids are remembered; no longer than `max_age`, or the server refuses (10052). Zero leaves it to the
    /// server.
    #[serde(default, with = "nanoseconds", skip_serializing_if = "Duration::is_zero")]
    pub duplicate_window: Duration,
    /// Whether replicas answer direct gets.
    #[serde(default)]
    pub allow_direct: bool,
    /// Whether `STREAM.MSG.DELETE` is refused.
    #[serde(default)]
    pub deny_delete: bool,
    /// Whether a message may replace all before it (`Nats-Rollup`).
    #[serde(default)]
    pub allow_rollup_hdrs: bool,
    /// Whether a message may carry its own time to live (`Nats-TTL`).
    #[serde(default)]
    pub allow_msg_ttl: bool,
    /// Everything else the server knows about it.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, serde_json::Value>,
}

fn unbounded() -> i64 {
    -1
}

impl StreamConfig {
    /// A key-value bucket that keeps one revision per key: ADR-8's shape. The duplicate window is kept within the age.
    pub fn bucket(bucket: &str, max_age: Duration, storage: Storage, replicas: usize) -> StreamConfig {
        let window = Duration::from_secs(120);
        StreamConfig {
            name: format!("KV_{bucket}"),
            subjects: vec![format!("$KV.{bucket}.>")],
            retention: Retention::Limits,
            max_msgs: -1,
            max_bytes: -1,
            max_age,
            max_msgs_per_subject: 1,
            discard: Discard::New,
            storage,
            replicas,
            duplicate_window: if max_age.is_zero() { window } else { window.min(max_age) },
            allow_direct: true,
            deny_delete: true,
            allow_rollup_hdrs: true,
            allow_msg_ttl: false,
            rest: serde_json::Map::new(),
        }
    }
}

/// What removes a stream's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Retention {
    /// Its bounds alone.
    #[default]
    Limits,
    /// The acknowledgement of every interested consumer.
    Interest,
    /// The first acknowledgement.
    WorkQueue,
}

/// What happens when a stream is at a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Discard {
    /// The oldest message goes.
    #[default]
    Old,
    /// The new message is refused.
    New,
}

/// Where a stream is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Storage {
    /// On disk.
    #[default]
    File,
    /// In memory.
    Memory,
}

/// A consumer: who is told of which messages, and how.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConsumerConfig {
    /// Its name. An ephemeral consumer has a name too; it goes when its interest does.
    pub name: String,
    /// Set, and equal to the name, for a consumer that outlives its clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable_name: Option<String>,
    /// Where messages are pushed; none for a consumer that is pulled from. Somebody must subscribe to exactly this subject:
    /// interest through a wildcard does not count, and nothing would be delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver_subject: Option<String>,
    /// Which messages it starts with.
    pub deliver_policy: DeliverPolicy,
    /// Whether deliveries are acknowledged.
    pub ack_policy: AckPolicy,
    /// How long an acknowledgement may take before the message is delivered again.
    #[serde(with = "nanoseconds", skip_serializing_if = "Duration::is_zero")]
    pub ack_wait: Duration,
    /// How often a message is delivered at most; -1 for no bound.
    pub max_deliver: i64,
    /// Most deliveries without an acknowledgement; 0 leaves it to the server.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_ack_pending: i64,
    /// Which subjects; empty for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter_subject: String,
    /// Deliver headers alone.
    #[serde(skip_serializing_if = "is_false")]
    pub headers_only: bool,
    /// Wait for the client now and then, so that a burst does not overrun it. Push only, and needs a heartbeat.
    #[serde(skip_serializing_if = "is_false")]
    pub flow_control: bool,
    /// How often an idle push consumer says that it is alive; at least 100 ms, zero for never.
    #[serde(with = "nanoseconds", skip_serializing_if = "Duration::is_zero")]
    pub idle_heartbeat: Duration,
    /// How long it outlives its last interest; zero for ever, if durable.
    #[serde(with = "nanoseconds", skip_serializing_if = "Duration::is_zero")]
    pub inactive_threshold: Duration,
    /// How many copies of its state; 0 for as many as the stream has.
    pub num_replicas: usize,
    /// Whether its state is kept in memory.
    pub mem_storage: bool,
}

impl ConsumerConfig {
    /// One that pushes the last message of every subject, then what follows, to a client that lives as long as the
    /// connection: the shape of a listing's pass and of a watch.
    pub fn pass(name: String, deliver_subject: String, filter: &str, inactive_threshold: Duration) -> ConsumerConfig {
        ConsumerConfig {
            name,
            durable_name: None,
            deliver_subject: Some(deliver_subject),
            deliver_policy: DeliverPolicy::LastPerSubject,
            ack_policy: AckPolicy::None,
            ack_wait: Duration::ZERO,
            max_deliver: -1,
            max_ack_pending: 0,
            filter_subject: filter.to_owned(),
            headers_only: false,
            flow_control: true,
            idle_heartbeat: PASS_HEARTBEAT,
            inactive_threshold,
            num_replicas: 1,
            mem_storage: true,
        }
    }

    /// One that is pulled from once, the last message of every subject and then what follows: the shape of a drain.
    pub fn drain(name: String, filter: &str, inactive_threshold: Duration) -> ConsumerConfig {
        ConsumerConfig {
            deliver_subject: None,
            flow_control: false,
            idle_heartbeat: Duration::ZERO,
            ..ConsumerConfig::pass(name, String::new(), filter, inactive_threshold)
        }
    }

    /// One that clients pull from and that outlives them.
    pub fn durable_pull(name: &str, filter: &str, ack_wait: Duration, max_ack_pending: i64) -> ConsumerConfig {
        ConsumerConfig {
            name: name.to_owned(),
            durable_name: Some(name.to_owned()),
            deliver_subject: None,
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::Explicit,
            ack_wait,
            max_deliver: -1,
            max_ack_pending,
            filter_subject: filter.to_owned(),
            headers_only: false,
            flow_control: false,
            idle_heartbeat: Duration::ZERO,
            inactive_threshold: Duration::ZERO,
            num_replicas: 0,
            mem_storage: false,
        }
    }
}

/// How often an idle pass is told that its consumer is alive.
pub const PASS_HEARTBEAT: Duration = Duration::from_secs(1);

/// Which messages a consumer starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliverPolicy {
    /// Everything the stream holds.
    All,
    /// The last message of every subject.
    LastPerSubject,
}

/// Whether a consumer's deliveries are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AckPolicy {
    /// They are not.
    None,
    /// Each of them is.
    Explicit,
}

/// The body of `CONSUMER.CREATE`.
#[derive(Serialize)]
struct ConsumerCreate<'a> {
    stream_name: &'a str,
    config: &'a ConsumerConfig,
    action: &'static str,
}

/// The body of `CONSUMER.CREATE`, for a consumer that must not exist yet with another configuration.
pub fn consumer_create(stream: &str, config: &ConsumerConfig) -> Vec<u8> {
    let body = ConsumerCreate { stream_name: stream, config, action: "" };
    serde_json::to_vec(&body).expect("strings and numbers have a JSON form")
}

/// The body of `STREAM.CREATE` and `STREAM.UPDATE`.
pub fn stream_config(config: &StreamConfig) -> Vec<u8> {
    serde_json::to_vec(config).expect("strings and numbers have a JSON form")
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Durations as the API writes them: whole nanoseconds.
mod nanoseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, into: S) -> Result<S::Ok, S::Error> {
        into.serialize_u64(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut into = Vec::new();
        write(&mut into);
        String::from_utf8(into).unwrap()
    }

    #[test]
    fn subjects_of_the_api() {
        assert_eq!(text(|b| stream_subject(b, Verb::MessageGet, "KV_t")), "$JS.API.STREAM.MSG.GET.KV_t");
        assert_eq!(text(|b| stream_subject(b, Verb::DirectGet, "KV_t")), "$JS.API.DIRECT.GET.KV_t");
        assert_eq!(
            text(|b| consumer_create_subject(b, "KV_t", "c1", Some("$KV.t.>"))),
            "$JS.API.CONSUMER.CREATE.KV_t.c1.$KV.t.>"
        );
        assert_eq!(text(|b| consumer_create_subject(b, "S", "c1", None)), "$JS.API.CONSUMER.CREATE.S.c1");
        assert_eq!(text(|b| consumer_delete_subject(b, "S", "c1")), "$JS.API.CONSUMER.DELETE.S.c1");
        assert_eq!(text(|b| consumer_next_subject(b, "S", "c1")), "$JS.API.CONSUMER.MSG.NEXT.S.c1");
    }

    #[test]
    fn bodies_are_json_whatever_the_subject() {
        for subject in ["$KV.t.a", "a\"b\\c", "tab\there", "\u{1}\u{1f}", "käse.☃"] {
            let read = |body: String| serde_json::from_str::<serde_json::Value>(&body).unwrap();
            assert_eq!(read(text(|b| last_by_subject(b, subject)))["last_by_subj"], subject);
            assert_eq!(read(text(|b| index(b, subject)))["subjects_filter"], subject);
            assert_eq!(
                read(text(|b| last_of_each(b, &[subject, "x"])))["multi_last"],
                serde_json::json!([subject, "x"])
            );
            let bounded = read(text(|b| purge(b, subject, Some(0))));
            assert_eq!((bounded["filter"].as_str(), bounded["seq"].as_u64()), (Some(subject), Some(1)));
        }
        assert_eq!(text(|b| last_of_each(b, &["x"])), r#"{"multi_last":["x"]}"#);
        assert_eq!(text(|b| purge(b, "x", None)), r#"{"filter":"x"}"#);
        // One past the last sequence there is, as far as 64 bits can say it.
        assert_eq!(text(|b| purge(b, "x", Some(u64::MAX))), format!(r#"{{"filter":"x","seq":{}}}"#, u64::MAX));
    }

    #[test]
    fn a_drain_never_goes_without_an_expiry() {
        let body = text(|b| drain(b, Duration::from_millis(1_500)));
        assert_eq!(body, r#"{"batch":1000000,"max_bytes":4194304,"no_wait":true,"expires":1500000000}"#);
        assert!(text(|b| drain(b, Duration::ZERO)).ends_with(r#""expires":1}"#), "0 would be none");
    }

    #[test]
    fn a_bucket_keeps_its_duplicate_window_within_its_age() {
        let window = |age| StreamConfig::bucket("b", Duration::from_secs(age), Storage::File, 3).duplicate_window;
        assert_eq!(window(45), Duration::from_secs(45));
        assert_eq!(window(3600), Duration::from_secs(120));
        assert_eq!(window(0), Duration::from_secs(120));
    }

    #[test]
    fn a_configuration_comes_back_as_it_was_read() {
        let config = StreamConfig::bucket("b", Duration::from_secs(45), Storage::Memory, 3);
        let mut sent: serde_json::Value = serde_json::from_slice(&stream_config(&config)).unwrap();
        assert_eq!(sent["max_age"], 45_000_000_000u64);
        assert_eq!((&sent["storage"], &sent["discard"]), (&"memory".into(), &"new".into()));
        sent["compression"] = "s2".into();
        let read: StreamConfig = serde_json::from_value(sent.clone()).unwrap();
        assert_eq!(read.rest["compression"], "s2");
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&stream_config(&read)).unwrap(), sent);
    }

    #[test]
    fn an_ephemeral_pass_says_nothing_that_a_push_consumer_may_not() {
        let config = ConsumerConfig::pass("c".into(), "_D.c".into(), "$KV.t.>", Duration::from_secs(5));
        let body: serde_json::Value = serde_json::from_slice(&consumer_create("KV_t", &config)).unwrap();
        assert_eq!(body["config"]["deliver_policy"], "last_per_subject");
        assert_eq!(body["config"]["idle_heartbeat"], 1_000_000_000u64);
        assert!(body["config"].get("durable_name").is_none() && body["config"].get("ack_wait").is_none());
        let drain = ConsumerConfig::drain("d".into(), "$KV.t.>", Duration::from_secs(5));
        let body: serde_json::Value = serde_json::from_slice(&consumer_create("KV_t", &drain)).unwrap();
        assert_eq!(body["config"]["deliver_policy"], "last_per_subject");
        for field in ["deliver_subject", "flow_control", "idle_heartbeat"] {
            assert!(body["config"].get(field).is_none(), "{field}");
        }
        let pull = ConsumerConfig::durable_pull("p", "in.>", Duration::from_secs(30), 10);
        let body: serde_json::Value = serde_json::from_slice(&consumer_create("S", &pull)).unwrap();
        assert!(body["config"].get("deliver_subject").is_none() && body["config"].get("flow_control").is_none());
    }
}
