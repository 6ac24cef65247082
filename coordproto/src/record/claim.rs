//! The record behind a delivery that was seen: until when another of the same identity is taken for a repetition.
//!
//! A JSON object under `source|id`; the instant is UTC, RFC 3339. Identities of different sources never meet, whatever they
//! are made of.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::pair;
use crate::answer::BadArgument;
use crate::key::Key;

/// The claim on a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClaimRecord {
    /// The instant at which it lapses, on the clock of the node that claimed.
    pub until: Timestamp,
    /// The attempt that wrote it, by which that attempt knows its own. A record without one is nobody's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The deadline of a record, which is read whatever else the record holds.
#[derive(Deserialize)]
struct Deadline {
    until: Timestamp,
}

/// Who wrote a record.
#[derive(Deserialize)]
struct Writer {
    #[serde(default)]
    by: Option<String>,
}

/// What stands where a delivery is claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stands {
    /// Nothing that keeps another from claiming it: no record, one that has lapsed, or one without a readable deadline, which
    /// would otherwise never lapse.
    Free,
    /// This very attempt's own claim.
    Own,
    /// Another's, until this instant.
    Seen(Timestamp),
}

impl ClaimRecord {
    /// Reads a record; none without a readable deadline. Whose it is may be written in a way that this build cannot read: the
    /// claim holds all the same, and is nobody's own.
    pub fn decode(value: &[u8]) -> Option<ClaimRecord> {
        let Deadline { until } = serde_json::from_slice(value).ok()?;
        let by = serde_json::from_slice(value).ok().and_then(|Writer { by }| by);
        Some(ClaimRecord { until, by })
    }

    /// Writes a record.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("a record of an instant and a string always encodes").into()
    }

    /// Whether the attempt `by` wrote this record.
    pub fn is_by(&self, by: &str) -> bool {
        self.by.as_deref() == Some(by)
    }
}

/// What a value, if there is one, means to the attempt `by` at `now`.
pub fn stands(value: Option<&[u8]>, by: &str, now: Timestamp) -> Stands {
    match value.and_then(ClaimRecord::decode) {
        Some(record) if record.until <= now => Stands::Free,
        Some(record) if record.is_by(by) => Stands::Own,
        Some(record) => Stands::Seen(record.until),
        None => Stands::Free,
    }
}

/// The key of a delivery: where it came from, and what it is called there. A delivery without an id has no key, since two
/// that have none are not the same.
///
/// # Errors
/// An empty source or id, a control character in either, or both too long for a key.
pub fn key(source: &str, id: &str) -> Result<Key, BadArgument> {
    let pair = [("source", source), ("delivery id", id)];
    let key = pair::key(pair[0], pair[1])?;
    for (what, name) in pair {
        if let Some((at, _)) = name.char_indices().find(|(_, c)| c.is_control()) {
            return Err(BadArgument::new(what, name, format!("a control character at byte {at}")));
        }
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_record_keeps_its_wire_shape() {
        let record = ClaimRecord { until: at("2026-01-02T03:04:05Z"), by: Some("9f".into()) };
        assert_eq!(record.encode(), r#"{"until":"2026-01-02T03:04:05Z","by":"9f"}"#);
        let newer = br#"{"node":{"id":1},"until":"2026-01-02T03:04:05Z"}"#;
        assert_eq!(ClaimRecord::decode(newer), Some(ClaimRecord { by: None, ..record }));
    }

    #[test]
    fn a_claim_lapses_at_its_own_deadline() {
        let value = ClaimRecord { until: at("2026-01-02T03:04:05Z"), by: Some("a".into()) }.encode();
        for (by, now, want) in [
            ("b", "2026-01-02T03:04:04.999Z", Stands::Seen(at("2026-01-02T03:04:05Z"))),
            ("b", "2026-01-02T03:04:05Z", Stands::Free),
            ("a", "2026-01-02T03:04:04.999Z", Stands::Own),
            ("a", "2026-01-02T03:04:05Z", Stands::Free),
        ] {
            assert_eq!(stands(Some(&value), by, at(now)), want, "{by} {now}");
        }
        assert_eq!(stands(None, "a", at("2026-01-02T03:04:05Z")), Stands::Free);
    }

    #[test]
    fn what_has_no_readable_deadline_is_free() {
        for wire in ["", "garbage", "{}", "null", r#"{"by":"a"}"#, r#"{"until":7}"#, r#"{"until":"tomorrow"}"#] {
            assert_eq!(stands(Some(wire.as_bytes()), "a", Timestamp::MIN), Stands::Free, "{wire}");
        }
    }

    #[test]
    fn a_claim_holds_whoever_it_says_made_it() {
        let until = at("2099-01-02T03:04:05Z");
        for by in [r#"{"id":1}"#, "7", "[]", "null", r#""other""#, &format!("{}{}", "[".repeat(200), "]".repeat(200))] {
            let wire = format!(r#"{{"until":"2099-01-02T03:04:05Z","by":{by}}}"#);
            assert_eq!(stands(Some(wire.as_bytes()), "a", Timestamp::MIN), Stands::Seen(until), "{by}");
            assert_eq!(stands(Some(wire.as_bytes()), "a", until), Stands::Free, "{by}");
        }
    }

    #[test]
    fn a_delivery_is_named_by_its_source_and_its_id() {
        assert_eq!(key("slack", "x1").unwrap().as_str(), "slack=7Cx1");
        assert_ne!(key("slack", "x1").unwrap(), key("github", "x1").unwrap());
        assert_ne!(key("a|b", "c").unwrap(), key("a", "b|c").unwrap());
        for (source, id, what) in [
            ("", "x", "source"),
            ("s", "", "delivery id"),
            ("s\n", "x", "source"),
            ("s", "x\u{0}1", "delivery id"),
            ("s", "x\u{85}", "delivery id"),
            ("s", &"a".repeat(10 * 1024), "delivery id"),
            ("s", &"\u{0}".repeat(10 * 1024), "delivery id"),
        ] {
            let error = key(source, id).unwrap_err();
            assert!(error.what == what && error.given.len() < 300, "{error}");
        }
        assert!(key("s", "x\u{0}1").unwrap_err().rule.contains("byte 1"));
    }
}
