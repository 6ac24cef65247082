//! The floor on the command line.

use clap::{Args, ValueEnum};
use coordproto::listing::KEYS_MAX;

use super::{Params, Request};
use crate::cli::{Common, count};

const EXAMPLES: &str = "\
Without --url, loadgen starts NATS servers of its own and ends them with the run.

Examples:
  loadgen floor
  loadgen floor --request cas,leader_read --duration 24s
  loadgen floor --request two_writes,batch,counters --brokers 1";

/// Bare requests over a bare socket: what the brokers can do, whoever asks.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct FloorArgs {
    /// What is asked; all of it, when left out.
    #[arg(long, value_name = "REQUEST[,REQUEST]", value_enum, value_delimiter = ',')]
    pub request: Vec<Request>,
    /// Keys of the class that the index and the passes are about.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = count::<1, { KEYS_MAX as usize }>)]
    pub keys: usize,
    /// What every scenario takes.
    #[command(flatten)]
    pub common: Common,
}

impl FloorArgs {
    /// The settings as the workload takes them.
    pub fn params(&self) -> Params {
        let all = || Request::value_variants().to_vec();
        let requests = if self.request.is_empty() { all() } else { self.request.clone() };
        Params { requests, keys: self.keys, duration: self.common.duration }
    }
}

#[cfg(test)]
mod tests {
    use super::super::CELLS;
    use super::*;
    use crate::cli::tests::{parse, senseless};

    #[test]
    fn everything_is_asked_unless_something_is_named() {
        let cells = |line| parse::<FloorArgs>(line).unwrap().params().cells().count();
        assert_eq!(cells(""), CELLS.len());
        assert_eq!(cells("--request leader_read,two_writes,leader_read"), 9);
    }

    #[test]
    fn what_makes_no_sense_names_the_input_and_the_rule() {
        senseless::<FloorArgs>(&[("--request put", "put", "possible values"), ("--keys 0", "0", "from 1 to 100000")]);
    }
}
