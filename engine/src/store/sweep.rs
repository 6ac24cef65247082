//! The sweep: removal markers that are old enough are erased, so that a bucket without an age does not keep one for every
//! record it ever lost, and no listing goes on asking the leader about each.
//!
//! It removes only what it saw: every key is purged through its marker's own revision, a bound that the broker applies, so a
//! record created again meanwhile has a later one and stays. It changes no answer: a marker and nothing at all both read as
//! absent. And it owes nobody a complete one: nothing certifies its pass, what it does not reach the next tick does, and what
//! went wrong stops nothing that can still be done.
//!
//! It is meant to be called every quarter of an hour, by one node for the whole fleet.

use std::time::Duration;

use coordproto::answer::{Cause, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::slot::{DUTY_TTL_MAX, Slot};
use futures_util::stream::{self, StreamExt};
use jiff::{SignedDuration, Timestamp};

use super::listing::{QUIET, end};
use super::{Bucket, Pass, Values};
use crate::env::Mono;

/// How old a marker has to be. It is the longest that anything can be held on the strength of a record, so that nobody who
/// read one before it was removed is still acting on that when its marker goes. No answer rests on it.
pub const MARKER_RETENTION: Duration = DUTY_TTL_MAX;

/// How long the sweep of one bucket may take. One that hangs takes nobody else's time.
const SWEEP_WITHIN: Duration = Duration::from_secs(60);

/// Purges of one sweep under way at once. Each is a quorum's decision, and nobody waits for them.
const PURGES_AT_ONCE: usize = 16;

/// What the sweep of a bucket came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Markers that were old enough, of those that the pass delivered.
    pub found: u64,
    /// Markers that went, by the broker's own count. One that was gone already, or written over, is none.
    pub removed: u64,
    /// Markers whose purge was not answered, or not sent for want of time. It may still land, and does no harm when it does.
    pub failed: u64,
    /// The first thing that went wrong: in the pass, of which what it had delivered was swept, or with a purge.
    pub trouble: Option<Unknown>,
}

/// Sweeps every bucket of a slot whose markers have to be swept, one after the other, of the markers older than
/// `older_than`, [`MARKER_RETENTION`] but for tests. Each is told by an event, and in the answer by the bucket's name; one that
/// fails stops none.
pub async fn coordination_markers<B: Bucket>(
    opened: &[(&Slot, B)],
    older_than: Duration,
) -> Vec<(String, Result<Swept, Unknown>)> {
    let mut told = Vec::new();
    for (_, bucket) in opened.iter().filter(|(slot, _)| slot.is_swept()) {
        let swept = sweep(bucket, older_than, bucket.env().now() + SWEEP_WITHIN).await;
        let name = bucket.name();
        match &swept {
            Ok(Swept { found, removed, failed, trouble: Some(unknown) }) => {
                tracing::warn!(bucket = name, found, removed, failed, %unknown, "coordination_markers_unswept");
            }
            Ok(Swept { found, removed, .. }) => {
                tracing::info!(bucket = name, found, removed, "coordination_markers_swept");
            }
            Err(unknown) => tracing::warn!(bucket = name, %unknown, "coordination_markers_unswept"),
        }
        told.push((name.to_owned(), swept));
    }
    told
}

/// Erases the markers of `bucket` that are at least `older_than` old, on the broker's clock; all of it ends at `by`.
///
/// # Errors
/// Unknown when there is no clock to judge by or no pass to be had; nothing was removed.
pub async fn sweep<B: Bucket>(bucket: &B, older_than: Duration, by: Mono) -> Result<Swept, Unknown> {
    let env = bucket.env();
    let timeout = || Unknown::settled("sweep", bucket.name(), Cause::Timeout);
    let begun = env.within(by, async {
        // Asked first, and at worst from a member that is behind: markers are older than it makes them.
        let clock = bucket.clock().await?;
        Ok((clock, bucket.pass(&Filter::every(), Values::Without, by).await?))
    });
    let begun = begun.await.unwrap_or_else(|_| Err(timeout()));
    let (clock, pass) = begun.map_err(|unknown| unknown.during("sweep", bucket.name()))?;
    let (markers, mut trouble) = markers(bucket, pass, clock, older_than, by).await;

    let found = markers.len() as u64;
    let (mut removed, mut failed) = (0, 0);
    let mut purges = stream::iter(markers)
        .map(async |(key, revision)| {
            if env.now() >= by {
                return Err(timeout());
            }
            let in_flight = || Unknown::in_flight("sweep", bucket.name(), Cause::Timeout);
            let purged = env.within(by, bucket.purge(&key, revision)).await.unwrap_or_else(|_| Err(in_flight()));
            purged.map_err(|unknown| unknown.during("sweep", format!("{} {key}", bucket.name())))
        })
        .buffer_unordered(PURGES_AT_ONCE);
    while let Some(purged) = purges.next().await {
        match purged {
            Ok(gone) => removed += gone,
            Err(unknown) => {
                failed += 1;
                trouble.get_or_insert(unknown);
            }
        }
    }
    drop(purges);
    Ok(Swept { found, removed, failed, trouble })
}

/// The markers old enough that a pass delivers, each with its revision, until it has nothing more, falls quiet, or fails: what
/// it delivered before stands, each on its own. What lives is not kept.
async fn markers<B: Bucket>(
    bucket: &B,
    mut pass: B::Pass,
    clock: Timestamp,
    older_than: Duration,
    by: Mono,
) -> (Vec<(Key, u64)>, Option<Unknown>) {
    let older_than = SignedDuration::try_from(older_than).unwrap_or(SignedDuration::MAX);
    let mut markers = Vec::new();
    let mut pending = pass.to_deliver();
    let mut trouble = None;
    while pending > 0 {
        let quiet = bucket.env().now() + QUIET;
        match bucket.env().within(quiet, pass.next(by)).await {
            // No index is waited for here, so the quiet counts from the beginning on.
            Err(_quiet) => break,
            Ok(Err(unknown)) => {
                trouble = Some(unknown.during("sweep", bucket.name()));
                break;
            }
            Ok(Ok(delivery)) => {
                pending = delivery.pending;
                let version = delivery.version;
                let old = version.value.is_none() && version.written.duration_until(clock) >= older_than;
                // A key that does not decode is nobody's, its marker included.
                markers.extend(delivery.key.filter(|_| old).map(|key| (key, version.revision)));
            }
        }
    }
    end(bucket, pass, by).await;
    (markers, trouble)
}
