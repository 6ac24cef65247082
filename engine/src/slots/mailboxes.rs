//! Mailboxes: which may exist, and since when a seat has been missing from the active revision.
//!
//! Every node records a handle here before it creates that seat's durable subscription, because a seat that was removed is in no
//! list of seats any more: its record is what its mailbox is found by again. A duty stamps since when a recorded seat is absent,
//! marks the mailbox as being retired, and deletes the record when the mailbox is gone. The bucket has no age, since an age
//! cannot tell a seat that left from one that is still there.
//!
//! A returning seat and that duty write the same record, and what the one does undoes the other. So every change and every
//! removal names the revision that it was decided on, and of those that name one revision exactly one happens. Whoever loses is
//! told what stands instead, and decides anew.
//!
//! A record that does not decode makes every answer that it is part of unknown: nobody may create that mailbox or retire it on
//! the strength of a record that cannot be read.

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::record::mailbox::{self, MailboxRecord};
use coordproto::slot::MAILBOXES;

use super::named;
use crate::slots::Settings;
use crate::store::create::{Created, create};
use crate::store::remove::{Removed, remove};
use crate::store::replace::{Replaced, live, replace};
use crate::store::{Bucket, OpenError, Store, Write};

/// The mailboxes of a fleet. Clones are handles to the same.
pub struct Mailboxes<S: Store> {
    bucket: S::Bucket,
}

impl<S: Store> Clone for Mailboxes<S> {
    fn clone(&self) -> Self {
        Mailboxes { bucket: self.bucket.clone() }
    }
}

/// A mailbox that may exist.
#[derive(Clone, Debug, PartialEq)]
pub struct Mailbox {
    /// The seat's handle.
    pub handle: String,
    /// Whether its seat is missing, and whether it is being retired.
    pub record: MailboxRecord,
    /// The record's revision, which a change is asked with.
    pub revision: u64,
}

/// The definite answer to a create.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "it may be there already, and being retired"]
pub enum Create {
    /// Recorded, at this revision.
    Created(u64),
    /// It was recorded before; it may be on its way out. Nothing was written.
    Exists(Mailbox),
}

/// The definite answer to an update.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "another may have been faster"]
pub enum Update {
    /// Updated, to this revision.
    Updated(u64),
    /// Another was faster, and this is what it made of it. Nothing was written.
    Changed(Mailbox),
    /// There is no record of it.
    Gone,
}

/// The definite answer to a delete.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "another may have been faster"]
pub enum Delete {
    /// This call deleted the record.
    Deleted,
    /// Another was faster, and this is what it made of it. Nothing was deleted.
    Changed(Mailbox),
    /// There is no record of it.
    Gone,
}

impl<S: Store> Mailboxes<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<Mailboxes<S>, OpenError> {
        Ok(Mailboxes { bucket: settings.open(store, &MAILBOXES).await? })
    }

    /// The record of a seat's mailbox, or none.
    ///
    /// # Errors
    /// A handle that no seat can have, before anything is sent. Unknown, also for a record that cannot be read.
    pub async fn get(&self, handle: &str) -> Result<Option<Mailbox>, Error> {
        let key = mailbox::key(handle)?;
        let found = self.bucket.get(&key).await.map_err(|unknown| unknown.during("get", handle))?;
        let found = live(found).map(|(revision, value)| read("get", handle, revision, &value)).transpose();
        Ok(found?)
    }

    /// Every recorded mailbox, by handle. One that was deleted while the listing ran may be in it, and from a member that is
    /// behind one as it was before its last change; a change that names that revision is told so.
    ///
    /// # Errors
    /// Unknown, also for one row that cannot be read, which the error names; never a shorter list.
    pub async fn list(&self) -> Result<Vec<Mailbox>, Unknown> {
        let listed = named::list(&self.bucket, MAILBOXES.name).await?;
        let listed = listed.rows.into_iter().map(|row| {
            let record = row.decoded(|value| MailboxRecord::decode(value))?;
            Ok(Mailbox { handle: row.name, record, revision: row.revision })
        });
        listed.collect()
    }

    /// Records a mailbox that is not recorded.
    ///
    /// # Errors
    /// A handle that no seat can have or a record too large, before anything is sent. Unknown, which says whether it may still
    /// be recorded; also for a record that stands and cannot be read.
    pub async fn create(&self, handle: &str, record: &MailboxRecord) -> Result<Create, Error> {
        let created = create(&self.bucket, &mailbox::key(handle)?, record.encode()).await;
        Ok(match created.map_err(|error| error.during("create", handle))? {
            Created::Stored(revision) => Create::Created(revision),
            Created::Exists { revision, value } => Create::Exists(read("create", handle, revision, &value)?),
        })
    }

    /// Puts another record in place of the one of this revision, and of no other; a revision of 0 is nobody's.
    ///
    /// # Errors
    /// As [`Mailboxes::create`].
    pub async fn update(&self, handle: &str, record: &MailboxRecord, revision: u64) -> Result<Update, Error> {
        let updated = replace(&self.bucket, &mailbox::key(handle)?, Write::Value(record.encode()), revision).await;
        Ok(match updated.map_err(|error| error.during("update", handle))? {
            Replaced::Stored(revision) => Update::Updated(revision),
            Replaced::Gone => Update::Gone,
            Replaced::Changed(stands) => match live(Some(stands)) {
                Some((revision, value)) => Update::Changed(read("update", handle, revision, &value)?),
                None => Update::Gone,
            },
        })
    }

    /// Deletes the record of this revision, and no other; a revision of 0 is nobody's.
    ///
    /// # Errors
    /// A handle that no seat can have, before anything is sent. Unknown, which says whether it may still be deleted; also for
    /// another record that stands and cannot be read.
    pub async fn delete(&self, handle: &str, revision: u64) -> Result<Delete, Error> {
        let removed = remove(&self.bucket, &mailbox::key(handle)?, revision).await;
        Ok(match removed.map_err(|unknown| unknown.during("delete", handle))? {
            Removed::Removed => Delete::Deleted,
            Removed::Changed(revision, value) => Delete::Changed(read("delete", handle, revision, &value)?),
            Removed::Gone => Delete::Gone,
        })
    }
}

fn read(op: &'static str, handle: &str, revision: u64, value: &Bytes) -> Result<Mailbox, Unknown> {
    let record = MailboxRecord::decode(value).map_err(|cause: Cause| Unknown::settled(op, handle, cause))?;
    Ok(Mailbox { handle: handle.to_owned(), record, revision })
}
