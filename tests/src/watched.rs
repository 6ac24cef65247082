//! A store that sees how many round trips are made over it, one after another, by whichever task; and a fault in the code,
//! planted: every write is preceded by a read that nobody needs. What counts requests has to see that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coordproto::answer::{Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::{Drained, Index, Standing, Version};
use engine::env::{Env, Mono};
use engine::store::{Bucket, BucketSpec, Copy, Drains, Expect, OpenError, Put, Store, Values, Write};

/// A store, or a bucket of it, and what was seen of it.
#[derive(Clone)]
pub struct Watched<T> {
    below: T,
    seen: Arc<Seen>,
    wasteful: bool,
}

#[derive(Default)]
struct Seen {
    outstanding: AtomicU64,
    rounds: AtomicU64,
}

/// A call that is under way.
struct Call<'a>(&'a Seen);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.outstanding.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T> Watched<T> {
    /// Watches a store.
    pub fn new(store: T) -> Watched<T> {
        Watched { below: store, seen: Arc::default(), wasteful: false }
    }

    /// The same, but it reads before every write.
    pub fn wasteful(store: T) -> Watched<T> {
        Watched { wasteful: true, ..Watched::new(store) }
    }

    /// How often a call began while no other was under way, so far.
    pub fn rounds(&self) -> u64 {
        self.seen.rounds.load(Ordering::Relaxed)
    }

    fn call(&self) -> Call<'_> {
        if self.seen.outstanding.fetch_add(1, Ordering::Relaxed) == 0 {
            self.seen.rounds.fetch_add(1, Ordering::Relaxed);
        }
        Call(&self.seen)
    }
}

impl<S: Store> Store for Watched<S> {
    type Bucket = Watched<S::Bucket>;

    async fn open(&self, spec: &BucketSpec) -> Result<Self::Bucket, OpenError> {
        let below = self.below.open(spec).await?;
        Ok(Watched { below, seen: self.seen.clone(), wasteful: self.wasteful })
    }
}

impl<B: Bucket> Bucket for Watched<B> {
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
        let _call = self.call();
        self.below.read(key, by).await
    }

    async fn put(&self, key: &Key, write: Write, expect: Expect) -> Result<Put, Error> {
        if self.wasteful {
            self.read(key, self.deadline()).await?;
        }
        let _call = self.call();
        self.below.put(key, write, expect).await
    }

    async fn purge(&self, key: &Key, through: u64) -> Result<u64, Unknown> {
        let _call = self.call();
        self.below.purge(key, through).await
    }

    async fn index(&self, filter: &Filter, by: Mono) -> Result<Index, Unknown> {
        let _call = self.call();
        self.below.index(filter, by).await
    }

    async fn pass(&self, filter: &Filter, values: Values, by: Mono) -> Result<B::Pass, Unknown> {
        let _call = self.call();
        self.below.pass(filter, values, by).await
    }

    async fn copy(&self, names: &[&str], by: Mono) -> Result<Copy, Unknown> {
        let _call = self.call();
        self.below.copy(names, by).await
    }

    async fn drain(&self, by: Mono) -> Result<Drained, Unknown> {
        let _call = self.call();
        self.below.drain(by).await
    }

    async fn standing(&self, by: Mono) -> Result<Standing, Unknown> {
        let _call = self.call();
        self.below.standing(by).await
    }

    fn drains(&self) -> &Drains {
        self.below.drains()
    }
}
