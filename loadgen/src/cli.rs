//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use engine::broker::Tls;

use crate::duration;
use crate::fleet::Params;
use crate::target::Asked;

/// Puts load on the coordination store, and checks that every answer is right while it is loaded.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = EXITS)]
pub struct Cli {
    /// What to run.
    #[command(subcommand)]
    pub scenario: Scenario,
}

const EXITS: &str = "\
Exit codes:
  0    no anomaly
  1    an anomaly was found, or loadgen itself failed
  2    the command line makes no sense, or names a file that cannot be read
  4    no brokers: not started, not reached, or no seat came up for a minute
  130  interrupted (143: terminated), no anomaly; the report says how far the run got";

const FLEET: &str = "\
Without --url, loadgen starts NATS servers of its own and ends them with the run.

Examples:
  loadgen fleet
  loadgen fleet --seats 600 --nodes 6 --heartbeat 5s --duration 30s --brokers 1
  loadgen fleet --url nats://user:password@10.0.0.1:4222,nats://10.0.0.2:4222 --out report/";

/// What can be run.
#[derive(Debug, Subcommand)]
pub enum Scenario {
    /// Nodes hold seats on a heartbeat, claimers race for fresh seats, a watcher lists the nodes.
    #[command(after_help = FLEET)]
    Fleet(FleetArgs),
}

/// The fleet's settings.
#[derive(Debug, Args)]
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
            seed,
        }
    }
}

/// What every scenario takes.
#[derive(Debug, Args)]
pub struct Common {
    /// How long is measured: a number with its unit, like 90s or 1m30s.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    pub duration: Duration,
    /// NATS servers to start: 1, 3 or 5.
    #[arg(long, value_name = "N", default_value = "3", value_parser = brokers, conflicts_with = "url")]
    pub brokers: u8,
    /// A NATS that runs already, instead: its addresses, separated by commas.
    #[arg(long, value_name = "URL[,URL]")]
    pub url: Option<String>,
    /// The credentials file for that NATS.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub creds: Option<PathBuf>,
    /// The certificate authorities (PEM) that it is checked against; without TLS it is then refused.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub tls_ca: Option<PathBuf>,
    /// What all randomness is drawn from; one is drawn, and printed, when it is left out.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Where report.json and the latency distributions (*.hgrm) are written.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What is printed on stdout when the run is over: a table, or report.json.
    #[arg(long, value_name = "text|json", value_enum, hide_possible_values = true, default_value_t = Output::Text)]
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

/// A heartbeat that the store can keep three of: its ages are whole milliseconds, 100 of them at least.
fn heartbeat(input: &str) -> Result<Duration, String> {
    let heartbeat = duration::parse(input).map_err(|error| error.to_string())?;
    if heartbeat < Duration::from_millis(100) || !heartbeat.subsec_nanos().is_multiple_of(1_000_000) {
        return Err("a whole number of milliseconds is expected, at least 100ms".to_owned());
    }
    Ok(heartbeat)
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
        let params = args.params(42);
        assert_eq!((params.seats, params.nodes, params.claimers, params.claims), (10_000, 100, 100, 10_000));
        assert_eq!(params.lease_ttl(), Duration::from_secs(45));
        assert_eq!((params.duration, params.warmup), (Duration::from_secs(60), Duration::from_secs(15)));
        assert!(matches!(args.common.asked(), Asked::Embedded(3)));
    }

    #[test]
    fn what_makes_no_sense_names_the_input_and_the_rule() {
        for (line, input, rule) in [
            ("--duration 30", "30", "unit"),
            ("--heartbeat 0s", "0s", "longer than zero"),
            ("--heartbeat 10ms", "10ms", "at least 100ms"),
            ("--heartbeat 1500us", "1500us", "whole number of milliseconds"),
            ("--brokers 2", "2", "1, 3 or 5"),
            ("--seats 0", "0", "from 1 to 1000000"),
            ("--seats -1", "-1", "unexpected argument"),
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
