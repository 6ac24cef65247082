//! Durations counted into an HDR histogram: 1 us to 60 s with three significant digits.
//!
//! Every value is counted. One above the range is recorded at its top and counted as overflow, and the longest value of
//! all is kept exactly. A percentile is given only when enough values stand behind it: `p` needs `1 / (1 - p)` of them, so
//! that at least one value lies beyond it.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The top of the range.
const TOP: Duration = Duration::from_secs(60);

/// A percentile that a report gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentile {
    /// The quantile in thousandths, 999 for p99.9.
    thousandths: u64,
}

impl Percentile {
    /// The median.
    pub const P50: Percentile = Percentile { thousandths: 500 };
    /// One value in ten is longer.
    pub const P90: Percentile = Percentile { thousandths: 900 };
    /// One value in a hundred is longer.
    pub const P99: Percentile = Percentile { thousandths: 990 };
    /// One value in a thousand is longer.
    pub const P99_9: Percentile = Percentile { thousandths: 999 };

    /// How many values it takes to speak of this percentile.
    pub const fn needs(self) -> u64 {
        1000 / (1000 - self.thousandths)
    }
}

/// Durations, counted.
#[derive(Clone, Debug)]
pub struct Samples {
    /// In microseconds, rounded up: the resolution, and the 1 us bottom of the range.
    histogram: Histogram<u64>,
    longest: Option<Duration>,
    overflow: u64,
}

impl Default for Samples {
    fn default() -> Samples {
        let histogram = Histogram::new_with_bounds(1, micros(TOP), 3)
            .expect("constant bounds: low is 1, high is more than twice low, and three digits are supported");
        Samples { histogram, longest: None, overflow: 0 }
    }
}

impl Samples {
    /// Counts one duration.
    pub fn record(&mut self, value: Duration) {
        self.overflow += u64::from(value > TOP);
        self.longest = self.longest.max(Some(value));
        self.histogram.saturating_record(micros(value.min(TOP)));
    }

    /// Adds everything counted in `other`.
    pub fn add(&mut self, other: &Samples) {
        self.histogram.add(&other.histogram).expect("all histograms here have the same bounds");
        self.longest = self.longest.max(other.longest);
        self.overflow += other.overflow;
    }

    /// Forgets everything counted.
    pub fn clear(&mut self) {
        self.histogram.reset();
        self.longest = None;
        self.overflow = 0;
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// How many of them were longer than the range.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// The longest, exactly; `None` when nothing was counted.
    pub fn max(&self) -> Option<Duration> {
        self.longest
    }

    /// The value that `percentile` of the durations do not exceed, to three digits; `None` when too few were counted.
    pub fn percentile(&self, percentile: Percentile) -> Option<Duration> {
        let longest = self.longest.filter(|_| self.count() >= percentile.needs())?;
        let micros = self.histogram.value_at_quantile(percentile.thousandths as f64 / 1000.0);
        // A bucket's upper edge may lie above everything that was counted into it.
        Some(Duration::from_micros(micros).min(longest))
    }

    /// The histogram itself, in microseconds.
    pub(crate) fn micros(&self) -> &Histogram<u64> {
        &self.histogram
    }
}

fn micros(value: Duration) -> u64 {
    u64::try_from(value.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX).max(1)
}

/// A duration as a report writes it: whole nanoseconds.
pub(crate) fn nanos(value: Duration) -> u64 {
    u64::try_from(value.as_nanos()).unwrap_or(u64::MAX)
}

/// What a report says of latencies. Nanoseconds; a percentile is null when too few values stand behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct Percentiles {
    pub count: u64,
    pub p50_ns: Option<u64>,
    pub p90_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub p99_9_ns: Option<u64>,
    pub max_ns: Option<u64>,
}

impl From<&Samples> for Percentiles {
    fn from(samples: &Samples) -> Percentiles {
        let at = |percentile| samples.percentile(percentile).map(nanos);
        Percentiles {
            count: samples.count(),
            p50_ns: at(Percentile::P50),
            p90_ns: at(Percentile::P90),
            p99_ns: at(Percentile::P99),
            p99_9_ns: at(Percentile::P99_9),
            max_ns: samples.max().map(nanos),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = Duration>) -> Samples {
        let mut samples = Samples::default();
        values.into_iter().for_each(|value| samples.record(value));
        samples
    }

    #[test]
    fn a_percentile_needs_a_value_beyond_it() {
        let known = |count: u64| {
            let p = Percentiles::from(&of((0..count).map(Duration::from_millis)));
            [p.p50_ns, p.p90_ns, p.p99_ns, p.p99_9_ns, p.max_ns].map(|value| value.is_some())
        };
        assert_eq!(known(0), [false; 5]);
        assert_eq!(known(1), [false, false, false, false, true]);
        assert_eq!(known(9), [true, false, false, false, true]);
        assert_eq!(known(50), [true, true, false, false, true]);
        assert_eq!(known(100), [true, true, true, false, true]);
        assert_eq!(known(999), [true, true, true, false, true]);
        assert_eq!(known(1000), [true; 5]);
        assert_eq!(
            [Percentile::P50, Percentile::P90, Percentile::P99, Percentile::P99_9].map(Percentile::needs),
            [2, 10, 100, 1000]
        );
    }

    #[test]
    fn a_value_above_the_range_is_counted_at_its_top_and_never_lost() {
        let samples = of([Duration::from_millis(1), Duration::from_secs(60), Duration::from_secs(75)]);
        assert_eq!((samples.count(), samples.overflow()), (3, 1));
        assert_eq!(samples.max(), Some(Duration::from_secs(75)));
        let top = samples.micros().max();
        assert!((60_000_000..60_100_000).contains(&top), "{top}");
    }

    #[test]
    fn a_value_below_the_range_is_counted_at_its_bottom() {
        let samples = of([Duration::ZERO, Duration::from_nanos(1)]);
        assert_eq!((samples.count(), samples.micros().min()), (2, 1));
        assert_eq!(samples.percentile(Percentile::P50), Some(Duration::from_nanos(1)), "never above the maximum");
    }

    #[test]
    fn three_digits_hold_over_the_whole_range() {
        for value in [40, 999, 3_000, 48_000, 123_456, 11_000_000, 59_999_999].map(Duration::from_micros) {
            let mut samples = of([value; 10]);
            samples.record(TOP);
            let shown = samples.percentile(Percentile::P50).unwrap();
            assert!(shown >= value && shown.as_nanos() - value.as_nanos() <= value.as_nanos() / 1000, "{shown:?}");
        }
    }
}
