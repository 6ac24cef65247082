//! The claim: look, win the record, bump the counter, commit the epoch.
//!
//! ```text
//! round trip   1            2              3        4
//!              get record   win record     bump     commit
//!              gate | clock read counter
//! ```
//!
//! The gate (of a seat) or the broker's clock (of a lease that ends by its own deadline) rides beside the first read, the
//! counter beside the write that wins, and the word that this build's protocol is in use, where it has to be said, beside the
//! bump. What a claim wrote is given back when it fails or its caller goes away; see
//! [`giveback`](super::giveback).

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use coordproto::answer::{BadArgument, Cause, Error, Landing, Unknown};
use coordproto::key::Resource;
use coordproto::lease::{Step, Terms, ends_by_age, step};
use coordproto::listing::Index;
use coordproto::record::lease::{EpochRecord, LeaseRecord};
use futures_util::future::{join, try_join};
use jiff::Timestamp;
use serde_json::Map;

use super::gate::Older;
use super::giveback::Pending;
use super::{Found, Inner, Lease, Leases, ROUNDS, contended};
use crate::store::{Bucket, Expect, Put, Race, Store, Write, check_size};

/// How often a claim looks at a sibling's claim in flight, unchanged, before it takes its place.
const SIBLING_LOOKS: u32 = 3;

/// The definite answer to a claim.
#[derive(Clone, Debug)]
#[must_use = "a lease that is held has to be renewed or released, and one that is refused is a peer's"]
pub enum Claim {
    /// The resource is the claimer's.
    Held(Lease),
    /// It is not; nothing was written.
    Refused(Refusal),
}

/// The safe direction of a claim.
pub trait FailsClosed {
    /// The lease, if the resource is the claimer's for certain. Where it is unknown it is not, and what may come to stand of
    /// the claim is given back: a duty is not run this time, and a seat not at this node.
    ///
    /// # Errors
    /// A bad argument stays one.
    fn fails_closed(self) -> Result<Option<Lease>, BadArgument>;
}

impl FailsClosed for Result<Claim, Error> {
    fn fails_closed(self) -> Result<Option<Lease>, BadArgument> {
        match self {
            Ok(Claim::Held(lease)) => Ok(Some(lease)),
            Ok(Claim::Refused(_)) => Ok(None),
            Err(Error::BadArgument(error)) => Err(error),
            Err(Error::Unknown(unknown)) => {
                tracing::debug!(%unknown, "lease_claim_unanswered");
                Ok(None)
            }
        }
    }
}

/// Why a claim was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A peer holds the resource, or is about to. This outranks the protocol gate.
    #[error("held by {by}")]
    Held {
        /// The holder.
        by: String,
        /// Its epoch; none while its claim is in flight.
        epoch: Option<u64>,
    },
    /// A live lease was written by an older protocol.
    #[error("{} is held at the older lease protocol {}", older.resource, older.protocol)]
    OlderProtocol {
        /// That lease.
        older: Older,
    },
}

/// What one round of a claim came to.
enum Round {
    Done(Claim),
    Again,
    /// It took no part: it was refused while a rival's write was under way.
    Busy,
}

impl<S: Store> Leases<S> {
    /// Claims a resource.
    ///
    /// The holder's own claim again answers the same epoch with a new deadline. Dropping the future before it is done gives
    /// back whatever it had written.
    ///
    /// # Errors
    /// Terms that break a rule, before anything is sent; or unknown, after which the resource is given back in the
    /// background.
    pub async fn claim(&self, terms: &Terms) -> Result<Claim, Error> {
        let inner = &self.inner;
        terms.check(inner.lease_ttl)?;
        let resource = &terms.resource;
        let record = inner.largest_record(terms);
        // Before anything is sent.
        check_size(inner.bucket(resource), resource.key(), encoded_len(&record))?;
        let mut attempt = Attempt {
            pending: Pending::new(inner, terms, record),
            inner,
            terms,
            gate_passed: resource.class() != "seat",
            sibling: (0, 0),
            known: 0,
            landing: Landing::Settled,
        };
        let by = inner.bucket(resource).deadline();
        let (mut rounds, mut tries) = (0, 0);
        while rounds < ROUNDS {
            if tries > 0 {
                // The rival that won has two more writes to make; looking sooner would show neither of them.
                inner.back_off(tries + 1).await;
            }
            (rounds, tries) = (rounds + 1, tries + 1);
            match attempt.round().await {
                Ok(Round::Done(claim)) => {
                    attempt.pending.disarm();
                    return Ok(claim);
                }
                // Followers that are slow keep the rival's write under way, and that is no contention before this.
                Ok(Round::Busy) if inner.env.now() < by => rounds -= 1,
                Ok(Round::Again | Round::Busy) => {}
                Err(Error::Unknown(unknown)) => {
                    return Err(unknown.during("claim", resource.name()).after(attempt.landing).into());
                }
                Err(bad) => return Err(bad),
            }
        }
        Err(contended("claim", resource).after(attempt.landing).into())
    }
}

struct Attempt<'a, B: Bucket> {
    inner: &'a Arc<Inner<B>>,
    terms: &'a Terms,
    /// This claim's record, whose claim id tells its writes from every other's, and what of it is under way.
    pending: Pending<'a, B>,
    gate_passed: bool,
    /// The revision of a sibling's claim in flight, and how often it was seen.
    sibling: (u64, u32),
    /// A revision that the record is known to have reached.
    known: u64,
    /// Whether a write that was answered may land nevertheless, or has.
    landing: Landing,
}

impl<B: Bucket> Attempt<'_, B> {
    async fn round(&mut self) -> Result<Round, Error> {
        let (found, protocols) = self.look().await?;
        if let Some(revision) = found.as_ref().map(|f| f.revision)
            && revision < self.known
        {
            let cause = Cause::Stale { answered: revision, known: self.known };
            return Err(Unknown::settled("look", self.terms.resource.name(), cause).into());
        }
        let record = found.as_ref().and_then(|f| f.record.as_ref());
        let live = found.as_ref().is_some_and(|f| f.live);
        match step(record, live, &self.terms.owner) {
            Step::Refuse { by, epoch } => {
                return Ok(Round::Done(Claim::Refused(Refusal::Held { by: by.to_owned(), epoch })));
            }
            Step::Extend { epoch } => return self.extend(found, epoch).await,
            Step::Sibling => {
                let revision = found.as_ref().map_or(0, |f| f.revision);
                let seen = if self.sibling.0 == revision { self.sibling.1 + 1 } else { 1 };
                self.sibling = (revision, seen);
                if seen < SIBLING_LOOKS {
                    return Ok(Round::Again);
                }
            }
            Step::Win => {}
        }
        if let Some(protocols) = protocols {
            if let Some(older) = self.inner.older_than_mine(&protocols).await? {
                return Ok(Round::Done(Claim::Refused(Refusal::OlderProtocol { older })));
            }
            self.gate_passed = true;
        }
        self.begin(found).await
    }

    /// The record as it stands, and the protocols on record, where the gate was not passed yet.
    async fn look(&self) -> Result<(Option<Found>, Option<Index>), Unknown> {
        let resource = &self.terms.resource;
        if self.gate_passed {
            return Ok((self.inner.look(resource).await?, None));
        }
        let bucket = self.inner.bucket(resource);
        let (version, names) = try_join(bucket.get(resource.key()), self.inner.protocols()).await?;
        let found = self.inner.judge(resource, version, Some(names.clock)).await?;
        Ok((found, Some(names)))
    }

    /// Writes the holder's own lease again. Should the answer be lost, there is nothing to give back: the tenure goes on as
    /// it was, at worst with the new deadline. Unless this very claim committed it, and was not told.
    async fn extend(&mut self, found: Option<Found>, epoch: u64) -> Result<Round, Error> {
        let Some(Found { revision, record: Some(record), .. }) = found else { return Ok(Round::Again) };
        let terms = self.terms;
        if record.claim != self.pending.record.claim {
            self.pending.disarm();
        }
        if terms.preferred.is_some() && terms.preferred != record.preferred {
            self.inner.rewrite_hint(&terms.resource, terms.preferred.as_deref(), epoch).await?;
        }
        let record = LeaseRecord {
            claim: self.pending.record.claim.clone(),
            ttl_ms: millis(terms),
            protocol: self.inner.gate.protocol,
            preferred: terms.preferred.clone().or(record.preferred),
            meta: terms.meta.clone().or(record.meta),
            ..record
        };
        self.write_lease(record.encode(), revision, epoch).await
    }

    /// Begins a new tenure over what was found.
    async fn begin(&mut self, found: Option<Found>) -> Result<Round, Error> {
        let (inner, terms) = (self.inner, self.terms);
        let stands = found.as_ref().map_or(0, |f| f.revision);
        let before = found.and_then(|f| f.record);
        // The counter of the tenures before, as far as the record tells it.
        let last = before.as_ref().and_then(|r| r.epoch);
        let record = &mut self.pending.record;
        // Not committed yet, whatever the round before had come to.
        (record.epoch, record.acquired_at) = (None, None);
        record.preferred.clone_from(&terms.preferred);
        if terms.meta.is_none() {
            record.meta = before.and_then(|r| r.meta);
        }
        let value = Write::Value(record.encode());
        self.pending.arm(last, stands);
        let win = inner.bucket(&terms.resource).put(terms.resource.key(), value, Expect::At(stands));
        let (won, counter) = join(win, inner.counter(&terms.resource)).await;
        let won = match won {
            Ok(Put::Stored(revision)) => revision,
            Ok(Put::Lost(race)) => return Ok(self.lost(race)),
            Err(Error::BadArgument(error)) => {
                // What it takes over from the tenure before makes it too large. It was not sent.
                self.pending.disarm();
                return Err(error.into());
            }
            Err(unknown) => return Err(unknown),
        };
        self.pending.won(won);
        let declared = async {
            if ends_by_age(terms.resource.class()) {
                inner.declare_protocol().await?;
            }
            Ok(())
        };
        let ((epoch, preferred), ()) = try_join(inner.mint(terms, counter?, last), declared).await?;
        let record = &mut self.pending.record;
        (record.epoch, record.acquired_at) = (Some(epoch), Some(inner.env.wall()));
        record.preferred = preferred;
        let value = record.encode();
        self.write_lease(value, won, epoch).await
    }

    /// Writes a record with its epoch, `value`, over revision `stands`, and makes the lease of it.
    async fn write_lease(&mut self, value: Bytes, stands: u64, epoch: u64) -> Result<Round, Error> {
        let (inner, terms) = (self.inner, self.terms);
        if ends_by_age(terms.resource.class()) {
            inner.declare_protocol().await?;
        }
        let sent = inner.env.now();
        let put =
            inner.bucket(&terms.resource).put(terms.resource.key(), Write::Value(value.clone()), Expect::At(stands));
        match put.await? {
            // An answer that took as long as the lease lasts says nothing about now.
            Put::Stored(revision) if inner.env.now() >= sent + terms.ttl => {
                (self.known, self.landing) = (revision, Landing::InFlight);
                Ok(Round::Again)
            }
            Put::Stored(revision) => Ok(Round::Done(Claim::Held(Lease {
                resource: terms.resource.clone(),
                owner: terms.owner.as_str().into(),
                epoch,
                ttl: terms.ttl,
                revision,
                value,
                sent,
            }))),
            Put::Lost(race) => Ok(self.lost(race)),
        }
    }

    /// A write of this claim was refused: the record is looked at again. What is pending stays so. An earlier write of this
    /// claim may be what stands there, and giving back tells that by the record.
    fn lost(&mut self, race: Race) -> Round {
        match race {
            Race::Newer(newer) => self.known = self.known.max(newer),
            // By a member that may not be the leader, and then the leader may still store it.
            Race::Vanished => self.landing = Landing::InFlight,
            Race::InProcess => {
                self.landing = Landing::InFlight;
                return Round::Busy;
            }
        }
        Round::Again
    }
}

/// A resource's counter as it was read.
pub(super) struct Counter {
    revision: u64,
    record: Option<EpochRecord>,
}

impl<B: Bucket> Inner<B> {
    pub(super) async fn counter(&self, resource: &Resource) -> Result<Counter, Unknown> {
        match self.epochs.get(resource.key()).await? {
            None => Ok(Counter { revision: 0, record: None }),
            Some(version) => {
                // A counter is never removed. A marker in its place has lost the number that every token must exceed.
                let value = version.value.ok_or_else(|| Cause::Undecodable("the counter was removed".into()));
                let record = value.and_then(|value| EpochRecord::decode(&value));
                match record {
                    Ok(record) => Ok(Counter { revision: version.revision, record: Some(record) }),
                    Err(cause) => Err(Unknown::settled("read epoch", resource.name(), cause)),
                }
            }
        }
    }

    /// The record of a claim by these terms, as large as it may become.
    fn largest_record(&self, terms: &Terms) -> LeaseRecord {
        LeaseRecord {
            resource: terms.resource.name().to_owned(),
            owner: Some(terms.owner.clone()),
            epoch: Some(u64::MAX),
            claim: Some(format!("{:016x}", self.env.random())),
            ttl_ms: millis(terms),
            protocol: self.gate.protocol,
            preferred: terms.preferred.clone(),
            meta: terms.meta.clone(),
            acquired_at: Some(Timestamp::MAX),
        }
    }

    /// Mints the next epoch of a resource, and answers it with the placement hint in force. `last` is an epoch that was given
    /// out before: a counter below it was lost or went back, and a fence that goes back is none.
    async fn mint(
        &self,
        terms: &Terms,
        mut counter: Counter,
        last: Option<u64>,
    ) -> Result<(u64, Option<String>), Error> {
        for round in 0..ROUNDS {
            let Counter { revision, record } = counter;
            let counted = record.as_ref().map_or(0, |r| r.epoch);
            if last.is_some_and(|last| counted < last) {
                tracing::warn!(resource = %terms.resource, counted, given = last, "lease_counter_went_back");
            }
            let epoch = counted.max(last.unwrap_or(0)).checked_add(1).ok_or_else(|| {
                let cause = Cause::Undecodable("the counter is at its end".into());
                Unknown::settled("mint epoch", terms.resource.name(), cause)
            })?;
            let next = EpochRecord { epoch, ..record.unwrap_or_else(|| fresh_counter(&terms.resource)) };
            let next = EpochRecord { preferred: terms.preferred.clone().or(next.preferred), ..next };
            if self.write_counter(&terms.resource, &next, revision).await? {
                return Ok((epoch, next.preferred));
            }
            self.back_off(round).await;
            counter = self.counter(&terms.resource).await?;
        }
        Err(contended("mint epoch", &terms.resource).into())
    }

    /// Puts a new hint beside a resource's counter, which has given out `epoch`.
    async fn rewrite_hint(&self, resource: &Resource, preferred: Option<&str>, epoch: u64) -> Result<(), Error> {
        for round in 0..ROUNDS {
            let Counter { revision, record } = self.counter(resource).await?;
            let stands = record.unwrap_or_else(|| fresh_counter(resource));
            let next =
                EpochRecord { epoch: stands.epoch.max(epoch), preferred: preferred.map(str::to_owned), ..stands };
            if self.write_counter(resource, &next, revision).await? {
                return Ok(());
            }
            self.back_off(round).await;
        }
        Err(contended("hint", resource).into())
    }

    async fn write_counter(&self, resource: &Resource, record: &EpochRecord, stands: u64) -> Result<bool, Error> {
        match self.epochs.put(resource.key(), Write::Value(record.encode()), Expect::At(stands)).await? {
            Put::Stored(_) => Ok(true),
            Put::Lost(Race::Newer(_) | Race::InProcess) => Ok(false),
            // The counter was there a moment ago and nothing removes it, so this answer is from before it existed.
            Put::Lost(Race::Vanished) => {
                // The leader may still store the write.
                let cause = Cause::Stale { answered: 0, known: stands };
                Err(Unknown::in_flight("write epoch", resource.name(), cause).into())
            }
        }
    }
}

/// The counter of a resource that was never leased.
fn fresh_counter(resource: &Resource) -> EpochRecord {
    EpochRecord { resource: resource.name().to_owned(), epoch: 0, preferred: None, newer: Map::new() }
}

fn millis(terms: &Terms) -> u64 {
    u64::try_from(terms.ttl.as_millis()).unwrap_or(u64::MAX)
}

/// How many bytes a record takes, of which none is kept: every claim asks, and hardly any is too large.
fn encoded_len(record: &LeaseRecord) -> usize {
    let mut counted = Counted(0);
    serde_json::to_writer(&mut counted, record).expect("a record of strings, numbers and JSON values always encodes");
    counted.0
}

/// Counts what is written to it.
struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coordproto::lease::PROTOCOL;
    use futures_util::future::join;
    use parking_lot::Mutex;

    use super::*;
    use crate::env::Env;
    use crate::lease::Config;
    use crate::store::faulty::{Fault, Faulty, Verb};
    use crate::store::memory::Memory;

    #[test]
    fn a_record_is_as_long_as_what_is_written_of_it() {
        let bare = LeaseRecord {
            resource: "seat:\u{e4}\"".into(),
            owner: Some("n1:9f".into()),
            epoch: None,
            claim: None,
            ttl_ms: 45_000,
            protocol: PROTOCOL,
            preferred: None,
            meta: None,
            acquired_at: None,
        };
        let full = LeaseRecord {
            epoch: Some(u64::MAX),
            claim: Some("0123456789abcdef".into()),
            preferred: Some("n1".into()),
            meta: Some(serde_json::json!({"said": ["\n", 1.5, null]})),
            acquired_at: Some("2026-01-02T03:04:05.678Z".parse().unwrap()),
            ..bare.clone()
        };
        for record in [bare, full] {
            assert_eq!(encoded_len(&record), record.encode().len());
        }
    }

    /// Followers that get no processor keep a rival's write under way for longer than all the rounds take.
    #[tokio::test(start_paused = true)]
    async fn while_a_rival_writes_no_round_is_lost_before_the_deadline_of_a_request() {
        let env = Env::seeded(1);
        let (store, under_way) = (Memory::new(env.clone()), Arc::new(Mutex::new(0)));
        let left = under_way.clone();
        let faults = Faulty::new(store.clone(), env.clone(), move |call| {
            let mut left = left.lock();
            if call.verb != Verb::Put || !call.bucket.ends_with("leases") || *left == 0 {
                return Fault::None;
            }
            *left -= 1;
            Fault::InProcess
        });
        let config = Config { replicas: 1, ..Config::default() };
        let rival = Leases::open(env.clone(), &store, &config).await.unwrap();
        let leases = Leases::open(env.clone(), &faults, &config).await.unwrap();
        let terms = |name: &str, owner: &str| Terms::new(Resource::parse(name).unwrap(), owner, config.lease_ttl);

        *under_way.lock() = 3 * ROUNDS;
        assert!(matches!(leases.claim(&terms("seat:a", "n1:1")).await.unwrap(), Claim::Held(_)), "the rival gave up");
        *under_way.lock() = 10_000;
        let ask = terms("seat:b", "n2:1");
        let later = async {
            env.sleep(Duration::from_secs(4)).await;
            rival.claim(&ask).await.unwrap()
        };
        let (told, won) = join(Box::pin(leases.claim(&terms("seat:b", "n1:1"))), later).await;
        let Claim::Held(won) = won else { panic!("nobody holds it") };
        let Claim::Refused(Refusal::Held { by, epoch }) = told.unwrap() else { panic!("the rival holds it") };
        assert_eq!((by, epoch), ("n2:1".to_owned(), Some(won.epoch())));
        let ask = terms("seat:c", "n1:1");
        let by = leases.inner.bucket(&ask.resource).deadline();
        let unknown = leases.claim(&ask).await.unwrap_err().unknown().cloned().expect("unknown");
        assert_eq!(unknown.cause, Cause::Contended { rounds: ROUNDS });
        let late = env.now().since(by);
        assert!(env.now() >= by && late < Duration::from_secs(1), "{late:?} past the deadline");
        assert!(rival.get(&ask.resource).await.unwrap().is_none());
    }
}
