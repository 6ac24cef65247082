//! Channels: who asks whom, and whether the ask is still open.
//!
//! The record allows the seat that is asked to answer, and is read by the node that owns that seat, never the one that opened
//! it. A channel is opened once, messages are counted while it is open, and it is closed once; nothing is written to a closed
//! one any more. The bucket has no age, since an age cannot tell an open ask from a closed one: closing what is idle and
//! [purging](Channels::purge) what is closed are decisions, taken by a duty.
//!
//! No node's clock decides anything here. How long a channel has not changed is told by the broker's clock alone.
//!
//! A record that does not decode makes every answer that it is part of unknown: nobody may answer on the strength of a record
//! that cannot be read, and nobody may take it away. The safe direction of what is unknown is closed, see
//! [`FailsClosed::fails_closed`].

use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{BadArgument, Cause, Error, Unknown};
use coordproto::key::Key;
use coordproto::listing::Version;
use coordproto::record::channel::{self, ChannelRecord};
use coordproto::slot::CHANNELS;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};

use super::named::{self, Row, Rows};
use crate::slots::Settings;
use crate::store::create::{Created, create};
use crate::store::modify::{Begin, Step, modify};
use crate::store::replace::{live, take_away};
use crate::store::{Bucket, OpenError, Store, Write};

/// Leader reads of one listing under way at once.
const READS_AT_ONCE: usize = 64;

/// Purges under way at once. Each is a quorum's decision, and nobody waits for them.
const PURGES_AT_ONCE: usize = 16;

/// The channels of a fleet. Clones are handles to the same.
pub struct Channels<S: Store> {
    bucket: S::Bucket,
}

impl<S: Store> Clone for Channels<S> {
    fn clone(&self) -> Self {
        Channels { bucket: self.bucket.clone() }
    }
}

/// A channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// Its id.
    pub id: String,
    /// Who asks whom, and whether it is open.
    pub record: ChannelRecord,
}

/// A channel as a listing tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedChannel {
    /// The channel.
    pub channel: Channel,
    /// How long ago it was opened, had its last message counted, or was closed, whichever was last, on the broker's clock.
    pub unchanged_for: Duration,
}

/// The definite answer to an open.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "another channel may stand under that id"]
pub enum Open {
    /// This call opened it.
    Opened(Channel),
    /// One stands under that id, closed perhaps. Nothing was written.
    Stands(Channel),
}

/// The definite answer to a close.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "there may be no such channel"]
pub enum Close {
    /// This call closed it.
    Closed(Channel),
    /// It was closed before, at the instant that the record has. Nothing was written.
    AlreadyClosed(Channel),
    /// There is no such channel.
    Absent,
}

/// The definite answer to the counting of a message.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "the message may not be allowed"]
pub enum Count {
    /// Counted; the record has the number.
    Counted(Channel),
    /// The channel is closed, and nothing was counted.
    Closed(Channel),
    /// There is no such channel.
    Absent,
}

/// What becomes of a message that is to go through a channel.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "the message may not be allowed"]
pub enum Passage {
    /// It goes through, and is counted.
    Goes(Channel),
    /// It does not: the channel is closed, or there is none. Its sender may be told so.
    Closed,
    /// It does not go through now, as in an outage. Nobody is told that the ask is closed.
    Outage(Unknown),
}

/// The safe direction of the counting of a message.
pub trait FailsClosed {
    /// Withheld where it is unknown, which the log says: the record is what allows it, and one that cannot be read allows
    /// nothing. That is an outage and no close.
    ///
    /// # Errors
    /// A bad argument stays one.
    fn fails_closed(self) -> Result<Passage, BadArgument>;
}

impl FailsClosed for Result<Count, Error> {
    fn fails_closed(self) -> Result<Passage, BadArgument> {
        match self {
            Ok(Count::Counted(channel)) => Ok(Passage::Goes(channel)),
            Ok(Count::Closed(_) | Count::Absent) => Ok(Passage::Closed),
            Err(Error::BadArgument(error)) => Err(error),
            Err(Error::Unknown(unknown)) => {
                tracing::warn!(%unknown, "channel_message_withheld");
                Ok(Passage::Outage(unknown))
            }
        }
    }
}

impl<S: Store> Channels<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open_bucket(store: &S, settings: &Settings) -> Result<Channels<S>, OpenError> {
        Ok(Channels { bucket: settings.open(store, &CHANNELS).await? })
    }

    /// Opens a channel from `asker` to `asked`, at `at` by the caller's clock. Of many who open one id at once one does.
    ///
    /// # Errors
    /// An id that is empty or too long or a seat without a handle, before anything is sent. Unknown, which says whether it may
    /// still be opened; also for one that stands and cannot be read.
    pub async fn open(&self, id: &str, asker: &str, asked: &str, at: Timestamp) -> Result<Open, Error> {
        let (key, record) = (channel::key(id)?, ChannelRecord::open(asker, asked, at)?);
        let created = create(&self.bucket, &key, record.encode()).await.map_err(|error| error.during("open", id))?;
        match created {
            Created::Stored(_) => Ok(Open::Opened(Channel { id: id.to_owned(), record })),
            Created::Exists { value, .. } => {
                let stands = decode(id, &value).map_err(|cause| Unknown::settled("open", id, cause));
                Ok(Open::Stands(stands?))
            }
        }
    }

    /// The channel of an id, or none.
    ///
    /// # Errors
    /// An id that is empty or too long, before anything is sent. Unknown, also for a record that cannot be read.
    pub async fn get(&self, id: &str) -> Result<Option<Channel>, Error> {
        let key = channel::key(id)?;
        let found = self.bucket.get(&key).await.map_err(|unknown| unknown.during("get", id))?;
        let found = live(found).map(|(_, value)| decode(id, &value)).transpose();
        Ok(found.map_err(|cause| Unknown::settled("get", id, cause))?)
    }

    /// Closes a channel, at `at` by the caller's clock. Of several closes the first one's instant stays.
    ///
    /// # Errors
    /// As [`Channels::get`]; unknown says whether it may still be closed.
    pub async fn close(&self, id: &str, at: Timestamp) -> Result<Close, Error> {
        self.change("close", id, Close::Absent, |channel| match channel.record.closed(at) {
            Some(record) => (Some(record), Close::Closed),
            None => (None, Close::AlreadyClosed),
        })
        .await
    }

    /// Counts one message of an open channel.
    ///
    /// # Errors
    /// As [`Channels::get`]; unknown says whether it may still be counted. Asked again after that, it may count twice.
    pub async fn count_message(&self, id: &str) -> Result<Count, Error> {
        self.change("count_message", id, Count::Absent, |channel| match channel.record.counted() {
            Some(record) => (Some(record), Count::Counted),
            None => (None, Count::Closed),
        })
        .await
    }

    /// Every open channel, by id. One that was closed while the listing ran may be in it, and from a member that is behind one
    /// that was closed just before.
    ///
    /// # Errors
    /// Unknown, also for one row that cannot be read, which the error names; never a shorter list.
    pub async fn open_channels(&self) -> Result<Vec<ListedChannel>, Unknown> {
        let Rows { rows, clock } = named::list(&self.bucket, CHANNELS.name).await?;
        // What a member that is behind says of an earlier channel of the same id leaves nobody out: the leader is asked.
        let found = stream::iter(rows).map(async |row: Row| {
            let told = listed(clock, &row)?;
            if told.channel.record.is_open() {
                return Ok(Some(told));
            }
            let version = self.bucket.get(&row.key).await;
            let version = version.map_err(|unknown: Unknown| unknown.during("list", row.key.as_str()))?;
            let Some(Version { revision, written, value: Some(value) }) = version else { return Ok(None) };
            let told = listed(clock, &Row { revision, written, value, ..row })?;
            Ok(told.channel.record.is_open().then_some(told))
        });
        let found: Vec<Option<ListedChannel>> = found.buffered(READS_AT_ONCE).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Every channel, open or closed, by id. A channel may be told as it was before its last change, by a member that is
    /// behind.
    ///
    /// # Errors
    /// As [`Channels::open_channels`].
    pub async fn all_channels(&self) -> Result<Vec<ListedChannel>, Unknown> {
        let Rows { rows, clock } = named::list(&self.bucket, CHANNELS.name).await?;
        rows.iter().map(|row| listed(clock, row)).collect()
    }

    /// Takes away the channels that have been closed for at least `closed_for` on the broker's clock, each at the revision
    /// that was listed; answers how many this call took. What a member that is behind says harms nobody: whatever was written
    /// under the same id since then has a later revision, and stays.
    ///
    /// # Errors
    /// As [`Channels::open_channels`], and nothing was taken away then. Unknown too when the fate of one is, after all the
    /// others were taken away; asked again, it does the rest.
    pub async fn purge(&self, closed_for: Duration) -> Result<u64, Unknown> {
        let Rows { rows, clock } = named::list(&self.bucket, CHANNELS.name).await?;
        let old = SignedDuration::try_from(closed_for).unwrap_or(SignedDuration::MAX);
        let mut due = Vec::new();
        for row in rows {
            // A closed channel is never written again, so that its last write is its close, and a purge is enough.
            let is_open = listed(clock, &row)?.channel.record.is_open();
            if !is_open && row.age(clock) >= old {
                due.push((row.key, row.revision));
            }
        }
        let mut purges = stream::iter(due)
            .map(async |(key, revision): (Key, u64)| {
                let gone = take_away(&self.bucket, &key, revision).await;
                gone.map_err(|unknown| unknown.during("purge", key.as_str()))
            })
            .buffer_unordered(PURGES_AT_ONCE);
        let (mut removed, mut trouble) = (0, None);
        while let Some(gone) = purges.next().await {
            match gone {
                Ok(gone) => removed += u64::from(gone),
                Err(unknown) => trouble = trouble.or(Some(unknown)),
            }
        }
        trouble.map_or(Ok(removed), Err)
    }

    /// Writes what `next` makes of a channel in its place, and tells it; where it makes nothing of it, tells what stands. Where
    /// none stands, tells `absent`.
    async fn change<T: Clone>(
        &self,
        op: &'static str,
        id: &str,
        absent: T,
        next: impl Fn(&Channel) -> (Option<ChannelRecord>, fn(Channel) -> T),
    ) -> Result<T, Error> {
        let key = channel::key(id)?;
        modify(&self.bucket, &key, Begin::Reading, (op, id), |stands| {
            let Some(value) = stands else { return Ok(Step::Keep(absent.clone())) };
            let channel = decode(id, value)?;
            Ok(match next(&channel) {
                (Some(record), tell) => {
                    let value = record.encode();
                    Step::Put(Write::Value(value), tell(Channel { record, ..channel }))
                }
                (None, tell) => Step::Keep(tell(channel)),
            })
        })
        .await
    }
}

fn listed(clock: Timestamp, row: &Row) -> Result<ListedChannel, Unknown> {
    let channel = row.decoded(|value| decode(&row.name, value))?;
    Ok(ListedChannel { channel, unchanged_for: row.age(clock).unsigned_abs() })
}

fn decode(id: &str, value: &Bytes) -> Result<Channel, Cause> {
    Ok(Channel { id: id.to_owned(), record: ChannelRecord::decode(value)? })
}
