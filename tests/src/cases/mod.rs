//! The cases, a file for each part of the contract.

pub mod claims;
pub mod faults;
pub mod gate;
pub mod opening;
pub mod pauses;
pub mod stores;
pub mod sweeps;
pub mod tenures;
