//! What happened to every operation: counts, latencies, lateness.
//!
//! An operation goes through three states, and the types allow no other path: an [`Arrival`] was scheduled, a [`Started`]
//! was sent, and [`Started::finish`] says how it ended. Dropping an arrival leaves it scheduled and never started, which a
//! report calls dropped; dropping a started one leaves it in flight. So `scheduled = started + dropped` and
//! `started = ok + refused + unknown + errors + in flight` hold whatever a workload does, and nothing vanishes.
//!
//! Two latencies are kept of each operation. The corrected one counts from the intended start, so a wait that a late
//! generator imposed is in it. The service one counts from the actual send, less any time in which the generator did not
//! run (see [`crate::stall`]). Every operation is recorded; none is sampled.
//!
//! Operations whose intended start lies before [`Recorder::measure_from`] are warm-up: counted apart, and in no latency.
//!
//! One mutex per kind of operation. An operation's three steps together take about 0.1 us of it, which ten thousand
//! operations a second keep busy for 0.1 % of the time, so sharding it further would buy nothing.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use coordproto::answer::Error;
use engine::env::{Env, Mono};
use parking_lot::Mutex;

use crate::blocks::{Block, Blocks};
use crate::histogram::Samples;
use crate::series::{Point, Series};
use crate::stall::{StallTotals, Stalls};

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A definite yes.
    Ok,
    /// A definite no.
    Refused,
    /// Nobody can say whether it took effect.
    Unknown,
    /// It failed without an answer of its kind: a bad argument, a reply that makes no sense.
    Error,
}

impl Outcome {
    /// All of them, in the order in which counts are kept.
    pub const ALL: [Outcome; 4] = [Outcome::Ok, Outcome::Refused, Outcome::Unknown, Outcome::Error];

    /// How an answer is counted, of which `yes` says whether it is a definite yes.
    pub fn of<T, E: Clone + Into<Error>>(answer: &Result<T, E>, yes: impl Fn(&T) -> bool) -> Outcome {
        match answer {
            Ok(value) if yes(value) => Outcome::Ok,
            Ok(_) => Outcome::Refused,
            Err(error) => match error.clone().into() {
                Error::Unknown(_) => Outcome::Unknown,
                // A mistake of the generator's own.
                Error::BadArgument(_) => Outcome::Error,
            },
        }
    }

    /// Whether the store answered the question.
    pub fn is_definite(self) -> bool {
        matches!(self, Outcome::Ok | Outcome::Refused)
    }
}

/// How many operations of one kind reached which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Their intended start came.
    pub scheduled: u64,
    /// They were sent.
    pub started: u64,
    /// They ended, by [`Outcome`].
    pub outcomes: [u64; 4],
}

impl Counts {
    /// How many ended in `outcome`.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    /// How many ended.
    pub fn ended(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// How many were scheduled and not started. While a run goes on, those about to start are among them.
    pub fn dropped(&self) -> u64 {
        self.scheduled - self.started
    }

    /// How many were started and have not ended.
    pub fn in_flight(&self) -> u64 {
        self.started - self.ended()
    }
}

/// Both latencies of operations of one kind and outcome.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// From the intended start.
    pub corrected: Samples,
    /// From the actual send, without the generator's own stalls.
    pub service: Samples,
}

impl Latency {
    fn add(&mut self, other: &Latency) {
        self.corrected.add(&other.corrected);
        self.service.add(&other.service);
    }
}

/// Everything measured of one kind of operation, without the warm-up.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// How many there were.
    pub counts: Counts,
    /// Requests to the broker that the ended ones took, together.
    pub requests: u64,
    /// Actual minus intended start, of every started one.
    pub lateness: Samples,
    /// Ended operations that were on their way while the generator stalled.
    pub spanned_stall: u64,
    /// When the first and the last unknown ended, since the origin.
    pub unknown_between: Option<(Duration, Duration)>,
    /// By outcome; boxed and made on first use, since most operations never meet most outcomes.
    latency: [Option<Box<Latency>>; 4],
    series: Series,
    blocks: Blocks,
}

impl Measured {
    /// The latencies of operations that ended in one of `outcomes`.
    pub fn latency(&self, outcomes: &[Outcome]) -> Latency {
        let mut sum = Latency::default();
        for outcome in outcomes {
            if let Some(latency) = &self.latency[*outcome as usize] {
                sum.add(latency);
            }
        }
        sum
    }

    /// The width of this operation's intervals over time.
    pub fn interval(&self) -> Duration {
        self.series.interval()
    }

    /// The operation over time, in intervals of `interval` from the origin on; `interval` is the widest of all operations'.
    pub fn over_time(&self, interval: Duration) -> Vec<Point> {
        self.series.points(interval)
    }

    /// The width of this operation's blocks.
    pub fn block_width(&self) -> Duration {
        self.blocks.width()
    }

    /// The operation in blocks of `width` from the origin on; `width` is the widest of all operations'.
    pub fn blocks(&self, width: Duration) -> Vec<Block> {
        self.blocks.of_width(width)
    }
}

/// One kind of operation at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Its name in reports.
    pub name: &'static str,
    /// What belongs to the results.
    pub measured: Measured,
    /// What was warm-up.
    pub warmup: Counts,
}

/// All operations of a run.
pub struct Recorder {
    run: Arc<Run>,
    ops: Vec<Op>,
}

struct Run {
    origin: Mono,
    measure_from: OnceLock<Mono>,
    stalls: Stalls,
}

/// A kind of operation to record. Cheap to clone and shared between tasks.
#[derive(Clone)]
pub struct Op(Arc<Kind>);

struct Kind {
    name: &'static str,
    run: Arc<Run>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    measured: Measured,
    warmup: Counts,
    /// How late all started ones began, together, and how many they are, warm-up included.
    late: (Duration, u64),
}

impl State {
    fn counts(&mut self, measured: bool) -> &mut Counts {
        if measured { &mut self.measured.counts } else { &mut self.warmup }
    }
}

impl Recorder {
    /// A recorder whose time axis begins at `origin`. All is warm-up until [`Recorder::measure_from`] says otherwise.
    pub fn new(origin: Mono) -> Recorder {
        Recorder {
            run: Arc::new(Run { origin, measure_from: OnceLock::new(), stalls: Stalls::new(origin) }),
            ops: Vec::new(),
        }
    }

    /// Adds a kind of operation; the same name gives the same one. A name is in snake case, or, for one of several ways of
    /// doing the same, two such names with a slash between them, like `read/follower`. Every declared kind is in the report,
    /// also when it never ran.
    pub fn declare(&mut self, name: &'static str) -> Op {
        if let Some(known) = self.ops.iter().find(|op| op.0.name == name) {
            return known.clone();
        }
        let op = Op(Arc::new(Kind { name, run: self.run.clone(), state: Mutex::default() }));
        self.ops.push(op.clone());
        op
    }

    /// Operations intended to start at `at` or later belong to the results. The first call holds.
    pub fn measure_from(&self, at: Mono) {
        self.run.measure_from.get_or_init(|| at);
    }

    /// Watches for stalls of the generator until dropped; without it, none is noticed. Runs beside the workload.
    pub fn watch_for_stalls(&self, env: Env) -> impl Future<Output = ()> + Send + use<> {
        let run = self.run.clone();
        async move { run.stalls.watch(&env).await }
    }

    /// The stalls noticed so far.
    pub fn stalls(&self) -> StallTotals {
        self.run.stalls.totals()
    }

    /// The measured counts of all kinds together: cheap, for a progress line.
    pub fn totals(&self) -> Counts {
        let mut sum = Counts::default();
        for op in &self.ops {
            let counts = op.0.state.lock().measured.counts;
            sum.scheduled += counts.scheduled;
            sum.started += counts.started;
            sum.outcomes.iter_mut().zip(counts.outcomes).for_each(|(sum, more)| *sum += more);
        }
        sum
    }

    /// How late all operations began, together, and how many they are, from the very beginning.
    pub fn late(&self) -> (Duration, u64) {
        let each = self.ops.iter().map(|op| op.0.state.lock().late);
        each.fold((Duration::ZERO, 0), |(late, count), (more, others)| (late + more, count + others))
    }

    /// Everything recorded so far, in the order of declaration. Copies histograms: for reports, not for every operation.
    pub fn snapshot(&self) -> Vec<Snapshot> {
        let of = |op: &Op| {
            let state = op.0.state.lock();
            Snapshot { name: op.0.name, measured: state.measured.clone(), warmup: state.warmup }
        };
        self.ops.iter().map(of).collect()
    }
}

impl Op {
    /// An operation whose intended start, `intended`, has come.
    pub fn arrival(&self, intended: Mono) -> Arrival {
        let measured = self.0.run.measure_from.get().is_some_and(|from| intended >= *from);
        self.0.state.lock().counts(measured).scheduled += 1;
        Arrival { op: self.clone(), intended, measured }
    }
}

/// An operation that was scheduled. Dropping it counts it as dropped.
#[must_use = "an arrival that is not started counts as dropped"]
pub struct Arrival {
    op: Op,
    intended: Mono,
    measured: bool,
}

impl Arrival {
    /// The operation is being sent, at `sent`.
    pub fn start(self, sent: Mono) -> Started {
        let Arrival { op, intended, measured } = self;
        let mut state = op.0.state.lock();
        state.counts(measured).started += 1;
        state.late.0 += sent.since(intended);
        state.late.1 += 1;
        if measured {
            state.measured.lateness.record(sent.since(intended));
        }
        drop(state);
        Started { op, intended, sent, measured }
    }
}

/// An operation on its way. Dropping it leaves it in flight.
#[must_use = "an operation that is not finished stays in flight"]
pub struct Started {
    op: Op,
    intended: Mono,
    sent: Mono,
    measured: bool,
}

impl Started {
    /// The operation ended at `done` in `outcome`, and took `requests` requests to the broker.
    pub fn finish(self, outcome: Outcome, done: Mono, requests: u64) {
        let run = &self.op.0.run;
        let at = done.since(run.origin);
        let corrected = done.since(self.intended);
        let stalled = run.stalls.within(self.sent, done);
        let mut state = self.op.0.state.lock();
        state.counts(self.measured).outcomes[outcome as usize] += 1;
        if !self.measured {
            return;
        }
        let measured = &mut state.measured;
        measured.requests += requests;
        measured.spanned_stall += u64::from(!stalled.is_zero());
        let latency = measured.latency[outcome as usize].get_or_insert_default();
        latency.corrected.record(corrected);
        latency.service.record(done.since(self.sent).saturating_sub(stalled));
        measured.series.record(at, outcome, corrected);
        measured.blocks.record(at, requests, outcome, corrected);
        if outcome == Outcome::Unknown {
            let (first, last) = measured.unknown_between.unwrap_or((at, at));
            measured.unknown_between = Some((first.min(at), last.max(at)));
        }
    }
}

#[cfg(test)]
mod tests;
