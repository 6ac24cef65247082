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
pub mod shared;
pub mod status;

use coordproto::answer::BadArgument;
use coordproto::slot::{Retention, SLOTS, Slot};

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
    /// The bucket of a slot as this node would have it.
    pub fn spec(&self, slot: &Slot) -> BucketSpec {
        BucketSpec::of(slot, &self.prefix, self.retention, self.replicas)
    }

    /// Checks every bucket of the table for what no broker can keep. It asks nobody, so a node does it before it connects.
    ///
    /// # Errors
    /// The prefix, a retention or the replicas. A retention names the slot, the value, where it comes from and the rule.
    pub fn check(&self) -> Result<(), BadArgument> {
        for slot in SLOTS {
            slot.asks_for(&self.retention)?;
            self.spec(slot).check()?;
        }
        Ok(())
    }

    /// The bucket of a slot, adopted as it is found or created; the log says where what is in force differs.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, a bucket whose records would never end, or unknown.
    pub async fn open<S: Store>(&self, store: &S, slot: &Slot) -> Result<S::Bucket, OpenError> {
        store.adopt(slot, &self.spec(slot)).await
    }
}
