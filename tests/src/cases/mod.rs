//! The cases, a file for each part of the contract.

pub mod channels;
pub mod claims;
pub mod config;
pub mod custody;
pub mod doubts;
pub mod faults;
pub mod fires;
pub mod follows;
pub mod gate;
pub mod integrations;
pub mod listings;
pub mod mailboxes;
pub mod objects;
pub mod opening;
pub mod pauses;
pub mod positions;
pub mod rebases;
pub mod sandbox_runs;
pub mod secrets;
pub mod status;
pub mod stores;
pub mod sweeps;
pub mod tenures;
