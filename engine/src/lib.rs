//! What happens: the I/O around the decisions of `coordproto`.
//!
//! From the outside in:
//!
//! - [`lease`]: who runs what, with a fencing token. Most callers need this and [`store`] alone.
//! - [`slots`]: the other records, a file for each.
//! - [`store`]: the port that every record stands on, over NATS or in memory, and its decorators.
//! - [`jetstream`]: the client layer over one connection: typed requests, deadlines, and what an answer may be believed to say.
//! - [`broker`]: a real nats-server, found or provisioned, configured, supervised and clustered.
//! - [`mod@env`] and [`tasks`]: the only clock and randomness, and the only place that starts a task or a thread.
//! - [`hangup`]: whether a terminal that goes away ends the process.
//!
//! An answer is a value or [`Unknown`](coordproto::answer::Unknown), which says whether a write may still land. Nothing here
//! turns one into a "no". A future that is dropped has sent what it had sent: a claim gives that back in the background, and
//! everything else says in its own documentation what may still happen.

pub mod broker;
pub mod env;
pub mod hangup;
pub mod jetstream;
pub mod lease;
#[cfg(test)]
mod logged;
pub mod slots;
pub mod store;
pub mod tasks;
