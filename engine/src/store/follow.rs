//! A watch for ever: what it follows is decoded, and when it ends it is opened again.
//!
//! What it promises: whoever does what the [`News`] say holds what the bucket holds, or has been told [`News::Ended`] and not
//! [`News::All`] since. Nothing that does not decode is passed over: it ends the watch, by name, until it is corrected.
//! Opening goes on for ever, at once after a watch that lived and then ever more seldom, so that an outage ends by itself.
//!
//! What it does not tell: an expiry and a purge. The broker forgets a record without a word in either case; they are seen by
//! reading.

use std::future::Future;
use std::mem::{Discriminant, discriminant};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::Version;
use jiff::Timestamp;

use super::listing::LIST_WITHIN;
use super::watch::Changes;
use super::{Bucket, Watch};
use crate::env::{Env, Mono};

/// The longest wait before the second opening in a row. It doubles from there.
const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// The longest wait before an opening. A watch that lived for this long was none that fails at once, and the next opening
/// after it is not held back.
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// How a record is read: its key, its revision and its value.
pub type Decode<T> = fn(&Key, u64, &Bytes) -> Result<T, Cause>;

/// What whoever follows is told, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum News<T> {
    /// Everything, certified: replace your copy with it.
    All {
        /// The live records, each once, by key.
        entries: Vec<(Key, T)>,
        /// The broker's clock at an instant inside the listing.
        clock: Timestamp,
    },
    /// A key has this record now, or none any more.
    Changed(Key, Option<T>),
    /// From now until the next [`News::All`] your copy may be behind. The next look opens the watch again, and ends in this
    /// too when that fails.
    Ended(Unknown),
}

type Opening<P> = Pin<Box<dyn Future<Output = Result<Watch<P>, Unknown>> + Send>>;

/// A filter of a bucket, followed for ever. Dropped, it leaves no consumer behind.
pub struct Follow<B: Bucket, T> {
    bucket: B,
    filter: Filter,
    decode: Decode<T>,
    state: State<B::Pass>,
    /// How many openings in a row led to no watch that lived.
    failed: u32,
    /// Since the last [`News::All`]: what the last end was about, so that the log says it once.
    ended: Option<(Box<str>, Discriminant<Cause>)>,
}

enum State<P> {
    /// It is being opened. This is kept between two looks, so that a look that was given up costs nothing.
    Opening(Opening<P>),
    /// It has been open since then.
    Open(Changes<P>, Mono),
}

impl<B: Bucket, T> Follow<B, T> {
    /// Follows what `filter` selects. Nothing is sent until it is looked at.
    pub fn new(bucket: B, filter: Filter, decode: Decode<T>) -> Follow<B, T> {
        let state = State::Opening(open(&bucket, &filter, bucket.env().now()));
        Follow { bucket, filter, decode, state, failed: 0, ended: None }
    }

    /// The next news; it waits for them. The first are [`News::All`], or [`News::Ended`] and why not.
    ///
    /// This may be dropped unfinished, in a `select`, and called again: nothing is lost by it.
    pub async fn next(&mut self) -> News<T> {
        let told = match &mut self.state {
            State::Opening(opening) => match opening.await {
                Ok(watch) => self.begin(watch),
                Err(unknown) => Err(unknown),
            },
            State::Open(changes, _) => match changes.next().await {
                Ok((key, version)) => self.decode(&key, &version).map(|record| News::Changed(key, record)),
                Err(unknown) => Err(unknown),
            },
        };
        told.unwrap_or_else(|unknown| self.end(unknown))
    }

    fn begin(&mut self, watch: Watch<B::Pass>) -> Result<News<T>, Unknown> {
        let Watch { listing, changes } = watch;
        let mut entries = Vec::with_capacity(listing.entries.len());
        for (key, version) in listing.entries {
            if let Some(record) = self.decode(&key, &version)? {
                entries.push((key, record));
            }
        }
        self.state = State::Open(changes, self.env().now());
        if self.ended.take().is_some() {
            tracing::info!(bucket = self.bucket.name(), filter = %self.filter, "watch_restored");
        }
        Ok(News::All { entries, clock: listing.clock })
    }

    fn end(&mut self, unknown: Unknown) -> News<T> {
        let now = self.env().now();
        if let State::Open(_, since) = &self.state
            && now.since(*since) >= BACKOFF_MAX
        {
            self.failed = 0;
        }
        let wait = back_off(self.env(), self.failed);
        self.failed = self.failed.saturating_add(1);
        self.state = State::Opening(open(&self.bucket, &self.filter, now + wait));
        let about = (unknown.resource.clone(), discriminant(&unknown.cause));
        if self.ended.as_ref() != Some(&about) {
            tracing::warn!(%unknown, "watch_ended");
            self.ended = Some(about);
        }
        News::Ended(unknown)
    }

    fn decode(&self, key: &Key, version: &Version) -> Result<Option<T>, Unknown> {
        let Some(value) = &version.value else { return Ok(None) };
        let record = (self.decode)(key, version.revision, value);
        let about = || format!("{} {key}", self.bucket.name());
        record.map(Some).map_err(|cause| Unknown::settled("watch", about(), cause))
    }

    fn env(&self) -> &Env {
        self.bucket.env()
    }
}

/// Opens a watch, not before `at`.
fn open<B: Bucket>(bucket: &B, filter: &Filter, at: Mono) -> Opening<B::Pass> {
    let (bucket, filter) = (bucket.clone(), filter.clone());
    Box::pin(async move {
        bucket.env().sleep_until(at).await;
        bucket.watch(&filter, bucket.env().now() + LIST_WITHIN).await
    })
}

/// How long to wait after that many failures in a row: not at all, then jittered and doubling.
fn back_off(env: &Env, failed: u32) -> Duration {
    let Some(doublings) = failed.checked_sub(1) else { return Duration::ZERO };
    let most = BACKOFF_MIN.saturating_mul(1 << doublings.min(16)).min(BACKOFF_MAX);
    most / 2 + env.jitter(most / 2)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use coordproto::key::{Class, Resource};
    use futures_util::FutureExt;

    use super::super::faulty::{Fault, Faulty, Verb};
    use super::super::memory::{Memory, MemoryBucket};
    use super::super::{BucketSpec, Expect, Put, Store, Write};
    use super::*;

    type Bucketed = Faulty<MemoryBucket>;

    fn text(_: &Key, _: u64, value: &Bytes) -> Result<String, Cause> {
        String::from_utf8(value.to_vec()).map_err(|error| Cause::Undecodable(error.to_string().into()))
    }

    async fn bucket(env: &Env) -> (Faulty<Memory>, Bucketed) {
        let store = Faulty::new(Memory::new(env.clone()), env.clone(), |_| Fault::None);
        let spec = BucketSpec { name: "b".into(), age: None, raise_age: false, replicas: 1 };
        let bucket = store.open(&spec).await.unwrap();
        (store, bucket)
    }

    async fn put(bucket: &Bucketed, name: &str, value: &'static [u8]) -> Key {
        let key = Resource::parse(name).unwrap().key().clone();
        let put = bucket.put(&key, Write::Value(Bytes::from_static(value)), Expect::Any).await.unwrap();
        assert!(matches!(put, Put::Stored(_)));
        key
    }

    fn follow(bucket: &Bucketed) -> Follow<Bucketed, String> {
        Follow::new(bucket.clone(), Class::seat().filter(), text)
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_told_at_every_look_ever_more_seldom_and_ends_by_itself() {
        let env = Env::seeded(1);
        let (store, bucket) = bucket(&env).await;
        let key = put(&bucket, "seat:a", b"1").await;
        store.choose(|call| if call.verb == Verb::Index { Fault::DropRequest } else { Fault::None });
        let mut follow = follow(&bucket);
        let mut waits = Vec::new();
        for _ in 0..12 {
            let began = env.now();
            let News::Ended(unknown) = follow.next().await else { panic!("nobody answers") };
            assert_eq!((unknown.op, &*unknown.resource, unknown.cause), ("watch", "b seat.>", Cause::Timeout));
            waits.push(env.now().since(began));
        }
        assert_eq!(waits[..2], [Duration::ZERO; 2], "at once the first time");
        let bound = |n: u32| (BACKOFF_MIN * (1 << n)).min(BACKOFF_MAX);
        for (n, wait) in (0..).zip(&waits[2..]) {
            assert!(bound(n) / 2 <= *wait && *wait <= bound(n) + Duration::from_millis(1), "{waits:?}");
        }
        store.choose(|_| Fault::None);
        let all = |news| matches!(news, News::All { entries, .. } if entries == [(key.clone(), "1".to_owned())]);
        assert!(all(follow.next().await));

        // A watch that ends at once is opened as seldom as one that is not opened; one that lived is opened at once.
        for (life, at_once) in [(Duration::ZERO, false), (BACKOFF_MAX, true)] {
            env.sleep(life).await;
            put(&bucket, "seat:a", b"\xff").await;
            assert!(matches!(follow.next().await, News::Ended(_)));
            put(&bucket, "seat:a", b"1").await;
            let began = env.now();
            assert!(all(follow.next().await));
            assert_eq!(env.now().since(began) < BACKOFF_MAX / 2, at_once, "after a life of {life:?}");
        }
    }

    /// A caller that looks away all the time, in a `select` with something that happens more often than an opening ends.
    #[tokio::test(start_paused = true)]
    async fn looks_that_are_given_up_lose_nothing() {
        let env = Env::seeded(1);
        let (store, bucket) = bucket(&env).await;
        put(&bucket, "seat:a", b"1").await;
        let opened = Arc::new(AtomicUsize::new(0));
        let count = opened.clone();
        store.choose(move |call| match call.verb {
            Verb::Pass => {
                count.fetch_add(1, Ordering::Relaxed);
                Fault::Slow(Duration::from_secs(1))
            }
            _ => Fault::None,
        });
        let mut follow = follow(&bucket);
        let mut look = async || {
            for given_up in 0.. {
                match env.within(env.now() + Duration::from_millis(300), follow.next()).await {
                    Ok(news) => return (given_up, news),
                    Err(_) => assert!(given_up < 100, "it never comes"),
                }
            }
            unreachable!("it counts for ever")
        };
        let (given_up, news) = look().await;
        assert!(given_up > 0 && matches!(news, News::All { entries, .. } if entries.len() == 1));
        assert_eq!(opened.load(Ordering::Relaxed), 1, "it goes on where it was");
    }

    #[tokio::test(start_paused = true)]
    async fn a_day_without_a_change_is_no_end() {
        let env = Env::seeded(1);
        let (_store, bucket) = bucket(&env).await;
        let mut follow = follow(&bucket);
        assert!(matches!(follow.next().await, News::All { .. }));
        let quiet = env.within(env.now() + Duration::from_secs(50 * 60 * 60), follow.next()).await;
        assert!(quiet.is_err(), "{quiet:?}");
        let key = put(&bucket, "seat:a", b"1").await;
        assert_eq!(follow.next().await, News::Changed(key, Some("1".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_told_once_however_often_it_is_delivered() {
        let env = Env::seeded(1);
        let (store, bucket) = bucket(&env).await;
        put(&bucket, "seat:a", b"1").await;
        store.choose(|call| if call.verb == Verb::Pass { Fault::Replay } else { Fault::None });
        let mut follow = follow(&bucket);
        assert!(matches!(follow.next().await, News::All { entries, .. } if entries.len() == 1));
        for name in ["seat:b", "seat:c"] {
            let key = put(&bucket, name, b"1").await;
            assert_eq!(follow.next().await, News::Changed(key, Some("1".to_owned())));
        }
    }

    /// The leader tells of a removal that the index was too early for; the pass delivers it after the answer.
    #[tokio::test(start_paused = true)]
    async fn what_the_answer_tells_already_is_no_change() {
        let env = Env::seeded(1);
        let memory = Memory::new(env.clone());
        let store = Faulty::new(memory.clone(), env.clone(), |_| Fault::None);
        let spec = BucketSpec { name: "b".into(), age: None, raise_age: false, replicas: 1 };
        let (bucket, below) = (store.open(&spec).await.unwrap(), memory.open(&spec).await.unwrap());
        let gone = put(&bucket, "seat:a", b"1").await;
        store.choose(move |call| match call.verb {
            Verb::Pass => Fault::Split(0),
            Verb::Read => {
                let removed =
                    below.put(&gone, Write::Removal, Expect::Any).now_or_never().expect("the twin does not wait");
                assert!(matches!(removed, Ok(Put::Stored(_))));
                Fault::None
            }
            _ => Fault::None,
        });
        let mut follow = follow(&bucket);
        assert!(matches!(follow.next().await, News::All { entries, .. } if entries.is_empty()));
        store.choose(|_| Fault::None);
        let next = put(&bucket, "seat:b", b"1").await;
        assert_eq!(follow.next().await, News::Changed(next, Some("1".to_owned())));
    }
}
