//! `loadgen fleet`: nodes holding seats on a heartbeat and reading the membership on each, claimers racing for fresh seats, a
//! watcher that reads the membership another way.
//!
//! Every node has a connection and leases of its own, and beats at an instant of its own within the interval. The run goes
//! through bring-up, warm-up, a quiet part with the heartbeats (and the watcher) alone, and the contest. Correctness is
//! checked by a [`Model`] throughout.

mod args;
mod contest;
mod membership;
mod model;
mod node;
mod params;
mod plan;
mod scenario;

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use coordproto::key::{Class, Resource};
use engine::env::{Env, Mono};
use engine::lease::{Config, Leases};
use engine::store::{Certified, OpenError, Store};
use engine::tasks::{self, Task};
use futures_util::future::try_join_all;

use crate::recorder::Recorder;
use crate::scenario::{DRAIN, Parts};
use crate::stop::{Over, Stop, drained};
use crate::timer::Timer;

pub use args::FleetArgs;
pub(crate) use args::heartbeat;
pub use model::Model;
pub use params::{Ops, Params};

use contest::Contest;
use node::Node;
use plan::Plan;

/// How long a bring-up may go without another seat or node before it is given up.
const BRING_UP_PATIENCE: Duration = Duration::from_secs(60);

/// How long the final listing of the seats may be tried.
const FINAL_LISTING: Duration = Duration::from_secs(30);

/// What every part of the fleet works with.
#[derive(Clone)]
struct Context {
    env: Env,
    ops: Ops,
    model: Model,
    heartbeat: Duration,
}

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
    /// The operations it records.
    pub ops: Ops,
    /// Its account of who holds what.
    pub model: Model,
    /// Its parts.
    pub parts: Parts,
}

impl Fleet {
    /// Opens every node's leases: the first node's alone, so that it makes the buckets, then all others at once.
    ///
    /// # Errors
    /// When a node's store or buckets cannot be opened.
    pub async fn open<S: Store, F, E>(&self, store: impl Fn(usize) -> F) -> Result<Vec<Leases<S>>, E>
    where
        F: Future<Output = Result<S, E>>,
        E: From<OpenError>,
    {
        let config = Config {
            prefix: self.prefix.clone(),
            lease_ttl: self.params.lease_ttl(),
            replicas: self.replicas,
            ..Config::default()
        };
        let (store, config) = (&store, &config);
        let open = async |node: usize| -> Result<Leases<S>, E> {
            let store = store(node).await?;
            Ok(Leases::open(self.env.clone(), &store, config).await?)
        };
        let first = open(0).await?;
        let mut all = vec![first];
        all.extend(try_join_all((1..self.params.nodes).map(&open)).await?);
        Ok(all)
    }

    /// Seats of the nodes that are held now, by the model's account.
    pub fn seats_held(&self) -> usize {
        self.model.held("seat:s", self.env.now())
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
        let ended = over.end().unwrap_or_else(|| self.env.now());
        tokio::select! {
            seats_held = self.final_listing(leases, ended) => Ran { came_to: CameTo { seats_held, ..ran.came_to }, ..ran },
            () = interrupt => Ran { interrupted: true, ..ran },
        }
    }

    /// The whole run but its final listing.
    async fn work<S: Store>(&self, leases: &[Leases<S>], stop: Stop, over: &Over) -> Ran {
        let Params { duration, warmup, claimers, .. } = self.params;
        let (env, plan) = (&self.env, Plan::new(&self.params));
        let (ops, model, heartbeat) = (self.ops.clone(), self.model.clone(), self.params.heartbeat);
        let ctx = Context { env: env.clone(), ops, model, heartbeat };

        self.parts.enter("bring_up", env.now());
        let (mut tasks, brought_up) = self.bring_up(&ctx, leases, &plan, &stop).await;
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
        let contest = Arc::new(Contest::new(plan, contest_from, self.params.steady));
        tasks.push(tasks::spawn(membership::watch(ctx.clone(), leases.to_vec(), measured_from, stop.clone())));
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

    /// Brings every node up, all at once; each goes on beating on its own. Answers whether all are up: not when the run is
    /// over first, or gets nowhere.
    async fn bring_up<S: Store>(
        &self,
        ctx: &Context,
        leases: &[Leases<S>],
        plan: &Plan,
        stop: &Stop,
    ) -> (Vec<Task<()>>, bool) {
        let heartbeat = self.params.heartbeat;
        let began = self.env.now();
        let (up, mut all_up) = tokio::sync::mpsc::channel::<()>(1);
        let tasks = self.nodes(ctx, leases).into_iter().enumerate().map(|(i, mut node)| {
            let (env, stop, up, offset) = (self.env.clone(), stop.clone(), up.clone(), plan.beat(i));
            tasks::spawn(async move {
                node.bring_up(&stop).await;
                drop(up);
                // It beats from the moment its own seats are up: a slow bring-up elsewhere costs it no lease.
                let first = next_beat(began + offset, heartbeat, env.now());
                node.run(first, heartbeat, stop).await;
            })
        });
        let tasks = tasks.collect();
        drop(up);
        let brought_up = tokio::select! {
            // Nothing is ever sent: the channel closes when the last node has dropped its end.
            _closed = all_up.recv() => !stop.is_over(&self.env),
            () = self.getting_nowhere() => {
                tracing::error!(patience = ?BRING_UP_PATIENCE, held = self.seats_held(), "bring_up_given_up");
                false
            }
        };
        (tasks, brought_up)
    }

    /// Returns when nothing more came up for too long.
    async fn getting_nowhere(&self) {
        let (mut most, mut since) = (0, self.env.now());
        loop {
            self.env.sleep(Duration::from_secs(1)).await;
            let now = self.env.now();
            let up = self.seats_held() + self.model.held("node:", now);
            if up > most {
                (most, since) = (up, now);
            } else if now.since(since) >= BRING_UP_PATIENCE {
                return;
            }
        }
    }

    fn nodes<S: Store>(&self, ctx: &Context, leases: &[Leases<S>]) -> Vec<Node<S>> {
        let nodes = leases.len();
        leases
            .iter()
            .enumerate()
            .map(|(n, leases)| {
                let seats = (n..self.params.seats).step_by(nodes).map(seat).collect();
                Node::new(ctx.clone(), leases.clone(), format!("n{n:03}"), seats)
            })
            .collect()
    }

    /// What is under way is answered, or runs into its own deadline.
    async fn drain(&self, tasks: Vec<Task<()>>) {
        self.parts.enter(DRAIN, self.env.now());
        if !drained(&self.env, tasks).await {
            let left = self.recorder.totals().in_flight().max(1);
            self.model.found(|anomalies| anomalies.ops_unsettled += left);
        }
    }

    /// How many of the fleet's seats the store says are held when all is over. One that is not is an anomaly, unless it ended
    /// by itself since the heartbeats did, at `ended`.
    async fn final_listing<S: Store>(&self, leases: &[Leases<S>], ended: Mono) -> Option<usize> {
        let until = self.env.now() + FINAL_LISTING;
        loop {
            match leases[0].list(&Class::seat(), &Certified::Leader).await {
                Ok(views) => {
                    let now = self.env.now();
                    let listed: HashSet<&str> = views.iter().map(|view| view.resource.name()).collect();
                    let missing = (0..self.params.seats).map(seat).filter(|seat| !listed.contains(seat.name()));
                    let missing: Vec<Resource> = missing.collect();
                    let lapsed = |seat: &Resource| {
                        self.model.good_until(seat.name()).is_some_and(|until| until > ended && until <= now)
                    };
                    let gone = missing.iter().filter(|seat| !lapsed(seat)).count() as u64;
                    self.model.found(|anomalies| anomalies.seats_not_held += gone);
                    return Some(self.params.seats - missing.len());
                }
                Err(unknown) => tracing::warn!(%unknown, "final_listing_unknown"),
            }
            if self.env.now() >= until {
                self.model.found(|anomalies| anomalies.ops_unsettled += 1);
                return None;
            }
            self.env.sleep(Duration::from_millis(500)).await;
        }
    }
}

fn seat(number: usize) -> Resource {
    Resource::parse(&format!("seat:s{number:05}")).expect("a number makes a name")
}

/// The first beat after `now` of a node that beats at `beat` and every interval after it.
fn next_beat(mut beat: Mono, heartbeat: Duration, now: Mono) -> Mono {
    while beat <= now {
        beat = beat + heartbeat;
    }
    beat
}

#[cfg(test)]
mod tests;
