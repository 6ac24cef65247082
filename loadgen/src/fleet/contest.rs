//! The contest: every claimer at once, several of them after the same fresh seat, wave after wave.
//!
//! When all who wanted a seat have their answer, the record is read by one of them and held against what they were told:
//! with every answer definite somebody holds it, and it is who was told so. Then the winner gives it back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use coordproto::key::Resource;
use engine::env::Mono;
use engine::jetstream::Meter;
use engine::lease::{Claim, Lease, Leases, Release, Terms};
use engine::store::Store;
use parking_lot::Mutex;

use super::node::{attempt, requests};
use super::{Context, Stop, outcome_of};

/// How many claimers want each seat.
pub(super) const RIVALS: usize = 4;

/// The plan that all claimers follow.
pub(super) struct Contest {
    /// When the first wave begins.
    pub(super) first: Mono,
    /// From one wave to the next.
    pub(super) interval: Duration,
    /// How many there are.
    pub(super) waves: u64,
    /// How many claimers take part in each.
    pub(super) claimers: usize,
    /// The seats still under contest, by wave and group.
    groups: Mutex<std::collections::HashMap<(u64, usize), Arc<Group>>>,
    /// Claims that have their definite answer.
    pub(super) settled: AtomicU64,
}

/// Those who want one seat.
struct Group {
    rivals: u64,
    undecided: AtomicUsize,
    unknown: AtomicUsize,
    winner: Mutex<Option<Lease>>,
}

impl Contest {
    /// `claims` claims by `claimers`, over `length` from `first` on.
    pub(super) fn new(first: Mono, length: Duration, claims: u64, claimers: usize) -> Contest {
        let waves = claims.div_ceil(claimers.max(1) as u64);
        let nanos = length.as_nanos() / u128::from(waves.max(1));
        let interval = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Contest { first, interval, waves, claimers, groups: Mutex::default(), settled: AtomicU64::new(0) }
    }

    fn at(&self, wave: u64) -> Mono {
        let nanos = self.interval.as_nanos() * u128::from(wave);
        self.first + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn group(&self, wave: u64, group: usize) -> Arc<Group> {
        let rivals = RIVALS.min(self.claimers - group * RIVALS);
        let fresh = || {
            Arc::new(Group {
                rivals: rivals as u64,
                undecided: AtomicUsize::new(rivals),
                unknown: AtomicUsize::new(0),
                winner: Mutex::new(None),
            })
        };
        self.groups.lock().entry((wave, group)).or_insert_with(fresh).clone()
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
        let group_id = claimer / RIVALS;
        for wave in 0..self.waves {
            let intended = self.at(wave);
            if stop.or_at(&ctx.env, intended).await {
                return;
            }
            let name = format!("seat:contest-{wave}-{group_id}");
            let seat = Resource::parse(&name).expect("numbers make a name");
            let terms = Terms::new(seat, owner.as_str(), leases.lease_ttl());
            let group = self.group(wave, group_id);
            match attempt(&ctx, &leases, &ctx.ops.claim, intended, &terms).await {
                Ok(Claim::Held(lease)) => *group.winner.lock() = Some(lease),
                Ok(Claim::Refused(_)) => {}
                Err(_) => {
                    group.unknown.fetch_add(1, Ordering::Relaxed);
                }
            }
            if group.undecided.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.groups.lock().remove(&(wave, group_id));
                self.settle(&ctx, &leases, &terms.resource, &group).await;
            }
        }
    }

    /// Everybody has an answer: checks them against the record, and gives the seat back.
    async fn settle<S: Store>(&self, ctx: &Context, leases: &Leases<S>, seat: &Resource, group: &Group) {
        let unknown = group.unknown.load(Ordering::Relaxed);
        let winner = group.winner.lock().take();
        self.settled.fetch_add(group.rivals - unknown as u64, Ordering::Relaxed);

        let began = ctx.env.now();
        let op = ctx.ops.get.arrival(began).start(began);
        let (answer, cost) = Meter::measure(leases.get(seat)).await;
        let now = ctx.env.now();
        op.finish(outcome_of(&answer, |_| true), now, requests(cost.requests));
        if let Ok(view) = answer {
            let holds = view.map(|view| (view.owner, view.epoch));
            let right = match &winner {
                Some(lease) if now < lease.good_until() => holds == Some((lease.owner().to_owned(), lease.epoch())),
                Some(_) => true,
                // A claim without an answer may hold it, until it is given back.
                None => holds.is_none() || unknown > 0,
            };
            let somebody = winner.is_some() || unknown > 0;
            if !right || !somebody {
                tracing::error!(%seat, ?holds, winner = ?winner.as_ref().map(Lease::owner), unknown, "winner_told_not_held");
                ctx.model.found(|anomalies| anomalies.winners_told_not_held += 1);
            }
        }
        let Some(lease) = winner else { return };
        let now = ctx.env.now();
        ctx.model.releasing(&lease, now);
        let op = ctx.ops.release.arrival(now).start(now);
        let (answer, cost) = Meter::measure(leases.release(&lease)).await;
        let now = ctx.env.now();
        op.finish(outcome_of(&answer, |r| *r == Release::Released), now, requests(cost.requests));
        if let Ok(Release::NotHeld) = answer {
            ctx.model.lost(&lease, now);
        }
    }
}
