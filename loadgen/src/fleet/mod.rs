//! `loadgen fleet`: nodes holding seats on a heartbeat, claimers racing for fresh ones, a watcher listing the membership.
//!
//! Every node has a connection and leases of its own, and beats at an instant of its own within the interval. The run goes
//! through bring-up, warm-up, a quiet part with the heartbeats (and the watcher) alone, and the contest. Correctness is
//! checked by a [`Model`] throughout.

mod contest;
mod model;
mod node;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use coordproto::answer::Error;
use coordproto::key::{Class, Resource};
use engine::env::{Env, Mono};
use engine::jetstream::Meter;
use engine::lease::{Config, Leases};
use engine::store::{OpenError, Store};
use engine::tasks::{self, Task};
use futures_util::future::{join_all, try_join_all};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::recorder::{Op, Outcome, Recorder};

pub use model::Model;

use contest::Contest;
use node::Node;

/// From one membership reading to the next.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// How long operations under way at the end may take to be answered.
const DRAIN: Duration = Duration::from_secs(20);

/// How long the final listing of the seats may take.
const FINAL_LISTING: Duration = Duration::from_secs(30);

/// What a run is asked to be.
#[derive(Clone, Debug)]
pub struct Params {
    /// Seats in all, shared evenly among the nodes.
    pub seats: usize,
    /// Nodes, each with a connection of its own.
    pub nodes: usize,
    /// From one renewal of a seat to the next; a lease lasts three of them.
    pub heartbeat: Duration,
    /// Claimers racing at once.
    pub claimers: usize,
    /// Claims in the contest, in all.
    pub claims: u64,
    /// How long is measured.
    pub duration: Duration,
    /// How long heartbeats run before that.
    pub warmup: Duration,
}

impl Params {
    /// The TTL of the leases.
    pub fn lease_ttl(&self) -> Duration {
        self.heartbeat * 3
    }

    /// The part of the measured time in which only heartbeats and the watcher run.
    pub fn quiet(&self) -> Duration {
        self.duration / 3
    }
}

/// The operations that a fleet run records.
#[derive(Clone)]
pub struct Ops {
    /// A claimer's claim of a contested seat.
    pub claim: Op,
    /// A seat's renewal on the heartbeat.
    pub renew: Op,
    /// A renewal asked again because its answer was unknown.
    pub renew_retry: Op,
    /// A presence's renewal with the node's status.
    pub presence: Op,
    /// A node's claim of what it is to hold.
    pub sweep: Op,
    /// The release of a contested seat.
    pub release: Op,
    /// The reading that checks a contest.
    pub get: Op,
    /// A membership listing.
    pub list: Op,
}

impl Ops {
    /// Declares the operations to a recorder.
    pub fn declare(recorder: &mut Recorder) -> Ops {
        Ops {
            claim: recorder.declare("claim"),
            renew: recorder.declare("renew"),
            renew_retry: recorder.declare("renew_retry"),
            presence: recorder.declare("presence"),
            sweep: recorder.declare("sweep"),
            release: recorder.declare("release"),
            get: recorder.declare("get"),
            list: recorder.declare("list"),
        }
    }
}

/// What every part of the fleet works with.
#[derive(Clone)]
struct Context {
    env: Env,
    ops: Ops,
    model: Model,
    heartbeat: Duration,
}

/// Tells the parts of a run that it is over.
#[derive(Clone)]
struct Stop(watch::Receiver<bool>);

impl Stop {
    fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    async fn stopped(&mut self) {
        // A sender that is gone has nothing more to say either.
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }

    /// Waits until `at`, or until the run is over; answers whether it is.
    async fn or_at(&self, env: &Env, at: Mono) -> bool {
        let mut stop = self.clone();
        env.within(at, stop.stopped()).await.is_ok() || self.is_stopped()
    }

    async fn or_after(&self, env: &Env, wait: Duration) -> bool {
        self.or_at(env, env.now() + wait).await
    }
}

/// The parts of a run, as it enters them.
#[derive(Clone, Default)]
pub struct Parts(Arc<Mutex<Vec<(&'static str, Mono)>>>);

impl Parts {
    fn enter(&self, part: &'static str, now: Mono) {
        self.0.lock().push((part, now));
    }

    /// The part that the run is in.
    pub fn current(&self) -> &'static str {
        self.0.lock().last().map_or("opening", |(part, _)| part)
    }

    /// Every part entered so far, with its beginning and its end; the last one ends `now`.
    pub fn entered(&self, now: Mono) -> Vec<(&'static str, Mono, Mono)> {
        let parts = self.0.lock();
        let ends = parts.iter().skip(1).map(|(_, began)| *began).chain([now]);
        parts.iter().zip(ends).map(|((part, began), ended)| (*part, *began, ended)).collect()
    }
}

/// What a run came to, beside what its recorder, its model and its parts hold.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Whether it was ended before its time.
    pub interrupted: bool,
    /// Seats held when it ended, as the final listing has them; none when that was unknown or not asked.
    pub seats_held: Option<usize>,
    /// Contested claims that were answered definitely.
    pub claims_settled: u64,
}

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

    /// Runs the fleet on these leases, one of each node, until its time is over or `interrupt` is done.
    pub async fn run<S: Store>(&self, leases: &[Leases<S>], interrupt: impl Future<Output = ()>) -> Ran {
        let (over, stop) = watch::channel(false);
        let work = self.work(leases, Stop(stop), &over);
        let mut work = std::pin::pin!(work);
        let claims_settled = tokio::select! {
            settled = &mut work => settled,
            () = interrupt => {
                over.send_replace(true);
                let claims_settled = work.await;
                return Ran { interrupted: true, seats_held: None, claims_settled };
            }
        };
        Ran { interrupted: false, seats_held: self.final_listing(leases).await, claims_settled }
    }

    /// The whole run; answers how many contested claims were settled. `over` tells its parts to end.
    async fn work<S: Store>(&self, leases: &[Leases<S>], stop: Stop, over: &watch::Sender<bool>) -> u64 {
        let Params { heartbeat, duration, warmup, claims, claimers, .. } = self.params;
        let env = &self.env;
        let ctx = Context { env: env.clone(), ops: self.ops.clone(), model: self.model.clone(), heartbeat };

        let began = env.now();
        self.parts.enter("bring_up", began);
        let mut tasks = self.bring_up(&ctx, leases, &stop, began).await;

        let measured_from = env.now() + warmup;
        self.recorder.measure_from(measured_from);
        let contest_from = measured_from + self.params.quiet();
        let contest = Arc::new(Contest::new(contest_from, duration - self.params.quiet(), claims, claimers));
        tasks.push(tasks::spawn(watcher(ctx.clone(), leases.to_vec(), measured_from, stop.clone())));
        for claimer in 0..claimers {
            let leases = leases[claimer % leases.len()].clone();
            tasks.push(tasks::spawn(contest.clone().claimer(ctx.clone(), leases, claimer, stop.clone())));
        }
        let ends = measured_from + duration;
        for (part, until) in [("warm_up", measured_from), ("quiet", contest_from), ("contest", ends)] {
            if stop.is_stopped() {
                break;
            }
            self.parts.enter(part, env.now());
            stop.or_at(env, until).await;
        }
        self.parts.enter("drain", env.now());
        over.send_replace(true);
        // What is under way is answered, or runs into its own deadline.
        if env.within(env.now() + DRAIN, join_all(tasks.into_iter().map(Task::join))).await.is_err() {
            self.model.found(|anomalies| anomalies.ops_unsettled += 1);
        }
        contest.settled.load(Ordering::Relaxed)
    }

    /// Brings every node up, all at once; each goes on beating on its own.
    async fn bring_up<S: Store>(&self, ctx: &Context, leases: &[Leases<S>], stop: &Stop, began: Mono) -> Vec<Task<()>> {
        let Params { nodes, heartbeat, .. } = self.params;
        let (up, mut all_up) = tokio::sync::mpsc::channel::<()>(1);
        let tasks = self.nodes(ctx, leases).into_iter().enumerate().map(|(i, mut node)| {
            let (env, stop, up) = (self.env.clone(), stop.clone(), up.clone());
            tasks::spawn(async move {
                node.bring_up(&stop).await;
                drop(up);
                // It beats from the moment its own seats are up: a slow bring-up elsewhere costs it no lease.
                let first = next_beat(began, offset(i, nodes, heartbeat), heartbeat, env.now());
                node.run(first, heartbeat, stop).await;
            })
        });
        let tasks = tasks.collect();
        drop(up);
        // Nothing is ever sent: the channel closes when the last node has dropped its end.
        let _closed = all_up.recv().await;
        tasks
    }

    fn nodes<S: Store>(&self, ctx: &Context, leases: &[Leases<S>]) -> Vec<Node<S>> {
        let nodes = leases.len();
        let seat = |i: usize| Resource::parse(&format!("seat:s{i:05}")).expect("a number makes a name");
        leases
            .iter()
            .enumerate()
            .map(|(n, leases)| {
                let seats = (n..self.params.seats).step_by(nodes).map(seat).collect();
                Node::new(ctx.clone(), leases.clone(), format!("n{n:03}"), seats)
            })
            .collect()
    }

    /// How many of the fleet's seats the store says are held when all is over; the missing ones are an anomaly.
    async fn final_listing<S: Store>(&self, leases: &[Leases<S>]) -> Option<usize> {
        let until = self.env.now() + FINAL_LISTING;
        loop {
            match leases[0].list(&Class::seat()).await {
                Ok(views) => {
                    let held = views.iter().filter(|view| view.resource.name().starts_with("seat:s")).count();
                    let missing = (self.params.seats - held.min(self.params.seats)) as u64;
                    self.model.found(|anomalies| anomalies.seats_not_held += missing);
                    return Some(held);
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

/// Lists the nodes' presence, through one node after another, and holds each reading against the model.
async fn watcher<S: Store>(ctx: Context, leases: Vec<Leases<S>>, first: Mono, stop: Stop) {
    let mut at = first;
    let mut turn = 0_usize;
    while !stop.or_at(&ctx.env, at).await {
        let began = ctx.env.now();
        let op = ctx.ops.list.arrival(at).start(began);
        let (answer, cost) = Meter::measure(leases[turn % leases.len()].list(&Class::node())).await;
        let now = ctx.env.now();
        op.finish(outcome_of(&answer, |_| true), now, node::requests(cost.requests));
        if let Ok(views) = answer {
            let missed = ctx
                .model
                .live_throughout(began, now, |name| name.starts_with("node:"))
                .into_iter()
                .filter(|(name, owner, epoch)| {
                    let listed = views.iter().find(|view| view.resource.name() == &**name);
                    listed.is_none_or(|view| view.owner != **owner || view.epoch != *epoch)
                })
                .count();
            if missed > 0 {
                tracing::error!(missed, listed = views.len(), "membership_short");
                ctx.model.found(|anomalies| anomalies.memberships_short += 1);
            }
        }
        at = at + WATCH_EVERY;
        turn += 1;
    }
}

/// How long after the interval's beginning a node beats: nodes are spread over it.
fn offset(node: usize, nodes: usize, heartbeat: Duration) -> Duration {
    let nanos = heartbeat.as_nanos() * node as u128 / nodes.max(1) as u128;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The first beat of a node after `now`.
fn next_beat(began: Mono, offset: Duration, heartbeat: Duration, now: Mono) -> Mono {
    let mut beat = began + offset;
    while beat <= now {
        beat = beat + heartbeat;
    }
    beat
}

/// How an answer is counted: a definite yes, a definite no, unknown, or a mistake of the generator's own.
fn outcome_of<T, E: Clone + Into<Error>>(answer: &Result<T, E>, yes: impl Fn(&T) -> bool) -> Outcome {
    match answer {
        Ok(value) if yes(value) => Outcome::Ok,
        Ok(_) => Outcome::Refused,
        Err(error) => match error.clone().into() {
            Error::Unknown(_) => Outcome::Unknown,
            Error::BadArgument(_) => Outcome::Error,
        },
    }
}
