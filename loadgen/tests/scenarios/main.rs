//! The binary from the outside, scenario by scenario.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod compare;
mod fleet;
mod floor;
mod listing;
mod mix;
#[cfg(feature = "peers")]
mod peers;
mod soak;
mod support;
