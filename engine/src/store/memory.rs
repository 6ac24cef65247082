//! The memory twin: the same contract inside one process, small enough to be obviously right.
//!
//! One lock, one sequence per bucket, one revision per key, expiry by age. It enforces every argument rule and ceiling that
//! the real store does, so that what a fleet would refuse already fails here. It has no replicas to lag and no leader to
//! lose; [`faulty`](super::faulty) adds the unknowns.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::{Version, is_whole};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::{
    Bucket, BucketSpec, Changes, Expect, Listing, Names, OpenError, Put, Race, Store, Watch, Write, check_value,
};
use crate::env::{Env, Mono};

/// How many changes a watch may fall behind before it ends.
const WATCH_BACKLOG: usize = 1024;

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
    last: u64,
    records: BTreeMap<Key, Version>,
    changes: broadcast::Sender<(Key, Version)>,
}

impl State {
    /// Drops what has outlived the bucket's age.
    fn expire(&mut self, now: Timestamp) {
        if let Some(age) = self.age {
            let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
            self.records.retain(|_, version| version.written.duration_until(now) < age);
        }
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
                last: 0,
                records: BTreeMap::new(),
                changes: broadcast::channel(WATCH_BACKLOG).0,
            }))
        });
        let mut bucket = state.lock();
        if bucket.replicas < spec.replicas {
            return Err(OpenError::Replicas { bucket: spec.name.clone(), have: bucket.replicas, want: spec.replicas });
        }
        if spec.raise_age && bucket.age.is_some() && bucket.age < spec.age {
            bucket.age = spec.age;
        }
        let age = bucket.age;
        drop(bucket);
        Ok(MemoryBucket { name: spec.name.as_str().into(), age, state: state.clone(), clock: self.clock.clone() })
    }
}

/// A bucket of a [`Memory`] store.
#[derive(Clone)]
pub struct MemoryBucket {
    name: Arc<str>,
    age: Option<Duration>,
    state: Arc<Mutex<State>>,
    clock: Clock,
}

impl MemoryBucket {
    /// Runs `work` on the bucket as it is now, expired records gone.
    fn with<T>(&self, work: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let mut state = self.state.lock();
        let now = self.clock.now();
        state.expire(now);
        work(&mut state, now)
    }

    /// The ceiling of the broker's index, which a fleet would meet.
    fn certifiable(&self, op: &'static str, keys: usize) -> Result<(), Unknown> {
        is_whole(keys as u64, keys).map_err(|cause| Unknown::settled(op, &*self.name, cause))
    }

    fn listing(&self, op: &'static str, state: &State, filter: &Filter, clock: Timestamp) -> Result<Listing, Unknown> {
        let selected = || state.records.iter().filter(|(key, _)| filter.selects(key.as_str()));
        self.certifiable(op, selected().count())?;
        let live = selected().filter(|(_, version)| version.value.is_some());
        Ok(Listing { entries: live.map(|(key, version)| (key.clone(), version.clone())).collect(), clock })
    }
}

impl Bucket for MemoryBucket {
    type Changes = MemoryChanges;

    fn name(&self) -> &str {
        &self.name
    }

    fn age(&self) -> Option<Duration> {
        self.age
    }

    async fn get(&self, key: &Key) -> Result<Option<Version>, Unknown> {
        Ok(self.with(|state, _| state.records.get(key).cloned()))
    }

    async fn put(&self, key: &Key, write: Write, expect: Expect) -> Result<Put, Error> {
        check_value(key, &write)?;
        Ok(self.with(|state, now| {
            let stands = state.records.get(key).map_or(0, |version| version.revision);
            match expect {
                Expect::At(revision) if revision != stands && stands == 0 => return Put::Lost(Race::Vanished),
                Expect::At(revision) if revision != stands => return Put::Lost(Race::Newer(stands)),
                Expect::At(_) | Expect::Any => {}
            }
            state.last += 1;
            let value = match write {
                Write::Value(value) => Some(value),
                Write::Removal => None,
            };
            let version = Version { revision: state.last, written: now, value };
            state.records.insert(key.clone(), version.clone());
            // A bucket that nobody watches has nobody to tell.
            let _ = state.changes.send((key.clone(), version));
            Put::Stored(state.last)
        }))
    }

    async fn purge(&self, key: &Key, through: u64) -> Result<u64, Unknown> {
        Ok(self.with(|state, _| match state.records.get(key) {
            Some(version) if version.revision <= through => {
                state.records.remove(key);
                1
            }
            _ => 0,
        }))
    }

    async fn list(&self, filter: &Filter) -> Result<Listing, Unknown> {
        self.with(|state, now| self.listing("list", state, filter, now))
    }

    async fn names(&self, filter: &Filter) -> Result<Names, Unknown> {
        self.with(|state, clock| {
            let keys: Vec<Key> = state.records.keys().filter(|key| filter.selects(key.as_str())).cloned().collect();
            self.certifiable("names", keys.len())?;
            Ok(Names { keys, clock })
        })
    }

    async fn watch(&self, filter: &Filter) -> Result<Watch<MemoryChanges>, Unknown> {
        self.with(|state, now| {
            let listing = self.listing("watch", state, filter, now)?;
            let resource = format!("{} {filter}", self.name);
            let changes = MemoryChanges { resource, filter: filter.clone(), feed: state.changes.subscribe() };
            Ok(Watch { listing, changes })
        })
    }

    async fn clock(&self) -> Result<Timestamp, Unknown> {
        Ok(self.clock.now())
    }
}

/// The changes of a watched [`MemoryBucket`].
pub struct MemoryChanges {
    resource: String,
    filter: Filter,
    feed: broadcast::Receiver<(Key, Version)>,
}

impl Changes for MemoryChanges {
    async fn next(&mut self) -> Result<(Key, Version), Unknown> {
        loop {
            match self.feed.recv().await {
                Ok((key, version)) if self.filter.selects(key.as_str()) => return Ok((key, version)),
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    let cause = Cause::Garbage(format!("{missed} changes were missed").into());
                    return Err(Unknown::settled("watch", self.resource.as_str(), cause));
                }
                Err(broadcast::error::RecvError::Closed) => {
                    return Err(Unknown::settled("watch", self.resource.as_str(), Cause::Disconnected));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use coordproto::key::{Class, Resource};
    use coordproto::listing::KEYS_MAX;

    use super::*;

    #[tokio::test]
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
        let filter = Class::seat().filter();
        assert_eq!(bucket.list(&filter).await.unwrap().entries, [], "markers count, and are not listed");
        assert_eq!(bucket.names(&filter).await.unwrap().keys.len() as u64, KEYS_MAX);
        put(KEYS_MAX).await;
        let too_many = Cause::TooMany { keys: KEYS_MAX + 1, most: KEYS_MAX };
        assert_eq!(bucket.list(&filter).await.unwrap_err().cause, too_many);
        assert_eq!(bucket.names(&filter).await.unwrap_err().cause, too_many);
        assert_eq!(bucket.watch(&filter).await.map(drop).unwrap_err().cause, too_many);
    }
}
