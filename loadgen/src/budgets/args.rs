//! The charges on the command line.

use clap::{Args, ValueEnum};

use super::{Params, Way};
use crate::cli::{Common, count};

/// The most chargers at once.
const CHARGERS_MAX: usize = 5_000;

const EXAMPLES: &str = "\
Without --url, loadgen starts NATS servers of its own and ends them with the run.

Examples:
  loadgen budgets --rounds 20
  loadgen budgets --chargers 32 --nodes 32 --rounds 1000 --plain
  loadgen budgets --chargers 1000 --combine on --brokers 1 --duration 2m";

/// Chargers charge one company at once, over and over, with charges that wait counted together and one by one.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BudgetsArgs {
    /// How many charge at once; several numbers have their turns one after another.
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_value = "32,100,1000", value_parser = chargers)]
    pub chargers: Vec<usize>,
    /// Nodes that they are spread over, each with a connection and a seat of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count::<1, 1_000>)]
    pub nodes: usize,
    /// Whether a node counts charges that wait together: on, off, or in turns.
    #[arg(long, value_name = "on|off|both", value_enum, hide_possible_values = true, default_value_t = Combine::Both)]
    pub combine: Combine,
    /// Takes turns with a loop that only reads, writes, and waits 1 ms doubling to 32 ms when it lost.
    #[arg(long)]
    pub plain: bool,
    /// Rounds in each way, in which every charger charges once; instead of a duration.
    #[arg(long, value_name = "N", value_parser = count::<1, 100_000_000>, conflicts_with = "duration")]
    pub rounds: Option<usize>,
    /// What every scenario takes.
    #[command(flatten)]
    pub common: Common,
}

/// Whether charges that wait at one node are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Combine {
    /// Always.
    On,
    /// Never.
    Off,
    /// In turns.
    Both,
}

fn chargers(input: &str) -> Result<usize, String> {
    count::<1, CHARGERS_MAX>(input)
}

impl BudgetsArgs {
    /// The settings as the workload takes them.
    pub fn params(&self) -> Params {
        let mut chargers: Vec<usize> = Vec::new();
        for number in &self.chargers {
            if !chargers.contains(number) {
                chargers.push(*number);
            }
        }
        let asked = |way: &Way| match way {
            Way::Combined => self.combine != Combine::Off,
            Way::Uncombined => self.combine != Combine::On,
            Way::Plain => self.plain,
        };
        Params {
            chargers,
            nodes: self.nodes,
            ways: Way::ALL.into_iter().filter(asked).collect(),
            rounds: self.rounds.map(|rounds| rounds as u64),
            duration: self.common.duration,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::{parse, senseless};

    fn params(line: &str) -> Params {
        parse::<BudgetsArgs>(line).unwrap().params()
    }

    #[test]
    fn the_shipped_settings() {
        let shipped = params("");
        assert_eq!((shipped.chargers, shipped.nodes, shipped.rounds), (vec![32, 100, 1_000], 1, None));
        assert_eq!(shipped.ways, [Way::Combined, Way::Uncombined]);
    }

    #[test]
    fn the_ways_asked_for_are_taken_in_one_order_and_numbers_once_each() {
        assert_eq!(params("--combine on").ways, [Way::Combined]);
        assert_eq!(params("--plain --combine off").ways, [Way::Uncombined, Way::Plain]);
        assert_eq!(params("--chargers 32,5,32").chargers, [32, 5]);
    }

    #[test]
    fn what_makes_no_sense_names_the_input_and_the_rule() {
        senseless::<BudgetsArgs>(&[
            ("--chargers 32,0", "'0'", "from 1 to 5000"),
            ("--combine maybe", "maybe", "possible values"),
            ("--rounds 10 --duration 1s", "--rounds", "cannot be used with"),
        ]);
    }
}
