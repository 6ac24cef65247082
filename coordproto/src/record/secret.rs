//! The record behind a secret: what the caller sealed, by whom and when.
//!
//! A JSON object; the instant is UTC, RFC 3339, and the sealed bytes are standard base64. Which secret it is, its key tells. The
//! coordination layer has no key to what is sealed. Even so no sealed byte is in anything that is meant to be read: not in
//! what [`Debug`](fmt::Debug) prints, and in no error, whatever stands in the record's place.

use std::fmt;

use base64_simd::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::named;
use crate::answer::{BadArgument, Cause};
use crate::key::Key;

/// The most that a sealed value may be, in bytes: a secret of 64 KiB, in an envelope of as much again.
pub const SEALED_BYTES_MAX: usize = 128 << 10;

/// A value that the caller has sealed. It is never empty, for a sealed value is not even where what is in it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed(Bytes);

impl Sealed {
    /// Takes what the caller has sealed.
    ///
    /// # Errors
    /// Nothing at all, or more than [`SEALED_BYTES_MAX`]. The error says how much it was, and none of it.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Sealed, BadArgument> {
        let bytes = bytes.into();
        match bytes.len() {
            0 => Err(BadArgument::new("sealed value", "0 bytes", "a sealed value is not empty")),
            1..=SEALED_BYTES_MAX => Ok(Sealed(bytes)),
            more => {
                let rule = format!("at most {SEALED_BYTES_MAX} bytes");
                Err(BadArgument::new("sealed value", format!("{more} bytes"), rule))
            }
        }
    }

    /// What the caller has the key to.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

/// How much it is, and none of it.
impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}

impl Serialize for Sealed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode_to_string(&self.0))
    }
}

impl<'de> Deserialize<'de> for Sealed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sealed, D::Error> {
        let encoded = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode_to_vec(encoded).map_err(|_| de::Error::custom("no base64"))?;
        Sealed::new(bytes).map_err(de::Error::custom)
    }
}

/// A secret as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRecord {
    /// What the caller sealed.
    pub sealed: Sealed,
    /// Who set it, as the one who asked was known.
    pub by: String,
    /// When, on the wall clock of the node that was asked. For people; it decides nothing.
    pub at: Timestamp,
}

impl SecretRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// A value that does not decode. The error says where, and nothing of what stands there: the decoder's own words would
    /// quote it.
    pub fn decode(value: &[u8]) -> Result<SecretRecord, Cause> {
        serde_json::from_slice(value).map_err(|error| {
            let what = match error.classify() {
                serde_json::error::Category::Data => "not the record of a secret",
                _ => "no JSON",
            };
            let (line, column, bytes) = (error.line(), error.column(), value.len());
            Cause::Undecodable(format!("{what}, at line {line}, column {column}, of {bytes} bytes").into())
        })
    }

    /// Writes a record.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("a record of strings and an instant always encodes").into()
    }
}

/// The key of a secret, which is its name: what stands in `${NAME}`.
///
/// # Errors
/// A name that is not made of `A-Z a-z 0-9 _`, that begins with a digit, that is empty or too long. Whoever mistakes a value
/// for a name has it refused unseen: the error shows no more than how long it was.
pub fn key(name: &str) -> Result<Key, BadArgument> {
    let refused = |rule: &str| Err(BadArgument::new("name", format!("{} bytes", name.len()), rule));
    let Some(first) = name.bytes().next() else { return refused("a secret has a name") };
    if first.is_ascii_digit() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return refused("a name is made of A-Z a-z 0-9 _ and begins with no digit");
    }
    named::key("name", name).or_else(|error| refused(&error.rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "TOK_SECRET123";

    fn record() -> SecretRecord {
        let at = "2026-01-02T03:04:05Z".parse().unwrap();
        SecretRecord { sealed: Sealed::new(VALUE).unwrap(), by: "ada".into(), at }
    }

    #[test]
    fn a_record_keeps_its_wire_shape() {
        let wire = r#"{"sealed":"VE9LX1NFQ1JFVDEyMw==","by":"ada","at":"2026-01-02T03:04:05Z"}"#;
        assert_eq!(record().encode(), wire);
        assert_eq!(SecretRecord::decode(wire.as_bytes()).unwrap(), record());
        let newer = br#"{"key_id":"k2","sealed":"VE9LX1NFQ1JFVDEyMw==","by":"ada","at":"2026-01-02T03:04:05Z"}"#;
        assert_eq!(SecretRecord::decode(newer).unwrap(), record(), "a field of a newer build is ignored");
    }

    #[test]
    fn every_byte_comes_back() {
        for bytes in [(0..=255).collect(), vec![0], vec![255; SEALED_BYTES_MAX]] {
            let sealed = Sealed::new(bytes.clone()).unwrap();
            let record = SecretRecord { sealed, ..record() };
            assert_eq!(SecretRecord::decode(&record.encode()).unwrap().sealed.bytes(), &bytes);
        }
    }

    #[test]
    fn what_is_printed_shows_no_value() {
        let printed = format!("{:?} {:#?}", record(), record());
        assert!(printed.contains("Sealed(13 bytes)") && printed.contains("ada"), "{printed}");
        for shown in [VALUE, "VE9LX1NFQ1JFVDEyMw==", "84, 79"] {
            assert!(!printed.contains(shown), "{printed}");
        }
    }

    #[test]
    fn an_error_shows_no_value_whatever_stands_in_the_records_place() {
        let at = r#""by":"a","at":"2026-01-02T03:04:05Z""#;
        for wire in [
            VALUE.to_owned(),
            format!("\"{VALUE}\""),
            "90071234567".to_owned(),
            format!("{{\"{VALUE}\":1}}"),
            format!("{{\"sealed\":90071234567,{at}}}"),
            format!("{{\"sealed\":\"{VALUE}\",{at}}}"),
            format!("{{\"sealed\":\"\",{at}}}"),
            format!("{{\"sealed\":null,{at}}}"),
            format!("{{\"sealed\":\"VE9L\",\"by\":\"a\",\"at\":\"{VALUE}\"}}"),
            r#"{"sealed":"VE9L","by":90071234567,"at":"2026-01-02T03:04:05Z"}"#.to_owned(),
            "{\"sealed\":\"VE9L\",\"by\":\"a\"}".to_owned(),
            String::new(),
            "{}".to_owned(),
        ] {
            let error = SecretRecord::decode(wire.as_bytes()).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(matches!(error, Cause::Undecodable(_)), "{wire}");
            assert!(!shown.contains(VALUE) && !shown.contains("90071234567"), "{shown}");
        }
    }

    #[test]
    fn a_sealed_value_is_neither_empty_nor_more_than_an_envelope() {
        for (bytes, given) in [(0, "0 bytes"), (SEALED_BYTES_MAX + 1, "131073 bytes")] {
            let error = Sealed::new(vec![b'x'; bytes]).unwrap_err();
            assert_eq!((error.what, &*error.given), ("sealed value", given));
        }
    }

    #[test]
    fn a_name_is_what_a_reference_can_name() {
        for name in ["A", "_", "api_key", "API_KEY_2", "a1", &"A".repeat(1024)] {
            assert_eq!(key(name).unwrap().as_str(), name);
        }
        let long = "A".repeat(1025);
        for name in ["", "1A", "A-B", "A.B", "A B", "é", "${A}", "A=TOK_SECRET123", "a:b", "*", "A\n", &long] {
            let error = key(name).unwrap_err();
            assert_eq!((error.what, &*error.given), ("name", &*format!("{} bytes", name.len())));
            assert!(!error.to_string().contains("TOK_SECRET123"), "{error}");
        }
    }
}
