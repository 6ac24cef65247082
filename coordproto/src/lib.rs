//! What is true: the decisions of the coordination layer, as functions of values.
//!
//! Nothing here waits, reads a clock or touches a socket. `engine` does the I/O around these decisions, and adds none.
//!
//! - [`answer`]: yes, no and unknown, and whether an unknown write may still land.
//! - [`key`]: names and the keys they become, byte for byte and both ways.
//! - [`slot`]: the one table of buckets, and how long each remembers.
//! - [`record`]: what stands under a key.
//! - [`lease`]: whether a lease is held, whose it is, and what a claim does next.
//! - [`listing`]: what has to be read again before a listing may be called complete.
//! - [`window`]: the calendar windows of a token budget, cut on a company's clock.
//! - [`tally`]: what a charge does to a budget record, and whether it is admitted.
//! - [`api`]: JetStream's requests and answers, and the one table from error codes to the three answers.
//!
//! Everything takes the time, the record and the reply as arguments, so a decision is tested by calling it.

pub mod answer;
pub mod api;
pub mod key;
pub mod lease;
pub mod listing;
pub mod record;
pub mod slot;
pub mod tally;
pub mod window;
