//! The brokers a run asks: an embedded cluster of its own, or a NATS that somebody else runs.

use std::path::PathBuf;

use coordproto::api::requests::Storage;
use engine::broker::{self, Access, BrokerError, Cluster, Member, Settings, SyncInterval, Tls};
use engine::env::{Env, Mono};
use engine::jetstream::{ConnectError, Jetstream, Options};
use engine::store::OpenError;
use engine::store::nats::Nats;

use crate::environment::Store as Described;
use crate::exit::Exit;
use crate::floor::LeanError;
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
    /// A bare connection failed.
    #[error(transparent)]
    Floor(#[from] LeanError),
    /// Bare requests have no median.
    #[error(
        "bare {request} requests were answered yes less than twice within {within:?}: nothing to hold operations against"
    )]
    NoFloor {
        /// Which.
        request: &'static str,
        /// How long they were made.
        within: std::time::Duration,
    },
    /// A peer that is not this layer cannot be reached.
    #[cfg(feature = "peers")]
    #[error("{peer}: {reason}")]
    Peer {
        /// Which.
        peer: &'static str,
        /// In its own words.
        reason: String,
    },
    /// The brokers' own account of themselves cannot be reached.
    #[error("the brokers' system account cannot be reached: {0}")]
    System(String),
    /// They are somebody else's.
    #[error("a soak looks into the brokers, and takes those that it starts itself")]
    NotOurs,
    /// An address makes no sense.
    #[error(transparent)]
    BadArgument(#[from] coordproto::answer::BadArgument),
}

impl Unavailable {
    /// The exit code that says so: what makes no sense and what cannot be read is the caller's to put right.
    pub fn exit(&self) -> Exit {
        match self {
            Unavailable::BadArgument(_)
            | Unavailable::NotOurs
            | Unavailable::Access(_)
            | Unavailable::Connect(ConnectError::BadUrl { .. })
            | Unavailable::Open(OpenError::BadArgument(_))
            | Unavailable::Broker(BrokerError::Settings(_)) => Exit::Usage,
            #[cfg(feature = "peers")]
            Unavailable::Peer { .. } => Exit::Unavailable,
            Unavailable::Broker(_)
            | Unavailable::Connect(_)
            | Unavailable::Open(_)
            | Unavailable::Floor(_)
            | Unavailable::NoFloor { .. }
            | Unavailable::System(_) => Exit::Unavailable,
        }
    }
}

/// The brokers of a run.
pub struct Target {
    env: Env,
    access: Access,
    embedded: Option<Embedded>,
}

struct Embedded {
    cluster: Cluster,
    sync: SyncInterval,
}

impl Target {
    /// Starts or reaches the brokers.
    ///
    /// # Errors
    /// When they do not serve.
    pub async fn new(asked: &Asked, env: &Env) -> Result<Target, Unavailable> {
        match asked {
            Asked::Embedded(members) => {
                let settings = Settings::new(*members);
                let sync = settings.sync;
                let cluster = Cluster::start(settings, env.clone()).await?;
                let (access, embedded) = (cluster.access().clone(), Some(Embedded { cluster, sync }));
                Ok(Target { env: env.clone(), access, embedded })
            }
            Asked::External { urls, credentials, tls } => {
                let access = Access::external(urls, credentials.clone(), tls.clone())?;
                tracing::info!(urls = access.urls().join(","), "external_broker_connecting");
                Ok(Target { env: env.clone(), access, embedded: None })
            }
        }
    }

    /// A connection of a client's own to the brokers, and the store over it. Clients are told apart by their numbers.
    ///
    /// # Errors
    /// When no broker can be reached.
    pub async fn store(&self, client: usize) -> Result<Nats, Unavailable> {
        let base = self.access.connect_options().await?;
        // Its name in the broker's monitoring.
        let options = Options::named(format!("loadgen-n{client:03}"));
        let connect = Jetstream::connect(self.env.clone(), self.access.urls(), base, options);
        let jetstream = Box::pin(connect).await?;
        Ok(Nats::new(jetstream, Storage::File))
    }

    /// How it is reached.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// How many copies its buckets should have: as many as its own members up to three; of an external NATS, three in a
    /// cluster and one outside.
    pub fn replicas(&self, store: &Nats) -> u8 {
        let clustered = match &self.embedded {
            Some(Embedded { cluster, .. }) => cluster.members().len() > 1,
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
            sync_interval: self.embedded.as_ref().map(|embedded| embedded.sync.to_string()),
        }
    }

    /// Tells a sampler which processes the embedded members are.
    pub fn sampled_by(&self, sampler: &Sampler) {
        for member in self.embedded.iter().flat_map(|embedded| embedded.cluster.members()) {
            sampler.set_pid(member.name(), member.pid());
        }
    }

    /// The members that ended although nobody here asked for it, for a report whose time axis begins at `origin`.
    pub fn faults(&self, origin: Mono) -> Vec<Fault> {
        let exits = self.embedded.as_ref().map(|embedded| embedded.cluster.exits()).unwrap_or_default();
        exits
            .into_iter()
            .filter(|exit| !exit.expected)
            .map(|exit| Fault {
                t_ns: nanos(exit.at.since(origin)),
                kind: "exit".into(),
                server: exit.member.to_string(),
                detail: detail(&exit.status),
            })
            .collect()
    }

    /// The embedded members, and the access to the account that they tell about themselves in; none of an external NATS.
    pub fn members(&self) -> Option<(&[Member], &Access)> {
        self.embedded.as_ref().map(|Embedded { cluster, .. }| (cluster.members(), cluster.system_access()))
    }

    /// Stops the embedded members; an external NATS is left as it is.
    ///
    /// # Errors
    /// When a member does not end.
    pub async fn stop(self) -> Result<(), Unavailable> {
        match self.embedded {
            Some(Embedded { cluster, .. }) => Ok(cluster.stop().await?),
            None => Ok(()),
        }
    }

    /// Whether the brokers end with the run.
    pub fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }
}

/// How a member ended, to be read on from "n2 was".
fn detail(status: &str) -> String {
    match status.strip_prefix("signal: ") {
        Some(signal) => format!("killed by signal {signal}"),
        None => format!("gone ({status})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_reads_on() {
        assert_eq!(detail("signal: 9 (SIGKILL)"), "killed by signal 9 (SIGKILL)");
        assert_eq!(detail("exit status: 1"), "gone (exit status: 1)");
    }
}
