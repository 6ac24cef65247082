//! The connection: how it is made, kept and watched.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use coordproto::api::verdict::Mark;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::counters::Stats;
use super::desk::{Desk, Link};
use crate::env::{Env, Mono};
use crate::tasks::{self, Task};

/// The longest wait between two attempts to connect.
const RETRY: Duration = Duration::from_millis(250);
/// How often a silent connection is asked for a sign of life. Three unanswered questions end it.
const PING: Duration = Duration::from_secs(1);
/// How long one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(2);

/// What a connection is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The client's name, as the server's monitoring shows it.
    pub name: String,
    /// How long a request may take when its caller has no deadline of its own.
    pub request_timeout: Duration,
    /// How long the first connection may take.
    pub connect_within: Duration,
    /// Most API requests under way at once.
    pub requests_in_flight: usize,
    /// Most publishes under way at once.
    pub publishes_in_flight: usize,
}

impl Options {
    /// The usual ones: 5 s a request, 10 s to connect, 64 API requests and 1,024 publishes at once. All connections of a
    /// server share an API queue of 10,000 entries that is emptied silently when it overflows; 64 each leave room for 100.
    pub fn named(name: impl Into<String>) -> Options {
        Options {
            name: name.into(),
            request_timeout: Duration::from_secs(5),
            connect_within: Duration::from_secs(10),
            requests_in_flight: 64,
            publishes_in_flight: 1024,
        }
    }
}

/// A broker, by its own account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its version.
    pub version: String,
    /// The cluster it belongs to, if any.
    pub cluster: Option<String>,
}

/// There is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// An address cannot be read.
    #[error("connect: invalid broker address {url:?}: {reason}")]
    BadUrl {
        /// The address.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The broker does not let this client in.
    #[error("connect to {urls}: refused: {source}")]
    Refused {
        /// Where.
        urls: String,
        /// The broker's word.
        source: async_nats::ConnectError,
    },
    /// No broker could be reached in time.
    #[error("connect to {urls}: no broker within {within:?}: {reason}")]
    Unreachable {
        /// Where.
        urls: String,
        /// How long was tried.
        within: Duration,
        /// What went wrong last.
        reason: String,
    },
}

/// One connection to the broker. Cheap to clone; the connection ends with its last clone.
#[derive(Clone)]
pub struct Jetstream(Arc<Inner>);

struct Inner {
    env: Env,
    client: Client,
    desk: Arc<Desk>,
    requests: Semaphore,
    publishes: Semaphore,
    request_timeout: Duration,
    /// How far each stream is known to have come.
    marks: Mutex<HashMap<Box<str>, Mark>>,
    _replies: Task<()>,
    _wheel: Task<()>,
}

impl Jetstream {
    /// Connects to one of `urls`. `base` carries credentials and TLS; names, timeouts and everything about reconnecting are
    /// set here. Once connected, a lost connection is made again for ever.
    ///
    /// # Errors
    /// [`ConnectError`] when an address is bad, the broker refuses, or no broker answers within the time given.
    pub async fn connect(
        env: Env,
        urls: &[String],
        base: ConnectOptions,
        options: Options,
    ) -> Result<Jetstream, ConnectError> {
        let addresses = urls
            .iter()
            .map(|url| {
                url.parse::<ServerAddr>()
                    .map_err(|error| ConnectError::BadUrl { url: url.clone(), reason: error.to_string() })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let desk_of_client: Arc<OnceLock<Arc<Desk>>> = Arc::default();
        let heard = desk_of_client.clone();
        let (jitter, client_name) = (env.clone(), Arc::<str>::from(&*options.name));
        let base = base
            .name(&options.name)
            .ping_interval(PING)
            .connection_timeout(ATTEMPT)
            .max_reconnects(None)
            .reconnect_delay_callback(move |attempts| {
                jitter.jitter(RETRY.min(Duration::from_millis(20) * attempts.try_into().unwrap_or(u32::MAX)))
            })
            .event_callback(move |event| {
                let (desk, client) = (heard.get().cloned(), client_name.clone());
                async move { hear(desk.as_deref(), &client, &event) }
            });
        let client = first_connection(&env, &addresses, base, &options, urls).await?;
        let prefix = format!("{}.", client.new_inbox());
        let desk = Arc::new(Desk::new(env.clone(), &prefix, options.requests_in_flight + options.publishes_in_flight));
        let desk = desk_of_client.get_or_init(|| desk).clone();
        // What happened before the desk was there to hear it.
        if client.connection_state() == State::Connected {
            desk.first_connected();
        }
        let replies = client.subscribe(format!("{prefix}>")).await.map_err(|error| ConnectError::Unreachable {
            urls: urls.join(","),
            within: options.connect_within,
            reason: error.to_string(),
        })?;
        let (reader, wheel) = (desk.clone(), desk.clone());
        Ok(Jetstream(Arc::new(Inner {
            env,
            client,
            desk,
            requests: Semaphore::new(options.requests_in_flight),
            publishes: Semaphore::new(options.publishes_in_flight),
            request_timeout: options.request_timeout,
            marks: Mutex::default(),
            _replies: tasks::spawn(async move { reader.take_replies(replies).await }),
            _wheel: tasks::spawn(async move { wheel.turn_wheel().await }),
        })))
    }

    /// The deadline of a request that begins now and has no other.
    pub fn deadline(&self) -> Mono {
        self.0.env.now() + self.0.request_timeout
    }

    /// Whether the connection stands now. Requests without one fail at once.
    pub fn connected(&self) -> bool {
        self.0.client.connection_state() == State::Connected
    }

    /// The connection's state as it changes.
    pub fn link(&self) -> watch::Receiver<Link> {
        self.0.desk.link.subscribe()
    }

    /// What this connection did so far.
    pub fn stats(&self) -> Stats {
        self.0.desk.counters.snapshot(self.0.desk.waiting())
    }

    /// The largest payload, headers included, that the broker takes, in bytes.
    pub fn max_payload(&self) -> usize {
        self.0.client.max_payload()
    }

    /// The broker that answered the connection, by its own account.
    pub fn server(&self) -> Server {
        let info = self.0.client.server_info();
        Server { version: info.version, cluster: info.cluster }
    }

    /// The clock and randomness this connection was made with.
    pub fn env(&self) -> &Env {
        &self.0.env
    }

    pub(super) fn client(&self) -> &Client {
        &self.0.client
    }

    pub(super) fn desk(&self) -> &Desk {
        &self.0.desk
    }

    pub(super) fn requests(&self) -> &Semaphore {
        &self.0.requests
    }

    pub(super) fn publishes(&self) -> &Semaphore {
        &self.0.publishes
    }

    /// How far `stream` is known to have come.
    pub(super) fn mark(&self, stream: &str) -> Mark {
        self.0.marks.lock().get(stream).copied().unwrap_or_default()
    }

    /// Learns something about `stream`.
    pub(super) fn learn(&self, stream: &str, learn: impl FnOnce(&mut Mark)) {
        let mut marks = self.0.marks.lock();
        match marks.get_mut(stream) {
            Some(mark) => learn(mark),
            None => learn(marks.entry(stream.into()).or_default()),
        }
    }

    /// Forgets a stream that was deleted.
    pub(super) fn forget(&self, stream: &str) {
        self.0.marks.lock().remove(stream);
    }
}

async fn first_connection(
    env: &Env,
    addresses: &[ServerAddr],
    base: ConnectOptions,
    options: &Options,
    urls: &[String],
) -> Result<Client, ConnectError> {
    let (urls, within) = (urls.join(","), options.connect_within);
    let by = env.now() + within;
    let mut reason = "not tried".to_owned();
    while env.now() < by {
        match env.within(by, Box::pin(base.clone().connect(addresses))).await {
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(source)) => match source.kind() {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Tls => {
                    return Err(ConnectError::Refused { urls, source });
                }
                _ => reason = source.to_string(),
            },
            Err(_) => break,
        }
        // Not to be safe, but not to spin: a refused connection fails in microseconds.
        env.sleep(env.jitter(RETRY)).await;
    }
    Err(ConnectError::Unreachable { urls, within, reason })
}

fn hear(desk: Option<&Desk>, client: &str, event: &Event) {
    let Some(desk) = desk else { return };
    match event {
        Event::Connected => {
            // The first connection is told by whoever made it; one that was lost and made again is news.
            if desk.link.borrow().losses > 0 {
                tracing::info!(client, "broker_reconnected");
            }
            desk.connected();
        }
        Event::Disconnected => {
            tracing::warn!(client, "broker_disconnected");
            desk.lost();
        }
        // Reconnecting never gives up, so only the end of the last handle closes a connection.
        Event::Closed => {
            tracing::debug!("broker_connection_closed");
            desk.lost();
        }
        Event::LameDuckMode | Event::Draining => tracing::info!(%event, "broker_leaving"),
        // A full subscription has dropped messages; whoever misses one finds out from the numbering.
        Event::SlowConsumer(_) | Event::ServerError(_) | Event::ClientError(_) => {
            tracing::warn!(%event, "broker_connection_trouble");
        }
    }
}
