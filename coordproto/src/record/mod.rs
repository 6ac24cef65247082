//! What the store holds: one file per record family, with its codec.
//!
//! Records grow by addition only. A field that this build does not know is ignored when it reads and takes part in no
//! decision; a record that cannot be decoded is unknown, never absent.

pub mod channel;
pub mod config;
pub mod custody;
pub mod fire;
pub mod follow;
pub mod keyed;
pub mod lease;
pub mod mailbox;
pub mod named;
pub mod objects;
pub mod position;
pub mod rebase;
pub mod seat_pause;
pub mod secret;
pub mod status;
