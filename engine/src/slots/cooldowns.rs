//! Cooling credentials: what one node's refused call tells all the others.
//!
//! A rate limit belongs to the credential at its vendor and not to the process that ran into it. So whoever is refused says
//! until when, and every node reads that every few seconds. What is said is an instant, and it only grows: the later of two
//! stays, whichever comes first.
//!
//! A row is evidence that a credential is refused; that there is none is evidence of nothing. So a reader extends what it
//! knows and never shortens it. That also says why a row that cannot be read is left out, and why it does no harm that a
//! listing's rows may be older ones from a member that is behind: the next reading has the newer instant. And what is unknown
//! changes nothing: see [`Holds::holds`].

use std::time::Duration;

use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::Filter;
use coordproto::record::cooldown::{CooldownRecord, Credential};
use coordproto::slot::COOLDOWNS;
use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::slots::Settings;
use crate::store::listing::LIST_WITHIN;
use crate::store::modify::{Begin, Step, modify};
use crate::store::{Bucket, Certified, OpenError, Store, Write};
use crate::tasks;

/// How long the word that a credential cools may take. The call that it belongs to has failed, and is about to be made again.
pub const COOL_WITHIN: Duration = Duration::from_secs(2);

/// The cooling credentials of a fleet. Clones are handles to the same.
pub struct Cooldowns<S: Store> {
    bucket: S::Bucket,
}

impl<S: Store> Clone for Cooldowns<S> {
    fn clone(&self) -> Self {
        Cooldowns { bucket: self.bucket.clone() }
    }
}

/// A credential that cools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cooling {
    /// Which: its provider entry, and a hint.
    pub credential: Credential,
    /// The instant at which it may be tried again.
    pub until: Timestamp,
}

/// The definite answer to the word that a credential cools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cool {
    /// It cools until the instant that was said.
    Cooled,
    /// It cools until this instant, which is no earlier. Nothing was written.
    Already(Timestamp),
}

impl<S: Store> Cooldowns<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<Cooldowns<S>, OpenError> {
        Ok(Cooldowns { bucket: settings.open(store, &COOLDOWNS).await? })
    }

    /// Tells the fleet that a credential cools until `until`; a later instant that was told before stays. It is told to the
    /// end even if the caller goes away, within [`COOL_WITHIN`].
    ///
    /// # Errors
    /// Unknown, which says whether it may still be told.
    pub async fn cool(&self, credential: &Credential, until: Timestamp) -> Result<Cool, Unknown> {
        let (bucket, credential, about) = (self.bucket.clone(), credential.clone(), credential.to_string());
        let (tell, told) = oneshot::channel();
        // The call that was refused may be given up while this is under way, and its peers are to hear of it all the same.
        tasks::detach(async move {
            let by = bucket.env().now() + COOL_WITHIN;
            let cooled = bucket.env().within(by, cool(&bucket, &credential, until)).await;
            let late = |_| Err(Unknown::in_flight("cool", credential.to_string(), Cause::Timeout));
            // Nobody may be there to hear it any more.
            let _ = tell.send(cooled.unwrap_or_else(late));
        });
        told.await.unwrap_or_else(|_| Err(Unknown::in_flight("cool", about, Cause::Disconnected)))
    }

    /// Every credential that still cools at `now`, by key. Rows that have lapsed or cannot be read are left out.
    ///
    /// # Errors
    /// Unknown; never a shorter list.
    pub async fn since(&self, now: Timestamp) -> Result<Vec<Cooling>, Unknown> {
        let (filter, by) = (Filter::every(), self.bucket.env().now() + LIST_WITHIN);
        let listing = self.bucket.list(&filter, &Certified::Leader, by).await;
        let listing = listing.map_err(|unknown| unknown.during("since", COOLDOWNS.name))?;
        let cooling = listing.entries.into_iter().filter_map(|(key, version)| {
            let (credential, value) = (Credential::from_key(&key)?, version.value?);
            let until = CooldownRecord::decode(&value).ok()?.until;
            (until > now).then_some(Cooling { credential, until })
        });
        Ok(cooling.collect())
    }
}

async fn cool<B: Bucket>(bucket: &B, credential: &Credential, until: Timestamp) -> Result<Cool, Unknown> {
    let about = credential.to_string();
    let cooled = modify(bucket, credential.key(), Begin::Writing, ("cool", &about), |found| {
        // What cannot be read tells nobody anything, so it is written over.
        let stands = found.and_then(|value| CooldownRecord::decode(value).ok());
        Ok(match stands {
            Some(record) if record.until >= until => Step::Keep(Cool::Already(record.until)),
            _ => Step::Put(Write::Value(CooldownRecord { until }.encode()), Cool::Cooled),
        })
    });
    cooled.await.map_err(|error| match error {
        Error::Unknown(unknown) => unknown,
        // The caller chose nothing that could be smaller.
        Error::BadArgument(error) => Unknown::settled("cool", &*about, Cause::TooLarge(error.to_string().into())),
    })
}

/// The safe direction of a reading without an answer.
pub trait Holds {
    /// No news where it is unknown, which the log says. A reader only extends what it knows, so everything it knows holds.
    fn holds(self) -> Vec<Cooling>;
}

impl Holds for Result<Vec<Cooling>, Unknown> {
    fn holds(self) -> Vec<Cooling> {
        match self {
            Ok(cooling) => cooling,
            Err(unknown) => {
                tracing::warn!(%unknown, "credential_cooldowns_unread");
                Vec::new()
            }
        }
    }
}
