//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use engine::broker::Tls;

use crate::duration;
use crate::fleet::Params;
use crate::target::Asked;

/// Load against the coordination store, and whether its answers were right.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub struct Cli {
    /// What to run.
    #[command(subcommand)]
    pub scenario: Scenario,
}

/// What can be run.
#[derive(Debug, Subcommand)]
pub enum Scenario {
    /// Nodes hold seats on a heartbeat, while claimers race for fresh ones and a watcher lists the membership.
    Fleet(FleetArgs),
}

/// The fleet's settings.
#[derive(Debug, Args)]
pub struct FleetArgs {
    /// Seats in all, shared evenly among the nodes.
    #[arg(long, default_value_t = 10_000, value_parser = count::<1, 1_000_000>)]
    pub seats: usize,
    /// Nodes, each with a connection of its own.
    #[arg(long, default_value_t = 100, value_parser = count::<1, 1_000>)]
    pub nodes: usize,
    /// From one renewal of a seat to the next; a lease lasts three of them.
    #[arg(long, default_value = "15s", value_parser = duration::parse)]
    pub heartbeat: Duration,
    /// Claimers racing at once.
    #[arg(long, default_value_t = 100, value_parser = count::<1, 10_000>)]
    pub claimers: usize,
    /// Claims of contested seats, in all.
    #[arg(long, default_value_t = 10_000, value_parser = count::<1, 100_000_000>)]
    pub claims: usize,
    /// How long heartbeats run before measuring.
    #[arg(long, default_value = "15s", value_parser = duration::parse)]
    pub warmup: Duration,
    /// What every scenario takes.
    #[command(flatten)]
    pub common: Common,
}

impl FleetArgs {
    /// The settings as the workload takes them.
    pub fn params(&self) -> Params {
        Params {
            seats: self.seats,
            nodes: self.nodes,
            heartbeat: self.heartbeat,
            claimers: self.claimers,
            claims: self.claims as u64,
            duration: self.common.duration,
            warmup: self.warmup,
        }
    }
}

/// What every scenario takes.
#[derive(Debug, Args)]
pub struct Common {
    /// How long is measured.
    #[arg(long, default_value = "60s", value_parser = duration::parse)]
    pub duration: Duration,
    /// Embedded brokers.
    #[arg(long, default_value = "3", value_parser = brokers, conflicts_with = "url")]
    pub brokers: u8,
    /// An external NATS instead: its addresses, separated by commas.
    #[arg(long, value_name = "URL[,URL]")]
    pub url: Option<String>,
    /// The credentials file for the external NATS.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub creds: Option<PathBuf>,
    /// The certificate authorities that the external NATS is checked against.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub tls_ca: Option<PathBuf>,
    /// What all randomness is drawn from; without it, a seed of its own that the report names.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Where report.json and the latency distributions are written.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What is printed when the run is over.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

impl Common {
    /// The brokers asked for.
    pub fn asked(&self) -> Asked {
        match &self.url {
            None => Asked::Embedded(self.brokers),
            Some(urls) => Asked::External {
                urls: urls.clone(),
                credentials: self.creds.clone(),
                tls: Tls { ca: self.tls_ca.clone(), ..Tls::default() },
            },
        }
    }
}

/// What is printed when the run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table.
    Text,
    /// The report.
    Json,
}

fn count<const LEAST: usize, const MOST: usize>(input: &str) -> Result<usize, String> {
    let rule = || format!("a whole number from {LEAST} to {MOST} is expected");
    let number: usize = input.parse().map_err(|_| rule())?;
    if (LEAST..=MOST).contains(&number) { Ok(number) } else { Err(rule()) }
}

fn brokers(input: &str) -> Result<u8, String> {
    match input {
        "1" => Ok(1),
        "3" => Ok(3),
        "5" => Ok(5),
        _ => Err("1, 3 or 5: an even number survives no more than the odd one below it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<FleetArgs, String> {
        let words = line.split(' ').filter(|word| !word.is_empty());
        let Cli { scenario: Scenario::Fleet(args) } =
            Cli::try_parse_from(["loadgen", "fleet"].into_iter().chain(words)).map_err(|error| error.to_string())?;
        Ok(args)
    }

    #[test]
    fn the_shipped_settings() {
        let args = parse("").unwrap();
        let params = args.params();
        assert_eq!((params.seats, params.nodes, params.claimers, params.claims), (10_000, 100, 100, 10_000));
        assert_eq!(params.lease_ttl(), Duration::from_secs(45));
        assert_eq!((params.duration, params.warmup), (Duration::from_secs(60), Duration::from_secs(15)));
        assert!(matches!(args.common.asked(), Asked::Embedded(3)));
    }

    #[test]
    fn what_makes_no_sense_names_the_input_and_the_rule() {
        for (line, input, rule) in [
            ("--duration 30", "30", "unit"),
            ("--heartbeat 0s", "0s", ""),
            ("--brokers 2", "2", "1, 3 or 5"),
            ("--seats 0", "0", "from 1 to 1000000"),
            ("--seats -1", "-1", ""),
            ("--nodes many", "many", "a whole number"),
            ("--url nats://127.0.0.1:4222 --brokers 3", "--brokers", "cannot be used with"),
            ("--creds x.creds", "--url", "required"),
            ("--output yaml", "yaml", "possible values"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(input) && error.contains(rule), "{line}: {error}");
        }
    }
}
