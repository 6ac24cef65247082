//! Records that carry their own names, so that what stands under a key can be held against it.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answer::{BadArgument, Cause};
use crate::key::Key;

/// A record, as a JSON object, that names the key it stands under.
pub trait Keyed: Serialize + DeserializeOwned {
    /// The key that the record names.
    ///
    /// # Errors
    /// A name that no key can have.
    fn key(&self) -> Result<Key, BadArgument>;

    /// The rules that its fields keep among themselves.
    ///
    /// # Errors
    /// The rule that is broken.
    fn check(&self) -> Result<(), BadArgument> {
        Ok(())
    }

    /// Reads the record under `key`.
    ///
    /// # Errors
    /// A value that does not decode, that breaks the record's rules, or that names another key than the one it stands under.
    fn decode(key: &Key, value: &[u8]) -> Result<Self, Cause> {
        let record: Self = serde_json::from_slice(value).map_err(Cause::undecodable)?;
        record.check().map_err(Cause::undecodable)?;
        let own = record.key().map_err(Cause::undecodable)?;
        if own != *key {
            return Err(Cause::undecodable(format_args!("the record of {own} stands at {key}")));
        }
        Ok(record)
    }

    /// Writes the record.
    fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("a record of strings, numbers, instants and JSON values always encodes").into()
    }
}

/// The key of these segments, each of which is given with what it is.
///
/// # Errors
/// An empty segment, by what it is, or a key too long.
pub(crate) fn key_of(named: &[(&'static str, &str)]) -> Result<Key, BadArgument> {
    for (what, name) in named {
        filled(what, name)?;
    }
    let (what, name) = named.last().copied().unwrap_or_default();
    Key::from_segments(what, name, named.iter().map(|(_, name)| *name))
}

/// Refuses what is empty.
pub(crate) fn filled(what: &'static str, given: &str) -> Result<(), BadArgument> {
    if given.is_empty() { Err(BadArgument::new(what, given, "it cannot be empty")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_segment_is_refused_by_what_it_is() {
        let error = key_of(&[("node", "n1"), ("domain", "")]).unwrap_err();
        assert_eq!((error.what, &*error.given), ("domain", ""));
        assert_eq!(key_of(&[("node", "n.1"), ("domain", "a:b")]).unwrap().as_str(), "n=2E1.a=3Ab");
        assert!(key_of(&[("node", &"n".repeat(2000))]).unwrap_err().rule.contains("at most"));
    }
}
