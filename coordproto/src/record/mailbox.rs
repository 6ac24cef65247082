//! The record behind a mailbox: that it may exist, since when its seat is missing, and since when it is being retired.
//!
//! A JSON object; instants are UTC, RFC 3339. Whose mailbox it is, its key tells. What a newer build has put in beside stays
//! in, whoever rewrites the record.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::named;
use crate::answer::{BadArgument, Cause};
use crate::key::Key;

/// A mailbox that may exist. The record of a seat that is in the company says nothing more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MailboxRecord {
    /// Since when the seat is missing from the active revision, on the clock of the node that noticed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent_since: Option<Timestamp>,
    /// Since when the mailbox is being retired, on the clock of the node that retires it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retiring_since: Option<Timestamp>,
    /// What a newer build keeps here. It takes part in no decision and is written back as it was read.
    #[serde(flatten)]
    pub newer: Map<String, Value>,
}

impl MailboxRecord {
    /// The mailbox of a seat that is back, or was never gone: neither missing nor being retired.
    #[must_use]
    pub fn present(&self) -> MailboxRecord {
        MailboxRecord { absent_since: None, retiring_since: None, newer: self.newer.clone() }
    }

    /// The mailbox of a seat that is missing. Since when it was first missed stays.
    #[must_use]
    pub fn absent(&self, at: Timestamp) -> MailboxRecord {
        MailboxRecord { absent_since: self.absent_since.or(Some(at)), ..self.clone() }
    }

    /// The mailbox of a seat that is missing, being retired. Since when it first was stays.
    #[must_use]
    pub fn retiring(&self, at: Timestamp) -> MailboxRecord {
        MailboxRecord { retiring_since: self.retiring_since.or(Some(at)), ..self.absent(at) }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// A value that does not decode. Whether its mailbox may exist is unknown then.
    pub fn decode(value: &[u8]) -> Result<MailboxRecord, Cause> {
        serde_json::from_slice(value).map_err(Cause::undecodable)
    }

    /// Writes a record.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("a record of instants and JSON values always encodes").into()
    }
}

/// The key of a seat's mailbox. The handle is one segment, whatever it is made of.
///
/// # Errors
/// A handle that no seat can have: empty, with an empty part between colons, or too long.
pub fn key(handle: &str) -> Result<Key, BadArgument> {
    // A seat's lease splits its name at the colons and takes no empty part. A mailbox that no seat can have is a mistake.
    Key::from_segments("handle", handle, handle.split(':'))?;
    named::key("handle", handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_322_800 + second).unwrap()
    }

    #[test]
    fn a_record_keeps_its_wire_shape() {
        let present = MailboxRecord::default();
        for (record, wire) in [
            (present.clone(), "{}"),
            (present.absent(at(0)), r#"{"absent_since":"2026-01-02T03:00:00Z"}"#),
            (
                present.absent(at(0)).retiring(at(1)),
                r#"{"absent_since":"2026-01-02T03:00:00Z","retiring_since":"2026-01-02T03:00:01Z"}"#,
            ),
        ] {
            assert_eq!(record.encode(), wire);
            assert_eq!(MailboxRecord::decode(wire.as_bytes()).unwrap(), record);
        }
    }

    #[test]
    fn the_first_stamp_stays_until_the_seat_is_back() {
        let record = MailboxRecord::default().absent(at(0));
        assert_eq!(record.absent(at(9)), record);
        let retiring = record.retiring(at(5));
        assert_eq!((retiring.absent_since, retiring.retiring_since), (Some(at(0)), Some(at(5))));
        assert_eq!(retiring.retiring(at(9)), retiring);
        assert_eq!(retiring.present(), MailboxRecord::default());
        let unseen = MailboxRecord::default().retiring(at(5));
        assert_eq!(
            (unseen.absent_since, unseen.retiring_since),
            (Some(at(5)), Some(at(5))),
            "nobody retires a seat that is there"
        );
    }

    #[test]
    fn what_a_newer_build_wrote_is_written_back() {
        let record = MailboxRecord::decode(br#"{"moved_to":{"node":"n2"},"v":2}"#).unwrap();
        for written in [record.absent(at(0)), record.retiring(at(0)), record.retiring(at(0)).present()] {
            let written: Value = serde_json::from_slice(&written.encode()).unwrap();
            assert_eq!(
                (&written["moved_to"]["node"], &written["v"]),
                (&serde_json::json!("n2"), &serde_json::json!(2))
            );
        }
    }

    #[test]
    fn what_does_not_decode_is_unknown() {
        for wire in ["", "null", "[]", "7", "garbage", r#"{"absent_since":7}"#, r#"{"retiring_since":"soon"}"#, "{"] {
            assert!(matches!(MailboxRecord::decode(wire.as_bytes()), Err(Cause::Undecodable(_))), "{wire}");
        }
    }

    #[test]
    fn a_handle_is_one_segment_and_no_seat_has_an_empty_part() {
        assert_eq!(key("a:b").unwrap().as_str(), "a=3Ab");
        for bad in ["", ":", "a:", ":a", "a::b", &"a".repeat(2000)] {
            assert_eq!(key(bad).unwrap_err().what, "handle", "{bad}");
        }
    }
}
