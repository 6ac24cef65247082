//! What must hold: the contract suites, and what they run on.
//!
//! A case is one generic async function over a [`Fixture`]. The contract binaries run every case on the memory twin, on one
//! broker and on three, from the same text, each as a test of its own name.

#![expect(clippy::unwrap_used, reason = "a case that meets an error ends with it")]

mod bench;
mod brokers;
pub mod cases;
pub mod exact;
mod fixture;
mod links;
mod rows;
mod watched;

pub use brokers::Brokers;
pub(crate) use fixture::before_it_goes_on;
pub use fixture::{Fixture, class, eventually, held, list, refused, resource, terms, watch};
pub use links::Links;
pub use watched::Watched;
