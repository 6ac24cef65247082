//! Which chat threads a seat follows.
//!
//! Any node may be the one that hears the next message of a thread, so every follow is written here and nowhere else. The
//! bucket keeps one for 90 days from its last writing, and every activity writes it again: a follow ends with its
//! conversation. One that is forgotten too early costs a reply, until the next mention.
//!
//! The safe direction of what is unknown is that nothing is followed: a seat that is woken by a thread that it left speaks where
//! nobody asked it, and pays for it. See [`FailsClosed::fails_closed`].
//!
//! The follow is the record's being there. An unfollow leaves a removal marker, which the age takes.

use coordproto::answer::{Error, Unknown};
use coordproto::record::follow::{Thread, value};
use coordproto::slot::FOLLOWS;

use crate::slots::Settings;
use crate::store::modify::{Begin, Step, modify};
use crate::store::remove::overwrite;
use crate::store::replace::live;
use crate::store::{Bucket, OpenError, Store, Write};

/// The followed threads of a fleet. Clones are handles to the same.
#[derive(Clone)]
pub struct Follows<S: Store> {
    bucket: S::Bucket,
}

/// The definite answer about a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it is asked for its answer"]
pub enum Following {
    /// The seat follows it.
    Yes,
    /// It does not.
    No,
}

/// The definite answer to an unfollow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "another may have been faster"]
pub enum Unfollow {
    /// This call removed the follow.
    Removed,
    /// There was none.
    NotFollowing,
}

/// The safe direction of a question without an answer.
pub trait FailsClosed {
    /// Not followed where it is unknown, which the log says. A reply that the seat does not hear is what that may cost, and
    /// the next mention brings it back.
    fn fails_closed(self) -> Following;
}

impl FailsClosed for Result<Following, Unknown> {
    fn fails_closed(self) -> Following {
        match self {
            Ok(following) => following,
            Err(unknown) => {
                tracing::warn!(%unknown, "follow_unread");
                Following::No
            }
        }
    }
}

impl<S: Store> Follows<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<Follows<S>, OpenError> {
        Ok(Follows { bucket: settings.open(store, &FOLLOWS).await? })
    }

    /// Follows a thread, whether or not it is followed already; its age begins again.
    ///
    /// # Errors
    /// An incomplete identity or one too long, before anything is sent. Unknown, which says whether the follow may still
    /// land.
    pub async fn follow(&self, thread: &Thread<'_>) -> Result<(), Error> {
        let key = thread.key()?;
        let written = overwrite(&self.bucket, &key, value()).await;
        written.map(drop).map_err(|error| error.during("follow", key.as_str()))
    }

    /// Whether a seat follows a thread. An identity that nothing can be written under is not followed.
    ///
    /// # Errors
    /// Unknown.
    pub async fn following(&self, thread: &Thread<'_>) -> Result<Following, Unknown> {
        let Ok(key) = thread.key() else { return Ok(Following::No) };
        let version = self.bucket.get(&key).await.map_err(|unknown| unknown.during("following", key.as_str()))?;
        Ok(if live(version).is_some() { Following::Yes } else { Following::No })
    }

    /// Follows a thread no longer. Of all who do that at once, one is told that it removed the follow.
    ///
    /// # Errors
    /// An incomplete identity or one too long, before anything is sent. Unknown, which says whether the follow may still be
    /// removed.
    pub async fn unfollow(&self, thread: &Thread<'_>) -> Result<Unfollow, Error> {
        let key = thread.key()?;
        modify(&self.bucket, &key, Begin::Reading, ("unfollow", key.as_str()), |followed| {
            Ok(match followed {
                Some(_) => Step::Put(Write::Removal, Unfollow::Removed),
                None => Step::Keep(Unfollow::NotFollowing),
            })
        })
        .await
    }
}
