//! Which store the company's files are in, and what the collector found last.
//!
//! The store is recorded by the first node that boots, create-only, and every node compares what is recorded with what it is
//! configured for: one that differs has to refuse to boot, or the files end up in two places with nothing failing. The bucket
//! has no age, since a record that expired would let the next node record another store. Only an operator who moves the
//! company's files removes it, with any NATS client and no node running. See [`FailsClosed::fails_closed`].

use coordproto::answer::{BadArgument, Error, Unknown};
use coordproto::record::keyed::Keyed;
use coordproto::record::objects::{BackendRecord, CollectionRecord, collection};
use coordproto::slot::OBJECTS;

use crate::slots::Settings;
use crate::slots::rows::{Create, Rows, good};
use crate::store::remove::overwrite;
use crate::store::{OpenError, Store};

/// The records about a company's files. Clones are handles to the same.
#[derive(Clone)]
pub struct Objects<S: Store> {
    backends: Rows<S::Bucket, BackendRecord>,
    collections: Rows<S::Bucket, CollectionRecord>,
}

/// Why a node must not boot. The company's files could end up in two stores.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MustNotBoot {
    /// The files are in another store than this node is configured for.
    #[error("the company's files are in {recorded:?} and this node is configured for {own:?}")]
    Differs {
        /// What is recorded.
        recorded: String,
        /// What this node is configured for.
        own: String,
    },
    /// Nobody can tell where they are.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// What this node is configured for is no store.
    #[error(transparent)]
    BadArgument(#[from] BadArgument),
}

/// The safe direction of an agreement.
pub trait FailsClosed {
    /// Only a node that is told its `own` store boots: not one that is told another, and not one without an answer.
    ///
    /// # Errors
    /// Why it must not.
    fn fails_closed(self, own: &str) -> Result<(), MustNotBoot>;
}

impl FailsClosed for Result<String, Error> {
    fn fails_closed(self, own: &str) -> Result<(), MustNotBoot> {
        match self {
            Ok(recorded) if recorded == own => Ok(()),
            Ok(recorded) => Err(MustNotBoot::Differs { recorded, own: own.to_owned() }),
            Err(Error::Unknown(unknown)) => Err(unknown.into()),
            Err(Error::BadArgument(error)) => Err(error.into()),
        }
    }
}

impl<S: Store> Objects<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<Objects<S>, OpenError> {
        let bucket = settings.open(store, &OBJECTS).await?;
        Ok(Objects { backends: Rows::new(bucket.clone()), collections: Rows::new(bucket) })
    }

    /// Records which store the files are in, unless one is recorded; answers the one that is. A node that is answered another
    /// than its own must not boot, and neither must one without an answer.
    ///
    /// # Errors
    /// An empty name, before anything is sent. Unknown, which says whether the store may still be recorded; also for a
    /// record that cannot be read.
    pub async fn agree_backend(&self, backend: &str) -> Result<String, Error> {
        let own = BackendRecord { backend: backend.to_owned() };
        Ok(match self.backends.create("agree_backend", &own).await? {
            Create::Created(_) => own.backend,
            Create::Exists(recorded) => recorded.record.backend,
        })
    }

    /// Records what a pass of the collector found, in place of what is recorded: the last write wins.
    ///
    /// # Errors
    /// An empty node or a report too large, before anything is sent. Unknown, which says whether the report may still land.
    pub async fn record_collection(&self, pass: &CollectionRecord) -> Result<(), Error> {
        let key = good(pass)?;
        let written = overwrite(self.collections.bucket(), &key, pass.encode()).await;
        written.map(drop).map_err(|error| error.during("record_collection", key.as_str()))
    }

    /// What the newest pass found, whichever node ran it; none before the first.
    ///
    /// # Errors
    /// Unknown, also for a record that cannot be read.
    pub async fn collection(&self) -> Result<Option<CollectionRecord>, Unknown> {
        Ok(self.collections.get("collection", &collection()).await?.map(|row| row.record))
    }
}
