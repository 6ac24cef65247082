//! A drain: every record that one member of a stream's group holds, until that member has nothing more.
//!
//! It pulls from an ephemeral consumer in requests that are bounded by their size. What ends it is the member's own word that
//! it got nothing more from its store, and never a count of what is pending, see [`requests::drain`]. Which member has the
//! consumer is the broker's choice, and it may be behind, or unable to read what it has; what a drain proves is the caller's
//! business.

use std::time::Duration;

use async_nats::client::traits::Publisher;
use async_nats::message::OutboundMessage;
use async_nats::{Message, Subject};
use coordproto::answer::{Cause, Unknown};
use coordproto::api::Garbage;
use coordproto::api::requests::{self, ConsumerConfig, DRAIN_BYTES};
use coordproto::api::verdict::{PullEnd, pull_end};
use coordproto::listing::goes_on;

use super::connection::Jetstream;
use super::consumer::OPENING;
use super::counters::{Kind, add};
use super::deliveries::{Deliveries, ORPHAN};
use super::direct::Record;
use super::exchange::{status, wire_len};
use super::meter::{Meter, Outstanding};
use crate::env::Mono;

const OP: &str = "drain";

/// A drain without a message for this long is given up: the member that has the consumer is frozen, or gone.
const SILENCE: Duration = Duration::from_secs(1);
/// How long a consumer that nobody takes requests to yet is left alone at first. The wait doubles.
const EARLY: Duration = Duration::from_millis(1);
/// Where the server says how much of a request was left when it ended.
const PENDING: &str = "Nats-Pending-Bytes";

impl Jetstream {
    /// Delivers the last record of every subject that `filter` matches to `take`, in the order of revisions, as one member
    /// holds them; what is written meanwhile too, until the member holds nothing more.
    ///
    /// # Errors
    /// Unknown at the deadline, and when the consumer does not come about, goes, or falls silent, when a delivery is missing,
    /// when records are written faster than they come, or the connection was lost. Half of a drain is nothing. No consumer is left behind.
    pub async fn drain(
        &self,
        stream: &str,
        filter: &str,
        by: Mono,
        mut take: impl FnMut(Record),
    ) -> Result<Drained, Unknown> {
        let mut deliveries = Deliveries::subscribe(self, OP, stream, filter).await?;
        let config = ConsumerConfig::drain(deliveries.consumer().to_owned(), filter, ORPHAN);
        let counted = self.create_consumer(stream, &config, by.min(self.env().now() + OPENING)).await?;
        goes_on(0, counted).map_err(|cause| deliveries.unknown(cause))?;
        deliveries.heard = self.env().now();
        let (mut last, mut early) = (0, EARLY);
        // To a request that it has nothing for, the server does not answer before the request has run out of time.
        let mut ended = counted == 0;
        while !ended {
            let mut pull = Pull::ask(&deliveries, by).await?;
            let before = deliveries.delivered;
            ended = loop {
                let message = deliveries.message(SILENCE, by).await?;
                pull.got(&message);
                if let Some(code) = status(&message) {
                    let pending = message.headers.as_ref().is_some_and(|headers| headers.get(PENDING).is_some());
                    match pull_end(code, pending).map_err(|cause| deliveries.unknown(cause))? {
                        PullEnd::Nothing => break true,
                        PullEnd::More if deliveries.delivered > before => break false,
                        PullEnd::More => return Err(deliveries.unknown(Garbage("a record larger than a pull").into())),
                        // It was just made, and not everybody has heard of it.
                        PullEnd::Nobody if deliveries.delivered == 0 && self.env().now() + early < by => {
                            drop(pull);
                            self.env().sleep(early + self.env().jitter(early)).await;
                            early *= 2;
                            break false;
                        }
                        PullEnd::Nobody => return Err(deliveries.unknown(Cause::NoResponders)),
                    }
                }
                let record = deliveries.take(message)?.record;
                if record.revision <= last {
                    return Err(deliveries.unknown(Garbage("records out of their order").into()));
                }
                last = record.revision;
                goes_on(deliveries.delivered, counted).map_err(|cause| deliveries.unknown(cause))?;
                take(record);
                if pull.left == 0 {
                    // The server says nothing of a request that it gave exactly as much as was asked for.
                    break false;
                }
            };
        }
        // A delivery that was lost with the connection leaves no gap if it was the last.
        deliveries.not_lost()?;
        Ok(Drained { deliveries, last })
    }
}

/// A drain that has come to its end. Its consumer is there until it is ended, or dropped.
pub struct Drained {
    deliveries: Deliveries,
    last: u64,
}

impl Drained {
    /// The last revision delivered; 0 for none.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Ends it: the subscription goes, and the consumer with it.
    ///
    /// # Errors
    /// Unknown when the consumer's deletion is not confirmed.
    pub async fn end(self, by: Mono) -> Result<(), Unknown> {
        self.deliveries.end(by).await
    }
}

/// One request for what the consumer has.
struct Pull {
    /// It is under way until it is answered.
    _meter: Outstanding,
    /// How many bytes the answer may still have.
    left: usize,
}

impl Pull {
    async fn ask(deliveries: &Deliveries, by: Mono) -> Result<Pull, Unknown> {
        let jetstream = deliveries.jetstream();
        if !jetstream.connected() {
            return Err(deliveries.unknown(Cause::Disconnected));
        }
        let expires = by.since(jetstream.env().now());
        let message = OutboundMessage {
            subject: jetstream.subject(OP, deliveries.stream(), |into| {
                requests::consumer_next_subject(into, deliveries.stream(), deliveries.consumer());
            })?,
            reply: Some(Subject::from(deliveries.inbox())),
            payload: jetstream.desk().carve(|into| requests::drain(into, expires)),
            headers: None,
        };
        let bytes = wire_len(&message.subject, None, &message.payload) + deliveries.inbox().len();
        let meter = Meter::request();
        jetstream.client().publish_message(message).await.map_err(|_| deliveries.unknown(Cause::Disconnected))?;
        jetstream.desk().counters.request(Kind::ConsumerNext);
        add(&jetstream.desk().counters.bytes_out, bytes);
        meter.sent(bytes);
        Ok(Pull { _meter: meter, left: DRAIN_BYTES })
    }

    /// A record counts with its subject, its reply subject and its headers.
    fn got(&mut self, message: &Message) {
        self.left = self.left.saturating_sub(message.length);
    }
}
