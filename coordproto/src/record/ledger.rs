//! The record behind a trigger that was worked: how it went, and when.
//!
//! A JSON object under `scope|key`; the instant is UTC, RFC 3339. It is written once and never changed.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::pair;
use crate::answer::{BadArgument, Cause};
use crate::key::Key;

/// A trigger that was worked. That it is there is what says so; none of its fields decides that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRecord {
    /// How it went, in the words of whoever worked it. For people.
    pub detail: String,
    /// When, on the clock of the node that worked it. For people.
    pub at: Timestamp,
}

impl LedgerRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// A value that does not decode. Whether its trigger was worked is unknown then.
    pub fn decode(value: &[u8]) -> Result<LedgerRecord, Cause> {
        serde_json::from_slice(value).map_err(Cause::undecodable)
    }

    /// Writes a record.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("a record of a string and an instant always encodes").into()
    }
}

/// The key of a trigger within its scope, whatever the two are made of.
///
/// # Errors
/// An empty scope or key, or both too long for a key of the store.
pub fn key(scope: &str, key: &str) -> Result<Key, BadArgument> {
    pair::key(("scope", scope), ("key", key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_its_wire_shape() {
        let record = LedgerRecord { detail: "replied".into(), at: "2026-01-02T03:04:05Z".parse().unwrap() };
        let wire = r#"{"detail":"replied","at":"2026-01-02T03:04:05Z"}"#;
        assert_eq!(record.encode(), wire);
        assert_eq!(LedgerRecord::decode(wire.as_bytes()).unwrap(), record);
        let newer = br#"{"turn":{"of":3},"detail":"replied","at":"2026-01-02T03:04:05Z"}"#;
        assert_eq!(LedgerRecord::decode(newer).unwrap(), record);
        for wire in
            ["", "{}", "null", "garbage", r#"{"detail":"x"}"#, r#"{"detail":"x","at":"soon"}"#, r#"{"detail":1}"#]
        {
            assert!(matches!(LedgerRecord::decode(wire.as_bytes()), Err(Cause::Undecodable(_))), "{wire}");
        }
    }

    #[test]
    fn a_trigger_is_its_scopes_own() {
        assert_eq!(key("alpha", "evt-1").unwrap().as_str(), "alpha=7Cevt-1");
        assert_ne!(key("a", "b|c").unwrap(), key("a|b", "c").unwrap());
        assert_eq!((key("", "k").unwrap_err().what, key("s", "").unwrap_err().what), ("scope", "key"));
    }
}
