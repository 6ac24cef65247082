//! One request and its answer: the permit, the send, the wait, the judgement.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use async_nats::client::traits::Publisher;
use async_nats::message::OutboundMessage;
use async_nats::{HeaderMap, Message, Subject};
use bytes::Bytes;
use coordproto::answer::{Cause, Landing, Unknown};
use coordproto::api::{Doubt, Judged};
use futures_util::FutureExt;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::connection::Jetstream;
use super::counters::{Kind, add};
use super::desk::Waiting;
use super::meter::Meter;
use super::waiters::{Event, Room};
use crate::env::Mono;

/// What may be asked twice is asked again this long after the last time, and up to as long again after that.
const RESEND: Duration = Duration::from_millis(100);
const RESEND_JITTER: Duration = Duration::from_millis(200);
/// How long a write listens for a better answer after one that may be a stale member's.
const GRACE: Duration = Duration::from_millis(50);

/// A request.
pub(super) struct Call<'a> {
    pub(super) kind: Kind,
    /// What is asked, as an operator would name it, and about what.
    pub(super) op: &'static str,
    pub(super) resource: &'a str,
    pub(super) subject: Subject,
    pub(super) headers: Option<HeaderMap>,
    pub(super) payload: Bytes,
    pub(super) by: Mono,
}

impl Call<'_> {
    fn is_read(&self) -> bool {
        matches!(self.kind, Kind::LeaderRead | Kind::Direct | Kind::Info | Kind::Index)
    }

    /// Whether asking twice is the same as asking once. A consumer is made and removed by the name its client chose.
    fn repeats(&self) -> bool {
        self.is_read() || matches!(self.kind, Kind::ConsumerCreate | Kind::ConsumerDelete)
    }

    pub(super) fn unknown(&self, doubt: Doubt) -> Unknown {
        Unknown { op: self.op, resource: self.resource.into(), cause: doubt.cause, landing: doubt.landing }
    }

    /// An unknown of a request that was never sent.
    pub(super) fn unsent(&self, cause: Cause) -> Unknown {
        self.unknown(Doubt { cause, landing: Landing::Settled })
    }

    /// An unknown of a request that was sent and has no answer.
    pub(super) fn unanswered(&self, cause: Cause) -> Unknown {
        let landing = if self.is_read() { Landing::Settled } else { Landing::InFlight };
        self.unknown(Doubt { cause, landing })
    }

    /// The message to send. Only the first carries headers: what is sent again has none.
    pub(super) fn message(&mut self, reply: Subject) -> OutboundMessage {
        OutboundMessage {
            subject: self.subject.clone(),
            reply: Some(reply),
            payload: self.payload.clone(),
            headers: self.headers.take(),
        }
    }
}

/// Bytes that a message takes on the wire beside the protocol's own.
pub(super) fn wire_len(subject: &str, headers: Option<&HeaderMap>, payload: &Bytes) -> usize {
    subject.len() + headers.map_or(0, headers_len) + payload.len()
}

/// The header block's length: a version line, `name: value` lines, an empty line.
pub(super) fn headers_len(headers: &HeaderMap) -> usize {
    let lines = headers.iter().map(|(name, values)| {
        let name: &str = name.as_ref();
        values.iter().map(|value| name.len() + value.as_str().len() + 4).sum::<usize>()
    });
    "NATS/1.0\r\n\r\n".len() + lines.sum::<usize>()
}

/// The status of a reply that is a status line and nothing else.
pub(super) fn status(message: &Message) -> Option<u16> {
    message.status.map(|status| status.as_u16())
}

impl Jetstream {
    /// Asks, and waits for an answer that `judge` takes. What may be asked twice is asked again until its deadline, and then
    /// reports why the last answer was none; anything else is sent once.
    pub(super) async fn exchange<T>(
        &self,
        mut call: Call<'_>,
        judge: impl Fn(&Message) -> Judged<T>,
    ) -> Result<T, Unknown> {
        let _permit = self.permit(&call).await?;
        let resend = call.repeats().then(|| self.next_resend());
        let (waiting, reply) = self.desk().wait(call.by, resend, Room::Answer);
        // The waiter is in place before the link is looked at, so that a loss after the look ends it.
        if !self.connected() {
            return Err(call.unsent(Cause::Disconnected));
        }
        let sent = call.message(reply.clone());
        let bytes = wire_len(&sent.subject, sent.headers.as_ref(), &sent.payload) + reply.len();
        self.hand_over(&call, &waiting, sent).await?;
        let meter = Meter::request();
        let counters = &self.desk().counters;
        counters.request(call.kind);
        add(&counters.bytes_out, bytes);
        meter.sent(bytes);
        waiting.turn().await;
        let mut best = None;
        loop {
            match waiting.next().await {
                Event::Reply(message) => {
                    meter.received(message.length);
                    match judge(&message) {
                        Judged::Final(result) => return self.told(&call, &message, result),
                        Judged::Wait(result) => best = Some(self.told(&call, &message, result)),
                    }
                    if !call.repeats() {
                        waiting.end_by(self.env().now() + GRACE);
                    }
                }
                Event::Resend => {
                    // A queue without room for it has no use for it either.
                    if self.connected()
                        && self.client().publish_message(call.message(reply.clone())).now_or_never().is_some()
                    {
                        add(&counters.resends, 1);
                        add(&counters.bytes_out, bytes);
                        meter.resent();
                        meter.sent(bytes);
                    }
                    waiting.resend_at(self.next_resend());
                }
                Event::Expired => {
                    return best.unwrap_or_else(|| {
                        add(&counters.timeouts, 1);
                        Err(call.unanswered(Cause::Timeout))
                    });
                }
                Event::Failed => {
                    return match best {
                        Some(answer) if !call.repeats() => answer,
                        _ => Err(call.unanswered(Cause::Disconnected)),
                    };
                }
            }
        }
    }

    fn next_resend(&self) -> Mono {
        self.env().now() + RESEND + self.env().jitter(RESEND_JITTER)
    }

    /// The server answers as many at once as its queue holds and drops the whole queue beyond that, so what is under way is
    /// bounded. Waiting for a turn counts against the deadline.
    pub(super) async fn permit<'a>(&'a self, call: &Call<'_>) -> Result<SemaphorePermit<'a>, Unknown> {
        let turns: &Semaphore = if call.kind == Kind::Publish { self.publishes() } else { self.requests() };
        if let Ok(permit) = turns.try_acquire() {
            return Ok(permit);
        }
        match self.env().within(call.by, turns.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(call.unsent(Cause::Disconnected)),
            Err(_) => Err(call.unsent(Cause::Timeout)),
        }
    }

    /// Hands a message to the connection's task. Until that has happened, nothing was sent.
    pub(super) async fn hand_over(
        &self,
        call: &Call<'_>,
        waiting: &Waiting<'_>,
        message: OutboundMessage,
    ) -> Result<(), Unknown> {
        let mut handing = pin!(self.client().publish_message(message));
        poll_fn(|context| {
            loop {
                if let Poll::Ready(result) = handing.as_mut().poll(context) {
                    return Poll::Ready(result.map_err(|error| call.unsent(unsendable(&error))));
                }
                return match waiting.poll(context) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(Event::Expired) => Poll::Ready(Err(call.unsent(Cause::Timeout))),
                    Poll::Ready(Event::Failed) => Poll::Ready(Err(call.unsent(Cause::Disconnected))),
                    // Time to ask again before it was asked once: that is this.
                    Poll::Ready(Event::Resend | Event::Reply(_)) => continue,
                };
            }
        })
        .await?;
        Ok(())
    }

    /// An unknown that a server gave a reason for is logged with the server's own words, which decide nothing.
    fn told<T>(&self, call: &Call<'_>, message: &Message, result: Result<T, Doubt>) -> Result<T, Unknown> {
        result.map_err(|doubt| {
            let unknown = call.unknown(doubt);
            let words = &message.payload[..message.payload.len().min(300)];
            tracing::debug!(%unknown, reply = %words.escape_ascii(), "answer_refused");
            unknown
        })
    }
}

fn unsendable(error: &async_nats::client::PublishError) -> Cause {
    use async_nats::client::PublishErrorKind::{InvalidSubject, MaxPayloadExceeded, Send};
    match error.kind() {
        Send => Cause::Disconnected,
        InvalidSubject => Cause::Garbage("a subject that cannot be sent".into()),
        MaxPayloadExceeded => Cause::Garbage("a request larger than the broker takes".into()),
    }
}
