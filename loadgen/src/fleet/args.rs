//! The fleet on the command line.

use std::time::Duration;

use clap::Args;

use super::Params;
use crate::cli::{Common, count};
use crate::duration;

const EXAMPLES: &str = "\
Without --url, loadgen starts NATS servers of its own and ends them with the run.

Examples:
  loadgen fleet
  loadgen fleet --seats 600 --nodes 6 --heartbeat 5s --duration 30s --brokers 1
  loadgen fleet --url nats://user:password@10.0.0.1:4222,nats://10.0.0.2:4222 --out report/";

/// Nodes hold seats on a heartbeat and list one another on each, claimers race for fresh seats.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct FleetArgs {
    /// Seats in all, shared evenly among the nodes.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = count::<1, 1_000_000>)]
    pub seats: usize,
    /// Nodes, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = count::<1, 1_000>)]
    pub nodes: usize,
    /// From one renewal of a seat to the next; a lease lasts three of these.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = heartbeat)]
    pub heartbeat: Duration,
    /// Claimers that race at once, at least four for each seat where there are so many.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = count::<1, 10_000>)]
    pub claimers: usize,
    /// Claims in all, in waves of one from each claimer, over the last two thirds of the duration.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = count::<1, 100_000_000>)]
    pub claims: usize,
    /// How long heartbeats run before that.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration::parse)]
    pub warmup: Duration,
    /// What every scenario takes.
    #[command(flatten)]
    pub common: Common,
}

impl FleetArgs {
    /// The settings as the workload takes them.
    pub fn params(&self, seed: u64) -> Params {
        Params {
            seats: self.seats,
            nodes: self.nodes,
            heartbeat: self.heartbeat,
            claimers: self.claimers,
            claims: self.claims as u64,
            duration: self.common.duration,
            warmup: self.warmup,
            steady: false,
            seed,
        }
    }
}

/// A heartbeat that the store can keep three of: its ages are whole milliseconds, 100 of them at least.
pub(crate) fn heartbeat(input: &str) -> Result<Duration, String> {
    let heartbeat = duration::parse(input).map_err(|error| error.to_string())?;
    if heartbeat < Duration::from_millis(100) || !heartbeat.subsec_nanos().is_multiple_of(1_000_000) {
        return Err("a whole number of milliseconds is expected, at least 100ms".to_owned());
    }
    Ok(heartbeat)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::{parse, senseless};

    #[test]
    fn the_shipped_settings() {
        let params = parse::<FleetArgs>("").unwrap().params(42);
        assert_eq!((params.seats, params.nodes, params.claimers, params.claims), (10_000, 100, 100, 10_000));
        assert_eq!(params.lease_ttl(), Duration::from_secs(45));
        assert_eq!((params.duration, params.warmup), (Duration::from_secs(60), Duration::from_secs(15)));
    }

    #[test]
    fn what_makes_no_sense_names_the_input_and_the_rule() {
        senseless::<FleetArgs>(&[
            ("--heartbeat 0s", "0s", "longer than zero"),
            ("--heartbeat 10ms", "10ms", "at least 100ms"),
            ("--heartbeat 1500us", "1500us", "whole number of milliseconds"),
            ("--seats 0", "0", "from 1 to 1000000"),
            ("--seats -1", "-1", "unexpected argument"),
            ("--nodes many", "many", "a whole number"),
        ]);
    }
}
