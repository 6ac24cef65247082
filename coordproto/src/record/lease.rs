//! The records behind a lease: who holds what, and the fencing counter.
//!
//! JSON objects; instants are UTC, RFC 3339.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::answer::Cause;

/// A record of the `leases` or the `duties` bucket.
///
/// Three shapes: a claim in flight (`owner` and `claim`, no `epoch` yet), a lease (`owner` and `epoch`), and what a release
/// or a fence leaves (no `owner`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// The resource's whole name.
    pub resource: String,
    /// The holder, `{node id}:{random}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The fencing token; absent until the claim has committed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The claim that wrote this record. It tells a claim's own late write from a later claim of the same owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// How long it lasts after it was written, in milliseconds.
    pub ttl_ms: u64,
    /// The lease protocol of the build that wrote it.
    pub protocol: u32,
    /// The node that the resource would rather run on: a placement hint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
    /// What the holder says about itself; opaque here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// When the tenure began, on the wall clock of the node that claimed. For people; it decides nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquired_at: Option<Timestamp>,
}

/// A record of the `epochs` bucket: the counter that a resource's tokens are minted from, and where it would rather run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// The resource's whole name.
    pub resource: String,
    /// The newest token ever minted.
    pub epoch: u64,
    /// The placement hint of the newest claim that named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
    /// What a newer build keeps here. It takes part in no decision and is written back as it was read, since every build in a
    /// fleet writes the one record of a resource over, for as long as the deployment lives.
    #[serde(flatten)]
    pub newer: Map<String, Value>,
}

impl LeaseRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// A value that does not decode, which makes the lease unknown.
    pub fn decode(value: &[u8]) -> Result<LeaseRecord, Cause> {
        decode(value)
    }

    /// Writes a record.
    pub fn encode(&self) -> Bytes {
        encode(self)
    }
}

impl EpochRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// A value that does not decode. It is unknown, never a counter that starts again.
    pub fn decode(value: &[u8]) -> Result<EpochRecord, Cause> {
        decode(value)
    }

    /// Writes a record.
    pub fn encode(&self) -> Bytes {
        encode(self)
    }
}

fn decode<'a, T: Deserialize<'a>>(value: &'a [u8]) -> Result<T, Cause> {
    serde_json::from_slice(value).map_err(Cause::undecodable)
}

fn encode<T: Serialize>(record: &T) -> Bytes {
    // Nearly every record fits, so that it is written once.
    let mut value = Vec::with_capacity(256);
    serde_json::to_writer(&mut value, record).expect("a record of strings, numbers and JSON values always encodes");
    value.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_record_keeps_its_wire_shape() {
        let record = LeaseRecord {
            resource: "seat:alpha".into(),
            owner: Some("n1:9f".into()),
            epoch: Some(7),
            claim: None,
            ttl_ms: 45_000,
            protocol: 3,
            preferred: Some("n1".into()),
            meta: Some(serde_json::json!({"roles": ["seats"]})),
            acquired_at: Some("2026-01-02T03:04:05Z".parse().unwrap()),
        };
        let wire = r#"{"resource":"seat:alpha","owner":"n1:9f","epoch":7,"ttl_ms":45000,"protocol":3,"preferred":"n1","meta":{"roles":["seats"]},"acquired_at":"2026-01-02T03:04:05Z"}"#;
        assert_eq!(record.encode(), wire);
        assert_eq!(LeaseRecord::decode(wire.as_bytes()).unwrap(), record);
    }

    #[test]
    fn fields_of_a_newer_build_are_ignored() {
        let wire = br#"{"resource":"seat:a","owner":"n","epoch":1,"ttl_ms":1,"protocol":9,"shard":{"of":3}}"#;
        assert_eq!(LeaseRecord::decode(wire).unwrap().protocol, 9);
        let wire = br#"{"resource":"seat:a","epoch":4,"minted_by":"n9"}"#;
        assert_eq!(EpochRecord::decode(wire).unwrap().epoch, 4);
    }

    #[test]
    fn what_a_newer_build_keeps_beside_a_counter_is_written_back() {
        let wire = br#"{"minted":{"by":"n9","n":18446744073709551615},"resource":"seat:a","epoch":4}"#;
        let next = EpochRecord { epoch: 5, ..EpochRecord::decode(wire).unwrap() };
        let wire = r#"{"resource":"seat:a","epoch":5,"minted":{"by":"n9","n":18446744073709551615}}"#;
        assert_eq!(next.encode(), wire);
    }

    #[test]
    fn what_does_not_decode_is_unknown() {
        for wire in
            ["", "{}", "null", "garbage", r#"{"resource":"seat:a","epoch":-1}"#, r#"{"resource":"seat:a","epoch":"7"}"#]
        {
            assert!(matches!(EpochRecord::decode(wire.as_bytes()), Err(Cause::Undecodable(_))), "{wire}");
            assert!(matches!(LeaseRecord::decode(wire.as_bytes()), Err(Cause::Undecodable(_))), "{wire}");
        }
    }

    #[test]
    fn counters_are_exact_beyond_what_a_double_holds() {
        let record = EpochRecord { resource: "seat:a".into(), epoch: u64::MAX, preferred: None, newer: Map::new() };
        assert_eq!(EpochRecord::decode(&record.encode()).unwrap(), record);
    }
}
