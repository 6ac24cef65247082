//! The acknowledgement of a publish: `{"stream":"X","seq":7}` or `{"error":{..},"stream":"X","seq":0}`.

use super::scan::Scan;
use super::{Garbage, Reply, reply};

/// A stored message: the stream's word that a quorum has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PubAck<'a> {
    /// The stream that stored it.
    pub stream: &'a str,
    /// The sequence it has there; for a key-value record this is its revision.
    pub seq: u64,
    /// The stream had a message with this message id already, and `seq` is that one's.
    pub duplicate: bool,
}

/// Reads an acknowledgement without allocating. Fields may come in any order, and unknown ones are passed over.
///
/// # Errors
/// Everything else that is not exactly an acknowledgement or an error.
pub fn parse(payload: &[u8]) -> Result<Reply<PubAck<'_>>, Garbage> {
    let (mut stream, mut seq, mut duplicate, mut refused) = (None, None, false, None);
    let mut scan = Scan::object(payload)?;
    while let Some(name) = scan.field()? {
        match name {
            b"stream" => stream = Some(scan.string()?),
            b"seq" => seq = Some(scan.number()?),
            b"duplicate" => duplicate = scan.boolean()?,
            b"error" => refused = Some(reply::error(&mut scan)?),
            _ => {
                scan.skip()?;
            }
        }
    }
    scan.end()?;
    if let Some(error) = refused {
        return Ok(Reply::Refused(error));
    }
    match (stream, seq) {
        // Sequences start at 1: an acknowledgement of nothing acknowledges nothing.
        (Some(name), Some(seq)) if seq > 0 && !name.escaped => {
            let stream = std::str::from_utf8(name.text).map_err(|_| Garbage("a stream's name that is not UTF-8"))?;
            Ok(Reply::Ok(PubAck { stream, seq, duplicate }))
        }
        _ => Err(Garbage("an acknowledgement without a stream or a sequence")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ApiError;
    use super::*;
    use proptest::prelude::*;

    fn ack(text: &str) -> Result<Reply<PubAck<'_>>, Garbage> {
        parse(text.as_bytes())
    }

    #[test]
    fn acknowledgements_as_the_server_sends_them() {
        let stored = |seq, duplicate| Ok(Reply::Ok(PubAck { stream: "KV_t", seq, duplicate }));
        assert_eq!(ack(r#"{"stream":"KV_t","seq":7}"#), stored(7, false));
        assert_eq!(ack(r#"{"stream":"KV_t", "domain":"hub", "seq":7,"duplicate": true}"#), stored(7, true));
        assert_eq!(ack(r#"{"seq":18446744073709551615,"later":{"x":[1]},"stream":"KV_t"}"#), stored(u64::MAX, false));
    }

    #[test]
    fn the_number_of_a_wrong_last_sequence_is_read_from_its_text() {
        let refused = |err_code, operand| Ok(Reply::Refused(ApiError { code: 400, err_code, operand }));
        let lost = r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 12"},"stream":"KV_t","seq":0}"#;
        assert_eq!(ack(lost), refused(10071, Some(12)));
        let constant =
            r#"{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"},"stream":"KV_t","seq":0}"#;
        assert_eq!(ack(constant), refused(10164, None));
        let odd = r#"{"stream":"KV_t","seq":0,"error":{"description":"wrong last sequence: 99999999999999999999","err_code":10071,"code":400}}"#;
        assert_eq!(ack(odd), refused(10071, None));
    }

    #[test]
    fn anything_else_is_garbage() {
        for text in [
            "",
            "+OK",
            "{}",
            "null",
            r#"{"stream":"KV_t"}"#,
            r#"{"stream":"KV_t","seq":0}"#,
            r#"{"stream":"KV_t","seq":-1}"#,
            r#"{"stream":"KV_t","seq":1.5}"#,
            r#"{"stream":"KV_t","seq":"7"}"#,
            r#"{"stream":"KV_t","seq":7"#,
            r#"{"stream":"KV_t","seq":7}{"seq":8}"#,
            r#"{"seq":7}"#,
            r#"{"error":{},"stream":"KV_t","seq":7}"#,
            r#"{"error":null,"stream":"KV_t","seq":7}"#,
            r#"{"error":{"code":99999999,"err_code":10071}}"#,
        ] {
            assert!(ack(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_sequence_comes_back(seq in 1u64.., duplicate in any::<bool>(), swap in any::<bool>()) {
            let text = if swap {
                format!(r#"{{"duplicate":{duplicate},"seq":{seq},"stream":"S"}}"#)
            } else {
                format!(r#"{{"stream":"S","seq":{seq},"duplicate":{duplicate}}}"#)
            };
            prop_assert_eq!(ack(&text), Ok(Reply::Ok(PubAck { stream: "S", seq, duplicate })));
        }

        #[test]
        fn a_damaged_acknowledgement_never_panics_and_never_gains_a_sequence(at in 0usize..25, byte in any::<u8>()) {
            let mut text = br#"{"stream":"KV_t","seq":7}"#.to_vec();
            text[at] = byte;
            if let Ok(Reply::Ok(ack)) = parse(&text) {
                prop_assert!(ack.seq < 10);
            }
        }
    }
}
