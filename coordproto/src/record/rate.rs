//! The record behind the notification valve: how many were let through in one window.
//!
//! A JSON object under `bucket|window start`, the start in UTC, RFC 3339. A window that a bucket never had is a key that was
//! never written, so nothing has to be reset; the age of the store's bucket takes what is over.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::pair;
use crate::answer::{BadArgument, Cause};
use crate::key::Key;

/// One window of one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateRecord {
    /// How many were let through.
    pub taken: u32,
}

impl RateRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// A value that does not decode. How many were let through is unknown then.
    pub fn decode(value: &[u8]) -> Result<RateRecord, Cause> {
        serde_json::from_slice(value).map_err(Cause::undecodable)
    }

    /// Writes a record.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("a record of a number always encodes").into()
    }

    /// The record once another is let through; none at the limit.
    pub fn take(self, limit: u32) -> Option<RateRecord> {
        (self.taken < limit).then(|| RateRecord { taken: self.taken + 1 })
    }
}

/// When the window that `now` falls into began: the latest multiple of `window` since the epoch, or before it, that is not
/// after `now`. None for a window of no length.
pub fn window_start(now: Timestamp, window: Duration) -> Option<Timestamp> {
    let window = i128::try_from(window.as_nanos()).ok().filter(|window| *window > 0)?;
    let now = now.as_nanosecond();
    // A window may have begun before the first instant that there is.
    Some(Timestamp::from_nanosecond(now - now.rem_euclid(window)).unwrap_or(Timestamp::MIN))
}

/// The key of the window of `bucket` that began at `start`.
///
/// # Errors
/// A bucket without a name, or with one too long.
pub fn key(bucket: &str, start: Timestamp) -> Result<Key, BadArgument> {
    pair::key(("bucket", bucket), ("window start", &start.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_record_keeps_its_wire_shape() {
        let record = RateRecord { taken: 5 };
        assert_eq!(record.encode(), r#"{"taken":5}"#);
        assert_eq!(RateRecord::decode(br#"{"first":"n1","taken":5}"#).unwrap(), record);
        for wire in
            ["", "{}", "null", "5", r#"{"taken":-1}"#, r#"{"taken":1.5}"#, r#"{"taken":"1"}"#, r#"{"taken":null}"#]
        {
            assert!(matches!(RateRecord::decode(wire.as_bytes()), Err(Cause::Undecodable(_))), "{wire}");
        }
    }

    #[test]
    fn as_many_are_let_through_as_the_limit_says() {
        let mut record = RateRecord::default();
        for _ in 0..3 {
            record = record.take(3).expect("below the limit");
        }
        assert_eq!((record.take(3), record.take(2), record.take(4)), (None, None, Some(RateRecord { taken: 4 })));
        let full = RateRecord { taken: u32::MAX };
        assert_eq!((full.take(u32::MAX), RateRecord::default().take(0)), (None, None));
    }

    #[test]
    fn a_window_begins_at_a_multiple_of_its_length() {
        let (second, minute, ms) = (Duration::from_secs(1), Duration::from_secs(60), Duration::from_millis);
        for (now, window, want) in [
            ("2026-01-02T03:04:05Z", second, "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05.999999999Z", second, "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:06.001Z", second, "2026-01-02T03:04:06Z"),
            ("2026-01-02T03:04:05.999Z", minute, "2026-01-02T03:04:00Z"),
            ("2026-01-02T03:04:05.999Z", ms(250), "2026-01-02T03:04:05.75Z"),
            ("1970-01-01T00:00:00Z", second, "1970-01-01T00:00:00Z"),
            ("1969-12-31T23:59:59.999Z", second, "1969-12-31T23:59:59Z"),
            ("1969-12-31T23:59:59Z", second, "1969-12-31T23:59:59Z"),
            ("1969-12-31T23:59:58.5Z", minute, "1969-12-31T23:59:00Z"),
        ] {
            assert_eq!(window_start(at(now), window), Some(at(want)), "{now} {window:?}");
        }
        assert_eq!(window_start(at("2026-01-02T03:04:05Z"), Duration::ZERO), None);
        assert_eq!(window_start(Timestamp::MIN, Duration::from_secs(7)), Some(Timestamp::MIN));
        assert_eq!(window_start(Timestamp::UNIX_EPOCH, Duration::MAX), Some(Timestamp::UNIX_EPOCH));
    }

    #[test]
    fn a_window_has_a_key_of_its_own() {
        let key = |bucket, start| super::key(bucket, at(start)).unwrap().as_str().to_owned();
        assert_eq!(key("notify", "2026-01-02T03:04:05Z"), "notify=7C2026-01-02T03=3A04=3A05Z");
        assert_ne!(key("notify", "2026-01-02T03:04:05Z"), key("notify", "2026-01-02T03:04:05.5Z"));
        assert_ne!(key("a", "1969-12-31T23:59:59Z"), key("a", "1970-01-01T00:00:01Z"));
        assert_eq!(super::key("", Timestamp::UNIX_EPOCH).unwrap_err().what, "bucket");
        assert_eq!(super::key(&"a".repeat(1100), Timestamp::UNIX_EPOCH).unwrap_err().what, "bucket");
    }
}
