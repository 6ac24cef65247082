//! Leases: who runs what, with a fencing token.
//!
//! Three buckets. `leases` holds seats and presence, and its age is the TTL; `duties` holds every other lease, each ended by
//! its own deadline on the broker's clock; `epochs` holds a counter and a placement hint for every resource ever leased, and
//! never forgets.
//!
//! What is promised: at any instant at most one owner holds a resource at a given epoch, no epoch is ever given to two
//! owners, and an epoch only grows. Every answer is a definite yes or no, or `Unknown`; the safe direction of an unknown renew
//! is that it *holds*: ambiguity is not loss, and [`Lease::good_until`] is what bounds it. See [`Holds::holds`], and for a claim
//! [`FailsClosed::fails_closed`].
//!
//! What it costs, without contention: a renew or a release is one request; a claim of a fresh or lapsed resource is six at
//! most, in four round trips; a claim refused because a peer holds the resource is two at most. (A seat's claim is one
//! request more while a newer build shares the fleet and this handle has sent no heartbeat for a TTL.)

mod claim;
mod gate;
mod giveback;
mod tenure;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Unknown};
use coordproto::key::{Class, Resource};
use coordproto::lease::{Expiry, PROTOCOL, ends_by_age};
use coordproto::listing::Version;
use coordproto::record::lease::{EpochRecord, LeaseRecord};
use coordproto::slot::{DUTIES, EPOCHS, LEASES};
use futures_util::future::{try_join, try_join3};
use jiff::Timestamp;
use serde_json::Value;

use crate::env::{Env, Mono};
use crate::store::listing::LIST_WITHIN;
use crate::store::{Barrier, Bucket, BucketSpec, Certified, OpenError, Store};

pub use claim::{Claim, FailsClosed, Refusal};
pub use coordproto::lease::Terms;
pub use tenure::{Holds, Release, Renew, Renewal, Tenure};

/// How often a lost race is looked at again before the answer is unknown.
const ROUNDS: u32 = 16;

/// What a fleet's leases are opened with.
#[derive(Clone, Debug)]
pub struct Config {
    /// What every bucket's name begins with.
    pub prefix: String,
    /// The TTL of seats and presence, where the bucket does not exist yet.
    pub lease_ttl: Duration,
    /// The fewest copies a bucket may have.
    pub replicas: u8,
    /// The lease protocol of this build, [`PROTOCOL`].
    pub protocol: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config { prefix: "crewlet".into(), lease_ttl: Duration::from_secs(45), replicas: 1, protocol: PROTOCOL }
    }
}

/// The leases of a fleet, as one node sees them. Clones are handles to the same.
pub struct Leases<S: Store> {
    inner: Arc<Inner<S::Bucket>>,
}

impl<S: Store> Clone for Leases<S> {
    fn clone(&self) -> Self {
        Leases { inner: self.inner.clone() }
    }
}

struct Inner<B> {
    env: Env,
    leases: B,
    duties: B,
    epochs: B,
    /// The age in force of `leases`.
    lease_ttl: Duration,
    gate: gate::Gate,
}

/// A lease that this process holds. It is what a renew and a release are asked with, and nothing else may be built from it.
#[derive(Clone, Debug)]
pub struct Lease {
    resource: Resource,
    owner: Arc<str>,
    epoch: u64,
    ttl: Duration,
    revision: u64,
    /// The record as it was last written. A renewal that changes nothing sends these very bytes.
    value: Bytes,
    /// When the last good request was sent.
    sent: Mono,
}

impl Lease {
    /// What is held.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// By whom.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The fencing token.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The holder's own bound: the instant its last good request was *sent*, plus the TTL. The broker's deadline is never
    /// earlier. When a claim is granted or a renewal answered, it has not passed.
    pub fn good_until(&self) -> Mono {
        self.sent + self.ttl
    }

    /// When the last good request was sent.
    pub fn confirmed(&self) -> Mono {
        self.sent
    }
}

/// A live lease as a reader sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseView {
    /// What is held.
    pub resource: Resource,
    /// By whom.
    pub owner: String,
    /// The fencing token.
    pub epoch: u64,
    /// When it ends on the broker's clock, when nobody renews it.
    pub deadline: Timestamp,
    /// The lease protocol of the build that holds it.
    pub protocol: u32,
    /// Where the resource would rather run.
    pub preferred: Option<String>,
    /// What the holder says about itself.
    pub meta: Option<Value>,
    /// When the tenure began, by the holder's wall clock.
    pub acquired_at: Option<Timestamp>,
    /// The record's revision.
    pub revision: u64,
}

impl<S: Store> Leases<S> {
    /// Opens the three buckets, adopting what exists, and records the protocol that this build speaks.
    ///
    /// A `leases` bucket with another age than `config.lease_ttl` is used as it is, and the log says so.
    ///
    /// # Errors
    /// A setting that no broker can keep, a bucket with fewer replicas than configured, or unknown.
    pub async fn open(env: Env, store: &S, config: &Config) -> Result<Leases<S>, OpenError> {
        let spec = |slot| BucketSpec::of(slot, &config.prefix, config.lease_ttl, config.replicas);
        let specs = [&LEASES, &DUTIES, &EPOCHS].map(|slot| (slot, spec(slot)));
        for (_, spec) in &specs {
            spec.check()?;
        }
        let [leases, duties, epochs] = specs.each_ref().map(|(slot, spec)| store.adopt(slot, spec));
        let (leases, duties, epochs) = try_join3(leases, duties, epochs).await?;
        let age = leases.age().ok_or_else(|| OpenError::Endless { bucket: leases.name().to_owned() })?;
        // A TTL is a whole number of milliseconds; an age need not be.
        let lease_ttl = Duration::from_millis(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let gate = gate::Gate::new(config.protocol);
        let inner = Inner { env, leases, duties, epochs, lease_ttl, gate };
        inner.declare_protocol().await?;
        Ok(Leases { inner: Arc::new(inner) })
    }

    /// The TTL of seats and presence: the age in force of their bucket, whatever this node was configured with.
    pub fn lease_ttl(&self) -> Duration {
        self.inner.lease_ttl
    }

    /// The live lease on a resource, or none. A claim still in flight is none.
    ///
    /// # Errors
    /// Unknown; a record that does not decode is unknown too.
    pub async fn get(&self, resource: &Resource) -> Result<Option<LeaseView>, Unknown> {
        let inner = &self.inner;
        let found = inner.look(resource).await.map_err(|u| u.during("get", resource.name()))?;
        Ok(found.and_then(|found| if found.live { found.view(resource.clone(), inner.expiry(resource)) } else { None }))
    }

    /// The live leases of a class, in the order of their keys. Certified by a quorum it stands on a lease of that bucket, see
    /// [`Leases::barrier`]: seats and presence for seats and presence, any other lease for the others.
    ///
    /// # Errors
    /// Unknown; never a shorter list.
    pub async fn list(&self, class: &Class, certified: &Certified) -> Result<Vec<LeaseView>, Unknown> {
        let views = self.inner.list(class, certified).await?;
        Ok(views.into_iter().filter_map(|found| found.found.view(found.resource, found.expiry)).collect())
    }

    /// The last good write of a lease, for a listing of its bucket to stand on: the listing begins when that was sent.
    pub fn barrier(&self, lease: &Lease) -> Barrier {
        let bucket = self.inner.bucket(&lease.resource).name().into();
        Barrier { bucket, key: lease.resource.key().clone(), revision: lease.revision, sent: lease.sent }
    }

    /// The live leases of a class that `owner` holds, certified by the leader.
    ///
    /// # Errors
    /// Unknown; never a shorter list.
    pub async fn owned(&self, class: &Class, owner: &str) -> Result<Vec<LeaseView>, Unknown> {
        let mut views = self.list(class, &Certified::Leader).await?;
        views.retain(|view| view.owner == owner);
        Ok(views)
    }

    /// The placement hints of a class: every resource of it ever leased with a hint, held or not, and the node it names. A
    /// hint decides nothing, so none is read again: one that was just named may be missing, or be the one before.
    ///
    /// # Errors
    /// Unknown, as of any listing.
    pub async fn hints(&self, class: &Class) -> Result<Vec<(Resource, String)>, Unknown> {
        let (epochs, by) = (&self.inner.epochs, self.inner.env.now() + LIST_WITHIN);
        let listing = epochs.list(&class.filter(), &Certified::Leader, by).await;
        let listing = listing.map_err(|u| u.during("hints", class.as_str()))?;
        let mut hints = Vec::new();
        for (key, version) in listing.entries {
            let Some(value) = version.value else { continue };
            let Ok(resource) = Resource::from_key(&key) else { continue };
            let record = EpochRecord::decode(&value);
            let record = record.map_err(|cause| Unknown::settled("hints", resource.name(), cause))?;
            if let Some(node) = record.preferred {
                hints.push((resource, node));
            }
        }
        Ok(hints)
    }
}

/// What a look at a resource's record found.
struct Found {
    revision: u64,
    written: Timestamp,
    /// `None` for a removal marker, which reads as absent but has a revision to write over.
    record: Option<LeaseRecord>,
    live: bool,
}

impl Found {
    /// Whether it is a live lease, its epoch committed.
    fn is_tenure(&self) -> bool {
        self.live && self.record.as_ref().is_some_and(|record| record.epoch.is_some())
    }

    /// What a reader is told: a committed tenure.
    fn view(self, resource: Resource, expiry: Expiry) -> Option<LeaseView> {
        let record = self.record?;
        let deadline = record.deadline(self.written, expiry);
        Some(LeaseView {
            resource,
            deadline,
            owner: record.owner?,
            epoch: record.epoch?,
            protocol: record.protocol,
            preferred: record.preferred,
            meta: record.meta,
            acquired_at: record.acquired_at,
            revision: self.revision,
        })
    }
}

struct Listed {
    resource: Resource,
    expiry: Expiry,
    found: Found,
}

impl<B: Bucket> Inner<B> {
    fn bucket(&self, resource: &Resource) -> &B {
        if ends_by_age(resource.class()) { &self.leases } else { &self.duties }
    }

    fn expiry(&self, resource: &Resource) -> Expiry {
        if ends_by_age(resource.class()) { Expiry::ByAge(self.lease_ttl) } else { Expiry::ByDeadline }
    }

    /// Reads a resource's record, and the broker's clock beside it where only the clock can tell whether it is live.
    async fn look(&self, resource: &Resource) -> Result<Option<Found>, Unknown> {
        let bucket = self.bucket(resource);
        if ends_by_age(resource.class()) {
            let version = bucket.get(resource.key()).await?;
            self.judge(resource, version, None).await
        } else {
            let (version, clock) = try_join(bucket.get(resource.key()), bucket.clock()).await?;
            self.judge(resource, version, Some(clock)).await
        }
    }

    /// Decides whether a version of a resource's record is live. The clock is read only where it is needed and not given.
    async fn judge(
        &self,
        resource: &Resource,
        version: Option<Version>,
        clock: Option<Timestamp>,
    ) -> Result<Option<Found>, Unknown> {
        let Some(Version { revision, written, value }) = version else { return Ok(None) };
        let Some(value) = value else { return Ok(Some(Found { revision, written, record: None, live: false })) };
        let record = LeaseRecord::decode(&value).map_err(|cause| Unknown::settled("read", resource.name(), cause))?;
        let expiry = self.expiry(resource);
        let now = match clock {
            Some(now) => now,
            None if record.owner.is_some() && record.needs_clock(expiry) => self.bucket(resource).clock().await?,
            // It is released or readable at the bucket's full age: no instant changes the answer.
            None => written,
        };
        let live = record.is_live(written, expiry, now);
        Ok(Some(Found { revision, written, record: Some(record), live }))
    }

    /// Every live record of a class, claims in flight included, in the order of their keys.
    ///
    /// A listing that the leader certifies names every key that was live, but the value may be an older one, from a member
    /// that is behind. So a record that says the resource is free, or only about to be held, is not left out on that word: all
    /// such are looked at again, in copies that are as late as the listing. A value that a quorum proved is not from before
    /// the listing.
    async fn list(&self, class: &Class, certified: &Certified) -> Result<Vec<Listed>, Unknown> {
        let bucket = if ends_by_age(class.as_str()) { &self.leases } else { &self.duties };
        let (filter, by) = (class.filter(), self.env.now() + LIST_WITHIN);
        let told = |unknown: Unknown| unknown.during("list", class.as_str());
        let listing = bucket.list(&filter, certified, by).await.map_err(told)?;
        let clock = Some(listing.clock);
        let (mut live, mut doubtful) = (Vec::with_capacity(listing.entries.len()), Vec::new());
        for (key, version) in listing.entries {
            // A key that names no resource was written by nobody that speaks of leases.
            let Some(resource) = Resource::from_key(&key).ok() else { continue };
            let found = self.judged(&resource, Some(version), clock).await?;
            match certified {
                Certified::Leader if !found.as_ref().is_some_and(Found::is_tenure) => doubtful.push(key),
                _ => live.extend(self.listed(resource, found)),
            }
        }
        if !doubtful.is_empty() {
            for (key, version) in bucket.since(&filter, &doubtful, listing.last_seq, by).await.map_err(told)? {
                let Some(resource) = Resource::from_key(&key).ok() else { continue };
                let found = self.judged(&resource, Some(version), clock).await?;
                live.extend(self.listed(resource, found));
            }
            live.sort_unstable_by(|a, b| a.resource.key().cmp(b.resource.key()));
        }
        Ok(live)
    }

    /// A record that cannot be read keeps a listing from its answer, and is what an operator has to look at.
    async fn judged(
        &self,
        resource: &Resource,
        version: Option<Version>,
        clock: Option<Timestamp>,
    ) -> Result<Option<Found>, Unknown> {
        self.judge(resource, version, clock).await.map_err(|unknown| match unknown.cause {
            Cause::Undecodable(_) => unknown.during("list", resource.name()),
            _ => unknown.during("list", resource.class()),
        })
    }

    fn listed(&self, resource: Resource, found: Option<Found>) -> Option<Listed> {
        let found = found.filter(|found| found.live)?;
        Some(Listed { expiry: self.expiry(&resource), resource, found })
    }

    /// Waits before round `round` of a contended loop: jittered, 1 ms doubling to 32 ms.
    async fn back_off(&self, round: u32) {
        let most = Duration::from_millis(1 << round.min(5));
        self.env.sleep(most / 2 + self.env.jitter(most)).await;
    }
}

/// An unknown about rivals that kept winning.
fn contended(op: &'static str, resource: &Resource) -> Unknown {
    Unknown::settled(op, resource.name(), Cause::Contended { rounds: ROUNDS })
}
