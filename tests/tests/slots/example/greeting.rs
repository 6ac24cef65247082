//! The record of a greeted newcomer. A JSON object; that it is there decides, and the instant is for people.

use std::iter::once;

use bytes::Bytes;
use coordproto::answer::BadArgument;
use coordproto::key::Key;
use jiff::Timestamp;
use serde_json::json;

/// Writes a record.
pub fn encode(at: Timestamp) -> Bytes {
    json!({ "at": at }).to_string().into()
}

/// The key of a newcomer, one segment whatever it is made of.
///
/// # Errors
/// An empty handle, or one too long.
pub fn key(handle: &str) -> Result<Key, BadArgument> {
    Key::from_segments("handle", handle, once(handle))
}
