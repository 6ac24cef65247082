//! A store that counts what is asked of the one below it, by verb.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coordproto::answer::{Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::{Drained, Index, Standing, Version};

use super::{Bucket, BucketSpec, Copy, Drains, Expect, OpenError, Put, Store, Values, Write};
use crate::env::{Env, Mono};

/// How often each verb was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Reads of one key.
    pub read: u64,
    /// Writes.
    pub put: u64,
    /// Erasures.
    pub purge: u64,
    /// Index reads.
    pub index: u64,
    /// Passes opened.
    pub pass: u64,
    /// Batched reads of some member's copy.
    pub copy: u64,
    /// Copies read to their end.
    pub drain: u64,
    /// Questions about the stream as a whole, its clock among them.
    pub standing: u64,
}

impl Calls {
    /// All verbs together.
    pub fn total(self) -> u64 {
        self.read + self.put + self.purge + self.index + self.pass + self.copy + self.drain + self.standing
    }
}

#[derive(Default)]
struct Counters {
    read: AtomicU64,
    put: AtomicU64,
    purge: AtomicU64,
    index: AtomicU64,
    pass: AtomicU64,
    copy: AtomicU64,
    drain: AtomicU64,
    standing: AtomicU64,
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
            read: take(&c.read),
            put: take(&c.put),
            purge: take(&c.purge),
            index: take(&c.index),
            pass: take(&c.pass),
            copy: take(&c.copy),
            drain: take(&c.drain),
            standing: take(&c.standing),
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
    type Pass = B::Pass;

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
        self.counters.read.fetch_add(1, Ordering::Relaxed);
        self.below.read(key, by).await
    }

    async fn put(&self, key: &Key, write: Write, expect: Expect) -> Result<Put, Error> {
        self.counters.put.fetch_add(1, Ordering::Relaxed);
        self.below.put(key, write, expect).await
    }

    async fn purge(&self, key: &Key, through: u64) -> Result<u64, Unknown> {
        self.counters.purge.fetch_add(1, Ordering::Relaxed);
        self.below.purge(key, through).await
    }

    async fn index(&self, filter: &Filter, by: Mono) -> Result<Index, Unknown> {
        self.counters.index.fetch_add(1, Ordering::Relaxed);
        self.below.index(filter, by).await
    }

    async fn pass(&self, filter: &Filter, values: Values, by: Mono) -> Result<B::Pass, Unknown> {
        self.counters.pass.fetch_add(1, Ordering::Relaxed);
        self.below.pass(filter, values, by).await
    }

    async fn copy(&self, names: &[&str], by: Mono) -> Result<Copy, Unknown> {
        self.counters.copy.fetch_add(1, Ordering::Relaxed);
        self.below.copy(names, by).await
    }

    async fn drain(&self, by: Mono) -> Result<Drained, Unknown> {
        self.counters.drain.fetch_add(1, Ordering::Relaxed);
        self.below.drain(by).await
    }

    async fn standing(&self, by: Mono) -> Result<Standing, Unknown> {
        self.counters.standing.fetch_add(1, Ordering::Relaxed);
        self.below.standing(by).await
    }

    fn drains(&self) -> &Drains {
        self.below.drains()
    }
}
