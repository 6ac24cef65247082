//! The cases, a file for each part of the contract.

pub mod claims;
pub mod custody;
pub mod doubts;
pub mod faults;
pub mod fires;
pub mod follows;
pub mod gate;
pub mod listings;
pub mod objects;
pub mod opening;
pub mod pauses;
pub mod positions;
pub mod rebases;
pub mod stores;
pub mod sweeps;
pub mod tenures;
