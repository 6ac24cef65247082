//! `loadgen soak`: the fleet's workload for a long time, and whether anything grows that should not.
//!
//! The load is the same from the warm-up to the end: heartbeats, listings, and claims for seats that were given back. So the
//! memory, files, tasks and lateness of the generator, and of each broker the memory, files, subscriptions, consumers,
//! messages and how far its copies are behind, have to stay where they were when the warm-up was over. Each is looked at
//! once a second and judged by its trend (see [`trend`]); a series that rises, or that there is too little of, fails
//! the soak. When all is at rest, every broker's copy of every stream has to be the same.
//!
//! It starts its own brokers: it looks at their processes, and asks over their system account.

mod args;
mod leak;
mod series;
pub mod trend;

use std::convert::Infallible;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::broker::Member;
use engine::env::Mono;
use engine::store::nats::Nats;
use parking_lot::Mutex;
use serde_json::Value;

use crate::fleet::{self, CameTo, Fleet};
use crate::floor::beside::Beside;
use crate::histogram::nanos;
use crate::members::{self, Copies, Members};
use crate::recorder::Recorder;
use crate::report::{Anomalies, BringUp, Report};
use crate::sampler::Reading;
use crate::scenario::{Parts, Ran, Scenario, Start};
use crate::target::{Target, Unavailable};
use leak::Planted;
use series::{BEHIND, CONSUMERS, FILES, GENERATOR, LATENESS, MEMORY, MESSAGES, SUBSCRIPTIONS, TASKS, Watched};

pub use args::SoakArgs;
pub use leak::Leak;
pub use trend::Trend;

/// From one look to the next.
const PERIOD: Duration = Duration::from_secs(1);
/// How long copies may take to be the same once nothing is written any more.
const AT_REST: Duration = Duration::from_secs(30);
/// The streams whose copies differ, among a report's parameters; not there where none do.
const DIFFERING: &str = "copies_differing";

/// What a soak is asked to be.
#[derive(Clone, Debug)]
pub struct Params {
    /// The load.
    pub fleet: fleet::Params,
    /// What is lost on purpose.
    pub leaks: Vec<Leak>,
}

/// A soak.
pub struct Soak {
    fleet: Fleet,
    leaks: Vec<Leak>,
    origin: Mono,
    watched: Watched,
    /// Streams whose copies differ when all is at rest, with who holds what.
    differing: Mutex<Vec<String>>,
    /// Brokers that did not answer then, or were there no more.
    silent: AtomicU64,
}

impl Soak {
    fn since(&self, at: Mono) -> Duration {
        at.since(self.origin)
    }

    /// Looks at everything once a second.
    async fn watch(&self, members: &[Member], asked: &Members) -> Infallible {
        let (env, recorder) = (&self.fleet.env, &self.fleet.recorder);
        let mut before = recorder.late();
        loop {
            let now = env.now();
            let at = self.since(now);
            let late = recorder.late();
            self.watch_process(GENERATOR, std::process::id(), at);
            let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
            self.watched.point(GENERATOR, TASKS, at, tasks as f64);
            // A second in which nothing began has no lateness.
            if late.1 > before.1 {
                let mean = nanos(late.0.saturating_sub(before.0)) as f64 / (late.1 - before.1) as f64;
                self.watched.point(GENERATOR, LATENESS, at, mean);
            }
            before = late;
            for member in members {
                if let Some(pid) = member.pid() {
                    self.watch_process(member.name(), pid, at);
                }
            }
            let states = asked.states(running(members)).await;
            // Where a stream is not told of, what is in it is not known, and not nothing.
            let are_there = self.copies().are_there(&states, members.len().saturating_sub(states.len()));
            for (name, state) in &states {
                self.watched.point(name, CONSUMERS, at, state.consumers as f64);
                self.watched.point(name, SUBSCRIPTIONS, at, state.subscriptions as f64);
                if are_there {
                    let messages: u64 = state.streams.values().map(|held| held.messages).sum();
                    self.watched.point(name, MESSAGES, at, messages as f64);
                    self.watched.point(name, BEHIND, at, members::behind(&states, name) as f64);
                }
            }
            env.sleep_until(now + PERIOD).await;
        }
    }

    /// Loses what is to be lost, where that is asked for. Ends in failure alone.
    async fn leak(&self, target: &Target, first: &Nats) -> Unavailable {
        let Fleet { env, prefix, replicas, recorder, .. } = &self.fleet;
        if self.leaks.is_empty() {
            return std::future::pending().await;
        }
        match Planted::prepare(env, &self.leaks, target, first, (prefix, *replicas)).await {
            Ok(planted) => match planted.lose(recorder).await {},
            Err(failed) => failed,
        }
    }

    /// Memory and open files of a process; of one that cannot be looked at there are no points.
    fn watch_process(&self, name: &str, pid: u32, at: Duration) {
        if let Some(reading) = Reading::of(pid) {
            let bytes = reading.rss_pages * rustix::param::page_size() as u64;
            self.watched.point(name, MEMORY, at, bytes as f64);
        }
        if let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) {
            self.watched.point(name, FILES, at, files.count() as f64);
        }
    }

    /// The streams whose copies have to be there.
    fn copies(&self) -> Copies<'_> {
        Copies { prefix: &self.fleet.prefix, replicas: usize::from(self.fleet.replicas) }
    }

    /// Waits until every broker's copy of every stream is the same. A broker that ended is waited for no longer, and has none.
    async fn settle(&self, members: &[Member], asked: &Members) {
        let env = &self.fleet.env;
        let until = env.now() + AT_REST;
        loop {
            let of = running(members);
            let states = asked.states(of).await;
            let silent = members.len().saturating_sub(states.len()) as u64;
            let differing = members::differing(&states, self.copies());
            if differing.is_empty() && silent == 0 {
                return;
            }
            if env.now() >= until || of < members.len() {
                let ended = members.len() - of;
                tracing::error!(differing = differing.len(), silent, ended, ?states, "copies_differ");
                *self.differing.lock() = differing;
                self.silent.store(silent, Ordering::Relaxed);
                return;
            }
            env.sleep(Duration::from_millis(200)).await;
        }
    }
}

fn running(members: &[Member]) -> usize {
    members.iter().filter(|member| member.is_running()).count()
}

impl Scenario for Soak {
    const NAME: &'static str = "soak";
    const CLIENTS: &'static str = Fleet::CLIENTS;
    const MEASURED_FROM: &'static str = Fleet::MEASURED_FROM;

    type Params = Params;
    type CameTo = CameTo;

    fn clients(params: &Params) -> usize {
        Fleet::clients(&params.fleet)
    }

    fn schedule_digest(params: &Params) -> Option<u64> {
        Fleet::schedule_digest(&params.fleet)
    }

    fn floor(params: &Params) -> Beside {
        Fleet::floor(&params.fleet)
    }

    fn new(Params { fleet, leaks }: Params, start: Start) -> Soak {
        let origin = start.origin;
        let (watched, differing, silent) = (Watched::default(), Mutex::default(), AtomicU64::new(0));
        Soak { fleet: Fleet::new(fleet, start), leaks, origin, watched, differing, silent }
    }

    async fn open_and_run(
        &self,
        target: &Target,
        first: &Nats,
        interrupt: impl Future<Output = ()>,
    ) -> Result<Ran<CameTo>, Unavailable> {
        let (members, system) = target.members().ok_or(Unavailable::NotOurs)?;
        self.watched.expect(members.iter().map(Member::name));
        let asked = Members::connect(&self.fleet.env, system).await?;
        let ran = tokio::select! {
            ran = Box::pin(self.fleet.open_and_run(target, first, interrupt)) => ran?,
            never = self.watch(members, &asked) => match never {},
            failed = self.leak(target, first) => return Err(failed),
        };
        if !ran.interrupted {
            self.settle(members, &asked).await;
        }
        Ok(ran)
    }

    fn buckets(&self) -> Vec<String> {
        self.fleet.buckets()
    }

    fn recorder(&self) -> &Recorder {
        self.fleet.recorder()
    }

    fn parts(&self) -> &Parts {
        self.fleet.parts()
    }

    fn anomalies(&self) -> Anomalies {
        let mut found = self.fleet.anomalies();
        found.copies_differ += self.differing.lock().len() as u64;
        found.ops_unsettled += self.silent.load(Ordering::Relaxed);
        found
    }

    fn params(&self, came_to: &CameTo) -> Vec<(&'static str, Value)> {
        let mut params = self.fleet.params(came_to);
        if !self.leaks.is_empty() {
            params.push(("leaks", self.leaks.iter().map(|leak| leak.name()).collect()));
        }
        let differing = self.differing.lock();
        if !differing.is_empty() {
            params.push((DIFFERING, differing.clone().into()));
        }
        params
    }

    fn bring_up(&self) -> Option<BringUp> {
        self.fleet.bring_up()
    }

    fn progress(&self, part: &str) -> Option<String> {
        self.fleet.progress(part)
    }

    fn remarks(report: &Report) -> Vec<String> {
        let failing = report.trends.iter().filter(|trend| trend.fails()).map(Trend::to_string);
        let differing = report.params.get(DIFFERING).and_then(Value::as_array).into_iter().flatten();
        let differing = differing.filter_map(Value::as_str).map(|stream| format!("copies differ: {stream}"));
        failing.chain(differing).chain(Fleet::remarks(report)).collect()
    }

    fn trends(&self, from: Mono, to: Mono) -> Vec<Trend> {
        self.watched.trends(self.since(from), self.since(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::full;

    #[test]
    fn a_stream_whose_copies_differ_has_a_line() {
        let mut report = full(Anomalies { copies_differ: 1, ..Anomalies::default() });
        assert_eq!(Soak::remarks(&report), [] as [&str; 0]);
        report
            .params
            .insert(DIFFERING.to_owned(), vec!["A KV_run_leases: n1 with 5 messages; n2 with 4 messages"].into());
        assert_eq!(Soak::remarks(&report), ["copies differ: A KV_run_leases: n1 with 5 messages; n2 with 4 messages"]);
    }
}
