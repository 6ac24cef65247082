//! The record of a scheduled dispatch that was claimed.
//!
//! A JSON object; the instant is UTC, RFC 3339. That the record is there is what claims the dispatch. Nothing in it decides
//! anything, so one that no build could read claims it just the same.

use std::iter::once;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;

use crate::answer::BadArgument;
use crate::key::Key;

/// A claimed dispatch. It is written and never read back: whoever looks at the bucket learns from it when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FireRecord {
    /// When it was claimed, on the claimant's clock. For people.
    pub at: Timestamp,
}

impl FireRecord {
    /// Writes a record.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("an instant always encodes").into()
    }
}

/// The key of a dispatch, by the name that every scheduler gives it. It is one segment, whatever it is made of.
///
/// # Errors
/// An empty name, or one too long.
pub fn key(fire: &str) -> Result<Key, BadArgument> {
    Key::from_segments("fire", fire, once(fire))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_its_wire_shape() {
        let record = FireRecord { at: "2026-01-02T03:04:05Z".parse().unwrap() };
        assert_eq!(record.encode(), r#"{"at":"2026-01-02T03:04:05Z"}"#);
    }

    #[test]
    fn a_dispatch_is_one_segment() {
        let key = key("standup|2026-01-02T09:00:00Z").unwrap();
        assert_eq!(key.as_str(), "standup=7C2026-01-02T09=3A00=3A00Z");
        assert_eq!(super::key("").unwrap_err().what, "fire");
    }
}
