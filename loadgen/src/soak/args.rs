//! The soak on the command line.

use std::time::Duration;

use clap::Args;

use crate::cli::{Common, count};
use crate::duration;
use crate::fleet::{self, heartbeat};
use crate::target::Unavailable;

use super::{Leak, Params};

const EXAMPLES: &str = "\
Whether a series rises is told from the end of the warm-up on, which is over when the memory has filled up that a fleet
of this size takes.

Examples:
  loadgen soak
  loadgen soak --seats 300 --nodes 10 --heartbeat 5s --warmup 30s --duration 90s";

/// The fleet's load, always the same, for a long time: fails when memory, files, tasks, consumers, subscriptions, messages or
/// lateness go on growing, or when the brokers' copies differ.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(mut_arg("duration", |arg| arg.default_value("30m")), mut_arg("url", |arg| arg.hide(true).value_parser(not_ours)))]
#[command(mut_arg("creds", |arg| arg.hide(true)), mut_arg("tls_ca", |arg| arg.hide(true)))]
pub struct SoakArgs {
    /// Seats in all, shared evenly among the nodes.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = count::<1, 1_000_000>)]
    pub seats: usize,
    /// Nodes, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = count::<1, 1_000>)]
    pub nodes: usize,
    /// From one renewal of a seat to the next; a lease lasts three of these.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = heartbeat)]
    pub heartbeat: Duration,
    /// Claimers that race once a second, four of them for each seat where there are so many.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = count::<1, 10_000>)]
    pub claimers: usize,
    /// How long the load runs before trends are watched.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration::parse)]
    pub warmup: Duration,
    /// What is lost on purpose, to see it found.
    #[arg(long, value_name = "WHAT[,WHAT]", value_enum, value_delimiter = ',', hide = true)]
    pub leak: Vec<Leak>,
    /// What every scenario takes.
    #[command(flatten)]
    pub common: Common,
}

impl SoakArgs {
    /// The settings as the workload takes them.
    pub fn params(&self, seed: u64) -> Params {
        let waves = (self.warmup + self.common.duration).as_secs().max(1);
        let fleet = fleet::Params {
            seats: self.seats,
            nodes: self.nodes,
            heartbeat: self.heartbeat,
            claimers: self.claimers,
            claims: self.claimers as u64 * waves,
            duration: self.common.duration,
            warmup: self.warmup,
            steady: true,
            seed,
        };
        Params { fleet, leaks: self.leak.clone() }
    }
}

fn not_ours(_: &str) -> Result<String, String> {
    Err(Unavailable::NotOurs.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::{parse, senseless};

    #[test]
    fn the_shipped_settings() {
        let Params { fleet: params, leaks } = parse::<SoakArgs>("").unwrap().params(42);
        assert_eq!(leaks, []);
        assert_eq!((params.seats, params.nodes, params.claimers, params.steady), (1_000, 20, 8, true));
        assert_eq!((params.warmup, params.duration), (Duration::from_secs(300), Duration::from_secs(1800)));
        assert_eq!(params.claims, 8 * 2100, "a wave a second");
    }

    #[test]
    fn somebody_elses_brokers_are_refused() {
        senseless::<SoakArgs>(&[("--url nats://10.0.0.1:4222", "nats://10.0.0.1:4222", "those that it starts itself")]);
    }

    #[test]
    fn a_duration_given_is_the_one_that_holds() {
        let params = parse::<SoakArgs>("--duration 90s --warmup 30s --claimers 4").unwrap().params(42).fleet;
        assert_eq!((params.duration, params.claims), (Duration::from_secs(90), 480));
    }
}
