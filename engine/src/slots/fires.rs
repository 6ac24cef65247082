//! Claimed dispatches: of all who would fire a scheduled dispatch, one does.
//!
//! The scheduler is a duty that moves, and a successor that looked into its own database would fire again what was fired. So
//! a dispatch is claimed here before it is fired, create-only. The bucket keeps a claim for seven days, which outlasts the
//! scheduler's catching up.
//!
//! A claim is at most once: one whose answer was lost may have landed, and asked again it is told that the dispatch is taken.
//! Nobody fires it then.

use coordproto::answer::Error;
use coordproto::record::fire::{FireRecord, key};
use coordproto::slot::FIRES;
use jiff::Timestamp;

use crate::slots::Settings;
use crate::store::create::{Created, create};
use crate::store::{OpenError, Store};

/// The claimed dispatches of a fleet. Clones are handles to the same.
#[derive(Clone)]
pub struct Fires<S: Store> {
    bucket: S::Bucket,
}

/// The definite answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "only whoever claimed a dispatch may fire it"]
pub enum Fire {
    /// This call claimed it.
    Claimed,
    /// It was claimed before.
    Taken,
}

/// The safe direction of a claim.
pub trait FailsClosed {
    /// Whether to fire. What could not be claimed is not fired, whatever the reason: a dispatch that is missed is one that
    /// is missing, one that is fired twice is work done twice and told twice.
    fn fails_closed(self) -> bool;
}

impl FailsClosed for Result<Fire, Error> {
    fn fails_closed(self) -> bool {
        match self {
            Ok(fire) => fire == Fire::Claimed,
            Err(error) => {
                tracing::warn!(%error, "scheduled_fire_withheld");
                false
            }
        }
    }
}

impl<S: Store> Fires<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<Fires<S>, OpenError> {
        Ok(Fires { bucket: settings.open(store, &FIRES).await? })
    }

    /// Claims a dispatch, by the name that every scheduler gives it. Of all who do, one is told that it did. `at` is told to
    /// people and decides nothing.
    ///
    /// # Errors
    /// An empty name or one too long, before anything is sent. Unknown, which says whether the claim may still land. Either
    /// way: [`FailsClosed`].
    pub async fn claim_fire(&self, fire: &str, at: Timestamp) -> Result<Fire, Error> {
        let key = key(fire)?;
        let created = create(&self.bucket, &key, FireRecord { at }.encode()).await;
        match created.map_err(|error| error.during("claim_fire", key.as_str()))? {
            Created::Stored(_) => Ok(Fire::Claimed),
            Created::Exists { .. } => Ok(Fire::Taken),
        }
    }
}
