//! Many records in one request: a batch of direct gets, answered by whichever member of the stream's group gets it.
//!
//! One answer is one member's copy at one instant; see [`coordproto::api::direct`] for how it is known to be whole. It is no
//! leader's word: the member may be behind, and how far it had come stands in [`Snapshot::last_seq`]. Judging that is the
//! caller's business, who can ask for a record written a moment ago along with the rest.
//!
//! The member is picked at random, and one that is frozen never answers. So when nothing has come for a moment the same is
//! asked again beside it, and the first whole answer is taken. Every attempt has a reply subject of its own, so that two
//! members' answers never mix.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use async_nats::client::traits::Publisher;
use async_nats::header::HeaderMap;
use async_nats::{Message, Subject};
use bytes::{Bytes, BytesMut};
use coordproto::answer::{Cause, Unknown};
use coordproto::api::Marker;
use coordproto::api::direct::{Batch, End, MOST_RECORDS, Part};
use coordproto::api::requests::{self, Verb};
use futures_util::FutureExt;
use jiff::Timestamp;

use super::connection::Jetstream;
use super::counters::{Kind, add};
use super::desk::Waiting;
use super::exchange::{Call, status, wire_len};
use super::meter::{Meter, Outstanding};
use super::waiters::{Event, Room};
use crate::env::Mono;

const OP: &str = "batched read";

/// Silence after which the same is asked beside what is under way; up to as long again is added at random.
const HEDGE: Duration = Duration::from_millis(100);
/// Most attempts open at once.
const MOST_ATTEMPTS: usize = 4;
/// How long the oldest of so many is left to answer before another takes its place. A busy cluster answers late, and attempts
/// that follow each other too fast would each be given up before their answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a batch of direct gets came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Many {
    /// One member's copy, at one instant.
    Snapshot(Snapshot),
    /// More than one answer carries: more than 1,024 subjects match, the member stopped early for the records' size, or the
    /// request itself is larger than the broker takes.
    TooMuch,
}

/// The records that one member holds, as they stood at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Each record once, in the order of their revisions; markers are among them.
    pub records: Vec<Record>,
    /// The stream sequence that the answering member's copy had come to. `None` when nothing matches, as that reply does not
    /// say.
    pub last_seq: Option<u64>,
}

/// One record, as a batch or a pass delivers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its subject.
    pub subject: Subject,
    /// Its revision: the stream's sequence.
    pub revision: u64,
    /// When the broker stored it, by the broker's clock.
    pub time: Timestamp,
    /// Its value; empty for a marker.
    pub value: Bytes,
    /// Set when it says that the record is gone.
    pub marker: Option<Marker>,
}

impl Jetstream {
    /// The last record of every subject that one of `subjects` matches, wildcards allowed, from one member's copy at one
    /// instant. Each record comes once, however many of them match it; a subject without a record is left out. No subjects at
    /// all match nothing, and nobody is asked.
    ///
    /// The copy may be behind what this connection knows of the stream; that is no error here. See [`Snapshot::last_seq`].
    ///
    /// # Errors
    /// Unknown, and settled, once the deadline has passed without a whole answer, with the reason why the last answer was
    /// none; at once when the connection is lost.
    pub async fn last_many(&self, stream: &str, subjects: &[impl AsRef<str>], by: Mono) -> Result<Many, Unknown> {
        if subjects.is_empty() {
            return Ok(Many::Snapshot(Snapshot::default()));
        }
        let mut body = BytesMut::with_capacity(32 + subjects.iter().map(|s| s.as_ref().len() + 3).sum::<usize>());
        requests::last_of_each(&mut body, subjects);
        if body.len() > self.max_payload() {
            return Ok(Many::TooMuch);
        }
        let call = Call {
            kind: Kind::Direct,
            op: OP,
            resource: stream,
            subject: self.subject(OP, stream, |into| requests::stream_subject(into, Verb::DirectGet, stream))?,
            headers: None,
            payload: body.freeze(),
            by,
        };
        let _permit = self.permit(&call).await?;
        let mut asking = Asking::begin(self, call).await?;
        let told = loop {
            match poll_fn(|context| asking.poll(context)).await {
                Turn::Told(told) => break told,
                Turn::Quiet => asking.hedge(),
            }
        };
        if let Ok(Many::Snapshot(Snapshot { records, .. })) = &told
            && let Some(last) = records.last()
        {
            self.learn(stream, |mark| mark.raise_read(last.revision, last.time));
        }
        told
    }
}

/// What a question's attempts have to say next.
enum Turn {
    /// The question is over.
    Told(Result<Many, Unknown>),
    /// It is time to see whether another attempt is due.
    Quiet,
}

/// A question, and the attempts at it, oldest first.
struct Asking<'a> {
    jetstream: &'a Jetstream,
    call: Call<'a>,
    meter: Outstanding,
    /// The last of them keeps the time, also after it has failed.
    attempts: Vec<Attempt<'a>>,
    /// When a message last came or an attempt last began.
    heard: Mono,
    /// Why the last answer was none.
    doubt: Option<Cause>,
}

impl<'a> Asking<'a> {
    /// Sends the first attempt.
    async fn begin(jetstream: &'a Jetstream, mut call: Call<'a>) -> Result<Asking<'a>, Unknown> {
        let (first, reply) = Attempt::begin(jetstream, &call);
        // The waiter is in place before the link is looked at, so that a loss after the look ends it.
        if !jetstream.connected() {
            return Err(call.unsent(Cause::Disconnected));
        }
        let bytes = wire_len(&call.subject, None, &call.payload) + reply.len();
        let message = call.message(reply);
        jetstream.hand_over(&call, &first.waiting, message).await?;
        let meter = Meter::request();
        jetstream.desk().counters.request(call.kind);
        let heard = jetstream.env().now();
        let asking = Asking { jetstream, call, meter, attempts: vec![first], heard, doubt: None };
        asking.sent(bytes);
        asking.attempts[0].waiting.turn().await;
        Ok(asking)
    }

    fn sent(&self, bytes: usize) {
        add(&self.jetstream.desk().counters.bytes_out, bytes);
        self.meter.sent(bytes);
    }

    /// Asks again beside what is under way, if it is time to.
    fn hedge(&mut self) {
        let now = self.jetstream.env().now();
        let open = self.attempts.iter().filter(|attempt| !attempt.failed).count();
        let mut due = self.heard + HEDGE;
        if open >= MOST_ATTEMPTS
            && let Some(oldest) = self.attempts.iter().find(|attempt| !attempt.failed)
        {
            due = due.max(oldest.began + PATIENCE);
        }
        if now >= due && self.send(open) {
            return;
        }
        if let Some(last) = self.attempts.last() {
            last.waiting.resend_at(due.max(now) + self.jetstream.env().jitter(HEDGE));
        }
    }

    /// Begins one more attempt, unless there is no connection or no room in its queue: then it would be of no use.
    fn send(&mut self, open: usize) -> bool {
        let (attempt, reply) = Attempt::begin(self.jetstream, &self.call);
        let bytes = wire_len(&self.call.subject, None, &self.call.payload) + reply.len();
        let message = self.call.message(reply);
        if !self.jetstream.connected()
            || !matches!(self.jetstream.client().publish_message(message).now_or_never(), Some(Ok(())))
        {
            return false;
        }
        self.attempts.retain(|attempt| !attempt.failed);
        if open >= MOST_ATTEMPTS {
            self.attempts.remove(0);
        }
        self.heard = attempt.began;
        self.attempts.push(attempt);
        add(&self.jetstream.desk().counters.resends, 1);
        self.meter.resent();
        self.sent(bytes);
        true
    }

    /// Takes what has come for every attempt. A whole answer counts however the others fare.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Turn> {
        let (mut heard, mut quiet, mut expired, mut lost) = (false, false, false, false);
        for n in 0..self.attempts.len() {
            while let Poll::Ready(event) = self.attempts[n].waiting.poll(context) {
                match event {
                    Event::Reply(message) => {
                        if let Some(many) = self.take(n, message) {
                            return Poll::Ready(Turn::Told(Ok(many)));
                        }
                        heard = true;
                        continue;
                    }
                    Event::Resend => {
                        quiet = true;
                        continue;
                    }
                    Event::Expired => expired = true,
                    Event::Failed => lost = true,
                }
                break;
            }
        }
        if heard {
            self.heard = self.jetstream.env().now();
        }
        if lost {
            Poll::Ready(Turn::Told(Err(self.call.unanswered(Cause::Disconnected))))
        } else if expired {
            let cause = self.doubt.take().unwrap_or_else(|| {
                add(&self.jetstream.desk().counters.timeouts, 1);
                Cause::Timeout
            });
            Poll::Ready(Turn::Told(Err(self.call.unanswered(cause))))
        } else if quiet {
            Poll::Ready(Turn::Quiet)
        } else {
            Poll::Pending
        }
    }

    /// The answer, if this message ends one.
    fn take(&mut self, n: usize, message: Message) -> Option<Many> {
        self.meter.received(message.length);
        let attempt = &mut self.attempts[n];
        if attempt.failed {
            return None;
        }
        let (status, text) = (status(&message), message.description.clone());
        match attempt.take(message) {
            Ok(many) => many,
            Err(cause) => {
                let unknown = self.call.unanswered(cause.clone());
                tracing::debug!(%unknown, status, text, "answer_refused");
                attempt.failed = true;
                self.doubt = Some(cause);
                None
            }
        }
    }
}

/// One attempt: the replies to one request, which one member answers.
struct Attempt<'a> {
    waiting: Waiting<'a>,
    began: Mono,
    batch: Batch<'a>,
    records: Vec<Record>,
    /// What came is not an answer, and what may still come is not looked at.
    failed: bool,
}

impl<'a> Attempt<'a> {
    fn begin(jetstream: &'a Jetstream, call: &Call<'a>) -> (Attempt<'a>, Subject) {
        let began = jetstream.env().now();
        let next = began + HEDGE + jetstream.env().jitter(HEDGE);
        let (waiting, reply) = jetstream.desk().wait(call.by, Some(next), Room::Batch);
        let batch = Batch::of(call.resource);
        (Attempt { waiting, began, batch, records: Vec::new(), failed: false }, reply)
    }

    /// Takes the batch's next message.
    fn take(&mut self, message: Message) -> Result<Option<Many>, Cause> {
        let headers = message.headers.as_ref().into_iter().flat_map(pairs);
        match self.batch.take(status(&message), message.description.as_deref(), headers)? {
            Part::Record(found) => {
                if self.records.is_empty() {
                    self.records.reserve_exact(MOST_RECORDS.min(found.pending as usize + 1));
                }
                let (revision, time, marker) = (found.revision, found.time, found.marker);
                let subject = Subject::from(found.subject);
                self.records.push(Record { subject, revision, time, value: message.payload, marker });
                Ok(None)
            }
            Part::End(End::TooMuch) => Ok(Some(Many::TooMuch)),
            Part::End(End::Whole { last_seq }) => {
                Ok(Some(Many::Snapshot(Snapshot { records: std::mem::take(&mut self.records), last_seq })))
            }
        }
    }
}

/// Headers one by one; those of one name in the order in which they stand.
fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    headers.iter().flat_map(|(name, values)| values.iter().map(move |value| (name.as_ref(), value.as_str())))
}
