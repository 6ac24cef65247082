//! The records of the `positions` bucket: what the state log may delete, and what a change of its size waits for.
//!
//! JSON objects; instants are UTC, RFC 3339, on the clock of the node that wrote them, for people: they decide nothing, and
//! no record here ever expires. Each class has keys of its own, and a listing is of one class. The class of the paused seats
//! is in [`seat_pause`](super::seat_pause).
//!
//! A sequence is a place in the log of a domain; 0 is before the first record.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keyed::{Keyed, filled, key_of};
use crate::answer::BadArgument;
use crate::key::{Class, Key};

/// The classes, by the name that their keys begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Where a node stands in the log of a domain.
    Node,
    /// What a backup or a joining node needs kept.
    Hold,
    /// What an owner's newest backup covers.
    Backup,
    /// What the trim published.
    Floor,
    /// A change of a log's size under way.
    Maintenance,
    /// A node's admission to publish.
    Admitted,
    /// A node's word that it restarted for such a change.
    MaintenanceAck,
}

impl Kind {
    /// The class.
    pub fn class(self) -> Class {
        Class::parse(self.name()).expect("it is made of literal bytes")
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Node => "node",
            Kind::Hold => "hold",
            Kind::Backup => "backup",
            Kind::Floor => "floor",
            Kind::Maintenance => "maintenance",
            Kind::Admitted => "admitted",
            Kind::MaintenanceAck => "maintenance-ack",
        }
    }

    /// The key of the record of one name.
    ///
    /// # Errors
    /// An empty name, told as `what` it is, or one too long.
    pub fn key(self, what: &'static str, name: &str) -> Result<Key, BadArgument> {
        key_of(&[("class", self.name()), (what, name)])
    }

    fn key_in(self, first: (&'static str, &str), second: (&'static str, &str)) -> Result<Key, BadArgument> {
        key_of(&[("class", self.name()), first, second])
    }
}

/// Where a node stands in the log of a domain. It stays when the node is counted no longer, because a return is judged by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePosition {
    /// The node.
    pub node: String,
    /// The domain.
    pub domain: String,
    /// The newest sequence that it has applied.
    pub applied: u64,
    /// When it wrote this.
    pub at: Timestamp,
}

impl NodePosition {
    /// The key of a node's position in a domain.
    ///
    /// # Errors
    /// An empty name, or one too long.
    pub fn key_of(node: &str, domain: &str) -> Result<Key, BadArgument> {
        Kind::Node.key_in(("node", node), ("domain", domain))
    }
}

impl Keyed for NodePosition {
    fn key(&self) -> Result<Key, BadArgument> {
        NodePosition::key_of(&self.node, &self.domain)
    }
}

/// What a backup or a joining node needs kept, for as long as the record is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The one backup or the one join.
    pub id: String,
    /// Who holds it and what for, in words.
    pub by: String,
    /// For each domain the first sequence that has to stay.
    pub pins: BTreeMap<String, u64>,
    /// Since when.
    pub at: Timestamp,
}

impl Keyed for Hold {
    fn key(&self) -> Result<Key, BadArgument> {
        Kind::Hold.key("id", &self.id)
    }
}

/// What an owner's newest backup covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// Whose backups they are.
    pub owner: String,
    /// The newest of them.
    pub backup: String,
    /// For each domain the newest sequence that it covers.
    pub covers: BTreeMap<String, u64>,
    /// When it was complete.
    pub at: Timestamp,
}

impl Keyed for Backup {
    fn key(&self) -> Result<Key, BadArgument> {
        Kind::Backup.key("owner", &self.owner)
    }
}

/// What the trim published for a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    /// The domain.
    pub domain: String,
    /// The sequence below which a node may have to do without records.
    pub floor: u64,
    /// The sequence up to which records may be deleted, never above the floor; at 0 none may.
    pub trim_to: u64,
    /// What it was made of: every term that had a say, and the sequence that it allows.
    #[serde(default)]
    pub terms: BTreeMap<String, u64>,
    /// The term that holds it where it is. A trim that may delete nothing although terms had a say names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// When it was published.
    pub at: Timestamp,
}

impl Keyed for Floor {
    fn key(&self) -> Result<Key, BadArgument> {
        Kind::Floor.key("domain", &self.domain)
    }

    fn check(&self) -> Result<(), BadArgument> {
        if self.trim_to > self.floor {
            let rule = format!("at most the floor, {}", self.floor);
            return Err(BadArgument::new("trim_to", self.trim_to.to_string(), rule));
        }
        let blocked_by = self.blocked_by.as_deref().unwrap_or_default();
        if self.trim_to == 0 && !self.terms.is_empty() && blocked_by.is_empty() {
            return Err(BadArgument::new(
                "blocked_by",
                blocked_by,
                "a trim to 0 with terms names the one that blocks it",
            ));
        }
        Ok(())
    }
}

/// A change of a log's size under way. Nobody is admitted to publish to the log while the record is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maintenance {
    /// The log.
    pub log: String,
    /// The one change.
    pub operation: String,
    /// Who asked for it.
    pub by: String,
    /// Since when.
    pub at: Timestamp,
    /// What it is and how far it came; opaque here.
    pub state: Value,
}

impl Keyed for Maintenance {
    fn key(&self) -> Result<Key, BadArgument> {
        Kind::Maintenance.key("log", &self.log)
    }

    fn check(&self) -> Result<(), BadArgument> {
        filled("operation", &self.operation)
    }
}

/// A node's admission to publish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// The node.
    pub node: String,
    /// The one run of it that was admitted.
    pub incarnation: String,
    /// When.
    pub at: Timestamp,
}

impl Keyed for Admission {
    fn key(&self) -> Result<Key, BadArgument> {
        Kind::Admitted.key("node", &self.node)
    }

    fn check(&self) -> Result<(), BadArgument> {
        filled("incarnation", &self.incarnation)
    }
}

/// A node's word that it restarted for a change of a log's size. It is under the operation and the node, so that no word for
/// another operation takes its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaintenanceAck {
    /// The operation.
    pub operation: String,
    /// The node.
    pub node: String,
    /// When it had restarted.
    pub at: Timestamp,
}

impl MaintenanceAck {
    /// The key of a node's word for an operation.
    ///
    /// # Errors
    /// An empty name, or one too long.
    pub fn key_of(operation: &str, node: &str) -> Result<Key, BadArgument> {
        Kind::MaintenanceAck.key_in(("operation", operation), ("node", node))
    }
}

impl Keyed for MaintenanceAck {
    fn key(&self) -> Result<Key, BadArgument> {
        MaintenanceAck::key_of(&self.operation, &self.node)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::answer::Cause;
    use crate::record::seat_pause;

    const KINDS: [Kind; 7] =
        [Kind::Node, Kind::Hold, Kind::Backup, Kind::Floor, Kind::Maintenance, Kind::Admitted, Kind::MaintenanceAck];

    /// What stands at `key` as `wire`, without each of `needs` and with a field of a newer build.
    fn keeps<R: Keyed + PartialEq + Debug>(record: &R, at: &str, wire: &str, needs: &[&str]) {
        let key = Key::parse(at).unwrap();
        assert_eq!(record.key().unwrap(), key);
        assert_eq!(record.encode(), wire);
        let mut newer: Value = serde_json::from_str(wire).unwrap();
        let fields = newer.as_object_mut().unwrap();
        fields.insert("shard".into(), serde_json::json!({"of": 3}));
        assert_eq!(R::decode(&key, newer.to_string().as_bytes()).unwrap(), *record);
        for need in needs {
            for broken in [None, Some(Value::Null), Some(serde_json::json!([7]))] {
                let mut value: Value = serde_json::from_str(wire).unwrap();
                let fields = value.as_object_mut().unwrap();
                match broken {
                    None => fields.remove(*need),
                    Some(broken) => fields.insert((*need).into(), broken),
                };
                let told = R::decode(&key, value.to_string().as_bytes());
                assert!(matches!(told, Err(Cause::Undecodable(_))), "{value}");
            }
        }
        for bad in [&b""[..], b"{}", b"null", b"garbage", &wire.as_bytes()[..wire.len() - 1]] {
            assert!(matches!(R::decode(&key, bad), Err(Cause::Undecodable(_))), "{at}: {bad:?}");
        }
        let elsewhere = Key::parse(&format!("{at}x")).unwrap();
        assert!(matches!(R::decode(&elsewhere, wire.as_bytes()), Err(Cause::Undecodable(_))), "{elsewhere}");
    }

    fn at() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    fn map(domain: &str, sequence: u64) -> BTreeMap<String, u64> {
        BTreeMap::from([(domain.to_owned(), sequence)])
    }

    fn floor() -> Floor {
        let blocked_by = Some("node.n1".into());
        Floor { domain: "work".into(), floor: 9, trim_to: 9, terms: map("node.n1", 9), blocked_by, at: at() }
    }

    #[test]
    fn the_classes_are_eight_and_every_one_escapes_to_itself() {
        let mut names: Vec<String> = KINDS.iter().map(|kind| kind.class().as_str().to_owned()).collect();
        names.push(seat_pause::class().as_str().to_owned());
        for (i, kind) in KINDS.into_iter().enumerate() {
            let key = kind.key("name", "maintenance-ack").unwrap();
            assert_eq!(key.as_str(), format!("{}.maintenance-ack", names[i]));
            let selecting = names.iter().filter(|name| Class::parse(name).unwrap().filter().selects(key.as_str()));
            assert_eq!(selecting.collect::<Vec<_>>(), [&names[i]], "a listing is of one class");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 8);
    }

    #[test]
    fn the_records_keep_their_wire_shapes() {
        let node = NodePosition { node: "n.1".into(), domain: "work".into(), applied: u64::MAX, at: at() };
        let wire = r#"{"node":"n.1","domain":"work","applied":18446744073709551615,"at":"2026-01-02T03:04:05Z"}"#;
        keeps(&node, "node.n=2E1.work", wire, &["node", "domain", "applied", "at"]);
        let hold = Hold { id: "b1".into(), by: "backup of n1".into(), pins: map("work", 4), at: at() };
        let wire = r#"{"id":"b1","by":"backup of n1","pins":{"work":4},"at":"2026-01-02T03:04:05Z"}"#;
        keeps(&hold, "hold.b1", wire, &["id", "by", "pins", "at"]);
        let backup = Backup { owner: "ops".into(), backup: "b1".into(), covers: map("work", 4), at: at() };
        let wire = r#"{"owner":"ops","backup":"b1","covers":{"work":4},"at":"2026-01-02T03:04:05Z"}"#;
        keeps(&backup, "backup.ops", wire, &["owner", "backup", "covers", "at"]);
        let wire = r#"{"domain":"work","floor":9,"trim_to":9,"terms":{"node.n1":9},"blocked_by":"node.n1","at":"2026-01-02T03:04:05Z"}"#;
        keeps(&floor(), "floor.work", wire, &["domain", "floor", "trim_to", "at"]);
        let state = serde_json::json!({"to_bytes": 7});
        let by = "ada".to_owned();
        let maintenance = Maintenance { log: "work".into(), operation: "o1".into(), by, at: at(), state };
        let wire = r#"{"log":"work","operation":"o1","by":"ada","at":"2026-01-02T03:04:05Z","state":{"to_bytes":7}}"#;
        keeps(&maintenance, "maintenance.work", wire, &["log", "operation", "by", "at"]);
        let admission = Admission { node: "n1".into(), incarnation: "r7".into(), at: at() };
        let wire = r#"{"node":"n1","incarnation":"r7","at":"2026-01-02T03:04:05Z"}"#;
        keeps(&admission, "admitted.n1", wire, &["node", "incarnation", "at"]);
        let ack = MaintenanceAck { operation: "o1".into(), node: "n1".into(), at: at() };
        let wire = r#"{"operation":"o1","node":"n1","at":"2026-01-02T03:04:05Z"}"#;
        keeps(&ack, "maintenance-ack.o1.n1", wire, &["operation", "node", "at"]);
    }

    #[test]
    fn a_floor_that_contradicts_itself_is_none() {
        let above = Floor { trim_to: 10, ..floor() };
        let unnamed = Floor { trim_to: 0, blocked_by: None, ..floor() };
        let empty = Floor { blocked_by: Some(String::new()), ..unnamed.clone() };
        for (bad, what) in [(above, "trim_to"), (unnamed.clone(), "blocked_by"), (empty, "blocked_by")] {
            assert_eq!(bad.check().unwrap_err().what, what);
            let told = Floor::decode(&bad.key().unwrap(), &bad.encode());
            assert!(matches!(told, Err(Cause::Undecodable(_))), "{bad:?}");
        }
        for good in [
            Floor { trim_to: 0, ..floor() },
            Floor { trim_to: 1, ..unnamed.clone() },
            Floor { terms: BTreeMap::new(), ..unnamed.clone() },
            Floor { floor: 0, trim_to: 0, terms: BTreeMap::new(), ..unnamed },
        ] {
            assert_eq!(Floor::decode(&good.key().unwrap(), &good.encode()).unwrap(), good);
        }
    }

    #[test]
    fn what_has_no_name_is_refused() {
        for kind in KINDS {
            assert_eq!(kind.key("node", "").unwrap_err().what, "node");
        }
        assert_eq!(NodePosition::key_of("n1", "").unwrap_err().what, "domain");
        assert_eq!(MaintenanceAck::key_of("", "n1").unwrap_err().what, "operation");
        let admission = Admission { node: "n1".into(), incarnation: String::new(), at: at() };
        assert_eq!(admission.check().unwrap_err().what, "incarnation");
    }
}
