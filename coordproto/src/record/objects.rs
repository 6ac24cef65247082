//! The two records about the company's files: which store they are in, and what the collector found last.
//!
//! JSON objects; the instant is UTC, RFC 3339.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keyed::{Keyed, filled};
use crate::answer::BadArgument;
use crate::key::Key;

/// Which store the company's files are in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendRecord {
    /// `nats`, or `s3:<endpoint>/<bucket>/<prefix>`. It is compared byte for byte and not taken apart.
    pub backend: String,
}

/// What the newest pass of the collector found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectionRecord {
    /// The node that ran it.
    pub node: String,
    /// When, on that node's clock. For people; it decides nothing.
    pub at: Timestamp,
    /// What it found; opaque here.
    pub found: Value,
}

impl Keyed for BackendRecord {
    fn key(&self) -> Result<Key, BadArgument> {
        Ok(backend())
    }

    fn check(&self) -> Result<(), BadArgument> {
        filled("backend", &self.backend)
    }
}

impl Keyed for CollectionRecord {
    fn key(&self) -> Result<Key, BadArgument> {
        Ok(collection())
    }

    fn check(&self) -> Result<(), BadArgument> {
        filled("node", &self.node)
    }
}

fn backend() -> Key {
    Key::parse("backend").expect("it is made of literal bytes")
}

/// The key of what the collector found.
pub fn collection() -> Key {
    Key::parse("collection").expect("it is made of literal bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Cause;

    #[test]
    fn the_records_keep_their_wire_shapes() {
        let nats = BackendRecord { backend: "nats".into() };
        assert_eq!(nats.encode(), r#"{"backend":"nats"}"#);
        assert_eq!(BackendRecord::decode(&backend(), br#"{"v":2,"backend":"nats"}"#).unwrap(), nats);
        let found = serde_json::json!({"orphans": 3});
        let pass = CollectionRecord { node: "n1".into(), at: "2026-01-02T03:04:05Z".parse().unwrap(), found };
        let wire = r#"{"node":"n1","at":"2026-01-02T03:04:05Z","found":{"orphans":3}}"#;
        assert_eq!(pass.encode(), wire);
        assert_eq!(CollectionRecord::decode(&collection(), wire.as_bytes()).unwrap(), pass);
    }

    #[test]
    fn what_does_not_decode_is_unknown() {
        for wire in ["", "{}", "null", "garbage", r#"{"backend":""}"#, r#"{"node":"n1","found":{}}"#] {
            let backend = BackendRecord::decode(&backend(), wire.as_bytes()).map(drop);
            let pass = CollectionRecord::decode(&collection(), wire.as_bytes()).map(drop);
            for told in [backend, pass] {
                assert!(matches!(told, Err(Cause::Undecodable(_))), "{wire}");
            }
        }
    }
}
