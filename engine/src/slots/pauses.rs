//! Paused seats: which, by whom, why, and whether the running turn was stopped too.
//!
//! A pause is a record in the `positions` bucket, and the seat is paused while the record is there. Pausing is create-only,
//! so the second of two people learns of the first; resuming is bound to the revision that was seen, so nobody lifts a pause
//! that they have not read. The bucket has no age: a pause that expired would be a resume that nobody chose.
//!
//! Every node follows the pauses, see [`SeatPauses::follow`]. The safe direction of what is unknown is that of a paused seat:
//! until the first [`News::All`](crate::store::follow::News::All), and after a row that cannot be read, a node defers what it
//! is delivered. Whoever asks about one seat instead: [`Holds::holds`].
//!
//! **Why a resume leaves a marker.** Records leave a bucket without an age by a purge, which leaves nothing. But a purge is
//! told to nobody: the nodes that follow would hold the seat until their watch is opened again, which may be never. So a
//! resume writes a removal marker, at the revision that it resumes, and every watch delivers it. The marker reads as absent,
//! the next pause is written over it, and the sweep of markers erases it later: so much later that no watch still has to hear
//! of it. A watch that opens after that has no need of it, because its listing does not hold the pause.

use bytes::Bytes;
use coordproto::answer::{BadArgument, Cause, Error, Unknown};
use coordproto::key::Key;
use coordproto::listing::Version;
use coordproto::record::seat_pause::{self, SeatPauseRecord};
use coordproto::slot::POSITIONS;

use crate::slots::Settings;
use crate::store::create::{Created, create};
use crate::store::follow::Follow;
use crate::store::listing::LIST_WITHIN;
use crate::store::replace::{Replaced, replace};
use crate::store::{Bucket, Certified, OpenError, Store, Write};

/// The paused seats of a fleet. Clones are handles to the same.
pub struct SeatPauses<S: Store> {
    bucket: S::Bucket,
}

impl<S: Store> Clone for SeatPauses<S> {
    fn clone(&self) -> Self {
        SeatPauses { bucket: self.bucket.clone() }
    }
}

/// A seat that is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PausedSeat {
    /// The seat's handle.
    pub handle: String,
    /// By whom, why, when.
    pub record: SeatPauseRecord,
    /// The record's revision, which a resume is asked with.
    pub revision: u64,
}

/// The definite answer to a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the seat may have been paused by somebody else"]
pub enum Pause {
    /// Paused, at this revision.
    Paused(u64),
    /// It was paused already. Nothing was written.
    AlreadyPaused(PausedSeat),
}

/// The definite answer to a resume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the seat may be paused still"]
pub enum Resume {
    /// This call lifted the pause.
    Resumed,
    /// The seat is paused, but by another pause than the one that was asked to be lifted. Nothing was written.
    Changed(PausedSeat),
    /// The seat is not paused.
    NotPaused,
}

/// What a node does with what is delivered to a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a paused seat is handed nothing"]
pub enum Hand {
    /// It is handed over.
    Over,
    /// It waits.
    Defer,
}

/// The safe direction of a question without an answer.
pub trait Holds {
    /// Deferred where it is unknown, which the log says: a person who paused a seat relies on it, and what is deferred comes
    /// later.
    ///
    /// # Errors
    /// A bad argument stays one.
    fn holds(self) -> Result<Hand, BadArgument>;
}

impl Holds for Result<Option<PausedSeat>, Error> {
    fn holds(self) -> Result<Hand, BadArgument> {
        match self {
            Ok(None) => Ok(Hand::Over),
            Ok(Some(_)) => Ok(Hand::Defer),
            Err(Error::BadArgument(error)) => Err(error),
            Err(Error::Unknown(unknown)) => {
                tracing::warn!(%unknown, "seat_pause_unread");
                Ok(Hand::Defer)
            }
        }
    }
}

impl<S: Store> SeatPauses<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<SeatPauses<S>, OpenError> {
        Ok(SeatPauses { bucket: settings.open(store, &POSITIONS).await? })
    }

    /// Pauses a seat that is not paused.
    ///
    /// # Errors
    /// A handle that no seat can have or a record too large, before anything is sent. Unknown, which says whether the pause
    /// may still come; also for a pause that stands and cannot be read.
    pub async fn pause(&self, handle: &str, record: &SeatPauseRecord) -> Result<Pause, Error> {
        let key = seat_pause::key(handle)?;
        let created =
            create(&self.bucket, &key, record.encode()).await.map_err(|error| error.during("pause", handle))?;
        match created {
            Created::Stored(revision) => Ok(Pause::Paused(revision)),
            Created::Exists { revision, value } => {
                let paused = decode(&key, revision, &value);
                Ok(Pause::AlreadyPaused(paused.map_err(|cause| Unknown::settled("pause", handle, cause))?))
            }
        }
    }

    /// Lifts the pause of this revision, and no other; a revision of 0 lifts nothing.
    ///
    /// # Errors
    /// A handle that no seat can have, before anything is sent. Unknown, which says whether the seat may still be resumed;
    /// also for another pause that stands and cannot be read.
    pub async fn resume(&self, handle: &str, revision: u64) -> Result<Resume, Error> {
        let key = seat_pause::key(handle)?;
        let lifted = self.lift(&key, revision).await;
        lifted.map_err(|unknown| unknown.during("resume", handle).into())
    }

    /// The pause of a seat, or none.
    ///
    /// # Errors
    /// A handle that no seat can have, before anything is sent. Unknown, also for a pause that cannot be read.
    pub async fn get(&self, handle: &str) -> Result<Option<PausedSeat>, Error> {
        let key = seat_pause::key(handle)?;
        let found = self.found(&key).await;
        found.map_err(|unknown| unknown.during("get", handle).into())
    }

    /// Every paused seat, by key. One that was resumed while the listing ran may be in it, and from a member that is behind
    /// one that was resumed just before.
    ///
    /// # Errors
    /// Unknown, also for one row that cannot be read, which the error names; never a shorter list.
    pub async fn list(&self) -> Result<Vec<PausedSeat>, Unknown> {
        let (filter, by) = (seat_pause::class().filter(), self.bucket.env().now() + LIST_WITHIN);
        let listing = self.bucket.list(&filter, &Certified::Leader, by).await;
        let listing = listing.map_err(|unknown| unknown.during("list", seat_pause::CLASS))?;
        let mut paused = Vec::with_capacity(listing.entries.len());
        for (key, version) in listing.entries {
            paused.extend(read(&key, &version).map_err(|cause| Unknown::settled("list", key.as_str(), cause))?);
        }
        Ok(paused)
    }

    /// Follows the paused seats, from a certified listing on. A row that cannot be read ends it, visibly, until it is
    /// corrected or removed.
    pub fn follow(&self) -> Follow<S::Bucket, PausedSeat> {
        Follow::new(self.bucket.clone(), seat_pause::class().filter(), decode)
    }

    async fn found(&self, key: &Key) -> Result<Option<PausedSeat>, Unknown> {
        let Some(version) = self.bucket.get(key).await? else { return Ok(None) };
        read(key, &version).map_err(|cause| Unknown::settled("get", key.as_str(), cause))
    }

    async fn lift(&self, key: &Key, revision: u64) -> Result<Resume, Unknown> {
        match replace(&self.bucket, key, Write::Removal, revision).await {
            Ok(Replaced::Stored(_)) => Ok(Resume::Resumed),
            Ok(Replaced::Gone) => Ok(Resume::NotPaused),
            Ok(Replaced::Changed(version)) => {
                let other = read(key, &version).map_err(|cause| Unknown::settled("resume", key.as_str(), cause))?;
                Ok(other.map_or(Resume::NotPaused, Resume::Changed))
            }
            Err(Error::Unknown(unknown)) => Err(unknown),
            // A broker that takes so little takes no marker either.
            Err(Error::BadArgument(error)) => {
                Err(Unknown::settled("resume", key.as_str(), Cause::TooLarge(error.to_string().into())))
            }
        }
    }
}

/// Reads a version of a pause; a marker is none.
fn read(key: &Key, version: &Version) -> Result<Option<PausedSeat>, Cause> {
    version.value.as_ref().map(|value| decode(key, version.revision, value)).transpose()
}

fn decode(key: &Key, revision: u64, value: &Bytes) -> Result<PausedSeat, Cause> {
    let (handle, record) = (seat_pause::handle(key)?, SeatPauseRecord::decode(value)?);
    Ok(PausedSeat { handle, record, revision })
}
