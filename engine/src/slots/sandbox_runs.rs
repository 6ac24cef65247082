//! Detached coding runs: one record for each, opaque to the coordination layer, by the id of the turn that launched it.
//!
//! A run outlives its turn, its process and sometimes its node, and whichever node owns the seat next recovers it. Its record is
//! all that knows of a box that is paid for, so nothing ages away here, and every change is conditional: it names the version
//! that it was made from, and of several changes of one version exactly one happens. The record is deleted when the run
//! settles, by the one that saw its last version.
//!
//! A record is bytes and a version. What the bytes say, and whether they can be read, is for the owner of the run to judge, so
//! no record here is undecodable.

use bytes::Bytes;
use coordproto::answer::{BadArgument, Error, Unknown};
use coordproto::key::Key;
use coordproto::record::named as record;
use coordproto::slot::SANDBOX_RUNS;

use super::named;
use crate::slots::Settings;
use crate::store::create::{Created, create};
use crate::store::remove::{Removed, remove};
use crate::store::replace::{Replaced, live, replace};
use crate::store::{Bucket, OpenError, Store, Write};

/// The detached coding runs of a fleet. Clones are handles to the same.
pub struct SandboxRuns<S: Store> {
    bucket: S::Bucket,
}

impl<S: Store> Clone for SandboxRuns<S> {
    fn clone(&self) -> Self {
        SandboxRuns { bucket: self.bucket.clone() }
    }
}

/// A run as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxRun {
    /// The id of the turn that launched it.
    pub turn: String,
    /// What its owner keeps of it; opaque here.
    pub record: Bytes,
    /// The version that a change of it has to name.
    pub version: u64,
}

/// The definite answer to a create.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "another record may stand there"]
pub enum Create {
    /// Created, at this version.
    Created(u64),
    /// The turn has a run already. Nothing was written.
    Exists(SandboxRun),
}

/// The definite answer to an update.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "another may have been faster"]
pub enum Update {
    /// Updated, to this version.
    Updated(u64),
    /// The run stands at another version than the one named. Nothing was written.
    Changed(SandboxRun),
    /// The turn has no run.
    Gone,
}

/// The definite answer to a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "another may have been faster"]
pub enum Delete {
    /// This call deleted it.
    Deleted,
    /// The run stands at another version than the one named. Nothing was deleted.
    Changed(SandboxRun),
    /// The turn has no run.
    Gone,
}

impl<S: Store> SandboxRuns<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<SandboxRuns<S>, OpenError> {
        Ok(SandboxRuns { bucket: settings.open(store, &SANDBOX_RUNS).await? })
    }

    /// The run of a turn, or none.
    ///
    /// # Errors
    /// A turn id that is empty or too long, before anything is sent; or unknown.
    pub async fn get(&self, turn: &str) -> Result<Option<SandboxRun>, Error> {
        let key = key(turn)?;
        let found = self.bucket.get(&key).await.map_err(|unknown| unknown.during("get", turn))?;
        Ok(live(found).map(|(version, record)| run(turn, version, record)))
    }

    /// Every run, by turn id. One that was deleted while the listing ran may be in it, and from a member that is behind an
    /// earlier version of one; a change that names that version is told so.
    ///
    /// # Errors
    /// Unknown; never a shorter list.
    pub async fn list(&self) -> Result<Vec<SandboxRun>, Unknown> {
        let listed = named::list(&self.bucket, SANDBOX_RUNS.name).await?;
        Ok(listed.rows.into_iter().map(|row| run(&row.name, row.revision, row.value)).collect())
    }

    /// Records the run of a turn that has none.
    ///
    /// # Errors
    /// A turn id that is empty or too long or a record too large, before anything is sent. Unknown, which says whether it may
    /// still be recorded.
    pub async fn create(&self, turn: &str, record: Bytes) -> Result<Create, Error> {
        let created = create(&self.bucket, &key(turn)?, record).await.map_err(|error| error.during("create", turn))?;
        Ok(match created {
            Created::Stored(version) => Create::Created(version),
            Created::Exists { revision, value } => Create::Exists(run(turn, revision, value)),
        })
    }

    /// Puts another record in place of this version, and of no other; a version of 0 is nobody's.
    ///
    /// # Errors
    /// As [`SandboxRuns::create`].
    pub async fn update(&self, turn: &str, record: Bytes, version: u64) -> Result<Update, Error> {
        let updated = replace(&self.bucket, &key(turn)?, Write::Value(record), version).await;
        Ok(match updated.map_err(|error| error.during("update", turn))? {
            Replaced::Stored(version) => Update::Updated(version),
            Replaced::Gone => Update::Gone,
            Replaced::Changed(stands) => match live(Some(stands)) {
                Some((version, record)) => Update::Changed(run(turn, version, record)),
                None => Update::Gone,
            },
        })
    }

    /// Deletes this version of a run, and no other; a version of 0 is nobody's.
    ///
    /// # Errors
    /// A turn id that is empty or too long, before anything is sent. Unknown, which says whether it may still be deleted.
    pub async fn delete(&self, turn: &str, version: u64) -> Result<Delete, Error> {
        let removed = remove(&self.bucket, &key(turn)?, version).await;
        Ok(match removed.map_err(|unknown| unknown.during("delete", turn))? {
            Removed::Removed => Delete::Deleted,
            Removed::Changed(version, record) => Delete::Changed(run(turn, version, record)),
            Removed::Gone => Delete::Gone,
        })
    }
}

fn key(turn: &str) -> Result<Key, BadArgument> {
    record::key("turn", turn)
}

fn run(turn: &str, version: u64, record: Bytes) -> SandboxRun {
    SandboxRun { turn: turn.to_owned(), record, version }
}
