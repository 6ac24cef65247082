//! What a run of charges is asked to be, and the operations that it records.

use std::time::Duration;

use crate::recorder::{Op, Recorder};

/// So many charges in a row of one way, as far as whole rounds make them.
const CHARGES_A_TURN: usize = 320;

/// What a run is asked to be.
#[derive(Clone, Debug)]
pub struct Params {
    /// How many charge at once, each number once.
    pub chargers: Vec<usize>,
    /// Nodes that they are spread over.
    pub nodes: usize,
    /// Ways of charging, each once, in the order of their turns.
    pub ways: Vec<Way>,
    /// Rounds of each way at each number of chargers; none where the duration decides.
    pub rounds: Option<u64>,
    /// How long is measured, where no rounds are given: an equal part for each number of chargers.
    pub duration: Duration,
}

impl Params {
    /// Rounds of one way in a row.
    pub(super) fn turn(chargers: usize) -> u64 {
        (CHARGES_A_TURN / chargers).max(1) as u64
    }

    /// The nodes of the largest number of chargers.
    pub(super) fn most_nodes(&self) -> usize {
        self.chargers.iter().map(|chargers| self.nodes_of(*chargers)).max().unwrap_or(1)
    }

    /// The nodes that so many chargers are spread over.
    pub(super) fn nodes_of(&self, chargers: usize) -> usize {
        self.nodes.min(chargers)
    }
}

/// A way of charging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As the engine does: charges that wait at a node are counted with one write, and nodes write in turns.
    Combined,
    /// The same, with a write for every charge.
    Uncombined,
    /// A read, a write that expects what was read, and a wait when it lost.
    Plain,
}

impl Way {
    /// All of them, in the order of their turns.
    pub const ALL: [Way; 3] = [Way::Combined, Way::Uncombined, Way::Plain];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Way::Combined => "combined",
            Way::Uncombined => "uncombined",
            Way::Plain => "plain",
        }
    }

    /// The name of its operation.
    pub(super) fn operation(self) -> &'static str {
        match self {
            Way::Combined => "charge/combined",
            Way::Uncombined => "charge/uncombined",
            Way::Plain => "charge/plain",
        }
    }
}

/// The operations that a run records: a charge, by [`Way`].
#[derive(Clone)]
pub struct Ops([Op; 3]);

impl Ops {
    /// Declares the operations to a recorder.
    pub fn declare(recorder: &mut Recorder) -> Ops {
        Ops(Way::ALL.map(|way| recorder.declare(way.operation())))
    }

    /// A charge in this way.
    pub fn charge(&self, way: Way) -> &Op {
        &self.0[way as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_about_as_many_charges_whatever_the_chargers() {
        assert_eq!([1, 32, 100, 320, 1_000].map(Params::turn), [320, 10, 3, 1, 1]);
    }
}
