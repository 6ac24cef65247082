//! What the families have in common whose bucket is of one kind of record, each under its own name.

use bytes::Bytes;
use coordproto::answer::{Cause, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::record::named;
use jiff::{SignedDuration, Timestamp};

use crate::store::listing::LIST_WITHIN;
use crate::store::{Bucket, Certified};

/// Every live record of such a bucket.
pub(super) struct Rows {
    /// In the order of their names.
    pub(super) rows: Vec<Row>,
    /// The broker's clock at an instant inside the listing.
    pub(super) clock: Timestamp,
}

/// A record as a listing tells it. Its value may be an older one, from a member that is behind.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) key: Key,
    pub(super) revision: u64,
    pub(super) written: Timestamp,
    pub(super) value: Bytes,
}

impl Row {
    /// How long ago it was written, on the broker's clock.
    pub(super) fn age(&self, clock: Timestamp) -> SignedDuration {
        self.written.duration_until(clock).max(SignedDuration::ZERO)
    }

    /// The record read by `decode`, or unknown by the row's own key: that is what an operator has to look at.
    pub(super) fn decoded<T>(&self, decode: impl FnOnce(&Bytes) -> Result<T, Cause>) -> Result<T, Unknown> {
        decode(&self.value).map_err(|cause| Unknown::settled("list", self.key.as_str(), cause))
    }
}

/// Lists a bucket, certified by the leader. A key that no name produces is nobody's, and is left out.
///
/// # Errors
/// Unknown, which names the `family`; never a shorter list.
pub(super) async fn list<B: Bucket>(bucket: &B, family: &'static str) -> Result<Rows, Unknown> {
    let by = bucket.env().now() + LIST_WITHIN;
    let listing = bucket.list(&Filter::every(), &Certified::Leader, by).await;
    let listing = listing.map_err(|unknown| unknown.during("list", family))?;
    let rows = listing.entries.into_iter().filter_map(|(key, version)| {
        let (name, value) = (named::name(&key)?, version.value?);
        Some(Row { name, key, revision: version.revision, written: version.written, value })
    });
    let mut rows: Vec<Row> = rows.collect();
    // Keys are in the order of their escapes, which is not that of what they stand for.
    rows.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(Rows { rows, clock: listing.clock })
}
