//! What happens: the I/O around the decisions of `coordproto`.
//!
//! [`env`] is the only clock and randomness, [`tasks`] the only place that starts a task or a thread.

pub mod broker;
pub mod env;
pub mod tasks;
