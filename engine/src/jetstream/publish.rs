//! Publishing: conditional and plain writes that are acknowledged, and messages that are not.

use async_nats::client::traits::Publisher;
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_TTL, NATS_ROLLUP};
use async_nats::message::OutboundMessage;
use async_nats::{HeaderMap, HeaderValue, Subject};
use bytes::{BufMut, Bytes};
use coordproto::answer::{BadArgument, Cause, Error, Unknown};
use coordproto::api::message::KV_OPERATION;
use coordproto::api::{Put, Reply, puback, verdict};

use super::connection::Jetstream;
use super::counters::{Kind, add};
use super::exchange::{Call, headers_len, status, wire_len};
use crate::env::Mono;

/// How a message is to be written. The default writes unconditionally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// The revision that the record must have; 0 for none at all, `None` for any.
    pub expect: Option<u64>,
    /// Write a marker that the record is gone.
    pub tombstone: Option<Tombstone>,
    /// Seconds after which the broker removes this revision. Only on a stream that allows it. A revision written without it
    /// over one written with it does not expire.
    pub ttl_s: Option<u32>,
}

impl Write {
    /// A compare-and-set; revision 0 creates.
    pub fn at(revision: u64) -> Write {
        Write { expect: Some(revision), ..Write::default() }
    }
}

/// What a marker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tombstone {
    /// `KV-Operation: DEL`.
    Delete,
    /// `KV-Operation: PURGE`, with a rollup of the subject.
    Purge,
}

impl Write {
    fn headers(self) -> Option<HeaderMap> {
        if self == Write::default() {
            return None;
        }
        let mut headers = HeaderMap::new();
        if let Some(revision) = self.expect {
            headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(revision));
        }
        match self.tombstone {
            Some(Tombstone::Delete) => headers.insert(KV_OPERATION, "DEL"),
            Some(Tombstone::Purge) => {
                headers.insert(KV_OPERATION, "PURGE");
                headers.insert(NATS_ROLLUP, "sub");
            }
            None => {}
        }
        if let Some(seconds) = self.ttl_s {
            headers.insert(NATS_MESSAGE_TTL, HeaderValue::from(seconds));
        }
        Some(headers)
    }
}

impl Jetstream {
    /// Writes to the stream that takes `subject` in, and waits for its acknowledgement. It is sent once. A write whose
    /// caller goes away may still land.
    ///
    /// # Errors
    /// [`BadArgument`] when it is larger than the broker takes; nothing was sent. Else unknown, which says whether the write
    /// may still land.
    pub async fn put(&self, subject: &str, write: Write, value: Bytes, by: Mono) -> Result<Put, Error> {
        let headers = write.headers();
        self.fits(headers.as_ref(), &value)?;
        let call = Call {
            kind: Kind::Publish,
            op: "put",
            resource: subject,
            subject: self.subject("put", subject, |into| into.put_slice(subject.as_bytes()))?,
            headers,
            payload: value,
            by,
        };
        let put = self.exchange(call, |message| {
            let reply = puback::parse(&message.payload);
            if let Ok(Reply::Ok(ack)) = &reply {
                self.learn(ack.stream, |mark| mark.raise(ack.seq));
            }
            verdict::put(write.expect, status(message), reply)
        });
        Ok(put.await?)
    }

    /// Sends a message that nobody acknowledges. Done once it is handed to the connection.
    ///
    /// # Errors
    /// [`BadArgument`] when it is larger than the broker takes; unknown without a connection. Nothing was sent then.
    pub async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), Error> {
        self.fits(None, &payload)?;
        let message = OutboundMessage {
            subject: self.subject("publish", subject, |into| into.put_slice(subject.as_bytes()))?,
            reply: None,
            payload,
            headers: None,
        };
        let lost = || Unknown::settled("publish", subject, Cause::Disconnected);
        if !self.connected() {
            return Err(lost().into());
        }
        add(&self.desk().counters.bytes_out, wire_len(subject, None, &message.payload));
        self.client().publish_message(message).await.map_err(|_| lost().into())
    }

    /// One subject of two parts, written into the connection's own buffer.
    pub(crate) fn joined(&self, prefix: &str, rest: &str) -> Subject {
        let joined = self.desk().carve(|into| {
            into.put_slice(prefix.as_bytes());
            into.put_slice(rest.as_bytes());
        });
        Subject::try_from(joined).expect("two strs are UTF-8")
    }

    /// A subject, written into the connection's own buffer.
    pub(super) fn subject(
        &self,
        op: &'static str,
        resource: &str,
        write: impl FnOnce(&mut bytes::BytesMut),
    ) -> Result<Subject, Unknown> {
        Subject::try_from(self.desk().carve(write))
            .map_err(|_| Unknown::settled(op, resource, Cause::Garbage("a subject that is not UTF-8".into())))
    }

    /// The broker ends a connection that sends it more than it takes, and with it everybody's requests.
    fn fits(&self, headers: Option<&HeaderMap>, payload: &Bytes) -> Result<(), BadArgument> {
        let (size, limit) = (payload.len() + headers.map_or(0, headers_len), self.max_payload());
        if size <= limit {
            return Ok(());
        }
        Err(BadArgument::new(
            "value",
            format!("{size} bytes"),
            format!("the broker takes at most {limit} bytes, headers included"),
        ))
    }
}
