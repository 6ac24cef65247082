//! The store on NATS JetStream: a bucket is a stream `KV_<bucket>` that keeps one revision per key.
//!
//! Every read of one key is the stream leader's. A listing is one ordered pass beside the leader's subject index, and
//! whatever the index names and the pass did not deliver live is read from the leader, in a pipeline; see
//! [`coordproto::listing`]. A bucket that exists is adopted as it is, and only its copies are judged.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::Subject;
use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::api;
use coordproto::api::requests::{Storage, StreamConfig};
use coordproto::key::{Filter, Key};
use coordproto::listing::{Pass as Collected, Version, is_news, is_whole};
use futures_util::future::try_join;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use tokio::sync::watch;

use super::{
    Bucket, BucketSpec, Changes, Expect, Listing, Names, OpenError, Put, Race, Store, Watch, Write, check_value,
};
use crate::env::{Env, Mono};
use crate::jetstream::{self, Jetstream, Pass, Record, Tombstone, Values};

/// How long opening a bucket may take; a fresh cluster elects first.
const OPEN_WITHIN: Duration = Duration::from_secs(30);

/// A key that nobody writes: no record of any slot is of this class.
const PROBE: &str = "probe";

/// How long a listing may take, all of it together.
const LIST_WITHIN: Duration = Duration::from_secs(10);

/// Once the index has answered, a pass without a delivery for this long is over: the broker's own idle interval.
const QUIET: Duration = Duration::from_secs(5);

/// How long a listing waits to hear that its consumer is gone. The broker forgets an orphan by itself.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Leader reads of one listing under way at once.
const READS_AT_ONCE: usize = 64;

/// How far ahead a watch's deadline lies that has none.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A store over one connection.
#[derive(Clone)]
pub struct Nats {
    jetstream: Jetstream,
    storage: Storage,
}

impl Nats {
    /// The store over `jetstream`; buckets that it creates are kept on `storage`.
    pub fn new(jetstream: Jetstream, storage: Storage) -> Nats {
        Nats { jetstream, storage }
    }

    /// The connection.
    pub fn jetstream(&self) -> &Jetstream {
        &self.jetstream
    }

    /// Deletes a bucket with everything in it; answers whether there was one.
    ///
    /// # Errors
    /// Unknown.
    pub async fn delete(&self, bucket: &str) -> Result<bool, Unknown> {
        self.jetstream.delete_stream(&stream_of(bucket), self.jetstream.deadline()).await
    }

    /// The configuration of a bucket's stream as it stands, created when there is none. It takes writes from here by then.
    async fn stand(&self, spec: &BucketSpec) -> Result<StreamConfig, Unknown> {
        let (js, env) = (&self.jetstream, self.jetstream.env());
        let stream = stream_of(&spec.name);
        let until = env.now() + OPEN_WITHIN;
        let mut round = 0;
        loop {
            // A refusal or a missing answer decides nothing here: the next look does.
            let doubt = match js.info(&stream, None, js.deadline().min(until)).await {
                Ok(Some(info)) => match self.reaches(&spec.name, js.deadline().min(until)).await {
                    Ok(()) => {
                        return info.config().map_err(|garbage| Unknown::settled("open", &*spec.name, garbage.into()));
                    }
                    Err(unknown) => Some(unknown),
                },
                Ok(None) => {
                    let age = spec.age.unwrap_or_default();
                    let config = StreamConfig::bucket(&spec.name, age, self.storage, usize::from(spec.replicas));
                    // Whether it stands or differs, it is there to be looked at.
                    js.create_stream(&config, js.deadline().min(until)).await.err()
                }
                Err(unknown) => Some(unknown),
            };
            if let Some(unknown) = doubt {
                if env.now() >= until {
                    return Err(unknown.during("open", &*spec.name));
                }
                tracing::debug!(bucket = spec.name, %unknown, "bucket_open_retried");
            }
            let most = Duration::from_millis(10 << u32::min(round, 5));
            env.sleep(most / 2 + env.jitter(most / 2)).await;
            round += 1;
        }
    }

    /// Whether a write from here reaches the leader. A member answers for a stream that was just made before the others have
    /// heard that it takes the subjects in, and until they have, a write through one of them reaches nobody. This one
    /// expects a revision of a key that has none, so the leader refuses it and nothing is written.
    async fn reaches(&self, bucket: &str, by: Mono) -> Result<(), Unknown> {
        let subject = format!("$KV.{bucket}.{PROBE}");
        match self.jetstream.put(&subject, jetstream::Write::at(1), Bytes::new(), by).await {
            Ok(_refused) => Ok(()),
            Err(Error::Unknown(unknown)) => Err(unknown),
            Err(Error::BadArgument(error)) => unreachable!("nothing is never too large a value: {error}"),
        }
    }
}

fn stream_of(bucket: &str) -> String {
    format!("KV_{bucket}")
}

impl Store for Nats {
    type Bucket = NatsBucket;

    async fn open(&self, spec: &BucketSpec) -> Result<NatsBucket, OpenError> {
        spec.check()?;
        let mut config = self.stand(spec).await?;
        let have = u8::try_from(config.replicas).unwrap_or(u8::MAX);
        if have < spec.replicas {
            return Err(OpenError::Replicas { bucket: spec.name.clone(), have, want: spec.replicas });
        }
        if spec.raise_age
            && let Some(age) = spec.age
            && !config.max_age.is_zero()
            && config.max_age < age
        {
            tracing::info!(bucket = spec.name, from = ?config.max_age, to = ?age, "bucket_age_raised");
            config.max_age = age;
            let by = self.jetstream.deadline();
            self.jetstream.update_stream(&config, by).await.map_err(|u| u.during("raise age", &*spec.name))?;
            config = self.stand(spec).await?;
        }
        Ok(NatsBucket {
            jetstream: self.jetstream.clone(),
            name: spec.name.as_str().into(),
            stream: stream_of(&spec.name).into(),
            prefix: format!("$KV.{}.", spec.name).into(),
            age: (!config.max_age.is_zero()).then_some(config.max_age),
        })
    }
}

/// A bucket of a [`Nats`] store.
#[derive(Clone)]
pub struct NatsBucket {
    jetstream: Jetstream,
    name: std::sync::Arc<str>,
    stream: std::sync::Arc<str>,
    /// What stands before a key in its subject.
    prefix: std::sync::Arc<str>,
    age: Option<Duration>,
}

impl NatsBucket {
    fn subject(&self, key: &str) -> Subject {
        self.jetstream.joined(&self.prefix, key)
    }

    fn env(&self) -> &Env {
        self.jetstream.env()
    }

    fn unknown(&self, op: &'static str, cause: Cause) -> Unknown {
        Unknown::settled(op, &*self.name, cause)
    }

    /// A stream that was opened and is not found: deleted, or this answer is from before it.
    fn gone(&self, op: &'static str) -> Unknown {
        self.unknown(op, Cause::Unavailable { code: 404, err_code: 10059 })
    }

    async fn read(&self, key: &str, by: Mono) -> Result<Option<Version>, Unknown> {
        let stored = self.jetstream.last(&self.stream, &self.subject(key), by).await?;
        Ok(stored.map(|stored| Version {
            revision: stored.revision,
            written: stored.time,
            value: stored.marker.is_none().then_some(stored.value),
        }))
    }

    /// The leader's index of a filter, no larger than a listing can certify.
    async fn index(&self, op: &'static str, filter: &Filter, by: Mono) -> Result<api::Info, Unknown> {
        let info = self.jetstream.info(&self.stream, Some(&self.subject(filter.as_str())), by).await?;
        let info = info.ok_or_else(|| self.gone(op))?;
        is_whole(info.total, info.subjects.len()).map_err(|cause| self.unknown(op, cause))?;
        Ok(info)
    }

    /// One pass, still open, beside the leader's index.
    async fn survey(&self, op: &'static str, filter: &Filter, by: Mono) -> Result<Survey, Unknown> {
        let (answered, index_answered) = watch::channel(false);
        let index = async {
            let index = self.index(op, filter, by).await?;
            answered.send_replace(true);
            Ok(index)
        };
        let (index, (collected, pass)) = try_join(index, self.collect(filter, index_answered, by)).await?;
        Ok(Survey { index, collected, pass })
    }

    /// Settles with the leader, key by key, what the index names and the pass did not deliver live.
    async fn certify(
        &self,
        op: &'static str,
        index: &api::Info,
        mut collected: Collected,
        by: Mono,
    ) -> Result<Listing, Unknown> {
        let named = index.subjects.iter().filter_map(|subject| subject.strip_prefix(&*self.prefix));
        let doubtful: Vec<String> = collected.to_read(named).into_iter().map(str::to_owned).collect();
        let answers: Vec<(String, Option<Version>)> = stream::iter(doubtful)
            .map(|key| async move {
                let version = self.read(&key, by).await?;
                Ok((key, version))
            })
            .buffer_unordered(READS_AT_ONCE)
            .try_collect()
            .await?;
        for (key, version) in answers {
            collected.settle(&key, version).map_err(|cause| self.unknown(op, cause))?;
        }
        let entries = collected.finish().into_iter();
        // A key that does not decode was written by nobody that speaks of these records.
        let entries = entries.filter_map(|(key, version)| Some((Key::parse(&key).ok()?, version))).collect();
        Ok(Listing { entries, clock: index.ts })
    }

    /// What one pass delivers, until it says that nothing is pending or falls quiet.
    async fn collect(
        &self,
        filter: &Filter,
        mut index_answered: watch::Receiver<bool>,
        by: Mono,
    ) -> Result<(Collected, Pass), Unknown> {
        let mut pass = self.jetstream.pass(&self.stream, &self.subject(filter.as_str()), Values::With, by).await?;
        let mut collected = Collected::new();
        let mut pending = pass.to_deliver();
        let mut heard = self.env().now();
        while pending > 0 {
            let answered = *index_answered.borrow();
            let delivery = tokio::select! {
                biased;
                delivery = pass.next(by) => delivery?,
                () = self.env().sleep_until(heard + QUIET), if answered => break,
                // The quiet is counted from the index's answer on. One that fails ends the listing, and this pass with it.
                Ok(()) = index_answered.changed(), if !answered => {
                    heard = self.env().now();
                    continue;
                }
            };
            heard = self.env().now();
            pending = delivery.pending;
            let (key, version) = self.version(delivery.record);
            if let Some(key) = key {
                collected.take(&key, version);
            }
        }
        Ok((collected, pass))
    }

    fn version(&self, record: Record) -> (Option<String>, Version) {
        let key = record.subject.strip_prefix(&*self.prefix).map(str::to_owned);
        let value = record.marker.is_none().then_some(record.value);
        (key, Version { revision: record.revision, written: record.time, value })
    }
}

/// What a listing is made of, before it is certified.
struct Survey {
    index: api::Info,
    collected: Collected,
    pass: Pass,
}

impl Bucket for NatsBucket {
    type Changes = NatsChanges;

    fn name(&self) -> &str {
        &self.name
    }

    fn age(&self) -> Option<Duration> {
        self.age
    }

    async fn get(&self, key: &Key) -> Result<Option<Version>, Unknown> {
        self.read(key.as_str(), self.jetstream.deadline()).await
    }

    async fn put(&self, key: &Key, write: Write, expect: Expect) -> Result<Put, Error> {
        check_value(key, &write)?;
        let expect = match expect {
            Expect::Any => None,
            Expect::At(revision) => Some(revision),
        };
        let (value, tombstone) = match write {
            Write::Value(value) => (value, None),
            Write::Removal => (Bytes::new(), Some(Tombstone::Delete)),
        };
        let write = jetstream::Write { expect, tombstone, ttl_s: None };
        let put = self.jetstream.put(&self.subject(key.as_str()), write, value, self.jetstream.deadline()).await?;
        Ok(match put {
            api::Put::Stored { revision, duplicate: _ } => Put::Stored(revision),
            api::Put::Lost(api::Race::Newer(revision)) => Put::Lost(Race::Newer(revision)),
            api::Put::Lost(api::Race::Vanished) => Put::Lost(Race::Vanished),
            api::Put::Lost(api::Race::InProcess) => Put::Lost(Race::InProcess),
        })
    }

    async fn purge(&self, key: &Key, through: u64) -> Result<u64, Unknown> {
        let subject = self.subject(key.as_str());
        self.jetstream.purge(&self.stream, &subject, Some(through), self.jetstream.deadline()).await
    }

    async fn list(&self, filter: &Filter) -> Result<Listing, Unknown> {
        let by = self.env().now() + LIST_WITHIN;
        let Survey { index, collected, pass } = self.survey("list", filter, by).await?;
        end(pass, self.env(), by).await;
        self.certify("list", &index, collected, by).await
    }

    async fn names(&self, filter: &Filter) -> Result<Names, Unknown> {
        let info = self.index("names", filter, self.jetstream.deadline()).await?;
        let names = info.subjects.iter().filter_map(|subject| subject.strip_prefix(&*self.prefix));
        let mut keys: Vec<Key> = names.filter_map(|name| Key::parse(name).ok()).collect();
        keys.sort_unstable();
        Ok(Names { keys, clock: info.ts })
    }

    async fn watch(&self, filter: &Filter) -> Result<Watch<NatsChanges>, Unknown> {
        let by = self.env().now() + LIST_WITHIN;
        let Survey { index, collected, pass } = self.survey("watch", filter, by).await?;
        let listing = self.certify("watch", &index, collected, by).await?;
        let known = listing.entries.iter().map(|(key, version)| (key.clone(), version.revision)).collect();
        Ok(Watch { listing, changes: NatsChanges { bucket: self.clone(), pass, known, index_seq: index.last_seq } })
    }

    async fn clock(&self) -> Result<Timestamp, Unknown> {
        let info = self.jetstream.info(&self.stream, None, self.jetstream.deadline()).await?;
        Ok(info.ok_or_else(|| self.gone("clock"))?.ts)
    }
}

/// Ends a pass, and waits a moment to hear that its consumer is gone.
async fn end(pass: Pass, env: &Env, by: Mono) {
    let by = by.min(env.now() + END_WITHIN);
    if let Err(unknown) = pass.end(by).await {
        // The listing stands; the broker forgets the consumer by itself.
        tracing::debug!(%unknown, "pass_consumer_left_to_its_timeout");
    }
}

/// The changes of a watched [`NatsBucket`], from the consumer that served the listing.
pub struct NatsChanges {
    bucket: NatsBucket,
    pass: Pass,
    /// The listing's revisions: the consumer may still have to deliver what was read from the leader.
    known: HashMap<Key, u64>,
    /// How far the stream had come when its leader named the keys.
    index_seq: u64,
}

impl Changes for NatsChanges {
    async fn next(&mut self) -> Result<(Key, Version), Unknown> {
        loop {
            let by = self.bucket.env().now() + A_DAY;
            let delivery = self.pass.next(by).await.map_err(|u| u.during("watch", &*self.bucket.name))?;
            let (name, version) = self.bucket.version(delivery.record);
            let Some(key) = name.and_then(|name| Key::parse(&name).ok()) else { continue };
            if is_news(version.revision, self.known.get(&key).copied(), self.index_seq) {
                return Ok((key, version));
            }
        }
    }
}
