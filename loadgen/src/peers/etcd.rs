//! etcd, three members of it started for the run, with a lease for each seat or one for each node.
//!
//! It syncs every commit to the disk, as the brokers here do: that is its default, and it is started without the flag that turns
//! it off and without any setting from the environment. A claim is a transaction that creates the seat's key, bound to a
//! lease; a renewal keeps the lease alive, which no quorum writes; every read is linearizable.

use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use engine::env::Env;
use etcd_client::{
    Client, Compare, CompareOp, GetOptions, KeyValue, LeaseKeepAliveStream, LeaseKeeper, PutOptions, Txn, TxnOp,
};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use super::durability::Etcds;
use super::listed::Listed;
use super::peer::{Charged, Failed, Peer, Renewed};
use super::{ATTEMPTS, VALUE, failed};
use crate::target::Unavailable;

/// How many members there are.
const MEMBERS: usize = 3;

/// How long they may take to serve.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// Where etcd is on this machine; none where it is not in PATH.
pub(super) fn found() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("etcd")).find(|file| file.is_file())
}

fn unavailable(error: impl std::fmt::Display) -> Unavailable {
    Unavailable::Peer { peer: "etcd", reason: error.to_string() }
}

/// The members; dropped, they are killed and what they stored is removed.
pub(super) struct Cluster {
    members: Vec<Child>,
    endpoints: Vec<String>,
    _data: TempDir,
}

impl Cluster {
    /// Starts them, and waits until they answer a read that needs a quorum.
    pub(super) async fn start(env: &Env, binary: PathBuf) -> Result<Cluster, Unavailable> {
        let data = tempfile::Builder::new().prefix("loadgen-etcd-").tempdir().map_err(unavailable)?;
        let ports = ports(2 * MEMBERS).map_err(unavailable)?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (clients, peers) = ports.split_at(MEMBERS);
        let all: Vec<String> = peers.iter().enumerate().map(|(n, port)| format!("e{n}={}", url(*port))).collect();
        let start = |n: usize| {
            let (client, peer) = (url(clients[n]), url(peers[n]));
            let mut command = Command::new(&binary);
            command.arg("--name").arg(format!("e{n}")).arg("--data-dir").arg(data.path().join(format!("e{n}")));
            command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            command.args([
                "--initial-cluster",
                &all.join(","),
                "--initial-cluster-state",
                "new",
                "--log-level",
                "error",
            ]);
            // It reads settings from there too, among them one by which it syncs nothing.
            let set = std::env::vars_os().map(|(name, _)| name);
            for name in set.filter(|name| name.as_encoded_bytes().starts_with(b"ETCD_")) {
                command.env_remove(name);
            }
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn()
        };
        let members = (0..MEMBERS).map(start).collect::<io::Result<_>>().map_err(unavailable)?;
        let cluster = Cluster { members, endpoints: clients.iter().map(|port| url(*port)).collect(), _data: data };
        let by = env.now() + READY_WITHIN;
        loop {
            let answer = async { cluster.client(0).await?.get("ready", None).await };
            match env.within(by, Box::pin(answer)).await {
                Ok(Ok(_)) => return Ok(cluster),
                Ok(Err(_)) => env.sleep(env.jitter(Duration::from_millis(100))).await,
                Err(_) => {
                    return Err(unavailable(format_args!("no answer within {READY_WITHIN:?} of its start")));
                }
            }
        }
    }

    /// What they are, as they say it themselves.
    pub(super) async fn described(&self) -> Result<Etcds, Unavailable> {
        let status = async { self.client(0).await?.status().await };
        let status = status.await.map_err(unavailable)?;
        Ok(Etcds { version: status.version().to_owned(), members: self.members.len() })
    }

    /// The members' names and processes.
    pub(super) fn processes(&self) -> impl Iterator<Item = (String, Option<u32>)> {
        self.members.iter().enumerate().map(|(n, member)| (format!("etcd{n}"), member.id()))
    }

    /// A connection of a node's own.
    async fn client(&self, node: usize) -> Result<Client, etcd_client::Error> {
        Client::connect([&self.endpoints[node % MEMBERS]], None).await
    }
}

/// Free ports on loopback. They are let go before they are used, so another process could take one, and etcd would then not
/// come up.
fn ports(count: usize) -> io::Result<Vec<u16>> {
    let held = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<io::Result<Vec<_>>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// Which leases seats are bound to.
#[derive(Clone)]
enum Leases {
    /// One each.
    OfSeats,
    /// One of each node, by its number. Nobody waits for a lock here: a node's lease is renewed by the node.
    OfNodes(Arc<[Mutex<Own>]>),
}

/// etcd over a connection of each node.
#[derive(Clone)]
pub(super) struct Etcd {
    clients: Arc<[Client]>,
    leases: Leases,
    /// What its keys begin with, so that two of these share members and nothing else.
    prefix: &'static str,
    ttl: i64,
}

impl Etcd {
    /// Connects every node; with `of_nodes`, each takes its lease.
    pub(super) async fn open(
        cluster: &Cluster,
        nodes: usize,
        of_nodes: bool,
        ttl: Duration,
    ) -> Result<Etcd, Unavailable> {
        // Whole seconds, rounded up.
        let ttl = ttl.as_millis().div_ceil(1000) as i64;
        let (mut clients, mut of_each) = (Vec::new(), Vec::new());
        for node in 0..nodes {
            let mut client = cluster.client(node).await.map_err(unavailable)?;
            if of_nodes {
                // It outlives the run: what is measured is its renewal, and not what becomes of it between the parts.
                let id = client.lease_grant(3600, None).await.map_err(unavailable)?.id();
                of_each.push(Mutex::new(Own { id, keeper: None }));
            }
            clients.push(client);
        }
        let (leases, prefix) = if of_nodes { (Leases::OfNodes(of_each.into()), "n/") } else { (Leases::OfSeats, "s/") };
        Ok(Etcd { clients: clients.into(), leases, prefix, ttl })
    }

    fn client(&self, node: usize) -> Client {
        self.clients[node % self.clients.len()].clone()
    }

    async fn add(&self, client: usize, record: &str) -> Result<Charged, Failed> {
        let (mut client, key) = (self.client(client), format!("{}budget/{record}", self.prefix));
        for _ in 0..ATTEMPTS {
            let (revision, count) = self.count(&mut client, &key).await?;
            let unchanged = Compare::mod_revision(key.as_str(), CompareOp::Equal, revision);
            let put = TxnOp::put(key.as_str(), (count + 1).to_string(), None);
            let txn = client.txn(Txn::new().when([unchanged]).and_then([put])).await.map_err(failed)?;
            if txn.succeeded() {
                return Ok(Charged::Counted);
            }
        }
        Ok(Charged::GaveUp)
    }

    /// The revision of a counter and what it counts; both 0 where there is none.
    async fn count(&self, client: &mut Client, key: &str) -> Result<(i64, u64), Failed> {
        let found = client.get(key, None).await.map_err(failed)?;
        let Some(found) = found.kvs().first() else { return Ok((0, 0)) };
        Ok((found.mod_revision(), found.value_str().map_err(failed)?.parse().map_err(failed)?))
    }
}

/// A revision as others count theirs.
fn revision(revision: i64) -> Result<u64, Failed> {
    u64::try_from(revision).map_err(failed)
}

/// A lease.
pub(super) struct Own {
    id: i64,
    /// What keeps it alive once it was renewed.
    keeper: Option<Box<(LeaseKeeper, LeaseKeepAliveStream)>>,
}

impl Own {
    async fn keep_alive(&mut self, mut client: Client) -> Result<bool, Failed> {
        let Some(mut opened) = self.keeper.take() else {
            // Opening it has renewed the lease, and is answered.
            self.keeper = Some(Box::new(client.lease_keep_alive(self.id).await.map_err(failed)?));
            return Ok(true);
        };
        let (keeper, answers) = &mut *opened;
        keeper.keep_alive().await.map_err(failed)?;
        let answer =
            answers.message().await.map_err(failed)?.ok_or_else(|| "the stream of answers ended".to_owned())?;
        // One that has failed is opened anew the next time.
        self.keeper = Some(opened);
        Ok(answer.ttl() > 0)
    }
}

/// What a seat is bound to.
pub(super) enum Held {
    /// A lease of its own.
    Own(Own),
    /// The node's.
    Nodes,
}

impl Peer for Etcd {
    type Held = Held;

    async fn claim(&self, node: usize, seat: &str) -> Result<Option<Held>, Failed> {
        let mut client = self.client(node);
        let (id, held) = match &self.leases {
            Leases::OfNodes(leases) => (leases[node].lock().await.id, Held::Nodes),
            Leases::OfSeats => {
                let id = client.lease_grant(self.ttl, None).await.map_err(failed)?.id();
                (id, Held::Own(Own { id, keeper: None }))
            }
        };
        let key = format!("{}seat/{seat}", self.prefix);
        let free = Compare::create_revision(key.as_str(), CompareOp::Equal, 0);
        let put = TxnOp::put(key.as_str(), node.to_string(), Some(PutOptions::new().with_lease(id)));
        let txn = client.txn(Txn::new().when([free]).and_then([put])).await.map_err(failed)?;
        Ok(txn.succeeded().then_some(held))
    }

    async fn is_mine(&self, node: usize, seat: &str) -> Result<bool, Failed> {
        let found = self.client(node).get(format!("{}seat/{seat}", self.prefix), None).await.map_err(failed)?;
        Ok(found.kvs().first().is_some_and(|found| found.value() == node.to_string().as_bytes()))
    }

    fn renews_apart(&self) -> bool {
        matches!(self.leases, Leases::OfSeats)
    }

    async fn renew(&self, node: usize, held: &mut [Held]) -> Renewed {
        if let Leases::OfNodes(leases) = &self.leases {
            // One answer for all that are bound to it.
            let kept = leases[node].lock().await.keep_alive(self.client(node)).await.ok();
            return std::iter::repeat_n(kept, held.len()).collect();
        }
        let answers = held.iter_mut().map(|held| async {
            match held {
                Held::Own(lease) => lease.keep_alive(self.client(node)).await.ok(),
                Held::Nodes => None,
            }
        });
        futures_util::future::join_all(answers).await.into_iter().collect()
    }

    async fn write(&self, class: &str, key: &str) -> Result<u64, Failed> {
        let key = format!("{}{class}/{key}", self.prefix);
        let put = self.client(0).put(key, VALUE, None).await.map_err(failed)?;
        revision(put.header().ok_or("a write was answered without its revision")?.revision())
    }

    async fn list(&self, class: &str) -> Result<Vec<Listed>, Failed> {
        let prefix = format!("{}{class}/", self.prefix);
        let found = self.client(0).get(prefix.as_str(), Some(GetOptions::new().with_prefix())).await.map_err(failed)?;
        let listed = |found: &KeyValue| {
            let key = found.key_str().map_err(failed)?;
            let key =
                key.strip_prefix(&prefix).ok_or_else(|| format!("{key} does not begin with {prefix}"))?.to_owned();
            Ok(Listed { key, revision: revision(found.mod_revision())? })
        };
        found.kvs().iter().map(listed).collect()
    }

    async fn charge(&self, client: usize) -> Result<Charged, Failed> {
        match self.add(client, "org").await? {
            Charged::GaveUp => Ok(Charged::GaveUp),
            Charged::Counted => self.add(client, &format!("c{client}")).await,
        }
    }

    async fn charged(&self) -> Result<u64, Failed> {
        let key = format!("{}budget/org", self.prefix);
        Ok(self.count(&mut self.client(0), &key).await?.1)
    }
}
