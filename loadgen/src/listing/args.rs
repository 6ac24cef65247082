//! The listings on the command line.

use clap::Args;
use coordproto::listing::KEYS_MAX;

use super::{Churn, Params, Strategy};
use crate::cli::{Common, count};

const EXAMPLES: &str = "\
Without --url, loadgen starts NATS servers of its own and ends them with the run.

Examples:
  loadgen listing --count 20000 --brokers 1
  loadgen listing --keys 1000 --churned 100 --churn 500/s --strategy leader,quorum
  loadgen listing --keys 100000 --duration 2m";

/// Readers list one class of keys in every way there is, while writers rewrite some of them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ListingArgs {
    /// Keys that are there throughout.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count::<1, { KEYS_MAX as usize }>)]
    pub keys: usize,
    /// How many of them are rewritten all the while; all, where there are fewer.
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = count::<0, 1_000>)]
    pub churned: usize,
    /// How fast: each again as soon as it was written, or so many writes in all, like 1000/s.
    #[arg(long, value_name = "tight|RATE", default_value = "tight")]
    pub churn: Churn,
    /// Readers, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = count::<1, 1_000>)]
    pub readers: usize,
    /// Ways of listing, in turns: certified by the leader, proved by a quorum, or a pass that nothing certifies.
    #[arg(long, value_name = "WAY[,WAY]", value_enum, value_delimiter = ',', default_value = "leader,quorum,naive")]
    pub strategy: Vec<Strategy>,
    /// Listings of each way, instead of a duration.
    #[arg(long, value_name = "N", value_parser = count::<1, 100_000_000>, conflicts_with = "duration")]
    pub count: Option<usize>,
    /// What every scenario takes.
    #[command(flatten)]
    pub common: Common,
}

impl ListingArgs {
    /// The settings as the workload takes them.
    pub fn params(&self) -> Params {
        let mut strategies: Vec<Strategy> = Vec::new();
        for strategy in &self.strategy {
            if !strategies.contains(strategy) {
                strategies.push(*strategy);
            }
        }
        Params {
            keys: self.keys,
            churned: self.churned.min(self.keys),
            churn: self.churn,
            readers: self.readers,
            strategies,
            count: self.count.map(|count| count as u64),
            duration: self.common.duration,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::{parse, senseless};

    #[test]
    fn the_shipped_settings() {
        let params = parse::<ListingArgs>("").unwrap().params();
        assert_eq!((params.keys, params.churned, params.readers, params.count), (5, 3, 2, None));
        assert_eq!(params.churn, Churn::Tight);
        assert_eq!(params.strategies, [Strategy::Leader, Strategy::Quorum, Strategy::Naive]);
    }

    #[test]
    fn ways_are_named_together_or_one_by_one_and_once_each() {
        let ways = |line| parse::<ListingArgs>(line).unwrap().params().strategies;
        let expected = [Strategy::Naive, Strategy::Leader];
        assert_eq!(ways("--strategy naive,leader"), expected);
        assert_eq!(ways("--strategy naive --strategy leader --strategy naive"), expected);
    }

    #[test]
    fn no_more_keys_are_rewritten_than_there_are() {
        assert_eq!(parse::<ListingArgs>("--keys 2").unwrap().params().churned, 2);
    }

    #[test]
    fn what_makes_no_sense_names_the_input_and_the_rule() {
        senseless::<ListingArgs>(&[
            ("--keys 100001", "100001", "from 1 to 100000"),
            ("--churn 5", "`5`", "needs a period"),
            ("--strategy follower", "follower", "possible values"),
            ("--count 10 --duration 1s", "--count", "cannot be used with"),
        ]);
    }
}
