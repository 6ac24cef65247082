//! What timed samples say: an interval instead of a number, and a verdict only where the whole interval says so.
//!
//! A sample is a ratio: how long the work took over how long fixed work took that ran in turn with it, so that a machine that
//! is slower for a while is slower for both. Of a row of samples only their order is used: the median, and the two samples
//! between which the true median lies with a certainty of 99 in 100 whatever the samples are distributed like.

use crate::baseline::{Baseline, Fact, Table, first_line};
use crate::sampling::Sampled;
use crate::verdict::Wrong;

/// The times: low, median and high of each benchmark, and its requests.
pub const TIMINGS: Table = Table { file: "timings.txt", each: 4 };

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

/// How much more a benchmark may take than its baseline. All in hundredths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Above the baseline's whole interval.
    pub percent: f64,
    /// What that may come to at most above the baseline's median. A baseline that lets pass more is not written.
    pub widest: f64,
    /// What a run must be able to see: samples too far apart to tell so much more have no verdict.
    pub seen: f64,
}

/// For a pure path.
pub const PURE: Limit = Limit { percent: 5.0, widest: 7.0, seen: 10.0 };

/// For an operation over brokers, in bare publishes. Most of it is the disk's and the brokers' own, so this is a trip wire;
/// what the code asks for is held to the unit beside it.
pub const OPERATION: Limit = Limit { percent: 50.0, widest: 60.0, seen: 100.0 };

impl Limit {
    /// That of a benchmark which makes so many requests.
    pub fn of(requests: u64) -> Limit {
        if requests == 0 { PURE } else { OPERATION }
    }

    /// The most that passes against an interval, on a machine whose noise widens it by so many hundredths.
    fn above(&self, baseline: Interval, noise: f64) -> f64 {
        baseline.high * (1.0 + (self.percent + noise) / 100.0)
    }
}

/// What the baseline says of one benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Where its samples' median lay.
    pub interval: Interval,
    /// The requests of one operation; 0 of what asks nobody.
    pub requests: u64,
}

/// The baseline's row of a benchmark: low, median, high, and the requests. One that is new has none.
///
/// # Errors
/// What is there is no such row.
pub fn row(name: &str, baseline: &Baseline) -> Result<Option<Row>, Wrong> {
    let Some(row) = baseline.of(name) else { return Ok(None) };
    let broken = |why: String| Wrong::Broken(format!("{name}: {why}"));
    let &[low, mid, high, requests] = row else {
        return Err(broken(format!("the baseline has {} numbers of it, not {}", row.len(), TIMINGS.each)));
    };
    if !(low > 0.0 && low <= mid && mid <= high) {
        return Err(broken(format!("the baseline's interval is {low} to {high}")));
    }
    Ok(Some(Row { interval: Interval { low, mid, high }, requests: requests as u64 }))
}

/// What a benchmark that is not slower was seen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Samples that would have told [`Limit::seen`].
    Sharp,
    /// Samples too far apart to tell that much: it has no verdict.
    Blind,
    /// Samples that are held against nothing, since the baseline has no row of it: it has no verdict either.
    New,
}

/// Judges one benchmark by its samples; requests are held to the unit. `noise` is by how many hundredths the limit is wider.
///
/// # Errors
/// What is wrong with it.
pub fn judge(sampled: &Sampled, baseline: &Baseline, noise: f64) -> Result<Sight, Wrong> {
    let Sampled { name, requests, samples } = sampled;
    let found = Interval::of(samples).map_err(|why| Wrong::Broken(format!("{name}: {why}")))?;
    let Some(row) = row(name, baseline)? else { return Ok(Sight::New) };
    if *requests != row.requests {
        return Err(Wrong::Broken(format!("{name}: {requests} requests, and the baseline says {}", row.requests)));
    }
    let (limit, mid) = (Limit::of(*requests), row.interval.mid);
    let most = limit.above(row.interval, noise);
    if found.low > most {
        let change = |now: f64| 100.0 * (now / mid - 1.0);
        let (from, to, most) = (change(found.low), change(found.high), change(most));
        return Err(Wrong::Changed(format!("{name}: {from:+.1} to {to:+.1} %, and the limit is {most:+.1} %")));
    }
    // The baseline's own median, slower by what must be seen, with samples as far apart as these.
    let slower = mid * (1.0 + limit.seen / 100.0) * (found.low / found.mid);
    Ok(if slower > most { Sight::Sharp } else { Sight::Blind })
}

/// The baseline's row of a benchmark, to be written.
///
/// # Errors
/// Its samples are none, or so far apart that the limit would let pass more than [`Limit::widest`].
pub fn to_write(sampled: &Sampled) -> Result<Vec<f64>, String> {
    let name = &sampled.name;
    let found = Interval::of(&sampled.samples).map_err(|why| format!("{name}: {why}"))?;
    let limit = Limit::of(sampled.requests);
    let passes = 100.0 * (limit.above(found, 0.0) / found.mid - 1.0);
    if passes > limit.widest {
        return Err(format!(
            "{name}: samples too far apart: +{passes:.1} % would pass, at most +{:.0} %",
            limit.widest
        ));
    }
    Ok(vec![found.low, found.mid, found.high, sampled.requests as f64])
}

/// What a timed baseline depends on beside the code; `server` is the version that a broker started now would run. Who asks for
/// this finds that out: the code that finds a server is large, and beside the paths, in their crate, it changed what the
/// compiler made of them by a twentieth.
pub fn here(server: Option<String>) -> Vec<Fact> {
    let machine = loadgen::environment::Environment::of(loadgen::environment::Store::default());
    let fact = |name: &str, value: Option<String>| (name.to_owned(), value.unwrap_or_else(|| "unknown".to_owned()));
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    vec![
        fact("cpu", machine.cpu_model),
        fact("cpu revision", revision(&cpuinfo)),
        fact("cores", machine.cores.map(|cores| cores.to_string())),
        fact("rustc", Some(first_line("rustc", &["--version"]))),
        fact("nats-server", server),
    ]
}

/// The first processor's family, model and stepping in the text of `/proc/cpuinfo`. Machines that are rented by the hour give
/// processors of several generations the same name.
fn revision(cpuinfo: &str) -> Option<String> {
    let of = |wanted: &str| {
        let mut pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        pairs.find(|(key, _)| key.trim() == wanted).map(|(_, value)| value.trim())
    };
    Some(format!("family {}, model {}, stepping {}", of("cpu family")?, of("model")?, of("stepping")?))
}

#[cfg(test)]
mod tests {
    use engine::env::Env;

    use super::*;

    /// Samples about `mid` as a shared machine gives them: mostly within 2 %, one in eight disturbed by up to a half, always
    /// upwards.
    fn samples(env: &Env, mid: f64) -> Vec<f64> {
        let unit = || env.below(1_000_000) as f64 / 1_000_000.0;
        let one = || mid * (0.98 + 0.04 * unit()) * if env.below(8) == 0 { 1.0 + unit() / 2.0 } else { 1.0 };
        (0..35).map(|_| one()).collect()
    }

    fn path(samples: Vec<f64>) -> Sampled {
        Sampled { name: "path".to_owned(), requests: 0, samples }
    }

    fn baseline(samples: Vec<f64>) -> Baseline {
        let found = Interval::of(&samples).unwrap();
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
        let mut sharp = 0;
        for run in 0..1_000 {
            let baseline = baseline(samples(&env, 2.0));
            let verdict = judge(&path(samples(&env, 2.0)), &baseline, 0.0);
            assert!(verdict.is_ok(), "run {run}: {verdict:?}");
            sharp += usize::from(verdict == Ok(Sight::Sharp));
        }
        assert!(sharp > 900, "{sharp} of 1,000 have a verdict");
    }

    /// The plant: a tenth more, ten times over.
    #[test]
    fn a_tenth_more_is_caught_ten_of_ten() {
        let env = Env::seeded(4);
        for _ in 0..10 {
            let baseline = baseline(samples(&env, 2.0));
            let verdict = judge(&path(samples(&env, 2.2)), &baseline, 0.0);
            let Err(Wrong::Changed(why)) = verdict else { panic!("{verdict:?}") };
            assert!(why.starts_with("path: +"), "{why}");
        }
    }

    /// Samples as they are, and as far apart as they are here, would not tell a tenth: that is no acquittal.
    #[test]
    fn samples_too_far_apart_to_tell_a_tenth_are_no_acquittal() {
        let env = Env::seeded(5);
        let baseline = baseline(samples(&env, 2.0));
        for mid in [2.0, 2.4] {
            let mut wide: Vec<f64> = samples(&env, mid);
            for sample in wide.iter_mut().take(12) {
                *sample = 0.9 * mid.min(2.2);
            }
            assert_eq!(judge(&path(wide), &baseline, 0.0), Ok(Sight::Blind), "about {mid}");
        }
    }

    #[test]
    fn only_what_is_beyond_the_noise_too_is_slower() {
        let baseline = baseline(vec![2.0; 35]);
        let slower = |noise| judge(&path(vec![2.2; 35]), &baseline, noise);
        assert!(matches!(slower(4.0), Err(Wrong::Changed(_))));
        assert_eq!(slower(6.0), Ok(Sight::Blind), "a tenth is not told from such noise");
    }

    #[test]
    fn a_request_more_is_broken_however_quick() {
        let env = Env::seeded(6);
        let baseline = baseline(samples(&env, 2.0));
        let verdict = judge(&Sampled { requests: 1, ..path(samples(&env, 1.0)) }, &baseline, 50.0);
        assert_eq!(verdict, Err(Wrong::Broken("path: 1 requests, and the baseline says 0".to_owned())));
    }

    #[test]
    fn what_was_not_measured_is_broken_whether_the_baseline_has_it_or_not() {
        let (baseline, none) = (baseline(vec![2.0; 9]), Baseline::default());
        for bad in [vec![], vec![0.0; 9], vec![f64::NAN; 9], vec![2.0, f64::INFINITY], vec![-1.0]] {
            for baseline in [&baseline, &none] {
                let verdict = judge(&path(bad.clone()), baseline, 0.0);
                assert!(matches!(verdict, Err(Wrong::Broken(_))), "{bad:?}");
            }
        }
    }

    #[test]
    fn what_the_baseline_has_not_is_new_and_neither_broken_nor_fine() {
        let new = Sampled { name: "new".to_owned(), ..path(vec![2.0; 9]) };
        assert_eq!(judge(&new, &baseline(vec![2.0; 9]), 0.0), Ok(Sight::New));
        let numbers = |row: Vec<f64>| Baseline { rows: vec![("new".to_owned(), row)], ..Baseline::default() };
        for bad in [vec![], vec![2.0, 2.0, 2.0], vec![2.0, 1.0, 3.0, 0.0], vec![0.0, 1.0, 3.0, 0.0]] {
            let verdict = judge(&new, &numbers(bad.clone()), 0.0);
            assert!(matches!(verdict, Err(Wrong::Broken(_))), "a row that cannot be read is no new one: {bad:?}");
        }
    }

    #[test]
    fn processors_of_one_name_are_told_apart_by_their_numbers() {
        let text = "cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\ncpu family\t: 26\n";
        assert_eq!(revision(text).as_deref(), Some("family 25, model 17, stepping 1"));
        assert_eq!(revision("BogoMIPS\t: 100\nCPU part\t: 0xd0c\n"), None);
    }

    #[test]
    fn a_baseline_that_would_let_a_tenth_pass_is_not_written() {
        let spread = |by: f64| [vec![2.0; 18], vec![2.0 * by; 17]].concat();
        assert_eq!(to_write(&path(spread(1.01))), Ok(vec![2.0, 2.0, 2.02, 0.0]));
        let why = "path: samples too far apart: +9.2 % would pass, at most +7 %";
        assert_eq!(to_write(&path(spread(1.04))), Err(why.to_owned()));
        let operation = |by| to_write(&Sampled { requests: 3, ..path(spread(by)) });
        assert!(operation(1.06).is_ok() && operation(1.07).is_err());
    }
}
