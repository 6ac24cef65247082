//! The series that a soak watches, and how much each may grow.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::trend::{Limit, Trend, Unit};

/// The most points kept of a series; beyond them every second one is let go.
const MOST: usize = 4096;

/// What is watched of the generator, with its limit.
pub(super) const OWN: [(&str, Limit); 4] = [
    (MEMORY, Limit { unit: Unit::Bytes, per_hour: 64e6, least: 16e6 }),
    (FILES, Limit { unit: Unit::Count, per_hour: 4.0, least: 4.0 }),
    (TASKS, Limit { unit: Unit::Count, per_hour: 20.0, least: 20.0 }),
    (LATENESS, Limit { unit: Unit::Ns, per_hour: 2e6, least: 10e6 }),
];

/// What is watched of each broker, with its limit.
pub(super) const BROKER: [(&str, Limit); 6] = [
    (MEMORY, Limit { unit: Unit::Bytes, per_hour: 128e6, least: 48e6 }),
    (FILES, Limit { unit: Unit::Count, per_hour: 4.0, least: 8.0 }),
    (SUBSCRIPTIONS, Limit { unit: Unit::Count, per_hour: 20.0, least: 20.0 }),
    (CONSUMERS, Limit { unit: Unit::Count, per_hour: 4.0, least: 4.0 }),
    (MESSAGES, Limit { unit: Unit::Count, per_hour: 200.0, least: 200.0 }),
    (BEHIND, Limit { unit: Unit::Count, per_hour: 100.0, least: 100.0 }),
];

pub(super) const MEMORY: &str = "memory";
pub(super) const FILES: &str = "open files";
pub(super) const TASKS: &str = "tasks";
pub(super) const LATENESS: &str = "mean lateness";
pub(super) const SUBSCRIPTIONS: &str = "subscriptions";
pub(super) const CONSUMERS: &str = "consumers";
pub(super) const MESSAGES: &str = "stream messages";
pub(super) const BEHIND: &str = "messages behind in a copy";

/// The process whose series are the generator's.
pub(super) const GENERATOR: &str = "generator";

struct Series {
    name: String,
    limit: Limit,
    points: Vec<(Duration, f64)>,
}

/// All series of a soak. Every one is there from the beginning, so that one without points is seen to be missing.
#[derive(Clone, Default)]
pub(super) struct Watched(Arc<Mutex<Vec<Series>>>);

impl Watched {
    /// What is watched of the generator and of brokers of these names.
    pub(super) fn expect<'a>(&self, brokers: impl Iterator<Item = &'a str>) {
        let own = OWN.iter().map(|what| (GENERATOR, what));
        let each = brokers.flat_map(|broker| BROKER.iter().map(move |what| (broker, what)));
        let series = |(whose, (what, limit)): (&str, &(&str, Limit))| Series {
            name: name(whose, what),
            limit: *limit,
            points: Vec::new(),
        };
        *self.0.lock() = own.chain(each).map(series).collect();
    }

    /// A point of a series, `at` after the origin.
    pub(super) fn point(&self, whose: &str, what: &str, at: Duration, value: f64) {
        let name = name(whose, what);
        let mut all = self.0.lock();
        let Some(series) = all.iter_mut().find(|series| series.name == name) else { return };
        series.points.push((at, value));
        if series.points.len() > MOST {
            let mut index = 0;
            series.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
    }

    /// The trend of every series from one instant to another.
    pub(super) fn trends(&self, from: Duration, to: Duration) -> Vec<Trend> {
        let all = self.0.lock();
        let trend = |series: &Series| {
            let within = series.points.iter().filter(|(at, _)| (from..to).contains(at));
            Trend::of(&series.name, &series.limit, &within.copied().collect::<Vec<_>>(), to - from, all.len())
        };
        all.iter().map(trend).collect()
    }
}

fn name(whose: &str, what: &str) -> String {
    format!("{whose} {what}")
}

#[cfg(test)]
mod tests {
    use super::super::trend::Finding;
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn every_series_is_judged_from_the_end_of_the_warm_up_and_the_silent_fail() {
        let watched = Watched::default();
        watched.expect(["n1", "n2"].into_iter());
        for second in 0..100_u32 {
            for (what, _) in OWN {
                // It fills up in the warm-up, and stays as it is.
                watched.point(GENERATOR, what, S * second, f64::from(second.min(40)) * 1e9);
            }
            for (what, _) in BROKER {
                let leaking = if what == CONSUMERS { f64::from(second) } else { 7.0 };
                watched.point("n1", what, S * second, leaking);
            }
        }
        let trends = watched.trends(S * 40, S * 100);
        assert_eq!(trends.len(), 4 + 2 * 6);
        for trend in &trends {
            let expected = match trend.series.as_str() {
                "n1 consumers" => Finding::Rising,
                name if name.starts_with("n2 ") => Finding::Unmeasured,
                _ => Finding::Flat,
            };
            assert_eq!((trend.finding, trend.fails()), (expected, expected != Finding::Flat), "{trend:?}");
        }
    }

    #[test]
    fn a_long_soak_keeps_its_ends() {
        let watched = Watched::default();
        watched.expect(std::iter::empty());
        (0..20_000).for_each(|second| watched.point(GENERATOR, TASKS, S * second, 5.0));
        let all = watched.trends(Duration::ZERO, S * 20_000);
        let tasks = all.iter().find(|trend| trend.series == "generator tasks").unwrap();
        assert!(tasks.points < 4097 && tasks.watched_ns > 19_000_000_000_000, "{tasks:?}");
    }
}
