//! One attempt: samples of every benchmark, in turn with the work that they are held against.
//!
//! A sample is how long the work took over how long the fixed work took, each the lower quartile of some short batches that ran
//! in turn. What disturbs a batch makes it longer and never shorter, and most batches are too short to be disturbed.

use std::time::Duration;

use engine::env::Env;

use crate::noise::{self, fixed};
use crate::operations::{Operation, Stand, stands};
use crate::paths;
use crate::work::{Path, Work};

/// How long a batch takes about.
const BATCH: Duration = Duration::from_micros(200);

/// Batches of a sample.
const BATCHES: usize = 12;

/// How often an operation and its floor make a sample.
const PAIRS: usize = 24;

/// The same of a burst, which is long.
const BURSTS: usize = 6;

/// The same of a read, which is short.
const READS: usize = 200;

/// Samples of a path in one attempt, and of an operation.
const SAMPLES: (usize, usize) = (10, 5);

/// What an attempt found of one benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// Its name.
    pub name: String,
    /// The requests of one operation; 0 of what asks nobody.
    pub requests: u64,
    /// The samples.
    pub samples: Vec<f64>,
}

impl Sampled {
    /// As one line.
    pub fn line(&self) -> String {
        let samples: Vec<String> = self.samples.iter().map(f64::to_string).collect();
        format!("{}\t{}\t{}", self.name, self.requests, samples.join(" "))
    }

    /// Reads what [`Sampled::line`] wrote.
    pub fn parse(line: &str) -> Option<Sampled> {
        let mut parts = line.split('\t');
        let (name, requests, samples) = (parts.next()?, parts.next()?, parts.next()?);
        let samples = samples.split(' ').map(|sample| sample.parse().ok()).collect::<Option<_>>()?;
        Some(Sampled { name: name.to_owned(), requests: requests.parse().ok()?, samples })
    }
}

/// Samples those benchmarks that `wanted` names; what is planted is made dearer.
pub async fn attempt(env: &Env, wanted: impl Fn(&str) -> bool, planted: Option<&str>, mut told: impl FnMut(Sampled)) {
    let began = env.now();
    let clock = || env.now().since(began);
    for all in [&noise::ALL[..], &paths::ALL[..]] {
        if all.iter().any(|path| wanted(path.name)) {
            // All of them: what a path takes depends by some hundredths on what else ran in its process.
            let all = all.iter().map(|path| if planted == Some(path.name) { path.planted() } else { *path });
            let sampled = sampled(&clock, Batch::of(&clock, fixed()), all.collect());
            sampled.into_iter().filter(|sampled| wanted(&sampled.name)).for_each(&mut told);
        }
    }
    for members in [1, 3] {
        let named: Vec<_> = stands().filter(|(stand, _, name)| *stand == members && wanted(name)).collect();
        if named.is_empty() {
            continue;
        }
        let mut stand = Box::pin(Stand::open(members)).await;
        for (_, operation, name) in named {
            if planted == Some(name.as_str()) {
                stand.plant(operation);
            }
            let requests = stand.requests(operation).await;
            let mut samples = Vec::with_capacity(SAMPLES.1);
            let pairs = match operation {
                Operation::Burst => BURSTS,
                Operation::Get => READS,
                _ => PAIRS,
            };
            for _ in 0..SAMPLES.1 {
                let (mut work, mut floor) = (Vec::new(), Vec::new());
                for _ in 0..pairs {
                    floor.push(took(env, &mut stand, operation.floor()).await);
                    work.push(took(env, &mut stand, operation).await);
                }
                samples.push(quartile(work) / quartile(floor));
            }
            told(Sampled { name, requests, samples });
        }
    }
}

async fn took(env: &Env, stand: &mut Stand, operation: Operation) -> f64 {
    let began = env.now();
    stand.once(operation).await;
    env.now().since(began).as_secs_f64()
}

/// How long it is since some instant.
type Clock<'a> = &'a dyn Fn() -> Duration;

/// Samples of some paths, each in turn with the same fixed work.
fn sampled(clock: Clock<'_>, mut against: Batch, paths: Vec<Path>) -> Vec<Sampled> {
    let mut batches: Vec<Batch> = paths.iter().map(|path| Batch::of(clock, path.warm())).collect();
    let mut found: Vec<Vec<f64>> = vec![Vec::new(); paths.len()];
    // In turn, so that a moment of trouble is a sample of many paths and not all samples of one.
    for _ in 0..SAMPLES.0 {
        for (batch, samples) in batches.iter_mut().zip(&mut found) {
            samples.push(sample(clock, batch, &mut against));
        }
    }
    let told = |(path, samples): (Path, _)| Sampled { name: path.name.to_owned(), requests: 0, samples };
    paths.into_iter().zip(found).map(told).collect()
}

/// Work, and how often it makes a batch.
struct Batch {
    work: Box<dyn Work>,
    times: usize,
}

impl Batch {
    fn of(clock: Clock<'_>, work: Box<dyn Work>) -> Batch {
        let mut batch = Batch { work, times: 1 };
        while batch.took(clock) < BATCH && batch.times < 1 << 20 {
            batch.times *= 2;
        }
        batch
    }

    fn took(&mut self, clock: Clock<'_>) -> Duration {
        self.work.prepare(self.times);
        let began = clock();
        self.work.run();
        clock().saturating_sub(began)
    }

    fn each(&mut self, clock: Clock<'_>) -> f64 {
        self.took(clock).as_secs_f64() / self.times as f64
    }
}

fn sample(clock: Clock<'_>, batch: &mut Batch, against: &mut Batch) -> f64 {
    let (mut work, mut fixed) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        fixed.push(against.each(clock));
        work.push(batch.each(clock));
    }
    quartile(work) / quartile(fixed)
}

/// The lower quartile.
fn quartile(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 4]
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::baseline::Baseline;
    use crate::judge::{Sight, judge, to_write};
    use crate::verdict::Wrong;
    use crate::work::on;

    #[test]
    fn what_an_attempt_says_is_read_again() {
        let sampled =
            Sampled { name: "one broker: renew a seat".into(), requests: 1, samples: vec![1.25, 3.5e-3, f64::NAN] };
        let read = Sampled::parse(&sampled.line()).unwrap();
        assert_eq!((&read.name, read.requests, &read.samples[..2]), (&sampled.name, 1, &sampled.samples[..2]));
        assert!(read.samples[2].is_nan(), "and judged where all samples are");
        assert_eq!(Sampled::parse("name\t1"), None);
        assert_eq!(Sampled::parse("name\t1\tx"), None);
    }

    #[test]
    fn a_disturbed_batch_does_not_move_the_quartile() {
        assert_eq!(quartile(vec![1.0, 1.0, 9.0, 1.0, 1.0, 50.0, 1.0, 2.0]), 1.0);
    }

    thread_local! {
        /// Nanoseconds that the work of this thread took, by its own account.
        static TAKEN: Cell<u64> = const { Cell::new(0) };
    }

    /// A path of which a run takes about two microseconds, of a clock that nothing else moves.
    const TAKING: Path =
        Path::quick("taking", || on((), |()| TAKEN.set(TAKEN.get() + 2_000 + TAKEN.get() * 7_919 % 41)));

    /// What the gate samples of it, with fixed work that takes a microsecond.
    fn taken(path: Path) -> Sampled {
        let clock = || Duration::from_nanos(TAKEN.get());
        let against = || Batch::of(&clock, on((), |()| TAKEN.set(TAKEN.get() + 1_000)));
        let mut sampled = sampled(&clock, against(), vec![path]);
        for _ in 1..7 {
            let again = super::sampled(&clock, against(), vec![path]).swap_remove(0);
            sampled[0].samples.extend(again.samples);
        }
        sampled.swap_remove(0)
    }

    #[test]
    fn a_planted_path_fails_the_timed_gate_and_the_same_path_without_does_not() {
        let baseline = Baseline {
            rows: vec![("taking".to_owned(), to_write(&taken(TAKING)).expect("a row"))],
            ..Baseline::default()
        };
        for _ in 0..10 {
            assert_eq!(judge(&taken(TAKING), &baseline, 0.0), Ok(Sight::Sharp));
            let planted = judge(&taken(TAKING.planted()), &baseline, 0.0);
            let Err(Wrong::Changed(why)) = planted else { panic!("{planted:?}") };
            assert!(why.starts_with("taking: +"), "{why}");
        }
    }
}
