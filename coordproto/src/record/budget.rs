//! The record behind a scope's token budget: what has been spent in each window, when the gate last turned a call away in
//! it, and who wrote it last.
//!
//! A JSON object; instants are UTC, RFC 3339; counters are integers, exact up to 2^64 − 1, and a number in any other form is
//! refused. All three slots are always there: a record that lost one is unknown, never a window without spend. Which scope
//! it is about is told by its key, see [`Scope`].
//!
//! # How a write is recognised
//! A write is a compare-and-set over the revision it was judged on, and its answer can be lost. A charge must be counted once
//! whatever becomes of the answer, so the next read has to tell whether the write landed. What can be read then:
//! 1. The record is still at the revision that the write was made over. The write has not landed and may yet. The same bytes
//!    may be sent over that revision again: of all the copies one lands at most. Charges that have come since belong to
//!    another batch, or the copies would not stand for the same charges.
//! 2. The record is at a later revision. Of all the writes over the old one exactly one landed. If it was this one, the
//!    charges are counted; if not, it is refused for ever, since a revision never comes back, and the batch may be judged
//!    again and sent over the new one.
//!
//! Only the second needs the record's help, and the newest revision alone cannot give it: another writer may have written
//! on top. The id of the last write is therefore too little as soon as there are two writers: the second hides the first,
//! which either charges twice or loses the charge. The ids of the last N writes are too little for every N, since a writer
//! that waits for a lost answer cannot bound how often a quick one writes meanwhile. What suffices is one id for each writer
//! that has a write in doubt, and a writer that sends one at a time (on a record) has one: its next write says that it knows
//! what became of the one before, and takes its place. So [`BudgetRecord::writes`] has one entry a writer, and a batch keeps
//! its id over all its attempts, since at most one of them can land.
//!
//! Writers come and go with the processes they are, and entries must not stay for ever. An entry that is older than
//! [`REMEMBERED`], or that is among more than [`WRITERS_MAX`], is dropped, and `forgotten` keeps the latest revision that a
//! dropped one was made over. A writer that asks about a write over a later revision and finds no entry knows that the write
//! never landed; one that asks about an earlier revision is told that nobody knows any more. A wrong clock or too small a
//! bound can therefore cost an answer, and never a count.
//!
//! A refusal made without a charge counts nothing and may land twice, so it leaves no entry.

use std::fmt;
use std::iter::once;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::answer::{BadArgument, Cause};
use crate::key::Key;
use crate::window::{ByPeriod, Label, Period};

/// How long a write is remembered at least, on the clocks of the writers: many times as long as a charge may take with all
/// its attempts.
pub const REMEMBERED: SignedDuration = SignedDuration::from_mins(10);

/// Of how many writers the last write is remembered. More than the nodes of a fleet.
pub const WRITERS_MAX: usize = 128;

/// For how long after its last write a writer counts as one that races for the record, on the clocks of the writers.
pub const RACING: SignedDuration = SignedDuration::from_secs(10);

/// The key of the company's record. No seat has it, since theirs begin with [`SEAT`].
const ORG: &str = "org";

/// What the key of a seat's record begins with, before it is escaped.
const SEAT: &str = "seat:";

/// Whose spend a record counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The company's: every seat's together, and what no seat spends.
    Org,
    /// The seat's of this handle.
    Seat(Box<str>),
}

impl Scope {
    /// The key of its record: one segment.
    ///
    /// # Errors
    /// A handle that no seat can have: empty, with an empty part between colons, or too long.
    pub fn key(&self) -> Result<Key, BadArgument> {
        match self {
            Scope::Org => Key::from_segments("scope", ORG, once(ORG)),
            Scope::Seat(handle) => {
                // A seat's lease splits its name at the colons and takes no empty part.
                Key::from_segments("seat", handle, handle.split(':'))?;
                Key::from_segments("seat", handle, once(&*format!("{SEAT}{handle}")))
            }
        }
    }

    /// The scope whose record stands at `key`; none for a key that no scope has.
    pub fn of(key: &Key) -> Option<Scope> {
        let name = key.segments().next()?;
        let scope = match name.strip_prefix(SEAT) {
            Some(handle) => Scope::Seat(handle.into()),
            None => Scope::Org,
        };
        scope.key().is_ok_and(|own| own == *key).then_some(scope)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Org => f.write_str(ORG),
            Scope::Seat(handle) => write!(f, "{SEAT}{handle}"),
        }
    }
}

/// A record of the `budgets` bucket: the spend of one scope, the company or a seat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Wire")]
pub struct BudgetRecord {
    /// A slot for each period, a field each.
    #[serde(flatten)]
    pub slots: ByPeriod<Spend>,
    /// The last counting write of each writer, in the order in which they landed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<LastWrite>,
    /// The latest revision that a dropped entry of `writes` was made over; absent while none was dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forgotten: Option<u64>,
    /// What a newer build keeps beside. It takes part in no decision and is written back as it was read, since every build in
    /// a fleet writes the one record of a scope over.
    #[serde(flatten)]
    pub newer: Map<String, Value>,
}

/// What has been spent in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spend {
    /// The window that the slot counts.
    pub label: Label,
    /// Tokens spent in it, refused charges included.
    pub spent: u64,
    /// When the gate last turned a call away in it, on the clock of the node that did; absent once a charge was admitted
    /// after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_at: Option<Timestamp>,
}

impl Spend {
    /// A window in which nothing has been spent.
    pub fn none(label: Label) -> Spend {
        Spend { label, spent: 0, refused_at: None }
    }
}

/// The mark of a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastWrite {
    /// Who wrote: a name that no other process bears, nor the same node after a restart.
    pub writer: String,
    /// Which of the writer's batches of charges; later ones have larger numbers.
    pub batch: u64,
    /// The revision that it was made over; 0 where there was no record.
    pub over: u64,
    /// When, on the writer's clock, in whole seconds.
    pub at: Timestamp,
}

/// What a record tells of a write whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// It landed: its charges are counted.
    Landed,
    /// It did not land and never will.
    Never,
    /// It may have landed; what would tell has been dropped.
    Forgotten,
}

/// The fields as they are written, before anything is believed of them.
#[derive(Deserialize)]
struct Wire {
    day: Spend,
    week: Spend,
    month: Spend,
    #[serde(default)]
    writes: Vec<LastWrite>,
    #[serde(default)]
    forgotten: Option<u64>,
    #[serde(flatten)]
    newer: Map<String, Value>,
}

impl TryFrom<Wire> for BudgetRecord {
    type Error = String;

    fn try_from(wire: Wire) -> Result<BudgetRecord, String> {
        let slots = ByPeriod { day: wire.day, week: wire.week, month: wire.month };
        for period in Period::ALL {
            let label = slots[period].label;
            if label.period() != period {
                return Err(format!("{label} labels the slot of the {period}"));
            }
        }
        Ok(BudgetRecord { slots, writes: wire.writes, forgotten: wire.forgotten, newer: wire.newer })
    }
}

impl BudgetRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// A value that does not decode. What is spent is unknown then, and never nothing.
    pub fn decode(value: &[u8]) -> Result<BudgetRecord, Cause> {
        serde_json::from_slice(value).map_err(Cause::undecodable)
    }

    /// Writes a record.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("a record of labels, integers, strings and instants always encodes").into()
    }

    /// Signs the record as it is about to be written at `now` over the revision `over`, as a writer's batch.
    pub fn sign(&mut self, writer: &str, batch: u64, over: u64, now: Timestamp) {
        let at = Timestamp::from_second(now.as_second()).unwrap_or(now);
        self.writes.retain(|write| write.writer != writer);
        self.writes.push(LastWrite { writer: writer.to_owned(), batch, over, at });
        let oldest = now.saturating_sub(REMEMBERED).unwrap_or(Timestamp::MIN);
        let surplus = self.writes.len().saturating_sub(WRITERS_MAX);
        let mut nth = 0;
        self.writes.retain(|write| {
            nth += 1;
            let keep = nth > surplus && write.at >= oldest;
            if !keep {
                self.forgotten = self.forgotten.max(Some(write.over));
            }
            keep
        });
    }

    /// The writers whose last write is older than `writer`'s, and yet so new that they race for the record, the oldest first.
    /// Those who want to write now have waited longer than `writer` has. Empty where the record has no write of `writer`. A
    /// clock that is ahead of the asker's, `now`, makes nobody else old.
    pub fn before<'a>(&'a self, writer: &str, now: Timestamp) -> impl Iterator<Item = &'a str> + use<'a> {
        let own = self.writes.iter().position(|write| write.writer == writer).unwrap_or_default();
        let newest = self.writes.iter().map(|write| write.at).max().unwrap_or(Timestamp::MIN);
        let since = newest.min(now).saturating_sub(RACING).unwrap_or(Timestamp::MIN);
        self.writes[..own].iter().filter(move |write| write.at >= since).map(|write| &*write.writer)
    }

    /// What became of a write of `writer`'s batch over the revision `over`. Asked of a record at a later revision; one that
    /// is still at `over` cannot tell.
    pub fn trace(&self, writer: &str, batch: u64, over: u64) -> Trace {
        match self.writes.iter().find(|write| write.writer == writer) {
            Some(write) if write.batch == batch => Trace::Landed,
            // A writer that went on to another batch had known what became of this one.
            Some(write) if write.batch > batch => Trace::Forgotten,
            _ if self.forgotten.is_some_and(|forgotten| over <= forgotten) => Trace::Forgotten,
            _ => Trace::Never,
        }
    }
}

#[cfg(test)]
mod tests;
