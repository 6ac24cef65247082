//! The membership, read in both ways and each reading held against the model: by every node on its heartbeat, on the word of
//! its own presence, and by a watcher once a second, through one node after another, on the leader's.
//!
//! The nodes' way is the cheaper one and theirs alone: it takes a lease of one's own. The watcher's is that of everybody else,
//! and it also looks while no presence can be renewed.

use std::future::Future;
use std::time::Duration;

use coordproto::key::Class;
use engine::env::Mono;
use engine::jetstream::Meter;
use engine::lease::{Lease, LeaseView, Leases};
use engine::store::{Certified, Store};

use super::Context;
use crate::recorder::{Op, Outcome};
use crate::stop::Stop;
use crate::timer::Timer;

/// From one reading of the watcher to the next.
const EVERY: Duration = Duration::from_secs(1);

/// Reads the membership at `first` and every second after it, until the run is over.
pub(super) async fn watch<S: Store>(ctx: Context, leases: Vec<Leases<S>>, first: Mono, stop: Stop) {
    let mut at = first;
    let mut timer = Timer::default();
    let mut through = leases.iter().cycle();
    while !stop.before(&ctx.env, &mut timer, at).await {
        let Some(leases) = through.next() else { return };
        let begun = ctx.env.now();
        read(&ctx, leases, &ctx.ops.by_leader, at, &Certified::Leader, begun).await;
        at = at + EVERY;
    }
    stop.let_go(&ctx.ops.by_leader, std::iter::successors(Some(at), |at| Some(*at + EVERY)));
}

/// Reads the membership on the word of a presence that was just renewed: it begins when that renewal was sent. It is for a
/// task of its own, and what it returns owns all that it needs.
pub(super) fn read_by<S: Store>(
    ctx: Context,
    leases: Leases<S>,
    presence: &Lease,
) -> impl Future<Output = ()> + Send + use<S> {
    let barrier = leases.barrier(presence);
    let (now, begun) = (ctx.env.now(), barrier.sent);
    async move { read(&ctx, &leases, &ctx.ops.by_quorum, now, &Certified::Quorum(barrier), begun).await }
}

/// Reads the membership, due at `intended`. Who was there from `begun` until the answer has to be in it.
async fn read<S: Store>(
    ctx: &Context,
    leases: &Leases<S>,
    op: &Op,
    intended: Mono,
    certified: &Certified,
    begun: Mono,
) {
    let op = op.arrival(intended).start(ctx.env.now());
    let (answer, cost) = Meter::measure(leases.list(&Class::node(), certified)).await;
    let ended = ctx.env.now();
    op.finish(Outcome::of(&answer, |_| true), ended, cost.requests);
    let Ok(views) = answer else { return };
    let missed = missed(&ctx.model.live_throughout(begun, ended, "node:"), &views);
    if missed > 0 {
        tracing::error!(missed, listed = views.len(), ?certified, "membership_short");
        ctx.model.found(|anomalies| anomalies.memberships_short += 1);
    }
}

/// How many of the tenures are not in the reading.
fn missed(live: &[(Box<str>, std::sync::Arc<str>, u64)], views: &[LeaseView]) -> usize {
    let listed = |(name, owner, epoch): &&(Box<str>, std::sync::Arc<str>, u64)| {
        views.iter().any(|view| view.resource.name() == &**name && view.owner == **owner && view.epoch == *epoch)
    };
    live.len() - live.iter().filter(listed).count()
}
