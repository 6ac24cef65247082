//! Greeted newcomers: of all nodes that see one come, one says hello.

use super::GREETINGS;
use super::greeting::{encode, key};
use coordproto::answer::{BadArgument, Error};
use jiff::Timestamp;

use engine::slots::Settings;
use engine::store::create::{Created, create};
use engine::store::{OpenError, Store};

/// The greeted newcomers of a fleet. Clones are handles to the same.
#[derive(Clone)]
pub struct Greetings<S: Store> {
    bucket: S::Bucket,
}

/// The definite answer to a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "one node says hello"]
pub enum Greet {
    /// This call is the first.
    First,
    /// Somebody has greeted the newcomer before.
    Greeted,
}

/// The safe direction of a greeting without an answer.
pub trait FailsClosed {
    /// Greeted where it is unknown, which the log says: hello twice is odd, and no hello is not.
    ///
    /// # Errors
    /// A bad argument stays one.
    fn fails_closed(self) -> Result<Greet, BadArgument>;
}

impl FailsClosed for Result<Greet, Error> {
    fn fails_closed(self) -> Result<Greet, BadArgument> {
        match self {
            Ok(greet) => Ok(greet),
            Err(Error::BadArgument(error)) => Err(error),
            Err(Error::Unknown(unknown)) => {
                tracing::warn!(%unknown, "greeting_withheld");
                Ok(Greet::Greeted)
            }
        }
    }
}

impl<S: Store> Greetings<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<Greetings<S>, OpenError> {
        Ok(Greetings { bucket: settings.open(store, &GREETINGS).await? })
    }

    /// Claims the greeting of a newcomer. Of all who do, one is the first.
    ///
    /// # Errors
    /// An empty handle or one too long, before anything is sent. Unknown, which says whether the claim may still land.
    pub async fn greet(&self, handle: &str, at: Timestamp) -> Result<Greet, Error> {
        let created = create(&self.bucket, &key(handle)?, encode(at)).await;
        match created.map_err(|error| error.during("greet", handle))? {
            Created::Stored(_) => Ok(Greet::First),
            Created::Exists { .. } => Ok(Greet::Greeted),
        }
    }
}
