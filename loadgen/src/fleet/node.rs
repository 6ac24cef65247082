//! A node of the fleet: it claims its seats, renews all of them in one burst on every heartbeat, with its presence, and reads
//! the membership when that is renewed.
//!
//! The reading goes on beside the node's beats: one that hangs holds back no renewal. A node has one reading at a time, and
//! one that falls due meanwhile is counted as dropped.

use std::time::Duration;

use coordproto::answer::Error;
use coordproto::key::Resource;
use engine::env::Mono;
use engine::jetstream::Meter;
use engine::lease::{Claim, Lease, Leases, Refusal, Renew, Terms};
use engine::store::Store;
use engine::tasks::{self, Task};
use futures_util::future::{join, ready};
use futures_util::stream::{self, StreamExt};

use super::{Context, Ops, membership};
use crate::recorder::{Op, Outcome};
use crate::stop::Stop;
use crate::timer::Timer;

/// Claims under way at once in a node's sweep.
const CLAIMS_AT_ONCE: usize = 4;

/// The longest wait before an unknown renewal is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// One node.
pub(super) struct Node<S: Store> {
    ctx: Context,
    leases: Leases<S>,
    id: String,
    owner: String,
    /// What it is to hold.
    seats: Vec<Resource>,
    held: Vec<Lease>,
    presence: Option<Lease>,
    /// The last reading of the membership that was begun.
    reading: Option<Task<()>>,
    timer: Timer,
}

impl<S: Store> Node<S> {
    pub(super) fn new(ctx: Context, leases: Leases<S>, id: String, seats: Vec<Resource>) -> Node<S> {
        let owner = format!("{id}:{:016x}", ctx.env.random());
        let (held, timer) = (Vec::with_capacity(seats.len()), Timer::default());
        Node { ctx, leases, id, owner, seats, held, presence: None, reading: None, timer }
    }

    /// Announces the node and claims its seats; tries again what was unknown until all are held or the run is stopped.
    pub(super) async fn bring_up(&mut self, stop: &Stop) {
        loop {
            self.announce().await;
            self.sweep(stop).await;
            if stop.is_over(&self.ctx.env) || (self.held.len() == self.seats.len() && self.presence.is_some()) {
                return;
            }
            let next = self.ctx.env.now() + self.ctx.env.jitter(RETRY);
            if stop.before(&self.ctx.env, &mut self.timer, next).await {
                return;
            }
        }
    }

    /// Beats at `first` and every `interval` after it, until the run is over.
    pub(super) async fn run(mut self, first: Mono, interval: Duration, stop: Stop) {
        let mut beat = first;
        while !stop.before(&self.ctx.env, &mut self.timer, beat).await {
            self.beat(beat).await;
            beat = beat + interval;
            self.make_up(beat, &stop).await;
        }
        let missed = || std::iter::successors(Some(beat), |beat| Some(*beat + interval));
        self.held.iter().for_each(|_| stop.let_go(&self.ctx.ops.renew, missed()));
        self.presence.iter().for_each(|_| stop.let_go(&self.ctx.ops.presence, missed()));
        if let Some(reading) = self.reading.take() {
            reading.join().await;
        }
    }

    /// One heartbeat: the seats in a burst, the presence with its status right behind them. The membership is read as soon as
    /// that is renewed, and not waited for.
    async fn beat(&mut self, intended: Mono) {
        let Ops { renew, presence: op, .. } = self.ctx.ops.clone();
        let (ctx, leases, presence) = (self.ctx.clone(), self.leases.clone(), self.presence.take());
        let presence = renew_presence(ctx.clone(), leases.clone(), op, self.status(), presence, intended);
        let mut reading = self.reading.take();
        let presence = async {
            let (presence, extended) = presence.await;
            if let Some(presence) = presence.as_ref().filter(|_| extended) {
                if reading.as_ref().is_some_and(|reading| !reading.is_finished()) {
                    drop(ctx.ops.by_quorum.arrival(ctx.env.now()));
                } else if let Some(ended) = reading.replace(tasks::spawn(membership::read_by(ctx, leases, presence))) {
                    // It has; this is where a panic of its goes on.
                    ended.join().await;
                }
            }
            (presence, reading)
        };
        let ((), (presence, reading)) = join(self.renew(&renew, intended, |_| true), presence).await;
        (self.presence, self.reading) = (presence, reading);
        self.announce().await;
    }

    /// What the presence says of the node.
    fn status(&self) -> serde_json::Value {
        serde_json::json!({ "node": self.id, "seats": self.held.len() })
    }

    /// Until the next beat: asks again what was unknown, and claims again what was lost.
    async fn make_up(&mut self, next: Mono, stop: &Stop) {
        loop {
            let unconfirmed = self.presence.iter().chain(&self.held).any(|lease| self.is_overdue(lease, next));
            let missing = self.held.len() < self.seats.len() || self.presence.is_none();
            if !unconfirmed && !missing {
                return;
            }
            let again = self.ctx.env.now() + RETRY / 2 + self.ctx.env.jitter(RETRY / 2);
            if again >= next || stop.before(&self.ctx.env, &mut self.timer, again).await {
                return;
            }
            if unconfirmed {
                let op = self.ctx.ops.renew_retry.clone();
                let overdue: Vec<bool> = self.held.iter().map(|lease| self.is_overdue(lease, next)).collect();
                let (presence, confirmed) = match self.presence.take() {
                    Some(presence) if self.is_overdue(&presence, next) => (Some(presence), None),
                    confirmed => (None, confirmed),
                };
                let (ctx, now) = (self.ctx.clone(), self.ctx.env.now());
                let presence = renew_presence(ctx, self.leases.clone(), op.clone(), self.status(), presence, now);
                let ((), (presence, _)) = join(self.renew(&op, now, |i| overdue[i]), presence).await;
                self.presence = presence.or(confirmed);
            }
            if missing {
                self.announce().await;
                self.sweep(stop).await;
            }
        }
    }

    /// Whether a lease was not confirmed on the beat before `next`.
    fn is_overdue(&self, lease: &Lease, next: Mono) -> bool {
        next.since(lease.confirmed()) > self.ctx.heartbeat + self.ctx.heartbeat / 4
    }

    /// Renews in one burst what `select` wants of the held leases, and lets go of what is lost.
    async fn renew(&mut self, op: &Op, intended: Mono, select: impl Fn(usize) -> bool) {
        let all = std::mem::take(&mut self.held);
        let mut chosen = Vec::with_capacity(all.len());
        for (i, lease) in all.into_iter().enumerate() {
            if select(i) { chosen.push(lease) } else { self.held.push(lease) }
        }
        if chosen.is_empty() {
            return;
        }
        let ctx = &self.ctx;
        let arrivals: Vec<_> = chosen.iter().map(|_| op.arrival(intended)).collect();
        let sent = ctx.env.now();
        let started: Vec<_> = arrivals.into_iter().map(|arrival| arrival.start(sent)).collect();
        let (answers, cost) = Meter::measure(self.leases.renew_all(&mut chosen)).await;
        // One request each; what a burst cost beyond that is told of its first renewal.
        let mut extra = cost.requests.saturating_sub(chosen.len() as u64);
        for ((lease, renewal), op) in chosen.into_iter().zip(answers).zip(started) {
            let took = 1 + std::mem::take(&mut extra);
            op.finish(Outcome::of(&renewal.answer, |r| *r == Renew::Extended), renewal.at, took);
            match renewal.answer {
                Ok(Renew::Extended) => {
                    ctx.model.extended(&lease);
                    self.held.push(lease);
                }
                Ok(Renew::Lost) => ctx.model.lost(&lease, renewal.at),
                // Ambiguity is not loss: held, and asked again.
                Err(unknown) => {
                    tracing::debug!(node = self.id, %unknown, "seat_renew_unknown");
                    self.held.push(lease);
                }
            }
        }
    }

    async fn announce(&mut self) {
        if self.presence.is_some() {
            return;
        }
        let name = format!("node:{}", self.id);
        let resource = Resource::parse(&name).expect("a node's id makes a name");
        let terms =
            Terms { meta: Some(self.status()), ..Terms::new(resource, self.owner.as_str(), self.leases.lease_ttl()) };
        self.presence = claim(&self.ctx, &self.leases, &self.ctx.ops.sweep, self.ctx.env.now(), &terms).await;
    }

    /// Claims every seat that is the node's and not held; when the run is over meanwhile, those under way are the last.
    async fn sweep(&mut self, stop: &Stop) {
        let held: std::collections::HashSet<&Resource> = self.held.iter().map(Lease::resource).collect();
        let missing: Vec<Resource> = self.seats.iter().filter(|seat| !held.contains(seat)).cloned().collect();
        let (ctx, leases, owner, id) = (&self.ctx, &self.leases, &self.owner, &self.id);
        let claimed: Vec<Option<Lease>> = stream::iter(missing)
            .take_while(|_| ready(!stop.is_over(&ctx.env)))
            .map(|seat| async move {
                let terms =
                    Terms { preferred: Some(id.clone()), ..Terms::new(seat, owner.as_str(), leases.lease_ttl()) };
                claim(ctx, leases, &ctx.ops.sweep, ctx.env.now(), &terms).await
            })
            .buffer_unordered(CLAIMS_AT_ONCE)
            .collect()
            .await;
        self.held.extend(claimed.into_iter().flatten());
    }
}

/// Renews a presence; answers it unless it is lost, and whether it was extended.
async fn renew_presence<S: Store>(
    ctx: Context,
    leases: Leases<S>,
    op: Op,
    status: serde_json::Value,
    presence: Option<Lease>,
    intended: Mono,
) -> (Option<Lease>, bool) {
    let Some(mut presence) = presence else { return (None, false) };
    let op = op.arrival(intended).start(ctx.env.now());
    let (answer, cost) = Meter::measure(leases.renew_with(&mut presence, status)).await;
    let now = ctx.env.now();
    op.finish(Outcome::of(&answer, |renew| *renew == Renew::Extended), now, cost.requests);
    match answer {
        Ok(Renew::Extended) => {
            ctx.model.extended(&presence);
            (Some(presence), true)
        }
        Ok(Renew::Lost) => {
            ctx.model.lost(&presence, now);
            (None, false)
        }
        // Ambiguity is not loss: announced still, and asked again.
        Err(error) => {
            tracing::debug!(resource = %presence.resource(), %error, "presence_renew_unknown");
            (Some(presence), false)
        }
    }
}

/// Claims, records it, and tells the model.
async fn claim<S: Store>(ctx: &Context, leases: &Leases<S>, op: &Op, intended: Mono, terms: &Terms) -> Option<Lease> {
    match attempt(ctx, leases, op, intended, terms).await {
        Ok(Claim::Held(lease)) => Some(lease),
        Ok(Claim::Refused(refusal)) => {
            tracing::debug!(resource = %terms.resource, %refusal, "claim_refused");
            None
        }
        Err(error) => {
            tracing::debug!(resource = %terms.resource, %error, "claim_unknown");
            None
        }
    }
}

/// Claims, records it, and tells the model; answers what the store answered.
pub(crate) async fn attempt<S: Store>(
    ctx: &Context,
    leases: &Leases<S>,
    op: &Op,
    intended: Mono,
    terms: &Terms,
) -> Result<Claim, Error> {
    let started = op.arrival(intended).start(ctx.env.now());
    let (answer, cost) = Meter::measure(leases.claim(terms)).await;
    let now = ctx.env.now();
    started.finish(Outcome::of(&answer, |claim| matches!(claim, Claim::Held(_))), now, cost.requests);
    match &answer {
        Ok(Claim::Held(lease)) => ctx.model.granted(lease, now),
        // A refusal in the claimer's own name is a winner told that it lost.
        Ok(Claim::Refused(Refusal::Held { by, .. })) if *by == terms.owner => {
            ctx.model.found(|anomalies| anomalies.winners_told_not_held += 1);
        }
        _ => {}
    }
    answer
}
