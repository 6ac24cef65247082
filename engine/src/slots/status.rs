//! What each node managed to apply, and when it last said so.
//!
//! One record for each node, and the last write wins: every node writes its own, again and again, and nobody else's. The age
//! of the bucket is what makes a node vanish that stops, so a row says "alive, at this epoch" rather than "was alive, once".
//!
//! A row that cannot be read is no report, so it is left out; but not on the word of a member that is behind.

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::Filter;
use coordproto::listing::Version;
use coordproto::record::status::{self, StatusRecord};
use coordproto::slot::STATUS;
use jiff::Timestamp;

use crate::slots::Settings;
use crate::store::listing::LIST_WITHIN;
use crate::store::remove::overwrite;
use crate::store::{Bucket, Certified, OpenError, Store};

/// What the nodes of a fleet say that they applied. Clones are handles to the same.
pub struct Statuses<S: Store> {
    bucket: S::Bucket,
}

impl<S: Store> Clone for Statuses<S> {
    fn clone(&self) -> Self {
        Statuses { bucket: self.bucket.clone() }
    }
}

/// A node's last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// The node's id.
    pub node: String,
    /// What it reported.
    pub report: StatusRecord,
    /// When the broker stored it, on the broker's clock.
    pub reported_at: Timestamp,
}

/// The reports of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// The freshest first; of one instant, by the node's id.
    pub nodes: Vec<NodeStatus>,
    /// The broker's clock at an instant inside the listing, which a report's age is judged by.
    pub clock: Timestamp,
}

impl<S: Store> Statuses<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<Statuses<S>, OpenError> {
        Ok(Statuses { bucket: settings.open(store, &STATUS).await? })
    }

    /// Writes a node's report over its last one. An error longer than [`status::ERROR_BYTES_MAX`] is cut, and says so.
    ///
    /// # Errors
    /// A node's id that is empty or too long, or a record larger than a value can be, before anything is sent. Unknown, which
    /// says whether the report may still land.
    pub async fn record_apply(&self, node: &str, report: &StatusRecord) -> Result<(), Error> {
        let written = overwrite(&self.bucket, &status::key(node)?, report.encode()).await;
        written.map(drop).map_err(|error| error.during("record_apply", node))
    }

    /// The last report of every node that reported within the bucket's age. From a member that is behind, a report may be the
    /// node's one before; it is then as old as it says.
    ///
    /// # Errors
    /// Unknown; never a shorter list.
    pub async fn fleet(&self) -> Result<Fleet, Unknown> {
        self.read().await.map_err(|unknown| unknown.during("fleet", STATUS.name))
    }

    async fn read(&self) -> Result<Fleet, Unknown> {
        let by = self.bucket.env().now() + LIST_WITHIN;
        let listing = self.bucket.list(&Filter::every(), &Certified::Leader, by).await?;
        let mut nodes = Vec::with_capacity(listing.entries.len());
        for (key, version) in listing.entries {
            // A key that names no node was written by nobody that speaks of statuses.
            let Some(node) = status::node(&key) else { continue };
            let row = match decode(&version) {
                Some(Err(_)) => match self.bucket.read(&key, by).await? {
                    Some(version) => decode(&version),
                    None => None,
                },
                row => row,
            };
            match row {
                Some(Ok((report, reported_at))) => nodes.push(NodeStatus { node, report, reported_at }),
                Some(Err(cause)) => {
                    tracing::debug!(bucket = self.bucket.name(), node, %cause, "status_row_left_out");
                }
                None => {}
            }
        }
        nodes.sort_by(|a, b| b.reported_at.cmp(&a.reported_at).then_with(|| a.node.cmp(&b.node)));
        Ok(Fleet { nodes, clock: listing.clock })
    }
}

/// Reads a version of a report; a marker is none.
fn decode(version: &Version) -> Option<Result<(StatusRecord, Timestamp), Cause>> {
    let value: &Bytes = version.value.as_ref()?;
    Some(StatusRecord::decode(value).map(|report| (report, version.written)))
}
