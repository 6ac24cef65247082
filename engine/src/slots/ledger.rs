//! The completion ledger: has this trigger been worked, read before a turn and written after one.
//!
//! A trigger is a key within a scope. Its record is written once; whoever comes second finds that it was worked, which is all
//! that the ledger is about. The bucket's age, longer than anything redelivers, takes it again.
//!
//! The safe direction of what is unknown is open: the work is done, once more perhaps, which is bounded and visible; work that
//! waits for the store to come back is neither. See [`FailsOpen::fails_open`]. A leader that was deposed and has not noticed
//! may not know a record that was written since, and costs the same.

use std::collections::BTreeMap;

use coordproto::answer::{BadArgument, Error, Unknown};
use coordproto::key::Key;
use coordproto::record::ledger::{self, LedgerRecord};
use coordproto::slot::LEDGER;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;

use crate::slots::Settings;
use crate::store::create::{Created, create};
use crate::store::{Bucket, OpenError, Store};

/// Reads of one question under way at once.
const READS_AT_ONCE: usize = 64;

/// The completion ledger of a fleet. Clones are handles to the same.
pub struct Ledger<S: Store> {
    bucket: S::Bucket,
}

impl<S: Store> Clone for Ledger<S> {
    fn clone(&self) -> Self {
        Ledger { bucket: self.bucket.clone() }
    }
}

/// Those of the keys asked about whose trigger was worked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "what was worked must not be worked again"]
pub struct Worked(BTreeMap<String, LedgerRecord>);

impl Worked {
    /// Whether the trigger of `key` was worked, of the keys that were asked about.
    pub fn contains(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// What was worked, by key, and how it went.
    pub fn records(&self) -> &BTreeMap<String, LedgerRecord> {
        &self.0
    }
}

/// The definite answer to a record. Either way the trigger counts as worked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is recorded.
    First,
    /// It was recorded before, and that stays as it is.
    Before,
}

impl<S: Store> Ledger<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<Ledger<S>, OpenError> {
        Ok(Ledger { bucket: settings.open(store, &LEDGER).await? })
    }

    /// Which of `keys` were worked in `scope`: one request for each, in a pipeline.
    ///
    /// # Errors
    /// An empty scope or key, or one too long, before anything is sent. Unknown, for a single read that has no answer or
    /// finds what cannot be read, which the error names; never an answer about some of the keys.
    pub async fn worked(&self, scope: &str, keys: &[&str]) -> Result<Worked, Error> {
        let keys = keys.iter().map(|key| Ok(((*key).to_owned(), ledger::key(scope, key)?)));
        let keys: Vec<_> = keys.collect::<Result<_, BadArgument>>()?;
        let by = self.bucket.deadline();
        let reads = stream::iter(keys).map(async |(name, key): (String, Key)| {
            let told = |unknown: Unknown| unknown.during("worked", format!("{scope} {name}"));
            let Some(value) = self.bucket.read(&key, by).await.map_err(told)?.and_then(|version| version.value) else {
                return Ok(None);
            };
            let record = LedgerRecord::decode(&value);
            let record = record.map_err(|cause| told(Unknown::settled("worked", key.as_str(), cause)))?;
            Ok(Some((name, record)))
        });
        let worked: Result<Vec<_>, Unknown> = reads.buffer_unordered(READS_AT_ONCE).try_collect().await;
        Ok(Worked(worked?.into_iter().flatten().collect()))
    }

    /// Records that a trigger was worked, how it went and when, unless that is on record.
    ///
    /// # Errors
    /// An empty scope or key, one too long, or a detail too large, before anything is sent. Unknown, which says whether the
    /// record may still come to stand.
    pub async fn record(&self, scope: &str, key: &str, detail: &str, at: Timestamp) -> Result<Recorded, Error> {
        let store_key = ledger::key(scope, key)?;
        let value = LedgerRecord { detail: detail.to_owned(), at }.encode();
        match create(&self.bucket, &store_key, value).await {
            Ok(Created::Stored(_)) => Ok(Recorded::First),
            Ok(Created::Exists { .. }) => Ok(Recorded::Before),
            Err(Error::Unknown(unknown)) => Err(unknown.during("record", format!("{scope} {key}")).into()),
            Err(error) => Err(error),
        }
    }
}

/// The safe direction of a question without an answer.
pub trait FailsOpen {
    /// Nothing was worked where it is unknown, which the log says. A turn taken twice is what that may cost.
    ///
    /// # Errors
    /// A bad argument stays one.
    fn fails_open(self) -> Result<Worked, BadArgument>;
}

impl FailsOpen for Result<Worked, Error> {
    fn fails_open(self) -> Result<Worked, BadArgument> {
        match self {
            Ok(worked) => Ok(worked),
            Err(Error::BadArgument(error)) => Err(error),
            Err(Error::Unknown(unknown)) => {
                tracing::warn!(%unknown, "ledger_unread");
                Ok(Worked::default())
            }
        }
    }
}
