//! What each broker says of itself: its consumers, its subscriptions, and its copy of every stream. Asked over the system
//! account, whose `JSZ` and `STATSZ` every server answers for itself and not for the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::Client;
use engine::broker::Access;
use engine::env::Env;
use futures_util::StreamExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::target::Unavailable;

/// How long all may take to answer; who did not by then is missing from that round.
const WITHIN: Duration = Duration::from_secs(2);

/// A connection that asks all brokers.
pub(super) struct Members {
    env: Env,
    system: Client,
}

/// How one broker is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) consumers: u64,
    pub(super) subscriptions: u64,
    pub(super) streams: Streams,
}

/// A broker's copies, by stream.
pub(super) type Streams = BTreeMap<String, Held>;

/// One broker's copy of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Held {
    pub(super) messages: u64,
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
}

#[derive(Deserialize)]
struct Answer<T> {
    server: Server,
    #[serde(alias = "statsz")]
    data: Option<T>,
}

#[derive(Deserialize)]
struct Server {
    name: String,
}

/// `JSZ`, fields by their names there.
#[derive(Deserialize)]
struct Jsz {
    #[serde(default)]
    consumers: u64,
    #[serde(default)]
    account_details: Vec<Account>,
}

#[derive(Deserialize)]
struct Account {
    name: String,
    #[serde(default)]
    stream_detail: Vec<Stream>,
}

#[derive(Deserialize)]
struct Stream {
    name: String,
    state: Held,
}

/// `STATSZ`.
#[derive(Deserialize)]
struct Statsz {
    subscriptions: u64,
}

impl Members {
    /// Connects to the system account.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub(super) async fn connect(env: &Env, system: &Access) -> Result<Members, Unavailable> {
        let options = system.connect_options().await?;
        let connected = Box::pin(options.name("loadgen-soak").connect(system.urls())).await;
        let system = connected.map_err(|error| Unavailable::System(error.to_string()))?;
        Ok(Members { env: env.clone(), system })
    }

    /// How each of `of` brokers is, by name; without those that did not answer both questions in time.
    pub(super) async fn states(&self, of: usize) -> BTreeMap<String, State> {
        let (jsz, statsz) = tokio::join!(
            self.ask::<Jsz>("JSZ", r#"{"accounts":true,"streams":true}"#, of),
            self.ask::<Statsz>("STATSZ", "", of)
        );
        let state = |(name, jsz): (String, Jsz)| {
            let subscriptions = statsz.get(&name)?.subscriptions;
            let streams = jsz.account_details.into_iter().flat_map(|account| {
                account.stream_detail.into_iter().map(move |s| (format!("{} {}", account.name, s.name), s.state))
            });
            Some((name, State { consumers: jsz.consumers, subscriptions, streams: streams.collect() }))
        };
        jsz.into_iter().filter_map(state).collect()
    }

    async fn ask<T: DeserializeOwned>(&self, what: &str, body: &'static str, of: usize) -> BTreeMap<String, T> {
        let mut answers = BTreeMap::new();
        let gather = async {
            let inbox = self.system.new_inbox();
            let Ok(mut replies) = self.system.subscribe(inbox.clone()).await else { return };
            let subject = format!("$SYS.REQ.SERVER.PING.{what}");
            if self.system.publish_with_reply(subject, inbox, body.into()).await.is_err() {
                return;
            }
            while answers.len() < of
                && let Some(reply) = replies.next().await
            {
                if let Ok(Answer { server, data: Some(data) }) = serde_json::from_slice(&reply.payload) {
                    answers.insert(server.name, data);
                }
            }
        };
        // Who is late is missing.
        let _late = self.env.within(self.env.now() + WITHIN, gather).await;
        answers
    }
}

/// How many streams two brokers hold different copies of.
pub(super) fn differing(states: &BTreeMap<String, State>) -> u64 {
    let differs = |stream: &&String| {
        let mut copies = states.values().filter_map(|state| state.streams.get(*stream));
        let first = copies.next();
        copies.any(|copy| Some(copy) != first)
    };
    streams(states).iter().filter(differs).count() as u64
}

/// By how many messages at most a broker's copy of any stream is behind another's.
pub(super) fn behind(states: &BTreeMap<String, State>, name: &str) -> u64 {
    let Some(own) = states.get(name) else { return 0 };
    let lag = |(stream, held): (&String, &Held)| {
        let last = states.values().filter_map(|state| state.streams.get(stream)).map(|copy| copy.last_seq).max();
        last.unwrap_or(0).saturating_sub(held.last_seq)
    };
    own.streams.iter().map(lag).max().unwrap_or(0)
}

fn streams(states: &BTreeMap<String, State>) -> Vec<String> {
    let mut names: Vec<String> = states.values().flat_map(|state| state.streams.keys().cloned()).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(last_seq: u64, messages: u64) -> State {
        let held = Held { messages, first_seq: 1, last_seq };
        let streams = [("A KV_seats".to_owned(), held), ("A KV_epochs".to_owned(), Held::default())];
        State { consumers: 0, subscriptions: 9, streams: streams.into_iter().collect() }
    }

    #[test]
    fn copies_are_told_apart_by_what_they_hold() {
        let of = |states: [State; 3]| ["n1", "n2", "n3"].map(str::to_owned).into_iter().zip(states).collect();
        let equal = of([state(7, 5), state(7, 5), state(7, 5)]);
        assert_eq!((differing(&equal), behind(&equal, "n1")), (0, 0));
        let late = of([state(7, 5), state(4, 4), state(7, 5)]);
        assert_eq!((differing(&late), behind(&late, "n1"), behind(&late, "n2")), (1, 0, 3));
        let holed = of([state(7, 5), state(7, 4), state(7, 5)]);
        assert_eq!((differing(&holed), behind(&holed, "n2")), (1, 0));
        assert_eq!((differing(&BTreeMap::new()), behind(&BTreeMap::new(), "n1")), (0, 0));
    }

    #[test]
    fn an_answer_is_read_as_a_server_gives_it() {
        let text = r#"{"server":{"name":"n1","host":"h"},"data":{"streams":1,"consumers":2,"messages":5,"account_details":[
            {"name":"CREWLET","id":"CREWLET","stream_detail":[
                {"name":"KV_a","state":{"messages":5,"bytes":9,"first_seq":2,"first_ts":"x","last_seq":7,"consumer_count":2}}]},
            {"name":"TRIAL","id":"TRIAL"}]}}"#;
        let answer: Answer<Jsz> = serde_json::from_str(text).unwrap();
        let jsz = answer.data.unwrap();
        assert_eq!((answer.server.name.as_str(), jsz.consumers, jsz.account_details.len()), ("n1", 2, 2));
        assert_eq!(jsz.account_details[0].stream_detail[0].state, Held { messages: 5, first_seq: 2, last_seq: 7 });
        let text = r#"{"server":{"name":"n1"},"statsz":{"mem":1,"subscriptions":99}}"#;
        let answer: Answer<Statsz> = serde_json::from_str(text).unwrap();
        assert_eq!(answer.data.unwrap().subscriptions, 99);
    }
}
