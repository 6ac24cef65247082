//! JetStream's requests and answers: what to send, how to read what comes back, and what it may be believed to say.
//!
//! Everything here is a function of bytes. [`requests`] writes subjects and bodies; [`puback`], [`message`], [`direct`],
//! [`info`] and [`reply`] read answers; [`verdict`] holds the one table from error codes and statuses to yes, no and unknown.
//! Nothing is decided from an error's text: the code alone decides. The one number that stands only in a text, the sequence of
//! "wrong last sequence: 7", is read as data, and an error of that code without it is garbage. One status needs its text to
//! be believed at all: see [`verdict::batch_end`].
//!
//! Source: ADR-2 (API), ADR-8 (key-value), ADR-31 (direct get); shapes as nats-server 2.15.1 sends them.

pub mod direct;
pub mod info;
pub mod message;
pub mod puback;
pub mod reply;
pub mod requests;
mod scan;
pub mod verdict;

pub use info::{Info, Leadership, Subjects};
pub use message::{Marker, Stored};
pub use verdict::{Doubt, Judged, Put, Race};

use crate::answer::Cause;

/// An answer that cannot be read, and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Garbage(pub &'static str);

impl From<Garbage> for Cause {
    fn from(garbage: Garbage) -> Cause {
        Cause::Garbage(garbage.0.into())
    }
}

/// An error that the API answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP-like status.
    pub code: u16,
    /// The API's own code; 0 where the server gave a status alone.
    pub err_code: u16,
    /// The number that ends the description; meaningful for 10071 alone.
    pub operand: Option<u64>,
}

/// What the API answered: what was asked for, or an error of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<T> {
    /// What was asked for.
    Ok(T),
    /// An error of the API's own.
    Refused(ApiError),
}

impl<T> Reply<T> {
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Reply<U> {
        match self {
            Reply::Ok(value) => Reply::Ok(f(value)),
            Reply::Refused(error) => Reply::Refused(error),
        }
    }
}
