//! A stream's description and, where a filter asked for it, its subject index: the reply to `STREAM.INFO`.
//!
//! The index of a large class is megabytes. It is walked once; its subjects stay where they stand in the reply, and an
//! [`Info`] holds the reply. The configuration is parsed only when somebody asks for it.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use jiff::Timestamp;

use super::requests::StreamConfig;
use super::scan::Scan;
use super::{Garbage, Reply, reply};

/// A stream as whoever answered sees it.
#[derive(Clone, Debug)]
pub struct Info {
    /// When the stream was created. A stream deleted and made again under its name has another.
    pub created: Timestamp,
    /// The broker's clock when it answered.
    pub ts: Timestamp,
    /// Messages held.
    pub messages: u64,
    /// The lowest sequence held; 0 when none ever was.
    pub first_seq: u64,
    /// The highest sequence ever assigned.
    pub last_seq: u64,
    /// Consumers on the stream.
    pub consumers: u64,
    /// Who leads, as far as the reply tells.
    pub leadership: Leadership,
    /// Subjects that match the filter, beyond this page too; 0 without a filter.
    pub total: u64,
    /// Most subjects a page may hold; 0 without a filter or a match.
    pub limit: u64,
    /// The subjects of this page; empty without a filter.
    pub subjects: Subjects,
    reply: Bytes,
    config: Range<usize>,
}

/// Who led when the reply was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// A member of a cluster, by the server's name.
    Led(Box<str>),
    /// A member answered that does not lead: its reply is its own memory and no answer. It knows no leader, or it names
    /// another one, as the member does that was to lead a stream first, during ten seconds from when that was made.
    Leaderless,
    /// A server outside any cluster; it is its own leader.
    Single,
}

/// The subjects of an index page, in the order of the reply.
#[derive(Clone, Debug, Default)]
pub struct Subjects {
    reply: Bytes,
    /// Subjects that had to be unescaped, one after another; positions beyond the reply's length point in here.
    unescaped: String,
    at: Vec<(u32, u32)>,
}

impl Subjects {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// Every subject. A server sorts them, but nothing here relies on it.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.at.iter().map(|&(start, end)| {
            let (start, end) = (start as usize, end as usize);
            match start.checked_sub(self.reply.len()) {
                None => std::str::from_utf8(&self.reply[start..end]).expect("checked when the reply was read"),
                Some(start) => &self.unescaped[start..end - self.reply.len()],
            }
        })
    }
}

impl Info {
    /// The configuration in force.
    ///
    /// # Errors
    /// When it is not a configuration this build can read.
    pub fn config(&self) -> Result<StreamConfig, Garbage> {
        serde_json::from_slice(&self.reply[self.config.clone()]).map_err(|_| Garbage("an unreadable configuration"))
    }
}

/// Reads the reply.
///
/// # Errors
/// When it is neither a whole description nor an error.
pub fn parse(payload: &Bytes) -> Result<Reply<Info>, Garbage> {
    // One check of the whole reply makes every subject in it valid text.
    if payload.len() > u32::MAX as usize / 2 || std::str::from_utf8(payload).is_err() {
        return Err(Garbage("a reply that is too long or not UTF-8"));
    }
    let (mut created, mut ts, mut total, mut limit, mut config) = (None, None, 0, 0, None);
    let (mut state, mut leadership, mut refused) = (None, Leadership::Leaderless, None);
    let mut scan = Scan::object(payload)?;
    while let Some(name) = scan.field()? {
        match name {
            b"error" => refused = Some(reply::error(&mut scan)?),
            b"total" => total = scan.number()?,
            b"limit" => limit = scan.number()?,
            b"config" => config = Some(scan.skip()?),
            b"created" => created = Some(time(&mut scan)?),
            b"ts" => ts = Some(time(&mut scan)?),
            b"state" => state = Some(State::read(&mut scan, payload)?),
            b"cluster" => leadership = cluster(&mut scan, payload)?,
            _ => {
                scan.skip()?;
            }
        }
    }
    scan.end()?;
    if let Some(error) = refused {
        return Ok(Reply::Refused(error));
    }
    let state = state.ok_or(Garbage("a stream without a state"))?;
    Ok(Reply::Ok(Info {
        created: created.ok_or(Garbage("a stream without a creation time"))?,
        ts: ts.ok_or(Garbage("a stream without the server's time"))?,
        messages: state.messages.ok_or(Garbage("a stream without a message count"))?,
        first_seq: state.first_seq.ok_or(Garbage("a stream without a first sequence"))?,
        last_seq: state.last_seq.ok_or(Garbage("a stream without a last sequence"))?,
        consumers: state.consumers,
        leadership,
        total,
        limit,
        subjects: state.subjects,
        reply: payload.clone(),
        config: config.ok_or(Garbage("a stream without a configuration"))?,
    }))
}

#[derive(Default)]
struct State {
    messages: Option<u64>,
    first_seq: Option<u64>,
    last_seq: Option<u64>,
    consumers: u64,
    subjects: Subjects,
}

impl State {
    fn read(scan: &mut Scan<'_>, payload: &Bytes) -> Result<State, Garbage> {
        let mut state = State::default();
        let mut expected = 0;
        scan.open()?;
        while let Some(name) = scan.field()? {
            match name {
                b"messages" => state.messages = Some(scan.number()?),
                b"first_seq" => state.first_seq = Some(scan.number()?),
                b"last_seq" => state.last_seq = Some(scan.number()?),
                b"num_subjects" => expected = scan.number()?,
                b"consumer_count" => state.consumers = scan.number()?,
                b"subjects" => state.subjects = subjects(scan, payload, expected)?,
                _ => {
                    scan.skip()?;
                }
            }
        }
        Ok(state)
    }
}

fn subjects(scan: &mut Scan<'_>, payload: &Bytes, expected: u64) -> Result<Subjects, Garbage> {
    // The count is of the whole stream; no subject takes fewer than 6 bytes of the reply, whatever the count says.
    let most = payload.len() / 6;
    let at = Vec::with_capacity(usize::try_from(expected).unwrap_or(usize::MAX).min(most).min(100_000));
    let mut found = Subjects { reply: payload.clone(), unescaped: String::new(), at };
    scan.open()?;
    while let Some(name) = scan.field_at()? {
        let (start, len) = if name.escaped {
            let start = payload.len() + found.unescaped.len();
            let text = name.unescape()?;
            found.unescaped.push_str(&text);
            (start, text.len())
        } else {
            (name.start, name.text.len())
        };
        // The reply is at most half of 32 bits long, and what is unescaped only shrinks.
        found.at.push((start as u32, (start + len) as u32));
        scan.number()?;
    }
    Ok(found)
}

/// Another member of a stream's group, as the one that answers lists them.
#[derive(serde::Deserialize)]
struct Replica<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
}

/// A cluster's member names its cluster, and the leader if it knows one. A server of its own names no cluster and itself as
/// leader. An answer that says nothing of either is treated as leaderless: nothing in it says who vouches for it. So is one
/// that lists the leader among the others: it is not the leader's.
fn cluster(scan: &mut Scan<'_>, payload: &[u8]) -> Result<Leadership, Garbage> {
    let (mut named, mut leader, mut replicas) = (false, None, Vec::new());
    scan.open()?;
    while let Some(name) = scan.field()? {
        match name {
            b"name" => named = !scan.string()?.text.is_empty(),
            b"leader" => leader = Some(scan.string()?.unescape()?),
            b"replicas" => {
                replicas = serde_json::from_slice::<Vec<Replica<'_>>>(&payload[scan.skip()?])
                    .map_err(|_| Garbage("a group whose members cannot be read"))?;
            }
            _ => {
                scan.skip()?;
            }
        }
    }
    Ok(match leader.filter(|name| !name.is_empty()) {
        None => Leadership::Leaderless,
        Some(_) if !named => Leadership::Single,
        Some(name) if replicas.iter().any(|replica| replica.name == name) => Leadership::Leaderless,
        Some(name) => Leadership::Led(name.into()),
    })
}

fn time(scan: &mut Scan<'_>) -> Result<Timestamp, Garbage> {
    let text = scan.string()?.text;
    std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).ok_or(Garbage("a time that cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::super::ApiError;
    use super::*;
    use std::time::Duration;

    const CLUSTERED: &str = r#"{"name":"C","raft_group":"S-R3F-odLRxweL","leader":"n2","leader_since":"2026-11-30T08:48:01.505517829Z","replicas":[{"name":"n1","current":true,"active":340273671,"peer":"fjFyEjc1"}]}"#;
    const LEADERLESS: &str = r#"{"name":"C","raft_group":"S-R3F-odLRxweL","replicas":[{"name":"n1","current":false,"active":256266084,"peer":"fjFyEjc1"}]}"#;

    fn reply(subjects: &str, cluster: &str) -> Bytes {
        format!(
            r#"{{"type":"io.nats.jetstream.api.v1.stream_info_response","total":2,"offset":0,"limit":100000,"config":{{"name":"KV_t","subjects":["$KV.t.\u003e"],"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":60000000000,"max_msgs_per_subject":1,"max_msg_size":-1,"discard":"new","storage":"file","num_replicas":1,"duplicate_window":60000000000,"compression":"none","allow_direct":true,"mirror_direct":false,"sealed":false,"deny_delete":true,"deny_purge":false,"allow_rollup_hdrs":true,"consumer_limits":{{}},"allow_msg_ttl":false,"metadata":{{"_nats.level":"5"}}}},"created":"2026-11-30T08:47:33.147133826Z","state":{{"messages":2,"bytes":171,"first_seq":2,"first_ts":"2026-11-30T08:47:33.148754874Z","last_seq":3,"last_ts":"2026-11-30T08:47:33.148838508Z","num_subjects":2{subjects},"consumer_count":4}}{cluster},"ts":"2026-11-30T08:47:33.14980906Z"}}"#
        )
        .into()
    }

    fn info(subjects: &str, cluster: &str) -> Info {
        match parse(&reply(subjects, cluster)) {
            Ok(Reply::Ok(info)) => info,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_stream_as_a_single_server_describes_it() {
        let info = info(r#","subjects":{"$KV.t.a":1,"$KV.t.b":1}"#, r#","cluster":{"leader":"solo"}"#);
        assert_eq!(info.leadership, Leadership::Single);
        assert_eq!((info.messages, info.first_seq, info.last_seq, info.consumers), (2, 2, 3, 4));
        assert_eq!((info.total, info.limit), (2, 100_000));
        assert_eq!(info.ts, "2026-11-30T08:47:33.14980906Z".parse().unwrap());
        assert_eq!(info.subjects.iter().collect::<Vec<_>>(), ["$KV.t.a", "$KV.t.b"]);
        let config = info.config().unwrap();
        assert_eq!((config.max_age, config.replicas), (Duration::from_secs(60), 1));
    }

    #[test]
    fn who_leads_is_read_and_never_assumed() {
        let leadership = |cluster: &str| info("", cluster).leadership;
        assert_eq!(leadership(&format!(r#","cluster":{CLUSTERED}"#)), Leadership::Led("n2".into()));
        assert_eq!(leadership(r#","cluster":{"name":"C","leader":"n1"}"#), Leadership::Led("n1".into()));
        assert_eq!(leadership(&format!(r#","cluster":{LEADERLESS}"#)), Leadership::Leaderless);
        assert_eq!(leadership(r#","cluster":{"name":"C","leader":""}"#), Leadership::Leaderless);
        // A follower's answer: who leads is among the others.
        let beside = CLUSTERED.replace(r#""name":"n1""#, r#""name":"n1"},{"name":"n2""#);
        assert_eq!(leadership(&format!(r#","cluster":{beside}"#)), Leadership::Leaderless);
        assert_eq!(leadership(r#","cluster":{"name":"C","leader":"n1","replicas":[]}"#), Leadership::Led("n1".into()));
        assert_eq!(leadership(r#","cluster":{}"#), Leadership::Leaderless);
        assert_eq!(leadership(""), Leadership::Leaderless);
    }

    #[test]
    fn escaped_subjects_come_out_as_they_are() {
        let info = info(r#","subjects":{"$KV.t.a":1,"$KV.t.\u0026x":1,"$KV.t.\"":1,"$KV.t.z":1}"#, "");
        assert_eq!(info.subjects.iter().collect::<Vec<_>>(), ["$KV.t.a", "$KV.t.&x", "$KV.t.\"", "$KV.t.z"]);
        assert_eq!(info.subjects.len(), 4);
    }

    #[test]
    fn no_match_is_an_empty_index() {
        assert!(info("", "").subjects.is_empty());
        assert!(info(r#","subjects":{}"#, "").subjects.is_empty());
    }

    #[test]
    fn a_hundred_thousand_subjects_come_back_as_sent() {
        let names: Vec<String> = (0..100_000).map(|n| format!("$KV.leases.seat.{n:06}")).collect();
        let index: Vec<String> = names.iter().map(|name| format!("\"{name}\":1")).collect();
        let info = info(&format!(r#","subjects":{{{}}}"#, index.join(",")), "");
        assert!(info.subjects.iter().eq(names.iter().map(String::as_str)));
    }

    #[test]
    fn what_lacks_a_part_is_garbage() {
        let whole = String::from_utf8(reply("", "").to_vec()).unwrap();
        for part in [
            r#","created":"2026-11-30T08:47:33.147133826Z""#,
            r#","ts":"2026-11-30T08:47:33.14980906Z""#,
            r#""last_seq":3,"#,
            r#""messages":2,"#,
            r#""first_seq":2,"#,
        ] {
            let text = whole.replace(part, "");
            assert_ne!(text, whole);
            assert!(parse(&text.into()).is_err(), "{part}");
        }
        assert!(parse(&whole.replace("\"config\"", "\"confiG\"").into()).is_err());
        assert!(parse(&whole.replace("\"state\"", "\"statE\"").into()).is_err());
        assert!(parse(&Bytes::from_static(b"\xff")).is_err());
    }

    #[test]
    fn an_error_is_told_as_one() {
        let text = Bytes::from_static(br#"{"type":"t","error":{"code":404,"err_code":10059,"description":"stream not found"},"total":0,"offset":0,"limit":0}"#);
        match parse(&text) {
            Ok(Reply::Refused(error)) => assert_eq!(error, ApiError { code: 404, err_code: 10059, operand: None }),
            other => panic!("{other:?}"),
        }
    }
}
