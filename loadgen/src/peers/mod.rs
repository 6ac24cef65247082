//! `loadgen peers`: the same work on this layer, on `async_nats`'s own key-value store, on etcd with a lease for each seat and
//! with one for each node, and, as far as it is that, as bare requests.
//!
//! They have their turns at each piece of work, round after round, so that all were measured on the same machine under the same
//! load, whatever else it had to do. What is reported are medians over the rounds and how far these are apart, and the layer's
//! ratios to the others, round by round. Who begins is another in each round. The three brokers that a run starts itself and etcd's
//! three members all keep three copies and sync every write before it is acknowledged, the brokers by `sync_interval: always`,
//! etcd by its own nature; where other brokers promise something else, a report says so.
//!
//! Each is used in its natural way over one connection of each node, and the ways differ:
//!
//! - the layer renews what a node holds in one burst, a compare-and-set each. Its claims are fenced by an epoch and its listings
//!   are certified;
//! - the key-value store's user reads an entry and updates it at its revision, each seat at an instant of its own;
//! - a lease of each seat is kept alive by itself, a lease of a node for all its seats at once. No quorum writes that.
//!
//! What a user could do who knows that bursts are cheaper is measured too, where it differs (`renew_burst`), and flat out nobody
//! does anything else.
//!
//! What is wrong is counted for each, and fails no run but for this layer's own: to be fast and wrong is a result.

mod args;
mod durability;
mod etcd;
mod floor;
mod kv;
mod layer;
mod listed;
mod pace;
mod peer;
mod ratios;
mod scenario;
mod tally;
mod turns;
mod work;

use std::sync::OnceLock;
use std::time::Duration;

use engine::env::Env;

use crate::recorder::Recorder;
use crate::scenario::Parts;

pub use args::PeersArgs;

use durability::Servers;
use tally::Tally;

/// The classes that are listed. The number of keys of the last is that of the seats.
const LISTED: [&str; 3] = ["list_5", "list_100", "list_all"];

/// How often a peer that has no rule of its own takes part when others are faster.
const ATTEMPTS: u32 = 16;

/// A value, of 200 bytes.
const VALUE: &[u8] = &[b'v'; 200];

/// What a run is asked to be.
#[derive(Clone, Debug)]
pub struct Params {
    /// Seats that are claimed in a round, and keys of the largest class.
    pub seats: usize,
    /// Nodes that hold them.
    pub nodes: usize,
    /// Claimers at once.
    pub claimers: usize,
    /// The time in which every node renews once.
    pub heartbeat: Duration,
    /// How often each peer has its turn.
    pub rounds: usize,
    /// How long a piece of work is repeated that has no end of its own.
    pub slice: Duration,
    /// Clients that charge at once.
    pub charges: usize,
}

impl Params {
    /// How many keys a class has.
    fn keys(&self, class: &str) -> usize {
        match class {
            "list_5" => 5,
            "list_100" => 100,
            _ => self.seats,
        }
    }

    /// The TTL of the leases: long enough that none ends between two turns of a peer on a busy machine. There are six turns of a
    /// heartbeat each, and between claims and renewals those of the others.
    fn ttl(&self) -> Duration {
        self.heartbeat * 8 + Duration::from_secs(60)
    }
}

/// A run over all peers.
pub struct Peers {
    env: Env,
    params: Params,
    prefix: String,
    replicas: u8,
    recorder: Recorder,
    tally: Tally,
    parts: Parts,
    /// Known once all are open.
    servers: OnceLock<Servers>,
}

/// What went wrong, in words.
fn failed(error: impl std::fmt::Display) -> peer::Failed {
    error.to_string()
}
