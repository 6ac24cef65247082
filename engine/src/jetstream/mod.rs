//! One connection to the broker, and JetStream's requests over it.
//!
//! A [`Jetstream`] pipelines: any number of tasks ask at once over one connection and one reply subscription, and every
//! request has a deadline of its own. Retrying a decision is not its job. A read, which changes nothing, is asked again until
//! its deadline, because a request to a leader that died is never answered; a write is sent once, and a write without an
//! answer is unknown. The making and removing of a consumer is asked again like a read: the client chose its name, so that
//! twice is the same as once.
//!
//! What it promises:
//! - An answer is the stream leader's, or that of a member which takes itself for the leader: a member cut off from its
//!   cluster does so for up to 20 seconds. What gives it away is an answer older than something this connection already
//!   knows; such an answer is not handed out. Nothing here can tell a stale answer about something never seen before.
//! - A batched read is the exception: any member answers it from its own copy, which may be behind. It is that copy at one
//!   instant, without a gap, and says how far the copy had come.
//! - A drain is one member's copy too, and not of one instant: of everything that the member held when it came to its end.
//! - A lost connection ends every request under way at once, as unknown. Without a connection nothing is sent or queued.
//! - A payload larger than the broker takes is refused before it is sent; sending it would end the connection.
//! - A dropped request leaves nothing behind, and its reply, should one come, reaches nobody else.
//!
//! A write that was handed over just before the connection went may still be sent after the reconnect. It is unknown, and
//! said to be in flight.

mod connection;
mod consumer;
mod counters;
mod deliveries;
mod desk;
mod direct;
mod drain;
mod exchange;
mod meter;
mod publish;
mod read;
mod stream;
// Open for the benches alone, which measure it without a broker.
#[doc(hidden)]
pub mod waiters;

pub use connection::{ConnectError, Jetstream, Options, Server};
pub use consumer::{Pass, Values};
pub use counters::{KINDS, Kind, Stats};
pub use deliveries::Delivery;
pub use desk::Link;
pub use direct::{Many, Record, Snapshot};
pub use drain::Drained;
pub use meter::{Cost, Meter};
pub use publish::{Tombstone, Write};
