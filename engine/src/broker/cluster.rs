//! An embedded cluster: one call from nothing to a NATS that acknowledges writes.

use std::sync::Arc;
use std::time::Duration;

use coordproto::answer::BadArgument;
use futures_util::future::join_all;
use tokio::sync::watch;

use super::access::Access;
use super::config::{Config, Passwords, SYSTEM_USER, TRIAL_USER, USER};
use super::directory::{self, Directory};
use super::member::{self, Member};
use super::ports::Port;
use super::process::{Exit, Slot, Spawner};
use super::ready::Prober;
use super::resolve::resolve;
use super::routes::Routes;
use super::{BrokerError, Settings, Storage, Store, SyncInterval};
use crate::env::Env;

/// How long a member may hold up the start of the next one: a later member dials the earlier ones (see `config`), and one that
/// found them not listening yet would try again only after a second.
const ONE_BY_ONE: Duration = Duration::from_secs(1);

/// An embedded NATS of one, three or five servers on loopback.
///
/// It ends with its owner: [`stop`](Cluster::stop) is the orderly way, dropping it kills and reaps every server before it
/// returns, and on Linux the servers are killed with the process however that ends. A member that ends by itself is reported
/// and stays down.
pub struct Cluster {
    // Dropped in this order: the servers, then the directory that they write to.
    members: Vec<Member>,
    directory: Directory,
    access: Access,
    system: Access,
    storage: Storage,
    exits: watch::Receiver<Vec<Exit>>,
    /// Where members say that they listen when their routes are somebody else's, and nobody does.
    _nowhere: Option<Port>,
    env: Env,
}

impl Cluster {
    /// Starts the servers and waits until the cluster serves.
    ///
    /// # Errors
    /// When the settings break a rule, there is no nats-server to run, the directory cannot be used, a server ends, or the
    /// cluster does not serve in the time given. Nothing is left behind then.
    pub async fn start(settings: Settings, env: Env) -> Result<Cluster, BrokerError> {
        let began = env.now();
        settings.check()?;
        let (within, sync) = (settings.ready_within, settings.sync);
        let cluster = Box::pin(Cluster::assemble(settings, env)).await?;
        for member in &cluster.members {
            member.launch()?;
            let one = std::slice::from_ref(member);
            match Prober::new(one, &cluster.env, 0).until_answering(ONE_BY_ONE).await {
                // A member that takes its time is waited for with the others, and the error then tells of all.
                Ok(()) | Err(BrokerError::NotReady { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        cluster.serving(0, within).await?;
        let took_ms = u64::try_from(cluster.env.now().since(began).as_millis()).unwrap_or(u64::MAX);
        let (members, directory) = (cluster.members.len(), cluster.directory.path());
        let (storage, sync_interval) = (cluster.storage, sync);
        tracing::info!(members, took_ms, %storage, %sync_interval, directory = %directory.display(), "broker_ready");
        Ok(cluster)
    }

    /// Everything but the processes.
    async fn assemble(settings: Settings, env: Env) -> Result<Cluster, BrokerError> {
        let Settings { members: count, store, sync, ready_within, lookup, routes: reach } = settings;
        let binary = resolve(&lookup, &env).await?;
        let (directory, storage) = match &store {
            Store::Kept(path) => (Directory::kept(path, count, &env).await?, Storage::File),
            Store::Temporary => (Directory::temporary(&env).await?, Storage::File),
            Store::Memory => {
                tracing::warn!(note = "the contents are gone when the servers end", "broker_storage_memory");
                (Directory::temporary(&env).await?, Storage::Memory)
            }
        };
        if let SyncInterval::Every(interval) = sync {
            let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
            let note = "a power failure may undo acknowledged writes that recent";
            tracing::warn!(interval_ms, note, "broker_sync_interval");
        }
        let system_error = |attempt| move |source| BrokerError::System { attempt, source };
        let passwords = Passwords::random().map_err(system_error("draw a password"))?;
        let reserve = || Port::reserve().map_err(system_error("reserve a loopback port"));
        let clients: Vec<Port> = (0..count).map(|_| reserve()).collect::<Result<_, _>>()?;
        let routes: Vec<Port> = (0..if count == 1 { 0 } else { count }).map(|_| reserve()).collect::<Result<_, _>>()?;
        let nowhere = match reach {
            Routes::Direct => None,
            Routes::Through(_) => Some(reserve()?),
        };
        let listening: Vec<_> = routes.iter().map(Port::address).collect();
        let urls: Vec<String> = clients.iter().map(|port| member::url(port.address())).collect();

        let (exit_sender, exits) = watch::channel(Vec::new());
        let spawner = Spawner::start(directory.lock().clone()).map_err(system_error("start a thread"))?;
        let spawner = Arc::new(spawner);
        let mut members = Vec::with_capacity(clients.len());
        let mut routes = routes.into_iter();
        for (index, client) in clients.into_iter().enumerate() {
            let name = format!("n{}", index + 1);
            let home = directory.member(&name)?;
            let config = home.join("nats.conf");
            let route = routes.next();
            let dialled = reach.dialled(index, &listening);
            let written = Config {
                name: &name,
                client: client.address(),
                routes: route.as_ref().map(|_| (dialled.as_slice(), index)),
                advertised: nowhere.as_ref().map(Port::address),
                sync,
                passwords: &passwords,
            };
            written.write(&config).map_err(directory::failed("write", &config))?;
            let through = |user, password| Access::embedded(vec![urls[index].clone()], user, password);
            members.push(Member {
                index,
                user: through(USER, &passwords.user),
                trial: through(TRIAL_USER, &passwords.trial),
                system: through(SYSTEM_USER, &passwords.system),
                slot: Slot::new(&name, &env, exit_sender.clone()),
                name,
                binary: binary.path.clone(),
                config,
                directory: home,
                client,
                _route: route,
                spawner: spawner.clone(),
                ready_within,
                env: env.clone(),
            });
        }
        let access = Access::embedded(urls.clone(), USER, &passwords.user);
        let system = Access::embedded(urls, SYSTEM_USER, &passwords.system);
        Ok(Cluster { members, directory, access, system, storage, exits, _nowhere: nowhere, env })
    }

    /// The servers, in the order of their names.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// How clients connect, to the account that streams live in.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// How the system account is reached, which tells of every server: `$SYS.REQ.SERVER.PING.VARZ`, `JSZ` and so on.
    pub fn system_access(&self) -> &Access {
        &self.system
    }

    /// Which storage streams should be created with.
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// The directory with every member's configuration and data.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// The ends of servers so far, in the order they were noticed.
    pub fn exits(&self) -> Vec<Exit> {
        self.exits.borrow().clone()
    }

    /// The same, to wait for the next one: `changed` wakes, and the list only grows.
    pub fn exit_feed(&self) -> watch::Receiver<Vec<Exit>> {
        self.exits.clone()
    }

    /// Waits until the cluster serves: every member is in, they agree on a meta leader, and through every one of them a
    /// write to a stream on all of them is acknowledged. For the time after a member was stopped and started.
    ///
    /// # Errors
    /// When that takes longer than `within` (the error says how far it got), or a server ends meanwhile.
    pub async fn ready(&self, within: Duration) -> Result<(), BrokerError> {
        let since = self.exits.borrow().len();
        self.serving(since, within).await
    }

    /// `since` is how many ends were reported before the wait: a later one that nobody asked for ends it.
    async fn serving(&self, since: usize, within: Duration) -> Result<(), BrokerError> {
        Prober::new(&self.members, &self.env, since).until_serving(self.storage, within).await
    }

    /// Ends every server in an orderly way (SIGTERM, after 10 s SIGKILL) and removes a temporary directory.
    ///
    /// # Errors
    /// When the system refuses a signal. The servers are gone all the same.
    pub async fn stop(self) -> Result<(), BrokerError> {
        let stopped = join_all(self.members.iter().map(Member::terminate)).await;
        stopped.into_iter().collect()
    }
}

impl Settings {
    /// Whether these can be started.
    fn check(&self) -> Result<(), BadArgument> {
        let refused = |rule| Err(BadArgument::new("members", self.members.to_string(), rule));
        match self.members {
            1 | 3 | 5 => {}
            0 => return refused("a broker has at least one member: 1, 3 or 5"),
            2 => return refused("two members have no majority to lose: 1, 3 or 5"),
            n if n % 2 == 0 => return refused("an even number survives no more than the odd one below it: 1, 3 or 5"),
            _ => return refused("a stream has at most five replicas: 1, 3 or 5"),
        }
        match self.sync {
            SyncInterval::Every(interval) if interval < Duration::from_millis(1) => {
                Err(BadArgument::new("sync interval", format!("{interval:?}"), "at least 1ms, or always"))
            }
            SyncInterval::Always | SyncInterval::Every(_) => Ok(()),
        }
    }
}
