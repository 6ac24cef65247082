//! The notification valve: at most so many in a window, for the fleet as a whole.
//!
//! A bucket is what is limited, a seat for instance; each of its windows is a record of its own, written by compare-and-set
//! from the count that was read. So however many nodes take at once, no window lets through more than its limit. The windows
//! are fixed: they begin at the multiples of their length since the epoch, on the clock that the caller passes, and a bucket
//! is meant to be asked with one length of window.
//!
//! **What a fixed window does not promise** is anything about a span that reaches over an edge: a limit's worth at the end of
//! one window and another at the beginning of the next are twice the limit within an instant, though never more in any span
//! as long as a window. And nodes whose clocks differ are in different windows for as long as they differ.
//!
//! The safe direction of what is unknown is closed: a valve that opens when it cannot be read is none. See
//! [`FailsClosed::fails_closed`].
//!
//! Nothing counts backwards and nothing is removed; the bucket's age takes the windows that are over.

use std::time::Duration;

use coordproto::answer::{BadArgument, Error};
use coordproto::record::rate::{self, RateRecord};
use coordproto::slot::RATE;
use jiff::Timestamp;

use crate::slots::Settings;
use crate::store::modify::{Begin, Step, modify};
use crate::store::{Bucket, OpenError, Store, Write};

/// The notification valve of a fleet. Clones are handles to the same.
pub struct RateValve<S: Store> {
    bucket: S::Bucket,
}

impl<S: Store> Clone for RateValve<S> {
    fn clone(&self) -> Self {
        RateValve { bucket: self.bucket.clone() }
    }
}

/// The definite answer to a take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is refused must not happen"]
pub enum Take {
    /// It is within the limit, and counted.
    Allowed,
    /// The window has let through as many as it may. Nothing was written.
    Refused,
}

impl<S: Store> RateValve<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<RateValve<S>, OpenError> {
        Ok(RateValve { bucket: settings.open(store, &RATE).await? })
    }

    /// The longest window that can be counted: the age in force, which is three windows of the node that created the bucket,
    /// whatever this one is configured for. A count is written once its window has begun and is kept for that age, so a window
    /// as long is counted to its end; the count of a longer one could be forgotten before. A bucket that was made without an
    /// age, which this build does not do, forgets none.
    pub fn longest_window(&self) -> Duration {
        self.bucket.age().unwrap_or(Duration::MAX)
    }

    /// Takes one from the window of `bucket` that `now` falls into. A limit of 0 and a window of no length let nothing
    /// through, and nothing is asked. Two requests, and one where the limit is reached.
    ///
    /// # Errors
    /// A bucket without a name or with one too long, or a window above [`RateValve::longest_window`], before anything is
    /// sent. Unknown, which says whether it may still be counted; also for a count that cannot be read.
    pub async fn allow(&self, bucket: &str, limit: u32, window: Duration, now: Timestamp) -> Result<Take, Error> {
        let start = rate::window_start(now, window);
        let key = rate::key(bucket, start.unwrap_or(now))?;
        let longest = self.longest_window();
        if window > longest {
            let rule = format!("at most {longest:?}, the age in force of {}", self.bucket.name());
            return Err(BadArgument::new("window", format!("{window:?} for {bucket}"), rule).into());
        }
        if limit == 0 || start.is_none() {
            return Ok(Take::Refused);
        }
        modify(&self.bucket, &key, Begin::Reading, ("allow", bucket), |stands| {
            let record = stands.map(|value| RateRecord::decode(value)).transpose()?.unwrap_or_default();
            Ok(match record.take(limit) {
                Some(record) => Step::Put(Write::Value(record.encode()), Take::Allowed),
                None => Step::Keep(Take::Refused),
            })
        })
        .await
    }
}

/// The safe direction of a take without an answer.
pub trait FailsClosed {
    /// Refused where it is unknown, which the log says. A delayed notification is what that costs.
    ///
    /// # Errors
    /// A bad argument stays one.
    fn fails_closed(self) -> Result<Take, BadArgument>;
}

impl FailsClosed for Result<Take, Error> {
    fn fails_closed(self) -> Result<Take, BadArgument> {
        match self {
            Ok(take) => Ok(take),
            Err(Error::BadArgument(error)) => Err(error),
            Err(Error::Unknown(unknown)) => {
                tracing::warn!(%unknown, "rate_valve_closed_unread");
                Ok(Take::Refused)
            }
        }
    }
}
