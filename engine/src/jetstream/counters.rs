//! What one connection has asked for, and what came of it.
//!
//! Counts only grow, so the difference of two [`Stats`] is what happened between them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message to a stream.
    Publish,
    /// A record from its stream's leader.
    LeaderRead,
    /// A batch of records from any member of a stream's group.
    Direct,
    /// A stream's description without subjects.
    Info,
    /// A page of a stream's subject index.
    Index,
    /// A purge.
    Purge,
    /// A stream's creation.
    StreamCreate,
    /// A stream's update.
    StreamUpdate,
    /// A stream's deletion.
    StreamDelete,
    /// A consumer's creation.
    ConsumerCreate,
    /// A consumer's deletion.
    ConsumerDelete,
    /// What a consumer has, from the member that has the consumer.
    ConsumerNext,
}

/// Every kind, in the order of [`Stats::requests`].
pub const KINDS: [Kind; 12] = [
    Kind::Publish,
    Kind::LeaderRead,
    Kind::Direct,
    Kind::Info,
    Kind::Index,
    Kind::Purge,
    Kind::StreamCreate,
    Kind::StreamUpdate,
    Kind::StreamDelete,
    Kind::ConsumerCreate,
    Kind::ConsumerDelete,
    Kind::ConsumerNext,
];

/// The counters themselves.
#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: [AtomicU64; KINDS.len()],
    pub(super) resends: AtomicU64,
    pub(super) bytes_out: AtomicU64,
    pub(super) bytes_in: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) timeouts: AtomicU64,
    pub(super) disconnects: AtomicU64,
    pub(super) deliveries: AtomicU64,
}

impl Counters {
    pub(super) fn request(&self, kind: Kind) {
        add(&self.requests[kind as usize], 1);
    }

    pub(super) fn snapshot(&self, in_flight: usize) -> Stats {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        Stats {
            requests: std::array::from_fn(|n| of(&self.requests[n])),
            resends: of(&self.resends),
            bytes_out: of(&self.bytes_out),
            bytes_in: of(&self.bytes_in),
            late: of(&self.late),
            timeouts: of(&self.timeouts),
            disconnects: of(&self.disconnects),
            deliveries: of(&self.deliveries),
            in_flight,
        }
    }
}

pub(super) fn add(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Relaxed);
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests sent, by kind, without re-sends; ordered as [`KINDS`].
    pub requests: [u64; KINDS.len()],
    /// Reads asked again because no answer, or no good one, had come.
    pub resends: u64,
    /// Bytes sent: subjects, headers and payloads.
    pub bytes_out: u64,
    /// Bytes received: subjects, headers and payloads.
    pub bytes_in: u64,
    /// Replies that nobody waited for any more.
    pub late: u64,
    /// Requests that ended at their deadline.
    pub timeouts: u64,
    /// How often the connection was lost.
    pub disconnects: u64,
    /// Messages that consumers delivered.
    pub deliveries: u64,
    /// Requests waiting for an answer now; a level, not a count.
    pub in_flight: usize,
}

impl Stats {
    /// Requests of one kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.requests[kind as usize]
    }

    /// Requests of every kind.
    pub fn total(&self) -> u64 {
        self.requests.iter().sum()
    }

    /// What happened since `earlier`. The requests in flight are those of now.
    #[must_use]
    pub fn since(&self, earlier: &Stats) -> Stats {
        Stats {
            requests: std::array::from_fn(|n| self.requests[n] - earlier.requests[n]),
            resends: self.resends - earlier.resends,
            bytes_out: self.bytes_out - earlier.bytes_out,
            bytes_in: self.bytes_in - earlier.bytes_in,
            late: self.late - earlier.late,
            timeouts: self.timeouts - earlier.timeouts,
            disconnects: self.disconnects - earlier.disconnects,
            deliveries: self.deliveries - earlier.deliveries,
            in_flight: self.in_flight,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_what_happened_between() {
        let counters = Counters::default();
        counters.request(Kind::Publish);
        let before = counters.snapshot(3);
        counters.request(Kind::Publish);
        counters.request(Kind::LeaderRead);
        add(&counters.bytes_out, 40);
        let between = counters.snapshot(1).since(&before);
        assert_eq!((between.of(Kind::Publish), between.of(Kind::LeaderRead), between.total()), (1, 1, 2));
        assert_eq!((between.bytes_out, between.in_flight), (40, 1));
    }

    #[test]
    fn every_kind_counts_in_its_own_place() {
        for (place, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, place, "{kind:?}");
        }
    }
}
