//! The watcher: it lists the nodes' presence, through one node after another, and holds each reading against the model.

use std::time::Duration;

use coordproto::key::Class;
use engine::env::Mono;
use engine::jetstream::Meter;
use engine::lease::{LeaseView, Leases};
use engine::store::{Certified, Store};

use super::Context;
use crate::recorder::Outcome;
use crate::stop::Stop;
use crate::timer::Timer;

/// From one reading to the next.
const EVERY: Duration = Duration::from_secs(1);

/// Reads the membership at `first` and every second after it, until the run is over.
pub(super) async fn watch<S: Store>(ctx: Context, leases: Vec<Leases<S>>, first: Mono, stop: Stop) {
    let mut at = first;
    let mut timer = Timer::default();
    let mut through = leases.iter().cycle();
    while !stop.before(&ctx.env, &mut timer, at).await {
        let Some(leases) = through.next() else { return };
        read(&ctx, leases, at).await;
        at = at + EVERY;
    }
    stop.let_go(&ctx.ops.list, std::iter::successors(Some(at), |at| Some(*at + EVERY)));
}

async fn read<S: Store>(ctx: &Context, leases: &Leases<S>, intended: Mono) {
    let began = ctx.env.now();
    let op = ctx.ops.list.arrival(intended).start(began);
    let (answer, cost) = Meter::measure(leases.list(&Class::node(), &Certified::Leader)).await;
    let ended = ctx.env.now();
    op.finish(Outcome::of(&answer, |_| true), ended, cost.requests);
    let Ok(views) = answer else { return };
    let missed = missed(&ctx.model.live_throughout(began, ended, "node:"), &views);
    if missed > 0 {
        tracing::error!(missed, listed = views.len(), "membership_short");
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
