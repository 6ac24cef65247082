//! The instants that late work is done at.
//!
//! Work that began longer ago than the operation ledger remembers mints its writes at an instant of its own, and every later
//! attempt at it, on whichever node, has to mint at the same one or writes everything a second time. The bucket keeps an
//! instant for 30 days from its writing, which is as long as an attempt may inherit it; whether an attempt still may is
//! judged by that attempt, on its own clock.

use coordproto::answer::Error;
use coordproto::record::rebase::{RebaseRecord, key};
use coordproto::slot::REBASES;
use jiff::Timestamp;

use crate::slots::Settings;
use crate::slots::rows::{Change, Row, Rows};
use crate::store::{OpenError, Store};

/// The recorded instants of a fleet. Clones are handles to the same.
#[derive(Clone)]
pub struct Rebases<S: Store> {
    rows: Rows<S::Bucket, RebaseRecord>,
}

impl<S: Store> Rebases<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<Rebases<S>, OpenError> {
        Ok(Rebases { rows: Rows::new(settings.open(store, &REBASES).await?) })
    }

    /// The instant recorded for a unit of work, or none. Its revision is the version to replace it at.
    ///
    /// # Errors
    /// An empty seed or one too long, before anything is sent. Unknown, also for a record that cannot be read.
    pub async fn rebase(&self, seed: &str) -> Result<Option<Row<RebaseRecord>>, Error> {
        Ok(self.rows.get("rebase", &key(seed)?).await?)
    }

    /// Records an instant: at version 0 if none is recorded, else in place of the one of that version and of no other. Whoever
    /// loses is told the instant to inherit.
    ///
    /// # Errors
    /// An empty seed or one too long, before anything is sent. Unknown, which says whether the instant may still be recorded;
    /// also when what stands cannot be read.
    pub async fn record_rebase(&self, seed: &str, at: Timestamp, version: u64) -> Result<Change<RebaseRecord>, Error> {
        self.rows.record("record_rebase", &RebaseRecord { seed: seed.to_owned(), at }, version).await
    }
}
