//! What the store holds: one file per record family, with its codec.
//!
//! Records grow by addition only. A field that this build does not know is ignored when it reads and takes part in no
//! decision; a record that cannot be decoded is unknown, never absent.

pub mod budget;
pub mod lease;
pub mod seat_pause;
