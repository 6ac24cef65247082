//! The record behind a paused seat: who paused it, why, when, and whether its running turn was stopped too.
//!
//! A JSON object; the instant is UTC, RFC 3339. Which seat it is about is told by its key, and by nothing else, so that the
//! two cannot differ.

use std::iter::once;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::answer::{BadArgument, Cause};
use crate::key::{Class, Key};

/// The class of these records in the `positions` bucket.
pub const CLASS: &str = "seat_pause";

/// A seat that a person has paused. That it is there is what pauses the seat; none of its fields decides that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeatPauseRecord {
    /// Who paused the seat, as the one who asked was known.
    pub by: String,
    /// Why, in that person's words.
    pub why: String,
    /// When, on the wall clock of the node that was asked. For people; it decides nothing.
    pub at: Timestamp,
    /// Whether the turn that was running was stopped too. Otherwise it runs to its end, and no other begins.
    pub turn_stopped: bool,
}

impl SeatPauseRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// A value that does not decode. Whether its seat is paused is unknown then.
    pub fn decode(value: &[u8]) -> Result<SeatPauseRecord, Cause> {
        serde_json::from_slice(value).map_err(Cause::undecodable)
    }

    /// Writes a record.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("a record of strings, a boolean and an instant always encodes").into()
    }
}

/// The class, by which these records are listed and watched.
pub fn class() -> Class {
    Class::parse(CLASS).expect("it is made of literal bytes")
}

/// The key of a seat's pause. The handle is one segment of it, whatever it is made of.
///
/// # Errors
/// A handle that no seat can have: empty, with an empty part between colons, or too long.
pub fn key(handle: &str) -> Result<Key, BadArgument> {
    // A seat's lease splits its name at the colons and takes no empty part. A pause that no seat can meet is a mistake.
    Key::from_segments("handle", handle, handle.split(':'))?;
    Key::from_segments("handle", handle, once(CLASS).chain(once(handle)))
}

/// The handle of the seat whose pause stands at `key`.
///
/// # Errors
/// A key that no handle produces.
pub fn handle(key: &Key) -> Result<String, Cause> {
    let mut segments = key.segments().skip(1);
    let handle = segments.next().unwrap_or_default();
    match self::key(&handle) {
        Ok(own) if own == *key => Ok(handle),
        _ => Err(Cause::Undecodable(format!("{key} is not the key of a seat's pause").into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> SeatPauseRecord {
        SeatPauseRecord {
            by: "ada".into(),
            why: "it mails the wrong people".into(),
            at: "2026-01-02T03:04:05Z".parse().unwrap(),
            turn_stopped: true,
        }
    }

    #[test]
    fn a_record_keeps_its_wire_shape() {
        let wire = r#"{"by":"ada","why":"it mails the wrong people","at":"2026-01-02T03:04:05Z","turn_stopped":true}"#;
        assert_eq!(record().encode(), wire);
        assert_eq!(SeatPauseRecord::decode(wire.as_bytes()).unwrap(), record());
    }

    #[test]
    fn fields_of_a_newer_build_are_ignored() {
        let wire = br#"{"until":{"day":3},"by":"a","why":"","at":"2026-01-02T03:04:05Z","turn_stopped":false,"v":2}"#;
        assert_eq!(SeatPauseRecord::decode(wire).unwrap().by, "a");
    }

    #[test]
    fn a_record_without_what_it_needs_is_unknown() {
        let whole = serde_json::to_value(record()).unwrap();
        for field in ["by", "why", "at", "turn_stopped"] {
            for broken in [None, Some(serde_json::json!(7)), Some(serde_json::Value::Null)] {
                let mut value = whole.clone();
                let fields = value.as_object_mut().unwrap();
                match broken {
                    None => fields.remove(field),
                    Some(broken) => fields.insert(field.into(), broken),
                };
                let answer = SeatPauseRecord::decode(value.to_string().as_bytes());
                assert!(matches!(answer, Err(Cause::Undecodable(_))), "{value}");
            }
        }
        let cut = record().encode();
        for wire in [&b""[..], b"{}", b"null", b"[]", b"garbage", &cut[..cut.len() - 1]] {
            assert!(matches!(SeatPauseRecord::decode(wire), Err(Cause::Undecodable(_))), "{wire:?}");
        }
    }

    #[test]
    fn a_handle_is_one_segment_and_comes_back_byte_for_byte() {
        for (name, want) in [
            ("alpha", "seat_pause.alpha"),
            ("A.B", "seat_pause.A=2EB"),
            ("a:b", "seat_pause.a=3Ab"),
            ("..", "seat_pause.=2E=2E"),
            ("*", "seat_pause.=2A"),
            ("é \u{0}", "seat_pause.=C3=A9=20=00"),
        ] {
            let key = key(name).unwrap();
            assert_eq!((key.as_str(), &*handle(&key).unwrap()), (want, name));
            assert!(class().filter().selects(key.as_str()));
        }
    }

    #[test]
    fn a_handle_that_no_seat_can_have_is_refused_with_the_byte_at_which_it_goes_wrong() {
        for (name, rule) in [("", "byte 0"), (":", "byte 0"), ("a:", "byte 2"), ("a::b", "byte 2"), (":a", "byte 0")] {
            let error = key(name).unwrap_err();
            assert!(error.what == "handle" && *error.given == *name && error.rule.contains(rule), "{error}");
        }
        for long in ["a".repeat(2000), "é".repeat(200)] {
            let error = key(&long).unwrap_err();
            assert!(error.rule.contains("at most") && error.given.len() < 300, "{error}");
        }
    }

    #[test]
    fn a_key_of_another_shape_names_no_seat() {
        for raw in ["seat_pause.a.b", "seat_pause", "node.a", "seat.a", "seat_pause.a=3A"] {
            assert!(matches!(handle(&Key::parse(raw).unwrap()), Err(Cause::Undecodable(_))), "{raw}");
        }
    }
}
