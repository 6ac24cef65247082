//! The certification of a listing: what must be read again, what proves an answer, and what is handed over.
//!
//! Two strategies stand on this. The first certifies a pass by the leader's index. A pass over a bucket delivers every key's
//! newest revision, but it cannot tell that it is complete: a key rewritten before the pass reaches it is delivered by nobody,
//! and the marker that ends a pass is a guess. The stream leader's index, read beside the pass, names every key that the
//! leader holds. Whatever the index names and the pass did not deliver, or delivered only as a removal (a replica behind a
//! re-creation says that of a live key), is read from the leader. See [`Collected`].
//!
//! The second proves a copy by a barrier: a write that a quorum acknowledged with the sequence S inside the listing. A copy
//! that holds the barrier at S or later holds everything that was committed up to S, whoever keeps it. See [`prove`].

use std::collections::HashMap;

use bytes::Bytes;
use jiff::Timestamp;

use crate::answer::Cause;
use crate::key::{Filter, Key};

/// The most keys under one filter that an index read names on one page, and so the most that a listing certifies: the
/// server sorts its list anew for every page, and a removal between two pages shifts a key past both.
pub const KEYS_MAX: u64 = 100_000;

/// Whether an index page that names `named` of `total` keys is whole, and so can certify a listing.
///
/// # Errors
/// More keys than [`KEYS_MAX`], or a page that names fewer than it counts.
pub fn is_whole(total: u64, named: usize) -> Result<(), Cause> {
    let named = named as u64;
    match total.max(named) {
        keys if keys > KEYS_MAX => Err(Cause::TooMany { keys, most: KEYS_MAX }),
        keys if keys > named => {
            Err(Cause::Garbage(format!("an index that counts {keys} keys and names {named}").into()))
        }
        _ => Ok(()),
    }
}

/// Whether `revision` of a key, delivered after a certified listing, is news to whoever has that listing.
///
/// `listed` is the key's revision in the listing, and `index_seq` the stream's last sequence as the index told it. A key that
/// the listing does not hold was not live when the leader had come that far, so an earlier revision of it comes from a
/// replica that is behind, and would bring back what is gone.
pub fn is_news(revision: u64, listed: Option<u64>, index_seq: u64) -> bool {
    revision > listed.unwrap_or(index_seq)
}

/// One revision of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The revision, the sequence of the write in the bucket's stream.
    pub revision: u64,
    /// When the broker stored it, on the broker's clock.
    pub written: Timestamp,
    /// The value; `None` is a removal marker.
    pub value: Option<Bytes>,
}

/// The leader's index of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Keys with a revision, removal markers included, in order.
    pub keys: Vec<Key>,
    /// The stream's last sequence: how far the leader had come.
    pub last_seq: u64,
    /// The broker's clock when it answered.
    pub clock: Timestamp,
}

impl Index {
    /// An index of these keys, put in order.
    pub fn new(mut keys: Vec<Key>, last_seq: u64, clock: Timestamp) -> Index {
        keys.sort_unstable();
        Index { keys, last_seq, clock }
    }

    /// Whether it names `key`.
    pub fn names(&self, key: &Key) -> bool {
        self.keys.binary_search(key).is_ok()
    }

    /// Whether it is from the state after `revision` was written, or a later one.
    ///
    /// # Errors
    /// It is from before it: whoever answered is behind, or no leader any more.
    pub fn covers(&self, revision: u64) -> Result<(), Cause> {
        if self.last_seq < revision {
            return Err(Cause::Stale { answered: self.last_seq, known: revision });
        }
        Ok(())
    }
}

/// What a pass has delivered so far, and what the leader said about the rest.
#[derive(Debug, Default)]
pub struct Collected(HashMap<Key, Version>);

impl Collected {
    /// Takes a revision that was delivered or read; an older one than is known changes nothing.
    pub fn take(&mut self, key: Key, version: Version) {
        match self.0.get_mut(&key) {
            Some(known) if known.revision >= version.revision => {}
            Some(known) => *known = version,
            None => {
                self.0.insert(key, version);
            }
        }
    }

    /// The keys that the leader must be asked about, one by one.
    pub fn to_read<'a>(&self, index: &'a Index) -> Vec<&'a Key> {
        let delivered = |key: &Key| self.0.get(key).is_some_and(|version| version.value.is_some());
        index.keys.iter().filter(|key| !delivered(key)).collect()
    }

    /// Takes the leader's answer about a key that it was asked about: a version, or nothing there.
    ///
    /// # Errors
    /// An answer older than what is known of the same key: whoever answered was not the leader any more.
    pub fn settle(&mut self, key: &Key, answer: Option<Version>) -> Result<(), Cause> {
        let known = self.0.get(key).map_or(0, |version| version.revision);
        match answer {
            Some(version) if version.revision < known => {
                return Err(Cause::Stale { answered: version.revision, known });
            }
            Some(version) => self.take(key.clone(), version),
            // The pass delivered at most a marker for a key that is asked about, so nothing live is dropped.
            None => {
                self.0.remove(key);
            }
        }
        Ok(())
    }

    /// The live keys, each once, in order.
    ///
    /// A key that was delivered live and that the index does not name was gone when the leader had come as far as the index
    /// tells: it comes from a replica that is behind, unless its revision is later than that.
    pub fn finish(self, index: &Index) -> Vec<(Key, Version)> {
        let stands = |key: &Key, version: &Version| version.revision > index.last_seq || index.names(key);
        let live = self.0.into_iter().filter(|(key, version)| version.value.is_some() && stands(key, version));
        let mut live: Vec<_> = live.collect();
        live.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        live
    }
}

/// Whether a copy proves to hold what a quorum held at a barrier: `copy` is what one member held at one instant, the barrier's
/// key among it, and the barrier was acknowledged at `revision`. Answers the broker's clock at the barrier.
///
/// Revisions are sequences of one stream, and a member applies them in order; so whoever holds the barrier's key at `revision`
/// or later holds every other key at what was committed before, or at something later.
///
/// # Errors
/// The barrier is missing or older: the member is behind, was cut off, or the barrier has aged away. An empty class is told
/// from a copy that knows nothing by the barrier itself.
pub fn prove(copy: &[(Key, Version)], barrier: &Key, revision: u64) -> Result<Timestamp, Cause> {
    match copy.iter().find(|(key, _)| key == barrier) {
        Some((_, version)) if version.revision >= revision => Ok(version.written),
        found => {
            let answered = found.map_or(0, |(_, version)| version.revision);
            Err(Cause::Stale { answered, known: revision })
        }
    }
}

/// The live keys of proved copies that `filter` selects, each once, in order, at the newest revision that any of them holds.
pub fn live(mut copies: Vec<(Key, Version)>, filter: &Filter) -> Vec<(Key, Version)> {
    copies.retain(|(key, _)| filter.selects(key.as_str()) && *key != Key::barrier());
    // A barrier among the records is in every one of several copies, and may have been written over or removed between two.
    copies.sort_unstable_by(|(a, one), (b, other)| a.cmp(b).then(other.revision.cmp(&one.revision)));
    copies.dedup_by(|later, kept| later.0 == kept.0);
    copies.retain(|(_, version)| version.value.is_some());
    copies
}

#[cfg(test)]
mod tests;
