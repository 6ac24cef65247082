//! What a case stands on: a store, a prefix of its own, and a clock.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use coordproto::answer::Unknown;
use coordproto::key::{Class, Resource};
use coordproto::slot::Retention;
use engine::env::Env;
use engine::lease::{Claim, Config, Lease, Leases, Refusal, Terms};
use engine::slots::Settings;
use engine::store::listing::LIST_WITHIN;
use engine::store::{Bucket, Certified, Listing, Store, Watch};
use futures_util::FutureExt;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// How long a condition may take to come true before a test fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a case is given.
pub struct Fixture<S> {
    /// The clock and the randomness.
    pub env: Env,
    /// The store under test.
    pub store: S,
    /// What the names of this case's buckets begin with.
    pub prefix: String,
    /// How many copies the store keeps.
    pub replicas: u8,
    /// Whether the clock leaps to the next instant that anybody waits for, so that what is waited for is over at exactly that
    /// instant. Brokers take the time that they take.
    pub leaps: bool,
}

impl<S: Store> Fixture<S> {
    /// Whether a member may be a moment behind what was just written. A listing by the leader's word has every name, and may
    /// have such a member's values.
    pub fn lags(&self) -> bool {
        !self.leaps && self.replicas > 1
    }

    /// What a listing answers: the first answer, or where a member may be behind, the first that is `good`; and the last when
    /// none is.
    pub async fn listed<T, F>(&self, mut list: impl FnMut() -> F, good: impl Fn(&T) -> bool) -> T
    where
        F: Future<Output = T>,
    {
        let until = self.env.now() + PATIENCE;
        loop {
            let told = list().await;
            if good(&told) || !self.lags() || self.env.now() >= until {
                return told;
            }
            self.env.sleep(Duration::from_millis(20)).await;
        }
    }

    /// Expects a listing to be this one: at once, or where a member may be behind, once none is.
    pub async fn lists<T, W, F>(&self, want: W, list: impl FnMut() -> F)
    where
        T: Debug + PartialEq<W>,
        W: Debug,
        F: Future<Output = T>,
    {
        let told = self.listed(list, |told| *told == want).await;
        assert_eq!(told, want);
    }

    /// The configuration of this case's leases.
    pub fn config(&self) -> Config {
        Config { prefix: self.prefix.clone(), replicas: self.replicas, ..Config::default() }
    }

    /// The settings of this case's other records.
    pub fn settings(&self) -> Settings {
        Settings { prefix: self.prefix.clone(), replicas: self.replicas, retention: Retention::default() }
    }

    /// Leases at the shipped settings.
    pub async fn leases(&self) -> Leases<S> {
        self.leases_with(self.config()).await
    }

    /// Leases whose seats end within `ttl`.
    pub async fn leases_of(&self, lease_ttl: Duration) -> Leases<S> {
        self.leases_with(Config { lease_ttl, ..self.config() }).await
    }

    /// Leases at another protocol.
    pub async fn leases_at(&self, protocol: u32) -> Leases<S> {
        self.leases_with(Config { protocol, ..self.config() }).await
    }

    /// Leases at settings of the case's own.
    pub async fn leases_with(&self, config: Config) -> Leases<S> {
        self.leases_on(&self.store, config).await
    }

    /// Leases over another store, a decorated one for instance.
    pub async fn leases_on<T: Store>(&self, store: &T, config: Config) -> Leases<T> {
        Leases::open(self.env.clone(), store, &config).await.expect("the buckets open")
    }
}

/// Waits until `probe` answers something, and fails with what was waited for when it does not.
pub async fn eventually<T, F>(env: &Env, what: &str, mut probe: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let until = env.now() + PATIENCE;
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(env.now() < until, "not within {PATIENCE:?}: {what}");
        env.sleep(Duration::from_millis(20)).await;
    }
}

/// Does something between two steps of whoever is being tested, whatever runs it: what comes first does not depend on the
/// machine. The twin answers at once.
pub(crate) fn before_it_goes_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = Handle::current();
    match runtime.runtime_flavor() {
        RuntimeFlavor::CurrentThread => work.now_or_never().expect("answered at once"),
        _ => block_in_place(|| runtime.block_on(work)),
    }
}

/// A resource by a name that is known to be good.
pub fn resource(name: &str) -> Resource {
    Resource::parse(name).expect("a good name")
}

/// A class by a name that is known to be good.
pub fn class(name: &str) -> Class {
    Class::parse(name).expect("a good class")
}

/// A bucket's keys of a class, certified by the leader.
///
/// # Errors
/// Unknown.
pub async fn list<B: Bucket>(bucket: &B, class_name: &str) -> Result<Listing, Unknown> {
    bucket.list(&class(class_name).filter(), &Certified::Leader, bucket.env().now() + LIST_WITHIN).await
}

/// A watch of a bucket's keys of a class.
///
/// # Errors
/// Unknown.
pub async fn watch<B: Bucket>(bucket: &B, class_name: &str) -> Result<Watch<B::Pass>, Unknown> {
    bucket.watch(&class(class_name).filter(), bucket.env().now() + LIST_WITHIN).await
}

/// Terms at the TTL in force.
pub fn terms<S: Store>(leases: &Leases<S>, name: &str, owner: &str) -> Terms {
    Terms::new(resource(name), owner, leases.lease_ttl())
}

/// Claims, and expects to be granted.
pub async fn held<S: Store>(leases: &Leases<S>, terms: &Terms) -> Lease {
    match leases.claim(terms).await.expect("a definite answer") {
        Claim::Held(lease) => lease,
        Claim::Refused(refusal) => panic!("{} for {}: refused: {refusal}", terms.resource, terms.owner),
    }
}

/// Claims, and expects to be refused.
pub async fn refused<S: Store>(leases: &Leases<S>, terms: &Terms) -> Refusal {
    match leases.claim(terms).await.expect("a definite answer") {
        Claim::Held(lease) => panic!("{} for {}: held at epoch {}", terms.resource, terms.owner, lease.epoch()),
        Claim::Refused(refusal) => refusal,
    }
}
