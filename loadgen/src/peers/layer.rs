//! This layer: leases, certified listings, budgets.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use coordproto::key::{Class, Key, Resource};
use coordproto::listing::Version;
use coordproto::window::{Windows, Zone};
use engine::env::Env;
use engine::lease::{Claim, Config, Lease, Leases, Renew, Terms};
use engine::slots::Settings;
use engine::slots::budgets::{Budgets, Caps};
use engine::store::listing::LIST_WITHIN;
use engine::store::nats::{Nats, NatsBucket};
use engine::store::{Barrier, Bucket, BucketSpec, Certified, Expect, Put, Store, Write};
use jiff::Timestamp;

use super::listed::Listed;
use super::peer::{Charged, Failed, Peer, Renewed};
use super::{LISTED, VALUE, failed};
use crate::target::Unavailable;

/// The layer over a connection of each node.
#[derive(Clone)]
pub(super) struct Layer {
    leases: Vec<Leases<Nats>>,
    /// By class.
    listed: BTreeMap<&'static str, NatsBucket>,
    budgets: Vec<Budgets<Nats>>,
    windows: Windows,
    now: Timestamp,
}

impl Layer {
    /// Opens what it needs over these connections; every charging client has counters of its own, as a process has.
    pub(super) async fn open(
        env: &Env,
        nodes: &[Nats],
        (prefix, replicas): (&str, u8),
        (ttl, clients): (Duration, usize),
    ) -> Result<Layer, Unavailable> {
        let config = Config { prefix: prefix.to_owned(), lease_ttl: ttl, replicas, ..Config::default() };
        let settings = Settings { prefix: prefix.to_owned(), replicas, retention: Default::default() };
        let mut leases = Vec::new();
        for node in nodes {
            leases.push(Leases::open(env.clone(), node, &config).await?);
        }
        let mut budgets = Vec::new();
        for node in nodes.iter().cycle().take(clients) {
            budgets.push(Budgets::open(node, &settings).await?);
        }
        let mut listed = BTreeMap::new();
        for class in LISTED {
            let spec = BucketSpec { name: format!("{prefix}_{class}"), age: None, raise_age: false, replicas };
            listed.insert(class, nodes[0].open(&spec).await?);
        }
        let now = env.wall();
        let zone = Zone::parse("timezone", "UTC")?;
        let windows = Windows::at(now, &zone)?;
        Ok(Layer { leases, listed, budgets, windows, now })
    }

    /// The buckets that it makes.
    pub(super) fn buckets(prefix: &str) -> Vec<String> {
        let slots = coordproto::slot::SLOTS.iter().map(|slot| slot.name);
        slots.chain(LISTED).map(|name| format!("{prefix}_{name}")).collect()
    }

    /// A write to a class's bucket for a listing to stand on, as a heartbeat is one.
    pub(super) async fn barrier(&self, class: &str) -> Result<Barrier, Failed> {
        let bucket = &self.listed[class];
        bucket.barrier(bucket.deadline()).await.map_err(failed)
    }

    /// The keys of a class, certified in one way or the other.
    pub(super) async fn certified(&self, class: &str, certified: &Certified) -> Result<Vec<Listed>, Failed> {
        let bucket = &self.listed[class];
        let by = bucket.env().now() + LIST_WITHIN;
        let listing = bucket.list(&Class::node().filter(), certified, by).await.map_err(failed)?;
        let entries = listing.entries.into_iter();
        let named =
            |(key, version): (Key, Version)| Some(Listed { key: key.segments().nth(1)?, revision: version.revision });
        Ok(entries.filter_map(named).collect())
    }
}

fn owner(node: usize) -> String {
    format!("n{node}:0")
}

fn resource(seat: &str) -> Resource {
    Resource::parse(&format!("seat:{seat}")).expect("a seat here is a letter and a number")
}

fn key(key: &str) -> Key {
    Key::parse(&format!("node.{key}")).expect("a key here is a letter and a number")
}

impl Peer for Layer {
    type Held = Lease;

    async fn claim(&self, node: usize, seat: &str) -> Result<Option<Lease>, Failed> {
        let leases = &self.leases[node];
        match leases.claim(&Terms::new(resource(seat), owner(node), leases.lease_ttl())).await.map_err(failed)? {
            Claim::Held(lease) => Ok(Some(lease)),
            Claim::Refused(_) => Ok(None),
        }
    }

    async fn is_mine(&self, node: usize, seat: &str) -> Result<bool, Failed> {
        let found = self.leases[node].get(&resource(seat)).await.map_err(failed)?;
        Ok(found.is_some_and(|view| view.owner == owner(node)))
    }

    /// A heartbeat renews whatever a node holds in one burst.
    fn renews_apart(&self) -> bool {
        false
    }

    async fn renew(&self, node: usize, held: &mut [Lease]) -> Renewed {
        let renewals = self.leases[node].renew_all(held).await.into_iter();
        let kept = renewals.map(|renewal| match renewal.answer {
            Ok(Renew::Extended) => Some(true),
            Ok(Renew::Lost) => Some(false),
            Err(_) => None,
        });
        kept.collect()
    }

    async fn write(&self, class: &str, name: &str) -> Result<u64, Failed> {
        let value = Write::Value(Bytes::from_static(VALUE));
        match self.listed[class].put(&key(name), value, Expect::Any).await.map_err(failed)? {
            Put::Stored(revision) => Ok(revision),
            Put::Lost(race) => Err(format!("a write that expects nothing has lost a race: {race:?}")),
        }
    }

    async fn list(&self, class: &str) -> Result<Vec<Listed>, Failed> {
        self.certified(class, &Certified::Leader).await
    }

    async fn charge(&self, client: usize) -> Result<Charged, Failed> {
        let (seat, uncapped) = (format!("c{client}"), Caps::default());
        let charged = self.budgets[client].charge(&seat, 1, &self.windows, &uncapped, self.now).await;
        // An unknown is none of the two answers, also where the layer gave up.
        charged.map(|_| Charged::Counted).map_err(failed)
    }

    async fn charged(&self) -> Result<u64, Failed> {
        Ok(self.budgets[0].used("c0", &self.windows).await.map_err(failed)?.org.day.spent)
    }
}
