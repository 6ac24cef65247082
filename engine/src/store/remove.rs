//! Removals from a bucket without an age: of exactly the revision that was read, or of whatever stands.
//!
//! **Why a removal is two requests.** A purge bounded by a revision takes no later revision away, but it is no
//! compare-and-set. On several members it is decided in the same order as the writes, yet a write's expectation is checked when
//! it is proposed: a change of that revision that is proposed while the purge is under way is stored behind it, and both
//! callers are told that they were first (measured, three members: 121 of 400 such races). A removal marker is a write with
//! an expectation and loses or wins like every other. So the marker decides, and then it is erased, up to its own revision, for
//! a listing not to have to ask about it. That erasure decides nothing: where it fails, the sweep of markers does it.
//!
//! Where nobody ever writes over a record, [`take_away`](super::replace::take_away) is enough, and one request.

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::Key;
use coordproto::listing::Version;

use super::create::back_off;
use super::replace::{Replaced, live, replace};
use super::{Bucket, Expect, Put, Write};

/// How often what is to be removed may be written anew before the answer is unknown.
const ROUNDS: u32 = 16;

/// The definite answer to a conditional removal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "another may have been faster"]
pub enum Removed {
    /// This call removed it.
    Removed,
    /// Not removed, and it never will be by this call: this later revision, with this value, stands there.
    Changed(u64, Bytes),
    /// Nothing stands there.
    Gone,
}

/// Removes revision `at` of `key`, and no other; a revision of 0 removes nothing. Of a removal and a change of one revision
/// exactly one happens.
///
/// # Errors
/// Unknown, which says whether it may still be removed.
pub async fn remove<B: Bucket>(bucket: &B, key: &Key, at: u64) -> Result<Removed, Unknown> {
    let told = |unknown: Unknown| unknown.during("remove", format!("{} {key}", bucket.name()));
    match replace(bucket, key, Write::Removal, at).await {
        Ok(Replaced::Stored(marker)) => {
            if let Err(unknown) = bucket.purge(key, marker).await {
                tracing::debug!(bucket = bucket.name(), %key, %unknown, "marker_left_to_the_sweep");
            }
            Ok(Removed::Removed)
        }
        Ok(Replaced::Gone) => Ok(Removed::Gone),
        Ok(Replaced::Changed(version)) => Ok(match live(Some(version)) {
            Some((revision, value)) => Removed::Changed(revision, value),
            None => Removed::Gone,
        }),
        Err(Error::Unknown(unknown)) => Err(told(unknown)),
        // A broker that takes so little takes no marker either.
        Err(Error::BadArgument(error)) => {
            Err(told(Unknown::settled("remove", "", Cause::TooLarge(error.to_string().into()))))
        }
    }
}

/// Removes whatever stands under `key`; answers whether this call removed something. Of many at once exactly one did.
///
/// # Errors
/// Unknown, which says whether something may still be removed; also when it was written anew 16 times meanwhile.
pub async fn erase<B: Bucket>(bucket: &B, key: &Key) -> Result<bool, Unknown> {
    let about = || format!("{} {key}", bucket.name());
    let stands: Option<Version> = bucket.get(key).await.map_err(|unknown| unknown.during("remove", about()))?;
    let Some((mut at, _)) = live(stands) else { return Ok(false) };
    for round in 0..ROUNDS {
        match remove(bucket, key, at).await? {
            Removed::Removed => return Ok(true),
            Removed::Gone => return Ok(false),
            Removed::Changed(revision, _) => at = revision,
        }
        back_off(bucket.env(), round).await;
    }
    Err(Unknown::settled("remove", about(), Cause::Contended { rounds: ROUNDS }))
}

/// Writes a value whatever stands there: the last one wins. Answers its revision.
///
/// # Errors
/// A value too large, before anything is sent; or unknown, which says whether it may still land.
pub async fn overwrite<B: Bucket>(bucket: &B, key: &Key, value: Bytes) -> Result<u64, Error> {
    let about = || format!("{} {key}", bucket.name());
    match bucket.put(key, Write::Value(value), Expect::Any).await {
        Ok(Put::Stored(revision)) => Ok(revision),
        Ok(Put::Lost(race)) => {
            let cause = Cause::Garbage(format!("a write that expects nothing was told that it lost: {race:?}").into());
            Err(Unknown::settled("overwrite", about(), cause).into())
        }
        Err(Error::Unknown(unknown)) => Err(unknown.during("overwrite", about()).into()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use coordproto::answer::Landing;
    use futures_util::future::join_all;

    use super::super::faulty::{Fault, Faulty, Verb};
    use super::super::memory::{Memory, MemoryBucket};
    use super::super::{BucketSpec, Store};
    use super::*;
    use crate::env::Env;

    async fn buckets(verb: Verb, fault: Fault) -> (MemoryBucket, Faulty<MemoryBucket>, Key) {
        let (env, key) = (Env::seeded(1), Key::parse("a").unwrap());
        let store = Memory::new(env.clone());
        let choose = move |call: &super::super::faulty::Call<'_>| if call.verb == verb { fault } else { Fault::None };
        let faults = Faulty::new(store.clone(), env, choose);
        let spec = BucketSpec { name: "b".into(), age: None, raise_age: false, replicas: 1 };
        (store.open(&spec).await.unwrap(), faults.open(&spec).await.unwrap(), key)
    }

    #[tokio::test]
    async fn a_removal_is_of_one_revision_and_leaves_nothing() {
        let (b, _, key) = buckets(Verb::Standing, Fault::None).await;
        assert_eq!(remove(&b, &key, 0).await.unwrap(), Removed::Gone);
        assert!(!erase(&b, &key).await.unwrap());
        let first = overwrite(&b, &key, "1".into()).await.unwrap();
        let second = overwrite(&b, &key, "2".into()).await.unwrap();
        for at in [0, first] {
            assert_eq!(remove(&b, &key, at).await.unwrap(), Removed::Changed(second, "2".into()));
        }
        assert_eq!(remove(&b, &key, second).await.unwrap(), Removed::Removed);
        assert_eq!(b.get(&key).await.unwrap(), None);
        assert_eq!(remove(&b, &key, second).await.unwrap(), Removed::Gone);
        overwrite(&b, &key, "3".into()).await.unwrap();
        assert!(erase(&b, &key).await.unwrap());
        assert_eq!(b.get(&key).await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_that_erase_one_has() {
        let (b, _, key) = buckets(Verb::Standing, Fault::None).await;
        overwrite(&b, &key, "1".into()).await.unwrap();
        let told = join_all((0..16).map(|_| erase(&b, &key))).await;
        assert_eq!(told.iter().filter(|told| **told == Ok(true)).count(), 1, "{told:?}");
        assert!(told.iter().all(Result::is_ok), "{told:?}");
    }

    #[tokio::test]
    async fn the_marker_is_the_answer_and_its_erasure_is_not() {
        let (b, f, key) = buckets(Verb::Purge, Fault::DropRequest).await;
        let at = overwrite(&f, &key, "1".into()).await.unwrap();
        assert_eq!(remove(&f, &key, at).await.unwrap(), Removed::Removed);
        let marker = b.get(&key).await.unwrap().expect("a marker");
        assert_eq!((marker.revision, marker.value), (at + 1, None));
        assert!(!erase(&f, &key).await.unwrap());
        assert_eq!(remove(&f, &key, at).await.unwrap(), Removed::Gone);
    }

    #[tokio::test]
    async fn a_removal_without_an_answer_may_land_and_a_read_without_one_changes_nothing() {
        for (verb, landing) in [(Verb::Put, Landing::InFlight), (Verb::Read, Landing::Settled)] {
            let (b, f, key) = buckets(verb, Fault::DropRequest).await;
            let at = overwrite(&b, &key, "1".into()).await.unwrap();
            let unknown = erase(&f, &key).await.unwrap_err();
            assert_eq!((unknown.op, &*unknown.resource, unknown.landing), ("remove", "b a", landing));
            assert_eq!(live(b.get(&key).await.unwrap()), Some((at, "1".into())));
        }
        let (_, f, key) = buckets(Verb::Put, Fault::DropReply).await;
        let unknown = overwrite(&f, &key, "1".into()).await.unwrap_err().unknown().cloned().expect("unknown");
        assert_eq!((unknown.op, unknown.landing), ("overwrite", Landing::InFlight));
    }
}
