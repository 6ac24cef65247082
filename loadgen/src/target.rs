//! The brokers a run asks: an embedded cluster of its own, or a NATS that somebody else runs.

use std::path::PathBuf;

use coordproto::api::requests::Storage;
use engine::broker::{self, Access, BrokerError, Cluster, Settings, Tls};
use engine::env::{Env, Mono};
use engine::jetstream::{ConnectError, Jetstream, Options};
use engine::store::OpenError;
use engine::store::nats::Nats;

use crate::environment::Store as Described;
use crate::histogram::nanos;
use crate::report::Fault;
use crate::sampler::Sampler;

/// Which brokers are asked for.
#[derive(Clone, Debug)]
pub enum Asked {
    /// An embedded cluster of that many.
    Embedded(u8),
    /// An external NATS.
    External {
        /// Its addresses, separated by commas.
        urls: String,
        /// A credentials file.
        credentials: Option<PathBuf>,
        /// Certificates.
        tls: Tls,
    },
}

/// Why there is no store to ask.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The embedded brokers did not start.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Credentials or certificates cannot be read.
    #[error(transparent)]
    Access(#[from] broker::AccessError),
    /// A bucket cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An address makes no sense.
    #[error(transparent)]
    BadArgument(#[from] coordproto::answer::BadArgument),
}

/// The brokers of a run.
pub struct Target {
    env: Env,
    access: Access,
    cluster: Option<Cluster>,
}

impl Target {
    /// Starts or reaches the brokers.
    ///
    /// # Errors
    /// When they do not serve.
    pub async fn new(asked: &Asked, env: &Env) -> Result<Target, Unavailable> {
        match asked {
            Asked::Embedded(members) => {
                let cluster = Cluster::start(Settings::new(*members), env.clone()).await?;
                Ok(Target { env: env.clone(), access: cluster.access().clone(), cluster: Some(cluster) })
            }
            Asked::External { urls, credentials, tls } => {
                let access = Access::external(urls, credentials.clone(), tls.clone())?;
                Ok(Target { env: env.clone(), access, cluster: None })
            }
        }
    }

    /// A connection of its own to the brokers, and the store over it.
    ///
    /// # Errors
    /// When no broker can be reached.
    pub async fn store(&self, name: &str) -> Result<Nats, Unavailable> {
        let base = self.access.connect_options().await?;
        let jetstream = Jetstream::connect(self.env.clone(), self.access.urls(), base, Options::named(name)).await?;
        Ok(Nats::new(jetstream, Storage::File))
    }

    /// How many copies its buckets should have: as many as its own members up to three; of an external NATS, three in a
    /// cluster and one outside.
    pub fn replicas(&self, store: &Nats) -> u8 {
        let clustered = match &self.cluster {
            Some(cluster) => cluster.members().len() > 1,
            None => store.jetstream().server().cluster.is_some(),
        };
        if clustered { 3 } else { 1 }
    }

    /// What a report says of the brokers.
    pub fn described(&self, store: &Nats) -> Described {
        Described {
            nats_server_version: Some(store.jetstream().server().version),
            replicas: Some(usize::from(self.replicas(store))),
            storage: Some("file".into()),
            sync_interval: self.cluster.as_ref().map(|_| "always".into()),
        }
    }

    /// Tells a sampler which processes the embedded members are.
    pub fn sampled_by(&self, sampler: &Sampler) {
        for member in self.cluster.iter().flat_map(Cluster::members) {
            sampler.set_pid(member.name(), member.pid());
        }
    }

    /// What happened to the members, for a report whose time axis begins at `origin`.
    pub fn faults(&self, origin: Mono) -> Vec<Fault> {
        let exits = self.cluster.as_ref().map(Cluster::exits).unwrap_or_default();
        exits
            .into_iter()
            .filter(|exit| !exit.expected)
            .map(|exit| Fault {
                t_ns: nanos(exit.at.since(origin)),
                kind: "exit".into(),
                server: exit.member.to_string(),
                detail: exit.status.to_string(),
            })
            .collect()
    }

    /// Stops the embedded members; an external NATS is left as it is.
    ///
    /// # Errors
    /// When a member does not end.
    pub async fn stop(self) -> Result<(), Unavailable> {
        match self.cluster {
            Some(cluster) => Ok(cluster.stop().await?),
            None => Ok(()),
        }
    }

    /// Whether the brokers end with the run.
    pub fn is_embedded(&self) -> bool {
        self.cluster.is_some()
    }
}
