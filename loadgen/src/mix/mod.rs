//! `loadgen mix`: a fleet does all that it does, each family of records in its proportion, on a schedule that waits for no
//! answer.
//!
//! The nodes hold their seats as in [`fleet`], on a heartbeat. Beside that the `streams` flow: turns of the
//! seats, ticks of the nodes, what happens once for the company. Every answer is held against an `account` of what was
//! acknowledged before. The run goes through bring-up, founding, warm-up and the mix itself, and in the end the company's spend
//! is counted, and what every node heard of the paused seats is compared.

mod account;
mod alarm;
mod args;
mod asides;
mod company;
mod context;
mod followers;
mod lives;
mod node;
mod operators;
mod ops;
mod params;
mod scenario;
mod shelves;
mod streams;
mod ticks;
mod turn;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use coordproto::record::budget::Scope;
use coordproto::slot::Retention;
use coordproto::tally::Usage;
use coordproto::window::{Period, Windows, Zone};
use engine::env::Env;
use engine::lease::Leases;
use engine::slots::Settings;
use engine::store::{OpenError, Store};
use engine::tasks::{self, Task};

use crate::fleet::{self, Crew, first_then_all, node_id};
use crate::recorder::Recorder;
use crate::scenario::{DRAIN, Parts};
use crate::stop::{Over, Stop, drained};
use crate::timer::Timer;

pub use args::MixArgs;
pub use node::Node;
pub use params::Params;

use account::{Accounts, Wrong};
use alarm::Alarm;
use context::Context;
use ops::Ops;
use params::HEARTBEAT;
use streams::streams;

/// The part in which the company is founded: its first revision, its credentials, a mailbox for every seat.
const FOUNDING: &str = "founding";

/// The part that is measured.
const MIX: &str = "mix";

/// How long the final count of what was spent may be tried.
const FINAL_COUNT: Duration = Duration::from_secs(30);

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CameTo {
    /// Seats held when it was over, as the final listing has them; none when that was unknown or not asked.
    pub seats_held: Option<usize>,
}

type Ran = crate::scenario::Ran<CameTo>;

/// A mix over stores of one kind.
pub struct Mix {
    env: Env,
    params: Params,
    prefix: String,
    replicas: u8,
    recorder: Recorder,
    beat: fleet::Ops,
    ops: Ops,
    model: fleet::Model,
    parts: Parts,
}

impl Mix {
    fn crew(&self) -> Crew {
        let (env, ops, model) = (self.env.clone(), self.beat.clone(), self.model.clone());
        let ctx = fleet::Context { env, ops, model, heartbeat: HEARTBEAT };
        Crew { ctx, seats: self.params.seats, nodes: self.params.nodes() }
    }

    /// Opens every node's buckets: the first node's alone, so that it makes them, then all others' at once.
    ///
    /// # Errors
    /// When a node's store or buckets cannot be opened.
    pub async fn open<S: Store, F, E>(&self, store: impl Fn(usize) -> F) -> Result<Vec<Node<S>>, E>
    where
        F: Future<Output = Result<S, E>>,
        E: From<OpenError>,
    {
        let config = self.crew().config(&self.prefix, self.replicas);
        let retention = Retention::from(HEARTBEAT * 3);
        let settings = Settings { prefix: self.prefix.clone(), replicas: self.replicas, retention };
        first_then_all(self.params.nodes(), async |node| {
            let store = store(node).await?;
            Ok(Box::pin(Node::open(&self.env, node_id(node), &store, &config, &settings)).await?)
        })
        .await
    }

    /// Runs the mix on these nodes, until its time is over or `interrupt` is done.
    pub async fn run<S: Store>(&self, nodes: Vec<Node<S>>, interrupt: impl Future<Output = ()>) -> Ran {
        let (over, stop) = Over::new();
        let mut work = std::pin::pin!(self.work(nodes, stop, &over));
        tokio::select! {
            ran = &mut work => ran,
            () = interrupt => {
                over.at(self.env.now());
                Ran { interrupted: true, ..work.await }
            }
        }
    }

    async fn work<S: Store>(&self, nodes: Vec<Node<S>>, stop: Stop, over: &Over) -> Ran {
        let (env, crew) = (&self.env, self.crew());
        let leases: Vec<Leases<S>> = nodes.iter().map(|node| node.leases.clone()).collect();
        self.parts.enter("bring_up", env.now());
        let (mut tasks, brought_up) = crew.bring_up(&leases, &stop).await;
        if !brought_up {
            over.at(env.now());
            self.drain(tasks).await;
            return Ran { interrupted: true, ..Ran::default() };
        }
        let (alarm, bell) = Alarm::new();
        let _ringing = tasks::spawn(bell.ring(env.clone()));
        let ctx = Arc::new(self.context(crew.ctx.clone(), nodes, &stop, alarm));
        let following: Vec<_> =
            (0..ctx.nodes.len()).map(|index| tasks::spawn(followers::follow(ctx.clone(), index))).collect();

        self.parts.enter(FOUNDING, env.now());
        tokio::select! {
            () = Box::pin(company::founded(&ctx)) => {}
            () = stop.over(env) => {}
        }
        let begun = env.now();
        let measured_from = begun + self.params.warmup();
        self.recorder.measure_from(measured_from);
        over.at(measured_from + self.params.duration);
        tasks.push(crew.watch(&leases, measured_from, &stop));
        let streams = streams(self.params.turns);
        let of = streams.len();
        let flowing = streams.into_iter().enumerate().map(|(turn, stream)| {
            let flow = stream.flow(ctx.clone(), begun, (turn, of));
            tasks::spawn(flow)
        });
        tasks.extend(flowing);
        let mut timer = Timer::default();
        self.parts.enter("warm_up", begun);
        if !stop.before(env, &mut timer, measured_from).await {
            self.parts.enter(MIX, env.now());
            stop.over(env).await;
        }
        self.drain(tasks).await;
        let ended = over.end().unwrap_or_else(|| env.now());
        let seats_held = crew.final_listing(&leases[0], ended).await;
        Box::pin(final_count(&ctx)).await;
        followers::settled(&ctx).await;
        drop(following);
        Ran { interrupted: false, brought_up: true, came_to: CameTo { seats_held } }
    }

    fn context<S: Store>(&self, beat: fleet::Context, nodes: Vec<Node<S>>, stop: &Stop, alarm: Alarm) -> Context<S> {
        let env = self.env.clone();
        let zone = Zone::parse("zone", "UTC").expect("it is in the database");
        let began = (env.now(), env.wall());
        let windows = Windows::at(began.1, &zone).expect("a clock that was set");
        let owners = nodes.iter().map(|node| format!("{}:{:016x}", node.id, env.random())).collect();
        Context {
            ops: self.ops.clone(),
            accounts: Accounts { found: self.model.clone().into(), ..Accounts::default() },
            beat,
            owners,
            applied: nodes.iter().map(|_| Default::default()).collect(),
            heard: nodes.iter().map(|_| Default::default()).collect(),
            nodes,
            seats: self.params.seats,
            seed: self.params.seed,
            began,
            windows,
            stop: stop.clone(),
            alarm,
            rising: Default::default(),
            env,
        }
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

/// Counts what was spent, when nothing is under way any more: of the company and of every seat between what was acknowledged and
/// what was sent. And every window of the valve is judged that was not.
async fn final_count<S: Store>(ctx: &Context<S>) {
    let (remembered, now) = (turn::REMEMBERED, ctx.env.now());
    let verdict = ctx.accounts.valve.lock().settled(turn::LIMIT, remembered, now + remembered);
    ctx.judge(verdict, "notifications");
    let until = ctx.env.now() + FINAL_COUNT;
    let usage = loop {
        match ctx.nodes[0].budgets.usage(&ctx.windows).await {
            Ok(usage) => break usage,
            Err(unknown) => tracing::debug!(%unknown, "mix_unanswered"),
        }
        if ctx.env.now() >= until {
            ctx.judge(Err(Wrong::Unsettled), "spend");
            return;
        }
        ctx.env.sleep(Duration::from_millis(500)).await;
    };
    judge_count(ctx, &usage);
}

fn judge_count<S: Store>(ctx: &Context<S>, usage: &[(Scope, Usage)]) {
    let spend = ctx.accounts.spend.lock();
    for (scope, usage) in usage {
        let seat = match scope {
            Scope::Org => None,
            Scope::Seat(handle) => Some(&**handle),
        };
        for period in Period::ALL {
            ctx.judge(spend.final_count(seat, usage[period].spent), scope);
        }
    }
    let counted = |handle: &str| usage.iter().any(|(scope, _)| matches!(scope, Scope::Seat(seat) if **seat == *handle));
    for handle in spend.spenders().filter(|handle| !counted(handle)) {
        ctx.judge(Err(Wrong::SpendOff), handle);
    }
}

#[cfg(test)]
mod tests;
