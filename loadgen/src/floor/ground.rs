//! The ground that bare requests are made on: streams of a run's own, filled with keys, and the way to every broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coordproto::api::requests::{Discard, Storage, StreamConfig};
use coordproto::api::{Reply, puback};
use engine::broker::{Access, Auth};
use engine::env::Env;
use engine::store::nats::Nats;
use engine::store::{BucketSpec, OpenError, Store};
use futures_util::future::try_join_all;

use super::lean::{Lean, LeanError, PATIENCE, User};
use super::params::{Load, Request};
use crate::target::Unavailable;

/// How many keys are written at once while a stream is filled.
const AT_ONCE: usize = 256;

/// The bytes of a value.
pub(super) const VALUE: usize = 200;

/// How many companies and seats charges are about, at most.
const COMPANIES: usize = 32;

/// A stream as requests name it.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// The bucket that it would be.
    bucket: String,
}

impl Stream {
    pub(super) fn new(bucket: String) -> Stream {
        Stream { bucket }
    }

    /// Its name.
    pub(super) fn name(&self) -> String {
        format!("KV_{}", self.bucket)
    }

    /// The subject of a key: a family's letter and a number.
    pub(super) fn subject(&self, family: char, key: usize) -> String {
        format!("$KV.{}.{family}.{key}", self.bucket)
    }

    /// The filter that matches a family.
    pub(super) fn filter(&self, family: char) -> String {
        format!("$KV.{}.{family}.>", self.bucket)
    }
}

/// A key that requests are about.
pub(super) const KEY: char = 'k';
/// A key of the class that is listed.
pub(super) const OF_THE_CLASS: char = 'c';
/// A company's record.
pub(super) const COMPANY: char = 'o';
/// A seat's record.
pub(super) const SEAT: char = 's';

/// The ground of a run. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(super) env: Env,
    addresses: Arc<[String]>,
    user: Option<User>,
    pub(super) streams: Arc<Streams>,
    /// Where the keys stand.
    pub(super) revisions: Arc<[AtomicU64]>,
    /// Keys of the class.
    pub(super) keys: usize,
}

/// The streams of a run.
#[derive(Debug)]
pub(super) struct Streams {
    /// Like any bucket.
    pub(super) plain: Stream,
    /// One that takes atomic batches.
    pub(super) atomic: Stream,
    /// One of message counters.
    pub(super) counters: Stream,
}

impl Streams {
    fn of(prefix: &str) -> Streams {
        let stream = |suffix| Stream::new(format!("{prefix}_floor{suffix}"));
        Streams { plain: stream(""), atomic: stream("_atomic"), counters: stream("_counters") }
    }

    /// The one that a request is about.
    pub(super) fn about(&self, request: Request) -> &Stream {
        match request {
            Request::Batch => &self.atomic,
            Request::Increment | Request::Counters => &self.counters,
            _ => &self.plain,
        }
    }
}

impl Ground {
    /// The buckets of any ground of this name.
    pub(crate) fn buckets(prefix: &str) -> Vec<String> {
        let Streams { plain, atomic, counters } = Streams::of(prefix);
        [plain, atomic, counters].map(|stream| stream.bucket).to_vec()
    }

    /// Makes the streams that these loads are about, with what they are about in them: over `store` what is made once, over a
    /// bare connection what is written.
    ///
    /// # Errors
    /// When the brokers cannot be reached as a bare client reaches them, or do not make a stream.
    pub(crate) async fn prepare(
        env: &Env,
        access: &Access,
        store: &Nats,
        (prefix, replicas): (&str, u8),
        keys: usize,
        loads: &[Load],
    ) -> Result<Ground, Unavailable> {
        let (addresses, user) = reached(access)?;
        let streams = Arc::new(Streams::of(prefix));
        let asked = |request: Request| loads.iter().any(|load| load.request == request);
        let mut ground =
            Ground { env: env.clone(), addresses, user, streams: streams.clone(), revisions: Arc::new([]), keys };
        for (stream, flag) in [
            (&streams.plain, None),
            (&streams.atomic, Some("allow_atomic")),
            (&streams.counters, Some("allow_msg_counter")),
        ] {
            let wanted = loads.iter().any(|load| streams.about(load.request).bucket == stream.bucket);
            if !wanted {
                continue;
            }
            if let Some(flag) = flag {
                make(store, &stream.bucket, replicas, flag).await?;
            }
            if stream.bucket == streams.counters.bucket {
                ground.count_everywhere(stream).await?;
                continue;
            }
            // Adopts what has just been made, and waits until a write reaches its leader.
            let spec = BucketSpec { name: stream.bucket.clone(), age: None, raise_age: false, replicas };
            store.open(&spec).await?;
        }
        let about_keys = |load: &&Load| streams.about(load.request).bucket == streams.plain.bucket;
        let spread = loads.iter().filter(about_keys).map(Load::spread).max().unwrap_or(0);
        let mut lean = ground.to_any(0).await?;
        ground.revisions =
            fill(&mut lean, &streams.plain, KEY, spread).await?.into_iter().map(AtomicU64::new).collect();
        if loads.iter().any(|load| load.request.is_of_a_class()) {
            fill(&mut lean, &streams.plain, OF_THE_CLASS, keys).await?;
        }
        for (request, stream) in [(Request::TwoWrites, &streams.plain), (Request::Batch, &streams.atomic)] {
            if asked(request) {
                fill(&mut lean, stream, COMPANY, COMPANIES).await?;
                fill(&mut lean, stream, SEAT, COMPANIES).await?;
            }
        }
        Ok(ground)
    }

    /// Waits until an increment reaches the leader of a stream of counters through every broker, which they hear of one by one.
    async fn count_everywhere(&self, stream: &Stream) -> Result<(), LeanError> {
        let by = self.env.now() + PATIENCE;
        for number in 0..self.addresses.len() {
            let mut lean = self.to_any(number).await?;
            let mut counted = false;
            while !counted {
                lean.ask_with(Some(0), stream.subject(KEY, 0), format_args!("Nats-Incr: +0\r\n"), b"");
                counted = lean.answer(0, |answer| matches!(puback::parse(answer.payload), Ok(Reply::Ok(_)))).await?;
                if !counted && self.env.now() >= by {
                    return Err(LeanError::Silent { address: stream.name(), within: PATIENCE });
                }
                self.env.sleep(self.env.jitter(Duration::from_millis(if counted { 0 } else { 20 }))).await;
            }
        }
        Ok(())
    }

    /// A connection of this number to the brokers, which take turns.
    pub(super) async fn to_any(&self, number: usize) -> Result<Lean, LeanError> {
        Lean::connect(&self.env, &self.addresses[number % self.addresses.len()], self.user.as_ref()).await
    }

    /// The connections that a load is made over: a single one to its stream's leader, so that nothing stands between; of more,
    /// each broker has its share.
    pub(super) async fn connections(&self, load: &Load) -> Result<Vec<Lean>, LeanError> {
        if load.connections > 1 {
            return try_join_all((0..load.connections).map(|number| self.to_any(number))).await;
        }
        let stream = self.streams.about(load.request);
        let mut lean = self.to_any(0).await?;
        lean.ask(0, format_args!("$JS.API.STREAM.INFO.{}", stream.name()), b"");
        let leader = lean.answer(0, |message| leader(message.payload).map(str::to_owned)).await?;
        for number in 1..self.addresses.len() {
            if leader.as_deref().is_none_or(|leader| leader == lean.server()) {
                break;
            }
            lean = self.to_any(number).await?;
        }
        Ok(vec![lean])
    }

    /// Where a key stands.
    pub(super) fn revision(&self, key: usize) -> u64 {
        self.revisions[key].load(Ordering::Relaxed)
    }
}

/// The leader's name in the information on a stream; none outside a cluster.
fn leader(info: &[u8]) -> Option<&str> {
    let rest = &info[memchr::memmem::find(info, br#""leader":""#)? + 10..];
    std::str::from_utf8(&rest[..memchr::memchr(b'"', rest)?]).ok()
}

/// The brokers' addresses, and who the client is there.
fn reached(access: &Access) -> Result<(Arc<[String]>, Option<User>), Unavailable> {
    let bare = |rule: &'static str| coordproto::answer::BadArgument::new("floor", access.urls().join(","), rule);
    let user = match access.auth() {
        Auth::Open => None,
        Auth::Password { user, password } => Some(User { name: user.clone(), password: password.clone() }),
        Auth::Credentials(_) => {
            return Err(bare("bare requests know no credentials file, only a user and a password").into());
        }
    };
    let plain = |url: &String| {
        let host = url.strip_prefix("nats://")?;
        // An address of the sixth version has colons of its own, in brackets.
        let has_port = host.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
        Some(if has_port { host.to_owned() } else { format!("{host}:4222") })
    };
    let addresses = access.urls().iter().map(plain).collect::<Option<_>>();
    Ok((addresses.ok_or_else(|| bare("bare requests speak no TLS: nats:// alone"))?, user))
}

/// Makes a stream that is a bucket in all but one flag.
async fn make(store: &Nats, bucket: &str, replicas: u8, flag: &str) -> Result<(), Unavailable> {
    let shape = StreamConfig::bucket(bucket, Duration::ZERO, Storage::File, replicas.into());
    // Counters forbid refusing what is new; with one message a subject it makes no other difference.
    let discard = if flag == "allow_msg_counter" { Discard::Old } else { shape.discard };
    let rest = [(flag.to_owned(), true.into())].into_iter().collect();
    let js = store.jetstream();
    let made = js.create_stream(&StreamConfig { rest, discard, ..shape }, js.deadline()).await;
    made.map(drop).map_err(|unknown| OpenError::from(unknown).into())
}

/// A value that counts so many.
pub(super) fn value(count: u64) -> [u8; VALUE] {
    let mut value = [b' '; VALUE];
    let mut digits = &mut value[..20];
    std::io::Write::write_fmt(&mut digits, format_args!("{count}")).expect("twenty digits hold every count");
    value
}

/// Writes so many keys of a family, one of which counts nothing; answers where they stand.
async fn fill(lean: &mut Lean, stream: &Stream, family: char, keys: usize) -> Result<Vec<u64>, LeanError> {
    let mut revisions = Vec::with_capacity(keys);
    for from in (0..keys).step_by(AT_ONCE) {
        let numbers = from..keys.min(from + AT_ONCE);
        for key in numbers.clone() {
            lean.ask(key as u32, stream.subject(family, key), &value(0));
        }
        revisions.resize(numbers.end, 0);
        let mut left = numbers.len();
        while left > 0 {
            while let Some(message) = lean.take()? {
                let Some(key) = message.answers().map(|number| number as usize) else { continue };
                if let Ok(Reply::Ok(ack)) = puback::parse(message.payload) {
                    revisions[key] = ack.seq;
                }
                left -= 1;
            }
            if left > 0 {
                lean.more().await?;
            }
        }
    }
    if revisions.contains(&0) {
        return Err(LeanError::Silent { address: stream.name(), within: PATIENCE });
    }
    Ok(revisions)
}

#[cfg(test)]
mod tests {
    use engine::broker::Tls;

    use super::*;

    #[test]
    fn the_leader_is_found_where_there_is_one() {
        let info = br#"{"config":{"name":"x"},"cluster":{"name":"c","leader":"n3","replicas":[{"name":"n1"}]}}"#;
        assert_eq!((leader(info), leader(br#"{"config":{}}"#)), (Some("n3"), None));
    }

    #[test]
    fn what_a_bare_client_cannot_do_is_refused_before_it_is_tried() {
        let access = |urls: &str| Access::external(urls, None, Tls::default()).unwrap();
        let (addresses, user) = reached(&access("nats://me:it@a:1,nats://b")).unwrap();
        assert_eq!(
            (addresses.to_vec(), user.unwrap().name),
            (vec!["a:1".to_owned(), "b:4222".to_owned()], "me".to_owned())
        );
        assert!(reached(&access("tls://a:1")).unwrap_err().to_string().contains("TLS"));
        let with_file = Access::external("nats://a", Some("x.creds".into()), Tls::default()).unwrap();
        assert!(reached(&with_file).unwrap_err().to_string().contains("credentials"));
    }

    #[test]
    fn a_value_counts_and_has_its_length() {
        assert!(value(17).starts_with(b"17 ") && value(u64::MAX).starts_with(b"18446744073709551615"));
    }
}
