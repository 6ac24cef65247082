//! What one ephemeral consumer delivers to one subscription: in order, without a gap, and the consumer goes when this does.

use std::time::Duration;

use async_nats::header::HeaderMap;
use async_nats::{Message, Subscriber};
use coordproto::answer::{Cause, Unknown};
use coordproto::api::Garbage;
use coordproto::api::message::{self, Coordinates, KV_OPERATION, MARKER_REASON, Marker};
use futures_util::StreamExt;
use tokio::sync::watch;

use super::connection::Jetstream;
use super::counters::add;
use super::desk::Link;
use super::direct::Record;
use super::meter::Meter;
use crate::env::Mono;
use crate::tasks;

/// How long the broker keeps the consumer of somebody who went away without ending it.
pub(super) const ORPHAN: Duration = Duration::from_secs(5);

/// How long the deletion of a consumer may take whose user went away. While the members' own group elects nobody deletes one, and
/// every request under way is one that others cannot make.
const DELETE_WITHIN: Duration = Duration::from_secs(1);

/// A record that a consumer delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The record.
    pub record: Record,
    /// How many the consumer believed to have left after this one. It can be 0 too early while records are rewritten.
    pub pending: u64,
}

/// A subscription, and the consumer that delivers to it.
///
/// Dropped without [`Deliveries::end`], it has its consumer deleted by a task of its own, and the broker forgets the consumer a
/// few seconds later in any case.
pub(super) struct Deliveries {
    jetstream: Jetstream,
    op: &'static str,
    stream: Box<str>,
    filter: Box<str>,
    /// The subject of the subscription. The consumer's name is its last token.
    inbox: String,
    subscriber: Subscriber,
    link: watch::Receiver<Link>,
    losses: u64,
    /// When there was last a sign of life.
    pub(super) heard: Mono,
    /// The number of the last delivery.
    pub(super) delivered: u64,
    ended: bool,
}

impl Deliveries {
    /// Subscribes. This comes before the consumer: one without interest in exactly its subject delivers nothing.
    pub(super) async fn subscribe(
        jetstream: &Jetstream,
        op: &'static str,
        stream: &str,
        filter: &str,
    ) -> Result<Deliveries, Unknown> {
        let link = jetstream.link();
        let inbox = jetstream.client().new_inbox();
        let subscribed = jetstream.client().subscribe(inbox.clone()).await;
        let subscriber = subscribed.map_err(|_| Unknown::settled("create consumer", stream, Cause::Disconnected))?;
        let losses = link.borrow().losses;
        Ok(Deliveries {
            jetstream: jetstream.clone(),
            op,
            stream: stream.into(),
            filter: filter.into(),
            inbox,
            subscriber,
            link,
            losses,
            heard: jetstream.env().now(),
            delivered: 0,
            ended: false,
        })
    }

    pub(super) fn jetstream(&self) -> &Jetstream {
        &self.jetstream
    }

    pub(super) fn stream(&self) -> &str {
        &self.stream
    }

    pub(super) fn inbox(&self) -> &str {
        &self.inbox
    }

    /// The name of the consumer, which is new with every subscription.
    pub(super) fn consumer(&self) -> &str {
        self.inbox.rsplit('.').next().unwrap_or(&self.inbox)
    }

    /// The next message.
    ///
    /// # Errors
    /// Unknown at the deadline, after a `silence` since the last one, and when the connection was lost.
    pub(super) async fn message(&mut self, silence: Duration, by: Mono) -> Result<Message, Unknown> {
        let silent = self.heard + silence;
        let heard = tokio::select! {
            biased;
            message = self.subscriber.next() => message.ok_or(Cause::Disconnected),
            _ = self.link.wait_for(|link| link.losses != self.losses) => Err(Cause::Disconnected),
            () = self.jetstream.env().sleep_until(by.min(silent)) => Err(Cause::Timeout),
        };
        let message = heard.map_err(|cause| self.unknown(cause))?;
        self.heard = self.jetstream.env().now();
        add(&self.jetstream.desk().counters.bytes_in, message.length);
        Meter::delivered(message.length);
        Ok(message)
    }

    /// Nothing that was sent here can have been lost with a connection.
    ///
    /// # Errors
    /// Unknown when the connection was lost since the subscription.
    pub(super) fn not_lost(&self) -> Result<(), Unknown> {
        if self.link.borrow().losses == self.losses { Ok(()) } else { Err(self.unknown(Cause::Disconnected)) }
    }

    /// What a message delivers.
    ///
    /// # Errors
    /// Unknown when it is no delivery, or not the next one.
    pub(super) fn take(&mut self, message: Message) -> Result<Delivery, Unknown> {
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
        Ok(Delivery { record, pending: at.pending })
    }

    /// The subscription goes, and the consumer with it.
    ///
    /// # Errors
    /// Unknown when the consumer's deletion is not confirmed.
    pub(super) async fn end(mut self, by: Mono) -> Result<(), Unknown> {
        // Without a connection there is no subscription left to end.
        let _ = self.subscriber.unsubscribe().await;
        self.jetstream.delete_consumer(&self.stream, self.consumer(), by).await?;
        // Not before: an end that is cut short, or has no answer, is made up for when this is dropped.
        self.ended = true;
        Ok(())
    }

    pub(super) fn gap(&self) -> Unknown {
        self.unknown(Garbage("a delivery is missing").into())
    }

    pub(super) fn unknown(&self, cause: Cause) -> Unknown {
        Unknown::settled(self.op, &*self.filter, cause)
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // Its caller is gone, perhaps cancelled, and a consumer must not stay behind for that. One bounded request.
        let (jetstream, stream, consumer) = (self.jetstream.clone(), self.stream.clone(), self.consumer().to_owned());
        tasks::detach(async move {
            let by = jetstream.deadline().min(jetstream.env().now() + DELETE_WITHIN);
            if let Err(unknown) = jetstream.delete_consumer(&stream, &consumer, by).await {
                tracing::debug!(%unknown, "pass_consumer_left_to_its_timeout");
            }
        });
    }
}

fn marker(headers: &HeaderMap) -> Option<Marker> {
    [KV_OPERATION, MARKER_REASON].into_iter().find_map(|name| message::marker(name, headers.get(name)?.as_str()))
}
