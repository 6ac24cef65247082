//! The conditional change: another value, or a removal, in place of the revision that was read, and of no other.

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::Key;
use coordproto::listing::Version;

use super::create::{Look, ROUNDS, look};
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
    let mut expected = at;
    for round in 0..ROUNDS {
        // Where nothing was found, a marker proves that nothing stands; the value would be a record that nobody asked for.
        let step = if expected == 0 { Write::Removal } else { write.clone() };
        let race = match bucket.put(key, step, Expect::At(expected)).await {
            Ok(Put::Stored(revision)) if expected == at => return Ok(Replaced::Stored(revision)),
            Ok(Put::Stored(_)) => return Ok(Replaced::Gone),
            Ok(Put::Lost(race)) => race,
            Err(Error::Unknown(unknown)) => return Err(told(unknown).into()),
            Err(error) => return Err(error),
        };
        expected = match look(bucket, key, race, round).await.map_err(told)? {
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
