//! Rows: the records of one kind that carry their own names, and what is asked of them.
//!
//! Every change is conditional, so of those that race exactly one is told that it was stored. A row that cannot be read is
//! unknown, by name, in whatever answer it is part of.

use std::marker::PhantomData;

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::record::keyed::Keyed;

use crate::store::create::{Created, create};
use crate::store::listing::LIST_WITHIN;
use crate::store::remove::{Removed, remove};
use crate::store::replace::{Replaced, live, replace};
use crate::store::{Bucket, Certified, Write};

/// A record that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<R> {
    /// What it says.
    pub record: R,
    /// Its revision, which a change is asked with.
    pub revision: u64,
}

/// The definite answer to a create.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "another may stand there"]
pub enum Create<R> {
    /// Stored, at this revision.
    Created(u64),
    /// This one stands there already. Nothing was written.
    Exists(Row<R>),
}

/// The definite answer to a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "another may have been faster"]
pub enum Change<R> {
    /// Stored, at this revision.
    Stored(u64),
    /// Another than the one that was to be changed stands there. Nothing was written.
    Changed(Row<R>),
    /// Nothing stands there. Nothing was written.
    Gone,
}

/// The definite answer to a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it may stand there still"]
pub enum Remove<R> {
    /// This call removed it.
    Removed,
    /// Another than the one that was to be removed stands there. Nothing was removed.
    Changed(Row<R>),
    /// Nothing stands there.
    Gone,
}

/// The rows of one kind in a bucket.
pub(crate) struct Rows<B, R> {
    bucket: B,
    kind: PhantomData<fn() -> R>,
}

impl<B: Clone, R> Clone for Rows<B, R> {
    fn clone(&self) -> Self {
        Rows::new(self.bucket.clone())
    }
}

impl<B, R> Rows<B, R> {
    pub(crate) fn new(bucket: B) -> Rows<B, R> {
        Rows { bucket, kind: PhantomData }
    }

    pub(crate) fn bucket(&self) -> &B {
        &self.bucket
    }
}

impl<B: Bucket, R: Keyed> Rows<B, R> {
    /// The row at `key`, or none.
    pub(crate) async fn get(&self, op: &'static str, key: &Key) -> Result<Option<Row<R>>, Unknown> {
        let version = self.bucket.get(key).await.map_err(|unknown| unknown.during(op, key.as_str()))?;
        live(version).map(|(revision, value)| read(op, key, revision, &value)).transpose()
    }

    /// Stores a record where none stands.
    pub(crate) async fn create(&self, op: &'static str, record: &R) -> Result<Create<R>, Error> {
        let key = good(record)?;
        match create(&self.bucket, &key, record.encode()).await.map_err(|error| error.during(op, key.as_str()))? {
            Created::Stored(revision) => Ok(Create::Created(revision)),
            Created::Exists { revision, value } => Ok(Create::Exists(read(op, &key, revision, &value)?)),
        }
    }

    /// Stores a record in place of the revision that was read; a revision of 0 is where none stands.
    pub(crate) async fn record(&self, op: &'static str, record: &R, revision: u64) -> Result<Change<R>, Error> {
        if revision != 0 {
            return self.change(op, record, revision).await;
        }
        Ok(match self.create(op, record).await? {
            Create::Created(revision) => Change::Stored(revision),
            Create::Exists(row) => Change::Changed(row),
        })
    }

    /// Stores a record in place of the revision that was read; one of 0 was never read, and changes nothing.
    pub(crate) async fn change(&self, op: &'static str, record: &R, revision: u64) -> Result<Change<R>, Error> {
        let key = good(record)?;
        let write = Write::Value(record.encode());
        match replace(&self.bucket, &key, write, revision).await.map_err(|error| error.during(op, key.as_str()))? {
            Replaced::Stored(revision) => Ok(Change::Stored(revision)),
            Replaced::Gone => Ok(Change::Gone),
            Replaced::Changed(version) => Ok(match live(Some(version)) {
                Some((revision, value)) => Change::Changed(read(op, &key, revision, &value)?),
                None => Change::Gone,
            }),
        }
    }

    /// Removes the row of this revision, and no other.
    pub(crate) async fn remove(&self, op: &'static str, key: &Key, revision: u64) -> Result<Remove<R>, Unknown> {
        let told = remove(&self.bucket, key, revision).await.map_err(|unknown| unknown.during(op, key.as_str()))?;
        Ok(match told {
            Removed::Removed => Remove::Removed,
            Removed::Changed(revision, value) => Remove::Changed(read(op, key, revision, &value)?),
            Removed::Gone => Remove::Gone,
        })
    }

    /// Every row of a filter, by key. One that was removed while the listing ran may be in it, and from a member that is
    /// behind an earlier one.
    pub(crate) async fn list(&self, op: &'static str, filter: &Filter) -> Result<Vec<Row<R>>, Unknown> {
        let by = self.bucket.env().now() + LIST_WITHIN;
        let listing = self.bucket.list(filter, &Certified::Leader, by).await;
        let listing = listing.map_err(|unknown| unknown.during(op, filter.as_str()))?;
        let mut rows = Vec::with_capacity(listing.entries.len());
        for (key, version) in listing.entries {
            if let Some((revision, value)) = live(Some(version)) {
                rows.push(read(op, &key, revision, &value)?);
            }
        }
        Ok(rows)
    }
}

/// The key of a record that keeps its own rules.
pub(crate) fn good<R: Keyed>(record: &R) -> Result<Key, Error> {
    record.check()?;
    Ok(record.key()?)
}

fn read<R: Keyed>(op: &'static str, key: &Key, revision: u64, value: &Bytes) -> Result<Row<R>, Unknown> {
    let record = R::decode(key, value).map_err(|cause: Cause| Unknown::settled(op, key.as_str(), cause))?;
    Ok(Row { record, revision })
}
