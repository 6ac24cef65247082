//! A scenario as what is around it sees it: what starts one, shows how it goes, reports what it came to and ends with its
//! exit code knows this much of it and no more.
//!
//! A scenario is the workload and the account that its answers are held against. Brokers, signals, the seed, the time axis,
//! the recorder's shape and the report's belong to nobody in particular and are here only as far as a scenario touches them.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use engine::env::{Env, Mono};
use engine::store::nats::Nats;
use parking_lot::Mutex;
use serde_json::Value;

use crate::floor::beside::Beside;
use crate::recorder::Recorder;
use crate::report::{Anomalies, BringUp, Report};
use crate::sampler::Sampler;
use crate::soak::Trend;
use crate::target::{Target, Unavailable};

/// The part in which nothing begins any more and what is under way is waited for. It ends the measurement.
pub const DRAIN: &str = "drain";

/// What can be run.
pub trait Scenario: Sized {
    /// Its name on the command line and in the report.
    const NAME: &'static str;
    /// What has a connection of its own, by the flag that says how many there are, without its hyphens.
    const CLIENTS: &'static str;
    /// The part with which the measurement begins; [`DRAIN`] ends it.
    const MEASURED_FROM: &'static str;
    /// Why there is nothing to hold its operations against, where [`Scenario::floor`] has none.
    const NO_FLOOR: &'static str = "none of its operations comes close to one bare request";

    /// What it is asked to be.
    type Params: Clone + Send + 'static;
    /// What a run came to, beside what its recorder, its parts and its anomalies hold; as default, before anything was.
    type CameTo: Default;

    /// How many of its [`Scenario::CLIENTS`] there are.
    fn clients(params: &Self::Params) -> usize;

    /// A number that two runs share when they are to do the same at the same times; none where that is not settled before
    /// the run. May take its time: it is not asked for on a thread that others need.
    fn schedule_digest(params: &Self::Params) -> Option<u64>;

    /// The bare requests that its operations are held against, where that is asked for; none where the two do not compare.
    fn floor(_params: &Self::Params) -> Beside {
        Beside::default()
    }

    /// One that has done nothing yet.
    fn new(params: Self::Params, start: Start) -> Self;

    /// Opens what it needs on the brokers and runs, until its time is over or `interrupt` is done. `first` is the store of
    /// client 0; those of the others are the target's to give.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn open_and_run(
        &self,
        target: &Target,
        first: &Nats,
        interrupt: impl Future<Output = ()>,
    ) -> impl Future<Output = Result<Ran<Self::CameTo>, Unavailable>>;

    /// The buckets that it made, or would have made.
    fn buckets(&self) -> Vec<String>;

    /// Where it records.
    fn recorder(&self) -> &Recorder;

    /// Its parts.
    fn parts(&self) -> &Parts;

    /// What it found so far.
    fn anomalies(&self) -> Anomalies;

    /// What the report's `params` say of it: what it is asked to be, and what it came to.
    fn params(&self, came_to: &Self::CameTo) -> Vec<(&'static str, Value)>;

    /// How its seats came up; none where there are none, or while they do.
    fn bring_up(&self) -> Option<BringUp>;

    /// How far it is in this part, for a line of progress; none where the counts of its operations say so.
    fn progress(&self, part: &str) -> Option<String>;

    /// Lines on the run that a person should read right below the verdict and that only this scenario can write, from what
    /// stands in its report.
    fn remarks(report: &Report) -> Vec<String>;

    /// What must not grow, and whether it did, over the measured time so far.
    fn trends(&self, _from: Mono, _to: Mono) -> Vec<Trend> {
        Vec::new()
    }
}

/// What a scenario starts with.
pub struct Start {
    /// The clock and the randomness.
    pub env: Env,
    /// Where the time axis of what it records begins.
    pub origin: Mono,
    /// What its buckets' names begin with.
    pub prefix: String,
    /// How many copies they have.
    pub replicas: u8,
}

/// How a run ended, and what it came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran<C> {
    /// Whether it was ended before its time.
    pub interrupted: bool,
    /// Whether it got so far that there was something to measure.
    pub brought_up: bool,
    /// What it came to.
    pub came_to: C,
}

/// The parts of a run, as it enters them.
#[derive(Clone, Default)]
pub struct Parts(Arc<Entered>);

#[derive(Default)]
struct Entered {
    parts: Mutex<Vec<(&'static str, Mono)>>,
    sampler: OnceLock<Arc<Sampler>>,
}

impl Parts {
    /// Samples at every edge from now on, so that what a part used is exact and not interpolated.
    pub fn sampled_by(&self, sampler: Arc<Sampler>) {
        self.0.sampler.get_or_init(|| sampler);
    }

    /// What samples, where anything does.
    #[cfg(feature = "peers")]
    pub(crate) fn sampler(&self) -> Option<&Arc<Sampler>> {
        self.0.sampler.get()
    }

    /// The run enters a part, and leaves the one before it.
    pub fn enter(&self, part: &'static str, now: Mono) {
        self.0.parts.lock().push((part, now));
        if let Some(sampler) = self.0.sampler.get() {
            sampler.sample();
        }
    }

    /// The part that the run is in.
    pub fn current(&self) -> &'static str {
        self.0.parts.lock().last().map_or("opening", |(part, _)| part)
    }

    /// When a part was entered; none when it was not.
    pub fn began(&self, part: &str) -> Option<Mono> {
        self.0.parts.lock().iter().find(|(entered, _)| *entered == part).map(|(_, began)| *began)
    }

    /// Every part entered so far, with its beginning and its end; the last one ends `now`.
    pub fn entered(&self, now: Mono) -> Vec<(&'static str, Mono, Mono)> {
        let parts = self.0.parts.lock();
        let ends = parts.iter().skip(1).map(|(_, began)| *began).chain([now]);
        parts.iter().zip(ends).map(|((part, began), ended)| (*part, *began, ended)).collect()
    }
}
