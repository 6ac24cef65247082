//! What is true: the decisions of the coordination layer, as functions of values.
//!
//! Nothing here waits, reads a clock or touches a socket. `engine` does the I/O around these decisions.

pub mod answer;
pub mod api;
pub mod key;
pub mod lease;
pub mod listing;
pub mod record;
pub mod slot;
