//! Real brokers for a test: started for it, reached through any member or through one of them, and asked what the layer
//! under test does not say.

use std::time::Duration;

use coordproto::api::requests::Storage;
use coordproto::slot::Retention;
use engine::broker::{Access, Cluster, Member, Settings};
use engine::env::Env;
use engine::jetstream::{Jetstream, Options};
use engine::lease::{Config, Leases};
use engine::slots;
use engine::store::nats::Nats;
use futures_util::StreamExt;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::{Links, eventually};

/// How long one question to a broker may take. One that is asked between two leaders is never answered, and whoever needs an
/// answer asks again.
const ASK_WITHIN: Duration = Duration::from_millis(250);

/// How long one attempt to connect may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// How long members may take from a start until they serve together.
const SERVE_WITHIN: Duration = Duration::from_secs(60);

/// A cluster of brokers, with a connection of the test's own beside those of the layer under test.
pub struct Brokers {
    /// The clock and the randomness.
    pub env: Env,
    /// The brokers. Dropped, they are killed.
    pub cluster: Cluster,
    admin: async_nats::Client,
    system: async_nats::Client,
}

impl Brokers {
    /// Starts that many members and waits until they serve.
    pub async fn start(members: u8) -> Brokers {
        Brokers::start_with(Settings { ready_within: SERVE_WITHIN, ..Settings::new(members) }).await
    }

    /// Starts that many members whose links to each other can be cut, and waits until they serve.
    pub async fn start_with_links(members: u8) -> (Brokers, Links) {
        let links = Links::new();
        let settings = Settings { routes: links.routes(), ready_within: SERVE_WITHIN, ..Settings::new(members) };
        (Brokers::start_with(settings).await, links)
    }

    /// Starts what these settings say and waits until it serves.
    pub async fn start_with(settings: Settings) -> Brokers {
        let env = Env::system();
        let cluster = Cluster::start(settings, env.clone()).await.expect("the brokers start");
        let connected = async |access: &Access| {
            eventually(&env, "the test's own connection", || async {
                let options = access.connect_options().await.expect("credentials");
                // The test goes on asking when the member that it is connected to is frozen.
                let options = options.ping_interval(Duration::from_millis(250)).connection_timeout(CONNECT_WITHIN);
                options.connect(access.urls()).await.ok()
            })
            .await
        };
        let (admin, system) = (connected(cluster.access()).await, connected(cluster.system_access()).await);
        Brokers { env, cluster, admin, system }
    }

    /// The members.
    pub fn members(&self) -> &[Member] {
        self.cluster.members()
    }

    /// A store over a connection that moves to another member when it loses its own.
    pub async fn store(&self) -> Nats {
        let access = self.cluster.access();
        let options = access.connect_options().await.expect("credentials");
        self.connect(access.urls(), options).await.expect("connected")
    }

    /// A store over a connection to this member and no other.
    pub async fn store_at(&self, member: &Member) -> Nats {
        self.try_store_at(member).await.expect("connected")
    }

    /// The same; none when the member does not let anybody in.
    pub async fn try_store_at(&self, member: &Member) -> Option<Nats> {
        self.try_store_through(member.client_url()).await
    }

    /// A store over a connection to this address and no other; none when nobody lets it in there.
    pub async fn try_store_through(&self, url: String) -> Option<Nats> {
        let options = self.cluster.access().connect_options().await.expect("credentials").ignore_discovered_servers();
        self.connect(&[url], options).await
    }

    async fn connect(&self, urls: &[String], options: async_nats::ConnectOptions) -> Option<Nats> {
        let named = Options::named("test");
        let jetstream = Box::pin(Jetstream::connect(self.env.clone(), urls, options, named)).await;
        Some(Nats::new(jetstream.ok()?, Storage::File))
    }

    /// Settings for records whose buckets' names begin with `prefix`, on all members.
    pub fn settings(&self, prefix: &str) -> slots::Settings {
        let replicas = u8::try_from(self.members().len()).expect("a handful of members");
        slots::Settings { prefix: prefix.to_owned(), replicas, retention: Retention::default() }
    }

    /// The configuration of leases whose buckets begin with `prefix`, on every member, and whose seats end within `ttl`.
    pub fn config(&self, prefix: &str, ttl: Duration) -> Config {
        let replicas = u8::try_from(self.members().len()).expect("a few members");
        Config { prefix: prefix.to_owned(), lease_ttl: ttl, replicas, ..Config::default() }
    }

    /// Leases over `store`.
    pub async fn leases(&self, store: &Nats, config: &Config) -> Leases<Nats> {
        Leases::open(self.env.clone(), store, config).await.expect("the buckets open")
    }

    /// Starts the members that do not run, with their data, and waits until all serve together.
    pub async fn start_the_rest(&self) {
        let down = self.members().iter().filter(|member| !member.is_running());
        for started in join_all(down.map(Member::start)).await {
            started.expect("the member starts");
        }
        self.cluster.ready(SERVE_WITHIN).await.expect("the cluster serves");
    }

    /// The member that leads a stream.
    pub async fn leader(&self, stream: &str) -> &Member {
        eventually(&self.env, &format!("{stream} has a leader"), || async {
            let info = self.ask(&format!("STREAM.INFO.{stream}"), &json!({})).await?;
            let name = info["cluster"]["leader"].as_str().filter(|name| !name.is_empty())?;
            self.members().iter().find(|member| member.name() == name)
        })
        .await
    }

    /// Makes the leader of a stream hand over; false when it did not say that it did.
    pub async fn step_down(&self, stream: &str) -> bool {
        self.hand_over(stream, &json!({})).await
    }

    /// Makes `member` the leader of a stream.
    pub async fn lead(&self, stream: &str, member: &Member) {
        let preferred = json!({"placement": {"preferred": member.name()}});
        eventually(&self.env, &format!("{} leads {stream}", member.name()), || async {
            let leads = self.leader(stream).await.name() == member.name();
            if !leads {
                // Refused or unheard, it is asked for again.
                self.hand_over(stream, &preferred).await;
            }
            leads.then_some(())
        })
        .await;
    }

    async fn hand_over(&self, stream: &str, body: &Value) -> bool {
        let answer = self.ask(&format!("STREAM.LEADER.STEPDOWN.{stream}"), body).await;
        answer.is_some_and(|answer| answer["success"] == true)
    }

    /// How many consumers a stream has.
    pub async fn consumers(&self, stream: &str) -> Option<u64> {
        self.ask(&format!("STREAM.INFO.{stream}"), &json!({})).await?["state"]["consumer_count"].as_u64()
    }

    /// The member that runs the only consumer of a stream; none while there is not exactly one, or nobody says.
    pub async fn consumer_member(&self, stream: &str) -> Option<&Member> {
        let list = self.ask(&format!("CONSUMER.LIST.{stream}"), &json!({})).await?;
        let [consumer] = &list["consumers"].as_array()?[..] else { return None };
        self.members().iter().find(|member| consumer["cluster"]["leader"] == member.name())
    }

    /// The member that leads the cluster's metadata, which places streams and consumers.
    pub async fn meta_leader(&self) -> &Member {
        eventually(&self.env, "the metadata have a leader", || async {
            let told = self.every_server("JSZ").await;
            let leader = told.iter().find_map(|server| server["data"]["meta_cluster"]["leader"].as_str())?;
            self.members().iter().find(|member| member.name() == leader)
        })
        .await
    }

    /// How many subscriptions all members have together, of clients and of their own; none unless every one says.
    pub async fn subscriptions(&self) -> Option<u64> {
        let told = self.every_server("VARZ").await;
        let each = told.iter().map(|server| server["data"]["subscriptions"].as_u64());
        let all: Vec<u64> = each.collect::<Option<_>>()?;
        (all.len() == self.members().len()).then(|| all.into_iter().sum())
    }

    /// The members that answer for a stream beside its leader, from their own copies and in the leader's name: a leader is
    /// not among the replicas that its own answer lists.
    pub async fn answering_beside_the_leader(&self, stream: &str) -> Vec<&Member> {
        let told = answers(&self.env, &self.admin, format!("$JS.API.STREAM.INFO.{stream}"), self.members().len()).await;
        let listed = told.iter().map(|info| {
            let replicas = info["cluster"]["replicas"].as_array().into_iter().flatten();
            let names: Vec<&str> = replicas.filter_map(|replica| replica["name"].as_str()).collect();
            (info["cluster"]["leader"].as_str(), names)
        });
        let beside = listed.filter(|(leader, names)| leader.is_some_and(|leader| names.contains(&leader)));
        let members = beside.filter_map(|(_, names)| self.members().iter().find(|m| !names.contains(&m.name())));
        members.collect()
    }

    /// What every server says to one question to the system account, as far as they answer in time.
    async fn every_server(&self, what: &str) -> Vec<Value> {
        answers(&self.env, &self.system, format!("$SYS.REQ.SERVER.PING.{what}"), self.members().len()).await
    }

    /// One question to JetStream's API; none when nobody answers, or with an error.
    async fn ask(&self, subject: &str, body: &Value) -> Option<Value> {
        let request = self.admin.request(format!("$JS.API.{subject}"), body.to_string().into());
        let reply = self.env.within(self.env.now() + ASK_WITHIN, request).await.ok()?.ok()?;
        let answer: Value = serde_json::from_slice(&reply.payload).expect("JSON");
        answer.get("error").is_none().then_some(answer)
    }
}

/// The answers to one question, as many as come in time and at most so many.
async fn answers(env: &Env, client: &async_nats::Client, subject: String, most: usize) -> Vec<Value> {
    let inbox = client.new_inbox();
    let mut replies = client.subscribe(inbox.clone()).await.expect("subscribed");
    client.publish_with_reply(subject, inbox, "".into()).await.expect("there is room for it");
    let (mut told, until) = (Vec::new(), env.now() + ASK_WITHIN);
    while told.len() < most
        && let Ok(Some(reply)) = env.within(until, replies.next()).await
    {
        told.push(serde_json::from_slice(&reply.payload).expect("JSON"));
    }
    told
}
