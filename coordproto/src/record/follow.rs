//! The record of a chat thread that a seat follows.
//!
//! The key says it all. That the record is there is what follows the thread, and its value is an empty JSON object that
//! decides nothing.

use bytes::Bytes;

use super::keyed::key_of;
use crate::answer::BadArgument;
use crate::key::Key;

/// A seat and a thread, as a chat backend knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread<'a> {
    /// The chat backend.
    pub backend: &'a str,
    /// The seat's handle.
    pub handle: &'a str,
    /// The channel, as the backend names it.
    pub channel: &'a str,
    /// The thread, as the backend names it.
    pub thread: &'a str,
}

impl Thread<'_> {
    /// The key: backend, handle, channel and thread, each a segment.
    ///
    /// # Errors
    /// An incomplete identity, naming what is empty, or one too long.
    pub fn key(&self) -> Result<Key, BadArgument> {
        let Thread { backend, handle, channel, thread } = *self;
        key_of(&[("backend", backend), ("handle", handle), ("channel", channel), ("thread", thread)])
    }
}

/// What a follow writes.
pub fn value() -> Bytes {
    Bytes::from_static(b"{}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_four_segments_and_an_incomplete_one_is_none() {
        let whole = Thread { backend: "slack", handle: "a.b", channel: "C1", thread: "17.5" };
        assert_eq!(whole.key().unwrap().as_str(), "slack.a=2Eb.C1.17=2E5");
        for (what, thread) in [
            ("backend", Thread { backend: "", ..whole }),
            ("handle", Thread { handle: "", ..whole }),
            ("channel", Thread { channel: "", ..whole }),
            ("thread", Thread { thread: "", ..whole }),
        ] {
            assert_eq!(thread.key().unwrap_err().what, what);
        }
    }
}
