//! What happens: the I/O around the decisions of `coordproto`.
//!
//! [`env`] is the only clock and randomness, [`tasks`] the only place that starts a task or a thread. [`store`] is the port
//! that every slot stands on.

pub mod env;
pub mod jetstream;
pub mod lease;
pub mod store;
pub mod tasks;
