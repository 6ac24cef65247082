//! What the operations cost, counted: requests and sequential round trips, on three brokers, with nobody else at it.
//!
//! The counts are part of the contract. They do not depend on the machine, so the table is exact, and a change of it is a
//! change of the design. It is the one that operators read, in `docs/costs.md`.

#![expect(clippy::unwrap_used, reason = "a count that meets an error ends with it")]

mod families;
mod leases;

use engine::jetstream::{Cost, Meter};
use tests::Brokers;
use tokio::runtime::Runtime;

const PAGE: &str = include_str!("../../../docs/costs.md");

/// The most that a claim may cost, whatever it is of and whatever it finds, as the leases promise it.
const CLAIM_MOST: (u64, u64) = (6, 4);

/// A family and its operation, requests, round trips one after another.
type Row = (String, u64, u64);

/// What was counted, in the order of the counting.
#[derive(Default)]
struct Counted {
    family: &'static str,
    rows: Vec<(String, Cost)>,
}

impl Counted {
    /// What is counted from now on is of this family.
    fn family(&mut self, family: &'static str) {
        self.family = family;
    }

    /// Measures `work` as one operation.
    fn of<T>(&mut self, operation: impl Into<String>, work: impl Future<Output = T>) -> impl Future<Output = T> {
        let operation = format!("{}: {}", self.family, operation.into());
        let measured = Box::pin(Meter::measure(work));
        async {
            let (output, cost) = measured.await;
            self.rows.push((operation, cost));
            output
        }
    }
}

impl Counted {
    /// Measures what may be asked more than once and finds the same each time, and counts the cheapest: a member that has not
    /// heard of the last write yet costs a listing a read of it, an answer that is late is asked for anew, and the table is
    /// about a quiet cluster.
    async fn least<T, E>(&mut self, operation: &str, work: impl AsyncFn() -> Result<T, E>) -> Result<T, E> {
        let mut least: Option<(Result<T, E>, Cost)> = None;
        for _ in 0..5 {
            let (output, cost) = Box::pin(Meter::measure(work())).await;
            let cheaper = |(before, least): &(Result<T, E>, Cost)| {
                output.is_ok() && (before.is_err() || cost.requests < least.requests)
            };
            if least.as_ref().is_none_or(cheaper) {
                least = Some((output, cost));
            }
        }
        let (output, cost) = least.expect("it was done");
        self.rows.push((format!("{}: {operation}", self.family), cost));
        output
    }
}

/// The page's rows, each under the heading of its family.
fn table() -> Vec<Row> {
    let mut family = "";
    let mut rows = Vec::new();
    for line in PAGE.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            family = heading;
        }
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        if let (Some(operation), Some(Ok(requests)), Some(Ok(rounds))) =
            (cells.next(), cells.next().map(str::parse), cells.next().map(str::parse))
        {
            rows.push((format!("{family}: {operation}"), requests, rounds));
        }
    }
    rows
}

#[test]
fn every_operation_costs_exactly_what_the_table_says() {
    let counted = Runtime::new().expect("a runtime").block_on(async {
        let mut counted = Counted::default();
        let brokers = Brokers::start(3).await;
        let store = brokers.store().await;
        Box::pin(leases::count(&mut counted, &brokers, &store)).await;
        Box::pin(families::count(&mut counted, &brokers, &store)).await;
        counted
    });
    let mut found: Vec<Row> =
        counted.rows.into_iter().map(|(operation, cost)| (operation, cost.requests, cost.rounds)).collect();
    for (operation, requests, rounds) in &found {
        println!("| {operation} | {requests} | {rounds} |");
    }
    for (operation, requests, rounds) in found.iter().filter(|(operation, ..)| operation.starts_with("Leases: claim")) {
        assert!(*requests <= CLAIM_MOST.0 && *rounds <= CLAIM_MOST.1, "{operation}: {requests} in {rounds}");
    }
    let mut want = table();
    want.sort_unstable();
    found.sort_unstable();
    for pair in found.windows(2) {
        assert_ne!(pair[0].0, pair[1].0, "counted twice");
    }
    let missing: Vec<&Row> = found.iter().filter(|row| !want.contains(row)).collect();
    let wrong: Vec<&Row> = want.iter().filter(|row| !found.contains(row)).collect();
    assert!(missing.is_empty() && wrong.is_empty(), "counted: {missing:#?}, and docs/costs.md says {wrong:#?}");
    assert_eq!(found.len(), want.len(), "a row stands twice in docs/costs.md");
}
