//! Who does what: the pieces of work in their order, and the columns that take a turn at each.

use std::sync::LazyLock;

use Column::{EtcdNodes, EtcdSeats, Floor, Kv, Layer};

/// What is measured beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// This layer.
    Layer,
    /// The client library's key-value store.
    Kv,
    /// etcd with a lease for each seat.
    EtcdSeats,
    /// etcd with a lease for each node.
    EtcdNodes,
    /// Bare requests.
    Floor,
}

impl Column {
    /// Those that the layer is held against, in the order in which they are named.
    pub(super) const OTHERS: [Column; 4] = [Floor, Kv, EtcdSeats, EtcdNodes];

    /// As reports have it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Layer => "layer",
            Kv => "kv",
            EtcdSeats => "etcd_seats",
            EtcdNodes => "etcd_nodes",
            Floor => "floor",
        }
    }

    /// Whether etcd's members serve it, and not the brokers.
    pub(super) fn is_etcd(self) -> bool {
        matches!(self, EtcdSeats | EtcdNodes)
    }
}

/// How renewals are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// Once within a heartbeat, as a user of the peer would.
    Natural,
    /// The same, but by who knows that a node's renewals are cheaper together, and at which revision each stands.
    Bursts,
    /// Those bursts again and again.
    FlatOut,
}

/// How a class is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// While nothing is written.
    Quiet,
    /// While some of its keys are rewritten.
    Churned,
    /// While nothing is written, standing on a write that a quorum has acknowledged before.
    Proved,
}

/// What is done in a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Fresh seats are claimed, and are held from then on.
    Claim,
    /// A tenth as many are claimed, and each is read back.
    ClaimAndRead,
    /// Nothing.
    Idle,
    Renew(Renewal),
    /// A class by its name is listed.
    List(&'static str, Listing),
    Charge,
}

/// The figure by which peers are held against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// What was done in a second.
    Rate,
    /// What half of it took at most.
    Median,
    /// The CPU of the servers.
    Cpu,
}

impl Figure {
    /// As reports have it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Figure::Rate => "per_second",
            Figure::Median => "p50_ns",
            Figure::Cpu => "servers_cpu_percent",
        }
    }
}

/// A piece of work.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) does: Does,
    /// Who takes a turn at it, in the order of the first round.
    pub(super) columns: &'static [Column],
}

impl Work {
    /// Whether it is repeated until its share of the time is over, and has no end of its own.
    pub(super) fn is_repeated(&self) -> bool {
        matches!(self.does, Does::Renew(Renewal::FlatOut) | Does::List(..) | Does::Charge)
    }

    /// By which figure the layer is held against the others, and its own turn and theirs as far as that is another work: a
    /// peer's bursts are held against what is the layer's natural way, and the layer's proved listings against the only ones
    /// that the others have.
    pub(super) fn contest(&self) -> Option<(Figure, &'static str, &'static str)> {
        match self.does {
            Does::Idle => None,
            Does::Claim | Does::ClaimAndRead | Does::Charge | Does::Renew(Renewal::FlatOut) => {
                Some((Figure::Rate, self.name, self.name))
            }
            Does::Renew(_) => Some((Figure::Cpu, "renew_paced", self.name)),
            Does::List(class, Listing::Proved) => Some((Figure::Median, self.name, class)),
            Does::List(..) => Some((Figure::Median, self.name, self.name)),
        }
    }
}

const PEERS: &[Column] = &[Layer, Kv, EtcdSeats, EtcdNodes];
const ALL: &[Column] = &[Layer, Kv, EtcdSeats, EtcdNodes, Floor];

const fn work(name: &'static str, does: Does, columns: &'static [Column]) -> Work {
    Work { name, does, columns }
}

/// The pieces of work, in order.
pub(super) static WORKS: [Work; 16] = [
    work("claim", Does::Claim, ALL),
    work("claim_read", Does::ClaimAndRead, PEERS),
    work("idle", Does::Idle, PEERS),
    work("renew_paced", Does::Renew(Renewal::Natural), PEERS),
    work("renew_burst", Does::Renew(Renewal::Bursts), &[Kv, EtcdSeats]),
    work("renew_flat", Does::Renew(Renewal::FlatOut), ALL),
    work("list_5", Does::List("list_5", Listing::Quiet), ALL),
    work("list_5_proved", Does::List("list_5", Listing::Proved), &[Layer]),
    work("list_5_churn", Does::List("list_5", Listing::Churned), PEERS),
    work("list_100", Does::List("list_100", Listing::Quiet), ALL),
    work("list_100_proved", Does::List("list_100", Listing::Proved), &[Layer]),
    work("list_100_churn", Does::List("list_100", Listing::Churned), PEERS),
    work("list_all", Does::List("list_all", Listing::Quiet), ALL),
    work("list_all_proved", Does::List("list_all", Listing::Proved), &[Layer]),
    work("list_all_churn", Does::List("list_all", Listing::Churned), PEERS),
    work("charge", Does::Charge, PEERS),
];

/// A column's turn at a piece of work.
#[derive(Debug)]
pub(super) struct Turn {
    /// `<work>/<column>`.
    pub(super) name: &'static str,
    pub(super) work: &'static Work,
    pub(super) column: Column,
}

/// The turns, work by work. Their names last as long as the process, since parts and operations are named after them.
pub(super) static TURNS: LazyLock<Vec<Turn>> = LazyLock::new(|| {
    let of = |work: &'static Work| work.columns.iter().map(move |column| (work, *column));
    let named = |(work, column): (&'static Work, Column)| {
        let name = format!("{}/{}", work.name, column.name());
        Turn { name: name.leak(), work, column }
    };
    WORKS.iter().flat_map(of).map(named).collect()
});

/// The turns of a round, by its number, of the columns that are there. At each work another column begins than in the round
/// before, and the rest follow in their order: what it is worth to come first, or after a certain other, is not always the same
/// one's.
pub(super) fn of_round(round: usize, there: impl Fn(Column) -> bool) -> Vec<&'static Turn> {
    let of_work = |turns: &'static [Turn]| {
        let mut turns: Vec<&Turn> = turns.iter().filter(|turn| there(turn.column)).collect();
        let first = round % turns.len().max(1);
        turns.rotate_left(first);
        turns
    };
    TURNS.chunk_by(|turn, next| turn.work == next.work).flat_map(of_work).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_turn_has_a_name_of_its_own() {
        let names: HashSet<&str> = TURNS.iter().map(|turn| turn.name).collect();
        assert_eq!(names.len(), TURNS.len());
        let has = |name| names.contains(name);
        assert!(has("renew_burst/kv") && !has("renew_burst/layer"), "who renews in bursts anyway has no second turn");
        assert!(has("list_5_proved/layer") && !has("list_5_proved/kv") && has("list_all/floor"));
    }

    #[test]
    fn another_column_begins_in_each_round_and_each_has_its_turn() {
        let order = |round: usize, of: &str, there: fn(Column) -> bool| -> Vec<Column> {
            let turns = of_round(round, there).into_iter();
            turns.filter(|turn| turn.work.name == of).map(|turn| turn.column).collect()
        };
        let all = |_| true;
        assert_eq!(order(0, "claim", all), [Layer, Kv, EtcdSeats, EtcdNodes, Floor]);
        assert_eq!(order(1, "claim", all), [Kv, EtcdSeats, EtcdNodes, Floor, Layer]);
        assert_eq!(order(4, "claim", all), [Floor, Layer, Kv, EtcdSeats, EtcdNodes]);
        assert_eq!(order(5, "claim", all), order(0, "claim", all));
        assert_eq!(order(1, "renew_burst", all), [EtcdSeats, Kv]);
        let first = |round| order(round, "claim", |column| !column.is_etcd())[0];
        assert_eq!([0, 1, 2, 3].map(first), [Layer, Kv, Floor, Layer], "who is not there never begins");
        assert_eq!(order(7, "list_5_proved", |column| column != Layer), []);
        let works = |turns: Vec<&Turn>| {
            turns.chunk_by(|a, b| a.work == b.work).map(|turns| (turns[0].work.name, turns.len())).collect::<Vec<_>>()
        };
        let expected: Vec<_> = WORKS.iter().map(|work| (work.name, work.columns.len())).collect();
        for round in 0..5 {
            assert_eq!(works(of_round(round, all)), expected, "works keep their order");
        }
    }

    #[test]
    fn what_a_work_is_held_against_is_there() {
        let there = |work: &str| WORKS.iter().any(|known| known.name == work);
        for work in &WORKS {
            let Some((_, of_layer, of_others)) = work.contest() else { continue };
            assert!(there(of_layer) && there(of_others), "{}", work.name);
        }
        let contest = |name: &str| WORKS.iter().find(|work| work.name == name).and_then(Work::contest);
        assert_eq!(contest("renew_burst"), Some((Figure::Cpu, "renew_paced", "renew_burst")));
        assert_eq!(contest("list_5_proved"), Some((Figure::Median, "list_5_proved", "list_5")));
        assert_eq!(contest("idle"), None);
    }
}
