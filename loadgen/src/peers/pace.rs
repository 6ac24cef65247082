//! When within a heartbeat a renewal is due.

use std::time::Duration;

/// How far into a heartbeat a node renews all that it holds: nodes follow each other evenly.
pub(super) fn of_node(heartbeat: Duration, node: usize, nodes: usize) -> Duration {
    heartbeat.mul_f64(node as f64 / nodes as f64)
}

/// How far into a heartbeat a node renews one of the seats that it holds, by its place among them: they follow each other
/// evenly, and so do those of nodes that hold as many.
pub(super) fn of_seat(heartbeat: Duration, (node, nodes): (usize, usize), (place, held): (usize, usize)) -> Duration {
    heartbeat.mul_f64((place as f64 + node as f64 / nodes as f64) / held as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_are_spread_evenly_over_the_heartbeat() {
        let heartbeat = Duration::from_secs(12);
        let of_nodes: Vec<Duration> = (0..4).map(|node| of_node(heartbeat, node, 4)).collect();
        assert_eq!(of_nodes, [0, 3, 6, 9].map(Duration::from_secs));
        let seats = (0..4).flat_map(|node| (0..3).map(move |place| of_seat(heartbeat, (node, 4), (place, 3))));
        let mut seats: Vec<Duration> = seats.collect();
        seats.sort();
        let expected: Vec<Duration> = (0..12).map(Duration::from_secs).collect();
        assert_eq!(seats, expected);
    }
}
