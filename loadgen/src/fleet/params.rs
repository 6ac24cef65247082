//! What a fleet run is asked to be, and the operations that it records.

use std::time::Duration;

use super::plan::Plan;
use crate::recorder::{Op, Recorder};

/// What a run is asked to be.
#[derive(Clone, Debug)]
pub struct Params {
    /// Seats in all, shared evenly among the nodes.
    pub seats: usize,
    /// Nodes, each with a connection of its own.
    pub nodes: usize,
    /// From one renewal of a seat to the next; a lease lasts three of them.
    pub heartbeat: Duration,
    /// Claimers racing at once.
    pub claimers: usize,
    /// Claims in the contest, in all.
    pub claims: u64,
    /// How long is measured.
    pub duration: Duration,
    /// How long heartbeats run before that.
    pub warmup: Duration,
    /// Whether it is the same all the time, so that what grows is not the load: claims go on from the warm-up to the end, for
    /// seats that were given back. Otherwise they take the last two thirds of the duration, for fresh seats.
    pub steady: bool,
    /// What decides who races whom.
    pub seed: u64,
}

impl Params {
    /// The TTL of the leases.
    pub fn lease_ttl(&self) -> Duration {
        self.heartbeat * 3
    }

    /// How long after the bring-up the claims begin.
    pub(super) fn contest_after(&self) -> Duration {
        if self.steady { Duration::ZERO } else { self.warmup + self.duration / 3 }
    }

    /// How long the claims go on.
    pub(super) fn contest_lasts(&self) -> Duration {
        self.warmup + self.duration - self.contest_after()
    }

    /// A number that two runs share when they are to do the same at the same times.
    pub fn schedule_digest(&self) -> u64 {
        Plan::new(self).digest()
    }
}

/// The operations of the nodes that hold seats.
#[derive(Clone)]
pub struct Ops {
    /// A seat's renewal on the heartbeat.
    pub renew: Op,
    /// A renewal asked again because its answer was unknown.
    pub renew_retry: Op,
    /// A presence's renewal with the node's status.
    pub presence: Op,
    /// A node's claim of what it is to hold.
    pub sweep: Op,
    /// The watcher's listing of the membership, certified by the leader.
    pub by_leader: Op,
    /// A node's listing of the membership on its heartbeat, proved by its presence.
    pub by_quorum: Op,
}

impl Ops {
    /// Declares the operations to a recorder.
    pub fn declare(recorder: &mut Recorder) -> Ops {
        Ops {
            renew: recorder.declare("renew"),
            renew_retry: recorder.declare("renew_retry"),
            presence: recorder.declare("presence"),
            sweep: recorder.declare("sweep"),
            by_leader: recorder.declare("membership/leader"),
            by_quorum: recorder.declare("membership/quorum"),
        }
    }
}

/// The operations of a contest.
#[derive(Clone)]
pub struct ContestOps {
    /// A claimer's claim of a contested seat.
    pub claim: Op,
    /// The release of a contested seat.
    pub release: Op,
    /// The reading that checks a contest.
    pub get: Op,
}

impl ContestOps {
    /// Declares the operations to a recorder.
    pub fn declare(recorder: &mut Recorder) -> ContestOps {
        ContestOps {
            claim: recorder.declare("claim"),
            release: recorder.declare("release"),
            get: recorder.declare("get"),
        }
    }
}
