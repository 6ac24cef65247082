//! The create: a value under a key that has none, or what stands there.
//!
//! A key has none when it has no revision, and when its newest revision is a removal marker. The first is written over
//! expecting no revision and the second expecting the marker's, so whoever is told "created" was the only one.

use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::Key;
use coordproto::listing::Version;

use super::{Bucket, Expect, Put, Race, Write};
use crate::env::{Env, Mono};

/// How often a lost race is looked at again before the answer is unknown; see [`counts`].
pub(crate) const ROUNDS: u32 = 8;

/// The definite answer to a create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// Stored under this revision.
    Stored(u64),
    /// Not stored, and it never will be: something stood there.
    Exists {
        /// Its revision.
        revision: u64,
        /// Its value.
        value: Bytes,
    },
}

/// Writes `value` under `key` unless it has one. One request when the key never had a value, three over a marker.
///
/// # Errors
/// A value too large, before anything is sent; or unknown, which says whether the value may still land.
pub async fn create<B: Bucket>(bucket: &B, key: &Key, value: Bytes) -> Result<Created, Error> {
    let about = || format!("{} {key}", bucket.name());
    let (env, by) = (bucket.env(), bucket.deadline());
    let (mut over, mut rounds, mut tries) = (0, 0, 0);
    while rounds < ROUNDS {
        let race = match bucket.put(key, Write::Value(value.clone()), Expect::At(over)).await {
            Ok(Put::Stored(revision)) => return Ok(Created::Stored(revision)),
            Ok(Put::Lost(race)) => race,
            Err(Error::Unknown(unknown)) => return Err(unknown.during("create", about()).into()),
            Err(error) => return Err(error),
        };
        let found = look(bucket, key, race, tries).await.map_err(|unknown| unknown.during("create", about()))?;
        (rounds, tries) = (rounds + counts(env, race, by), tries + 1);
        over = match found {
            Look::Found(Version { revision, value: Some(value), .. }) => {
                return Ok(Created::Exists { revision, value });
            }
            Look::Found(Version { revision, value: None, .. }) => revision,
            Look::Nothing => 0,
            Look::Past => over,
        };
    }
    Err(Unknown::settled("create", about(), Cause::Contended { rounds: ROUNDS }).into())
}

/// How many rounds of a contended loop, one or none, a lost race has used up. A write that was refused while a rival's was
/// under way has taken no part, since nobody looked at what it expects. The rival's is under way for as long as the followers
/// take to hear of it, and that is no contention before `by`, the deadline of a request.
pub(crate) fn counts(env: &Env, race: Race, by: Mono) -> u32 {
    u32::from(race != Race::InProcess || env.now() >= by)
}

/// What the leader has where a write lost its race.
pub(crate) enum Look {
    /// This version, a marker perhaps.
    Found(Version),
    /// Nothing.
    Nothing,
    /// A version from before the one that won. Whoever answered is behind, and it decides nothing.
    Past,
}

/// Looks at what won, after a wait that grows with the `round`. A rival's write that is in process is on no member yet.
pub(crate) async fn look<B: Bucket>(bucket: &B, key: &Key, race: Race, round: u32) -> Result<Look, Unknown> {
    let won = match race {
        Race::Newer(revision) => revision,
        Race::Vanished | Race::InProcess => 0,
    };
    if round > 0 || race == Race::InProcess {
        back_off(bucket.env(), round).await;
    }
    Ok(match bucket.get(key).await? {
        None => Look::Nothing,
        Some(version) if version.revision < won => Look::Past,
        Some(version) => Look::Found(version),
    })
}

/// Waits before round `round` of a contended loop: jittered, 1 ms doubling to 32 ms.
pub(crate) async fn back_off(env: &Env, round: u32) {
    let most = Duration::from_millis(1 << round.min(5));
    env.sleep(most / 2 + env.jitter(most)).await;
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use coordproto::answer::Landing;
    use coordproto::key::Resource;
    use futures_util::future::{join, join_all};
    use parking_lot::Mutex;

    use super::super::faulty::{Fault, Faulty, Verb};
    use super::super::memory::{Memory, MemoryBucket};
    use super::super::{BucketSpec, Store};
    use super::*;

    struct Bench {
        raw: MemoryBucket,
        faulty: Faulty<MemoryBucket>,
        /// The next calls' faults; none once it is empty.
        script: Arc<Mutex<VecDeque<(Verb, Fault)>>>,
        key: Key,
    }

    async fn bench() -> Bench {
        let env = Env::seeded(1);
        let store = Memory::new(env.clone());
        let script: Arc<Mutex<VecDeque<(Verb, Fault)>>> = Arc::default();
        let next = script.clone();
        let faults = Faulty::new(store.clone(), env, move |call| {
            let mut script = next.lock();
            match script.front() {
                Some((verb, _)) if *verb == call.verb => script.pop_front().expect("there").1,
                _ => Fault::None,
            }
        });
        let spec = BucketSpec { name: "b".into(), age: None, raise_age: false, replicas: 1 };
        let (raw, faulty) = (store.open(&spec).await.unwrap(), faults.open(&spec).await.unwrap());
        Bench { raw, faulty, script, key: Resource::parse("seat:a").unwrap().key().clone() }
    }

    impl Bench {
        async fn put(&self, write: Write) -> u64 {
            match self.raw.put(&self.key, write, Expect::Any).await.unwrap() {
                Put::Stored(revision) => revision,
                Put::Lost(race) => panic!("{race:?}"),
            }
        }

        async fn create(&self, value: &'static str) -> Result<Created, Error> {
            create(&self.faulty, &self.key, Bytes::from_static(value.as_bytes())).await
        }

        async fn stands(&self) -> Option<Bytes> {
            self.raw.get(&self.key).await.unwrap().and_then(|version| version.value)
        }
    }

    #[tokio::test]
    async fn a_key_that_is_free_or_was_removed_is_written_and_one_that_is_taken_is_told() {
        let b = bench().await;
        let Created::Stored(first) = b.create("1").await.unwrap() else { panic!("it is free") };
        let stands = Created::Exists { revision: first, value: "1".into() };
        assert_eq!(b.create("2").await.unwrap(), stands);
        let marker = b.put(Write::Removal).await;
        assert_eq!(b.create("3").await.unwrap(), Created::Stored(marker + 1));
        b.raw.purge(&b.key, marker + 1).await.unwrap();
        assert_eq!(b.create("4").await.unwrap(), Created::Stored(marker + 2));
    }

    #[tokio::test]
    async fn of_many_over_a_marker_one_is_told_that_it_created() {
        let b = bench().await;
        b.put(Write::Removal).await;
        let told = join_all((0..16).map(|_| b.create("x"))).await;
        let created = told.iter().filter(|told| matches!(told, Ok(Created::Stored(_)))).count();
        assert_eq!(created, 1, "{told:?}");
        assert!(told.iter().all(Result::is_ok), "{told:?}");
    }

    #[tokio::test]
    async fn a_create_without_an_answer_may_land_and_a_look_without_one_may_not() {
        let b = bench().await;
        b.script.lock().push_back((Verb::Put, Fault::DropReply));
        let unknown = b.create("1").await.unwrap_err().unknown().cloned().expect("unknown");
        assert_eq!((unknown.op, &*unknown.resource, unknown.landing), ("create", "b seat.a", Landing::InFlight));
        assert_eq!(b.stands().await.as_deref(), Some(&b"1"[..]));
        b.script.lock().push_back((Verb::Read, Fault::DropRequest));
        let unknown = b.create("2").await.unwrap_err().unknown().cloned().expect("unknown");
        assert_eq!((unknown.op, unknown.landing), ("create", Landing::Settled));
        assert_eq!(b.stands().await.as_deref(), Some(&b"1"[..]));
    }

    /// The key was taken, freed and taken again. A member that is behind answers with the first of these.
    #[tokio::test(start_paused = true)]
    async fn a_look_at_the_past_decides_nothing() {
        let b = bench().await;
        b.put(Write::Value("old".into())).await;
        b.faulty.get(&b.key).await.unwrap();
        b.put(Write::Removal).await;
        b.faulty.get(&b.key).await.unwrap();
        b.script.lock().push_back((Verb::Read, Fault::Stale));
        assert!(matches!(b.create("new").await.unwrap(), Created::Stored(_)), "the marker is written over");
        b.script.lock().extend((0..ROUNDS).map(|_| (Verb::Read, Fault::Stale)));
        let unknown = b.create("newer").await.unwrap_err().unknown().cloned().expect("unknown");
        assert_eq!(unknown.cause, Cause::Contended { rounds: ROUNDS });
        assert_eq!(b.stands().await.as_deref(), Some(&b"new"[..]));
    }

    /// Followers that get no processor keep a rival's write under way for longer than all the rounds take.
    #[tokio::test(start_paused = true)]
    async fn while_a_rival_writes_no_round_is_lost_before_the_deadline_of_a_request() {
        let b = bench().await;
        let under_way = |times| b.script.lock().extend(vec![(Verb::Put, Fault::InProcess); times]);
        under_way(3 * ROUNDS as usize);
        assert!(matches!(b.create("1").await.unwrap(), Created::Stored(_)), "the rival's was not stored");
        let marker = b.put(Write::Removal).await;
        under_way(10_000);
        let rival = async {
            b.raw.env().sleep(Duration::from_secs(4)).await;
            b.put(Write::Value("2".into())).await
        };
        let (told, revision) = join(b.create("3"), rival).await;
        assert_eq!((told.unwrap(), revision), (Created::Exists { revision, value: "2".into() }, marker + 1));
        b.put(Write::Removal).await;
        let by = b.raw.deadline();
        let unknown = b.create("4").await.unwrap_err().unknown().cloned().expect("unknown");
        assert_eq!((unknown.cause, unknown.landing), (Cause::Contended { rounds: ROUNDS }, Landing::Settled));
        let late = b.raw.env().now().since(by);
        assert!(b.raw.env().now() >= by && late < Duration::from_secs(1), "{late:?} past the deadline");
        assert_eq!(b.stands().await, None);
    }

    #[tokio::test]
    async fn a_value_too_large_is_refused() {
        let b = bench().await;
        let value = Bytes::from(vec![0; super::super::VALUE_BYTES_MAX + 1]);
        let refused = create(&b.faulty, &b.key, value).await.unwrap_err();
        assert!(matches!(refused, Error::BadArgument(_)), "{refused}");
    }
}
