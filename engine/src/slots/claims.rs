//! Claims on deliveries: has this one been seen, by any node.
//!
//! A delivery is named by its source and by the id that it bears there; one without an id is not claimed, since two of those
//! are not the same. The first to claim it has it, for as long as that claim says; after that it is anybody's again. The
//! deadline is data in the record, judged by the clock of whoever claims next, so short claims and long ones share a bucket,
//! whose age only has to outlive the longest.
//!
//! A claim is made by an [`Attempt`] with an id of its own. By that id an attempt that asks again is told that it was first,
//! and gives back its own claim and never a later one's, also when its claim went without an answer.
//!
//! The safe direction of what is unknown is open: a claim that cannot be read has suppressed nothing, and a delivery that is
//! dropped here comes from nowhere again. See [`FailsOpen::fails_open`].

use std::time::Duration;

use coordproto::answer::{BadArgument, Error};
use coordproto::key::Key;
use coordproto::record::claim::{self, ClaimRecord, Stands};
use coordproto::slot::CLAIMS;
use jiff::{SignedDuration, Timestamp};

use crate::slots::Settings;
use crate::store::modify::{Begin, Step, modify};
use crate::store::{Bucket, OpenError, Store, Write};

/// The claims of a fleet on what it is delivered. Clones are handles to the same.
pub struct DeliveryClaims<S: Store> {
    bucket: S::Bucket,
}

impl<S: Store> Clone for DeliveryClaims<S> {
    fn clone(&self) -> Self {
        DeliveryClaims { bucket: self.bucket.clone() }
    }
}

/// One node's handling of one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    key: Key,
    /// The source and the delivery's id, as errors name them.
    about: Box<str>,
    /// Tells this attempt's claim from every other's.
    by: String,
}

/// The definite answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a delivery that was seen must not be handled again"]
pub enum Delivery {
    /// This attempt is the first to see it, or the first since an earlier claim lapsed.
    First,
    /// Another has it, and nothing was written.
    Seen {
        /// When that other claim lapses.
        until: Timestamp,
    },
}

/// The definite answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The attempt's claim is gone, and the delivery anybody's.
    Released,
    /// The attempt holds no claim. Nothing was written.
    NotHeld,
}

impl<S: Store> DeliveryClaims<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<DeliveryClaims<S>, OpenError> {
        Ok(DeliveryClaims { bucket: settings.open(store, &CLAIMS).await? })
    }

    /// The longest that a claim may last: the age in force, whatever this build would have chosen. A bucket that was made
    /// without an age, which this build does not do, keeps a claim of any length.
    pub fn longest_claim(&self) -> Duration {
        self.bucket.age().unwrap_or(Duration::MAX)
    }

    /// A new attempt at the delivery that `source` calls `id`. Nothing is asked.
    ///
    /// # Errors
    /// An empty source or id, a control character in either, or both too long for a key.
    pub fn attempt(&self, source: &str, id: &str) -> Result<Attempt, BadArgument> {
        let (key, by) = (claim::key(source, id)?, format!("{:016x}", self.bucket.env().random()));
        Ok(Attempt { key, about: format!("{source} {id}").into(), by })
    }

    /// Claims a delivery from `now` on for `ttl`. One request where it was never seen.
    ///
    /// # Errors
    /// A TTL of nothing or above [`DeliveryClaims::longest_claim`], before anything is sent. Unknown, which says whether the
    /// claim may still come to stand.
    pub async fn claim(&self, attempt: &Attempt, ttl: Duration, now: Timestamp) -> Result<Delivery, Error> {
        let bad_ttl = |rule| BadArgument::new("ttl", format!("{ttl:?} for {}", attempt.about), rule);
        let longest = self.longest_claim();
        if ttl > longest {
            return Err(bad_ttl(format!("at most {longest:?}, the age in force of {}", self.bucket.name())).into());
        }
        if ttl.is_zero() {
            return Err(bad_ttl("a claim lasts longer than that".to_owned()).into());
        }
        let lasts = SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX);
        let until = now.saturating_add(lasts).unwrap_or(Timestamp::MAX);
        let value = ClaimRecord { until, by: Some(attempt.by.clone()) }.encode();
        modify(&self.bucket, &attempt.key, Begin::Writing, ("claim", &attempt.about), |found| {
            Ok(match claim::stands(found.map(|value| &value[..]), &attempt.by, now) {
                Stands::Free => Step::Put(Write::Value(value.clone()), Delivery::First),
                Stands::Own => Step::Keep(Delivery::First),
                Stands::Seen(until) => Step::Keep(Delivery::Seen { until }),
            })
        })
        .await
    }

    /// Gives back what an attempt claimed, so that the delivery can be handled again. What another claimed since stays. For
    /// an attempt whose claim is unknown this finds what came to stand.
    ///
    /// # Errors
    /// Unknown, which says whether the claim may still go. It lapses by itself.
    pub async fn release(&self, attempt: &Attempt) -> Result<Release, Error> {
        modify(&self.bucket, &attempt.key, Begin::Reading, ("release", &attempt.about), |found| {
            let own =
                found.and_then(|value| ClaimRecord::decode(value)).is_some_and(|record| record.is_by(&attempt.by));
            Ok(if own { Step::Put(Write::Removal, Release::Released) } else { Step::Keep(Release::NotHeld) })
        })
        .await
    }
}

/// The safe direction of a claim without an answer.
pub trait FailsOpen {
    /// First where it is unknown, which the log says. A delivery handled twice is what that may cost.
    ///
    /// # Errors
    /// A bad argument stays one.
    fn fails_open(self) -> Result<Delivery, BadArgument>;
}

impl FailsOpen for Result<Delivery, Error> {
    fn fails_open(self) -> Result<Delivery, BadArgument> {
        match self {
            Ok(delivery) => Ok(delivery),
            Err(Error::BadArgument(error)) => Err(error),
            Err(Error::Unknown(unknown)) => {
                tracing::warn!(%unknown, "delivery_claim_unread");
                Ok(Delivery::First)
            }
        }
    }
}
