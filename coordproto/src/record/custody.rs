//! The record of which data node keeps a batch of events. A JSON object.

use serde::{Deserialize, Serialize};

use super::keyed::{Keyed, filled, key_of};
use crate::answer::BadArgument;
use crate::key::Key;

/// A batch and its keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustodyRecord {
    /// The batch.
    pub batch: String,
    /// The node that keeps it.
    pub node: String,
}

impl Keyed for CustodyRecord {
    /// The batch is one segment, whatever it is made of.
    fn key(&self) -> Result<Key, BadArgument> {
        key_of(&[("batch", &self.batch)])
    }

    fn check(&self) -> Result<(), BadArgument> {
        filled("node", &self.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Cause;

    #[test]
    fn a_record_keeps_its_wire_shape() {
        let record = CustodyRecord { batch: "b/1".into(), node: "n1".into() };
        let (key, wire) = (record.key().unwrap(), r#"{"batch":"b/1","node":"n1"}"#);
        assert_eq!((key.as_str(), &record.encode()[..]), ("b=2F1", wire.as_bytes()));
        assert_eq!(CustodyRecord::decode(&key, br#"{"node":"n1","events":4,"batch":"b/1"}"#).unwrap(), record);
        for wire in
            ["{}", "garbage", r#"{"batch":"b/1"}"#, r#"{"batch":"b/1","node":""}"#, r#"{"batch":"b","node":"n"}"#]
        {
            assert!(matches!(CustodyRecord::decode(&key, wire.as_bytes()), Err(Cause::Undecodable(_))), "{wire}");
        }
    }
}
