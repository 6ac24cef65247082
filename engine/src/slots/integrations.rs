//! Where each outside surface's reconcile pass got to: its phase, its findings, whether a disconnect was asked for.
//!
//! One record for each surface, opaque to the coordination layer; the last write wins. The one that writes is the holder of the
//! reconcile duty, and the next pass writes it anew, so a write that was overtaken is no loss. A status is standing state and
//! true until the next pass: nothing ages away. A record leaves when its surface has left the company's document.

use bytes::Bytes;
use coordproto::answer::{BadArgument, Error, Unknown};
use coordproto::key::Key;
use coordproto::record::named as record;
use coordproto::slot::INTEGRATIONS;

use super::named;
use crate::slots::Settings;
use crate::store::remove::{erase, overwrite};
use crate::store::{OpenError, Store};

/// The states of a fleet's integrations. Clones are handles to the same.
pub struct Integrations<S: Store> {
    bucket: S::Bucket,
}

impl<S: Store> Clone for Integrations<S> {
    fn clone(&self) -> Self {
        Integrations { bucket: self.bucket.clone() }
    }
}

/// The state of one surface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Integration {
    /// The surface's name.
    pub surface: String,
    /// What the reconcile loop keeps of it; opaque here.
    pub record: Bytes,
}

/// The definite answer to a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delete {
    /// This call deleted it.
    Deleted,
    /// There was none.
    NotThere,
}

impl<S: Store> Integrations<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<Integrations<S>, OpenError> {
        Ok(Integrations { bucket: settings.open(store, &INTEGRATIONS).await? })
    }

    /// Every surface's state, by its name. From a member that is behind one may be what the pass before wrote, which the loop
    /// reads as it would have then: it converges a pass later.
    ///
    /// # Errors
    /// Unknown; never a shorter list, which would send the loop to set up what is there already.
    pub async fn list(&self) -> Result<Vec<Integration>, Unknown> {
        let listed = named::list(&self.bucket, INTEGRATIONS.name).await?;
        Ok(listed.rows.into_iter().map(|row| Integration { surface: row.name, record: row.value }).collect())
    }

    /// Writes a surface's state, whatever stands there.
    ///
    /// # Errors
    /// A name that is empty or too long or a record too large, before anything is sent. Unknown, which says whether it may
    /// still be written.
    pub async fn put(&self, surface: &str, record: Bytes) -> Result<(), Error> {
        let written = overwrite(&self.bucket, &key(surface)?, record).await;
        written.map(drop).map_err(|error| error.during("put", surface))
    }

    /// Forgets a surface.
    ///
    /// # Errors
    /// A name that is empty or too long, before anything is sent. Unknown, which says whether it may still be deleted.
    pub async fn delete(&self, surface: &str) -> Result<Delete, Error> {
        let erased = erase(&self.bucket, &key(surface)?).await;
        let erased = erased.map_err(|unknown| unknown.during("delete", surface))?;
        Ok(if erased { Delete::Deleted } else { Delete::NotThere })
    }
}

fn key(surface: &str) -> Result<Key, BadArgument> {
    record::key("surface", surface)
}
