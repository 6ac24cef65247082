//! The record behind a credential that cools down: until when its vendor refuses it.
//!
//! A JSON object under `provider entry|hint`; the instant is UTC, RFC 3339. It is an instant and not a duration, since a
//! duration would begin again for everybody who reads it. The hint tells a handful of keys apart and gives none away.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use jiff::civil::DateTime;
use jiff::fmt::rfc2822;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::pair;
use crate::answer::{BadArgument, Cause};
use crate::key::Key;

/// The shortest cooldown, also where the vendor does not say or cannot be understood.
pub const FLOOR: Duration = Duration::from_secs(60);

/// The longest cooldown: the age of the bucket that keeps it.
pub const CAP: Duration = Duration::from_secs(24 * 60 * 60);

/// The bytes of a digest that a hint shows, as two hex digits each.
const HINT_BYTES: usize = 6;

/// A credential that cools down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CooldownRecord {
    /// The instant at which it may be tried again.
    pub until: Timestamp,
}

impl CooldownRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// A value that does not decode. It says nothing about its credential.
    pub fn decode(value: &[u8]) -> Result<CooldownRecord, Cause> {
        serde_json::from_slice(value).map_err(Cause::undecodable)
    }

    /// Writes a record.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("a record of an instant always encodes").into()
    }
}

/// One credential under one provider entry. The same credential under another entry is another rate limit at the vendor, and
/// another of these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Credential {
    entry: Box<str>,
    hint: Box<str>,
    key: Key,
}

impl Credential {
    /// The credential `secret` of a provider entry. The secret itself is not kept.
    ///
    /// # Errors
    /// An entry without a name, or with one too long.
    pub fn new(entry: &str, secret: &[u8]) -> Result<Credential, BadArgument> {
        let hint: String = Sha256::digest(secret)[..HINT_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        let key = pair::key(("provider entry", entry), ("hint", &hint))?;
        Ok(Credential { entry: entry.into(), hint: hint.into(), key })
    }

    /// The credential whose cooldown stands at `key`; none for a key that no credential produces.
    pub fn from_key(key: &Key) -> Option<Credential> {
        let (entry, hint) = pair::parts(key)?;
        let is_hint = hint.len() == 2 * HINT_BYTES && hint.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        is_hint.then(|| Credential { entry: entry.into(), hint: hint.into(), key: key.clone() })
    }

    /// The provider entry that it is listed under.
    pub fn entry(&self) -> &str {
        &self.entry
    }

    /// The first 12 hex digits of its SHA-256.
    pub fn hint(&self) -> &str {
        &self.hint
    }

    /// The key of its record.
    pub fn key(&self) -> &Key {
        &self.key
    }
}

/// As `entry (hint)`.
impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.entry, self.hint)
    }
}

/// Until when a credential that was refused at `now` cools down: as the response's `Retry-After` asks (RFC 9110, section
/// 10.2.3: seconds, of which a fraction is rounded up, or a date), at least [`FLOOR`] and at most [`CAP`]. What is missing or
/// cannot be understood asks for the floor.
pub fn retry_after(header: Option<&str>, now: Timestamp) -> Timestamp {
    let asked = header.map(str::trim).and_then(|header| {
        let wait = seconds(header).or_else(|| date(header).map(|until| now.duration_until(until)))?;
        Some(Duration::try_from(wait).unwrap_or(Duration::ZERO))
    });
    let wait = asked.unwrap_or(FLOOR).clamp(FLOOR, CAP);
    let wait = SignedDuration::try_from(wait).expect("a day fits");
    now.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// A number of seconds in decimal digits, with a sign or a fraction perhaps. Vendors send both.
fn seconds(header: &str) -> Option<SignedDuration> {
    let (negative, digits) = match header.as_bytes() {
        [b'-', ..] => (true, &header[1..]),
        [b'+', ..] => (false, &header[1..]),
        _ => (false, header),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let digits_only = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits_only(whole) || !digits_only(fraction) || whole.len() + fraction.len() == 0 {
        return None;
    }
    if negative {
        return Some(SignedDuration::ZERO);
    }
    // Digits that do not fit are a wait that is capped anyway.
    let whole = if whole.is_empty() { 0 } else { whole.parse().unwrap_or(i64::MAX) };
    let up = i64::from(fraction.bytes().any(|digit| digit != b'0'));
    Some(SignedDuration::from_secs(whole.saturating_add(up)))
}

/// An HTTP date in any of the three forms that a recipient has to take (RFC 9110, section 5.6.7).
fn date(header: &str) -> Option<Timestamp> {
    if let Ok(at) = rfc2822::DateTimeParser::new().parse_timestamp(header) {
        return Some(at);
    }
    let obsolete = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    let at = obsolete.iter().find_map(|format| DateTime::strptime(format, header).ok())?;
    Offset::UTC.to_timestamp(at).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_record_keeps_its_wire_shape() {
        let record = CooldownRecord { until: at(NOW) };
        assert_eq!(record.encode(), r#"{"until":"2026-01-02T03:04:05Z"}"#);
        assert_eq!(CooldownRecord::decode(br#"{"by":"n1","until":"2026-01-02T03:04:05Z"}"#).unwrap(), record);
        for wire in ["", "{}", "null", "garbage", r#"{"until":60}"#, r#"{"until":"an hour"}"#] {
            assert!(matches!(CooldownRecord::decode(wire.as_bytes()), Err(Cause::Undecodable(_))), "{wire}");
        }
    }

    #[test]
    fn a_credential_is_an_entry_and_a_hint() {
        let fast = Credential::new("fast", b"sk-1").unwrap();
        let smart = Credential::new("smart", b"sk-1").unwrap();
        assert_eq!((fast.hint().len(), fast.hint(), fast.entry()), (12, smart.hint(), "fast"));
        assert_ne!(fast.key(), smart.key(), "another entry is another rate limit");
        assert_ne!(fast, Credential::new("fast", b"sk-2").unwrap());
        for entry in ["fast", "a|b", "a\\|", "openai/gpt é"] {
            let credential = Credential::new(entry, b"sk-1").unwrap();
            assert_eq!(Credential::from_key(credential.key()), Some(credential));
        }
        // The digest of the three bytes "abc", by FIPS 180-4.
        let known = Credential::new("e", b"abc").unwrap();
        assert_eq!((known.key().as_str(), known.to_string()), ("e=7Cba7816bf8f01", "e (ba7816bf8f01)".to_owned()));
    }

    #[test]
    fn an_entry_has_a_name() {
        for bad in ["", &"a".repeat(1100)] {
            assert_eq!(Credential::new(bad, b"sk-1").unwrap_err().what, "provider entry");
        }
    }

    #[test]
    fn a_key_of_another_shape_is_no_credentials() {
        for raw in ["e", "e=7C", "e=7Cba7816bf8f0", "e=7Cba7816bf8f011", "e=7CBA7816BF8F01", "e=7Cba7816bf8f0g", "a.b"]
        {
            assert_eq!(Credential::from_key(&Key::parse(raw).unwrap()), None, "{raw}");
        }
    }

    #[test]
    fn a_vendors_word_is_kept_between_a_minute_and_a_day() {
        let (floor, cap) = ("2026-01-02T03:05:05Z", "2026-01-03T03:04:05Z");
        for (header, want) in [
            ("0.7", floor),
            ("0", floor),
            ("-5", floor),
            ("-5.5", floor),
            ("59", floor),
            ("60", floor),
            ("60.0", floor),
            ("60.001", "2026-01-02T03:05:06Z"),
            ("61", "2026-01-02T03:05:06Z"),
            (" 120 ", "2026-01-02T03:06:05Z"),
            ("+120", "2026-01-02T03:06:05Z"),
            ("22688", "2026-01-02T09:22:13Z"),
            ("86400", cap),
            ("86401", cap),
            ("999999999", cap),
            ("99999999999999999999999999", cap),
            ("99999999999999999999999999.9", cap),
            // Dates: the three forms, before and after.
            ("Fri, 02 Jan 2026 03:34:05 GMT", "2026-01-02T03:34:05Z"),
            ("Friday, 02-Jan-26 03:34:05 GMT", "2026-01-02T03:34:05Z"),
            ("Fri Jan  2 03:34:05 2026", "2026-01-02T03:34:05Z"),
            ("Fri, 02 Jan 2026 03:04:06 GMT", floor),
            ("Thu, 01 Jan 2026 03:04:05 GMT", floor),
            ("Sun, 06 Nov 1994 08:49:37 GMT", floor),
            ("Sun, 04 Jan 2026 03:04:05 GMT", cap),
            ("Thu, 30 Dec 9999 12:00:00 GMT", cap),
            // No words at all.
            ("", floor),
            ("abc", floor),
            (".", floor),
            ("-", floor),
            ("1e9", floor),
            ("inf", floor),
            ("nan", floor),
            ("120s", floor),
            ("1,000", floor),
            ("12 34", floor),
            ("é", floor),
            ("١٢٠", floor),
            ("Fri, 32 Jan 2026 03:34:05 GMT", floor),
            ("2026-01-02T03:34:05Z", floor),
        ] {
            assert_eq!(retry_after(Some(header), at(NOW)), at(want), "{header:?}");
        }
        assert_eq!(retry_after(None, at(NOW)), at(floor));
        assert_eq!(retry_after(Some("120"), Timestamp::MAX), Timestamp::MAX);
    }
}
