//! One attempt: samples of every benchmark, in turn with the work that they are held against.
//!
//! A sample is how long the work took over how long the fixed work took, each the lower quartile of some short batches that ran
//! in turn. What disturbs a batch makes it longer and never shorter, and most batches are too short to be disturbed.

use std::time::Duration;

use engine::env::Env;

use crate::operations::{Operation, Stand};
use crate::paths::ALL;
use crate::work::{Path, Work, on};

/// The fixed work against itself: what this machine takes for a change while nothing changes.
pub const NOISE: &str = "noise: the fixed work against itself";

/// How long a batch takes about.
const BATCH: Duration = Duration::from_micros(200);

/// Batches of a sample.
const BATCHES: usize = 12;

/// Samples of a benchmark in one attempt.
const SAMPLES: usize = 5;

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

/// Work of a fixed size: about a microsecond of arithmetic, each step of which needs the one before.
fn fixed() -> Box<dyn Work> {
    on([7_u8; 512], |bytes| {
        let hash = bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        std::hint::black_box(hash);
    })
}

/// Samples those benchmarks that `wanted` names.
pub async fn attempt(env: &Env, wanted: impl Fn(&str) -> bool, mut told: impl FnMut(Sampled)) {
    let mut against = Batch::of(env, fixed());
    let noise = Path::quick(NOISE, fixed);
    let mut paths: Vec<(Path, Batch)> = [noise]
        .into_iter()
        .chain(ALL)
        .filter(|path| wanted(path.name))
        .map(|path| (path, Batch::of(env, path.warm())))
        .collect();
    let mut found: Vec<Vec<f64>> = vec![Vec::new(); paths.len()];
    // In turn, so that a moment of trouble is a sample of many paths and not all samples of one.
    for _ in 0..SAMPLES {
        for ((_, batch), samples) in paths.iter_mut().zip(&mut found) {
            samples.push(sample(env, batch, &mut against));
        }
    }
    for ((path, _), samples) in paths.into_iter().zip(found) {
        told(Sampled { name: path.name.to_owned(), requests: 0, samples });
    }
    for (members, brokers) in [(1, "one broker"), (3, "three brokers")] {
        let named = Operation::ALL.map(|operation| (operation, format!("{brokers}: {}", operation.name())));
        if !named.iter().any(|(_, name)| wanted(name)) {
            continue;
        }
        let mut stand = Box::pin(Stand::open(members)).await;
        for (operation, name) in named.into_iter().filter(|(_, name)| wanted(name)) {
            let requests = stand.requests(operation).await;
            let mut samples = Vec::with_capacity(SAMPLES);
            for _ in 0..SAMPLES {
                let (mut work, mut floor) = (Vec::new(), Vec::new());
                for _ in 0..BATCHES / 2 {
                    floor.push(took(env, &mut stand, Operation::Floor).await);
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

/// Work, and how often it makes a batch.
struct Batch {
    work: Box<dyn Work>,
    times: usize,
}

impl Batch {
    fn of(env: &Env, work: Box<dyn Work>) -> Batch {
        let mut batch = Batch { work, times: 1 };
        while batch.took(env) < BATCH && batch.times < 1 << 20 {
            batch.times *= 2;
        }
        batch
    }

    fn took(&mut self, env: &Env) -> Duration {
        self.work.prepare(self.times);
        let began = env.now();
        self.work.run();
        env.now().since(began)
    }

    fn each(&mut self, env: &Env) -> f64 {
        self.took(env).as_secs_f64() / self.times as f64
    }
}

fn sample(env: &Env, batch: &mut Batch, against: &mut Batch) -> f64 {
    let (mut work, mut fixed) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        fixed.push(against.each(env));
        work.push(batch.each(env));
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
    use super::*;

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
}
