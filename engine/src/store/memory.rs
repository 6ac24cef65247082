//! The memory twin: the same contract inside one process, small enough to be obviously right.
//!
//! One lock, one sequence per bucket, one revision per key, expiry by age. It enforces every argument rule and ceiling that
//! the real store does, so that what a fleet would refuse already fails here, and its pass has the real one's weakness: what
//! is rewritten ahead of it moves behind its end. It has no replicas to lag and no leader to lose;
//! [`faulty`](super::faulty) adds the unknowns.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::{Drained, Index, Standing, Version, goes_on, is_whole};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    Bucket, BucketSpec, Copy, Delivery, Drains, Expect, Held, OpenError, Pass, Put, Race, Store, Values, Write,
    check_value,
};
use crate::env::{Env, Mono};

/// The deadline of a request that has no other, as the real store's usual one.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);

/// The most keys that one copy holds, as of a batched direct get.
const COPY_KEYS: usize = 1024;

/// A store that lives as long as its last handle. Clones are handles to the same buckets.
#[derive(Clone)]
pub struct Memory {
    buckets: Arc<Mutex<HashMap<String, Arc<Mutex<State>>>>>,
    clock: Clock,
}

/// The store's own clock: it starts at the wall clock and runs with the monotonic one, so it never steps.
#[derive(Clone)]
struct Clock {
    env: Env,
    began: Mono,
    began_wall: Timestamp,
}

impl Clock {
    fn now(&self) -> Timestamp {
        let gone = SignedDuration::try_from(self.env.now().since(self.began)).unwrap_or(SignedDuration::MAX);
        self.began_wall.saturating_add(gone).unwrap_or(Timestamp::MAX)
    }
}

struct State {
    age: Option<Duration>,
    replicas: u8,
    records: BTreeMap<Key, Version>,
    by_revision: BTreeMap<u64, Key>,
    /// The last sequence; whoever follows the bucket waits for it to change.
    last: watch::Sender<u64>,
}

impl State {
    fn standing(&self, clock: Timestamp) -> Standing {
        Standing { clock, last_seq: *self.last.borrow(), records: self.records.len() as u64 }
    }

    /// Drops what has outlived the bucket's age.
    fn expire(&mut self, now: Timestamp) {
        let Some(age) = self.age else { return };
        let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
        // What was written first ends first.
        while let Some(oldest) = self.by_revision.first_entry()
            && self.records[oldest.get()].written.duration_until(now) >= age
        {
            self.records.remove(&oldest.remove());
        }
    }

    fn write(&mut self, key: &Key, value: Option<Bytes>, now: Timestamp) -> u64 {
        let revision = *self.last.borrow() + 1;
        let version = Version { revision, written: now, value };
        if let Some(replaced) = self.records.insert(key.clone(), version) {
            self.by_revision.remove(&replaced.revision);
        }
        self.by_revision.insert(revision, key.clone());
        self.last.send_replace(revision);
        revision
    }
}

impl Memory {
    /// An empty store.
    pub fn new(env: Env) -> Memory {
        let clock = Clock { began: env.now(), began_wall: env.wall(), env };
        Memory { buckets: Arc::default(), clock }
    }
}

impl Store for Memory {
    type Bucket = MemoryBucket;

    async fn open(&self, spec: &BucketSpec) -> Result<MemoryBucket, OpenError> {
        spec.check()?;
        let mut buckets = self.buckets.lock();
        let state = buckets.entry(spec.name.clone()).or_insert_with(|| {
            Arc::new(Mutex::new(State {
                age: spec.age,
                replicas: spec.replicas,
                records: BTreeMap::new(),
                by_revision: BTreeMap::new(),
                last: watch::Sender::new(0),
            }))
        });
        let mut bucket = state.lock();
        if let Some(raised) = spec.judge(usize::from(bucket.replicas), bucket.age)? {
            bucket.age = Some(raised);
        }
        let age = bucket.age;
        drop(bucket);
        let (state, clock, drains) = (state.clone(), self.clock.clone(), Arc::default());
        Ok(MemoryBucket { name: spec.name.as_str().into(), age, state, clock, drains })
    }
}

/// A bucket of a [`Memory`] store.
#[derive(Clone)]
pub struct MemoryBucket {
    name: Arc<str>,
    age: Option<Duration>,
    state: Arc<Mutex<State>>,
    clock: Clock,
    drains: Arc<Drains>,
}

impl MemoryBucket {
    /// Runs `work` on the bucket as it is now, expired records gone.
    fn with<T>(&self, work: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let mut state = self.state.lock();
        let now = self.clock.now();
        state.expire(now);
        work(&mut state, now)
    }
}

impl Bucket for MemoryBucket {
    type Pass = MemoryPass;

    fn name(&self) -> &str {
        &self.name
    }

    fn age(&self) -> Option<Duration> {
        self.age
    }

    fn value_bytes_max(&self) -> usize {
        super::VALUE_BYTES_MAX
    }

    fn env(&self) -> &Env {
        &self.clock.env
    }

    fn deadline(&self) -> Mono {
        self.clock.env.now() + REQUEST_WITHIN
    }

    async fn read(&self, key: &Key, _by: Mono) -> Result<Option<Version>, Unknown> {
        Ok(self.with(|state, _| state.records.get(key).cloned()))
    }

    async fn put(&self, key: &Key, write: Write, expect: Expect) -> Result<Put, Error> {
        check_value(self, key, &write)?;
        Ok(self.with(|state, now| {
            let stands = state.records.get(key).map_or(0, |version| version.revision);
            match expect {
                Expect::At(revision) if revision != stands && stands == 0 => return Put::Lost(Race::Vanished),
                Expect::At(revision) if revision != stands => return Put::Lost(Race::Newer(stands)),
                Expect::At(_) | Expect::Any => {}
            }
            let value = match write {
                Write::Value(value) => Some(value),
                Write::Removal => None,
            };
            Put::Stored(state.write(key, value, now))
        }))
    }

    async fn purge(&self, key: &Key, through: u64) -> Result<u64, Unknown> {
        Ok(self.with(|state, _| match state.records.get(key) {
            Some(version) if version.revision <= through => {
                state.by_revision.remove(&version.revision);
                state.records.remove(key);
                1
            }
            _ => 0,
        }))
    }

    async fn index(&self, filter: &Filter, _by: Mono) -> Result<Index, Unknown> {
        self.with(|state, clock| {
            let keys: Vec<Key> = state.records.keys().filter(|key| selects(filter, key)).cloned().collect();
            // The ceiling of the broker's index, which a fleet would meet.
            is_whole(keys.len() as u64, keys.len()).map_err(|cause| Unknown::settled("index", &*self.name, cause))?;
            Ok(Index::of_keys(keys, state.standing(clock)))
        })
    }

    async fn pass(&self, filter: &Filter, values: Values, _by: Mono) -> Result<MemoryPass, Unknown> {
        let (began, to_deliver, changed) = self.with(|state, _| {
            let to_deliver = state.records.keys().filter(|key| selects(filter, key)).count() as u64;
            (*state.last.borrow(), to_deliver, state.last.subscribe())
        });
        let (bucket, filter) = (self.clone(), filter.clone());
        Ok(MemoryPass { bucket, filter, values, to_deliver, pending: to_deliver, began, cursor: 0, changed })
    }

    async fn copy(&self, names: &[&str], _by: Mono) -> Result<Copy, Unknown> {
        Ok(self.with(|state, _| {
            let mut held = BTreeMap::new();
            for name in names {
                match name.strip_suffix('>') {
                    Some(prefix) => {
                        let from = state.records.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
                        held.extend(from.take_while(|(key, _)| key.as_str().starts_with(prefix)));
                    }
                    None => held.extend(state.records.get_key_value(*name)),
                }
            }
            if held.len() > COPY_KEYS {
                return Copy::TooMuch;
            }
            let last_seq = (!held.is_empty()).then(|| *state.last.borrow());
            let entries = held.into_iter().map(|(key, version)| (key.clone(), version.clone())).collect();
            Copy::Whole(Held { entries, last_seq })
        }))
    }

    async fn drain(&self, _by: Mono) -> Result<Drained, Unknown> {
        let counted = self.with(|state, _| state.records.len() as u64);
        let (mut entries, mut last) = (Vec::new(), 0);
        loop {
            // Others have their turn between two records, as they have between two messages.
            tokio::task::yield_now().await;
            let next = self.with(|state, clock| match state.by_revision.range(last + 1..).next() {
                Some((_, key)) => Ok((key.clone(), state.records[key].clone())),
                None => Err(state.standing(clock)),
            });
            match next {
                Ok((key, version)) => {
                    last = version.revision;
                    entries.push((key, version));
                    goes_on(entries.len() as u64, counted)
                        .map_err(|cause| Unknown::settled("drain", &*self.name, cause))?;
                }
                Err(after) => return Ok(Drained { entries, others: 0, last, after }),
            }
        }
    }

    async fn standing(&self, _by: Mono) -> Result<Standing, Unknown> {
        Ok(self.with(|state, clock| state.standing(clock)))
    }

    fn drains(&self) -> &Drains {
        &self.drains
    }
}

/// The barrier's key is nobody's record.
fn selects(filter: &Filter, key: &Key) -> bool {
    *key != Key::barrier() && filter.selects(key.as_str())
}

/// A pass over a [`MemoryBucket`]: it walks the revisions that stand, and counts down what stood when it began.
pub struct MemoryPass {
    bucket: MemoryBucket,
    filter: Filter,
    values: Values,
    to_deliver: u64,
    pending: u64,
    /// The last sequence when it began.
    began: u64,
    /// The last revision delivered.
    cursor: u64,
    changed: watch::Receiver<u64>,
}

impl Pass for MemoryPass {
    fn to_deliver(&self) -> u64 {
        self.to_deliver
    }

    async fn next(&mut self, by: Mono) -> Result<Delivery, Unknown> {
        loop {
            // Others have their turn between two deliveries, as they have between two messages.
            tokio::task::yield_now().await;
            self.changed.mark_unchanged();
            let cursor = self.cursor;
            let found = self.bucket.with(|state, _| {
                let mut after = state.by_revision.range(cursor + 1..);
                let (_, key) = after.find(|(_, key)| selects(&self.filter, key))?;
                let (key, version) = (key.clone(), state.records[key].clone());
                // What was rewritten meanwhile stands behind what the pass began with, and is not counted any more.
                let left = self.began.saturating_sub(version.revision) > 0
                    && state
                        .by_revision
                        .range(version.revision + 1..=self.began)
                        .any(|(_, key)| selects(&self.filter, key));
                Some((key, version, left))
            });
            if let Some((key, mut version, left)) = found {
                self.cursor = version.revision;
                self.pending = if left { self.pending.saturating_sub(1).max(1) } else { 0 };
                if self.values == Values::Without {
                    version.value = version.value.map(|_| Bytes::new());
                }
                return Ok(Delivery { key: Some(key), version, pending: self.pending });
            }
            let timeout = |_| Unknown::settled("pass", format!("{} {}", self.bucket.name, self.filter), Cause::Timeout);
            let changed = self.bucket.clock.env.within(by, self.changed.changed()).await.map_err(timeout)?;
            changed.map_err(|_| Unknown::settled("pass", &*self.bucket.name, Cause::Disconnected))?;
        }
    }

    async fn end(self, _by: Mono) -> Result<(), Unknown> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use coordproto::key::{Class, Resource};
    use coordproto::listing::KEYS_MAX;

    use super::super::Certified;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_no_index_could_certify_is_unknown_in_every_reading_of_many() {
        let spec = BucketSpec { name: "b".into(), age: None, raise_age: false, replicas: 1 };
        let bucket = Memory::new(Env::seeded(1)).open(&spec).await.unwrap();
        let put = async |i: u64| {
            let key = Resource::parse(&format!("seat:{i}")).unwrap();
            let put = bucket.put(key.key(), Write::Removal, Expect::Any).await.unwrap();
            assert!(matches!(put, Put::Stored(_)));
        };
        for i in 0..KEYS_MAX {
            put(i).await;
        }
        let (filter, by) = (Class::seat().filter(), bucket.deadline());
        let listed = bucket.list(&filter, &Certified::Leader, by).await.unwrap();
        assert_eq!(listed.entries, [], "markers count, and are not listed");
        assert_eq!(bucket.index(&filter, by).await.unwrap().names().count() as u64, KEYS_MAX);
        put(KEYS_MAX).await;
        let too_many = Cause::TooMany { keys: KEYS_MAX + 1, most: KEYS_MAX };
        assert_eq!(bucket.index(&filter, by).await.unwrap_err().cause, too_many);
        let barrier = bucket.barrier(by).await.unwrap();
        for certified in [Certified::Leader, Certified::Quorum(barrier)] {
            let refused = bucket.list(&filter, &certified, by).await.unwrap_err();
            assert_eq!((refused.op, &*refused.resource, refused.cause), ("list", "b seat.>", too_many.clone()));
        }
        let refused = bucket.watch(&filter, by).await.map(drop).unwrap_err();
        assert_eq!((refused.op, refused.cause), ("watch", too_many));
    }

    #[tokio::test]
    async fn a_pass_alone_misses_what_is_rewritten_ahead_of_it() {
        let spec = BucketSpec { name: "b".into(), age: None, raise_age: false, replicas: 1 };
        let bucket = Memory::new(Env::seeded(1)).open(&spec).await.unwrap();
        let keys: Vec<Key> = (0..3).map(|i| Resource::parse(&format!("seat:{i}")).unwrap().key().clone()).collect();
        let put = async |key: &Key| {
            assert!(matches!(bucket.put(key, Write::Removal, Expect::Any).await.unwrap(), Put::Stored(_)));
        };
        for key in &keys {
            put(key).await;
        }
        let by = bucket.deadline();
        let mut pass = bucket.pass(&Class::seat().filter(), Values::With, by).await.unwrap();
        put(&keys[2]).await;
        let mut delivered = Vec::new();
        while delivered.is_empty() || delivered.last() != Some(&0) {
            delivered.push(pass.next(by).await.unwrap().pending);
        }
        assert_eq!((pass.to_deliver(), delivered.len()), (3, 2), "its end comes before the third");
        assert_eq!(pass.next(by).await.unwrap().key.as_ref(), Some(&keys[2]), "which comes behind its end");
    }
}
