//! Renewing and releasing what is held: one compare-and-set at the revision the holder knows, and a look only when it loses.
//!
//! A lost compare-and-set is not a lost lease: the holder's own earlier write may have landed without its answer. So the
//! record is read, and while it still is this tenure the write is tried again at its revision.

use bytes::Bytes;
use coordproto::answer::{BadArgument, Cause, Error, Landing, Unknown};
use coordproto::record::lease::LeaseRecord;
use futures_util::future::{join, join_all};
use jiff::Timestamp;
use serde_json::Value;

use super::{Inner, Lease, Leases, ROUNDS, contended};
use crate::env::Mono;
use crate::store::{Bucket, Expect, Put, Race, Store, Write};

/// The definite answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "whoever lost the lease has to stop"]
pub enum Renew {
    /// The lease has a new deadline.
    Extended,
    /// It is no longer this tenure's: lapsed, released, or a later epoch's. It has to be claimed again.
    Lost,
}

/// What an answer to a renewal leaves its holder with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "whoever lost the lease has to stop"]
pub enum Tenure {
    /// It is held, until this instant at least.
    Held {
        /// The holder's own bound.
        until: Mono,
    },
    /// It is not, for all that its holder knows, who has to stop.
    Over,
}

/// The safe direction of a renewal without an answer.
pub trait Holds {
    /// Held until the holder's own bound where it is unknown: ambiguity is not loss. At `now` past the bound it is over,
    /// whatever the answer.
    fn holds(self, lease: &Lease, now: Mono) -> Tenure;
}

impl Holds for Result<Renew, Unknown> {
    fn holds(self, lease: &Lease, now: Mono) -> Tenure {
        let until = lease.good_until();
        match self {
            Ok(Renew::Lost) => return Tenure::Over,
            Ok(Renew::Extended) => {}
            // A node has as many of these as it holds leases, so they are for whoever looks for them.
            Err(unknown) => tracing::debug!(%unknown, "lease_renewal_unanswered"),
        }
        if now < until { Tenure::Held { until } } else { Tenure::Over }
    }
}

/// One answer of a burst.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// The answer, as for [`renew`](Leases::renew).
    pub answer: Result<Renew, Unknown>,
    /// When it was there.
    pub at: Mono,
}

/// The definite answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a lease that was not held any more may have been a peer's for a while"]
pub enum Release {
    /// It was held until now.
    Released,
    /// It was not held any more, and whoever holds it now is untouched.
    NotHeld,
}

/// What is written over a tenure's record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Renew,
    Release,
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Op::Renew => "renew",
            Op::Release => "release",
        }
    }
}

/// What became of a write over this tenure's record.
enum Over {
    Stored { revision: u64, sent: Mono },
    NotOurs,
}

impl<S: Store> Leases<S> {
    /// Gives a lease a new deadline.
    ///
    /// # Errors
    /// Unknown, also where the broker takes less than the record is large by now. Nothing about the lease changes, which is good
    /// until [`Lease::good_until`]; see [`Holds::holds`].
    pub async fn renew(&self, lease: &mut Lease) -> Result<Renew, Unknown> {
        let value = lease.value.clone();
        match self.inner.write_over(lease, value, Op::Renew).await {
            Ok(Over::Stored { revision, sent }) => {
                lease.revision = revision;
                lease.sent = sent;
                Ok(Renew::Extended)
            }
            Ok(Over::NotOurs) => Ok(Renew::Lost),
            Err(Error::Unknown(unknown)) => Err(unknown),
            // It was stored once, by a broker that took more.
            Err(Error::BadArgument(error)) => Err(too_large("renew", lease, &error)),
        }
    }

    /// Gives a lease a new deadline, and says something new about its holder.
    ///
    /// # Errors
    /// A meta that makes the record too large; or unknown, as for [`renew`](Leases::renew).
    pub async fn renew_with(&self, lease: &mut Lease, meta: Value) -> Result<Renew, Error> {
        let cause = |cause| Unknown::settled("renew", lease.resource.name(), cause);
        let mut record = LeaseRecord::decode(&lease.value).map_err(cause)?;
        record.meta = Some(meta);
        let value = record.encode();
        Ok(match self.inner.write_over(lease, value.clone(), Op::Renew).await? {
            Over::Stored { revision, sent } => {
                *lease = Lease { revision, sent, value, ..lease.clone() };
                Renew::Extended
            }
            Over::NotOurs => Renew::Lost,
        })
    }

    /// Renews many leases in one pipelined burst, one request each. The answers are in the order of the leases.
    pub async fn renew_all(&self, leases: &mut [Lease]) -> Vec<Renewal> {
        let renewals = join_all(leases.iter_mut().map(|lease| async {
            let answer = self.renew(lease).await;
            Renewal { answer, at: self.inner.env.now() }
        }));
        // Said on the heartbeat, so that no claim between two heartbeats has to.
        let (answers, declared) = join(renewals, self.inner.declare_protocol()).await;
        if let Err(unknown) = declared {
            tracing::debug!(%unknown, "lease_protocol_not_declared");
        }
        answers
    }

    /// Ends a lease. The counter and the placement hint live on.
    ///
    /// # Errors
    /// Unknown: the lease ends by itself at its deadline.
    pub async fn release(&self, lease: &Lease) -> Result<Release, Unknown> {
        let unknown = |cause| Unknown::settled("release", lease.resource.name(), cause);
        let released = LeaseRecord::decode(&lease.value).map_err(unknown)?.released().encode();
        match self.inner.write_over(lease, released, Op::Release).await {
            Ok(Over::Stored { .. }) => Ok(Release::Released),
            Ok(Over::NotOurs) => Ok(Release::NotHeld),
            Err(Error::Unknown(unknown)) => Err(unknown),
            Err(Error::BadArgument(error)) => Err(too_large("release", lease, &error)),
        }
    }
}

fn too_large(op: &'static str, lease: &Lease, error: &BadArgument) -> Unknown {
    Unknown::settled(op, lease.resource.name(), Cause::TooLarge(error.to_string().into()))
}

impl<B: Bucket> Inner<B> {
    /// Writes `value` over the record of this tenure, while it is this tenure's.
    async fn write_over(&self, lease: &Lease, value: Bytes, op: Op) -> Result<Over, Error> {
        // Whether a write of this operation may land, or has, though it was not the end of it.
        let mut landing = Landing::Settled;
        let told = |error: Error, landing| match error {
            Error::Unknown(unknown) => unknown.during(op.name(), lease.resource.name()).after(landing).into(),
            bad => bad,
        };
        let mut stands = lease.revision;
        // Only a look tells whether a lease past its own deadline has lapsed: its record may outlive it, and a compare-and-set
        // would revive it.
        if self.env.now() >= lease.good_until() {
            match Box::pin(self.ours(lease, stands)).await.map_err(|e| told(e, landing))? {
                Some(revision) => stands = revision,
                None => return Ok(Over::NotOurs),
            }
        }
        for round in 0..ROUNDS {
            let sent = self.env.now();
            let write = Write::Value(value.clone());
            let put = self.bucket(&lease.resource).put(lease.resource.key(), write, Expect::At(stands));
            match put.await.map_err(|e| told(e, landing))? {
                // An answer that took as long as the lease lasts says nothing about now.
                Put::Stored(revision) if op == Op::Renew && self.env.now() >= sent + lease.ttl => {
                    (stands, landing) = (revision, Landing::InFlight);
                }
                Put::Stored(revision) => return Ok(Over::Stored { revision, sent }),
                Put::Lost(Race::InProcess) => self.back_off(round).await,
                Put::Lost(Race::Newer(newer)) => stands = newer,
                // By a member that may not be the leader, and then the leader may still store it.
                Put::Lost(Race::Vanished) => landing = Landing::InFlight,
            }
            match Box::pin(self.ours(lease, stands)).await.map_err(|e| told(e, landing))? {
                Some(revision) => stands = revision,
                None => return Ok(Over::NotOurs),
            }
        }
        Err(contended(op.name(), &lease.resource).after(landing).into())
    }

    /// The revision at which a tenure's record stands; none when it is certainly over. `known` is a revision that the record
    /// is known to have reached.
    ///
    /// Two answers are made true before they are given, by a write that leaves what a release would have left. Where nothing
    /// stands, a leader from before the record would say the same, so it takes a quorum to believe it: a write that expects
    /// nothing there. And where the record has outlived its deadline unswept, everybody else still reads it as held.
    async fn ours(&self, lease: &Lease, mut known: u64) -> Result<Option<u64>, Error> {
        let unknown = |cause| Unknown::settled("look", lease.resource.name(), cause);
        for round in 0..ROUNDS {
            let stands = match self.look(&lease.resource).await? {
                None => 0,
                Some(found) if found.revision < known => {
                    return Err(unknown(Cause::Stale { answered: found.revision, known }).into());
                }
                Some(found) => {
                    let record = found.record.filter(|r| found.live && r.is_tenure(&lease.owner, lease.epoch));
                    let Some(record) = record else { return Ok(None) };
                    if !self.unswept(lease, &record, found.written).await? {
                        return Ok(Some(found.revision));
                    }
                    found.revision
                }
            };
            let released = LeaseRecord::decode(&lease.value).map_err(unknown)?.released().encode();
            let bucket = self.bucket(&lease.resource);
            match bucket.put(lease.resource.key(), Write::Value(released), Expect::At(stands)).await? {
                Put::Stored(_) => return Ok(None),
                Put::Lost(Race::Newer(newer)) => known = newer,
                Put::Lost(Race::InProcess | Race::Vanished) => self.back_off(round).await,
            }
        }
        Err(contended("look", &lease.resource).into())
    }

    /// Whether a record that ends with the bucket's age is there although that age has passed. Only a holder past its own
    /// bound asks.
    ///
    /// The broker sweeps at intervals, and a stream that comes back on several members has been seen to keep the record
    /// written last for another age. It reads as held all the while, and no peer may judge it by a clock; its own former
    /// holder may.
    async fn unswept(&self, lease: &Lease, record: &LeaseRecord, written: Timestamp) -> Result<bool, Unknown> {
        let expiry = self.expiry(&lease.resource);
        if self.env.now() < lease.good_until() || record.needs_clock(expiry) {
            return Ok(false);
        }
        Ok(self.bucket(&lease.resource).clock().await? >= record.deadline(written, expiry))
    }
}
