//! Which data node keeps a batch of events that a stateless node sent.
//!
//! Two data nodes may be given one batch, and both write it. Each then claims it here, after its writing: a claimant that
//! died before would keep a batch that nobody wrote. Who is told its own name keeps its copy, and who is told another's
//! deletes it. Who is told nothing keeps its copy and asks again, at its next boot if need be, for which the bucket
//! remembers a keeper for 32 days: a day longer than the events are kept. See [`Holds::holds`].

use coordproto::answer::{BadArgument, Error};
use coordproto::record::custody::CustodyRecord;
use coordproto::slot::CUSTODY;

use crate::slots::Settings;
use crate::slots::rows::{Create, Rows};
use crate::store::{OpenError, Store};

/// The keepers of a fleet's batches. Clones are handles to the same.
#[derive(Clone)]
pub struct Custody<S: Store> {
    rows: Rows<S::Bucket, CustodyRecord>,
}

/// What a node does with the copy that it wrote of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "two nodes may have a copy"]
pub enum Copy {
    /// It is the keeper's.
    Keep,
    /// Nobody told; it stays until somebody does.
    KeepAndAskAgain,
    /// Another node keeps the batch.
    Delete,
}

/// The safe direction of a claim.
pub trait Holds {
    /// What `node` does with its copy, which it keeps where the keeper is unknown: of a batch that two nodes deleted nothing
    /// is left, and one that both keep is deleted once when they ask again.
    ///
    /// # Errors
    /// A bad argument stays one.
    fn holds(self, node: &str) -> Result<Copy, BadArgument>;
}

impl Holds for Result<String, Error> {
    fn holds(self, node: &str) -> Result<Copy, BadArgument> {
        match self {
            Ok(keeper) if keeper == node => Ok(Copy::Keep),
            Ok(_) => Ok(Copy::Delete),
            Err(Error::BadArgument(error)) => Err(error),
            Err(Error::Unknown(unknown)) => {
                tracing::warn!(%unknown, "custody_unsettled");
                Ok(Copy::KeepAndAskAgain)
            }
        }
    }
}

impl<S: Store> Custody<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<Custody<S>, OpenError> {
        Ok(Custody { rows: Rows::new(settings.open(store, &CUSTODY).await?) })
    }

    /// Claims a batch for a node, and answers which node keeps it. Everyone is told the same one, however often.
    ///
    /// # Errors
    /// An empty batch or node, or a batch too long, before anything is sent. Unknown, which says whether the claim may still
    /// land; also when the keeper's record cannot be read. Nobody deletes a copy on that.
    pub async fn claim_custody(&self, batch: &str, node: &str) -> Result<String, Error> {
        let claim = CustodyRecord { batch: batch.to_owned(), node: node.to_owned() };
        Ok(match self.rows.create("claim_custody", &claim).await? {
            Create::Created(_) => claim.node,
            Create::Exists(keeper) => keeper.record.node,
        })
    }
}
