//! Keys of one segment: a bucket of one kind of record, each under its whole name.

use std::iter::once;

use crate::answer::BadArgument;
use crate::key::Key;

/// The key of the record called `name`, byte for byte.
///
/// # Errors
/// An empty name, or one too long; `what` says which argument it is.
pub fn key(what: &'static str, name: &str) -> Result<Key, BadArgument> {
    Key::from_segments(what, name, once(name))
}

/// The name of the record at `key`; none for a key of several segments, which nobody who writes such records produces.
pub fn name(key: &Key) -> Option<String> {
    let mut segments = key.segments();
    let name = segments.next()?;
    segments.next().is_none().then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment_and_comes_back_byte_for_byte() {
        for (given, want) in [("a", "a"), ("a.b", "a=2Eb"), ("a:b", "a=3Ab"), ("*", "=2A"), ("é \u{0}", "=C3=A9=20=00")]
        {
            let key = key("name", given).unwrap();
            assert_eq!((key.as_str(), name(&key).as_deref()), (want, Some(given)));
        }
        assert_eq!(name(&Key::parse("a.b").unwrap()), None);
    }

    #[test]
    fn an_empty_name_and_one_too_long_are_refused() {
        for bad in ["", &"a".repeat(1025), &"é".repeat(200)] {
            let error = key("turn", bad).unwrap_err();
            assert_eq!(error.what, "turn");
            assert!(error.given.len() < 300, "{error}");
        }
    }
}
