//! The conditional change: another value, or a removal, in place of the revision that was read, and of no other.

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::Key;
use coordproto::listing::Version;

use super::create::{Look, ROUNDS, counts, look};
use super::{Bucket, Expect, Put, Write};

/// The definite answer to a conditional change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "another may have been faster"]
pub enum Replaced {
    /// Stored under this revision.
    Stored(u64),
    /// Not stored, and it never will be: a later version stands there, a removal marker perhaps.
    Changed(Version),
    /// Not stored, and it never will be: nothing stands there.
    Gone,
}

/// Puts `write` in place of revision `at` of `key`. One request unless the race is lost; a revision of 0 was never read, and is
/// a lost race.
///
/// # Errors
/// A value too large, before anything is sent; or unknown, which says whether the change may still land.
pub async fn replace<B: Bucket>(bucket: &B, key: &Key, write: Write, at: u64) -> Result<Replaced, Error> {
    let about = || format!("{} {key}", bucket.name());
    let told = |unknown: Unknown| unknown.during("replace", about());
    if at == 0 {
        // A write that expects no revision would be stored where nothing stands.
        return Ok(bucket.get(key).await.map_err(told)?.map_or(Replaced::Gone, Replaced::Changed));
    }
    let (env, by) = (bucket.env(), bucket.deadline());
    let (mut expected, mut rounds, mut tries) = (at, 0, 0);
    while rounds < ROUNDS {
        // Where nothing was found, a marker proves that nothing stands; the value would be a record that nobody asked for.
        let step = if expected == 0 { Write::Removal } else { write.clone() };
        let race = match bucket.put(key, step, Expect::At(expected)).await {
            Ok(Put::Stored(revision)) if expected == at => return Ok(Replaced::Stored(revision)),
            Ok(Put::Stored(_)) => return Ok(Replaced::Gone),
            Ok(Put::Lost(race)) => race,
            Err(Error::Unknown(unknown)) => return Err(told(unknown).into()),
            Err(error) => return Err(error),
        };
        let found = look(bucket, key, race, tries).await.map_err(told)?;
        (rounds, tries) = (rounds + counts(env, race, by), tries + 1);
        expected = match found {
            Look::Found(version) if version.revision > at => return Ok(Replaced::Changed(version)),
            // Either it is gone, or the answerer is from before it. Only a write that expects nothing decides.
            Look::Nothing => 0,
            // It stands still, or the answerer is from before it.
            Look::Found(_) | Look::Past => at,
        };
    }
    Err(Unknown::settled("replace", about(), Cause::Contended { rounds: ROUNDS }).into())
}

/// Erases a record, marker and all, if it stands at revision `at`; answers whether anything went. Nobody who follows the bucket
/// hears of it.
///
/// Only for a record that nobody writes over any more. A purge bounded by a revision is no compare-and-set: on three members a
/// write over that revision, proposed while the purge is under way, is stored behind it, and both are told that they were
/// first. Where others write, see [`remove`](super::remove).
///
/// # Errors
/// Unknown.
pub async fn take_away<B: Bucket>(bucket: &B, key: &Key, at: u64) -> Result<bool, Unknown> {
    let gone = bucket.purge(key, at).await;
    Ok(gone.map_err(|unknown| unknown.during("remove", format!("{} {key}", bucket.name())))? > 0)
}

/// The value of a version, and its revision; none for a marker.
pub fn live(version: Option<Version>) -> Option<(u64, Bytes)> {
    let version = version?;
    Some((version.revision, version.value?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use coordproto::answer::Landing;
    use coordproto::key::Resource;
    use futures_util::future::join;
    use parking_lot::Mutex;

    use super::super::faulty::{Fault, Faulty, Verb};
    use super::super::memory::Memory;
    use super::super::{BucketSpec, Store};
    use super::*;
    use crate::env::Env;

    /// Followers that get no processor keep a rival's write under way for longer than all the rounds take.
    #[tokio::test(start_paused = true)]
    async fn while_a_rival_writes_no_round_is_lost_before_the_deadline_of_a_request() {
        let env = Env::seeded(1);
        let (store, under_way) = (Memory::new(env.clone()), Arc::new(Mutex::new(0)));
        let left = under_way.clone();
        let faults = Faulty::new(store.clone(), env.clone(), move |call| {
            let mut left = left.lock();
            if call.verb != Verb::Put || *left == 0 {
                return Fault::None;
            }
            *left -= 1;
            Fault::InProcess
        });
        let spec = BucketSpec { name: "b".into(), age: None, raise_age: false, replicas: 1 };
        let (raw, faulty) = (store.open(&spec).await.unwrap(), faults.open(&spec).await.unwrap());
        let key = Resource::parse("seat:a").unwrap().key().clone();
        let write = |value: &'static str| Write::Value(value.into());
        let put = async |value| match raw.put(&key, write(value), Expect::Any).await.unwrap() {
            Put::Stored(revision) => revision,
            Put::Lost(race) => panic!("{race:?}"),
        };

        let first = put("1").await;
        *under_way.lock() = 3 * ROUNDS;
        assert_eq!(replace(&faulty, &key, write("2"), first).await.unwrap(), Replaced::Stored(first + 1));
        *under_way.lock() = 10_000;
        let rival = async {
            env.sleep(Duration::from_secs(4)).await;
            put("3").await
        };
        let (told, third) = join(replace(&faulty, &key, write("4"), first + 1), rival).await;
        let Replaced::Changed(version) = told.unwrap() else { panic!("the rival's stands there") };
        assert_eq!((version.revision, version.value.as_deref()), (third, Some(&b"3"[..])));
        let by = raw.deadline();
        let unknown = replace(&faulty, &key, write("5"), third).await.unwrap_err().unknown().cloned().expect("unknown");
        assert_eq!((unknown.cause, unknown.landing), (Cause::Contended { rounds: ROUNDS }, Landing::Settled));
        let late = env.now().since(by);
        assert!(env.now() >= by && late < Duration::from_secs(1), "{late:?} past the deadline");
        assert_eq!(raw.get(&key).await.unwrap().map(|version| version.revision), Some(third));
    }
}
