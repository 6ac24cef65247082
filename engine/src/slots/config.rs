//! Which revision of the company is current: the activation pointer, and the body that travels with it.
//!
//! An activation writes its body first and moves the pointer then, always by a compare-and-set, and the revision of the pointer
//! is the epoch: it grows with every activation, by one or by more, also of a revision that is current already. A pointer
//! never stands without its body, at no instant and whatever is lost on the way; what a crash leaves behind is a body that no
//! pointer names.
//!
//! **Whose body is it.** A body stands under a key of its attempt's own, is created and never written over, and the pointer
//! names the attempt. So the loser of a race has no bytes that could be read as the winner's, even where both activate one
//! revision, and taking its body away again takes away nothing else.
//!
//! **Who removes bodies.** Only the current one is kept. An attempt writes its body after it read the pointer and before it
//! moves it, and a pointer that another moved meanwhile is not moved by it any more. So once a pointer stands at epoch E,
//! every other body written before E is named by nobody and never will be, and whoever wrote E erases those, whoever left
//! them: bodies of what was current before, of losers, of crashes. A body written after E may be that of an attempt under way,
//! and is left to the next activation. Erasing costs no answer: what fails is left to the next activation too.
//!
//! The bucket has no age: a fence that starts again is not a fence.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{BadArgument, Cause, Error, Landing, Unknown};
use coordproto::key::Key;
use coordproto::listing::Version;
use coordproto::record::config::{
    Origin, PointerRecord, Proposal, attempt, bodies, body_key, instant_after, pointer_key,
};
use coordproto::slot::CONFIG;
use jiff::Timestamp;

use crate::env::Elapsed;
use crate::slots::Settings;
use crate::store::create::{Look, back_off, look};
use crate::store::{Bucket, Expect, OpenError, Put, Race, Store, Write, check_value};

/// How often a lost race, or a body that is not found, is looked at again before the answer is unknown.
const ROUNDS: u32 = 16;

/// How long an activation that has its answer goes on erasing bodies.
const ERASE_WITHIN: Duration = Duration::from_secs(2);

/// The activations of a fleet. Clones are handles to the same.
pub struct Activations<S: Store> {
    bucket: S::Bucket,
    pointer: Key,
}

impl<S: Store> Clone for Activations<S> {
    fn clone(&self) -> Self {
        Activations { bucket: self.bucket.clone(), pointer: self.pointer.clone() }
    }
}

/// What the pointer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The revision that is current.
    pub revision: String,
    /// The fencing epoch of its activation.
    pub epoch: u64,
    /// Who wrote the revision, and when.
    pub origin: Origin,
    /// When it was activated; later than every activation before it.
    pub activated_at: Timestamp,
}

/// The definite answer to an activation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "another revision may be current"]
pub enum Activation {
    /// The revision is current, at this epoch and from this instant on, which may be later than the one that was given.
    Activated(Target),
    /// The expectation failed against this pointer. Nothing of the activation stays.
    Lost(Target),
}

/// The definite answer to a question for the bytes of a revision.
#[derive(Clone, PartialEq, Eq)]
pub enum Payload {
    /// The revision is current, and this is what was sealed.
    Body(Bytes),
    /// The revision is not current, so its body is not kept: another is, or none.
    NotCurrent(Option<Target>),
}

/// A body may be a whole company in the clear, and logs are not the place for it.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Payload::Body(body) => write!(f, "Body({} bytes)", body.len()),
            Payload::NotCurrent(target) => f.debug_tuple("NotCurrent").field(target).finish(),
        }
    }
}

/// A pointer as it stands.
struct Standing {
    target: Target,
    /// The key of the body that it names.
    body: Key,
}

impl<S: Store> Activations<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<Activations<S>, OpenError> {
        let bucket = settings.open(store, &CONFIG).await?;
        Ok(Activations { bucket, pointer: pointer_key() })
    }

    /// Makes a revision current, and `body` its bytes, at the instant `now` of the node that activates it.
    ///
    /// Without an expectation it is current in the end, whoever else activates at the same time; with one, the expectation
    /// fails only against a pointer that it does not admit. A member that was cut off from its peers and leads from its own
    /// copy can tell of such a pointer for some 20 s after it was replaced; it can move none.
    ///
    /// # Errors
    /// A bad argument, before anything is sent: the revision, the origin, the expectations, then a body or an origin larger
    /// than a value can be. Unknown, which says whether the activation may still land; also for a pointer that cannot be read.
    pub async fn activate(&self, proposal: &Proposal, body: Bytes, now: Timestamp) -> Result<Activation, Error> {
        proposal.check()?;
        self.check_sizes(proposal, &body)?;
        let activated = self.settle(proposal, &body, now).await;
        activated.map_err(|error| match error {
            Error::Unknown(unknown) => unknown.during("activate", proposal.revision.as_str()).into(),
            Error::BadArgument(error) => error.into(),
        })
    }

    /// The pointer, or none.
    ///
    /// # Errors
    /// Unknown, also for a pointer that cannot be read.
    pub async fn target(&self) -> Result<Option<Target>, Unknown> {
        let standing = self.standing().await.map_err(|unknown| unknown.during("target", self.pointer.as_str()))?;
        Ok(standing.map(|standing| standing.target))
    }

    /// The bytes of a revision that is current.
    ///
    /// # Errors
    /// Unknown, also for a pointer that cannot be read, and for one whose body is not found: whoever answered is behind, or
    /// somebody else removed it.
    pub async fn payload(&self, revision: &str) -> Result<Payload, Unknown> {
        self.fetch(revision).await.map_err(|unknown| unknown.during("payload", revision))
    }

    fn check_sizes(&self, proposal: &Proposal, body: &Bytes) -> Result<(), BadArgument> {
        let named = |what| move |error| BadArgument { what, ..error };
        let body_key = body_key(&proposal.revision, &attempt(0))?;
        check_value(&self.bucket, &body_key, &Write::Value(body.clone())).map_err(named("body"))?;
        // No instant is written longer than this one.
        let pointer = pointer(proposal, attempt(0), Timestamp::MAX);
        check_value(&self.bucket, &self.pointer, &Write::Value(pointer.encode())).map_err(named("origin"))
    }

    async fn settle(&self, proposal: &Proposal, body: &Bytes, now: Timestamp) -> Result<Activation, Error> {
        let (bucket, mut lost) = (&self.bucket, None::<Race>);
        let by = bucket.deadline();
        for round in 0..ROUNDS {
            let seen = match lost {
                None => bucket.get(&self.pointer).await?,
                Some(race) => match look(bucket, &self.pointer, race, round).await? {
                    Look::Found(version) => Some(version),
                    Look::Nothing => None,
                    // What would be written now would lose again.
                    Look::Past => continue,
                },
            };
            let standing = seen.as_ref().map(|version| self.read(version)).transpose()?.flatten();
            if let Some(Standing { target, .. }) = &standing
                && !proposal.admits(Some(&target.revision))
            {
                return Ok(Activation::Lost(target.clone()));
            }
            let instant = instant_after(standing.map(|standing| standing.target.activated_at), now);
            let pointer =
                pointer(proposal, attempt(bucket.env().random()), instant.map_err(|cause| self.doubt(cause))?);
            let key = body_key(&pointer.revision, &pointer.attempt)?;
            let stored = match bucket.put(&key, Write::Value(body.clone()), Expect::At(0)).await {
                Ok(Put::Stored(revision)) => revision,
                // Somebody drew the same number. The next one is another.
                Ok(Put::Lost(_)) => continue,
                // The body may still come, but nothing will ever name it: the activation does not.
                Err(Error::Unknown(unknown)) => return Err(Unknown { landing: Landing::Settled, ..unknown }.into()),
                Err(error) => return Err(error),
            };
            let at = Expect::At(seen.map_or(0, |version| version.revision));
            let mut tries = 0;
            let put = loop {
                match bucket.put(&self.pointer, Write::Value(pointer.encode()), at).await? {
                    // A rival's write is under way: whatever becomes of it, the same is to be written until that is known.
                    Put::Lost(Race::InProcess) if bucket.env().now() < by => back_off(bucket.env(), tries).await,
                    put => break put,
                }
                tries += 1;
            };
            match put {
                Put::Stored(epoch) => {
                    self.erase_others(&key, epoch).await;
                    return Ok(Activation::Activated(target(pointer, epoch)));
                }
                Put::Lost(race) => {
                    self.erase(&key, stored).await;
                    lost = Some(race);
                }
            }
        }
        Err(self.doubt(Cause::Contended { rounds: ROUNDS }).into())
    }

    async fn fetch(&self, revision: &str) -> Result<Payload, Unknown> {
        let mut missed = None;
        for round in 0..ROUNDS {
            let standing = match self.standing().await? {
                Some(standing) if standing.target.revision == revision => standing,
                other => return Ok(Payload::NotCurrent(other.map(|standing| standing.target))),
            };
            let found = self.bucket.get(&standing.body).await?;
            if let Some(body) = found.and_then(|version| version.value) {
                return Ok(Payload::Body(body));
            }
            // The revision was activated again between the two reads; or one of them was answered from the past.
            if missed.replace(standing.target.epoch) == Some(standing.target.epoch) {
                back_off(self.bucket.env(), round).await;
            }
        }
        Err(self.doubt(Cause::Garbage("a pointer whose body is not found".into())))
    }

    async fn standing(&self) -> Result<Option<Standing>, Unknown> {
        let Some(version) = self.bucket.get(&self.pointer).await? else { return Ok(None) };
        self.read(&version)
    }

    /// Reads a version of the pointer; a marker is none.
    fn read(&self, version: &Version) -> Result<Option<Standing>, Unknown> {
        let Some(value) = &version.value else { return Ok(None) };
        let record = PointerRecord::decode(value).map_err(|cause| self.doubt(cause))?;
        let body = body_key(&record.revision, &record.attempt);
        let body = body.map_err(|error| self.doubt(Cause::undecodable(error)))?;
        Ok(Some(Standing { target: target(record, version.revision), body }))
    }

    /// An unknown about the pointer, whose operation is told by whoever asked.
    fn doubt(&self, cause: Cause) -> Unknown {
        Unknown::settled("read", self.pointer.as_str(), cause)
    }

    /// Erases the bodies that nobody names now that the pointer stands at `epoch` and names the body at `current`.
    async fn erase_others(&self, current: &Key, epoch: u64) {
        let by = self.bucket.env().now() + ERASE_WITHIN;
        let erased = self.bucket.env().within(by, async {
            let index = self.bucket.index(&bodies(), by).await?;
            for key in index.keys().filter(|key| key != current) {
                self.bucket.purge(&key, epoch - 1).await?;
            }
            Ok(())
        });
        self.told(erased.await);
    }

    /// Erases the body of an attempt that moved no pointer.
    async fn erase(&self, key: &Key, revision: u64) {
        let by = self.bucket.env().now() + ERASE_WITHIN;
        let erased = self.bucket.env().within(by, self.bucket.purge(key, revision)).await;
        self.told(erased.map(|erased| erased.map(drop)));
    }

    fn told(&self, erased: Result<Result<(), Unknown>, Elapsed>) {
        let unknown = match erased {
            Ok(Ok(())) => return,
            Ok(Err(unknown)) => unknown,
            Err(Elapsed) => Unknown::in_flight("erase", self.bucket.name(), Cause::Timeout),
        };
        tracing::debug!(bucket = self.bucket.name(), %unknown, "config_bodies_left_behind");
    }
}

fn pointer(proposal: &Proposal, attempt: String, activated_at: Timestamp) -> PointerRecord {
    let (revision, origin) = (proposal.revision.clone(), proposal.origin.clone());
    PointerRecord { revision, attempt, activated_at, origin }
}

fn target(record: PointerRecord, epoch: u64) -> Target {
    let PointerRecord { revision, activated_at, origin, .. } = record;
    Target { revision, epoch, origin, activated_at }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coordproto::slot::Retention;
    use parking_lot::Mutex;

    use super::*;
    use crate::env::Env;
    use crate::store::faulty::{Fault, Faulty, Verb};
    use crate::store::memory::Memory;

    /// Followers that get no processor keep a rival's write under way for longer than all the rounds take.
    #[tokio::test(start_paused = true)]
    async fn while_a_rival_writes_no_round_is_lost_before_the_deadline_of_a_request() {
        let env = Env::seeded(1);
        let (store, under_way) = (Memory::new(env.clone()), Arc::new(Mutex::new(0)));
        let left = under_way.clone();
        let faulty = Faulty::new(store, env.clone(), move |call| {
            let mut left = left.lock();
            if call.verb != Verb::Put || call.about != "pointer" || *left == 0 {
                return Fault::None;
            }
            *left -= 1;
            Fault::InProcess
        });
        let settings = Settings { prefix: "t".into(), replicas: 1, retention: Retention::default() };
        let config = Activations::open(&faulty, &settings).await.unwrap();
        let at: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let activate = async |revision: &str| {
            let origin =
                Origin { author: "ada".into(), author_kind: "operator".into(), source: "api".into(), created_at: at };
            config.activate(&Proposal::new(revision, origin), "body".into(), at).await
        };

        *under_way.lock() = 3 * ROUNDS;
        let Activation::Activated(first) = activate("cfg-1").await.unwrap() else { panic!("it expects nothing") };
        *under_way.lock() = 10_000;
        let by = config.bucket.deadline();
        let unknown = activate("cfg-2").await.unwrap_err().unknown().cloned().expect("unknown");
        assert_eq!((unknown.cause, unknown.landing), (Cause::Contended { rounds: ROUNDS }, Landing::Settled));
        let late = env.now().since(by);
        assert!(env.now() >= by && late < Duration::from_secs(1), "{late:?} past the deadline");
        assert_eq!(config.target().await.unwrap(), Some(first));
    }
}
