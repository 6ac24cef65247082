//! What a mix is asked to be.

use std::time::Duration;

use super::streams::streams;
use crate::fleet::Digest;
use crate::histogram::nanos;
use crate::rate::Rate;

/// From one renewal of a seat to the next; a lease lasts three of them.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);

/// Seats of a node.
const SEATS_A_NODE: usize = 100;

/// The fewest nodes: the races take two, and the brokers are three.
const NODES_MIN: usize = 3;

/// What a run is asked to be.
#[derive(Clone, Debug)]
pub struct Params {
    /// Seats in all, shared evenly among the nodes.
    pub seats: usize,
    /// Turns of each seat.
    pub turns: Rate,
    /// How long is measured.
    pub duration: Duration,
    /// What decides which seat takes which turn.
    pub seed: u64,
}

impl Params {
    /// Nodes, each with a connection of its own.
    pub fn nodes(&self) -> usize {
        self.seats.div_ceil(SEATS_A_NODE).max(NODES_MIN)
    }

    /// How long everything runs before it is measured: a heartbeat, or as long as is measured where that is shorter.
    pub fn warmup(&self) -> Duration {
        HEARTBEAT.min(self.duration)
    }

    /// A number that two runs share when they are to do the same at the same times.
    pub fn schedule_digest(&self) -> u64 {
        let mut digest = Digest::default();
        digest.add(self.seats as u64);
        digest.add(self.seed);
        digest.add(nanos(self.warmup()));
        for stream in streams(self.turns) {
            // Two rates that begin something at the same times are the same.
            digest.add(nanos(stream.in_all(self.seats, self.nodes()).offset(1_000_000_007)));
        }
        digest.0
    }
}
