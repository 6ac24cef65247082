//! The store on NATS JetStream: a bucket is a stream `KV_<bucket>` that keeps one revision per key.
//!
//! Every read of one key is the stream leader's. A pass is an ephemeral consumer's, and a copy is a batched direct get, which
//! any member answers. A bucket that exists is adopted as it is, and only its copies are judged.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Subject;
use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::api;
use coordproto::api::requests::{Storage, StreamConfig};
use coordproto::key::{Filter, Key};
use coordproto::listing::{Drained, Index, Standing, Version, is_whole};
use futures_util::future::join;
use tokio::sync::Semaphore;

use super::listing::END_WITHIN;
use super::{
    Bucket, BucketSpec, Copy, Delivery, Drains, Expect, Held, OpenError, Pass, Put, Race, Store, Values, Write,
    check_value,
};
use crate::env::{Env, Mono};
use crate::jetstream::{self, Jetstream, Many, Record, Tombstone};

/// How long opening a bucket may take; a fresh cluster elects first.
const OPEN_WITHIN: Duration = Duration::from_secs(30);

/// How many streams are made at once, by all handles to a store.
const MAKING_AT_ONCE: usize = 4;

/// A key that nobody writes: no name escapes to it.
const PROBE: &str = "=probe";

/// A store over one connection.
#[derive(Clone)]
pub struct Nats {
    jetstream: Jetstream,
    storage: Storage,
    /// Taken for the making of a stream: each is a decision of the members' meta leader and then an election of its own.
    making: Arc<Semaphore>,
}

impl Nats {
    /// The store over `jetstream`; buckets that it creates are kept on `storage`.
    pub fn new(jetstream: Jetstream, storage: Storage) -> Nats {
        Nats { jetstream, storage, making: Arc::new(Semaphore::new(MAKING_AT_ONCE)) }
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
                // Whether it stands or differs then, it is there to be looked at.
                Ok(None) => self.make(spec, until).await.err(),
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

    /// Makes the stream of a bucket, when it is its turn.
    async fn make(&self, spec: &BucketSpec, until: Mono) -> Result<(), Unknown> {
        let late = |_| Unknown::settled("create stream", &*spec.name, Cause::Timeout);
        let turn = self.jetstream.env().within(until, self.making.acquire()).await.map_err(late)?;
        let _turn = turn.expect("nobody closes it");
        let age = spec.age.unwrap_or_default();
        let config = StreamConfig::bucket(&spec.name, age, self.storage, usize::from(spec.replicas));
        self.jetstream.create_stream(&config, self.jetstream.deadline().min(until)).await.map(drop)
    }

    /// Whether a write from here reaches the leader. A member answers for a stream that was just made before the others have
    /// heard that it takes the subjects in, and until they have, a write through one of them reaches nobody. This one
    /// expects a revision of a key that has none, so the leader refuses it and nothing is written.
    async fn reaches(&self, bucket: &str, by: Mono) -> Result<(), Unknown> {
        let subject = format!("$KV.{bucket}.{PROBE}");
        match self.jetstream.put(&subject, jetstream::Write::at(1), Bytes::new(), by).await {
            Ok(_refused) => Ok(()),
            Err(Error::Unknown(unknown)) => Err(unknown),
            // Its headers alone are more than the broker takes, and so are those of every write.
            Err(Error::BadArgument(error)) => {
                Err(Unknown::settled("open", bucket, Cause::TooLarge(error.to_string().into())))
            }
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
        let age = |config: &StreamConfig| (!config.max_age.is_zero()).then_some(config.max_age);
        if let Some(raised) = spec.judge(config.replicas, age(&config))? {
            tracing::info!(bucket = spec.name, from = ?config.max_age, to = ?raised, "bucket_age_raised");
            config.max_age = raised;
            let by = self.jetstream.deadline();
            self.jetstream.update_stream(&config, by).await.map_err(|u| u.during("raise age", &*spec.name))?;
            config = self.stand(spec).await?;
        }
        Ok(NatsBucket {
            jetstream: self.jetstream.clone(),
            name: spec.name.as_str().into(),
            stream: stream_of(&spec.name).into(),
            prefix: format!("$KV.{}.", spec.name).into(),
            age: age(&config),
            one_revision: config.max_msgs_per_subject == 1,
            drains: Arc::default(),
        })
    }
}

/// A bucket of a [`Nats`] store.
#[derive(Clone)]
pub struct NatsBucket {
    jetstream: Jetstream,
    name: Arc<str>,
    stream: Arc<str>,
    /// What stands before a key in its subject.
    prefix: Arc<str>,
    age: Option<Duration>,
    /// Whether it keeps one revision of each key, as it was found.
    one_revision: bool,
    drains: Arc<Drains>,
}

impl NatsBucket {
    fn subject(&self, key: &str) -> Subject {
        self.jetstream.joined(&self.prefix, key)
    }

    fn unknown(&self, op: &'static str, cause: Cause) -> Unknown {
        Unknown::settled(op, &*self.name, cause)
    }

    /// A stream that was opened and is not found: deleted, or this answer is from before it.
    fn gone(&self, op: &'static str) -> Unknown {
        self.unknown(op, Cause::Unavailable { code: 404, err_code: 10059 })
    }

    /// The key under a subject; none for one that nobody who speaks of these records writes.
    fn key(&self, subject: &str) -> Option<Key> {
        Key::parse(subject.strip_prefix(&*self.prefix)?).ok()
    }

    /// The same of a record that is read with all others, the barrier's among them.
    fn version(&self, record: Record) -> Option<(Key, Version)> {
        let barrier = record.subject.strip_prefix(&*self.prefix) == Some(Key::barrier().as_str());
        let key = if barrier { Key::barrier() } else { self.key(&record.subject)? };
        let value = record.marker.is_none().then_some(record.value);
        Some((key, Version { revision: record.revision, written: record.time, value }))
    }
}

impl Bucket for NatsBucket {
    type Pass = NatsPass;

    fn name(&self) -> &str {
        &self.name
    }

    fn age(&self) -> Option<Duration> {
        self.age
    }

    fn value_bytes_max(&self) -> usize {
        super::value_bytes_max(self.jetstream.max_payload())
    }

    fn env(&self) -> &Env {
        self.jetstream.env()
    }

    fn deadline(&self) -> Mono {
        self.jetstream.deadline()
    }

    async fn read(&self, key: &Key, by: Mono) -> Result<Option<Version>, Unknown> {
        let stored = self.jetstream.last(&self.stream, &self.subject(key.as_str()), by).await?;
        Ok(stored.map(|stored| Version {
            revision: stored.revision,
            written: stored.time,
            value: stored.marker.is_none().then_some(stored.value),
        }))
    }

    async fn put(&self, key: &Key, write: Write, expect: Expect) -> Result<Put, Error> {
        check_value(self, key, &write)?;
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

    async fn index(&self, filter: &Filter, by: Mono) -> Result<Index, Unknown> {
        const OP: &str = "index";
        let info = self.jetstream.info(&self.stream, Some(&self.subject(filter.as_str())), by).await?;
        let info = info.ok_or_else(|| self.gone(OP))?;
        is_whole(info.total, info.subjects.len()).map_err(|cause| self.unknown(OP, cause))?;
        let stream = Standing { clock: info.ts, last_seq: info.last_seq, records: info.messages };
        Ok(Index::of_subjects(info.subjects, &self.prefix, stream))
    }

    async fn pass(&self, filter: &Filter, values: Values, by: Mono) -> Result<NatsPass, Unknown> {
        let pass = self.jetstream.pass(&self.stream, &self.subject(filter.as_str()), values, by).await?;
        Ok(NatsPass { bucket: self.clone(), pass })
    }

    async fn copy(&self, names: &[&str], by: Mono) -> Result<Copy, Unknown> {
        let subjects: Vec<Subject> = names.iter().map(|name| self.subject(name)).collect();
        match self.jetstream.last_many(&self.stream, &subjects, by).await? {
            Many::TooMuch => Ok(Copy::TooMuch),
            Many::Snapshot(snapshot) => {
                let held = snapshot.records.into_iter().filter_map(|record| self.version(record));
                Ok(Copy::Whole(Held { entries: held.collect(), last_seq: snapshot.last_seq }))
            }
        }
    }

    async fn drain(&self, by: Mono) -> Result<Drained, Unknown> {
        if !self.one_revision {
            // Its consumer of last revisions goes by a list made at the start, and ends at the first of them that is gone.
            return Err(self.unknown("drain", Cause::Garbage("a bucket with several revisions of a key".into())));
        }
        let (mut entries, mut others) = (Vec::new(), 0);
        let take = |record| match self.version(record) {
            Some(entry) => entries.push(entry),
            None => others += 1,
        };
        let drained = self.jetstream.drain(&self.stream, &self.subject(">"), by, take).await?;
        let last = drained.last();
        let ended = drained.end(by.min(self.env().now() + END_WITHIN));
        let (after, ended) = join(self.standing(by), ended).await;
        if let Err(unknown) = ended {
            // What it delivered stands; the broker forgets the consumer by itself.
            tracing::debug!(%unknown, "pass_consumer_left_to_its_timeout");
        }
        Ok(Drained { entries, others, last, after: after? })
    }

    async fn standing(&self, by: Mono) -> Result<Standing, Unknown> {
        let info = self.jetstream.info(&self.stream, None, by).await?;
        let info = info.ok_or_else(|| self.gone("info"))?;
        Ok(Standing { clock: info.ts, last_seq: info.last_seq, records: info.messages })
    }

    fn drains(&self) -> &Drains {
        &self.drains
    }
}

/// A pass over a [`NatsBucket`].
pub struct NatsPass {
    bucket: NatsBucket,
    pass: jetstream::Pass,
}

impl Pass for NatsPass {
    fn to_deliver(&self) -> u64 {
        self.pass.to_deliver()
    }

    async fn next(&mut self, by: Mono) -> Result<Delivery, Unknown> {
        let jetstream::Delivery { record, pending } = self.pass.next(by).await?;
        let value = record.marker.is_none().then_some(record.value);
        let version = Version { revision: record.revision, written: record.time, value };
        Ok(Delivery { key: self.bucket.key(&record.subject), version, pending })
    }

    async fn end(self, by: Mono) -> Result<(), Unknown> {
        self.pass.end(by).await
    }
}
