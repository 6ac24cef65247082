//! One operation over time: counts, p99 and maximum per interval, in bounded memory.
//!
//! Intervals are a second long and begin at the run's origin. When a run outgrows an hour of them, neighbours are
//! joined and the interval doubles: counts add up, maxima hold, and a joined p99 is the larger of the two, which the true
//! one does not exceed.

use std::time::Duration;

use crate::histogram::{Percentile, Samples, nanos};
use crate::recorder::Outcome;

/// The most intervals kept.
pub(crate) const LONGEST: usize = 3600;

/// One interval of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Operations that ended in the interval, by [`Outcome`].
    pub outcomes: [u64; 4],
    /// p99 of the corrected latency of definite answers; `None` when too few ended in the interval.
    pub p99: Option<Duration>,
    /// The longest corrected latency of a definite answer.
    pub max: Option<Duration>,
}

impl Point {
    fn definite(&self) -> u64 {
        self.outcomes[Outcome::Ok as usize] + self.outcomes[Outcome::Refused as usize]
    }

    fn join(self, next: Point) -> Point {
        let p99 = match (self.definite(), next.definite()) {
            (_, 0) => self.p99,
            (0, _) => next.p99,
            // Where one half is unknown, the larger half is no bound for both.
            _ => self.p99.zip(next.p99).map(|(a, b)| a.max(b)),
        };
        let mut outcomes = self.outcomes;
        outcomes.iter_mut().zip(next.outcomes).for_each(|(sum, more)| *sum += more);
        Point { outcomes, p99, max: self.max.max(next.max) }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Series {
    interval: Duration,
    points: Vec<Point>,
    /// The corrected latencies of the last interval so far.
    open: Samples,
}

impl Default for Series {
    fn default() -> Series {
        Series { interval: Duration::from_secs(1), points: Vec::new(), open: Samples::default() }
    }
}

impl Series {
    /// Counts an operation that ended `at` after the origin.
    pub(crate) fn record(&mut self, at: Duration, outcome: Outcome, corrected: Duration) {
        let mut index = self.index(at);
        while index >= LONGEST {
            self.double();
            index = self.index(at);
        }
        if index >= self.points.len() {
            self.close();
            self.points.resize(index + 1, Point::default());
        }
        let last = self.points.len() - 1;
        let point = &mut self.points[index];
        point.outcomes[outcome as usize] += 1;
        if outcome.is_definite() {
            point.max = point.max.max(Some(corrected));
            // Recorded a moment after it ended, an operation can fall behind the last interval. It is counted where it
            // belongs; only that interval's p99 is settled by then.
            if index == last {
                self.open.record(corrected);
            }
        }
    }

    /// The points with an interval of `interval`, which is this series's own or that doubled some times.
    pub(crate) fn points(&self, interval: Duration) -> Vec<Point> {
        let mut all = self.clone();
        while all.interval < interval {
            all.double();
        }
        all.close();
        all.points
    }

    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    fn index(&self, at: Duration) -> usize {
        usize::try_from(nanos(at) / nanos(self.interval)).unwrap_or(usize::MAX)
    }

    fn close(&mut self) {
        if let Some(last) = self.points.last_mut() {
            last.p99 = last.p99.max(self.open.percentile(Percentile::P99));
        }
        self.open.clear();
    }

    fn double(&mut self) {
        self.close();
        self.interval *= 2;
        self.points =
            self.points.chunks(2).map(|pair| pair.iter().copied().reduce(Point::join).unwrap_or_default()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_second_has_its_counts_and_percentile() {
        let mut series = Series::default();
        for i in 0..100 {
            series.record(MS * i, Outcome::Ok, MS * if i < 99 { 1 } else { 100 });
        }
        series.record(S * 2, Outcome::Unknown, S * 5);
        series.record(S * 2, Outcome::Refused, MS);
        series.record(MS * 999, Outcome::Error, MS);
        let points = series.points(S);
        assert_eq!(
            points[0],
            Point { outcomes: [100, 0, 0, 1], p99: Some(MS), max: Some(MS * 100) },
            "the late one is counted where it belongs"
        );
        assert_eq!(points[1], Point::default());
        assert_eq!(points[2], Point { outcomes: [0, 1, 1, 0], p99: None, max: Some(MS) });
        assert_eq!(points.len(), 3);
    }

    #[test]
    fn a_long_run_stays_bounded_and_loses_no_count() {
        let mut series = Series::default();
        let seconds = 5 * LONGEST as u32 / 2;
        for second in 0..seconds {
            for _ in 0..100 {
                series.record(S * second, Outcome::Ok, if second == 7 { S } else { MS });
            }
        }
        assert_eq!(series.interval(), S * 4);
        let points = series.points(S * 4);
        assert!(points.len() <= LONGEST);
        assert_eq!(points.iter().map(|point| point.outcomes[0]).sum::<u64>(), u64::from(seconds) * 100);
        assert_eq!((points[1].p99, points[1].max), (Some(S), Some(S)));
        assert_eq!((points[2].p99, points[2].max), (Some(MS), Some(MS)));
        let wider = series.points(S * 16);
        assert_eq!(wider.iter().map(|point| point.outcomes[0]).sum::<u64>(), u64::from(seconds) * 100);
    }
}
