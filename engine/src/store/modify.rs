//! The read-modify-write: what a key becomes is decided by what stands there, and is stored only if that still stands.
//!
//! Whoever loses waits, looks again and decides again, for a bounded number of rounds; after those the answer is unknown, and
//! never a decision about a value that nobody stored.

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::Version;

use super::create::{Look, look};
use super::{Bucket, Expect, Put, Race, Write};

/// How often a change takes part before the answer is unknown. A write that was refused while another was under way has taken
/// no part, until the deadline of a request has passed.
const ROUNDS: u32 = 16;

/// What a change begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With a read: two requests where nobody else writes, and one where nothing has to be written.
    Reading,
    /// As if nothing stood there: one request where that is so. What is decided about nothing has to be a write then, since
    /// only a write finds out whether something stands there after all.
    Writing,
}

/// What is decided about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// This is to stand there instead, and if it does, this is the answer.
    Put(Write, T),
    /// It stays as it is, and this is the answer.
    Keep(T),
}

/// Has `decide` say what becomes of `key`, given the value that stands there; none for a key without one, or with a removal
/// marker. It is asked again for every race that is lost, and says [`Cause::Undecodable`] of a value that it cannot read.
///
/// What is stored was decided on what stood there. What is kept was decided on what a leader said, and one that was deposed
/// and has not noticed says what stood there seconds ago; but never from before something that this change was told of. Where a
/// revision is known and nothing is found, nothing is kept before a copy as late as that revision has none either.
///
/// # Errors
/// A value too large, or unknown, told as `op` about `about`; it says whether the change may still land.
pub async fn modify<B: Bucket, T>(
    bucket: &B,
    key: &Key,
    begin: Begin,
    (op, about): (&'static str, &str),
    mut decide: impl FnMut(Option<&Bytes>) -> Result<Step<T>, Cause>,
) -> Result<T, Error> {
    let told = |unknown: Unknown| unknown.during(op, about);
    let (env, by) = (bucket.env(), bucket.deadline());
    let (mut race, mut known, mut rounds, mut tries) = (None, 0, 0, 0);
    while rounds < ROUNDS {
        let found = match race {
            None if begin == Begin::Writing => Look::Nothing,
            None => bucket.get(key).await.map_err(told)?.map_or(Look::Nothing, Look::Found),
            Some(race) => look(bucket, key, race, tries - 1).await.map_err(told)?,
        };
        (rounds, tries) = (rounds + 1, tries + 1);
        let (mut revision, mut value) = match found {
            Look::Found(version) if version.revision >= known => (version.revision, version.value),
            Look::Nothing => (0, None),
            // Whoever answered is behind, and there is nothing to decide on.
            Look::Found(_) | Look::Past => continue,
        };
        let mut step = decide(value.as_ref());
        if revision < known && matches!(step, Ok(Step::Keep(_))) {
            // Something stood here, and nothing was found. A write would find out whether it is gone; what is kept does not.
            if let Some(version) = since(bucket, key, known).await.map_err(told)? {
                (revision, value) = (version.revision, version.value);
                step = decide(value.as_ref());
            }
        }
        known = known.max(revision);
        let (write, answer) = match step {
            Ok(Step::Put(write, answer)) => (write, answer),
            Ok(Step::Keep(answer)) => return Ok(answer),
            Err(cause) => return Err(Unknown::settled(op, about, cause).into()),
        };
        match bucket.put(key, write, Expect::At(revision)).await {
            Ok(Put::Stored(_)) => return Ok(answer),
            Ok(Put::Lost(lost)) => {
                match lost {
                    Race::Newer(newer) => known = known.max(newer),
                    // It has taken no part: nobody looked at what it expects while another write was under way.
                    Race::InProcess if env.now() < by => rounds -= 1,
                    Race::InProcess | Race::Vanished => {}
                }
                race = Some(lost);
            }
            Err(Error::Unknown(unknown)) => return Err(told(unknown).into()),
            Err(error) => return Err(error),
        }
    }
    Err(Unknown::settled(op, about, Cause::Contended { rounds: ROUNDS }).into())
}

/// What stands at `key`, as a member tells that had come to `seq`.
async fn since<B: Bucket>(bucket: &B, key: &Key, seq: u64) -> Result<Option<Version>, Unknown> {
    let held = bucket.since(&Filter::only(key), std::slice::from_ref(key), seq, bucket.deadline()).await?;
    Ok(held.into_iter().next().map(|(_, version)| version))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use coordproto::answer::Landing;
    use futures_util::future::{join, join_all};
    use parking_lot::Mutex;

    use super::super::faulty::{Fault, Faulty, Verb};
    use super::super::memory::{Memory, MemoryBucket};
    use super::super::{BucketSpec, Store, VALUE_BYTES_MAX};
    use super::*;
    use crate::env::Env;

    struct Bench {
        raw: MemoryBucket,
        faulty: Faulty<MemoryBucket>,
        /// The next calls' faults, each for the next call of its verb; none once it is empty.
        script: Arc<Mutex<Vec<(Verb, Fault)>>>,
        key: Key,
    }

    async fn bench() -> Bench {
        let env = Env::seeded(1);
        let store = Memory::new(env.clone());
        let script: Arc<Mutex<Vec<(Verb, Fault)>>> = Arc::default();
        let next = script.clone();
        let faults = Faulty::new(store.clone(), env, move |call| {
            let mut script = next.lock();
            let found = script.iter().position(|(verb, _)| *verb == call.verb);
            found.map_or(Fault::None, |at| script.remove(at).1)
        });
        let spec = BucketSpec { name: "b".into(), age: None, raise_age: false, replicas: 1 };
        let (raw, faulty) = (store.open(&spec).await.unwrap(), faults.open(&spec).await.unwrap());
        Bench { raw, faulty, script, key: Key::parse("k").unwrap() }
    }

    fn number(value: Option<&Bytes>) -> Result<u64, Cause> {
        let Some(value) = value else { return Ok(0) };
        std::str::from_utf8(value).unwrap().parse().map_err(|_| Cause::Undecodable("not a number".into()))
    }

    impl Bench {
        /// Adds one, below `most`, and answers what it came to; or what it stands at.
        async fn add(&self, begin: Begin, most: u64) -> Result<Result<u64, u64>, Error> {
            modify(&self.faulty, &self.key, begin, ("add", "k"), |value| {
                let stands = number(value)?;
                if stands >= most {
                    return Ok(Step::Keep(Err(stands)));
                }
                let next = stands + 1;
                Ok(Step::Put(Write::Value(next.to_string().into()), Ok(next)))
            })
            .await
        }

        async fn put(&self, write: Write) -> u64 {
            match self.raw.put(&self.key, write, Expect::Any).await.unwrap() {
                Put::Stored(revision) => revision,
                Put::Lost(race) => panic!("{race:?}"),
            }
        }

        async fn stands(&self) -> u64 {
            let version = self.raw.get(&self.key).await.unwrap();
            number(version.and_then(|version| version.value).as_ref()).unwrap()
        }

        fn befalls(&self, verb: Verb, faults: impl IntoIterator<Item = Fault>) {
            self.script.lock().extend(faults.into_iter().map(|fault| (verb, fault)));
        }
    }

    fn unknown(answer: Result<Result<u64, u64>, Error>) -> Unknown {
        answer.unwrap_err().unknown().cloned().expect("unknown")
    }

    #[tokio::test]
    async fn what_stands_decides_whichever_way_it_begins() {
        for begin in [Begin::Reading, Begin::Writing] {
            let b = bench().await;
            for n in 1..=3 {
                assert_eq!(b.add(begin, 3).await.unwrap(), Ok(n), "{begin:?}");
            }
            assert_eq!(b.add(begin, 3).await.unwrap(), Err(3), "{begin:?}");
            let marker = b.put(Write::Removal).await;
            assert_eq!(b.add(begin, 3).await.unwrap(), Ok(1), "{begin:?}: a marker is written over");
            assert_eq!(b.raw.purge(&b.key, marker + 1).await.unwrap(), 1);
            assert_eq!(b.add(begin, 3).await.unwrap(), Ok(1), "{begin:?}: and so is nothing");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_at_once_none_is_lost_and_none_is_too_many() {
        let b = bench().await;
        let told = join_all((0..8).map(|_| b.add(Begin::Reading, 5))).await;
        let mut done: Vec<u64> = told.iter().filter_map(|told| told.as_ref().unwrap().ok()).collect();
        done.sort_unstable();
        assert_eq!((done, b.stands().await), (vec![1, 2, 3, 4, 5], 5), "{told:?}");
    }

    #[tokio::test]
    async fn a_change_without_an_answer_may_land_and_a_look_without_one_may_not() {
        let b = bench().await;
        b.befalls(Verb::Put, [Fault::DropReply]);
        let unanswered = unknown(b.add(Begin::Reading, 9).await);
        assert_eq!((unanswered.op, &*unanswered.resource, unanswered.landing), ("add", "k", Landing::InFlight));
        assert_eq!(b.stands().await, 1);
        b.befalls(Verb::Read, [Fault::DropReply]);
        let unread = unknown(b.add(Begin::Reading, 9).await);
        assert_eq!((unread.op, &*unread.resource, unread.landing), ("add", "k", Landing::Settled));
        b.befalls(Verb::Read, [Fault::DropReply]);
        assert_eq!(unknown(b.add(Begin::Writing, 9).await).landing, Landing::Settled, "its write lost");
        assert_eq!(b.stands().await, 1);
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_left_alone() {
        let b = bench().await;
        b.put(Write::Value("garbage".into())).await;
        let unread = unknown(b.add(Begin::Writing, 9).await);
        assert_eq!((unread.op, unread.landing), ("add", Landing::Settled));
        assert!(matches!(unread.cause, Cause::Undecodable(_)), "{unread}");
        assert_eq!(b.raw.get(&b.key).await.unwrap().unwrap().value.as_deref(), Some(&b"garbage"[..]));
    }

    /// A member that is behind answers with the value from before the one that won.
    #[tokio::test(start_paused = true)]
    async fn the_past_decides_nothing() {
        let b = bench().await;
        for n in [1, 2, 3] {
            b.put(Write::Value(n.to_string().into())).await;
            b.faulty.get(&b.key).await.unwrap();
        }
        b.befalls(Verb::Read, [Fault::Stale, Fault::Stale]);
        assert_eq!(b.add(Begin::Reading, 9).await.unwrap(), Ok(4), "its write lost, and it looked again");
        b.befalls(Verb::Read, [Fault::Before]);
        assert_eq!(b.add(Begin::Reading, 9).await.unwrap(), Ok(5), "nothing was there, it was told");
        b.befalls(Verb::Read, vec![Fault::Stale; 99]);
        let contended = unknown(b.add(Begin::Reading, 9).await);
        assert_eq!((contended.cause, contended.landing), (Cause::Contended { rounds: ROUNDS }, Landing::Settled));
        assert_eq!(b.stands().await, 5);
    }

    /// What closes a thing: it says that there is none, or takes it away and says what it was.
    async fn close(b: &Bench) -> Result<Option<u64>, Error> {
        modify(&b.faulty, &b.key, Begin::Reading, ("close", "k"), |value| match value {
            None => Ok(Step::Keep(None)),
            some => Ok(Step::Put(Write::Removal, Some(number(some)?))),
        })
        .await
    }

    /// A value that was read, and another over it.
    async fn overtaken() -> Bench {
        let b = bench().await;
        for n in [1, 2] {
            b.put(Write::Value(n.to_string().into())).await;
            b.faulty.get(&b.key).await.unwrap();
        }
        b
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_where_something_stood_is_proved_before_it_is_said() {
        let b = overtaken().await;
        b.befalls(Verb::Read, [Fault::Stale, Fault::Before]);
        assert_eq!(close(&b).await.unwrap(), Some(2), "nothing was there, it was told");
        assert_eq!(b.raw.get(&b.key).await.unwrap().unwrap().value, None);

        // Nobody can tell.
        let b = overtaken().await;
        b.befalls(Verb::Read, [Fault::Stale, Fault::Before]);
        b.befalls(Verb::Copy, [Fault::DropRequest]);
        let unproved = unknown(close(&b).await.map(|_| Ok(0)));
        assert_eq!((unproved.op, &*unproved.resource, unproved.landing), ("close", "k", Landing::Settled));
        assert_eq!((unproved.cause, b.stands().await), (Cause::Timeout, 2));

        // It is gone by the time that the loser looks again, whether or not its write met it.
        for met in [true, false] {
            let b = overtaken().await;
            b.befalls(Verb::Read, [Fault::Stale]);
            let purge = async { assert_eq!(b.raw.purge(&b.key, 2).await.unwrap(), 1) };
            let told = if met {
                b.befalls(Verb::Read, [Fault::Delay(Duration::from_millis(10))]);
                let later = async {
                    b.raw.env().sleep(Duration::from_millis(5)).await;
                    purge.await;
                };
                join(close(&b), later).await.0
            } else {
                purge.await;
                close(&b).await
            };
            assert_eq!(told.unwrap(), None, "met: {met}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_looked_at_has_taken_no_part() {
        let b = bench().await;
        b.befalls(Verb::Put, vec![Fault::InProcess; 3 * ROUNDS as usize]);
        assert_eq!(b.add(Begin::Writing, 9).await.unwrap(), Ok(1));
        b.befalls(Verb::Put, vec![Fault::InProcess; 10_000]);
        let contended = unknown(b.add(Begin::Reading, 9).await);
        assert_eq!((contended.cause, contended.landing), (Cause::Contended { rounds: ROUNDS }, Landing::Settled));
        assert_eq!(b.stands().await, 1);
    }

    #[tokio::test]
    async fn a_value_too_large_is_refused() {
        let b = bench().await;
        let refused = modify(&b.faulty, &b.key, Begin::Reading, ("add", "k"), |_| {
            Ok(Step::Put(Write::Value(vec![0; VALUE_BYTES_MAX + 1].into()), ()))
        });
        assert!(matches!(refused.await, Err(Error::BadArgument(_))));
    }
}
