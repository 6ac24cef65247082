//! The record of the instant that late work is done at.
//!
//! A JSON object; the instant is UTC, RFC 3339, to the nanosecond.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::keyed::{Keyed, key_of};
use crate::answer::BadArgument;
use crate::key::Key;

/// The instant that every attempt at a unit of work mints its writes at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebaseRecord {
    /// The unit of work.
    pub seed: String,
    /// The instant.
    pub at: Timestamp,
}

impl Keyed for RebaseRecord {
    fn key(&self) -> Result<Key, BadArgument> {
        key(&self.seed)
    }
}

/// The key of a unit of work. It is one segment, whatever it is made of.
///
/// # Errors
/// An empty seed, or one too long.
pub fn key(seed: &str) -> Result<Key, BadArgument> {
    key_of(&[("seed", seed)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Cause;

    #[test]
    fn a_record_keeps_its_wire_shape() {
        let record = RebaseRecord { seed: "turn:7".into(), at: "2026-01-02T03:04:05.000000006Z".parse().unwrap() };
        let wire = r#"{"seed":"turn:7","at":"2026-01-02T03:04:05.000000006Z"}"#;
        assert_eq!(record.encode(), wire);
        let key = key("turn:7").unwrap();
        assert_eq!(RebaseRecord::decode(&key, wire.as_bytes()).unwrap(), record);
        let newer = br#"{"by":{"n":1},"seed":"turn:7","at":"2026-01-02T03:04:05.000000006Z"}"#;
        assert_eq!(RebaseRecord::decode(&key, newer).unwrap(), record);
    }

    #[test]
    fn what_does_not_decode_or_stands_elsewhere_is_unknown() {
        let key = key("a").unwrap();
        let other = r#"{"seed":"b","at":"2026-01-02T03:04:05Z"}"#;
        for wire in ["", "{}", "null", "garbage", r#"{"seed":"a"}"#, r#"{"seed":"a","at":7}"#, other] {
            assert!(matches!(RebaseRecord::decode(&key, wire.as_bytes()), Err(Cause::Undecodable(_))), "{wire}");
        }
    }
}
