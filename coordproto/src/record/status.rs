//! The record of what a node managed to apply.
//!
//! A JSON object, one for each node. Which node it is about is told by its key, and when it was written by the broker, so that
//! neither can differ from what is true.

use std::borrow::Cow;
use std::iter::once;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::answer::{BadArgument, Cause};
use crate::key::Key;

/// The longest error in a record, in bytes, [`CUT`] included. Every peer reads it every few seconds.
pub const ERROR_BYTES_MAX: usize = 2_000;

/// What stands at the end of a text that was cut.
pub const CUT: &str = " [truncated]";

/// How an apply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApplyStatus {
    /// Applied cleanly.
    Ok,
    /// Refused, with nothing changed: the epoch before is current and correct.
    Error,
    /// Failed after something was changed that cannot be changed back. Never counted as converged.
    Degraded,
}

/// What a node says about the newest epoch that it dealt with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRecord {
    /// The epoch that this is about.
    pub epoch: u64,
    /// The revision of the company that the pointer named at that epoch.
    pub revision: String,
    /// How it ended.
    pub status: ApplyStatus,
    /// What it failed with; empty when it did not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

impl StatusRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// A value that does not decode. Such a row is nobody's report.
    pub fn decode(value: &[u8]) -> Result<StatusRecord, Cause> {
        serde_json::from_slice(value).map_err(Cause::undecodable)
    }

    /// Writes a record, its error cut at [`ERROR_BYTES_MAX`].
    pub fn encode(&self) -> Bytes {
        let error = cut(&self.error, ERROR_BYTES_MAX).into_owned();
        let record = StatusRecord { error, ..self.clone() };
        serde_json::to_vec(&record).expect("a record of numbers and strings always encodes").into()
    }
}

/// `text` if it is at most `most` bytes long; else as many whole characters of its beginning as leave room for [`CUT`], and
/// that. `most` is at least as long as the mark.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let kept = text.floor_char_boundary(most.saturating_sub(CUT.len()));
    Cow::Owned(format!("{}{CUT}", &text[..kept]))
}

/// The key of a node's record: its id, as one segment.
///
/// # Errors
/// An empty id, or one too long.
pub fn key(node: &str) -> Result<Key, BadArgument> {
    Key::from_segments("node", node, once(node))
}

/// The node whose record stands at `key`; none for a key that no node's id produces.
pub fn node(key: &Key) -> Option<String> {
    let mut segments = key.segments();
    let node = segments.next()?;
    segments.next().is_none().then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> StatusRecord {
        StatusRecord { epoch: 41, revision: "cfg-1".into(), status: ApplyStatus::Error, error: "no such image".into() }
    }

    #[test]
    fn a_record_keeps_its_wire_shape() {
        let wire = r#"{"epoch":41,"revision":"cfg-1","status":"error","error":"no such image"}"#;
        assert_eq!(record().encode(), wire);
        assert_eq!(StatusRecord::decode(wire.as_bytes()).unwrap(), record());
        let clean = StatusRecord { status: ApplyStatus::Ok, error: String::new(), ..record() };
        let wire = r#"{"epoch":41,"revision":"cfg-1","status":"ok"}"#;
        assert_eq!(clean.encode(), wire);
        assert_eq!(StatusRecord::decode(wire.as_bytes()).unwrap(), clean);
        let most = StatusRecord { epoch: u64::MAX, status: ApplyStatus::Degraded, ..record() };
        assert_eq!(StatusRecord::decode(&most.encode()).unwrap(), most);
    }

    #[test]
    fn fields_of_a_newer_build_are_ignored() {
        let wire = br#"{"seats":{"n":3},"epoch":41,"revision":"cfg-1","status":"error","error":"no such image"}"#;
        assert_eq!(StatusRecord::decode(wire).unwrap(), record());
    }

    #[test]
    fn a_record_without_what_it_needs_does_not_decode() {
        for wire in [
            "",
            "{}",
            "null",
            "garbage",
            r#"{"revision":"cfg-1","status":"ok"}"#,
            r#"{"epoch":-1,"revision":"cfg-1","status":"ok"}"#,
            r#"{"epoch":"41","revision":"cfg-1","status":"ok"}"#,
            r#"{"epoch":41,"status":"ok"}"#,
            r#"{"epoch":41,"revision":"cfg-1"}"#,
            r#"{"epoch":41,"revision":"cfg-1","status":"fine"}"#,
            r#"{"epoch":41,"revision":"cfg-1","status":"ok","error":null}"#,
        ] {
            assert!(matches!(StatusRecord::decode(wire.as_bytes()), Err(Cause::Undecodable(_))), "{wire}");
        }
    }

    #[test]
    fn an_error_is_cut_between_characters_and_says_so() {
        for (text, stored) in [
            (format!("a{}", "é".repeat(1_500)), 1_999),
            (format!("ab{}", "🙂".repeat(600)), 1_998),
            ("x".repeat(2_001), 2_000),
            ("x".repeat(1 << 20), 2_000),
        ] {
            let record = StatusRecord { error: text.clone(), ..record() };
            let kept = StatusRecord::decode(&record.encode()).unwrap().error;
            assert_eq!(kept.len(), stored);
            assert!(text.starts_with(kept.strip_suffix(CUT).expect("a mark")), "{kept}");
        }
        for text in ["", "é", &"x".repeat(2_000), &"é".repeat(1_000)] {
            assert!(matches!(cut(text, ERROR_BYTES_MAX), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn every_bound_holds() {
        for text in ["é".repeat(50), "🙂".repeat(50), "a🙂é".repeat(50)] {
            for most in CUT.len()..text.len() {
                let cut = cut(&text, most);
                assert!(cut.len() <= most && cut.len() + 4 > most && cut.ends_with(CUT), "{most}: {cut}");
            }
        }
    }

    #[test]
    fn a_nodes_id_is_one_segment_and_comes_back_byte_for_byte() {
        for (id, want) in [("node-0", "node-0"), ("A.B_c", "A=2EB_c"), ("a b", "a=20b"), ("é", "=C3=A9"), ("*", "=2A")]
        {
            let key = key(id).unwrap();
            assert_eq!((key.as_str(), node(&key).as_deref()), (want, Some(id)));
        }
        for id in ["", &"a".repeat(2000)] {
            assert_eq!(key(id).unwrap_err().what, "node");
        }
        assert_eq!(node(&Key::parse("a.b").unwrap()), None);
    }
}
