//! What it costs: the pure paths, the operations over brokers, and the gates that hold both.
//!
//! - [`paths`] is the one list of what is measured without a broker; criterion, the instruction counts and the gate take it
//!   from there.
//! - [`baseline`] reads and writes what is checked in; [`judge`] decides from samples, [`instructions`] from counts, and
//!   [`verdict`] says what of it fails the gate.
//! - [`plant`] makes a loss on purpose, so that the gates are seen to fail.
//! - Beside them stands data of the size and the shape that a fleet has.
//!
//! `docs/benches.md` says what each gate holds, how to read it and how to update it.

pub mod baseline;
pub mod instructions;
pub mod judge;
mod leaders;
pub mod noise;
pub mod operations;
pub mod paths;
pub mod plant;
pub mod rounds;
pub mod sampling;
pub mod verdict;
pub mod work;

use coordproto::key::Resource;
use coordproto::record::budget::{BudgetRecord, LastWrite, Spend};
use coordproto::record::lease::LeaseRecord;
use coordproto::window::ByPeriod;
use jiff::{SignedDuration, Timestamp};

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

/// The record of a company that so many nodes charge.
pub fn budget(writers: u64) -> BudgetRecord {
    let at = Timestamp::from_second(1_767_323_000).expect("an instant of 2026");
    let spend = |label: &str| Spend::none(label.parse().expect("a label"));
    let mut slots = ByPeriod { day: spend("2026-01-02"), week: spend("2026-W01"), month: spend("2026-01") };
    (slots.day.spent, slots.week.spent, slots.month.spent) = (12_345, 123_456, 1_234_567);
    let written = |n| at.checked_sub(SignedDuration::from_secs(n as i64)).expect("an instant of 2026");
    let write = |n| LastWrite {
        writer: format!("n{n:03}:9f86d081884c7d65"),
        batch: 7 + n,
        over: 1_234_000 + n,
        at: written(n),
    };
    BudgetRecord {
        slots,
        writes: (0..writers).map(write).collect(),
        forgotten: Some(1_233_000),
        newer: Default::default(),
    }
}

/// A leader's reply to a read of seat number 42.
pub fn leader_reply() -> String {
    let headers =
        base64_simd::STANDARD.encode_to_string("NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 1234566\r\n\r\n");
    let data = base64_simd::STANDARD.encode_to_string(record().encode());
    let subject = subject(42);
    format!(
        r#"{{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","message":{{"subject":"{subject}","seq":1234567,"hdrs":"{headers}","data":"{data}","time":"2026-01-02T03:04:05.148754874Z"}}}}"#
    )
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
