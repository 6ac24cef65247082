//! The records behind the company's current revision: the pointer, which says which revision it is, and bodies, which are the
//! bytes of revisions.
//!
//! The pointer is a JSON object under one key, and the revision of that key is the epoch; instants are UTC, RFC 3339. A body
//! is whatever the node that activated it sealed, and opaque here.
//!
//! Every activation writes its body under a key of its own, `body.<revision>.<attempt>`, and the pointer names the attempt.
//! So a body is never written over, and of two activations of one revision neither can put its bytes in the other's place.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::answer::{BadArgument, Cause};
use crate::key::{Class, Filter, Key, shortened};

/// The first segment of a body's key.
const BODY: &str = "body";

/// Who wrote a revision, what that is, how it came and when. It travels with the pointer, so that every node that adopts the
/// revision records the same author as the node that stored it first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The author's label: the id of a token, of a login, of a node. It may be empty, and it does not tell what the author is.
    pub author: String,
    /// What the author is, as the writer states it: `operator` or `node`.
    pub author_kind: String,
    /// How the revision came to be.
    pub source: String,
    /// When it was written, on the wall clock of the node that wrote it.
    pub created_at: Timestamp,
}

/// The activation pointer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointerRecord {
    /// The id of the revision that is current.
    pub revision: String,
    /// Which of that revision's bodies is the one that was activated, see [`body_key`].
    pub attempt: String,
    /// The instant of the activation; later than that of every activation before it.
    pub activated_at: Timestamp,
    /// Where the revision comes from.
    pub origin: Origin,
}

impl PointerRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// A value that does not decode, or that lacks what every activation is required to state. Which revision is current is
    /// unknown then.
    pub fn decode(value: &[u8]) -> Result<PointerRecord, Cause> {
        let record: PointerRecord = serde_json::from_slice(value).map_err(Cause::undecodable)?;
        let stated = check_revision(&record.revision).and_then(|()| record.origin.check());
        let named = stated.and_then(|()| body_key(&record.revision, &record.attempt));
        named.map_err(Cause::undecodable)?;
        Ok(record)
    }

    /// Writes a record.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("a record of strings and instants always encodes").into()
    }
}

impl Origin {
    fn check(&self) -> Result<(), BadArgument> {
        for (what, given) in [("author kind", &self.author_kind), ("source", &self.source)] {
            if given.is_empty() {
                return Err(BadArgument::new(what, "", "an origin has to state it: no pointer names nobody"));
            }
        }
        Ok(())
    }
}

/// What is to be activated, and on which condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The revision's id.
    pub revision: String,
    /// Where the revision comes from.
    pub origin: Origin,
    /// The revision that the pointer names, if there is a pointer.
    pub expect: Option<String>,
    /// That there is no pointer.
    pub expect_absent: bool,
}

impl Proposal {
    /// The activation of a revision, whatever is current.
    pub fn new(revision: impl Into<String>, origin: Origin) -> Proposal {
        Proposal { revision: revision.into(), origin, expect: None, expect_absent: false }
    }

    /// Checks what can be told without asking anybody: the revision, then the origin, then the expectations.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), BadArgument> {
        check_revision(&self.revision)?;
        self.origin.check()?;
        match &self.expect {
            Some(expect) if self.expect_absent => {
                let rule = "a revision is expected and none at the same time";
                Err(BadArgument::new("expectation", shortened(expect), rule))
            }
            Some(expect) if expect.is_empty() => {
                Err(BadArgument::new("expectation", "", "no revision has an empty id"))
            }
            _ => Ok(()),
        }
    }

    /// Whether it may replace the pointer that stands. An expected revision is missed only by another one, and not by there
    /// being none.
    pub fn admits(&self, standing: Option<&str>) -> bool {
        let Some(standing) = standing else { return true };
        !self.expect_absent && self.expect.as_deref().is_none_or(|expect| expect == standing)
    }
}

/// The instant to publish an activation with that happens at `now` and replaces one of the instant `replaced`: `now`, unless
/// that is no later to the millisecond, and then a millisecond after the other. What a configuration derives is stamped with
/// it and refuses an older stamp, so a clock that trails must not make a later activation an earlier one.
///
/// # Errors
/// A replaced instant at the end of all time, after which there is none.
pub fn instant_after(replaced: Option<Timestamp>, now: Timestamp) -> Result<Timestamp, Cause> {
    match replaced {
        Some(replaced) if now.as_millisecond() <= replaced.as_millisecond() => {
            let next = replaced.checked_add(SignedDuration::from_millis(1));
            next.map_err(|_| Cause::Undecodable(format!("an activation at {replaced}, after which is nothing").into()))
        }
        _ => Ok(now),
    }
}

/// The key of the pointer.
pub fn pointer_key() -> Key {
    Key::parse("pointer").expect("it is made of literal bytes")
}

/// The key of the body that an attempt to activate a revision wrote.
///
/// # Errors
/// A revision's id that is empty or too long for a key, or an empty attempt.
pub fn body_key(revision: &str, attempt: &str) -> Result<Key, BadArgument> {
    Key::from_segments("revision", revision, [BODY, revision, attempt].into_iter())
}

/// What selects the bodies and not the pointer.
pub fn bodies() -> Filter {
    Class::parse(BODY).expect("it is made of literal bytes").filter()
}

/// How an attempt is called that drew this number: 16 hexadecimal digits.
pub fn attempt(drawn: u64) -> String {
    format!("{drawn:016x}")
}

fn check_revision(revision: &str) -> Result<(), BadArgument> {
    if revision.is_empty() {
        return Err(BadArgument::new("revision", "", "a revision has an id"));
    }
    body_key(revision, &attempt(0)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(instant: &str) -> Timestamp {
        instant.parse().unwrap()
    }

    fn origin() -> Origin {
        Origin {
            author: "ada".into(),
            author_kind: "operator".into(),
            source: "api".into(),
            created_at: at("2026-01-02T03:04:05Z"),
        }
    }

    fn record() -> PointerRecord {
        let activated_at = at("2026-01-02T03:04:06.25Z");
        PointerRecord { revision: "cfg-1".into(), attempt: attempt(0x9f), activated_at, origin: origin() }
    }

    #[test]
    fn a_pointer_keeps_its_wire_shape() {
        let wire = concat!(
            r#"{"revision":"cfg-1","attempt":"000000000000009f","activated_at":"2026-01-02T03:04:06.25Z","#,
            r#""origin":{"author":"ada","author_kind":"operator","source":"api","created_at":"2026-01-02T03:04:05Z"}}"#
        );
        assert_eq!(record().encode(), wire);
        assert_eq!(PointerRecord::decode(wire.as_bytes()).unwrap(), record());
    }

    #[test]
    fn fields_and_kinds_of_a_newer_build_are_no_obstacle() {
        let mut value = serde_json::to_value(record()).unwrap();
        value["canary"] = serde_json::json!({"of": 3});
        value["origin"]["via"] = "mail".into();
        value["origin"]["author_kind"] = "robot".into();
        value["origin"]["author"] = "".into();
        let decoded = PointerRecord::decode(value.to_string().as_bytes()).unwrap();
        let origin = Origin { author: String::new(), author_kind: "robot".into(), ..origin() };
        assert_eq!(decoded, PointerRecord { origin, ..record() });
    }

    #[test]
    fn a_pointer_without_what_it_needs_is_unknown() {
        let whole = serde_json::to_value(record()).unwrap();
        let broken = |path: &str, with: Option<serde_json::Value>| {
            let mut value = whole.clone();
            let (parent, field) = path.rsplit_once('/').unwrap();
            let parent = value.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            match with {
                None => parent.remove(field),
                Some(with) => parent.insert(field.into(), with),
            };
            let answer = PointerRecord::decode(value.to_string().as_bytes());
            assert!(matches!(answer, Err(Cause::Undecodable(_))), "{value}");
        };
        let fields = ["/revision", "/attempt", "/activated_at", "/origin"];
        let origin = ["/origin/author", "/origin/author_kind", "/origin/source", "/origin/created_at"];
        for path in fields.iter().chain(&origin) {
            broken(path, None);
            broken(path, Some(7.into()));
            broken(path, Some(serde_json::Value::Null));
            if *path != "/origin/author" {
                broken(path, Some("".into()));
            }
        }
        let cut = record().encode();
        for wire in [&b""[..], b"{}", b"null", b"[]", b"garbage", &cut[..cut.len() - 1]] {
            assert!(matches!(PointerRecord::decode(wire), Err(Cause::Undecodable(_))), "{wire:?}");
        }
    }

    /// Each of these breaks what it names and everything behind it, so the order is told by what is refused.
    #[test]
    fn a_proposal_is_checked_in_order() {
        let mut proposal = Proposal {
            revision: String::new(),
            origin: Origin { author: String::new(), author_kind: String::new(), source: String::new(), ..origin() },
            expect: Some("cfg-0".into()),
            expect_absent: true,
        };
        let refused = |proposal: &Proposal| proposal.check().unwrap_err().what;
        assert_eq!(refused(&proposal), "revision");
        proposal.revision = "r".repeat(2000);
        assert_eq!(refused(&proposal), "revision");
        proposal.revision = "cfg-1".into();
        assert_eq!(refused(&proposal), "author kind");
        proposal.origin.author_kind = "node".into();
        assert_eq!(refused(&proposal), "source");
        proposal.origin.source = "seed".into();
        assert_eq!(refused(&proposal), "expectation");
        proposal.expect = Some(String::new());
        proposal.expect_absent = false;
        assert_eq!(refused(&proposal), "expectation");
        for (expect, expect_absent) in [(None, false), (None, true), (Some("cfg-0".to_owned()), false)] {
            assert_eq!(
                Proposal { expect, expect_absent, ..proposal.clone() }.check(),
                Ok(()),
                "nobody has to be named"
            );
        }
    }

    #[test]
    fn an_expected_revision_is_missed_by_another_and_absence_by_any() {
        let proposal = Proposal::new("cfg-2", origin());
        for (expect, expect_absent, over_none, over_it, over_another) in [
            (None, false, true, true, true),
            (Some("cfg-1"), false, true, true, false),
            (None, true, true, false, false),
        ] {
            let proposal = Proposal { expect: expect.map(str::to_owned), expect_absent, ..proposal.clone() };
            let admitted = [None, Some("cfg-1"), Some("cfg-0")].map(|standing| proposal.admits(standing));
            assert_eq!(admitted, [over_none, over_it, over_another], "{proposal:?}");
        }
    }

    #[test]
    fn an_activation_is_later_to_the_millisecond() {
        let replaced = at("2026-01-02T03:04:05.0065Z");
        for (now, published) in [
            ("2026-01-02T03:04:05.007Z", "2026-01-02T03:04:05.007Z"),
            ("2026-01-02T03:04:05.007000001Z", "2026-01-02T03:04:05.007000001Z"),
            ("2026-01-02T03:04:05.0069Z", "2026-01-02T03:04:05.0075Z"),
            ("2026-01-02T03:04:05.0065Z", "2026-01-02T03:04:05.0075Z"),
            ("2026-01-02T03:04:05.006Z", "2026-01-02T03:04:05.0075Z"),
            ("2025-01-02T03:04:05Z", "2026-01-02T03:04:05.0075Z"),
        ] {
            assert_eq!(instant_after(Some(replaced), at(now)), Ok(at(published)), "{now}");
        }
        assert_eq!(instant_after(None, replaced), Ok(replaced));
        assert!(matches!(instant_after(Some(Timestamp::MAX), replaced), Err(Cause::Undecodable(_))));
    }

    #[test]
    fn a_revision_is_one_segment_of_its_bodies_keys() {
        let key = |revision| body_key(revision, &attempt(1)).unwrap();
        assert_eq!(key("cfg-1").as_str(), "body.cfg-1.0000000000000001");
        assert_eq!(key("a.b/é").as_str(), "body.a=2Eb=2F=C3=A9.0000000000000001");
        assert!(bodies().selects(key("pointer").as_str()) && !bodies().selects(pointer_key().as_str()));
        for refused in [body_key("", &attempt(1)), body_key("cfg-1", ""), body_key(&"é".repeat(200), &attempt(1))] {
            assert_eq!(refused.unwrap_err().what, "revision");
        }
    }
}
