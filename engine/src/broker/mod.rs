//! The embedded broker: a real nats-server, found or provisioned, configured, supervised and clustered from one call.
//!
//! [`Cluster::start`] ends with a NATS that has acknowledged a write through every member. [`resolve()`] says which binary runs,
//! and [`Access`] how to connect, to an embedded cluster or to a NATS that somebody else runs. What this is not: a process
//! manager. A member that ends is reported and stays down until somebody starts it.
//!
//! Two platforms: Linux, and macOS without two guarantees that its kernel does not give. A member there outlives a parent
//! killed by SIGKILL, and a member's port can be taken while the member is down.

mod access;
mod cluster;
mod config;
mod directory;
mod member;
mod output;
mod ports;
mod process;
mod provision;
mod ready;
mod resolve;
mod routes;
mod secret;
mod wheel;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use coordproto::answer::BadArgument;

pub use access::{Access, AccessError, Auth, ClientCertificate, Tls};
pub use cluster::Cluster;
pub use member::Member;
pub use process::Exit;
pub use resolve::{Binary, Lookup, Source, Tried, Unresolved, resolve};
pub use routes::{Route, Routes};
pub use secret::Secret;

/// What to start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many servers: 1, 3 or 5.
    pub members: u8,
    /// Where the streams go.
    pub store: Store,
    /// When writes go to the disk.
    pub sync: SyncInterval,
    /// How long [`Cluster::start`] and [`Member::start`] wait.
    pub ready_within: Duration,
    /// Where nats-server is looked for.
    pub lookup: Lookup,
    /// How the members reach each other. Fault tests change it, nobody else does.
    pub routes: Routes,
}

impl Settings {
    /// A cluster of that many, in a temporary directory, every write synced, 30 s to become ready, with the nats-server that
    /// the process's environment leads to.
    pub fn new(members: u8) -> Settings {
        Settings {
            members,
            store: Store::Temporary,
            sync: SyncInterval::Always,
            ready_within: Duration::from_secs(30),
            lookup: Lookup::system(),
            routes: Routes::Direct,
        }
    }
}

/// Where the streams of a cluster go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// Memory: gone when the servers end. Bookkeeping still goes to a temporary directory.
    Memory,
    /// A directory that is removed when the cluster ends. One whose process was killed by SIGKILL stays behind until the next
    /// cluster starts.
    Temporary,
    /// This directory, kept. One cluster at a time, always of the same size.
    Kept(PathBuf),
}

/// When the servers sync writes to the disk (`sync_interval`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncInterval {
    /// Before a write is acknowledged.
    Always,
    /// In the background: a power failure may undo acknowledged writes up to this old.
    Every(Duration),
}

impl fmt::Display for SyncInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncInterval::Always => f.write_str("always"),
            SyncInterval::Every(interval) => write!(f, "{interval:?}"),
        }
    }
}

/// Which storage streams should be created with (`storage` of a stream's configuration).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// `file`.
    File,
    /// `memory`.
    Memory,
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Storage::File => "file",
            Storage::Memory => "memory",
        })
    }
}

/// Why there is no broker, or a member did not do as it was told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// The settings break a rule.
    #[error(transparent)]
    Settings(#[from] BadArgument),
    /// There is no nats-server to run.
    #[error(transparent)]
    Binary(#[from] Unresolved),
    /// Something in the broker's directory cannot be used.
    #[error("broker directory: {attempt} {}: {source}", path.display())]
    Directory {
        /// What was attempted.
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another cluster uses the directory.
    #[error("broker directory {}: in use by another broker (process {holder})", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process that started the other broker, as it wrote itself down.
        holder: String,
    },
    /// The directory belongs to a cluster of another size.
    #[error("broker directory {}: holds a cluster of {written} members, not {asked}", path.display())]
    OtherSize {
        /// The directory.
        path: PathBuf,
        /// How many members its cluster has.
        written: String,
        /// How many were asked for.
        asked: u8,
    },
    /// The system did not give what every start needs.
    #[error("broker: {attempt}: {source}")]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A server's process cannot be started.
    #[error("broker member {member}: start {}: {source}", binary.display())]
    Spawn {
        /// The member.
        member: String,
        /// The executable.
        binary: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A server ended while it was waited for.
    #[error(
        "broker member {} (process {}) ended before it was ready: {}; it last said:\n  {}",
        exit.member, exit.pid, exit.status, exit.last_lines.join("\n  ")
    )]
    Exited {
        /// The end.
        exit: Exit,
    },
    /// The cluster does not serve in the time given.
    #[error("broker not ready after {} ms: {standing}", within.as_millis())]
    NotReady {
        /// The time given.
        within: Duration,
        /// How far it got: `2 of 3 members, no meta leader`.
        standing: String,
    },
    /// The member already runs, or does not run, and the operation needs the opposite.
    #[error("broker member {member}: {}", if *running { "runs already" } else { "does not run" })]
    Running {
        /// The member.
        member: String,
        /// Whether it runs.
        running: bool,
    },
    /// The system refuses to signal a server.
    #[error("broker member {member}: {attempt}: {source}")]
    Signal {
        /// What was attempted.
        attempt: &'static str,
        /// The member.
        member: String,
        /// Why it failed.
        source: io::Error,
    },
}
