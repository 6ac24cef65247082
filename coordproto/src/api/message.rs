//! One stored record: as the leader reads it out (`STREAM.MSG.GET`), and the coordinates of one that a consumer delivers.

use bytes::Bytes;
use jiff::Timestamp;

use super::scan::{Raw, Scan, decimal};
use super::{Garbage, Reply, reply};

/// A record as its stream holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The stream's sequence of this revision.
    pub revision: u64,
    /// When the broker stored it, by the broker's clock.
    pub time: Timestamp,
    /// The value; empty for a marker.
    pub value: Bytes,
    /// Set when this revision says that the record is gone.
    pub marker: Option<Marker>,
}

/// What kind of "gone" a revision says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// `KV-Operation: DEL`.
    Delete,
    /// `KV-Operation: PURGE`.
    Purge,
    /// `Nats-Marker-Reason`: the broker wrote it, for age, removal or a purge.
    Broker,
}

/// The header that marks a client's deletion, `DEL` or `PURGE`. ADR-8.
pub const KV_OPERATION: &str = "KV-Operation";
/// The header that marks a deletion by the broker. ADR-43.
pub const MARKER_REASON: &str = "Nats-Marker-Reason";

/// What one header says about the record. A header that is neither of the two says nothing.
pub fn marker(name: &str, value: &str) -> Option<Marker> {
    match (name, value) {
        (KV_OPERATION, "DEL") => Some(Marker::Delete),
        (KV_OPERATION, "PURGE") => Some(Marker::Purge),
        (MARKER_REASON, _) => Some(Marker::Broker),
        _ => None,
    }
}

/// Reads the leader's reply to `{"last_by_subj":subject}`.
///
/// # Errors
/// When it is neither a record nor an error. A record under another subject is neither: it answers another question.
pub fn parse(payload: &[u8], subject: &str) -> Result<Reply<Stored>, Garbage> {
    let (mut message, mut refused) = (None, None);
    let mut scan = Scan::object(payload)?;
    while let Some(name) = scan.field()? {
        match name {
            b"message" => message = Some(Fields::read(&mut scan)?),
            b"error" => refused = Some(reply::error(&mut scan)?),
            _ => {
                scan.skip()?;
            }
        }
    }
    scan.end()?;
    match (refused, message) {
        (Some(error), _) => Ok(Reply::Refused(error)),
        (None, Some(fields)) => fields.stored(subject).map(Reply::Ok),
        (None, None) => Err(Garbage("neither a message nor an error")),
    }
}

#[derive(Default)]
struct Fields<'a> {
    subject: Option<Raw<'a>>,
    seq: Option<u64>,
    headers: Option<Raw<'a>>,
    data: Option<Raw<'a>>,
    time: Option<Raw<'a>>,
}

impl<'a> Fields<'a> {
    fn read(scan: &mut Scan<'a>) -> Result<Fields<'a>, Garbage> {
        let mut fields = Fields::default();
        scan.open()?;
        while let Some(name) = scan.field()? {
            match name {
                b"subject" => fields.subject = Some(scan.string()?),
                b"seq" => fields.seq = Some(scan.number()?),
                b"hdrs" => fields.headers = Some(scan.string()?),
                b"data" => fields.data = Some(scan.string()?),
                b"time" => fields.time = Some(scan.string()?),
                _ => {
                    scan.skip()?;
                }
            }
        }
        Ok(fields)
    }

    fn stored(self, subject: &str) -> Result<Stored, Garbage> {
        if !self.subject.is_some_and(|found| found.is(subject)) {
            return Err(Garbage("a message of another subject"));
        }
        let revision = self.seq.filter(|seq| *seq > 0).ok_or(Garbage("a message without a sequence"))?;
        let time = self.time.and_then(|raw| std::str::from_utf8(raw.text).ok()?.parse().ok());
        let value = match self.data {
            Some(raw) => {
                base64_simd::STANDARD.decode_to_vec(raw.text).map_err(|_| Garbage("a value that is not base64"))?.into()
            }
            None => Bytes::new(),
        };
        Ok(Stored {
            revision,
            time: time.ok_or(Garbage("a message without a time"))?,
            value,
            marker: self.headers.map_or(Ok(None), |raw| encoded_marker(raw.text))?,
        })
    }
}

/// Finds the marker in a header block that stands in base64. Blocks of the usual size are decoded on the stack.
fn encoded_marker(encoded: &[u8]) -> Result<Option<Marker>, Garbage> {
    const BAD: Garbage = Garbage("headers that are not base64");
    let mut small = [0; 512];
    if base64_simd::STANDARD.estimated_decoded_length(encoded.len()) <= small.len() {
        let block = base64_simd::STANDARD.decode(encoded, base64_simd::Out::from_slice(&mut small)).map_err(|_| BAD)?;
        block_marker(block)
    } else {
        block_marker(&base64_simd::STANDARD.decode_to_vec(encoded).map_err(|_| BAD)?)
    }
}

fn block_marker(block: &[u8]) -> Result<Option<Marker>, Garbage> {
    let block = block.strip_prefix(b"NATS/1.0").ok_or(Garbage("headers without a version line"))?;
    let mut start = 0;
    let mut found = None;
    for end in memchr::memchr_iter(b'\n', block) {
        let line = block[start..end].trim_ascii();
        start = end + 1;
        if let Some(colon) = memchr::memchr(b':', line)
            && let (Ok(name), Ok(value)) =
                (std::str::from_utf8(&line[..colon]), std::str::from_utf8(line[colon + 1..].trim_ascii()))
        {
            found = found.or_else(|| marker(name, value));
        }
    }
    Ok(found)
}

/// Where a delivered message stands, from its reply subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coordinates {
    /// The message's sequence in the stream: its revision.
    pub stream_seq: u64,
    /// The number of this delivery by its consumer, from 1 without gaps.
    pub consumer_seq: u64,
    /// How often this message has been delivered.
    pub delivered: u64,
    /// When the broker stored it, by the broker's clock.
    pub time: Timestamp,
    /// How many messages the consumer has yet to deliver after this one, as it knew when it sent it.
    pub pending: u64,
}

/// Reads `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<nanoseconds>.<pending>`, or the longer form
/// with a domain and an account hash before the stream and perhaps more tokens at the end. ADR-15.
///
/// # Errors
/// When it is of neither form.
pub fn coordinates(reply: &str) -> Result<Coordinates, Garbage> {
    const BAD: Garbage = Garbage("a delivery without its coordinates");
    let tail = reply.strip_prefix("$JS.ACK.").ok_or(BAD)?;
    // The short form has 7 tokens after the prefix; the long one 9 and more.
    let names = match tail.split('.').count() {
        7 => 2,
        9.. => 4,
        _ => return Err(BAD),
    };
    let mut tokens = tail.split('.').skip(names).map(|token| decimal(token.as_bytes()));
    let mut next = || tokens.next().flatten().ok_or(BAD);
    let (delivered, stream_seq, consumer_seq) = (next()?, next()?, next()?);
    let time = Timestamp::from_nanosecond(i128::from(next()?)).map_err(|_| BAD)?;
    Ok(Coordinates { stream_seq, consumer_seq, delivered, time, pending: next()? })
}

#[cfg(test)]
mod tests {
    use super::super::ApiError;
    use super::*;
    use proptest::prelude::*;

    const PLAIN: &str = r#"{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","message":{"subject":"$KV.t.a","seq":2,"hdrs":"TkFUUy8xLjANCk5hdHMtRXhwZWN0ZWQtTGFzdC1TdWJqZWN0LVNlcXVlbmNlOiAxDQoNCg==","data":"aGVsbG8y","time":"2026-11-30T08:47:33.148754874Z"}}"#;
    const DELETED: &str = r#"{"type":"t","message":{"subject":"$KV.t.b","seq":3,"hdrs":"TkFUUy8xLjANCktWLU9wZXJhdGlvbjogREVMDQoNCg==","time":"2026-11-30T08:47:33.148838508Z"}}"#;

    fn stored(text: &str, subject: &str) -> Stored {
        match parse(text.as_bytes(), subject) {
            Ok(Reply::Ok(stored)) => stored,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_record_as_the_leader_reads_it_out() {
        let record = stored(PLAIN, "$KV.t.a");
        assert_eq!((record.revision, &record.value[..], record.marker), (2, &b"hello2"[..], None));
        assert_eq!(record.time, "2026-11-30T08:47:33.148754874Z".parse().unwrap());
    }

    #[test]
    fn every_marker_is_told_from_a_record() {
        let record = stored(DELETED, "$KV.t.b");
        assert_eq!((record.revision, record.value.len(), record.marker), (3, 0, Some(Marker::Delete)));
        for (block, want) in [
            ("NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n", Some(Marker::Purge)),
            ("NATS/1.0\r\nNats-TTL: 1s\r\nNats-Marker-Reason: MaxAge\r\n\r\n", Some(Marker::Broker)),
            ("NATS/1.0\r\nKV-Operation:DEL\r\n\r\n", Some(Marker::Delete)),
            ("NATS/1.0\r\nKV-Operation: PUT\r\n\r\n", None),
            ("NATS/1.0\r\nX-KV-Operation: DEL\r\n\r\n", None),
            ("NATS/1.0\r\n\r\n", None),
        ] {
            assert_eq!(block_marker(block.as_bytes()), Ok(want), "{block:?}");
        }
        let long = format!("NATS/1.0\r\nX: {}\r\nKV-Operation: DEL\r\n\r\n", "y".repeat(2000));
        assert_eq!(encoded_marker(base64_simd::STANDARD.encode_to_string(long).as_bytes()), Ok(Some(Marker::Delete)));
    }

    #[test]
    fn the_absent_record_is_the_leaders_own_error() {
        let text = r#"{"type":"t","error":{"code":404,"err_code":10037,"description":"no message found"}}"#;
        let error = ApiError { code: 404, err_code: 10037, operand: None };
        assert_eq!(parse(text.as_bytes(), "$KV.t.a"), Ok(Reply::Refused(error)));
    }

    #[test]
    fn what_answers_another_question_is_garbage() {
        assert!(parse(PLAIN.as_bytes(), "$KV.t.b").is_err());
        for (from, to) in [
            (r#""seq":2"#, r#""seq":0"#),
            (r#","seq":2"#, ""),
            ("aGVsbG8y", "aGVsbG8"),
            ("TkFUUy8x", "VEFUUy8x"),
            ("TkFUUy8x", "!kFUUy8x"),
            ("2026-11-30T08:47:33.148754874Z", "yesterday"),
            (r#"{"subject""#, r#"[{"subject""#),
        ] {
            let text = PLAIN.replace(from, to);
            assert_ne!(text, PLAIN);
            assert!(parse(text.as_bytes(), "$KV.t.a").is_err(), "{text}");
        }
        assert!(parse(b"{}", "$KV.t.a").is_err());
    }

    #[test]
    fn an_escaped_subject_is_compared_by_what_it_means() {
        let text = PLAIN.replace("$KV.t.a", r"$KV.t.\u003e");
        assert_eq!(stored(&text, "$KV.t.>").revision, 2);
    }

    #[test]
    fn coordinates_of_both_forms() {
        let want = Coordinates {
            stream_seq: 42,
            consumer_seq: 7,
            delivered: 1,
            time: Timestamp::from_nanosecond(1_790_000_000_123_456_789).unwrap(),
            pending: 3,
        };
        for reply in [
            "$JS.ACK.KV_t.c1.1.42.7.1790000000123456789.3",
            "$JS.ACK.hub.HASH.KV_t.c1.1.42.7.1790000000123456789.3",
            "$JS.ACK._.HASH.KV_t.c1.1.42.7.1790000000123456789.3.random",
        ] {
            assert_eq!(coordinates(reply), Ok(want), "{reply}");
        }
        for reply in [
            "",
            "$JS.ACK.KV_t.c1.1.42.7.1790000000123456789",
            "$JS.ACK.hub.KV_t.c1.1.42.7.1790000000123456789.3",
            "$JS.ACK.KV_t.c1.1.42.7.x.3",
            "$JS.FC.KV_t.c1.1.42.7.1790000000123456789.3",
        ] {
            assert!(coordinates(reply).is_err(), "{reply}");
        }
    }

    proptest! {
        #[test]
        fn damage_is_refused_or_harmless_and_never_panics(at in 0usize..300, byte in any::<u8>()) {
            let mut text = PLAIN.as_bytes().to_vec();
            let at = at % text.len();
            text[at] = byte;
            let _ = parse(&text, "$KV.t.a");
        }
    }
}
