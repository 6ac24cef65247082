//! The cases, a file for each part of the contract.

pub mod claims;
pub mod cooldowns;
pub mod deliveries;
pub mod doubts;
pub mod faults;
pub mod gate;
pub mod ledger;
pub mod listings;
pub mod opening;
pub mod pauses;
pub mod rate;
pub mod stores;
pub mod sweeps;
pub mod tenures;
