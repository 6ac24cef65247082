//! Whether a cluster serves: every member is in, they agree on a meta leader, and through every one of them a write to a
//! stream on all of them was acknowledged.
//!
//! The members' connections among themselves take a moment to settle, account by account, and until they have, messages get
//! lost between some pairs. So each member must hear each other one first.
//!
//! Each member is asked for its own view, over a connection of its own: the `JSZ` request of the system account tells whom it
//! takes for the meta leader, and the leader's view tells which followers are current. That a port accepts says nothing of
//! this, and `$JS.API.INFO`, which any leader answers, says nothing of the other members.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use async_nats::Client;
use futures_util::future::{FutureExt, join_all};
use futures_util::stream::StreamExt;
use serde::Deserialize;

use super::access::Access;
use super::member::Member;
use super::{BrokerError, Exit, Storage};
use crate::env::Env;

/// How long one question may take: a member that is frozen, or not up yet, does not hold up the others. Whatever got no answer
/// is asked again.
const ASK_WITHIN: Duration = Duration::from_millis(500);
/// The wait between two rounds.
const ROUND: Duration = Duration::from_millis(15);
/// The stream and the subject of the write probe. The stream exists only during it, in an account of its own.
const PROBE: &str = "CREWLET_READY";
const PROBE_SUBJECT: &str = "crewlet.ready.write";
/// Where members say their names to each other.
const HELLO: &str = "crewlet.ready.hello";

#[derive(Deserialize)]
struct Jsz {
    data: Option<View>,
}

/// A member's own view (`JSZ`, fields by their names there).
#[derive(Deserialize)]
struct View {
    /// Absent on a server without a cluster.
    meta_cluster: Option<Meta>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    leader: String,
    #[serde(default)]
    replicas: Vec<Peer>,
}

#[derive(Deserialize)]
struct Peer {
    name: String,
    current: bool,
    #[serde(default)]
    offline: bool,
}

/// How far the members are.
struct Standing {
    members: usize,
    of: usize,
    /// The meta leader that some member knows.
    leader: Option<String>,
    /// Whether every member that answers names this leader, or there is no need for one.
    agreed: bool,
}

impl Standing {
    fn of(members: &[Member], views: &[Option<View>]) -> Standing {
        let of = members.len();
        let answers: Vec<(&str, &View)> = members
            .iter()
            .zip(views)
            .filter_map(|(member, view)| view.as_ref().map(|view| (member.name(), view)))
            .collect();
        if of == 1 {
            return Standing { members: answers.len(), of, leader: None, agreed: true };
        }
        let leader_of = |view: &View| view.meta_cluster.as_ref().map_or("", |meta| meta.leader.as_str()).to_owned();
        let leader = answers.iter().map(|(_, view)| leader_of(view)).find(|leader| !leader.is_empty());
        let agreed = leader.is_some() && answers.iter().all(|(_, view)| Some(leader_of(view)) == leader);
        // Who has caught up is what the leader says, once there is one that can be asked.
        let leading = answers.iter().find(|(name, _)| Some(*name) == leader.as_deref());
        let in_step = |name: &str| match leading {
            Some((leader, view)) => {
                let replicas = view.meta_cluster.iter().flat_map(|meta| &meta.replicas);
                name == *leader || replicas.into_iter().any(|peer| peer.name == name && peer.current && !peer.offline)
            }
            None => true,
        };
        let members = answers.iter().filter(|(name, _)| in_step(name)).count();
        Standing { members, of, leader, agreed }
    }

    fn complete(&self) -> bool {
        self.members == self.of && self.agreed
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} members", self.members, self.of)?;
        match &self.leader {
            _ if self.of == 1 => Ok(()),
            None => f.write_str(", no meta leader"),
            Some(leader) if self.agreed => write!(f, ", meta leader {leader}"),
            Some(leader) => write!(f, ", meta leader {leader} not known to all"),
        }
    }
}

/// Asks members how they are.
pub(super) struct Prober<'a> {
    members: &'a [Member],
    env: &'a Env,
    clients: Vec<Option<Client>>,
    /// How many ends were reported before this wait: the later ones are its business.
    since: usize,
}

impl<'a> Prober<'a> {
    /// For members that may have been launched already: `since` is how many ends had been reported before that.
    pub(super) fn new(members: &'a [Member], env: &'a Env, since: usize) -> Prober<'a> {
        Prober { members, env, clients: members.iter().map(|_| None).collect(), since }
    }

    /// Waits until every member answers, whatever it says.
    pub(super) async fn until_answering(&mut self, within: Duration) -> Result<(), BrokerError> {
        let (members, env, since) = (self.members, self.env, self.since);
        bounded(members, env, since, within, async |standing| {
            loop {
                let answering = self.views().await.iter().flatten().count();
                *standing = format!("{answering} of {} members answer", members.len());
                if answering == members.len() {
                    return;
                }
                env.sleep(ROUND).await;
            }
        })
        .await
    }

    /// Waits until the cluster serves: writes to a stream on all members are acknowledged through every one of them.
    pub(super) async fn until_serving(&mut self, storage: Storage, within: Duration) -> Result<(), BrokerError> {
        let (members, env, since) = (self.members, self.env, self.since);
        bounded(members, env, since, within, async |told| {
            loop {
                let standing = Standing::of(members, &self.views().await);
                let mut text = standing.to_string();
                if standing.complete() {
                    match Box::pin(probe(members, storage, env)).await {
                        Ok(()) => return,
                        Err(reason) => text = format!("{text}, no write acknowledged yet: {reason}"),
                    }
                }
                if *told != text {
                    *told = text;
                    tracing::info!(standing = *told, "broker_waiting");
                }
                env.sleep(ROUND).await;
            }
        })
        .await
    }

    /// Every member's own view; `None` for those that do not answer.
    async fn views(&mut self) -> Vec<Option<View>> {
        let env = self.env;
        let asked = self.members.iter().zip(&mut self.clients).map(async |(member, client)| {
            if !member.is_running() {
                return None;
            }
            env.within(env.now() + ASK_WITHIN, Box::pin(view(&member.system, client))).await.ok().flatten()
        });
        join_all(asked).await
    }
}

/// Runs `work`, which keeps its text up to date, until it is done, the time is over, or a member ends that nobody ended.
async fn bounded(
    members: &[Member],
    env: &Env,
    since: usize,
    within: Duration,
    work: impl AsyncFnOnce(&mut String),
) -> Result<(), BrokerError> {
    let crash = |exits: &Vec<Exit>| {
        let ours = |exit: &&Exit| !exit.expected && members.iter().any(|member| member.name() == exit.member);
        exits[since..].iter().find(ours).cloned()
    };
    let mut standing = String::new();
    let mut exits = members[0].exits();
    let done = tokio::select! {
        _ = exits.wait_for(|exits| crash(exits).is_some()) => None,
        done = env.within(env.now() + within, work(&mut standing)) => Some(done),
    };
    match done {
        Some(Ok(())) => Ok(()),
        Some(Err(_)) => Err(BrokerError::NotReady { within, standing }),
        None => {
            let exit = crash(&exits.borrow()).expect("an end was waited for, and none is ever taken back");
            Err(BrokerError::Exited { exit })
        }
    }
}

/// One member's view, over a connection that is kept for the next round.
async fn view(system: &Access, kept: &mut Option<Client>) -> Option<View> {
    let client = match kept {
        Some(client) => client,
        None => kept.insert(connect(system).await.ok()?),
    };
    let subject = format!("$SYS.REQ.SERVER.{}.JSZ", client.server_info().server_id);
    let answer = client.request(subject, Default::default()).await.ok()?;
    serde_json::from_slice::<Jsz>(&answer.payload).ok()?.data
}

/// Has every member hear every other one, creates a stream with a replica on each, writes to it through each, deletes it;
/// otherwise why that did not work.
async fn probe(members: &[Member], storage: Storage, env: &Env) -> Result<(), String> {
    let listeners = connect_each(members, |member| &member.user, env).await?;
    mesh(members, &listeners, env).await?;
    let clients = connect_each(members, |member| &member.trial, env).await?;
    let storage = match storage {
        Storage::File => "file",
        Storage::Memory => "memory",
    };
    let stream = serde_json::json!({
        "name": PROBE, "subjects": [PROBE_SUBJECT], "num_replicas": members.len(), "storage": storage,
    });
    ask(&clients[0], format!("$JS.API.STREAM.CREATE.{PROBE}"), stream.to_string(), env).await?;
    for (member, client) in members.iter().zip(&clients) {
        let written = ask(client, PROBE_SUBJECT.to_owned(), member.name().to_owned(), env).await;
        written.map_err(|error| format!("through {}: {error}", member.name()))?;
    }
    ask(&clients[0], format!("$JS.API.STREAM.DELETE.{PROBE}"), String::new(), env).await
}

/// A client of every member.
async fn connect_each(
    members: &[Member],
    access: impl Fn(&Member) -> &Access,
    env: &Env,
) -> Result<Vec<Client>, String> {
    let connected = join_all(members.iter().map(async |member| {
        let connected = env.within(env.now() + ASK_WITHIN, connect(access(member))).await;
        connected.map_err(|error| error.to_string()).flatten().map_err(|error| format!("{}: {error}", member.name()))
    }));
    connected.await.into_iter().collect()
}

/// Waits, for as long as a question may take, until a client of every member has heard a client of every member.
async fn mesh(members: &[Member], clients: &[Client], env: &Env) -> Result<(), String> {
    let failed = |error: &dyn fmt::Display| format!("{HELLO}: {error}");
    let mut listeners = Vec::with_capacity(clients.len());
    for client in clients {
        listeners.push((client.subscribe(HELLO).await.map_err(|error| failed(&error))?, HashSet::new()));
    }
    let deadline = env.now() + ASK_WITHIN;
    loop {
        // Said again and again: that somebody listens takes its time to get around, too.
        for (member, client) in members.iter().zip(clients) {
            client.publish(HELLO, member.name().to_owned().into()).await.map_err(|error| failed(&error))?;
        }
        env.sleep(ROUND).await;
        for (listener, heard) in &mut listeners {
            while let Some(Some(hello)) = listener.next().now_or_never() {
                heard.insert(hello.payload);
            }
        }
        let deaf = members.iter().zip(&listeners).find(|(_, (_, heard))| heard.len() < members.len());
        match deaf {
            None => return Ok(()),
            Some((member, (_, heard))) if env.now() >= deadline => {
                return Err(format!("{} hears {} of {} members", member.name(), heard.len(), members.len()));
            }
            Some(_) => {}
        }
    }
}

/// Connects to the one member that the access names: a client that learns of the others could end up at one of them.
async fn connect(access: &Access) -> Result<Client, String> {
    let options = access.connect_options().await.map_err(|error| error.to_string())?;
    options.ignore_discovered_servers().connect(access.urls()).await.map_err(|error| error.to_string())
}

/// A request that JetStream answers, bounded; otherwise the refusal.
async fn ask(client: &Client, subject: String, payload: String, env: &Env) -> Result<(), String> {
    let request = client.request(subject.clone(), payload.into());
    let answer = env.within(env.now() + ASK_WITHIN, request).await;
    let refusal = match answer {
        Ok(Ok(answer)) => match serde_json::from_slice::<serde_json::Value>(&answer.payload) {
            Ok(answer) => match answer.get("error") {
                None => return Ok(()),
                Some(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        },
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    Err(format!("{subject}: {refusal}"))
}
