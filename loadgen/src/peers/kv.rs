//! The key-value store of `async_nats`, as its documentation shows it: `create` to claim, `entry` and then `update` at its
//! revision to renew and to charge, `keys` and `get` to list, `get` to read. Where a value is listed, `entry` stands for `get`,
//! which asks for the same and drops the revision.
//!
//! Who knows better renews without reading first, since the revision is known from the write before, and a node's seats at once.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::kv::{Config, CreateErrorKind, Operation, Store, UpdateErrorKind};
use async_nats::jetstream::stream::StorageType;
use bytes::Bytes;
use engine::broker::Access;
use futures_util::future::join_all;
use futures_util::stream::TryStreamExt;

use super::listed::Listed;
use super::peer::{Charged, Failed, Peer, Renewed};
use super::{ATTEMPTS, LISTED, VALUE, failed};
use crate::target::Unavailable;

/// How many values a listing reads at once.
const READS_AT_ONCE: usize = 100;

/// The buckets of a node.
#[derive(Clone)]
struct Node {
    seats: Store,
    budgets: Store,
    /// In the order of [`LISTED`].
    listed: Vec<Store>,
}

/// The store over a connection of each node.
#[derive(Clone)]
pub(super) struct Kv(Vec<Node>);

impl Kv {
    /// Connects every node, and makes the buckets.
    pub(super) async fn open(
        access: &Access,
        nodes: usize,
        (prefix, replicas): (&str, u8),
        ttl: Duration,
    ) -> Result<Kv, Unavailable> {
        let mut all = Vec::new();
        for _ in 0..nodes {
            let client = access.connect_options().await?.connect(access.urls()).await.map_err(Kv::unavailable)?;
            let context = jetstream::new(client);
            let bucket = async |name: &str, max_age: Duration| {
                let (bucket, num_replicas) = (format!("{prefix}_kv_{name}"), usize::from(replicas));
                let config = Config {
                    bucket,
                    history: 1,
                    max_age,
                    num_replicas,
                    storage: StorageType::File,
                    ..Config::default()
                };
                context.create_or_update_key_value(config).await.map_err(Kv::unavailable)
            };
            let mut listed = Vec::new();
            for class in LISTED {
                listed.push(bucket(class, Duration::ZERO).await?);
            }
            let (seats, budgets) = (bucket("seats", ttl).await?, bucket("budgets", Duration::ZERO).await?);
            all.push(Node { seats, budgets, listed });
        }
        Ok(Kv(all))
    }

    fn unavailable(error: impl std::fmt::Display) -> Unavailable {
        Unavailable::Peer { peer: "kv", reason: error.to_string() }
    }

    /// The buckets that it makes.
    pub(super) fn buckets(prefix: &str) -> Vec<String> {
        LISTED.into_iter().chain(["seats", "budgets"]).map(|name| format!("{prefix}_kv_{name}")).collect()
    }

    fn of_class(&self, class: &str) -> &Store {
        let index = LISTED.iter().position(|listed| *listed == class).expect("there is a bucket of each class");
        &self.0[0].listed[index]
    }

    /// Adds one to a record, trying again at once when another was faster.
    async fn add(&self, client: usize, key: &str) -> Result<Charged, Failed> {
        let store = &self.0[client % self.0.len()].budgets;
        for _ in 0..ATTEMPTS {
            let answer = match store.entry(key).await.map_err(failed)? {
                None => match store.create(key, Bytes::from_static(b"1")).await {
                    Ok(_) => Ok(true),
                    Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(false),
                    Err(error) => Err(failed(error)),
                },
                Some(entry) => {
                    let count = count(&entry.value)?;
                    match store.update(key, (count + 1).to_string().into(), entry.revision).await {
                        Ok(_) => Ok(true),
                        Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(false),
                        // The other code of a lost race comes as any other error: refused for certain, so it may try again.
                        Err(error) if failed(&error).contains("10164") => Ok(false),
                        Err(error) => Err(failed(error)),
                    }
                }
            };
            if answer? {
                return Ok(Charged::Counted);
            }
        }
        Ok(Charged::GaveUp)
    }
}

fn count(value: &[u8]) -> Result<u64, Failed> {
    std::str::from_utf8(value).map_err(failed)?.parse().map_err(failed)
}

/// A seat and the revision at which its holder holds it.
pub(super) struct Held {
    seat: String,
    revision: u64,
}

/// Writes a seat over its revision; answers whether it is still its holder's, or nothing where that is not known.
async fn update(seats: &Store, node: usize, held: &mut Held) -> Option<bool> {
    match seats.update(&held.seat, node.to_string().into(), held.revision).await {
        Ok(revision) => {
            held.revision = revision;
            Some(true)
        }
        Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Some(false),
        Err(_) => None,
    }
}

impl Peer for Kv {
    type Held = Held;

    async fn claim(&self, node: usize, seat: &str) -> Result<Option<Held>, Failed> {
        match self.0[node].seats.create(seat, node.to_string().into()).await {
            Ok(revision) => Ok(Some(Held { seat: seat.to_owned(), revision })),
            Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    async fn is_mine(&self, node: usize, seat: &str) -> Result<bool, Failed> {
        let value = self.0[node].seats.get(seat).await.map_err(failed)?;
        Ok(value.is_some_and(|value| value == node.to_string()))
    }

    fn renews_apart(&self) -> bool {
        true
    }

    async fn renew(&self, node: usize, held: &mut [Held]) -> Renewed {
        let seats = &self.0[node].seats;
        join_all(held.iter_mut().map(|held| update(seats, node, held))).await.into_iter().collect()
    }

    async fn renew_naturally(&self, node: usize, held: &mut [Held]) -> Renewed {
        let seats = &self.0[node].seats;
        let answers = join_all(held.iter_mut().map(|held| async move {
            let Some(entry) = seats.entry(&held.seat).await.ok()? else { return Some(false) };
            if entry.value != node.to_string() {
                return Some(false);
            }
            held.revision = entry.revision;
            update(seats, node, held).await
        }));
        answers.await.into_iter().collect()
    }

    async fn write(&self, class: &str, key: &str) -> Result<u64, Failed> {
        self.of_class(class).put(key, Bytes::from_static(VALUE)).await.map_err(failed)
    }

    async fn list(&self, class: &str) -> Result<Vec<Listed>, Failed> {
        let store = self.of_class(class);
        let keys = store.keys().await.map_err(failed)?.map_err(failed);
        let read = keys.map_ok(|key| async move {
            let entry = store.entry(&key).await.map_err(failed)?.filter(|entry| entry.operation == Operation::Put);
            Ok(entry.map(|entry| Listed { key, revision: entry.revision }))
        });
        read.try_buffer_unordered(READS_AT_ONCE).try_filter_map(|listed| async { Ok(listed) }).try_collect().await
    }

    async fn charge(&self, client: usize) -> Result<Charged, Failed> {
        match self.add(client, "org").await? {
            Charged::GaveUp => Ok(Charged::GaveUp),
            Charged::Counted => self.add(client, &format!("c{client}")).await,
        }
    }

    async fn charged(&self) -> Result<u64, Failed> {
        self.0[0].budgets.get("org").await.map_err(failed)?.map_or(Ok(0), |value| count(&value))
    }
}
