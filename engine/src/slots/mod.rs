//! The records that are no leases: a file for each family, over [`store`](crate::store).

pub mod budgets;
pub mod channels;
pub mod claims;
pub mod config;
pub mod cooldowns;
pub mod custody;
pub mod fires;
pub mod follows;
pub mod integrations;
pub mod ledger;
pub mod mailboxes;
mod named;
pub mod objects;
pub mod pauses;
pub mod positions;
pub mod rate;
pub mod rebases;
pub mod rows;
pub mod sandbox_runs;
pub mod secrets;
pub mod status;

use coordproto::slot::{Retention, Slot};

use crate::store::{BucketSpec, OpenError, Store};

/// What a node's buckets are opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What every bucket's name begins with.
    pub prefix: String,
    /// The fewest copies a bucket may have.
    pub replicas: u8,
    /// What the ages of buckets that do not exist yet are sized from.
    pub retention: Retention,
}

impl Settings {
    /// The bucket of a slot, adopted as it is found or created.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open<S: Store>(&self, store: &S, slot: &Slot) -> Result<S::Bucket, OpenError> {
        store.open(&BucketSpec::of(slot, &self.prefix, self.retention, self.replicas)).await
    }
}
