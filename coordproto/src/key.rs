//! Keys, classes and resource names.
//!
//! A key is a path of segments joined by `.`, which makes each segment a subject token that a wildcard can address. A
//! segment's literal bytes are `A-Z a-z 0-9 _ -`; every other byte is written `=` and two upper-case hex digits, so any
//! name survives the trip byte for byte and nothing in it can be read as a separator or a wildcard. Nothing is normalised:
//! two names are the same when their bytes are.
//!
//! Decoding accepts exactly what encoding produces. A key that another writer spelled differently (an escape for a byte
//! that needs none, lower-case hex) is refused, because two spellings of one name would be two records of one resource.

use std::borrow::{Borrow, Cow};
use std::fmt;

use crate::answer::BadArgument;

/// The longest key, once escaped. The broker's control line is 4,096 bytes and carries the subject, the reply subject and,
/// when a consumer is created, the filter; a name refused here costs nothing, one refused there costs the connection.
pub const KEY_BYTES_MAX: usize = 1024;

/// An escape without its digits, which encoding never produces.
const BARRIER: &str = "=";

/// The key of a record inside its bucket: escaped segments joined by `.`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<str>);

impl Key {
    /// Builds a key from the segments of a name.
    ///
    /// # Errors
    /// No segment, an empty segment, or more than [`KEY_BYTES_MAX`] bytes once escaped.
    pub fn from_segments<'a>(
        what: &'static str,
        name: &str,
        segments: impl Iterator<Item = &'a str>,
    ) -> Result<Key, BadArgument> {
        // As long as the name, where nothing has to be escaped.
        let mut key = String::with_capacity(name.len());
        let mut offset = 0;
        for segment in segments {
            if segment.is_empty() {
                return Err(BadArgument::new(what, shortened(name), format!("an empty segment at byte {offset}")));
            }
            if offset > 0 {
                key.push('.');
            }
            escape_into(segment, &mut key);
            offset += segment.len() + 1;
        }
        if key.is_empty() {
            return Err(BadArgument::new(what, name, "no segment"));
        }
        if key.len() > KEY_BYTES_MAX {
            let rule = format!("{} bytes once escaped, at most {KEY_BYTES_MAX}", key.len());
            return Err(BadArgument::new(what, shortened(name), rule));
        }
        Ok(Key(key.into()))
    }

    /// Reads a key as a store hands it out.
    ///
    /// # Errors
    /// Anything that encoding does not produce, with the byte at which it goes wrong.
    pub fn parse(raw: &str) -> Result<Key, BadArgument> {
        let mut offset = 0;
        for segment in raw.split('.') {
            if !is_plain(segment) {
                undone(segment)
                    .map_err(|(at, rule)| BadArgument::new("key", raw, format!("{rule} at byte {}", offset + at)))?;
            }
            offset += segment.len() + 1;
        }
        Ok(Key(raw.into()))
    }

    /// The key that a barrier is written under. No name escapes to it, so it stands in nobody's way, and no listing shows it.
    pub fn barrier() -> Key {
        Key(BARRIER.into())
    }

    /// The key as it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The names of the segments, unescaped.
    pub fn segments(&self) -> impl Iterator<Item = String> + '_ {
        self.names().map(Cow::into_owned)
    }

    fn names(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.0.split('.').map(|s| unescape(s).expect("a key holds only what encoding produces"))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The first segment of a name, by which its kind is listed: `seat`, `node`, `worker`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Class(Box<str>);

impl Class {
    /// The class of the seats' leases.
    pub fn seat() -> Class {
        Class("seat".into())
    }

    /// The class of the nodes' presence leases.
    pub fn node() -> Class {
        Class("node".into())
    }

    /// Checks that a class can address keys.
    ///
    /// # Errors
    /// An empty class, one that does not escape to itself, or one too long for any key to be of it. There is no class of all
    /// classes.
    pub fn parse(class: &str) -> Result<Class, BadArgument> {
        Class::check(class)?;
        Ok(Class(class.into()))
    }

    fn check(class: &str) -> Result<(), BadArgument> {
        if class.is_empty() {
            return Err(BadArgument::new(
                "class",
                class,
                "a class cannot be empty; there is no listing of all classes",
            ));
        }
        let most = KEY_BYTES_MAX - ".x".len();
        if class.len() > most {
            let rule = format!("{} bytes, at most {most}", class.len());
            return Err(BadArgument::new("class", shortened(class), rule));
        }
        match class.bytes().position(|b| !is_literal(b)) {
            None => Ok(()),
            Some(at) => Err(BadArgument::new(
                "class",
                shortened(class),
                format!("a class is made of A-Z a-z 0-9 _ -; another byte stands at byte {at}"),
            )),
        }
    }

    /// The class's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The filter that selects the class's keys.
    pub fn filter(&self) -> Filter {
        Filter(format!("{}.>", self.0).into())
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which keys of a bucket a listing or a watch is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter(Box<str>);

impl Filter {
    /// Every key of a bucket, for a bucket that is of one kind of record.
    pub fn every() -> Filter {
        Filter(">".into())
    }

    /// This key and no other.
    pub fn only(key: &Key) -> Filter {
        Filter(key.as_str().into())
    }

    /// The filter as a subject below the bucket's prefix: `seat.>`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the filter selects `key`.
    pub fn selects(&self, key: &str) -> bool {
        match self.0.strip_suffix('>') {
            Some(prefix) => key.len() > prefix.len() && key.starts_with(prefix),
            None => *self.0 == *key,
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of something leased: `seat:{handle}`, `node:{id}`, `worker:{duty}`. The part before the first `:` is its class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    name: Box<str>,
    key: Key,
}

impl Resource {
    /// Reads a resource's name.
    ///
    /// # Errors
    /// No class, a class that cannot address keys, an empty part (a key that no listing could return reads as a free seat),
    /// or a name too long.
    pub fn parse(name: &str) -> Result<Resource, BadArgument> {
        let key = Resource::key_of(name)?;
        Ok(Resource { name: name.into(), key })
    }

    fn key_of(name: &str) -> Result<Key, BadArgument> {
        let rule = "a resource is named class:name";
        let Some((class, _)) = name.split_once(':') else {
            return Err(BadArgument::new("resource", shortened(name), rule));
        };
        if let Err(error) = Class::check(class) {
            return Err(BadArgument::new("resource", shortened(name), format!("{rule}, and {}", error.rule)));
        }
        Key::from_segments("resource", name, name.split(':'))
    }

    /// The resource whose record stands at `key`.
    ///
    /// # Errors
    /// A key that no resource's name produces.
    pub fn from_key(key: &Key) -> Result<Resource, BadArgument> {
        let mut name = String::with_capacity(key.as_str().len());
        for segment in key.names() {
            if !name.is_empty() {
                name.push(':');
            }
            name.push_str(&segment);
        }
        let own = Resource::key_of(&name)?;
        if own != *key {
            return Err(BadArgument::new("key", key.as_str(), "not the key of the resource that it names"));
        }
        Ok(Resource { name: name.into(), key: own })
    }

    /// The whole name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The part before the first `:`.
    pub fn class(&self) -> &str {
        self.name.split(':').next().unwrap_or_default()
    }

    /// The key of its records.
    pub fn key(&self) -> &Key {
        &self.key
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn is_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn escape_into(segment: &str, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in segment.bytes() {
        if is_literal(byte) {
            out.push(char::from(byte));
        } else {
            out.push('=');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

fn unescape(segment: &str) -> Result<Cow<'_, str>, (usize, &'static str)> {
    if is_plain(segment) { Ok(Cow::Borrowed(segment)) } else { undone(segment).map(Cow::Owned) }
}

/// What has no escape in it is its own name: nearly every segment, and nothing is copied to find that out.
fn is_plain(segment: &str) -> bool {
    !segment.is_empty() && segment.bytes().all(is_literal)
}

/// A segment with its escapes undone.
fn undone(segment: &str) -> Result<String, (usize, &'static str)> {
    if segment.is_empty() {
        return Err((0, "an empty segment"));
    }
    let raw = segment.as_bytes();
    let mut bytes = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        if is_literal(raw[at]) {
            bytes.push(raw[at]);
            at += 1;
        } else if raw[at] == b'=' {
            let digits = raw.get(at + 1..at + 3).ok_or((at, "a truncated escape"))?;
            let byte = match (hex(digits[0]), hex(digits[1])) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err((at, "an escape is = and two upper-case hex digits; another stands")),
            };
            if is_literal(byte) {
                return Err((at, "an escape of a byte that needs none"));
            }
            bytes.push(byte);
            at += 3;
        } else {
            return Err((at, "a byte outside A-Z a-z 0-9 _ - ="));
        }
    }
    String::from_utf8(bytes).map_err(|error| (error.utf8_error().valid_up_to(), "not UTF-8 once unescaped, counted"))
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Enough of an overlong input to recognise it in an error.
pub(crate) fn shortened(name: &str) -> String {
    const SHOWN: usize = 64;
    match name.char_indices().nth(SHOWN) {
        None => name.to_owned(),
        Some((at, _)) => format!("{}… ({} bytes)", &name[..at], name.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_become_keys() {
        for (name, key) in [
            ("seat:alpha", "seat.alpha"),
            ("seat:a:b", "seat.a.b"),
            ("seat:A.B", "seat.A=2EB"),
            ("seat:team.lead", "seat.team=2Elead"),
            ("seat:a b", "seat.a=20b"),
            ("seat:*", "seat.=2A"),
            ("seat:>", "seat.=3E"),
            ("seat:a=b", "seat.a=3Db"),
            ("seat:é", "seat.=C3=A9"),
            ("seat:\u{0}", "seat.=00"),
            ("seat:..", "seat.=2E=2E"),
        ] {
            let resource = Resource::parse(name).unwrap();
            assert_eq!(resource.key().as_str(), key);
            assert_eq!(resource.class(), "seat");
            assert_eq!(Resource::from_key(&Key::parse(key).unwrap()).unwrap(), resource);
        }
    }

    #[test]
    fn names_that_no_listing_could_return_are_refused() {
        for (name, rule) in [
            ("", "class:name"),
            ("seat", "class:name"),
            ("seat:", "an empty segment at byte 5"),
            (":a", "a class cannot be empty"),
            ("seat::a", "an empty segment at byte 5"),
            ("seat:a:", "an empty segment at byte 7"),
            ("se at:a", "another byte stands at byte 2"),
            ("sé:a", "another byte stands at byte 1"),
        ] {
            let error = Resource::parse(name).unwrap_err();
            assert!(error.rule.contains(rule), "{name:?}: {error}");
        }
    }

    #[test]
    fn the_bound_counts_escaped_bytes() {
        let most = KEY_BYTES_MAX - "seat.".len();
        assert!(Resource::parse(&format!("seat:{}", "a".repeat(most))).is_ok());
        let error = Resource::parse(&format!("seat:{}", "a".repeat(most + 1))).unwrap_err();
        assert_eq!(&*error.rule, "1025 bytes once escaped, at most 1024");
        assert!(error.to_string().len() < 200, "an error shows the beginning of an overlong name: {error}");
        assert!(Resource::parse(&format!("seat:{}", "é".repeat(most / 6 + 1))).is_err());
    }

    #[test]
    fn decoding_refuses_what_encoding_does_not_produce() {
        for (raw, rule) in [
            ("", "an empty segment at byte 0"),
            ("seat..a", "an empty segment at byte 5"),
            ("seat.", "an empty segment at byte 5"),
            ("seat.a b", "a byte outside A-Z a-z 0-9 _ - = at byte 6"),
            ("seat.=2", "a truncated escape at byte 5"),
            ("seat.=2e", "two upper-case hex digits; another stands at byte 5"),
            ("seat.=G0", "two upper-case hex digits; another stands at byte 5"),
            ("seat.=41", "an escape of a byte that needs none at byte 5"),
            ("seat.=FF", "not UTF-8"),
            ("seat.*", "a byte outside"),
        ] {
            let error = Key::parse(raw).unwrap_err();
            assert!(error.rule.contains(rule), "{raw:?}: {error}");
        }
    }

    #[test]
    fn a_key_that_hides_a_separator_names_no_resource() {
        let key = Key::parse("seat.a=3Ab").unwrap();
        assert!(Resource::from_key(&key).is_err());
    }

    #[test]
    fn a_class_selects_its_own_keys_only() {
        let filter = Class::seat().filter();
        assert!(filter.selects("seat.a"));
        assert!(filter.selects("seat.a.b"));
        assert!(!filter.selects("seat"));
        assert!(!filter.selects("seat."));
        assert!(!filter.selects("seats.a"));
        let only = Filter::only(&Key::parse("seat.a").unwrap());
        assert!(only.selects("seat.a") && !only.selects("seat.a.b") && !only.selects("seat"));
        assert!(Class::parse("").is_err());
        assert!(Class::parse("*").is_err());
        assert!(Class::parse(">").is_err());
        assert!(Class::parse("a.b").is_err());
        let most = KEY_BYTES_MAX - 2;
        assert!(Resource::parse(&format!("{}:x", "a".repeat(most))).is_ok());
        assert!(Class::parse(&"a".repeat(most)).is_ok(), "every resource's class is one");
        assert!(Class::parse(&"a".repeat(most + 1)).is_err());
    }

    proptest! {
        #[test]
        fn every_name_survives_the_trip(handle in "[^:]{1,80}") {
            let name = format!("seat:{handle}");
            let resource = Resource::parse(&name).unwrap();
            prop_assert!(resource.key().as_str().bytes().all(|b| is_literal(b) || b == b'=' || b == b'.'));
            let again = Resource::from_key(&Key::parse(resource.key().as_str()).unwrap()).unwrap();
            prop_assert_eq!(again.name(), name);
        }

        #[test]
        fn two_names_two_keys(a in "[^:]{1,20}", b in "[^:]{1,20}") {
            let key = |h: &str| Resource::parse(&format!("seat:{h}")).unwrap().key().clone();
            prop_assert_eq!(a == b, key(&a) == key(&b));
        }

        #[test]
        fn what_decodes_encodes_to_itself(raw in "[A-Za-z0-9_=.A-F0-9-]{1,40}") {
            if let Ok(key) = Key::parse(&raw) {
                let segments: Vec<_> = key.segments().collect();
                let again = Key::from_segments("key", &raw, segments.iter().map(String::as_str)).unwrap();
                prop_assert_eq!(again.as_str(), raw);
            }
        }
    }
}
