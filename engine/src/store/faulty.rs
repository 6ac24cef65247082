//! A store between which and its caller things go wrong: requests and replies are lost, writes land late, answers are
//! delayed past one another, and reads come from the past.
//!
//! What goes wrong is chosen call by call, by a function the test gives, or at random from a seed. Every fault is one that
//! the real store shows; none invents a definite answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::Version;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::{Bucket, BucketSpec, Expect, Listing, Names, OpenError, Put, Store, Watch, Write};
use crate::env::Env;
use crate::tasks;

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The request never arrives.
    DropRequest,
    /// It is carried out, and the reply never arrives.
    DropReply,
    /// A write is given up by its caller and lands this much later; anything else never arrives.
    Late(Duration),
    /// The call is held back before it is sent, so that a later one may overtake it.
    Delay(Duration),
    /// A read of one key is answered from the past, a listing with values from the past, and a write by a member that is no
    /// longer the leader. Where this decorator knows no past, nothing goes wrong.
    Stale,
}

/// The verbs of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the verbs are documented where they are")]
pub enum Verb {
    Get,
    Put,
    Purge,
    List,
    Names,
    Watch,
    Clock,
}

/// A call that may go wrong.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The bucket's name.
    pub bucket: &'a str,
    /// What is asked.
    pub verb: Verb,
    /// The key or the filter, where there is one.
    pub about: &'a str,
    /// What a write carries.
    pub value: Option<&'a [u8]>,
}

/// The odds of each fault, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "each is the fault of the same name")]
pub struct Odds {
    pub drop_request: u64,
    pub drop_reply: u64,
    pub late: u64,
    pub delay: u64,
    pub stale: u64,
    /// The longest a late write or a held-back call takes.
    pub wait: Duration,
}

type Choose = dyn FnMut(&Call<'_>) -> Fault + Send;

struct Script {
    choose: Mutex<Box<Choose>>,
    /// For every key, the oldest version that passed by and is no longer the newest.
    past: Mutex<HashMap<(String, Key), Past>>,
    /// Late writes that have not arrived.
    late: AtomicUsize,
    env: Env,
}

#[derive(Default)]
struct Past {
    old: Option<Version>,
    newest: Option<Version>,
}

/// A store with faults, and every bucket opened through it.
#[derive(Clone)]
pub struct Faulty<T> {
    below: T,
    script: Arc<Script>,
}

impl<S: Store> Faulty<S> {
    /// Faults chosen by `choose` for every call to a bucket of `store`. Opening a bucket never fails.
    pub fn new(store: S, env: Env, choose: impl FnMut(&Call<'_>) -> Fault + Send + 'static) -> Faulty<S> {
        let script =
            Script { choose: Mutex::new(Box::new(choose)), past: Mutex::default(), late: AtomicUsize::new(0), env };
        Faulty { below: store, script: Arc::new(script) }
    }

    /// Faults drawn from the randomness of `env`.
    pub fn seeded(store: S, env: Env, odds: Odds) -> Faulty<S> {
        let draws = env.clone();
        Faulty::new(store, env, move |_| {
            let mut draw = draws.below(1000);
            let wait = draws.jitter(odds.wait);
            for (odds, fault) in [
                (odds.drop_request, Fault::DropRequest),
                (odds.drop_reply, Fault::DropReply),
                (odds.late, Fault::Late(wait)),
                (odds.delay, Fault::Delay(wait)),
                (odds.stale, Fault::Stale),
            ] {
                if draw < odds {
                    return fault;
                }
                draw -= odds;
            }
            Fault::None
        })
    }

    /// From now on, faults are chosen by `choose`.
    pub fn choose(&self, choose: impl FnMut(&Call<'_>) -> Fault + Send + 'static) {
        *self.script.choose.lock() = Box::new(choose);
    }

    /// How many late writes have not arrived yet.
    pub fn late_writes(&self) -> usize {
        self.script.late.load(Ordering::Acquire)
    }
}

impl<S: Store> Store for Faulty<S> {
    type Bucket = Faulty<S::Bucket>;

    async fn open(&self, spec: &BucketSpec) -> Result<Faulty<S::Bucket>, OpenError> {
        Ok(Faulty { below: self.below.open(spec).await?, script: self.script.clone() })
    }
}

impl<B: Bucket> Faulty<B> {
    fn fault(&self, verb: Verb, about: &str, value: Option<&[u8]>) -> Fault {
        let call = Call { bucket: self.below.name(), verb, about, value };
        self.script.choose.lock()(&call)
    }

    fn lost(&self, op: &'static str, about: &str) -> Unknown {
        Unknown::settled(op, format!("{} {about}", self.below.name()), Cause::Timeout)
    }

    /// Carries out a call that changes nothing, or loses it.
    async fn ask<T>(
        &self,
        fault: Fault,
        op: &'static str,
        about: &str,
        ask: impl Future<Output = Result<T, Unknown>> + Send,
    ) -> Result<T, Unknown> {
        match fault {
            Fault::None | Fault::Stale => ask.await,
            Fault::DropRequest | Fault::Late(_) => Err(self.lost(op, about)),
            Fault::DropReply => {
                let _lost = ask.await;
                Err(self.lost(op, about))
            }
            Fault::Delay(wait) => {
                self.script.env.sleep(wait).await;
                ask.await
            }
        }
    }

    fn remember(&self, key: &Key, version: Option<&Version>) {
        let mut past = self.script.past.lock();
        let past = past.entry((self.below.name().to_owned(), key.clone())).or_default();
        if past.newest.as_ref() != version {
            let before = past.newest.take();
            past.old = past.old.take().or(before);
            past.newest = version.cloned();
        }
    }

    fn old(&self, key: &Key) -> Option<Version> {
        self.script.past.lock().get(&(self.below.name().to_owned(), key.clone()))?.old.clone()
    }
}

impl<B: Bucket> Bucket for Faulty<B> {
    type Changes = B::Changes;

    fn name(&self) -> &str {
        self.below.name()
    }

    fn age(&self) -> Option<Duration> {
        self.below.age()
    }

    async fn get(&self, key: &Key) -> Result<Option<Version>, Unknown> {
        match self.fault(Verb::Get, key.as_str(), None) {
            Fault::Stale => {
                if let Some(old) = self.old(key) {
                    return Ok(Some(old));
                }
            }
            Fault::None => {}
            Fault::DropRequest | Fault::Late(_) | Fault::DropReply => return Err(self.lost("get", key.as_str())),
            Fault::Delay(wait) => self.script.env.sleep(wait).await,
        }
        let version = self.below.get(key).await?;
        self.remember(key, version.as_ref());
        Ok(version)
    }

    async fn put(&self, key: &Key, write: Write, expect: Expect) -> Result<Put, Error> {
        let carried = match &write {
            Write::Value(value) => Some(&value[..]),
            Write::Removal => None,
        };
        let resource = || format!("{} {key}", self.below.name());
        match self.fault(Verb::Put, key.as_str(), carried) {
            Fault::None => {}
            Fault::DropRequest => return Err(Unknown::in_flight("put", resource(), Cause::Timeout).into()),
            Fault::DropReply => {
                let _lost = self.below.put(key, write, expect).await?;
                return Err(Unknown::in_flight("put", resource(), Cause::Timeout).into());
            }
            Fault::Late(wait) => {
                let (below, key, script) = (self.below.clone(), key.clone(), self.script.clone());
                script.late.fetch_add(1, Ordering::AcqRel);
                // The broker carries a write out whether or not anybody still waits for it.
                tasks::detach(async move {
                    script.env.sleep(wait).await;
                    let _unheard = below.put(&key, write, expect).await;
                    script.late.fetch_sub(1, Ordering::AcqRel);
                });
                return Err(Unknown::in_flight("put", resource(), Cause::Timeout).into());
            }
            Fault::Delay(wait) => self.script.env.sleep(wait).await,
            Fault::Stale => {
                if let (Expect::At(known), Some(old)) = (expect, self.old(key))
                    && old.revision < known
                {
                    let cause = Cause::Stale { answered: old.revision, known };
                    return Err(Unknown::in_flight("put", resource(), cause).into());
                }
            }
        }
        self.below.put(key, write, expect).await
    }

    async fn purge(&self, key: &Key, through: u64) -> Result<u64, Unknown> {
        self.ask(self.fault(Verb::Purge, key.as_str(), None), "purge", key.as_str(), self.below.purge(key, through))
            .await
            .map_err(|unknown| Unknown { landing: coordproto::answer::Landing::InFlight, ..unknown })
    }

    async fn list(&self, filter: &Filter) -> Result<Listing, Unknown> {
        let fault = self.fault(Verb::List, filter.as_str(), None);
        let mut listing = self.ask(fault, "list", filter.as_str(), self.below.list(filter)).await?;
        if fault == Fault::Stale {
            // A member that is behind delivers older values. A removal is none, and is read from the leader.
            for (key, version) in &mut listing.entries {
                if let Some(old) = self.old(key).filter(|old| old.value.is_some() && old.revision < version.revision) {
                    *version = old;
                }
            }
        }
        Ok(listing)
    }

    async fn names(&self, filter: &Filter) -> Result<Names, Unknown> {
        self.ask(self.fault(Verb::Names, filter.as_str(), None), "names", filter.as_str(), self.below.names(filter))
            .await
    }

    async fn watch(&self, filter: &Filter) -> Result<Watch<B::Changes>, Unknown> {
        self.ask(self.fault(Verb::Watch, filter.as_str(), None), "watch", filter.as_str(), self.below.watch(filter))
            .await
    }

    async fn clock(&self) -> Result<Timestamp, Unknown> {
        self.ask(self.fault(Verb::Clock, "", None), "clock", "", self.below.clock()).await
    }
}
