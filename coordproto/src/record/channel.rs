//! The record behind a channel: who asks whom, since when, how much was said, and whether the ask is still open.
//!
//! A JSON object; instants are UTC, RFC 3339. Which channel it is, its key tells. A channel is opened once and closed once; a
//! closed one is never written again. What a newer build has put in beside stays in, whoever rewrites the record.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::named;
use crate::answer::{BadArgument, Cause};
use crate::key::Key;

/// A channel between two seats: what allows the one that is asked to answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelRecord {
    /// The seat that asks.
    pub asker: String,
    /// The seat that is asked.
    pub asked: String,
    /// When it was opened, on the clock of whoever opened it. For people; it decides nothing.
    pub opened_at: Timestamp,
    /// When it was closed, on the clock of whoever closed it first; absent while the ask is open. That it is there decides,
    /// and its value is for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
    /// How many messages were counted.
    pub messages: u64,
    /// What a newer build keeps here. It takes part in no decision and is written back as it was read.
    #[serde(flatten)]
    pub newer: Map<String, Value>,
}

impl ChannelRecord {
    /// A channel that is being opened.
    ///
    /// # Errors
    /// A seat without a handle, at either end.
    pub fn open(asker: &str, asked: &str, at: Timestamp) -> Result<ChannelRecord, BadArgument> {
        for (what, handle) in [("asker", asker), ("asked", asked)] {
            if handle.is_empty() {
                return Err(BadArgument::new(what, handle, "a channel is between two seats"));
            }
        }
        let (asker, asked) = (asker.to_owned(), asked.to_owned());
        Ok(ChannelRecord { asker, asked, opened_at: at, closed_at: None, messages: 0, newer: Map::new() })
    }

    /// Whether the ask still waits for its answer.
    pub fn is_open(&self) -> bool {
        self.closed_at.is_none()
    }

    /// The channel closed at `at`; none if it is closed already, since the first instant stays.
    #[must_use]
    pub fn closed(&self, at: Timestamp) -> Option<ChannelRecord> {
        self.is_open().then(|| ChannelRecord { closed_at: Some(at), ..self.clone() })
    }

    /// The channel with one message more; none if it is closed, since nothing is said there any more.
    #[must_use]
    pub fn counted(&self) -> Option<ChannelRecord> {
        self.is_open().then(|| ChannelRecord { messages: self.messages.saturating_add(1), ..self.clone() })
    }

    /// Reads a record.
    ///
    /// # Errors
    /// A value that does not decode. Whether its ask is open is unknown then.
    pub fn decode(value: &[u8]) -> Result<ChannelRecord, Cause> {
        serde_json::from_slice(value).map_err(Cause::undecodable)
    }

    /// Writes a record.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("a record of strings, numbers, instants and JSON values always encodes").into()
    }
}

/// The key of a channel.
///
/// # Errors
/// An id that is empty or too long.
pub fn key(id: &str) -> Result<Key, BadArgument> {
    named::key("channel", id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_322_800 + second).unwrap()
    }

    fn record() -> ChannelRecord {
        ChannelRecord::open("ada", "bob", at(0)).unwrap()
    }

    #[test]
    fn a_record_keeps_its_wire_shape() {
        let wire = r#"{"asker":"ada","asked":"bob","opened_at":"2026-01-02T03:00:00Z","messages":0}"#;
        assert_eq!(record().encode(), wire);
        assert_eq!(ChannelRecord::decode(wire.as_bytes()).unwrap(), record());
        let closed = record().counted().unwrap().closed(at(60)).unwrap();
        let wire = r#"{"asker":"ada","asked":"bob","opened_at":"2026-01-02T03:00:00Z","closed_at":"2026-01-02T03:01:00Z","messages":1}"#;
        assert_eq!(closed.encode(), wire);
        assert_eq!(ChannelRecord::decode(wire.as_bytes()).unwrap(), closed);
    }

    #[test]
    fn the_first_close_stays_and_ends_the_counting() {
        let closed = record().closed(at(1)).unwrap();
        assert!(record().is_open() && !closed.is_open());
        assert_eq!((closed.closed(at(2)), closed.counted()), (None, None));
        let full = ChannelRecord { messages: u64::MAX, ..record() };
        assert_eq!(full.counted().unwrap().messages, u64::MAX, "a full counter does not start again");
    }

    #[test]
    fn what_a_newer_build_wrote_is_written_back() {
        let wire = br#"{"messages":1,"asker":"a","asked":"b","opened_at":"2026-01-02T03:00:00Z","topic":{"n":18446744073709551615}}"#;
        let record = ChannelRecord::decode(wire).unwrap().counted().unwrap().closed(at(0)).unwrap();
        let written: Value = serde_json::from_slice(&record.encode()).unwrap();
        assert_eq!(written["topic"]["n"], u64::MAX);
        assert_eq!((record.messages, record.is_open()), (2, false));
    }

    #[test]
    fn a_record_without_what_it_needs_is_unknown() {
        let whole = serde_json::to_value(record()).unwrap();
        for field in ["asker", "asked", "opened_at", "messages"] {
            for broken in [None, Some(serde_json::json!(-7)), Some(Value::Null)] {
                let mut value = whole.clone();
                let fields = value.as_object_mut().unwrap();
                match broken {
                    None => fields.remove(field),
                    Some(broken) => fields.insert(field.into(), broken),
                };
                let answer = ChannelRecord::decode(value.to_string().as_bytes());
                assert!(matches!(answer, Err(Cause::Undecodable(_))), "{value}");
            }
        }
        let mut value = whole;
        value["closed_at"] = serde_json::json!("yesterday");
        assert!(ChannelRecord::decode(value.to_string().as_bytes()).is_err(), "neither open nor closed");
        for wire in [&b""[..], b"{}", b"null", b"[]", b"garbage"] {
            assert!(matches!(ChannelRecord::decode(wire), Err(Cause::Undecodable(_))), "{wire:?}");
        }
    }

    #[test]
    fn a_channel_has_two_ends() {
        assert_eq!(ChannelRecord::open("", "bob", at(0)).unwrap_err().what, "asker");
        assert_eq!(ChannelRecord::open("ada", "", at(0)).unwrap_err().what, "asked");
        assert_eq!(key("").unwrap_err().what, "channel");
    }
}
