//! A store that counts what is asked of the one below it, by verb.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coordproto::answer::{Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::Version;
use jiff::Timestamp;

use super::{Bucket, BucketSpec, Expect, Listing, Names, OpenError, Put, Store, Watch, Write};

/// How often each verb was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Reads of one key.
    pub get: u64,
    /// Writes.
    pub put: u64,
    /// Erasures.
    pub purge: u64,
    /// Certified listings.
    pub list: u64,
    /// Index reads.
    pub names: u64,
    /// Watches opened.
    pub watch: u64,
    /// Readings of the broker's clock.
    pub clock: u64,
}

impl Calls {
    /// All verbs together.
    pub fn total(self) -> u64 {
        self.get + self.put + self.purge + self.list + self.names + self.watch + self.clock
    }
}

#[derive(Default)]
struct Counters {
    get: AtomicU64,
    put: AtomicU64,
    purge: AtomicU64,
    list: AtomicU64,
    names: AtomicU64,
    watch: AtomicU64,
    clock: AtomicU64,
}

/// Counts the calls to a store and to every bucket opened through it.
#[derive(Clone)]
pub struct Counting<T> {
    below: T,
    counters: Arc<Counters>,
}

impl<S: Store> Counting<S> {
    /// Counts what is asked of `store`.
    pub fn new(store: S) -> Counting<S> {
        Counting { below: store, counters: Arc::default() }
    }

    /// The calls since the last time this was asked.
    pub fn take(&self) -> Calls {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        let c = &self.counters;
        Calls {
            get: take(&c.get),
            put: take(&c.put),
            purge: take(&c.purge),
            list: take(&c.list),
            names: take(&c.names),
            watch: take(&c.watch),
            clock: take(&c.clock),
        }
    }
}

impl<S: Store> Store for Counting<S> {
    type Bucket = Counting<S::Bucket>;

    async fn open(&self, spec: &BucketSpec) -> Result<Counting<S::Bucket>, OpenError> {
        Ok(Counting { below: self.below.open(spec).await?, counters: self.counters.clone() })
    }
}

impl<B: Bucket> Bucket for Counting<B> {
    type Changes = B::Changes;

    fn name(&self) -> &str {
        self.below.name()
    }

    fn age(&self) -> Option<Duration> {
        self.below.age()
    }

    async fn get(&self, key: &Key) -> Result<Option<Version>, Unknown> {
        self.counters.get.fetch_add(1, Ordering::Relaxed);
        self.below.get(key).await
    }

    async fn put(&self, key: &Key, write: Write, expect: Expect) -> Result<Put, Error> {
        self.counters.put.fetch_add(1, Ordering::Relaxed);
        self.below.put(key, write, expect).await
    }

    async fn purge(&self, key: &Key, through: u64) -> Result<u64, Unknown> {
        self.counters.purge.fetch_add(1, Ordering::Relaxed);
        self.below.purge(key, through).await
    }

    async fn list(&self, filter: &Filter) -> Result<Listing, Unknown> {
        self.counters.list.fetch_add(1, Ordering::Relaxed);
        self.below.list(filter).await
    }

    async fn names(&self, filter: &Filter) -> Result<Names, Unknown> {
        self.counters.names.fetch_add(1, Ordering::Relaxed);
        self.below.names(filter).await
    }

    async fn watch(&self, filter: &Filter) -> Result<Watch<B::Changes>, Unknown> {
        self.counters.watch.fetch_add(1, Ordering::Relaxed);
        self.below.watch(filter).await
    }

    async fn clock(&self) -> Result<Timestamp, Unknown> {
        self.counters.clock.fetch_add(1, Ordering::Relaxed);
        self.below.clock().await
    }
}
