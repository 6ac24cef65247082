//! What it costs: criterion benches of the pure code, and of the leases over the memory twin.
//!
//! `cargo bench -p benches` prints; nothing is asserted, because a wall clock on a shared machine proves nothing. What an
//! operation asks of a broker is counted elsewhere, exactly, and what it takes there is the load generator's business. The
//! benches stand in `benches/benches`; this is what they share: data of the size and the shape that a fleet has.

use coordproto::key::Resource;
use coordproto::record::lease::LeaseRecord;

/// The resource of seat number `n`.
///
/// # Panics
/// Never: a number makes a name.
pub fn seat(n: usize) -> Resource {
    Resource::parse(&format!("seat:s{n:05}")).expect("a number makes a name")
}

/// A seat's record as its holder renews it.
pub fn record() -> LeaseRecord {
    LeaseRecord {
        resource: "seat:s00042".into(),
        owner: Some("n007:9f86d081884c7d65".into()),
        epoch: Some(7),
        claim: Some("a3c59ff1b2d4e608".into()),
        ttl_ms: 45_000,
        protocol: 3,
        preferred: Some("n007".into()),
        meta: None,
        acquired_at: "2026-01-02T03:04:05.678Z".parse().ok(),
    }
}

/// The subject of seat number `n` in the bucket `crewlet_leases`.
pub fn subject(n: usize) -> String {
    format!("$KV.crewlet_leases.{}", seat(n).key())
}

/// The reply to `STREAM.INFO` with an index of `keys` seats, as a clustered server sends it.
pub fn index_reply(keys: usize) -> String {
    let index: Vec<String> = (0..keys).map(|n| format!("\"{}\":1", subject(n))).collect();
    format!(
        r#"{{"type":"io.nats.jetstream.api.v1.stream_info_response","total":{keys},"offset":0,"limit":100000,"config":{{"name":"KV_crewlet_leases","subjects":["$KV.crewlet_leases.\u003e"],"retention":"limits","max_age":45000000000,"max_msgs_per_subject":1,"discard":"new","storage":"file","num_replicas":3}},"created":"2026-01-02T03:04:05.147133826Z","state":{{"messages":{keys},"bytes":{bytes},"first_seq":1,"first_ts":"2026-01-02T03:04:05.148754874Z","last_seq":{keys},"last_ts":"2026-01-02T03:04:06.148838508Z","num_subjects":{keys},"subjects":{{{index}}},"consumer_count":1}},"cluster":{{"name":"crewlet","raft_group":"S-R3F-odLRxweL","leader":"n2"}},"ts":"2026-01-02T03:04:07.14980906Z"}}"#,
        bytes = keys * 250,
        index = index.join(","),
    )
}
