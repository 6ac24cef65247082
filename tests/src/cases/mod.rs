//! The cases, a file for each part of the contract.

pub mod budgets;
pub mod claims;
pub mod doubts;
pub mod faults;
pub mod gate;
pub mod listings;
pub mod opening;
pub mod pauses;
pub mod stores;
pub mod sweeps;
pub mod tenures;
