//! Giving back what an unfinished claim wrote.
//!
//! A claim that failed part-way, or whose caller went away, may have a write under way that lands after everybody stopped
//! looking, and would keep the resource dark for a TTL. So the record is released, and the straggler fenced, by one and the
//! same write: a release at the very expectation of the write in doubt. If the release is stored, the straggler's
//! expectation is wrong for ever. If it is refused because the straggler landed first, the record bears this claim's id, and
//! is released at its own revision. If it bears another's, it is not ours to touch.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::Resource;
use coordproto::lease::Terms;
use coordproto::record::lease::LeaseRecord;

use super::Inner;
use crate::env::Mono;
use crate::store::{Bucket, Expect, Put, Race, Write};
use crate::tasks;

/// The longest wait between two tries while the store cannot be asked.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a claim has under way. Dropped while armed, it gives it back in the background, and only then is any of it copied.
pub(super) struct Pending<'a, B: Bucket> {
    inner: &'a Arc<Inner<B>>,
    terms: &'a Terms,
    /// The claim's record, as it is written next.
    pub(super) record: LeaseRecord,
    armed: Option<Armed>,
}

struct Armed {
    /// The epoch of the tenure before, which a release keeps.
    last: Option<u64>,
    /// What the write in doubt expects of the record.
    stands: u64,
}

/// What is given back.
struct Written {
    owner: Option<String>,
    claim: Option<String>,
    release: Bytes,
    /// What the write in doubt expects of the record.
    stands: u64,
}

impl<'a, B: Bucket> Pending<'a, B> {
    pub(super) fn new(inner: &'a Arc<Inner<B>>, terms: &'a Terms, record: LeaseRecord) -> Pending<'a, B> {
        Pending { inner, terms, record, armed: None }
    }

    /// The record is about to be written over revision `stands`. What a release of it leaves keeps `last`, the epoch of the
    /// tenure before.
    pub(super) fn arm(&mut self, last: Option<u64>, stands: u64) {
        self.armed = Some(Armed { last, stands });
    }

    /// It was written, and stands at revision `won`: the next write of this claim is over that.
    pub(super) fn won(&mut self, won: u64) {
        if let Some(armed) = &mut self.armed {
            armed.stands = won;
        }
    }

    /// Nothing is under way that anybody would have to give back.
    pub(super) fn disarm(&mut self) {
        self.armed = None;
    }
}

impl<B: Bucket> Drop for Pending<'_, B> {
    fn drop(&mut self) {
        let Some(Armed { last, stands }) = self.armed else { return };
        // With the hint that was asked for: the one in force may be what made the record too large to be written.
        let (released, preferred) = (self.record.clone().released(), self.terms.preferred.clone());
        let release = LeaseRecord { epoch: last, preferred, ..released }.encode();
        let (owner, claim) = (self.record.owner.take(), self.record.claim.take());
        let written = Written { owner, claim, release, stands };
        let (inner, resource) = (self.inner.clone(), self.terms.resource.clone());
        // Whatever is still there by then has lapsed by itself.
        let until = inner.env.now() + self.terms.ttl;
        // The caller may be gone, so this outlives it; it ends when it is settled, or with the TTL.
        tasks::detach(async move { give_back(&inner, &resource, written, until).await });
    }
}

async fn give_back<B: Bucket>(inner: &Inner<B>, resource: &Resource, mut written: Written, until: Mono) {
    let mut round = 0;
    while inner.env.now() < until {
        match release(inner, resource, &written).await {
            Ok(Some(stands)) => written.stands = stands,
            Ok(None) => {
                tracing::debug!(%resource, "lease_given_back");
                return;
            }
            Err(error) => {
                tracing::debug!(%resource, %error, "lease_give_back_unknown");
                let most = Duration::from_millis(20 << u32::min(round, 6)).min(PATIENCE);
                inner.env.sleep(most / 2 + inner.env.jitter(most / 2)).await;
            }
        }
        round += 1;
    }
    tracing::warn!(%resource, "lease_give_back_abandoned");
}

/// One try. Answers the revision at which to try again, or none when it is settled.
async fn release<B: Bucket>(inner: &Inner<B>, resource: &Resource, written: &Written) -> Result<Option<u64>, Error> {
    let bucket = inner.bucket(resource);
    let write = Write::Value(written.release.clone());
    let newer = match bucket.put(resource.key(), write, Expect::At(written.stands)).await? {
        Put::Stored(_) => return Ok(None),
        Put::Lost(Race::InProcess) => {
            inner.back_off(2).await;
            return Ok(Some(written.stands));
        }
        // What the write in doubt expects is gone, by age; it could only land over nothing.
        Put::Lost(Race::Vanished) => return Ok(Some(0)),
        Put::Lost(Race::Newer(newer)) => newer,
    };
    let unknown = |cause| Unknown::settled("give back", resource.name(), cause);
    let found = bucket.get(resource.key()).await?;
    // From before the refusal, or gone since, by age. The next try tells which.
    let Some(version) = found.filter(|version| version.revision >= newer) else {
        return Err(unknown(Cause::Stale { answered: 0, known: newer }).into());
    };
    let Some(value) = version.value else { return Ok(None) };
    let record = LeaseRecord::decode(&value).map_err(unknown)?;
    // The owner too: processes that draw from one seed draw the same ids.
    let ours = record.owner.is_some() && (&record.owner, &record.claim) == (&written.owner, &written.claim);
    Ok(ours.then_some(version.revision))
}
