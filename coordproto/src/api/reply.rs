//! The error object that every reply may carry, and the small replies of stream and consumer operations.

use super::scan::{Scan, decimal};
use super::{ApiError, Garbage, Reply};

/// Reads an error object at the scan's position.
pub(super) fn error(scan: &mut Scan<'_>) -> Result<ApiError, Garbage> {
    let (mut code, mut err_code, mut operand) = (None, 0, None);
    scan.open()?;
    while let Some(name) = scan.field()? {
        match name {
            b"code" => code = Some(small(scan.number()?)?),
            b"err_code" => err_code = small(scan.number()?)?,
            b"description" => {
                let text = scan.string()?.text;
                let digits = text.iter().rev().take_while(|b| b.is_ascii_digit()).count();
                operand = decimal(&text[text.len() - digits..]);
            }
            _ => {
                scan.skip()?;
            }
        }
    }
    Ok(ApiError { code: code.ok_or(Garbage("an error without a code"))?, err_code, operand })
}

fn small(number: u64) -> Result<u16, Garbage> {
    u16::try_from(number).map_err(|_| Garbage("an error code beyond 16 bits"))
}

/// Reads a reply of which only an error and the fields that `take` knows matter; `take` answers whether it consumed the value.
fn fields(
    payload: &[u8],
    mut take: impl FnMut(&[u8], &mut Scan<'_>) -> Result<bool, Garbage>,
) -> Result<Option<ApiError>, Garbage> {
    let mut refused = None;
    let mut scan = Scan::object(payload)?;
    while let Some(name) = scan.field()? {
        if name == b"error" {
            refused = Some(error(&mut scan)?);
        } else if !take(name, &mut scan)? {
            scan.skip()?;
        }
    }
    scan.end()?;
    Ok(refused)
}

/// The reply to `STREAM.PURGE`: how many messages are gone.
///
/// # Errors
/// When it says neither that nor what is wrong.
pub fn purged(payload: &[u8]) -> Result<Reply<u64>, Garbage> {
    let (mut done, mut purged) = (false, None);
    let refused = fields(payload, |name, scan| {
        match name {
            b"success" => done = scan.boolean()?,
            b"purged" => purged = Some(scan.number()?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    match (refused, done, purged) {
        (Some(error), _, _) => Ok(Reply::Refused(error)),
        (None, true, Some(purged)) => Ok(Reply::Ok(purged)),
        _ => Err(Garbage("a purge that neither succeeded nor failed")),
    }
}

/// The reply to `STREAM.DELETE` and `CONSUMER.DELETE`.
///
/// # Errors
/// As for [`purged`].
pub fn deleted(payload: &[u8]) -> Result<Reply<()>, Garbage> {
    let mut done = false;
    let refused = fields(payload, |name, scan| {
        if name != b"success" {
            return Ok(false);
        }
        done = scan.boolean()?;
        Ok(true)
    })?;
    match (refused, done) {
        (Some(error), _) => Ok(Reply::Refused(error)),
        (None, true) => Ok(Reply::Ok(())),
        (None, false) => Err(Garbage("a deletion that neither succeeded nor failed")),
    }
}

/// The reply to `STREAM.CREATE` and `STREAM.UPDATE`: the stream stands with the configuration sent.
///
/// # Errors
/// As for [`purged`].
pub fn configured(payload: &[u8]) -> Result<Reply<()>, Garbage> {
    let mut config = false;
    let refused = fields(payload, |name, scan| {
        if name != b"config" {
            return Ok(false);
        }
        scan.skip()?;
        config = true;
        Ok(true)
    })?;
    match (refused, config) {
        (Some(error), _) => Ok(Reply::Refused(error)),
        (None, true) => Ok(Reply::Ok(())),
        (None, false) => Err(Garbage("a stream without a configuration")),
    }
}

/// The reply to `CONSUMER.CREATE`: how many messages the consumer was made to deliver. What it has delivered already counts,
/// because the creation may have been asked for twice and the second request answered.
///
/// # Errors
/// As for [`purged`].
pub fn consumer(payload: &[u8]) -> Result<Reply<u64>, Garbage> {
    let (mut pending, mut delivered) = (None, None);
    let refused = fields(payload, |name, scan| {
        match name {
            b"num_pending" => pending = Some(scan.number()?),
            b"delivered" => {
                scan.open()?;
                while let Some(name) = scan.field()? {
                    if name == b"consumer_seq" {
                        delivered = Some(scan.number()?);
                    } else {
                        scan.skip()?;
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    match (refused, pending, delivered) {
        (Some(error), _, _) => Ok(Reply::Refused(error)),
        (None, Some(pending), Some(delivered)) => Ok(Reply::Ok(pending.saturating_add(delivered))),
        _ => Err(Garbage("a consumer without its counts")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_as_the_server_sends_them() {
        let purge = br#"{"type":"io.nats.jetstream.api.v1.stream_purge_response","success":true,"purged":3}"#;
        assert_eq!(purged(purge), Ok(Reply::Ok(3)));
        let leaderless = br#"{"type":"io.nats.jetstream.api.v1.stream_purge_response","error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"},"purged":0}"#;
        let error = ApiError { code: 503, err_code: 10008, operand: None };
        assert_eq!(purged(leaderless), Ok(Reply::Refused(error)));
        assert_eq!(deleted(br#"{"type":"t","success":true}"#), Ok(Reply::Ok(())));
        let made =
            br#"{"type":"t","config":{"num_pending":9},"delivered":{"consumer_seq":2,"stream_seq":7},"num_pending":1}"#;
        assert_eq!(consumer(made), Ok(Reply::Ok(3)));
        assert_eq!(configured(br#"{"type":"t","config":{},"did_create":true}"#), Ok(Reply::Ok(())));
    }

    #[test]
    fn a_reply_that_says_neither_is_garbage() {
        for text in [&b"{}"[..], br#"{"success":false}"#, br#"{"success":true,"purged":-1}"#, b"", b"[]", b"ok"] {
            assert!(purged(text).is_err());
        }
        assert!(deleted(br#"{"success":false}"#).is_err());
        assert!(consumer(b"{}").is_err());
        assert!(configured(b"{}").is_err());
        assert!(deleted(br#"{"error":{"description":"no code"}}"#).is_err());
    }

    #[test]
    fn an_error_without_an_own_code_has_code_zero() {
        let bare = br#"{"error":{"code":503,"description":"raft: not leader"},"stream":"X","seq":0}"#;
        assert_eq!(deleted(bare), Ok(Reply::Refused(ApiError { code: 503, err_code: 0, operand: None })));
    }
}
