//! The company's credentials, sealed by the caller, one under each name that a `${NAME}` can name.
//!
//! The coordination layer has no key to them and never sees a credential. What it keeps is for nobody to read either: no value
//! is in anything that is printed or in any error, see [`secret`].
//!
//! The last write wins, and a secret leaves when somebody deletes it. The bucket has no age, since a credential that expired
//! would be an outage on a timer. A listing is whole or it is none: a row that cannot be read fails it, by name, because a
//! secret that is silently missing is a company that comes up without it. Such a row can be written over and deleted unread.

use coordproto::answer::{Error, Unknown};
use coordproto::record::secret::{self, SecretRecord};
use coordproto::slot::SECRETS;

use super::named;
use crate::slots::Settings;
use crate::store::remove::{erase, overwrite};
use crate::store::replace::live;
use crate::store::{Bucket, OpenError, Store};

/// The secrets of a fleet. Clones are handles to the same.
pub struct Secrets<S: Store> {
    bucket: S::Bucket,
}

impl<S: Store> Clone for Secrets<S> {
    fn clone(&self) -> Self {
        Secrets { bucket: self.bucket.clone() }
    }
}

/// A secret that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Its name.
    pub name: String,
    /// What was sealed, by whom, when.
    pub record: SecretRecord,
}

/// The definite answer to a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delete {
    /// It was set, and this call deleted it.
    Deleted,
    /// It was not set.
    NotThere,
}

impl<S: Store> Secrets<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<Secrets<S>, OpenError> {
        Ok(Secrets { bucket: settings.open(store, &SECRETS).await? })
    }

    /// The secret of a name, or none.
    ///
    /// # Errors
    /// A name that no secret can have, before anything is sent. Unknown, also for a record that cannot be read.
    pub async fn get(&self, name: &str) -> Result<Option<Secret>, Error> {
        let key = secret::key(name)?;
        let found = self.bucket.get(&key).await.map_err(|unknown| unknown.during("get", name))?;
        let Some((_, value)) = live(found) else { return Ok(None) };
        let record = SecretRecord::decode(&value).map_err(|cause| Unknown::settled("get", name, cause))?;
        Ok(Some(Secret { name: name.to_owned(), record }))
    }

    /// Every secret, by name. One that was deleted while the listing ran may be in it, and from a member that is behind one as
    /// it was before it was last set: whoever has to have what was just set [gets](Secrets::get) it.
    ///
    /// # Errors
    /// Unknown, also for one row that cannot be read, which the error names; never a shorter list.
    pub async fn list(&self) -> Result<Vec<Secret>, Unknown> {
        let listed = named::list(&self.bucket, SECRETS.name).await?;
        // A key that is the name of no secret is nobody's.
        let rows = listed.rows.into_iter().filter(|row| secret::key(&row.name).is_ok());
        let secrets = rows.map(|row| {
            let record = row.decoded(|value| SecretRecord::decode(value))?;
            Ok(Secret { name: row.name, record })
        });
        secrets.collect()
    }

    /// Sets a secret, whatever stands there. What is sealed has been weighed when it was [made](secret::Sealed::new).
    ///
    /// # Errors
    /// A name that no secret can have or a record too large, before anything is sent. Unknown, which says whether it may still
    /// be set.
    pub async fn put(&self, name: &str, record: &SecretRecord) -> Result<(), Error> {
        let written = overwrite(&self.bucket, &secret::key(name)?, record.encode()).await;
        written.map(drop).map_err(|error| error.during("put", name))
    }

    /// Deletes a secret, and says whether it was there.
    ///
    /// # Errors
    /// A name that no secret can have, before anything is sent. Unknown, which says whether it may still be deleted.
    pub async fn delete(&self, name: &str) -> Result<Delete, Error> {
        let erased = erase(&self.bucket, &secret::key(name)?).await;
        let erased = erased.map_err(|unknown| unknown.during("delete", name))?;
        Ok(if erased { Delete::Deleted } else { Delete::NotThere })
    }
}
