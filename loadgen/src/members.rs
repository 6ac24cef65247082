//! What each broker says of itself: its consumers, its subscriptions, its copy of every stream, and how far the copies that it
//! leads are behind elsewhere. Asked over the system account, whose `JSZ` and `STATSZ` every server answers for itself and
//! not for the cluster.
//!
//! An answer that lacks what every answer has is none. A broker that gave none is missing from a round, and never at rest.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_nats::Client;
use engine::broker::Access;
use engine::env::Env;
use futures_util::StreamExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::sampler::Sampler;
use crate::table::units::plural;
use crate::target::Unavailable;

/// From one look at the lag of copies to the next.
const LAG_EVERY: Duration = Duration::from_secs(5);

/// How long all may take to answer; who did not by then is missing from that round.
const WITHIN: Duration = Duration::from_secs(2);

/// A connection that asks all brokers.
pub(crate) struct Members {
    env: Env,
    system: Client,
}

/// How one broker is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) consumers: u64,
    pub(crate) subscriptions: u64,
    pub(crate) streams: Streams,
}

/// A broker's copies, by account and stream.
pub(crate) type Streams = BTreeMap<String, Held>;

/// One broker's copy of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Held {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
}

/// The streams of a run, by what their names begin with, and how many copies each has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copies<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) replicas: usize,
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

/// `JSZ`, fields by their names there. A server leaves out an empty list, an empty cluster and a lag of zero, and nothing else.
#[derive(Deserialize)]
struct Jsz {
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
    cluster: Option<Group>,
}

/// Who keeps copies of a stream.
#[derive(Deserialize)]
struct Group {
    leader: Option<String>,
    #[serde(default)]
    replicas: Vec<Replica>,
}

/// A copy that is not the answering broker's, with the entries that it lacks. Only the leader knows how many.
#[derive(Deserialize)]
struct Replica {
    name: String,
    #[serde(default)]
    lag: u64,
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
    pub(crate) async fn connect(env: &Env, system: &Access) -> Result<Members, Unavailable> {
        let options = system.connect_options().await?;
        let connected = Box::pin(options.name("loadgen-members").connect(system.urls())).await;
        let system = connected.map_err(|error| Unavailable::System(error.to_string()))?;
        Ok(Members { env: env.clone(), system })
    }

    /// How each of `of` brokers is, by name; without those that did not answer both questions in time.
    pub(crate) async fn states(&self, of: usize) -> BTreeMap<String, State> {
        let (jsz, statsz) = tokio::join!(self.jsz(of), self.ask::<Statsz>("STATSZ", "", of));
        let state = |(name, jsz): (String, Jsz)| {
            let subscriptions = statsz.get(&name)?.subscriptions;
            let streams = jsz.account_details.into_iter().flat_map(|account| {
                account.stream_detail.into_iter().map(move |s| (format!("{} {}", account.name, s.name), s.state))
            });
            Some((name, State { consumers: jsz.consumers, subscriptions, streams: streams.collect() }))
        };
        jsz.into_iter().filter_map(state).collect()
    }

    /// Tells a sampler every few seconds how far each of `of` brokers is behind, until dropped.
    pub(crate) async fn watch_lag(&self, of: usize, sampler: &Sampler) -> std::convert::Infallible {
        loop {
            let now = self.env.now();
            let answers = self.jsz(of).await;
            for (name, entries) in lags(&answers) {
                sampler.lag(name, now, entries);
            }
            self.env.sleep_until(now + LAG_EVERY).await;
        }
    }

    async fn jsz(&self, of: usize) -> BTreeMap<String, Jsz> {
        self.ask::<Jsz>("JSZ", r#"{"accounts":true,"streams":true}"#, of).await
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
                match serde_json::from_slice(&reply.payload) {
                    Ok(Answer { server, data: Some(data) }) => drop(answers.insert(server.name, data)),
                    Ok(Answer { server, data: None }) => {
                        tracing::debug!(what, server = server.name, "member_told_nothing")
                    }
                    Err(error) => tracing::debug!(what, %error, "member_answer_unread"),
                }
            }
        };
        // Who is late is missing.
        let _late = self.env.within(self.env.now() + WITHIN, gather).await;
        answers
    }
}

/// Every stream that two brokers hold different copies of, or that is the run's and has not all its copies, in words that name
/// the brokers and what each holds. That there is none of the run's at all is one too.
pub(crate) fn differing(states: &BTreeMap<String, State>, run: Copies<'_>) -> Vec<String> {
    let all = streams(states);
    let differing = |stream: &String| {
        // Brokers that hold the same, in the order of their names.
        let mut copies: Vec<(Held, Vec<&str>)> = Vec::new();
        for (name, held) in states.iter().filter_map(|(name, state)| Some((name, *state.streams.get(stream)?))) {
            match copies.iter_mut().find(|(other, _)| *other == held) {
                Some((_, brokers)) => brokers.push(name),
                None => copies.push((held, vec![name])),
            }
        }
        let short = run.owns(stream) && !run.whole(states, 0, stream);
        let each = copies.iter().map(|(held, brokers)| format!("{} with {held}", brokers.join(" and ")));
        let each = each.collect::<Vec<_>>().join("; ");
        let expected = plural(run.replicas as u64, "copy", "copies");
        let expected = if short { format!("; {expected} expected") } else { String::new() };
        (short || copies.len() > 1).then(|| format!("{stream}: {each}{expected}"))
    };
    let mut found: Vec<String> = all.iter().filter_map(differing).collect();
    if !all.iter().any(|stream| run.owns(stream)) {
        found.push(format!("KV_{}*: no broker holds a copy of any", run.prefix));
    }
    found
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Held { messages, bytes, first_seq, last_seq } = self;
        write!(f, "{messages} messages, {bytes} bytes, {first_seq} to {last_seq}")
    }
}

impl Copies<'_> {
    /// Whether the run's streams are there, and each has all its copies but for as many as brokers gave no answer.
    pub(crate) fn are_there(self, states: &BTreeMap<String, State>, silent: usize) -> bool {
        let own: Vec<String> = streams(states).into_iter().filter(|stream| self.owns(stream)).collect();
        !own.is_empty() && own.iter().all(|stream| self.whole(states, silent, stream))
    }

    fn owns(self, stream: &str) -> bool {
        let name = stream.rsplit(' ').next().unwrap_or(stream);
        name.strip_prefix("KV_").is_some_and(|bucket| bucket.starts_with(self.prefix))
    }

    fn whole(self, states: &BTreeMap<String, State>, silent: usize, stream: &str) -> bool {
        states.values().filter(|state| state.streams.contains_key(stream)).count() + silent >= self.replicas
    }
}

/// How many entries each broker lacks at most of any stream, as the stream's leader has it. One that leads lacks none.
fn lags(answers: &BTreeMap<String, Jsz>) -> BTreeMap<&str, u64> {
    let mut lags = BTreeMap::new();
    for (name, jsz) in answers {
        let streams = jsz.account_details.iter().flat_map(|account| &account.stream_detail);
        let groups = streams.filter_map(|stream| stream.cluster.as_ref());
        for group in groups.filter(|group| group.leader.as_ref() == Some(name)) {
            lags.entry(&**name).or_default();
            for Replica { name, lag } in &group.replicas {
                let most: &mut u64 = lags.entry(name).or_default();
                *most = (*most).max(*lag);
            }
        }
    }
    lags
}

/// By how many messages at most a broker's copy of any stream is behind another's.
pub(crate) fn behind(states: &BTreeMap<String, State>, name: &str) -> u64 {
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
        let held = Held { messages, bytes: messages * 100, first_seq: 1, last_seq };
        let streams = [("A KV_run_seats".to_owned(), held), ("A KV_run_epochs".to_owned(), Held::default())];
        State { consumers: 0, subscriptions: 9, streams: streams.into_iter().collect() }
    }

    const RUN: Copies<'_> = Copies { prefix: "run", replicas: 3 };

    fn of(states: [State; 3]) -> BTreeMap<String, State> {
        ["n1", "n2", "n3"].map(str::to_owned).into_iter().zip(states).collect()
    }

    #[test]
    fn copies_are_told_apart_by_what_they_hold() {
        let differing = |states: &BTreeMap<String, State>| differing(states, RUN).len();
        let equal = of([state(7, 5), state(7, 5), state(7, 5)]);
        assert_eq!((differing(&equal), behind(&equal, "n1")), (0, 0));
        let late = of([state(7, 5), state(4, 4), state(7, 5)]);
        assert_eq!((differing(&late), behind(&late, "n1"), behind(&late, "n2")), (1, 0, 3));
        let holed = of([state(7, 5), state(7, 4), state(7, 5)]);
        assert_eq!((differing(&holed), behind(&holed, "n2")), (1, 0));
        let mut other = of([state(7, 5), state(7, 5), state(7, 5)]);
        other.get_mut("n3").unwrap().streams.get_mut("A KV_run_seats").unwrap().bytes += 1;
        assert_eq!(differing(&other), 1, "as many messages, and other ones");
    }

    #[test]
    fn a_difference_names_the_stream_the_brokers_and_what_each_holds() {
        let late = of([state(7, 5), state(4, 4), state(7, 5)]);
        let found =
            "A KV_run_seats: n1 and n3 with 5 messages, 500 bytes, 1 to 7; n2 with 4 messages, 400 bytes, 1 to 4";
        assert_eq!(differing(&late, RUN), [found]);
        let mut short = of([state(7, 5), state(7, 5), state(7, 5)]);
        short.get_mut("n2").unwrap().streams.remove("A KV_run_seats");
        let found = "A KV_run_seats: n1 and n3 with 5 messages, 500 bytes, 1 to 7; 3 copies expected";
        assert_eq!(differing(&short, RUN), [found]);
        let others = Copies { prefix: "other", replicas: 3 };
        assert_eq!(differing(&short, others), ["KV_other*: no broker holds a copy of any"]);
    }

    #[test]
    fn a_copy_that_is_not_there_is_a_difference_and_so_are_none() {
        let mut short = of([state(7, 5), state(7, 5), state(7, 5)]);
        assert!(RUN.are_there(&short, 0));
        short.get_mut("n2").unwrap().streams.remove("A KV_run_seats");
        assert_eq!((differing(&short, RUN).len(), RUN.are_there(&short, 0)), (1, false));
        short.remove("n2");
        assert!(!RUN.are_there(&short, 0) && RUN.are_there(&short, 1), "its broker gave no answer");
        for state in short.values_mut() {
            state.streams.clear();
        }
        assert_eq!((differing(&short, RUN).len(), RUN.are_there(&short, 1)), (1, false), "nothing was told of any");
        assert_eq!(differing(&BTreeMap::new(), RUN).len(), 1);
        let others = Copies { prefix: "other", replicas: 3 };
        let theirs = differing(&of([state(7, 5), state(7, 5), state(7, 5)]), others);
        assert_eq!(theirs.len(), 1, "somebody else's streams alone");
    }

    #[test]
    fn an_answer_without_what_every_answer_has_is_none() {
        let read =
            |data: &str| serde_json::from_str::<Answer<Jsz>>(&format!(r#"{{"server":{{"name":"n1"}},"data":{data}}}"#));
        assert!(read(r#"{"consumers":0}"#).is_ok(), "no stream was made yet");
        for data in [
            "{}",
            r#"{"account_details":[]}"#,
            r#"{"consumers":0,"account_details":[{"name":"A","stream_detail":[{"name":"KV_a"}]}]}"#,
            r#"{"consumers":0,"account_details":[{"name":"A","stream_detail":[{"name":"KV_a","state":{"messages":5}}]}]}"#,
        ] {
            assert!(read(data).is_err(), "{data}");
        }
    }

    #[test]
    fn a_leader_alone_knows_who_is_behind() {
        let jsz = |leader: &str, lag: u64| {
            let replicas = format!(r#"[{{"name":"n1","current":true}},{{"name":"n3","lag":{lag}}}]"#);
            let cluster = format!(r#"{{"leader":"{leader}","replicas":{replicas}}}"#);
            let state = r#"{"messages":5,"bytes":9,"first_seq":2,"last_seq":7}"#;
            let stream = format!(r#"{{"name":"KV_a","state":{state},"cluster":{cluster}}}"#);
            let details = format!(r#"[{{"name":"A","stream_detail":[{stream}]}}]"#);
            serde_json::from_str::<Jsz>(&format!(r#"{{"consumers":0,"account_details":{details}}}"#)).unwrap()
        };
        let answers: BTreeMap<String, Jsz> =
            [("n2".to_owned(), jsz("n2", 4)), ("n1".to_owned(), jsz("n2", 900))].into();
        assert_eq!(lags(&answers), [("n1", 0), ("n2", 0), ("n3", 4)].into());
        assert_eq!(lags(&BTreeMap::new()), BTreeMap::new());
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
        assert_eq!(
            jsz.account_details[0].stream_detail[0].state,
            Held { messages: 5, bytes: 9, first_seq: 2, last_seq: 7 }
        );
        let text = r#"{"server":{"name":"n1"},"statsz":{"mem":1,"subscriptions":99}}"#;
        let answer: Answer<Statsz> = serde_json::from_str(text).unwrap();
        assert_eq!(answer.data.unwrap().subscriptions, 99);
    }
}
