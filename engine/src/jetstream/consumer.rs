//! Consumers, and a pass over the records of a stream that one of them delivers.

use std::time::Duration;

use async_nats::header::{HeaderMap, NATS_LAST_CONSUMER};
use async_nats::{Message, Subject, Subscriber};
use bytes::Bytes;
use coordproto::answer::{Cause, Unknown};
use coordproto::api::message::{self, Coordinates, KV_OPERATION, MARKER_REASON, Marker};
use coordproto::api::requests::{self, ConsumerConfig, PASS_HEARTBEAT};
use coordproto::api::{Garbage, verdict};
use futures_util::StreamExt;
use tokio::sync::watch;

use super::connection::Jetstream;
use super::counters::{Kind, add};
use super::desk::Link;
use super::direct::Record;
use super::exchange::{Call, status};
use super::meter::Meter;
use crate::env::Mono;
use crate::tasks;

/// A pass whose consumer is silent for this long has lost it.
const SILENCE: Duration = Duration::from_secs(3 * PASS_HEARTBEAT.as_secs());
/// How long the broker keeps the consumer of a pass that went away without ending it.
const ORPHAN: Duration = Duration::from_secs(5);
/// How long one consumer may take to come about before another is tried in its place. The broker may have given the consumer
/// to a member that has just died; asking for the same one again would wait for that member.
const OPENING: Duration = Duration::from_millis(1500);
/// A stalled consumer asks on this header's subject to be let go on.
const STALLED: &str = "Nats-Consumer-Stalled";

impl Jetstream {
    /// Creates a consumer; answers how many messages it had to deliver when it was made. One that stands with the same
    /// configuration is as good as created, and so this is asked again until the deadline.
    ///
    /// # Errors
    /// Unknown when there is no answer, or the broker cannot do it; the log has the broker's words. In a cluster this needs
    /// the meta group's leader, and there is none for seconds after it died.
    pub async fn create_consumer(&self, stream: &str, config: &ConsumerConfig, by: Mono) -> Result<u64, Unknown> {
        const OP: &str = "create consumer";
        let filter = (!config.filter_subject.is_empty()).then_some(&*config.filter_subject);
        let call = Call {
            kind: Kind::ConsumerCreate,
            op: OP,
            resource: stream,
            subject: self.subject(OP, stream, |into| {
                requests::consumer_create_subject(into, stream, &config.name, filter);
            })?,
            headers: None,
            payload: requests::consumer_create(stream, config).into(),
            by,
        };
        self.exchange(call, |message| verdict::create_consumer(status(message), &message.payload)).await
    }

    /// Deletes a consumer; asked again until the deadline. Answers whether there was one, as far as the request that was
    /// answered could tell.
    ///
    /// # Errors
    /// Unknown when there is no answer, or not a leader's.
    pub async fn delete_consumer(&self, stream: &str, consumer: &str, by: Mono) -> Result<bool, Unknown> {
        const OP: &str = "delete consumer";
        let call = Call {
            kind: Kind::ConsumerDelete,
            op: OP,
            resource: stream,
            subject: self.subject(OP, stream, |into| requests::consumer_delete_subject(into, stream, consumer))?,
            headers: None,
            payload: Bytes::new(),
            by,
        };
        self.exchange(call, |message| verdict::delete_consumer(status(message), &message.payload)).await
    }

    /// Starts a pass over the last record of every subject that `filter` matches, and what is written to them from then on,
    /// with the records' values or without. A consumer that does not come about is given up for another, until the deadline.
    ///
    /// # Errors
    /// As [`Jetstream::create_consumer`]; no consumer is left behind.
    pub async fn pass(&self, stream: &str, filter: &str, values: Values, by: Mono) -> Result<Pass, Unknown> {
        loop {
            match self.open_pass(stream, filter, values, by.min(self.env().now() + OPENING)).await {
                Err(unknown)
                    if matches!(unknown.cause, Cause::Timeout | Cause::Leaderless) && self.env().now() < by => {}
                opened => return opened,
            }
        }
    }

    async fn open_pass(&self, stream: &str, filter: &str, values: Values, by: Mono) -> Result<Pass, Unknown> {
        let link = self.link();
        let inbox = self.client().new_inbox();
        let name = inbox.rsplit('.').next().unwrap_or(&inbox).to_owned();
        // The subscription names the subject itself and comes first: a consumer without such interest delivers nothing.
        let deliveries = self
            .client()
            .subscribe(inbox.clone())
            .await
            .map_err(|_| Unknown::settled("create consumer", stream, Cause::Disconnected))?;
        let losses = link.borrow().losses;
        let mut pass = Pass {
            jetstream: self.clone(),
            stream: stream.into(),
            consumer: name.clone(),
            filter: filter.into(),
            deliveries,
            link,
            losses,
            heard: self.env().now(),
            delivered: 0,
            to_deliver: 0,
            ended: false,
        };
        let config = ConsumerConfig {
            headers_only: values == Values::Without,
            ..ConsumerConfig::pass(name, inbox, filter, ORPHAN)
        };
        pass.to_deliver = self.create_consumer(stream, &config, by).await?;
        Ok(pass)
    }
}

/// What a pass delivers of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Its value too.
    With,
    /// All but its value, which is empty then: a marker is still told from a record.
    Without,
}

/// A record that a consumer delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The record.
    pub record: Record,
    /// How many the consumer believed to have left after this one. It can be 0 too early while records are rewritten.
    pub pending: u64,
}

/// A pass over a stream's records. It delivers in order and without gaps, or ends with an error; what it delivered is not
/// thereby complete, see [`Delivery::pending`]. Heartbeats and flow control are answered inside.
///
/// Dropped without [`Pass::end`], it has its consumer deleted by a task of its own, and the broker forgets the consumer a few
/// seconds later in any case.
pub struct Pass {
    jetstream: Jetstream,
    stream: Box<str>,
    consumer: String,
    filter: Box<str>,
    deliveries: Subscriber,
    link: watch::Receiver<Link>,
    losses: u64,
    /// When the consumer last gave a sign of life.
    heard: Mono,
    /// The number of the last delivery.
    delivered: u64,
    to_deliver: u64,
    ended: bool,
}

impl Pass {
    /// How many records there were to deliver when the pass began.
    pub fn to_deliver(&self) -> u64 {
        self.to_deliver
    }

    /// The next record.
    ///
    /// # Errors
    /// Unknown at the deadline, when the consumer falls silent, when the connection was lost, when a delivery is missing. A
    /// pass goes on after the deadline's error and is of no use after the others.
    pub async fn next(&mut self, by: Mono) -> Result<Delivery, Unknown> {
        loop {
            let silent = self.heard + SILENCE;
            let heard = tokio::select! {
                biased;
                message = self.deliveries.next() => message.ok_or(Cause::Disconnected),
                _ = self.link.wait_for(|link| link.losses != self.losses) => Err(Cause::Disconnected),
                () = self.jetstream.env().sleep_until(by.min(silent)) => Err(Cause::Timeout),
            };
            let message = heard.map_err(|cause| self.unknown(cause))?;
            self.heard = self.jetstream.env().now();
            add(&self.jetstream.desk().counters.bytes_in, message.length);
            Meter::delivered(message.length);
            if let Some(delivery) = self.take(message).await? {
                return Ok(delivery);
            }
        }
    }

    /// Ends the pass: the subscription goes, and the consumer with it.
    ///
    /// # Errors
    /// Unknown when the consumer's deletion is not confirmed.
    pub async fn end(mut self, by: Mono) -> Result<(), Unknown> {
        // Without a connection there is no subscription left to end.
        let _ = self.deliveries.unsubscribe().await;
        self.jetstream.delete_consumer(&self.stream, &self.consumer, by).await?;
        // Not before: an end that is cut short, or has no answer, is made up for when this is dropped.
        self.ended = true;
        Ok(())
    }

    async fn take(&mut self, message: Message) -> Result<Option<Delivery>, Unknown> {
        match status(&message) {
            None => {}
            Some(100) => return self.sign_of_life(&message).await.map(|()| None),
            Some(code) => return Err(self.unknown(Cause::Unavailable { code, err_code: 0 })),
        }
        let reply = message.reply.as_deref().unwrap_or_default();
        let at: Coordinates = message::coordinates(reply).map_err(|garbage| self.unknown(garbage.into()))?;
        if at.consumer_seq != self.delivered + 1 {
            return Err(self.gap());
        }
        self.delivered = at.consumer_seq;
        add(&self.jetstream.desk().counters.deliveries, 1);
        self.jetstream.learn(&self.stream, |mark| mark.raise_read(at.stream_seq, at.time));
        let record = Record {
            subject: message.subject,
            revision: at.stream_seq,
            time: at.time,
            value: message.payload,
            marker: message.headers.as_ref().and_then(marker),
        };
        Ok(Some(Delivery { record, pending: at.pending }))
    }

    /// A heartbeat says how far the consumer has come; a flow control message asks for an answer once everything before it
    /// was taken, which is now.
    async fn sign_of_life(&self, message: &Message) -> Result<(), Unknown> {
        let headers = message.headers.as_ref();
        let asks = message.reply.clone().or_else(|| {
            let stalled = headers?.get(STALLED)?.as_str();
            Some(Subject::from(stalled))
        });
        if let Some(asks) = asks {
            let sent = self.jetstream.client().publish(asks, Bytes::new()).await;
            return sent.map_err(|_| self.unknown(Cause::Disconnected));
        }
        let last = headers.and_then(|headers| headers.get(NATS_LAST_CONSUMER)?.as_str().parse::<u64>().ok());
        if last.is_some_and(|last| last > self.delivered) { Err(self.gap()) } else { Ok(()) }
    }

    fn gap(&self) -> Unknown {
        self.unknown(Garbage("a delivery is missing").into())
    }

    fn unknown(&self, cause: Cause) -> Unknown {
        Unknown::settled("pass", &*self.filter, cause)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // The pass's caller is gone, perhaps cancelled, and a consumer must not stay behind for that. One bounded request.
        let (jetstream, stream, consumer) =
            (self.jetstream.clone(), self.stream.clone(), std::mem::take(&mut self.consumer));
        tasks::detach(async move {
            if let Err(unknown) = jetstream.delete_consumer(&stream, &consumer, jetstream.deadline()).await {
                tracing::debug!(%unknown, "pass_consumer_left_to_its_timeout");
            }
        });
    }
}

fn marker(headers: &HeaderMap) -> Option<Marker> {
    [KV_OPERATION, MARKER_REASON].into_iter().find_map(|name| message::marker(name, headers.get(name)?.as_str()))
}
