//! What the store holds: one file per record family, with its codec.
//!
//! Records grow by addition only. A field that this build does not know is ignored when it reads and takes part in no
//! decision; a record that cannot be decoded is unknown, never absent.

pub mod budget;
pub mod channel;
pub mod claim;
pub mod config;
pub mod cooldown;
pub mod custody;
pub mod fire;
pub mod follow;
pub mod keyed;
pub mod lease;
pub mod ledger;
pub mod mailbox;
pub mod named;
pub mod objects;
mod pair;
pub mod position;
pub mod rate;
pub mod rebase;
pub mod seat_pause;
pub mod secret;
pub mod status;
