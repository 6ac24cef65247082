//! The nodes that hold seats, as every scenario has them that needs a fleet: how they are opened, come up all at once, and what
//! is listed of their seats in the end.

use std::collections::HashSet;
use std::future::Future;
use std::time::Duration;

use coordproto::key::{Class, Resource};
use engine::env::{Env, Mono};
use engine::lease::{Config, Leases};
use engine::store::{Certified, Store};
use engine::tasks::{self, Task};
use futures_util::future::try_join_all;

use super::node::Node;
use super::plan::beat;
use super::{Model, Ops, membership};
use crate::stop::Stop;

/// How long a bring-up may go without another seat or node before it is given up.
const BRING_UP_PATIENCE: Duration = Duration::from_secs(60);

/// How long the final listing of the seats may be tried.
const FINAL_LISTING: Duration = Duration::from_secs(30);

/// What every part of a fleet works with.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) env: Env,
    pub(crate) ops: Ops,
    pub(crate) model: Model,
    pub(crate) heartbeat: Duration,
}

/// So many nodes that are to hold so many seats.
pub(crate) struct Crew {
    pub(crate) ctx: Context,
    pub(crate) seats: usize,
    pub(crate) nodes: usize,
}

impl Crew {
    /// What the nodes open their leases with. A lease lasts three heartbeats.
    pub(crate) fn config(&self, prefix: &str, replicas: u8) -> Config {
        let lease_ttl = self.ctx.heartbeat * 3;
        Config { prefix: prefix.to_owned(), lease_ttl, replicas, ..Config::default() }
    }

    /// Seats that are held now, by the model's account.
    pub(crate) fn seats_held(&self) -> usize {
        self.ctx.model.held("seat:s", self.ctx.env.now())
    }

    /// Brings every node up, all at once; each goes on beating on its own. Answers whether all are up: not when the run is
    /// over first, or gets nowhere.
    pub(crate) async fn bring_up<S: Store>(&self, leases: &[Leases<S>], stop: &Stop) -> (Vec<Task<()>>, bool) {
        let heartbeat = self.ctx.heartbeat;
        let env = &self.ctx.env;
        let began = env.now();
        let (up, mut all_up) = tokio::sync::mpsc::channel::<()>(1);
        let tasks = self.members(leases).into_iter().enumerate().map(|(i, mut node)| {
            let (env, stop, up, offset) = (env.clone(), stop.clone(), up.clone(), beat(heartbeat, i, self.nodes));
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
            _closed = all_up.recv() => !stop.is_over(env),
            () = self.getting_nowhere() => {
                tracing::error!(patience = ?BRING_UP_PATIENCE, held = self.seats_held(), "bring_up_given_up");
                false
            }
        };
        (tasks, brought_up)
    }

    /// Returns when nothing more came up for too long.
    async fn getting_nowhere(&self) {
        let Context { env, model, .. } = &self.ctx;
        let (mut most, mut since) = (0, env.now());
        loop {
            env.sleep(Duration::from_secs(1)).await;
            let now = env.now();
            let up = self.seats_held() + model.held("node:", now);
            if up > most {
                (most, since) = (up, now);
            } else if now.since(since) >= BRING_UP_PATIENCE {
                return;
            }
        }
    }

    fn members<S: Store>(&self, leases: &[Leases<S>]) -> Vec<Node<S>> {
        let member = |(n, leases): (usize, &Leases<S>)| {
            let seats = (n..self.seats).step_by(self.nodes).map(seat).collect();
            Node::new(self.ctx.clone(), leases.clone(), node_id(n), seats)
        };
        leases.iter().enumerate().map(member).collect()
    }

    /// Reads the membership once a second, on the leader's word, from `first` on.
    pub(crate) fn watch<S: Store>(&self, leases: &[Leases<S>], first: Mono, stop: &Stop) -> Task<()> {
        tasks::spawn(membership::watch(self.ctx.clone(), leases.to_vec(), first, stop.clone()))
    }

    /// How many of the seats the store says are held when all is over. One that is not is an anomaly, unless it ended by
    /// itself since the heartbeats did, at `ended`.
    pub(crate) async fn final_listing<S: Store>(&self, leases: &Leases<S>, ended: Mono) -> Option<usize> {
        let Context { env, model, .. } = &self.ctx;
        let until = env.now() + FINAL_LISTING;
        loop {
            match leases.list(&Class::seat(), &Certified::Leader).await {
                Ok(views) => {
                    let now = env.now();
                    let listed: HashSet<&str> = views.iter().map(|view| view.resource.name()).collect();
                    let missing = (0..self.seats).map(seat).filter(|seat| !listed.contains(seat.name()));
                    let missing: Vec<Resource> = missing.collect();
                    let lapsed = |seat: &Resource| {
                        model.good_until(seat.name()).is_some_and(|until| until > ended && until <= now)
                    };
                    let gone = missing.iter().filter(|seat| !lapsed(seat)).count() as u64;
                    model.found(|anomalies| anomalies.seats_not_held += gone);
                    return Some(self.seats - missing.len());
                }
                Err(unknown) => tracing::warn!(%unknown, "final_listing_unknown"),
            }
            if env.now() >= until {
                model.found(|anomalies| anomalies.ops_unsettled += 1);
                return None;
            }
            env.sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Opens what so many nodes need, the first node's alone, so that it makes the buckets, then all others' at once.
///
/// # Errors
/// When one cannot be opened.
pub(crate) async fn first_then_all<T, E, F>(nodes: usize, open: impl Fn(usize) -> F) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut all = vec![open(0).await?];
    all.extend(try_join_all((1..nodes).map(&open)).await?);
    Ok(all)
}

/// What a node is called.
pub(crate) fn node_id(number: usize) -> String {
    format!("n{number:03}")
}

fn seat(number: usize) -> Resource {
    Resource::parse(&format!("seat:{}", handle(number))).expect("a number makes a name")
}

/// What a seat is called.
pub(crate) fn handle(number: usize) -> String {
    format!("s{number:05}")
}

/// The first beat after `now` of a node that beats at `beat` and every interval after it.
fn next_beat(mut beat: Mono, heartbeat: Duration, now: Mono) -> Mono {
    while beat <= now {
        beat = beat + heartbeat;
    }
    beat
}
