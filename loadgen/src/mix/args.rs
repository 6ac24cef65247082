//! The mix on the command line.

use clap::Args;

use super::Params;
use crate::cli::{Common, count};
use crate::rate::Rate;

const EXAMPLES: &str = "\
Without --url, loadgen starts NATS servers of its own and ends them with the run.

Examples:
  loadgen mix
  loadgen mix --seats 200 --duration 10s
  loadgen mix --turns 1/m --duration 2m";

/// A fleet does all that it does, every family of records in its proportion, and every answer is checked.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct MixArgs {
    /// Seats in all, a hundred on each node, each node with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = count::<1, 100_000>)]
    pub seats: usize,
    /// How often each seat takes a turn: once in five minutes is 1/5m.
    #[arg(long, value_name = "RATE", default_value = "1/5m")]
    pub turns: Rate,
    /// What every scenario takes.
    #[command(flatten)]
    pub common: Common,
}

impl MixArgs {
    /// The settings as the workload takes them.
    pub fn params(&self, seed: u64) -> Params {
        Params { seats: self.seats, turns: self.turns, duration: self.common.duration, seed }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cli::tests::{parse, senseless};

    #[test]
    fn the_shipped_settings() {
        let params = parse::<MixArgs>("").unwrap().params(42);
        assert_eq!((params.seats, params.nodes(), params.turns.to_string()), (10_000, 100, "1/5m".to_owned()));
        assert_eq!(params.warmup(), Duration::from_secs(15));
        let few = parse::<MixArgs>("--seats 20 --duration 4s").unwrap().params(42);
        assert_eq!((few.nodes(), few.warmup()), (3, Duration::from_secs(4)));
    }

    #[test]
    fn the_same_settings_give_the_same_schedule_and_others_another() {
        let digest = |line, seed| parse::<MixArgs>(line).unwrap().params(seed).schedule_digest();
        assert_eq!(digest("", 42), digest("--turns 12/1h", 42));
        assert!(digest("", 42) != digest("", 43) && digest("", 42) != digest("--turns 1/m", 42));
    }

    #[test]
    fn what_makes_no_sense_names_the_input_and_the_rule() {
        senseless::<MixArgs>(&[
            ("--seats 100001", "100001", "from 1 to 100000"),
            ("--turns 5", "`5`", "needs a period"),
            ("--turns 0/m", "`0/m`", "whole number from 1"),
        ]);
    }
}
