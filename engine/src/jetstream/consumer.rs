//! Consumers, and a pass over the records of a stream that one of them delivers.

use std::time::Duration;

use async_nats::header::NATS_LAST_CONSUMER;
use async_nats::{Message, Subject};
use bytes::Bytes;
use coordproto::answer::{Cause, Unknown};
use coordproto::api::requests::{self, ConsumerConfig, PASS_HEARTBEAT};
use coordproto::api::verdict;

use super::connection::Jetstream;
use super::counters::Kind;
use super::deliveries::{Deliveries, Delivery, ORPHAN};
use super::exchange::{Call, status};
use crate::env::Mono;

/// A pass whose consumer is silent for this long has lost it.
const SILENCE: Duration = Duration::from_secs(3 * PASS_HEARTBEAT.as_secs());
/// How long one consumer may take to come about before another is tried in its place. The broker may have given the consumer
/// to a member that has just died; asking for the same one again would wait for that member.
pub(super) const OPENING: Duration = Duration::from_millis(1500);
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
        let deliveries = Deliveries::subscribe(self, "pass", stream, filter).await?;
        let config = ConsumerConfig {
            headers_only: values == Values::Without,
            ..ConsumerConfig::pass(deliveries.consumer().to_owned(), deliveries.inbox().to_owned(), filter, ORPHAN)
        };
        let to_deliver = self.create_consumer(stream, &config, by).await?;
        Ok(Pass { deliveries, to_deliver })
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

/// A pass over a stream's records. It delivers in order and without gaps, or ends with an error; what it delivered is not
/// thereby complete, see [`Delivery::pending`]. Heartbeats and flow control are answered inside.
///
/// Dropped without [`Pass::end`], it has its consumer deleted by a task of its own, and the broker forgets the consumer a few
/// seconds later in any case.
pub struct Pass {
    deliveries: Deliveries,
    to_deliver: u64,
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
            let message = self.deliveries.message(SILENCE, by).await?;
            match status(&message) {
                None => return self.deliveries.take(message),
                Some(100) => self.sign_of_life(&message).await?,
                Some(code) => return Err(self.deliveries.unknown(Cause::Unavailable { code, err_code: 0 })),
            }
        }
    }

    /// Ends the pass: the subscription goes, and the consumer with it.
    ///
    /// # Errors
    /// Unknown when the consumer's deletion is not confirmed.
    pub async fn end(self, by: Mono) -> Result<(), Unknown> {
        self.deliveries.end(by).await
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
            let sent = self.deliveries.jetstream().client().publish(asks, Bytes::new()).await;
            return sent.map_err(|_| self.deliveries.unknown(Cause::Disconnected));
        }
        let last = headers.and_then(|headers| headers.get(NATS_LAST_CONSUMER)?.as_str().parse::<u64>().ok());
        if last.is_some_and(|last| last > self.deliveries.delivered) { Err(self.deliveries.gap()) } else { Ok(()) }
    }
}
