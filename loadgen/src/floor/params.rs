//! What a floor is asked to measure: requests, how many at once over how many connections, and the cells that a run goes through.

use std::time::Duration;

use clap::ValueEnum;

/// A request that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Request {
    /// A publish at an expected revision, acknowledged.
    Cas,
    /// The leader's last message of a subject (`STREAM.MSG.GET`).
    LeaderRead,
    /// Any member's (`DIRECT.GET`).
    DirectGet,
    /// The leader's index of a class (`STREAM.INFO` with a subject filter).
    Index,
    /// A consumer's pass over a class, until nothing is pending; made and removed.
    Pass,
    /// A message counter's increment (ADR-49).
    Increment,
    /// A charge of a company and a seat: both records read, then a compare-and-set on each, one after the other.
    TwoWrites,
    /// The same, but both compare-and-sets in one atomic batch (ADR-50).
    Batch,
    /// The same on message counters: three windows of both, six increments at once.
    Counters,
}

impl Request {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Request::Cas => "cas",
            Request::LeaderRead => "leader_read",
            Request::DirectGet => "direct_get",
            Request::Index => "index",
            Request::Pass => "pass",
            Request::Increment => "increment",
            Request::TwoWrites => "two_writes",
            Request::Batch => "batch",
            Request::Counters => "counters",
        }
    }

    /// Whether it is about a class of keys and not about one key.
    pub(super) fn is_of_a_class(self) -> bool {
        matches!(self, Request::Index | Request::Pass)
    }
}

/// A request made again and again, so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Which.
    pub request: Request,
    /// Over how many connections.
    pub connections: usize,
    /// How many at once in all; each connection has as many as any other.
    pub in_flight: usize,
    /// Whether all are about one key or company, so that they are in each other's way.
    pub shared: bool,
    /// Whether the next ones begin when the last of them is answered, and not each when one is.
    pub bursts: bool,
}

impl Load {
    /// Each about a key of its own, and each made again when it is answered.
    pub const fn of(request: Request, connections: usize, in_flight: usize) -> Load {
        Load { request, connections, in_flight, shared: false, bursts: false }
    }

    /// How many at once on each connection.
    pub(super) fn each(&self) -> usize {
        self.in_flight / self.connections
    }

    /// How many keys it is about, so that no two requests at once are about the same: about a thousand, or one.
    pub(super) fn spread(&self) -> usize {
        if self.shared { 1 } else { self.in_flight * (SPREAD / self.in_flight).max(1) }
    }

    /// The key of the request that is the `round`th of the `slot`th of those at once.
    pub(super) fn key(&self, slot: usize, round: usize) -> usize {
        (slot + round * self.in_flight) % self.spread()
    }
}

/// About how many keys requests for one key are spread over.
const SPREAD: usize = 1000;

/// A load with a name, which is that of its operation and of its part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// `<request>/c<connections>_f<in flight>`, or `<request>/<alone|apart|together>`.
    pub name: &'static str,
    /// What is measured.
    pub load: Load,
}

const fn cell(name: &'static str, request: Request, connections: usize, in_flight: usize) -> Cell {
    Cell { name, load: Load::of(request, connections, in_flight) }
}

/// Of so many clients, all on one key or company.
const fn together(name: &'static str, request: Request, clients: usize) -> Cell {
    Cell { name, load: Load { shared: true, ..Load::of(request, clients, clients) } }
}

/// Everything there is to measure.
///
/// A request about one key is made in every number at once over one connection, and over a hundred in those of which each has a
/// share. The rest are fewer:
///
/// - ten indexes are the most over one connection, and one pass, since a connection's passes follow each other: an answer is a
///   whole class, and more of them would fill what a broker buffers of a connection, and measure that;
/// - an increment is a publish as a compare-and-set is, so what more connections make of it is not measured again;
/// - a charge's client has a connection of its own and makes one charge after another: there is one of them, or there are 32.
pub const CELLS: [Cell; 36] = [
    cell("cas/c1_f1", Request::Cas, 1, 1),
    cell("cas/c1_f10", Request::Cas, 1, 10),
    cell("cas/c1_f100", Request::Cas, 1, 100),
    cell("cas/c1_f1000", Request::Cas, 1, 1000),
    cell("cas/c100_f100", Request::Cas, 100, 100),
    cell("cas/c100_f1000", Request::Cas, 100, 1000),
    cell("leader_read/c1_f1", Request::LeaderRead, 1, 1),
    cell("leader_read/c1_f10", Request::LeaderRead, 1, 10),
    cell("leader_read/c1_f100", Request::LeaderRead, 1, 100),
    cell("leader_read/c1_f1000", Request::LeaderRead, 1, 1000),
    cell("leader_read/c100_f100", Request::LeaderRead, 100, 100),
    cell("leader_read/c100_f1000", Request::LeaderRead, 100, 1000),
    cell("direct_get/c1_f1", Request::DirectGet, 1, 1),
    cell("direct_get/c1_f10", Request::DirectGet, 1, 10),
    cell("direct_get/c1_f100", Request::DirectGet, 1, 100),
    cell("direct_get/c1_f1000", Request::DirectGet, 1, 1000),
    cell("direct_get/c100_f100", Request::DirectGet, 100, 100),
    cell("direct_get/c100_f1000", Request::DirectGet, 100, 1000),
    cell("index/c1_f1", Request::Index, 1, 1),
    cell("index/c1_f10", Request::Index, 1, 10),
    cell("index/c100_f100", Request::Index, 100, 100),
    cell("pass/c1_f1", Request::Pass, 1, 1),
    cell("pass/c10_f10", Request::Pass, 10, 10),
    cell("pass/c100_f100", Request::Pass, 100, 100),
    cell("increment/c1_f1", Request::Increment, 1, 1),
    cell("increment/c1_f100", Request::Increment, 1, 100),
    together("increment/together", Request::Increment, 32),
    cell("two_writes/alone", Request::TwoWrites, 1, 1),
    cell("two_writes/apart", Request::TwoWrites, 32, 32),
    together("two_writes/together", Request::TwoWrites, 32),
    cell("batch/alone", Request::Batch, 1, 1),
    cell("batch/apart", Request::Batch, 32, 32),
    together("batch/together", Request::Batch, 32),
    cell("counters/alone", Request::Counters, 1, 1),
    cell("counters/apart", Request::Counters, 32, 32),
    together("counters/together", Request::Counters, 32),
];

/// What a run is asked to be.
#[derive(Clone, Debug)]
pub struct Params {
    /// Which requests are measured.
    pub requests: Vec<Request>,
    /// Keys of the class that is listed.
    pub keys: usize,
    /// How long is measured, by all cells together.
    pub duration: Duration,
}

impl Params {
    /// The cells, in order.
    pub fn cells(&self) -> impl Iterator<Item = &'static Cell> + '_ {
        CELLS.iter().filter(|cell| self.requests.contains(&cell.load.request))
    }

    /// How long each is measured.
    pub fn each(&self) -> Duration {
        self.duration / u32::try_from(self.cells().count().max(1)).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_cells_name_says_what_it_is() {
        let mut names = HashSet::new();
        for Cell { name, load } in CELLS {
            let (request, how) = name.split_once('/').unwrap();
            assert_eq!(request, load.request.name());
            assert!(names.insert(name), "{name} twice");
            assert_eq!(load.in_flight % load.connections, 0, "{name}");
            let by_number = format!("c{}_f{}", load.connections, load.in_flight);
            let expected = match (load.shared, load.connections) {
                (true, _) => "together",
                (false, 1) if how == "alone" => "alone",
                (false, 32) => "apart",
                (false, _) => &*by_number,
            };
            assert_eq!(how, expected, "{name}");
        }
    }

    #[test]
    fn every_request_has_the_cells_that_it_is_meant_to_have() {
        // Fewer than there are connections would leave some idle.
        let in_flight = [1, 10, 100, 1000];
        let every = [1, 100].into_iter().flat_map(|c| in_flight.map(|f| (c, f, false))).filter(|(c, f, _)| f >= c);
        let every: Vec<(usize, usize, bool)> = every.collect();
        let mut all = 0;
        for request in Request::value_variants() {
            let meant = match request {
                Request::Cas | Request::LeaderRead | Request::DirectGet => &*every,
                Request::Index => &[(1, 1, false), (1, 10, false), (100, 100, false)],
                Request::Pass => &[(1, 1, false), (10, 10, false), (100, 100, false)],
                Request::Increment => &[(1, 1, false), (1, 100, false), (32, 32, true)],
                Request::TwoWrites | Request::Batch | Request::Counters => {
                    &[(1, 1, false), (32, 32, false), (32, 32, true)]
                }
            };
            let its = CELLS.iter().map(|cell| cell.load).filter(|load| load.request == *request);
            let has: Vec<_> = its.map(|load| (load.connections, load.in_flight, load.shared)).collect();
            assert_eq!(has, meant, "{}", request.name());
            all += meant.len();
        }
        assert_eq!(all, CELLS.len());
        assert!(CELLS.iter().all(|cell| !cell.load.bursts), "a cell's requests follow each other without a pause");
    }

    #[test]
    fn no_two_requests_at_once_are_about_one_key_unless_all_are() {
        for load in CELLS.map(|cell| cell.load) {
            for round in 0..5 {
                let keys: HashSet<usize> = (0..load.in_flight).map(|slot| load.key(slot, round)).collect();
                assert_eq!(keys.len(), if load.shared { 1 } else { load.in_flight });
            }
        }
        assert_eq!(Load::of(Request::Cas, 1, 333).spread(), 999);
        assert_eq!(Load::of(Request::Cas, 1, 5000).spread(), 5000);
    }

    #[test]
    fn the_time_is_shared_among_the_cells_asked_for() {
        let params = Params { requests: vec![Request::Pass], keys: 5, duration: Duration::from_secs(6) };
        assert_eq!((params.cells().count(), params.each()), (3, Duration::from_secs(2)));
    }
}
