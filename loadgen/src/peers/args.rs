//! The peers on the command line.

use std::time::Duration;

use clap::Args;

use super::Params;
use super::turns::TURNS;
use crate::cli::{Common, count};
use crate::duration;

const EXAMPLES: &str = "\
NATS servers are started as for any scenario; etcd is, where it is found in PATH, and is left out where not.

Examples:
  loadgen peers
  loadgen peers --seats 1000 --nodes 20 --rounds 1 --heartbeat 3s";

/// The same work on this layer, on the client library's own key-value store, on etcd and as bare requests, in turns.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PeersArgs {
    /// Seats that are claimed, and renewed.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = count::<1, 100_000>)]
    pub seats: usize,
    /// Nodes that hold them, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = count::<1, 1_000>)]
    pub nodes: usize,
    /// Claimers at once.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = count::<1, 10_000>)]
    pub claimers: usize,
    /// The time in which every node renews once what it holds.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration::parse)]
    pub heartbeat: Duration,
    /// How often each peer has its turn at everything.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = count::<1, 100>)]
    pub rounds: usize,
    /// What every scenario takes; the duration is shared by what is repeated until its time is over.
    #[command(flatten)]
    pub common: Common,
}

impl PeersArgs {
    /// The settings as the workload takes them.
    pub fn params(&self) -> Params {
        let repeated = TURNS.iter().filter(|turn| turn.work.is_repeated()).count() * self.rounds;
        Params {
            seats: self.seats,
            nodes: self.nodes,
            claimers: self.claimers,
            heartbeat: self.heartbeat,
            rounds: self.rounds,
            slice: self.common.duration / u32::try_from(repeated).unwrap_or(u32::MAX),
            charges: 32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::parse;

    #[test]
    fn the_time_is_shared_by_all_that_is_repeated() {
        let params = parse::<PeersArgs>("--rounds 2 --duration 78s").unwrap().params();
        assert_eq!((params.slice, params.seats, params.claimers), (Duration::from_secs(1), 10_000, 100));
    }
}
