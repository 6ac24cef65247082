//! Keys of one segment made of two names: `left|right`.
//!
//! Any two names go in, and no two pairs make one key: a `|` or a `\` in the left name is written with a `\` before it, so the
//! first bare `|` is the one between them.

use std::iter::once;

use crate::answer::BadArgument;
use crate::key::Key;

const BETWEEN: char = '|';
const ESCAPE: char = '\\';

/// The key of a pair of names; each comes with the word for it in an error.
///
/// # Errors
/// An empty name, or names too long for a key.
pub(super) fn key(left: (&'static str, &str), right: (&'static str, &str)) -> Result<Key, BadArgument> {
    let mut pair = String::with_capacity(left.1.len() + right.1.len() + 1);
    for (what, name) in [left, right] {
        if name.is_empty() {
            return Err(BadArgument::new(what, name, "it cannot be empty"));
        }
    }
    for c in left.1.chars() {
        if c == BETWEEN || c == ESCAPE {
            pair.push(ESCAPE);
        }
        pair.push(c);
    }
    pair.push(BETWEEN);
    pair.push_str(right.1);
    let (what, name) = if left.1.len() > right.1.len() { left } else { right };
    Key::from_segments(what, name, once(&*pair))
}

/// The two names of a key; none for one that no pair makes.
pub(super) fn parts(key: &Key) -> Option<(String, String)> {
    let mut segments = key.segments();
    let (pair, None) = (segments.next()?, segments.next()) else { return None };
    let (mut left, mut chars) = (String::new(), pair.chars());
    loop {
        match chars.next()? {
            BETWEEN => break,
            ESCAPE => left.push(chars.next()?),
            c => left.push(c),
        }
    }
    let right = chars.as_str().to_owned();
    // Only the spelling that `self::key` produces.
    let own = self::key(("", &left), ("", &right)).ok()?;
    (own == *key).then_some((left, right))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pair_is_one_segment() {
        for (left, right, want) in [
            ("alpha", "x1", "alpha=7Cx1"),
            ("a:b", "2026-01-02T03:04:05Z", "a=3Ab=7C2026-01-02T03=3A04=3A05Z"),
            ("a|b", "c", "a=5C=7Cb=7Cc"),
            ("a", "b|c", "a=7Cb=7Cc"),
            ("a\\", "|", "a=5C=5C=7C=7C"),
        ] {
            let key = key(("left", left), ("right", right)).unwrap();
            assert_eq!((key.as_str(), parts(&key)), (want, Some((left.to_owned(), right.to_owned()))));
        }
    }

    #[test]
    fn a_key_of_another_shape_is_no_pair() {
        for raw in ["a", "a.b", "a=7Cb.c", "=7Cb", "a=7C", "a=5C", "a=5Cb=7Cc"] {
            assert_eq!(parts(&Key::parse(raw).unwrap()), None, "{raw}");
        }
    }

    #[test]
    fn an_empty_name_and_names_too_long_are_refused_by_the_word_for_them() {
        let long = "a".repeat(10_240);
        for (left, right, want) in [("", "x", "scope"), ("x", "", "key"), (&long, "x", "scope"), ("x", &long, "key")] {
            let error = key(("scope", left), ("key", right)).unwrap_err();
            assert!(error.what == want && error.given.len() < 300, "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_two_pairs_make_one_key(left in r"[a|\\]{1,4}", right in r"[a|\\]{1,4}") {
            let key = key(("left", &left), ("right", &right)).unwrap();
            prop_assert_eq!(parts(&key), Some((left, right)));
        }
    }
}
