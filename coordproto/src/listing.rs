//! The certification of a listing: what must be read again, what proves an answer, and what is handed over.
//!
//! Two strategies stand on this. The first certifies a pass by the leader's index. A pass over a bucket delivers every key's
//! newest revision, but it cannot tell that it is complete: a key rewritten before the pass reaches it is delivered by nobody,
//! and the marker that ends a pass is a guess. The stream leader's index, read beside the pass, names every key that the
//! leader holds. Whatever the index names and the pass did not deliver, or delivered only as a removal (a replica behind a
//! re-creation says that of a live key), is read from the leader. See [`Collected`].
//!
//! The second proves a copy by a barrier: a write that a quorum acknowledged with the sequence S inside the listing. In a copy
//! that holds the barrier at S or later nothing is from before S, whoever keeps it: see [`prove`]. But live keys may be missing
//! from it, and that too takes an index: see [`Index::missing_from`].
//!
//! Either can do without an index where one member's whole copy was read to its end. See [`Drained`].

mod drained;

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;

use crate::answer::Cause;
use crate::api::Subjects;
use crate::key::{Filter, Key};
pub use drained::{Drained, goes_on, is_drained};

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

/// A stream as its leader tells of it, without any of its subjects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The broker's clock when it answered.
    pub clock: Timestamp,
    /// The last sequence: how far the leader had come.
    pub last_seq: u64,
    /// How many records it held, removal markers included.
    pub records: u64,
}

/// The leader's index of a filter: the names of its keys, removal markers included, in order and each once.
#[derive(Clone, Debug)]
pub struct Index {
    names: Names,
    /// The stream's last sequence: how far the leader had come.
    pub last_seq: u64,
    /// The broker's clock when it answered.
    pub clock: Timestamp,
    /// How many records the stream held, of every class, markers included.
    pub records: u64,
}

/// A large index stays where it stands in the reply that brought it.
#[derive(Clone, Debug)]
enum Names {
    Keys(Vec<Key>),
    /// Subjects, and the length of what stands before the key in each.
    Subjects(Subjects, usize),
}

impl Index {
    /// An index of these keys.
    pub fn of_keys(mut keys: Vec<Key>, stream: Standing) -> Index {
        keys.sort_unstable();
        keys.dedup();
        Index::of(Names::Keys(keys), stream)
    }

    fn of(names: Names, Standing { clock, last_seq, records }: Standing) -> Index {
        Index { names, last_seq, clock, records }
    }

    /// What it tells of the stream as a whole.
    pub fn stream(&self) -> Standing {
        Standing { clock: self.clock, last_seq: self.last_seq, records: self.records }
    }

    /// An index of these subjects, in each of which `prefix` stands before the key.
    pub fn of_subjects(subjects: Subjects, prefix: &str, stream: Standing) -> Index {
        let mut before = None;
        let in_order = subjects.iter().all(|subject| {
            let later = before.is_none_or(|before| before < subject);
            before = Some(subject);
            later && subject.starts_with(prefix)
        });
        if in_order {
            return Index::of(Names::Subjects(subjects, prefix.len()), stream);
        }
        let keys = subjects.iter().filter_map(|subject| Key::parse(subject.strip_prefix(prefix)?).ok());
        Index::of_keys(keys.collect(), stream)
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        match &self.names {
            Names::Keys(keys) => keys.len(),
            Names::Subjects(subjects, _) => subjects.len(),
        }
    }

    /// Whether it names nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names as they are stored. One that is no key's was written by nobody who speaks of these records.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let (keys, subjects) = match &self.names {
            Names::Keys(keys) => (Some(keys.iter().map(Key::as_str)), None),
            Names::Subjects(subjects, prefix) => (None, Some(subjects.iter().map(|subject| &subject[*prefix..]))),
        };
        keys.into_iter().flatten().chain(subjects.into_iter().flatten())
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.names().filter_map(|name| Key::parse(name).ok())
    }

    /// Those of `keys` that it names.
    pub fn named_of(&self, mut keys: Vec<Key>) -> Vec<Key> {
        keys.sort_unstable();
        let mut names = self.names().peekable();
        keys.retain(|key| {
            while names.next_if(|name| *name < key.as_str()).is_some() {}
            names.peek().is_some_and(|name| *name == key.as_str())
        });
        keys
    }

    /// The keys that it names and that no copy has brought, in order.
    ///
    /// What a copy lacks may be live. A member that was away catches up from a summary of the stream: it takes away at once what
    /// was overwritten since, and only then gets what stands there instead.
    pub fn missing_from(&self, copied: &[(Key, Version)]) -> Vec<Key> {
        let mut copied: Vec<&str> = copied.iter().map(|(key, _)| key.as_str()).collect();
        copied.sort_unstable();
        let mut copied = copied.into_iter().peekable();
        let missing = self.names().filter(|name| {
            while copied.next_if(|key| key < name).is_some() {}
            copied.peek() != Some(name)
        });
        missing.filter_map(|name| Key::parse(name).ok()).collect()
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
pub struct Collected {
    delivered: Vec<(Key, Version)>,
    /// Whether `delivered` is in order, each key once at its newest revision.
    in_order: bool,
    /// What was asked about: a version, or how far the stream had come when there was none.
    read: BTreeMap<Key, Result<Version, u64>>,
}

impl Collected {
    /// Takes a revision that was delivered; an older one than is known changes nothing.
    pub fn take(&mut self, key: Key, version: Version) {
        self.delivered.push((key, version));
        self.in_order = false;
    }

    /// Puts what was delivered in order. Whatever needs it in order does so itself; this is for whoever has the time now.
    pub fn arrange(&mut self) {
        if !self.in_order {
            let newest_first =
                |(a, x): &(Key, Version), (b, y): &(Key, Version)| a.cmp(b).then_with(|| y.revision.cmp(&x.revision));
            self.delivered.sort_unstable_by(newest_first);
            self.delivered.dedup_by(|a, b| a.0 == b.0);
            self.in_order = true;
        }
    }

    /// The keys of the leader's `index` that the leader must be asked about, one by one.
    pub fn to_read(&mut self, index: &Index) -> Vec<Key> {
        self.arrange();
        let mut delivered = self.delivered.iter().peekable();
        let doubtful = index.names().filter(|name| {
            while delivered.next_if(|(key, _)| key.as_str() < *name).is_some() {}
            !delivered.peek().is_some_and(|(key, version)| key.as_str() == *name && version.value.is_some())
        });
        doubtful.filter_map(|name| Key::parse(name).ok()).collect()
    }

    /// Takes the leader's answer about a key that it was asked about: a version, or nothing there. Answers whether that
    /// settles it. A live version does. That a key is gone, in the words of somebody who may be no leader any more, does only
    /// if it is a removal that the `index` could not yet know of; else it has to be [proved](Collected::prove).
    ///
    /// # Errors
    /// An answer older than what is known of the same key: whoever answered was not the leader any more.
    pub fn settle(&mut self, key: &Key, answer: Option<Version>, index: &Index) -> Result<bool, Cause> {
        self.arrange();
        let known = self.delivered(key);
        match answer {
            Some(version) if version.revision < known => Err(Cause::Stale { answered: version.revision, known }),
            Some(version) if version.value.is_some() || version.revision > index.last_seq => {
                self.read.insert(key.clone(), Ok(version));
                Ok(true)
            }
            Some(_) | None => Ok(false),
        }
    }

    /// Takes what a copy from the `index` or later, of a stream that had come to `seq`, holds under a key.
    pub fn prove(&mut self, key: Key, held: Option<Version>, seq: u64) {
        self.arrange();
        let told = match held {
            // What was delivered is of a later state still, in which the key was gone.
            Some(version) if version.revision < self.delivered(&key) => Err(seq.max(self.delivered(&key))),
            Some(version) => Ok(version),
            None => Err(seq),
        };
        self.read.insert(key, told);
    }

    /// The revision of a key that the pass delivered; 0 if it did not.
    fn delivered(&self, key: &Key) -> u64 {
        let at = self.delivered.binary_search_by(|(delivered, _)| delivered.cmp(key));
        at.map_or(0, |at| self.delivered[at].1.revision)
    }

    /// What the listing comes to.
    ///
    /// A key that was delivered live and that the index does not name was gone when the leader had come as far as the index
    /// tells: it comes from a replica that is behind, unless its revision is later than that.
    pub fn finish(mut self, index: &Index) -> Finished {
        self.arrange();
        let Collected { delivered: mut live, read, .. } = self;
        let mut names = index.names().peekable();
        live.retain(|(key, version)| {
            while names.next_if(|name| *name < key.as_str()).is_some() {}
            let named = names.peek().is_some_and(|name| *name == key.as_str());
            version.value.is_some() && (named || version.revision > index.last_seq) && !read.contains_key(key)
        });
        let before = live.len();
        let mut gone = Vec::new();
        for (key, told) in read {
            match told {
                Ok(version) if version.value.is_some() => live.push((key, version)),
                Ok(version) => gone.push((key, version.revision)),
                Err(seq) => gone.push((key, seq)),
            }
        }
        if live.len() > before {
            live.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        }
        Finished { live, gone }
    }
}

/// A listing, and what it knows beyond.
#[derive(Debug)]
pub struct Finished {
    /// The live keys, each once, in order.
    pub live: Vec<(Key, Version)>,
    /// Keys that were asked about and are gone, each with the revision up to which nothing about it is news.
    pub gone: Vec<(Key, u64)>,
}

/// Whether nothing in a copy is from before a barrier: `copy` is what one member held at one instant, the barrier's key among
/// it, and the barrier was acknowledged at `revision`.
///
/// Revisions are sequences of one stream and a member applies them in order, so whoever holds the barrier's key at `revision`
/// or later has no key at a revision that was overwritten by then. It may lack a key: [`Index::missing_from`].
///
/// # Errors
/// The barrier is missing or older: the member is behind, was cut off, or the barrier has aged away. An empty class is told
/// from a copy that knows nothing by the barrier itself.
pub fn prove(copy: &[(Key, Version)], barrier: &Key, revision: u64) -> Result<(), Cause> {
    let answered = copy.iter().find(|(key, _)| key == barrier).map_or(0, |(_, version)| version.revision);
    if answered < revision {
        return Err(Cause::Stale { answered, known: revision });
    }
    Ok(())
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
