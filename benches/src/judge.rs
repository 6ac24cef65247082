//! What timed samples say: an interval instead of a number, and a verdict only where the whole interval says so.
//!
//! A sample is a ratio: how long the work took over how long fixed work took that ran in turn with it, so that a machine that
//! is slower for a while is slower for both. Of a row of samples only their order is used: the median, and the two samples
//! between which the true median lies with a certainty of 99 in 100 whatever the samples are distributed like.

use crate::baseline::{Baseline, Fact};

/// How often the true median may lie outside its interval.
const ERROR: f64 = 0.01;

/// Where the median of some samples lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Hardly lower than this.
    pub low: f64,
    /// The samples' own median.
    pub mid: f64,
    /// Hardly higher than this.
    pub high: f64,
}

impl Interval {
    /// The interval of some samples. Too few of them have one from the lowest to the highest.
    ///
    /// # Errors
    /// No samples, or one that is zero, negative or no number: nothing was measured then.
    pub fn of(samples: &[f64]) -> Result<Interval, String> {
        if let Some(bad) = samples.iter().find(|sample| !(sample.is_finite() && **sample > 0.0)) {
            return Err(format!("a sample of {bad}"));
        }
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (Some(last), false) = (sorted.len().checked_sub(1), sorted.is_empty()) else {
            return Err("no samples".to_owned());
        };
        let out = outside(sorted.len());
        Ok(Interval { low: sorted[out], mid: sorted[sorted.len() / 2], high: sorted[last - out] })
    }

    /// Half its width in hundredths of the median: a change smaller than this is not seen.
    pub fn percent(&self) -> f64 {
        50.0 * (self.high - self.low) / self.mid
    }
}

/// How many of so many sorted samples lie outside the interval at each end.
fn outside(samples: usize) -> usize {
    // The chance that at most `out` of them are on one side of the true median: a sum of binomial terms.
    let mut term = 0.5_f64.powi(i32::try_from(samples).unwrap_or(i32::MAX));
    let (mut below, mut out) = (term, 0);
    while 2 * (out + 1) < samples {
        term *= (samples - out) as f64 / (out + 1) as f64;
        below += term;
        if below > ERROR / 2.0 {
            break;
        }
        out += 1;
    }
    out
}

/// What one benchmark's samples are held against, and how much more it may be.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// In hundredths above the baseline's whole interval.
    pub percent: f64,
}

/// What is wrong with a benchmark.
#[derive(Clone, Debug, PartialEq)]
pub enum Wrong {
    /// Its whole interval lies above the limit: what is told is how far the interval's lower end is above the baseline.
    Slower(String),
    /// It cannot be judged: it is missing, or its samples are none.
    Broken(String),
}

/// Judges one benchmark by its samples.
///
/// The baseline's row is low, median, high, and the requests of one operation, 0 for what asks nobody. Requests are held to the
/// unit. One that the baseline does not have is new, and nothing is wrong with it.
///
/// # Errors
/// What is wrong with it.
pub fn judge(name: &str, samples: &[f64], requests: u64, baseline: &Baseline, limit: Limit) -> Result<Interval, Wrong> {
    let found = Interval::of(samples).map_err(|why| Wrong::Broken(format!("{name}: {why}")))?;
    let Some(row) = baseline.of(name) else { return Ok(found) };
    let &[low, mid, high, asked] = row else {
        return Err(Wrong::Broken(format!("{name}: the baseline has {} numbers of it, not 4", row.len())));
    };
    if !(low > 0.0 && low <= mid && mid <= high) {
        return Err(Wrong::Broken(format!("{name}: the baseline's interval is {low} to {high}")));
    }
    if requests as f64 != asked {
        return Err(Wrong::Broken(format!("{name}: {requests} requests, and the baseline says {asked}")));
    }
    if found.low > high * (1.0 + limit.percent / 100.0) {
        let (from, to) = (100.0 * (found.low / mid - 1.0), 100.0 * (found.high / mid - 1.0));
        return Err(Wrong::Slower(format!(
            "{name}: {from:+.1} to {to:+.1} %, and the limit is {:+.1} %",
            100.0 * (high * (1.0 + limit.percent / 100.0) / mid - 1.0)
        )));
    }
    Ok(found)
}

/// Benchmarks that the baseline has and the run has not.
pub fn missing(ran: &[String], baseline: &Baseline) -> Vec<String> {
    let names = baseline.rows.iter().map(|(name, _)| name).filter(|name| !ran.contains(name));
    names.map(|name| format!("{name}: in the baseline, and missing from this run")).collect()
}

/// What a timed baseline depends on beside the code.
pub fn here() -> Vec<Fact> {
    let machine = loadgen::environment::Environment::of(loadgen::environment::Store::default());
    let fact = |name: &str, value: String| (name.to_owned(), value);
    vec![
        fact("cpu", machine.cpu_model.unwrap_or_else(|| "unknown".to_owned())),
        fact("cores", machine.cores.map_or_else(|| "unknown".to_owned(), |cores| cores.to_string())),
        fact("rustc", crate::baseline::first_line("rustc", &["--version"])),
    ]
}

#[cfg(test)]
mod tests {
    use engine::env::Env;

    use super::*;

    const LIMIT: Limit = Limit { percent: 5.0 };

    /// Samples about `mid` as a shared machine gives them: mostly within 2 %, one in eight disturbed by up to a half, always
    /// upwards.
    fn samples(env: &Env, mid: f64) -> Vec<f64> {
        let unit = || env.below(1_000_000) as f64 / 1_000_000.0;
        let one = || mid * (0.98 + 0.04 * unit()) * if env.below(8) == 0 { 1.0 + unit() / 2.0 } else { 1.0 };
        (0..35).map(|_| one()).collect()
    }

    fn baseline(samples: &[f64]) -> Baseline {
        let found = Interval::of(samples).unwrap();
        let row = ("path".to_owned(), vec![found.low, found.mid, found.high, 0.0]);
        Baseline { rows: vec![row], ..Baseline::default() }
    }

    #[test]
    fn the_interval_is_the_binomial_one() {
        // Of 15 samples three are outside with a chance of 2 · 0.0037, four with one of 2 · 0.018.
        assert_eq!((outside(15), outside(35), outside(1), outside(2), outside(7)), (2, 9, 0, 0, 0));
        let found = Interval::of(&(1..=15).map(f64::from).collect::<Vec<_>>()).unwrap();
        assert_eq!(found, Interval { low: 3.0, mid: 8.0, high: 13.0 });
    }

    #[test]
    fn one_commit_measured_twice_is_no_regression() {
        let env = Env::seeded(3);
        for run in 0..1_000 {
            let baseline = baseline(&samples(&env, 2.0));
            let verdict = judge("path", &samples(&env, 2.0), 0, &baseline, LIMIT);
            assert!(verdict.is_ok(), "run {run}: {verdict:?}");
        }
    }

    /// The plant: a tenth more, ten times over.
    #[test]
    fn a_tenth_more_is_caught_ten_of_ten() {
        let env = Env::seeded(4);
        for _ in 0..10 {
            let baseline = baseline(&samples(&env, 2.0));
            let verdict = judge("path", &samples(&env, 2.2), 0, &baseline, LIMIT);
            let Err(Wrong::Slower(why)) = verdict else { panic!("{verdict:?}") };
            assert!(why.starts_with("path: +"), "{why}");
        }
    }

    #[test]
    fn an_interval_that_reaches_below_the_limit_is_no_regression() {
        let env = Env::seeded(5);
        let baseline = baseline(&samples(&env, 2.0));
        let mut wide: Vec<f64> = samples(&env, 2.4);
        for sample in wide.iter_mut().take(12) {
            *sample = 2.0;
        }
        assert!(judge("path", &wide, 0, &baseline, LIMIT).is_ok());
    }

    #[test]
    fn a_request_more_is_wrong_however_quick() {
        let env = Env::seeded(6);
        let baseline = baseline(&samples(&env, 2.0));
        let verdict = judge("path", &samples(&env, 1.0), 1, &baseline, LIMIT);
        assert_eq!(verdict, Err(Wrong::Broken("path: 1 requests, and the baseline says 0".to_owned())));
    }

    #[test]
    fn what_was_not_measured_is_broken_and_what_is_missing_is_named() {
        let baseline = baseline(&[2.0; 9]);
        for bad in [&[][..], &[0.0; 9], &[f64::NAN; 9], &[2.0, f64::INFINITY], &[-1.0]] {
            assert!(matches!(judge("path", bad, 0, &baseline, LIMIT), Err(Wrong::Broken(_))), "{bad:?}");
        }
        assert_eq!(missing(&["other".to_owned()], &baseline), ["path: in the baseline, and missing from this run"]);
        assert_eq!(missing(&["path".to_owned()], &baseline), Vec::<String>::new());
        let verdict = judge("other", &[2.0; 9], 0, &baseline, LIMIT);
        assert!(verdict.is_ok(), "a new one is not wrong");
    }
}
