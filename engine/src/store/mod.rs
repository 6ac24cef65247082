//! The port that every slot stands on: a bucket of keys with one revision each, its questions and their three answers.
//!
//! Two implementations, [`nats`] and [`memory`], held to one contract suite; two decorators, [`counting`] and [`faulty`]. They
//! answer what a broker answers: a leader's read, a compare-and-set, an index, a pass, a drain, a copy. What must not lie is made of
//! those answers in one place for all of them: [`listing`] and [`watch`].
//!
//! This is not a general key-value interface: it has the operations that the coordination records need and no others.

pub mod counting;
pub mod create;
mod drains;
pub mod faulty;
pub mod follow;
pub mod listing;
pub mod memory;
pub mod modify;
pub mod nats;
mod opening;
pub mod remove;
pub mod replace;
pub mod sweep;
pub mod watch;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{BadArgument, Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::{Drained, Index, Standing, Version};
use coordproto::slot::Slot;
use jiff::Timestamp;

use crate::env::{Env, Mono};
pub use crate::jetstream::Values;
pub use drains::Drains;
pub use opening::{BucketSpec, NAME_BYTES_MAX, OpenError};
pub use watch::Watch;

/// The largest value, in bytes, whatever a broker takes. As it is shipped it takes messages of 1 MiB, headers included.
pub const VALUE_BYTES_MAX: usize = (1 << 20) - 1024;

/// What is left to the headers of a message of a broker that is configured to take less. Those of a write are some 100 bytes.
const HEADER_BYTES: usize = 256;

/// The largest value, in bytes, where the broker takes messages of `max_payload` bytes, headers included.
fn value_bytes_max(max_payload: usize) -> usize {
    max_payload.saturating_sub(HEADER_BYTES).min(VALUE_BYTES_MAX)
}

/// What a write puts under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A value.
    Value(Bytes),
    /// A marker that says the key was removed; the key reads as absent.
    Removal,
}

/// What a write requires of the key it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing: the last write wins.
    Any,
    /// That its newest revision, markers included, is this one; 0 says that it has none.
    At(u64),
}

/// The definite answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a write that lost its race is not stored"]
pub enum Put {
    /// Stored under this revision.
    Stored(u64),
    /// Not stored, and it never will be.
    Lost(Race),
}

/// Why a write lost its race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Race {
    /// The key stands at this later revision.
    Newer(u64),
    /// The answerer has no revision of the key, where one was expected. It may be gone, or the answerer may be from before
    /// it: only a write that expects no revision decides.
    Vanished,
    /// A rival's write to the key is under way. A read at once may show neither: wait, then look.
    InProcess,
}

/// A listing: every key that was live throughout it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The live keys, each once, in order.
    pub entries: Vec<(Key, Version)>,
    /// The broker's clock at an instant inside the listing.
    pub clock: Timestamp,
    /// How far the stream had come at an instant inside the listing. No live key that stood then is missing.
    pub last_seq: u64,
}

/// What certifies a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certified {
    /// The stream leader's word, its index for instance. The listing begins when it is asked for. A value may be an older one, from a member that is
    /// behind. And whoever takes itself for the leader is believed: one that was cut off from its cluster goes on answering
    /// from its own copy for 10 to 20 s, and one that was frozen for the milliseconds until it hears of its successor, unless
    /// this connection knows of something later.
    Leader,
    /// A write that a quorum acknowledged: the listing begins when that write was *sent*, and no key and no value in it is
    /// from before the write was stored. A member that is behind or cut off proves nothing and is not believed.
    Quorum(Barrier),
}

/// A write of one's own that a quorum acknowledged, for a listing to stand on. It proves an instant between its sending and
/// its acknowledgement and nothing later, so a listing that stands on an old one begins then.
///
/// A lease's last good renewal is one, see [`Leases::barrier`](crate::lease::Leases::barrier); who has no write at hand pays for
/// one, see [`Bucket::barrier`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// The bucket that was written to.
    pub bucket: Box<str>,
    /// The key that was written. It has to be in the bucket still, at that revision or later.
    pub key: Key,
    /// The revision that was acknowledged.
    pub revision: u64,
    /// When the write was sent.
    pub sent: Mono,
}

/// What a batched direct get answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copy {
    /// All of it.
    Whole(Held),
    /// More than one answer carries. Ask for fewer.
    TooMuch,
}

/// What one member of the cluster holds of the names asked for, removal markers included, all at one instant. What it lacks may
/// be live, however late it is: a member that catches up has dropped what was overwritten before it has what stands there now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Each key once.
    pub entries: Vec<(Key, Version)>,
    /// How far that member had come; `None` when it holds nothing of what was asked, as that answer does not say.
    pub last_seq: Option<u64>,
}

/// One record that a pass delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its key, unless that is one that nobody who speaks of these records writes.
    pub key: Option<Key>,
    /// What it holds.
    pub version: Version,
    /// How many the broker believed to have left after it. It can be 0 too early while records are rewritten.
    pub pending: u64,
}

/// One ordered pass over the newest revision of every key that a filter selects, and then over what is written from then on.
/// It is served by one member of the cluster, which may be behind, and it cannot tell that it is complete.
pub trait Pass: Send + 'static {
    /// How many records there were to deliver when it began.
    fn to_deliver(&self) -> u64;

    /// The next record, in the order of revisions.
    ///
    /// # Errors
    /// Unknown at the deadline, after which the pass goes on; when deliveries may have been missed, after which it does not.
    fn next(&mut self, by: Mono) -> impl Future<Output = Result<Delivery, Unknown>> + Send;

    /// Ends it, and hears that nothing of it stays with the broker. A pass that is dropped is ended unheard.
    ///
    /// # Errors
    /// Unknown when that is not confirmed; the broker forgets it by itself.
    fn end(self, by: Mono) -> impl Future<Output = Result<(), Unknown>> + Send;
}

/// One bucket, opened. Backends and decorators answer the questions that a broker answers; what is made of them, the
/// certified listing and the watch, is made once, in [`listing`] and [`watch`].
pub trait Bucket: Clone + Send + Sync + 'static {
    /// A pass over its records.
    type Pass: Pass;

    /// The bucket's name.
    fn name(&self) -> &str;

    /// The age in force: how long a record is kept after it was written.
    fn age(&self) -> Option<Duration>;

    /// The largest value that it takes, in bytes: [`VALUE_BYTES_MAX`], or less where the broker takes less.
    fn value_bytes_max(&self) -> usize;

    /// The clock and the randomness that it was opened with.
    fn env(&self) -> &Env;

    /// The deadline of a request that begins now and has no other.
    fn deadline(&self) -> Mono;

    /// The newest version of a key, as the stream leader has it: a value, a removal marker, or nothing.
    fn read(&self, key: &Key, by: Mono) -> impl Future<Output = Result<Option<Version>, Unknown>> + Send;

    /// Writes a key under an expectation.
    ///
    /// # Errors
    /// A value above [`Bucket::value_bytes_max`], before anything is sent; or unknown, which says whether the write may still
    /// land.
    fn put(&self, key: &Key, write: Write, expect: Expect) -> impl Future<Output = Result<Put, Error>> + Send;

    /// Erases a key up to a revision, leaving no marker; a later revision stays. Answers how many revisions went.
    fn purge(&self, key: &Key, through: u64) -> impl Future<Output = Result<u64, Unknown>> + Send;

    /// The leader's index of a filter: one request, no values.
    ///
    /// # Errors
    /// Unknown without a leader, for more keys than [`coordproto::listing::KEYS_MAX`], and for an answer from before
    /// something that this connection knows of the bucket.
    fn index(&self, filter: &Filter, by: Mono) -> impl Future<Output = Result<Index, Unknown>> + Send;

    /// A pass over what a filter selects.
    fn pass(
        &self,
        filter: &Filter,
        values: Values,
        by: Mono,
    ) -> impl Future<Output = Result<Self::Pass, Unknown>> + Send;

    /// What some member of the cluster holds of these keys and filters at one instant: one request, no leader and no consumer
    /// needed. The member may be behind, and may lack what is live.
    fn copy(&self, names: &[&str], by: Mono) -> impl Future<Output = Result<Copy, Unknown>> + Send;

    /// What one member of the cluster holds of all the bucket, record by record to its end, and how the stream stood after
    /// that: a consumer, made and removed, and one request for every 4 MiB. The member may be behind; [`Drained::whole`] says
    /// what to believe.
    ///
    /// # Errors
    /// Unknown when it does not come to its end by the deadline, and nothing of it is left behind.
    fn drain(&self, by: Mono) -> impl Future<Output = Result<Drained, Unknown>> + Send;

    /// The stream as its leader sees it, the broker's clock among it: one request, without keys.
    ///
    /// # Errors
    /// As [`Bucket::index`].
    fn standing(&self, by: Mono) -> impl Future<Output = Result<Standing, Unknown>> + Send;

    /// Which of its listings go by a drain. All handles to a bucket that were cloned from one share it.
    fn drains(&self) -> &Drains;

    /// The broker's clock: that of [`Bucket::standing`] by the usual deadline.
    fn clock(&self) -> impl Future<Output = Result<Timestamp, Unknown>> + Send {
        async { Ok(self.standing(self.deadline()).await?.clock) }
    }

    /// [`Bucket::read`] by the usual deadline.
    fn get(&self, key: &Key) -> impl Future<Output = Result<Option<Version>, Unknown>> + Send {
        self.read(key, self.deadline())
    }

    /// Every key live throughout the listing, or unknown; never fewer. `by` is the deadline of all of it. Dropped, it leaves
    /// nothing behind.
    fn list(
        &self,
        filter: &Filter,
        certified: &Certified,
        by: Mono,
    ) -> impl Future<Output = Result<Listing, Unknown>> + Send {
        listing::list(self, filter, certified, by)
    }

    /// What stands under `keys`, which `filter` selects, at an instant after the stream had come to `seq`, removal markers
    /// included: for whoever would leave a key of a listing out for what its value says. A key without a version is left out.
    /// One request for a thousand of them, answered by any member that is not behind, and the leader's index for those that it
    /// lacks.
    fn since(
        &self,
        filter: &Filter,
        keys: &[Key],
        seq: u64,
        by: Mono,
    ) -> impl Future<Output = Result<Vec<(Key, Version)>, Unknown>> + Send {
        listing::since(self, filter, keys, seq, by)
    }

    /// A listing certified by the leader, and the changes after it, from the same pass.
    fn watch(&self, filter: &Filter, by: Mono) -> impl Future<Output = Result<Watch<Self::Pass>, Unknown>> + Send {
        watch::watch(self, filter, by)
    }

    /// A write that only makes a [`Barrier`].
    fn barrier(&self, by: Mono) -> impl Future<Output = Result<Barrier, Unknown>> + Send {
        listing::barrier(self, by)
    }
}

/// A coordination store: what opens buckets.
pub trait Store: Clone + Send + Sync + 'static {
    /// Its buckets.
    type Bucket: Bucket;

    /// Adopts a bucket as it is found, or creates it.
    ///
    /// # Errors
    /// A specification the broker cannot keep, fewer replicas than asked for, or unknown.
    fn open(&self, spec: &BucketSpec) -> impl Future<Output = Result<Self::Bucket, OpenError>> + Send;

    /// Opens the bucket of `slot`, and tells the log how what is in force differs from what was asked for: every slot is
    /// opened through this, once for a process. A store that has opened it already answers with that, see
    /// [`Shared`](crate::slots::shared::Shared).
    ///
    /// # Errors
    /// As [`Store::open`], or a bucket whose records would never end.
    fn adopt(&self, slot: &Slot, spec: &BucketSpec) -> impl Future<Output = Result<Self::Bucket, OpenError>> + Send {
        opening::adopt(self, slot, spec)
    }
}

/// The rule about values, the same on every backend. Whoever makes several writes asks before the first of them.
///
/// # Errors
/// A value above [`Bucket::value_bytes_max`], by its record and its size.
pub fn check_value<B: Bucket>(bucket: &B, key: &Key, write: &Write) -> Result<(), BadArgument> {
    match write {
        Write::Value(value) => check_size(bucket, key, value.len()),
        Write::Removal => Ok(()),
    }
}

/// The same rule about a value of so many bytes, which nobody has to have made yet.
///
/// # Errors
/// As [`check_value`].
pub fn check_size<B: Bucket>(bucket: &B, key: &Key, bytes: usize) -> Result<(), BadArgument> {
    let most = bucket.value_bytes_max();
    if bytes <= most {
        return Ok(());
    }
    let given = format!("{bytes} bytes for {key} in {}", bucket.name());
    Err(BadArgument::new("value", given, format!("at most {most} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_leaves_room_for_its_headers() {
        for (max_payload, most) in
            [(1 << 20, VALUE_BYTES_MAX), (8 << 20, VALUE_BYTES_MAX), (1 << 16, 65_280), (256, 0), (0, 0)]
        {
            assert_eq!(value_bytes_max(max_payload), most);
        }
    }
}
