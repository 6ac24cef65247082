//! The replies to a batched direct get: the last record of every subject that a list of filters matches, as one member of the
//! stream's group has them.
//!
//! Whichever member gets the request answers it, leader or not, from its own copy: all records as they stood at one instant,
//! in the order of their sequences, each record once however many filters match it. What was committed since, or has not
//! reached that member, is not among them, and the end says how far the member had come.
//!
//! The replies are many messages, and a subscription that is full drops what it cannot take. The server numbers them:
//! every record names the sequence of the one before it (`Nats-Last-Sequence`, 0 in the first) and how many follow
//! (`Nats-Num-Pending`), and the end names the last one's. So a [`Batch`] is followed link by link, and one with a link
//! missing is not an answer. The server's headers stand behind the record's own of the same name, so the last one counts.
//!
//! Source: ADR-31; the chain of sequences, the order and the single delivery as nats-server 2.15.1 sends them.

use jiff::Timestamp;

use super::Garbage;
use super::message::{Marker, marker};
use super::scan::decimal;
use super::verdict::{self, BatchEnd};
use crate::answer::Cause;

/// Most records that one batch carries; a list of filters that matches more is refused (413).
pub const MOST_RECORDS: usize = 1024;

const STREAM: &str = "Nats-Stream";
const SUBJECT: &str = "Nats-Subject";
const SEQUENCE: &str = "Nats-Sequence";
const TIME: &str = "Nats-Time-Stamp";
const PENDING: &str = "Nats-Num-Pending";
const LAST: &str = "Nats-Last-Sequence";
const UP_TO: &str = "Nats-UpTo-Sequence";

/// The replies to one request, as far as they have come.
#[derive(Clone, Debug)]
pub struct Batch<'s> {
    stream: &'s str,
    /// The last record's sequence; 0 before the first.
    last: u64,
    /// How many were to follow the last record; `None` before the first.
    pending: Option<u64>,
}

/// One message of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'h> {
    /// A record, whose value is the message's payload.
    Record(Found<'h>),
    /// The end.
    End(End),
}

/// Where a record of a batch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'h> {
    /// Its subject.
    pub subject: &'h str,
    /// The stream's sequence of this revision.
    pub revision: u64,
    /// When the broker stored it, by the broker's clock.
    pub time: Timestamp,
    /// Set when this revision says that the record is gone.
    pub marker: Option<Marker>,
    /// How many records follow this one.
    pub pending: u64,
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every record came.
    Whole {
        /// The sequence that the answering member's copy had come to; `None` when nothing matches, as that reply does not
        /// say.
        last_seq: Option<u64>,
    },
    /// More subjects match than one batch carries, or the member stopped early for their size.
    TooMuch,
}

impl<'s> Batch<'s> {
    /// A batch of `stream`'s records, of which nothing has come.
    pub fn of(stream: &'s str) -> Batch<'s> {
        Batch { stream, last: 0, pending: None }
    }

    /// Reads the next message: its status and the status line's text, if it has a status, and its headers, of which those of
    /// one name come in the order in which they stand.
    ///
    /// # Errors
    /// When it is not the batch's next message, or not an answer; [`verdict::batch_end`] has the table. The batch is of no
    /// use then.
    pub fn take<'h>(
        &mut self,
        status: Option<u16>,
        text: Option<&str>,
        headers: impl IntoIterator<Item = (&'h str, &'h str)>,
    ) -> Result<Part<'h>, Cause> {
        let headers = Headers::read(headers);
        let Some(status) = status else { return Ok(Part::Record(self.record(&headers)?)) };
        match verdict::batch_end(status, text)? {
            BatchEnd::Counted => Ok(Part::End(self.counted(&headers)?)),
            _ if self.pending.is_some() => Err(Garbage("records, and then none").into()),
            BatchEnd::Nothing => Ok(Part::End(End::Whole { last_seq: None })),
            BatchEnd::TooMany => Ok(Part::End(End::TooMuch)),
        }
    }

    fn record<'h>(&mut self, headers: &Headers<'h>) -> Result<Found<'h>, Garbage> {
        if headers.stream != Some(self.stream) {
            return Err(Garbage("a record of another stream"));
        }
        let revision = number(headers.sequence)?;
        let pending = number(headers.pending)?;
        let follows = self.pending.is_none_or(|before| before.checked_sub(1) == Some(pending));
        if number(headers.last)? != self.last || revision <= self.last || !follows {
            return Err(MISSING);
        }
        (self.last, self.pending) = (revision, Some(pending));
        Ok(Found {
            subject: headers.subject.ok_or(Garbage("a record without a subject"))?,
            revision,
            time: headers.time.and_then(|time| time.parse().ok()).ok_or(Garbage("a record without a time"))?,
            marker: headers.marker,
            pending,
        })
    }

    fn counted(&self, headers: &Headers<'_>) -> Result<End, Garbage> {
        let (last, pending, last_seq) = (number(headers.last)?, number(headers.pending)?, number(headers.up_to)?);
        if last != self.last || Some(pending) != self.pending {
            return Err(MISSING);
        }
        if last_seq < last {
            return Err(Garbage("a record from beyond the stream's end"));
        }
        Ok(if pending > 0 { End::TooMuch } else { End::Whole { last_seq: Some(last_seq) } })
    }
}

const MISSING: Garbage = Garbage("a record of the batch is missing");

fn number(text: Option<&str>) -> Result<u64, Garbage> {
    text.and_then(|text| decimal(text.as_bytes())).ok_or(Garbage("a batch without its numbers"))
}

#[derive(Default)]
struct Headers<'h> {
    stream: Option<&'h str>,
    subject: Option<&'h str>,
    sequence: Option<&'h str>,
    time: Option<&'h str>,
    pending: Option<&'h str>,
    last: Option<&'h str>,
    up_to: Option<&'h str>,
    marker: Option<Marker>,
}

impl<'h> Headers<'h> {
    fn read(all: impl IntoIterator<Item = (&'h str, &'h str)>) -> Headers<'h> {
        let mut headers = Headers::default();
        for (name, value) in all {
            let place = match name {
                STREAM => &mut headers.stream,
                SUBJECT => &mut headers.subject,
                SEQUENCE => &mut headers.sequence,
                TIME => &mut headers.time,
                PENDING => &mut headers.pending,
                LAST => &mut headers.last,
                UP_TO => &mut headers.up_to,
                _ => {
                    // What a client said comes before what the broker added, whichever is looked at first.
                    let client = headers.marker.filter(|known| *known != Marker::Broker);
                    headers.marker = client.or_else(|| marker(name, value)).or(headers.marker);
                    continue;
                }
            };
            *place = Some(value);
        }
        headers
    }
}

#[cfg(test)]
mod tests;
