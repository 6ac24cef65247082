//! Whether a series goes up: its slope, how sure that is, and what is too much.
//!
//! The slope is the median of the slopes between all pairs of points (Theil and Sen), so that single points, however far off,
//! do not move it. Its bounds are Sen's, from how often pairs go up or down by chance, widened where points that follow one
//! another are alike. Only a slope whose lower bound lies above the limit is rising: what goes up and down is not.
//!
//! A limit is so much an hour. Over a few minutes little noise is much an hour, so a series also has to have grown by a least
//! amount within the time it was watched: a short run sees only large leaks, and says which it would have seen.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::compare::{autocorrelation, normal};
use crate::duration;
use crate::histogram::nanos;
use crate::table::units::{bytes, plural, time};

/// How many points it takes.
pub(super) const POINTS: usize = 30;
/// More than so many are joined, to the medians of neighbours: pairs go with the square.
const MOST: usize = 200;
/// How often a soak in which nothing grows may say that something does.
const DOUBT: f64 = 0.01;

/// What a series may do.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// What it is counted in.
    pub unit: Unit,
    /// So much an hour is too much.
    pub per_hour: f64,
    /// Less than this, over the whole time it is watched, is nothing.
    pub least: f64,
}

/// What a series is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Ns,
    /// Whatever its name says, one by one.
    Count,
}

/// What became of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// It does not go up by as much as its limit, beyond doubt.
    Flat,
    /// Its slope may lie above the limit and may lie below.
    Undecided,
    /// It goes up by more than its limit, beyond doubt.
    Rising,
    /// There are too few points, or they are of too short a time.
    Unmeasured,
}

/// The trend of one series. Slopes are per hour, in its unit; null where it is unmeasured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trend {
    /// Its name.
    pub series: String,
    /// What it is counted in.
    pub unit: Unit,
    /// How many points it has.
    pub points: u64,
    /// From the first to the last.
    pub watched_ns: u64,
    /// Its value at the end of the slope.
    pub last: Option<f64>,
    /// The slope.
    pub slope: Option<f64>,
    /// Its lower bound.
    pub low: Option<f64>,
    /// Its upper bound.
    pub high: Option<f64>,
    /// The slope above which it is too much, over the time it was watched.
    pub limit: Option<f64>,
    /// What became of it.
    pub finding: Finding,
}

impl Trend {
    /// The trend of one of `of` series, over points at their instants, in order. It should have been watched for `due`.
    pub(super) fn of(series: &str, limit: &Limit, points: &[(Duration, f64)], due: Duration, of: usize) -> Trend {
        let watched = match (points.first(), points.last()) {
            (Some((from, _)), Some((to, _))) => *to - *from,
            _ => Duration::ZERO,
        };
        let mut trend = Trend {
            series: series.to_owned(),
            unit: limit.unit,
            points: points.len() as u64,
            watched_ns: nanos(watched),
            last: points.last().map(|(_, value)| *value),
            slope: None,
            low: None,
            high: None,
            limit: None,
            finding: Finding::Unmeasured,
        };
        if points.len() < POINTS || watched < due / 2 || points.iter().any(|(_, value)| !value.is_finite()) {
            return trend;
        }
        let hours = |at: Duration| at.as_secs_f64() / 3600.0;
        let joined = joined(points);
        let joined: Vec<(f64, f64)> = joined.into_iter().map(|(at, value)| (hours(at), value)).collect();
        let most = limit.per_hour.max(limit.least / hours(watched));
        let [slope, low, high] = slope(&joined, DOUBT / of.max(1) as f64);
        (trend.slope, trend.low, trend.high, trend.limit) = (Some(slope), Some(low), Some(high), Some(most));
        trend.finding = match () {
            () if low > most => Finding::Rising,
            () if high <= most => Finding::Flat,
            () => Finding::Undecided,
        };
        trend
    }

    /// Whether it fails a soak: it goes up, or nobody can say whether it does.
    pub fn fails(&self) -> bool {
        matches!(self.finding, Finding::Rising | Finding::Unmeasured)
    }
}

impl fmt::Display for Trend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched = duration::format(Duration::from_secs(self.watched_ns / 1_000_000_000));
        let slopes = [self.slope, self.low, self.high, self.limit];
        let [Some(slope), Some(low), Some(high), Some(limit)] = slopes else {
            let points = plural(self.points, "point", "points");
            return write!(f, "{}: UNMEASURED: {points} in {watched}", self.series);
        };
        let [slope, low, high, limit] = [slope, low, high, limit].map(|value| shown(self.unit, value));
        let finding = match self.finding {
            Finding::Flat => "flat",
            Finding::Undecided => "undecided",
            Finding::Rising => "RISING",
            Finding::Unmeasured => "UNMEASURED",
        };
        let last = self.last.map_or_else(String::new, |last| format!(", at {}", shown(self.unit, last)));
        write!(f, "{}: {finding}: {slope} an hour ({low} to {high}), limit {limit}{last}", self.series)
    }
}

fn shown(unit: Unit, value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    let magnitude = value.abs();
    match unit {
        Unit::Bytes => format!("{sign}{}", bytes(magnitude as u64)),
        Unit::Ns => format!("{sign}{}", time(magnitude as u64)),
        Unit::Count => format!("{value:.1}"),
    }
}

/// The points, neighbours joined where there are too many: each the medians of a run of them.
fn joined(points: &[(Duration, f64)]) -> Vec<(Duration, f64)> {
    let width = points.len().div_ceil(MOST);
    let median = |chunk: &[(Duration, f64)]| {
        let mut values: Vec<f64> = chunk.iter().map(|(_, value)| *value).collect();
        values.sort_by(f64::total_cmp);
        (chunk[chunk.len() / 2].0, values[values.len() / 2])
    };
    points.chunks(width).map(median).collect()
}

/// The slope, and the bounds that it lies between but for so little doubt.
fn slope(points: &[(f64, f64)], doubt: f64) -> [f64; 3] {
    let mut slopes = Vec::new();
    for (index, (x, y)) in points.iter().enumerate() {
        slopes.extend(points[index + 1..].iter().filter(|(later, _)| later > x).map(|(x2, y2)| (y2 - y) / (x2 - x)));
    }
    slopes.sort_by(f64::total_cmp);
    let Some(last) = slopes.len().checked_sub(1) else { return [0.0, f64::NEG_INFINITY, f64::INFINITY] };
    let slope = slopes[slopes.len() / 2];
    let mut rest: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    let mean = rest.iter().sum::<f64>() / rest.len() as f64;
    rest.iter_mut().for_each(|value| *value -= mean);
    let alike = autocorrelation(&rest);
    let n = points.len() as f64;
    let by_chance = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0 * (1.0 + alike) / (1.0 - alike)).sqrt();
    let reach = normal(1.0 - doubt / 2.0) * by_chance;
    let rank = |rank: f64| slopes[(rank.max(0.0) as usize).min(last)];
    [slope, rank(((slopes.len() as f64 - reach) / 2.0).floor()), rank(((slopes.len() as f64 + reach) / 2.0).ceil())]
}

#[cfg(test)]
mod tests {
    use engine::env::Env;

    use super::*;

    const S: Duration = Duration::from_secs(1);
    const MB: f64 = 1e6;
    const MEMORY: Limit = Limit { unit: Unit::Bytes, per_hour: 64.0 * MB, least: 8.0 * MB };
    const FILES: Limit = Limit { unit: Unit::Count, per_hour: 4.0, least: 4.0 };

    fn trend(limit: &Limit, seconds: u32, value: impl FnMut(u32) -> f64) -> Trend {
        let points: Vec<(Duration, f64)> = (0..seconds).map(|second| S * second).zip((0..seconds).map(value)).collect();
        Trend::of("series", limit, &points, S * seconds, 25)
    }

    type Values<'a> = Box<dyn FnMut(u32) -> f64 + 'a>;

    /// Noise of so much either way.
    fn noise(env: &Env, most: f64) -> f64 {
        (env.below(2_000_001) as f64 / 1e6 - 1.0) * most
    }

    #[test]
    fn a_leak_is_caught_in_the_noise() {
        for seed in 0..20 {
            let env = Env::seeded(seed);
            // A kilobyte a renewal, at 333 renewals a second.
            let leak = |second: u32| 60.0 * MB + f64::from(second) * 333.0 * 1024.0 + noise(&env, 3.0 * MB);
            let found = trend(&MEMORY, 100, leak);
            assert_eq!(found.finding, Finding::Rising, "{found:?}");
            assert!(
                found.slope.is_some_and(|slope| (slope / (3600.0 * 333.0 * 1024.0) - 1.0).abs() < 0.2),
                "{found:?}"
            );
            // Twenty renewals a second, in half an hour.
            let leak = |second: u32| 60.0 * MB + f64::from(second) * 20.0 * 1024.0 + noise(&env, 3.0 * MB);
            assert_eq!(trend(&MEMORY, 1800, leak).finding, Finding::Rising);
            // A file every ten seconds.
            let found = trend(&FILES, 100, |second| f64::from(40 + second / 10 + env.below(3) as u32));
            assert_eq!(found.finding, Finding::Rising, "{found:?}");
        }
    }

    #[test]
    fn noise_is_no_leak() {
        for seed in 0..50 {
            let env = Env::seeded(seed);
            let mut walk = 60.0 * MB;
            let series: [(&Limit, Values<'_>); 6] = [
                (&MEMORY, Box::new(|_| 60.0 * MB + noise(&env, 20.0 * MB))),
                (&MEMORY, Box::new(|_| 60.0 * MB)),
                // A collector: up for half a minute, and down at once.
                (&MEMORY, Box::new(|second| 60.0 * MB + f64::from(second % 30) * MB)),
                // What wanders.
                (
                    &MEMORY,
                    Box::new(|_| {
                        walk += noise(&env, MB / 2.0);
                        walk
                    }),
                ),
                // One step early on, and a spike.
                (
                    &MEMORY,
                    Box::new(
                        |second| if second == 70 { 900.0 * MB } else { 60.0 * MB + f64::from(second.min(5)) * MB },
                    ),
                ),
                (&FILES, Box::new(|_| (40 + env.below(5)) as f64)),
            ];
            for (index, (limit, value)) in series.into_iter().enumerate() {
                let found = trend(limit, 120, value);
                assert!(!found.fails(), "seed {seed}, series {index}: {found:?}");
            }
        }
    }

    #[test]
    fn what_goes_down_is_flat() {
        assert_eq!(trend(&MEMORY, 100, |second| 90.0 * MB - f64::from(second) * MB / 2.0).finding, Finding::Flat);
    }

    #[test]
    fn too_little_is_unmeasured_and_fails() {
        let few = trend(&FILES, 29, |_| 1.0);
        let points: Vec<(Duration, f64)> = (0..49).map(|second| (S * second, 1.0)).collect();
        let short = Trend::of("series", &FILES, &points, S * 100, 25);
        let none = Trend::of("series", &FILES, &[], S, 25);
        let nan = trend(&FILES, 100, |second| if second == 50 { f64::NAN } else { 1.0 });
        for trend in [few, short, none, nan] {
            assert!(trend.finding == Finding::Unmeasured && trend.fails() && trend.slope.is_none(), "{trend:?}");
        }
        assert!(!trend(&FILES, 30, |_| 1.0).fails());
    }

    #[test]
    fn a_short_time_sees_large_leaks_alone_and_says_so() {
        let found = trend(&MEMORY, 60, |second| f64::from(second) * 0.05 * MB);
        assert_eq!((found.finding, found.limit.map(|limit| (limit / MB).round())), (Finding::Flat, Some(488.0)));
        let found = trend(&MEMORY, 3600, |second| f64::from(second) * 0.05 * MB);
        assert_eq!((found.finding, found.limit), (Finding::Rising, Some(64.0 * MB)));
    }
}
