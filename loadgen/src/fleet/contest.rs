//! The contest: every claimer at once, several of them after the same fresh seat, wave after wave.
//!
//! When all who wanted a seat have their answer, the record is read by one of them and held against what they were told:
//! with every answer definite somebody holds it, and it is who was told so. Then the winner gives it back.
//!
//! A claimer makes one claim at a time. One that is held up makes the claims it missed at once, each counted from when it was
//! meant to be made.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use coordproto::key::Resource;
use engine::env::Mono;
use engine::jetstream::Meter;
use engine::lease::{Claim, Lease, Leases, Release, Terms};
use engine::store::Store;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::node::attempt;
use super::plan::Plan;
use super::{ContestOps, Context};
use crate::recorder::Outcome;
use crate::stop::Stop;
use crate::timer::Timer;

/// A contest under way.
pub(super) struct Contest {
    ops: ContestOps,
    plan: Plan,
    /// When the first wave begins.
    first: Mono,
    /// How many waves have begun.
    begun: watch::Sender<u64>,
    /// The seats that are still under contest, by wave.
    groups: Mutex<HashMap<(u64, usize), Arc<Group>>>,
    /// Seats that were given back and that nobody else can still be after; none where every contest has fresh ones.
    spare: Option<Mutex<Vec<Resource>>>,
    /// Claims that have their definite answer.
    pub(super) settled: AtomicU64,
}

/// Those who want one seat.
struct Group {
    seat: Resource,
    rivals: usize,
    undecided: AtomicUsize,
    unknown: AtomicUsize,
    winner: Mutex<Option<Lease>>,
}

impl Contest {
    /// One whose first wave begins at `first`, for seats that were given back, as far as there are such, if `again`.
    pub(super) fn new(ops: ContestOps, plan: Plan, first: Mono, again: bool) -> Contest {
        let (begun, groups, settled) = (watch::Sender::new(0), Mutex::default(), AtomicU64::new(0));
        Contest { ops, plan, first, begun, groups, spare: again.then(Mutex::default), settled }
    }

    /// When a wave begins.
    fn at(&self, wave: u64) -> Mono {
        self.first + self.plan.at(wave)
    }

    /// Begins one wave after the other, until the last or until the run is over.
    pub(super) async fn conduct(self: Arc<Self>, ctx: Context, stop: Stop) {
        let mut timer = Timer::default();
        for wave in 0..self.plan.waves() {
            if stop.before(&ctx.env, &mut timer, self.at(wave)).await {
                return;
            }
            self.begun.send_replace(wave + 1);
        }
    }

    fn group(&self, wave: u64, seat: usize) -> Arc<Group> {
        let fresh = || {
            let rivals = self.plan.rivals(wave, seat);
            let (undecided, unknown) = (AtomicUsize::new(rivals), AtomicUsize::new(0));
            let spare = self.spare.as_ref().and_then(|spare| spare.lock().pop());
            let name = || Resource::parse(&format!("seat:contest-{wave}-{seat}")).expect("numbers make a name");
            let (seat, winner) = (spare.unwrap_or_else(name), Mutex::new(None));
            Arc::new(Group { seat, rivals, undecided, unknown, winner })
        };
        self.groups.lock().entry((wave, seat)).or_insert_with(fresh).clone()
    }

    /// One claimer's part, on its node's leases.
    pub(super) async fn claimer<S: Store>(
        self: Arc<Self>,
        ctx: Context,
        leases: Leases<S>,
        claimer: usize,
        stop: Stop,
    ) {
        let owner = format!("claimer-{claimer}:{:016x}", ctx.env.random());
        let mut begun = self.begun.subscribe();
        for wave in 0..self.plan.waves() {
            let Some(wanted) = self.plan.seat(wave, claimer) else { return };
            let over = tokio::select! {
                biased;
                () = stop.over(&ctx.env) => true,
                // The sender is this contest, which outlives the wait.
                heard = begun.wait_for(|begun| *begun > wave) => heard.is_err(),
            };
            if over {
                let rest = (wave..self.plan.waves()).filter(|wave| self.plan.seat(*wave, claimer).is_some());
                stop.let_go(&self.ops.claim, rest.map(|wave| self.at(wave)));
                return;
            }
            let group = self.group(wave, wanted);
            let terms = Terms::new(group.seat.clone(), owner.as_str(), leases.lease_ttl());
            match attempt(&ctx, &leases, &self.ops.claim, self.at(wave), &terms).await {
                Ok(Claim::Held(lease)) => *group.winner.lock() = Some(lease),
                Ok(Claim::Refused(_)) => {}
                Err(_) => {
                    group.unknown.fetch_add(1, Ordering::Relaxed);
                }
            }
            if group.undecided.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.groups.lock().remove(&(wave, wanted));
                self.settle(&ctx, &leases, &group).await;
            }
        }
    }

    /// Everybody has an answer: checks them against the record, and gives the seat back.
    async fn settle<S: Store>(&self, ctx: &Context, leases: &Leases<S>, group: &Group) {
        let seat = &group.seat;
        let unknown = group.unknown.load(Ordering::Relaxed);
        let winner = group.winner.lock().take();
        self.settled.fetch_add((group.rivals - unknown) as u64, Ordering::Relaxed);

        let began = ctx.env.now();
        let op = self.ops.get.arrival(began).start(began);
        let (answer, cost) = Meter::measure(leases.get(seat)).await;
        let now = ctx.env.now();
        op.finish(Outcome::of(&answer, |_| true), now, cost.requests);
        if let Ok(view) = answer {
            let holder = view.map(|view| (view.owner, view.epoch));
            let right = match &winner {
                // Past its own bound it may have lapsed.
                Some(lease) => now >= lease.good_until() || holder == Some((lease.owner().to_owned(), lease.epoch())),
                // A claim without an answer may hold the seat, until it is given back. With none such, somebody won.
                None => unknown > 0,
            };
            if !right {
                let told = winner.as_ref().map(Lease::owner);
                tracing::error!(%seat, ?holder, told, unknown, "winner_told_not_held");
                ctx.model.found(|anomalies| anomalies.winners_told_not_held += 1);
            }
        }
        if let Some(lease) = winner {
            let given_back = self.give_back(ctx, leases, &lease).await;
            // A claim without an answer may still land, on whoever claims the seat next.
            if let Some(spare) = self.spare.as_ref().filter(|_| given_back && unknown == 0) {
                spare.lock().push(seat.clone());
            }
        }
    }

    /// Answers whether it was released.
    async fn give_back<S: Store>(&self, ctx: &Context, leases: &Leases<S>, lease: &Lease) -> bool {
        let now = ctx.env.now();
        ctx.model.releasing(lease, now);
        let op = self.ops.release.arrival(now).start(now);
        let (answer, cost) = Meter::measure(leases.release(lease)).await;
        let now = ctx.env.now();
        op.finish(Outcome::of(&answer, |r| *r == Release::Released), now, cost.requests);
        match answer {
            Ok(Release::Released) => {
                ctx.model.released(lease);
                return true;
            }
            Ok(Release::NotHeld) => ctx.model.lost(lease, now),
            // It ends by itself at its deadline.
            Err(unknown) => tracing::debug!(%unknown, "seat_release_unknown"),
        }
        false
    }
}
