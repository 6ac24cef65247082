//! A reader: it lists in whichever way has its turn, again as soon as it was answered, and holds each listing against the
//! account.

use std::sync::Arc;

use coordproto::answer::Unknown;
use coordproto::key::{Class, Filter, Key};
use coordproto::listing::Version;
use engine::env::{Env, Mono};
use engine::jetstream::Meter;
use engine::store::counting::Counting;
use engine::store::listing::LIST_WITHIN;
use engine::store::{Barrier, Bucket, Certified, Pass, Store, Values};

use super::params::Turns;
use super::{Account, BACK_OFF, Ops, Strategy, Tally};
use crate::recorder::Outcome;
use crate::stop::Stop;
use crate::timer::Timer;

/// A reader's connection to the bucket.
pub(super) struct Seat<S: Store> {
    /// Counts what is asked of the bucket.
    pub(super) counting: Counting<S>,
    pub(super) bucket: Counting<S::Bucket>,
}

/// One reader.
pub(super) struct Reader<S: Store> {
    pub(super) env: Env,
    pub(super) ops: Ops,
    pub(super) account: Arc<Account>,
    pub(super) tally: Tally,
    pub(super) seat: Seat<S>,
}

impl<S: Store> Reader<S> {
    /// Lists until no turn is left, or the run is over.
    pub(super) async fn run(self, turns: Arc<Turns>, stop: Stop) {
        let mut timer = Timer::default();
        while !stop.is_over(&self.env)
            && let Some(strategy) = turns.next()
        {
            if let Err(unknown) = self.list(strategy).await {
                tracing::debug!(strategy = strategy.name(), %unknown, "listing_unknown");
                if stop.before(&self.env, &mut timer, self.env.now() + BACK_OFF).await {
                    return;
                }
            }
        }
    }

    /// One listing, and before it the write that it stands on, if it is a quorum's: it begins when that is sent.
    async fn list(&self, strategy: Strategy) -> Result<(), Unknown> {
        let Seat { counting, bucket } = &self.seat;
        let filter = Class::node().filter();
        let before = self.account.before();
        let certified = match strategy {
            Strategy::Leader => Some(Certified::Leader),
            Strategy::Quorum => Some(Certified::Quorum(self.barrier().await?)),
            Strategy::Naive => None,
        };
        counting.take();
        let began = self.env.now();
        let (op, by) = (self.ops.listing(strategy).arrival(began).start(began), began + LIST_WITHIN);
        let listing = async {
            match &certified {
                Some(certified) => Ok(bucket.list(&filter, certified, by).await?.entries),
                None => naive(bucket, &filter, by).await,
            }
        };
        let (answer, cost) = Meter::measure(listing).await;
        op.finish(Outcome::of(&answer, |_| true), self.env.now(), cost.requests);
        let leader_reads = counting.take().read;
        let listed = answer.inspect_err(|_| self.tally.unknown(strategy, leader_reads))?;
        let wrong = self.account.check(&before, &listed);
        if self.tally.answered(strategy, wrong, leader_reads) {
            let super::Wrong { missed, twice, old } = wrong;
            tracing::error!(strategy = strategy.name(), listed = listed.len(), missed, twice, old, "listing_wrong");
        }
        Ok(())
    }

    async fn barrier(&self) -> Result<Barrier, Unknown> {
        let began = self.env.now();
        let op = self.ops.barrier.arrival(began).start(began);
        let (answer, cost) = Meter::measure(self.seat.bucket.barrier(self.seat.bucket.deadline())).await;
        op.finish(Outcome::of(&answer, |_| true), self.env.now(), cost.requests);
        answer
    }
}

/// What a pass delivers until it says that nothing is pending, less what it says was removed: a listing as it is written by who
/// takes that for its end.
async fn naive<B: Bucket>(bucket: &B, filter: &Filter, by: Mono) -> Result<Vec<(Key, Version)>, Unknown> {
    let mut pass = bucket.pass(filter, Values::With, by).await?;
    let mut listed = Vec::new();
    let mut pending = pass.to_deliver();
    while pending > 0 {
        let delivery = pass.next(by).await?;
        pending = delivery.pending;
        let Some(key) = delivery.key else { continue };
        if delivery.version.value.is_some() {
            listed.push((key, delivery.version));
        } else {
            listed.retain(|(other, _)| *other != key);
        }
    }
    pass.end(by).await?;
    Ok(listed)
}
