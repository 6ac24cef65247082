//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use engine::broker::Tls;

use crate::budgets::BudgetsArgs;
use crate::compare::CompareArgs;
use crate::duration;
use crate::fleet::FleetArgs;
use crate::floor::FloorArgs;
use crate::listing::ListingArgs;
use crate::mix::MixArgs;
use crate::slo::Slo;
use crate::soak::SoakArgs;
use crate::target::Asked;

/// Puts load on the coordination store, and checks that every answer is right while it is loaded.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = EXITS)]
pub struct Cli {
    /// What to run.
    #[command(subcommand)]
    pub command: Command,
}

const EXITS: &str = "\
Exit codes:
  0    no anomaly
  1    an anomaly was found, or loadgen itself failed
  2    the command line makes no sense, or names a file that cannot be read
  3    a service level was missed, something grows in a soak, or something is worse than the baseline where that was to fail
  4    no brokers: not started, not reached, or no seat or key came up for a minute; or a baseline of another kind
  130  interrupted (143: terminated), no anomaly; the report says how far the run got";

/// What can be run.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[expect(missing_docs, reason = "its settings say what it is")]
    Fleet(FleetArgs),
    #[expect(missing_docs, reason = "its settings say what it is")]
    Listing(ListingArgs),
    #[expect(missing_docs, reason = "its settings say what it is")]
    Mix(MixArgs),
    #[expect(missing_docs, reason = "its settings say what it is")]
    Budgets(BudgetsArgs),
    #[expect(missing_docs, reason = "its settings say what it is")]
    Floor(FloorArgs),
    #[cfg(feature = "peers")]
    #[expect(missing_docs, reason = "its settings say what it is")]
    Peers(crate::peers::PeersArgs),
    #[expect(missing_docs, reason = "its settings say what it is")]
    Soak(SoakArgs),
    #[expect(missing_docs, reason = "its settings say what it is")]
    Compare(CompareArgs),
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
    /// What all randomness is drawn from; the baseline's, or one that is drawn and printed, when it is left out.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Where report.json and the latency distributions (*.hgrm) are written.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Holds its operations against bare requests, made when it is over, for two seconds each.
    #[arg(long, conflicts_with_all = ["creds", "tls_ca"])]
    pub floor: bool,
    /// What is printed on stdout when the run is over: a table, or report.json.
    #[arg(long, value_name = "text|json", value_enum, hide_possible_values = true, default_value_t = Output::Text)]
    pub output: Output,
    /// A service level to keep to, like renew.p99<20ms or claim.unknown<0.1%; may be given several times.
    #[arg(long, value_name = "OP.FIGURE<BOUND")]
    pub slo: Vec<Slo>,
    /// The report.json of an earlier run, to compare this one with when it is over.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Ends with status 3 when something is worse than the baseline.
    #[arg(long, requires = "baseline")]
    pub fail_on_regression: bool,
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

/// A number within bounds.
pub(crate) fn count<const LEAST: usize, const MOST: usize>(input: &str) -> Result<usize, String> {
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
pub(crate) mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    struct Line<A: Args> {
        #[command(flatten)]
        args: A,
    }

    /// The settings that this line gives.
    pub(crate) fn parse<A: Args>(line: &str) -> Result<A, String> {
        let words = line.split(' ').filter(|word| !word.is_empty());
        let line = Line::try_parse_from(["loadgen"].into_iter().chain(words)).map_err(|error| error.to_string())?;
        Ok(line.args)
    }

    /// That each of these lines is refused, and its error names the input and the rule.
    #[track_caller]
    pub(crate) fn senseless<A: Args + std::fmt::Debug>(lines: &[(&str, &str, &str)]) {
        for (line, input, rule) in lines {
            let error = parse::<A>(line).unwrap_err();
            assert!(error.contains(input) && error.contains(rule), "{line}: {error}");
        }
    }

    #[test]
    fn three_brokers_are_started_unless_others_are_named() {
        let asked = |line| parse::<Common>(line).unwrap().asked();
        assert!(matches!(asked(""), Asked::Embedded(3)));
        assert!(matches!(asked("--url nats://127.0.0.1:4222"), Asked::External { .. }));
    }

    #[test]
    fn what_makes_no_sense_names_the_input_and_the_rule() {
        senseless::<Common>(&[
            ("--duration 30", "30", "unit"),
            ("--brokers 2", "2", "1, 3 or 5"),
            ("--url nats://127.0.0.1:4222 --brokers 3", "--brokers", "cannot be used with"),
            ("--creds x.creds", "--url", "required"),
            ("--url nats://a --creds x.creds --floor", "--floor", "cannot be used with"),
            ("--output yaml", "yaml", "possible values"),
            ("--slo renew.p99<20", "`renew.p99<20`", "needs a unit"),
            ("--slo renew.p98<20ms", "`renew.p98<20ms`", "p50, p90"),
            ("--fail-on-regression", "--baseline", "required"),
        ]);
    }
}
