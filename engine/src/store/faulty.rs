//! A store between which and its caller things go wrong: requests and replies are lost, writes land late, answers are
//! delayed past one another, reads come from the past, and passes end early, fall silent, stutter or break.
//!
//! What goes wrong is chosen call by call, by a function the test gives, or at random from a seed. Every fault is one that
//! the real store shows; none invents a definite answer.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coordproto::answer::{BadArgument, Cause, Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::{Drained, Index, Standing, Version};
use parking_lot::Mutex;

use super::{Bucket, BucketSpec, Copy, Delivery, Drains, Expect, OpenError, Pass, Put, Race, Store, Values, Write};
use crate::env::{Env, Mono};
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
    /// A read is answered from the past, and a write by a member that is no longer the leader. A pass delivers older
    /// versions, and what it was behind of as changes; an index and a copy are the first that passed by; a drain lacks what is
    /// newest. Where this decorator knows no past, nothing goes wrong.
    Stale,
    /// A read is answered by a member whose copy is from before the key: nothing stands there.
    Before,
    /// A write loses because another to its key is under way. Nobody has looked at what it expects.
    InProcess,
    /// A write is more than the broker takes, which was configured to take hardly anything. Nothing is sent.
    TooLarge,
    /// A pass says after that many deliveries that nothing is pending. A drain and a copy have that many, the oldest, and the
    /// newest: the copy's member is catching up.
    Split(usize),
    /// A pass delivers that many, and nothing more. A drain does not come to its end.
    Silent(usize),
    /// A pass delivers that many, and then it has lost its consumer. So has a drain, however many.
    Broken(usize),
    /// A pass takes this long for every delivery.
    Slow(Duration),
    /// A pass or a drain delivers everything, and all of it again.
    Replay,
}

/// The verbs of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the verbs are documented where they are")]
pub enum Verb {
    Read,
    Put,
    Purge,
    Index,
    Pass,
    Copy,
    Drain,
    Standing,
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
    /// The first index of every filter, and the first copy of every set of names.
    indexes: Mutex<HashMap<String, Index>>,
    copies: Mutex<HashMap<String, Copy>>,
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
        let script = Script {
            choose: Mutex::new(Box::new(choose)),
            past: Mutex::default(),
            indexes: Mutex::default(),
            copies: Mutex::default(),
            late: AtomicUsize::new(0),
            env,
        };
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
            Fault::None
            | Fault::Stale
            | Fault::Before
            | Fault::InProcess
            | Fault::TooLarge
            | Fault::Split(_)
            | Fault::Silent(_)
            | Fault::Broken(_)
            | Fault::Slow(_)
            | Fault::Replay => ask.await,
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

    fn named(&self, about: &str) -> String {
        format!("{} {about}", self.below.name())
    }
}

impl Script {
    fn remember(&self, bucket: &str, key: &Key, version: Option<&Version>) {
        let mut past = self.past.lock();
        let past = past.entry((bucket.to_owned(), key.clone())).or_default();
        if past.newest.as_ref() != version {
            let before = past.newest.take();
            past.old = past.old.take().or(before);
            past.newest = version.cloned();
        }
    }

    fn old(&self, bucket: &str, key: &Key) -> Option<Version> {
        self.past.lock().get(&(bucket.to_owned(), key.clone()))?.old.clone()
    }
}

impl<B: Bucket> Bucket for Faulty<B> {
    type Pass = FaultyPass<B::Pass>;

    fn name(&self) -> &str {
        self.below.name()
    }

    fn age(&self) -> Option<Duration> {
        self.below.age()
    }

    fn value_bytes_max(&self) -> usize {
        self.below.value_bytes_max()
    }

    fn env(&self) -> &Env {
        self.below.env()
    }

    fn deadline(&self) -> Mono {
        self.below.deadline()
    }

    async fn read(&self, key: &Key, by: Mono) -> Result<Option<Version>, Unknown> {
        let fault = self.fault(Verb::Read, key.as_str(), None);
        if fault == Fault::Stale
            && let Some(old) = self.script.old(self.name(), key)
        {
            return Ok(Some(old));
        }
        if fault == Fault::Before {
            return Ok(None);
        }
        let version = self.ask(fault, "read", key.as_str(), self.below.read(key, by)).await?;
        self.script.remember(self.name(), key, version.as_ref());
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
            Fault::InProcess => return Ok(Put::Lost(Race::InProcess)),
            Fault::TooLarge => return Err(BadArgument::new("value", resource(), "the broker takes less").into()),
            Fault::Before | Fault::Split(_) | Fault::Silent(_) | Fault::Broken(_) | Fault::Slow(_) | Fault::Replay => {}
            Fault::Stale => {
                if let (Expect::At(known), Some(old)) = (expect, self.script.old(self.name(), key))
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

    async fn index(&self, filter: &Filter, by: Mono) -> Result<Index, Unknown> {
        let fault = self.fault(Verb::Index, filter.as_str(), None);
        let index = self.ask(fault, "index", filter.as_str(), self.below.index(filter, by)).await?;
        let mut first = self.script.indexes.lock();
        let first = first.entry(self.named(filter.as_str())).or_insert_with(|| index.clone());
        Ok(if fault == Fault::Stale { first.clone() } else { index })
    }

    async fn pass(&self, filter: &Filter, values: Values, by: Mono) -> Result<FaultyPass<B::Pass>, Unknown> {
        let fault = self.fault(Verb::Pass, filter.as_str(), None);
        let below = self.ask(fault, "pass", filter.as_str(), self.below.pass(filter, values, by)).await?;
        let (bucket, script) = (self.name().to_owned(), self.script.clone());
        Ok(FaultyPass {
            below,
            bucket,
            script,
            fault,
            delivered: 0,
            again: VecDeque::new(),
            replaying: false,
            followed: false,
        })
    }

    async fn copy(&self, names: &[&str], by: Mono) -> Result<Copy, Unknown> {
        let about = names.join(" ");
        let fault = self.fault(Verb::Copy, &about, None);
        let copy = self.ask(fault, "copy", &about, self.below.copy(names, by)).await?;
        let mut first = self.script.copies.lock();
        let first = first.entry(self.named(&about)).or_insert_with(|| copy.clone());
        Ok(match (fault, copy) {
            (Fault::Stale, _) => first.clone(),
            (Fault::Split(most), Copy::Whole(mut held)) => {
                held.entries.sort_unstable_by_key(|(_, version)| version.revision);
                let newest = held.entries.pop();
                held.entries.truncate(most);
                held.entries.extend(newest);
                Copy::Whole(held)
            }
            (_, copy) => copy,
        })
    }

    async fn drain(&self, by: Mono) -> Result<Drained, Unknown> {
        let fault = self.fault(Verb::Drain, "", None);
        match fault {
            Fault::Silent(_) => {
                self.script.env.sleep_until(by).await;
                return Err(self.lost("drain", ""));
            }
            Fault::Broken(_) => {
                let cause = Cause::Garbage("a delivery is missing".into());
                return Err(Unknown::settled("drain", self.name(), cause));
            }
            _ => {}
        }
        let mut drained = self.ask(fault, "drain", "", self.below.drain(by)).await?;
        match fault {
            Fault::Stale => {
                // The member has not applied the newest, and was asked before it was written.
                drained.entries.pop();
                drained.last = drained.entries.last().map_or(0, |(_, newest)| newest.revision);
            }
            // Its store cannot be read from there on, but for the newest.
            Fault::Split(most) => {
                let newest = drained.entries.pop();
                drained.entries.truncate(most);
                drained.entries.extend(newest);
            }
            Fault::Replay => drained.entries.extend(drained.entries.clone()),
            _ => {}
        }
        Ok(drained)
    }

    async fn standing(&self, by: Mono) -> Result<Standing, Unknown> {
        self.ask(self.fault(Verb::Standing, "", None), "standing", "", self.below.standing(by)).await
    }

    fn drains(&self) -> &Drains {
        self.below.drains()
    }
}

/// A pass with a fault.
pub struct FaultyPass<P> {
    below: P,
    bucket: String,
    script: Arc<Script>,
    fault: Fault,
    delivered: usize,
    /// What was delivered, to be delivered again once all of it was.
    again: VecDeque<Delivery>,
    replaying: bool,
    /// Whether it has told that nothing is pending; what it delivers from then on are changes.
    followed: bool,
}

impl<P: Pass> Pass for FaultyPass<P> {
    fn to_deliver(&self) -> u64 {
        if self.fault == Fault::Split(0) { 0 } else { self.below.to_deliver() }
    }

    async fn next(&mut self, by: Mono) -> Result<Delivery, Unknown> {
        let lost = |cause| Unknown::settled("pass", self.bucket.as_str(), cause);
        match self.fault {
            Fault::Silent(most) if self.delivered >= most => {
                self.script.env.sleep_until(by).await;
                return Err(lost(Cause::Timeout));
            }
            Fault::Broken(most) if self.delivered >= most => {
                return Err(lost(Cause::Garbage("a delivery is missing".into())));
            }
            Fault::Slow(wait) => self.script.env.sleep(wait).await,
            _ => {}
        }
        if self.replaying
            && let Some(again) = self.again.pop_front()
        {
            return Ok(Delivery { pending: self.again.len() as u64, ..again });
        }
        let mut delivery = self.below.next(by).await?;
        self.delivered += 1;
        match self.fault {
            Fault::Split(most) if self.delivered >= most => delivery.pending = 0,
            Fault::Replay => {
                self.replaying |= delivery.pending == 0;
                self.again.push_back(delivery.clone());
                delivery.pending += 1;
            }
            _ => {}
        }
        let initial = !self.followed;
        self.followed |= delivery.pending == 0;
        if let Some(key) = &delivery.key {
            let old = self.script.old(&self.bucket, key).filter(|old| old.revision < delivery.version.revision);
            if let (Fault::Stale, true, Some(old)) = (self.fault, initial, old) {
                // The member catches up: what it was behind of comes as a change.
                self.again.push_back(delivery.clone());
                delivery.version = old;
            } else {
                self.script.remember(&self.bucket, key, Some(&delivery.version));
            }
            self.replaying |= self.fault == Fault::Stale && self.followed;
        }
        Ok(delivery)
    }

    async fn end(self, by: Mono) -> Result<(), Unknown> {
        self.below.end(by).await
    }
}
