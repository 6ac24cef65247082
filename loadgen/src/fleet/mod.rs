//! `loadgen fleet`: nodes holding seats on a heartbeat and reading the membership on each, claimers racing for fresh seats, a
//! watcher that reads the membership another way.
//!
//! Every node has a connection and leases of its own, and beats at an instant of its own within the interval. The run goes
//! through bring-up, warm-up, a quiet part with the heartbeats (and the watcher) alone, and the contest. Correctness is
//! checked by a [`Model`] throughout.

mod args;
mod contest;
mod crew;
mod membership;
mod model;
mod node;
mod params;
mod plan;
mod scenario;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::env::Env;
use engine::lease::Leases;
use engine::store::{OpenError, Store};
use engine::tasks::{self, Task};

use crate::recorder::Recorder;
use crate::scenario::{DRAIN, Parts};
use crate::stop::{Over, Stop, drained};
use crate::timer::Timer;

pub use args::FleetArgs;
pub(crate) use args::heartbeat;
pub use model::Model;
pub use params::{ContestOps, Ops, Params};

pub(crate) use crew::{Context, Crew, first_then_all, handle, node_id};
pub(crate) use node::attempt;
pub(crate) use plan::Digest;
pub(crate) use scenario::{buckets, leases_ended};

use contest::Contest;
use plan::Plan;

/// What a run came to, beside what its recorder, its model and its parts hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CameTo {
    /// Seats held when it was over, as the final listing has them; none when that was unknown or not asked.
    pub seats_held: Option<usize>,
    /// Contested claims that were answered definitely.
    pub claims_settled: u64,
}

type Ran = crate::scenario::Ran<CameTo>;

/// A fleet over stores of one kind.
pub struct Fleet {
    /// The clock and the randomness.
    pub env: Env,
    /// What it is asked to be.
    pub params: Params,
    /// What its buckets' names begin with.
    pub prefix: String,
    /// How many copies they have.
    pub replicas: u8,
    /// Where it records.
    pub recorder: Recorder,
    /// The operations of its nodes that it records.
    pub ops: Ops,
    /// Those of its contest.
    pub contest_ops: ContestOps,
    /// Its account of who holds what.
    pub model: Model,
    /// Its parts.
    pub parts: Parts,
}

impl Fleet {
    /// Its nodes.
    fn crew(&self) -> Crew {
        let (env, ops, model, heartbeat) =
            (self.env.clone(), self.ops.clone(), self.model.clone(), self.params.heartbeat);
        Crew { ctx: Context { env, ops, model, heartbeat }, seats: self.params.seats, nodes: self.params.nodes }
    }

    /// Opens every node's leases: the first node's alone, so that it makes the buckets, then all others at once.
    ///
    /// # Errors
    /// When a node's store or buckets cannot be opened.
    pub async fn open<S: Store, F, E>(&self, store: impl Fn(usize) -> F) -> Result<Vec<Leases<S>>, E>
    where
        F: Future<Output = Result<S, E>>,
        E: From<OpenError>,
    {
        let config = self.crew().config(&self.prefix, self.replicas);
        first_then_all(self.params.nodes, async |node| {
            let store = store(node).await?;
            Ok(Leases::open(self.env.clone(), &store, &config).await?)
        })
        .await
    }

    /// Seats of the nodes that are held now, by the model's account.
    pub fn seats_held(&self) -> usize {
        self.crew().seats_held()
    }

    /// Runs the fleet on these leases, one of each node, until its time is over or `interrupt` is done.
    pub async fn run<S: Store>(&self, leases: &[Leases<S>], interrupt: impl Future<Output = ()>) -> Ran {
        let (over, stop) = Over::new();
        let mut work = std::pin::pin!(self.work(leases, stop, &over));
        let mut interrupt = std::pin::pin!(interrupt);
        let ran = tokio::select! {
            ran = &mut work => ran,
            () = &mut interrupt => {
                over.at(self.env.now());
                return Ran { interrupted: true, ..work.await };
            }
        };
        if !ran.brought_up {
            return Ran { interrupted: true, ..ran };
        }
        let (crew, ended) = (self.crew(), over.end().unwrap_or_else(|| self.env.now()));
        tokio::select! {
            seats_held = crew.final_listing(&leases[0], ended) => Ran { came_to: CameTo { seats_held, ..ran.came_to }, ..ran },
            () = interrupt => Ran { interrupted: true, ..ran },
        }
    }

    /// The whole run but its final listing.
    async fn work<S: Store>(&self, leases: &[Leases<S>], stop: Stop, over: &Over) -> Ran {
        let Params { duration, warmup, claimers, .. } = self.params;
        let (env, plan) = (&self.env, Plan::new(&self.params));
        let crew = self.crew();
        let ctx = crew.ctx.clone();

        self.parts.enter("bring_up", env.now());
        let (mut tasks, brought_up) = crew.bring_up(leases, &stop).await;
        if !brought_up {
            over.at(env.now());
            self.drain(tasks).await;
            return Ran { brought_up, ..Ran::default() };
        }

        let up = env.now();
        let measured_from = up + warmup;
        let contest_from = up + self.params.contest_after();
        self.recorder.measure_from(measured_from);
        over.at(measured_from + duration);
        let contest = Arc::new(Contest::new(self.contest_ops.clone(), plan, contest_from, self.params.steady));
        tasks.push(crew.watch(leases, measured_from, &stop));
        tasks.push(tasks::spawn(contest.clone().conduct(ctx.clone(), stop.clone())));
        for (claimer, leases) in (0..claimers).zip(leases.iter().cycle()) {
            tasks.push(tasks::spawn(contest.clone().claimer(ctx.clone(), leases.clone(), claimer, stop.clone())));
        }
        let mut timer = Timer::default();
        for (part, next) in [("warm_up", measured_from), ("quiet", contest_from)] {
            self.parts.enter(part, env.now());
            if stop.before(env, &mut timer, next).await {
                break;
            }
        }
        if !stop.is_over(env) {
            self.parts.enter("contest", env.now());
            stop.over(env).await;
        }
        self.drain(tasks).await;
        let claims_settled = contest.settled.load(Ordering::Relaxed);
        Ran { brought_up, came_to: CameTo { claims_settled, ..CameTo::default() }, ..Ran::default() }
    }

    /// What is under way is answered, or runs into its own deadline.
    async fn drain(&self, tasks: Vec<Task<()>>) {
        self.parts.enter(DRAIN, self.env.now());
        if !drained(&self.env, tasks).await {
            let left = self.recorder.totals().in_flight().max(1);
            self.model.found(|anomalies| anomalies.ops_unsettled += left);
        }
    }
}

#[cfg(test)]
mod tests;
