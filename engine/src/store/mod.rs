//! The port that every slot stands on: a bucket of keys with one revision each, its questions and their three answers.
//!
//! Two implementations, [`nats`] and [`memory`], held to one contract suite; two decorators, [`counting`] and [`faulty`].
//! Reads of one key are the stream leader's. A listing answers every key that was live throughout it, or unknown.
//!
//! This is not a general key-value interface: it has the operations that the coordination records need and no others.

pub mod counting;
pub mod faulty;
pub mod memory;
pub mod nats;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{BadArgument, Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::Version;
use coordproto::slot::{Age, Slot};
use jiff::Timestamp;

/// The largest value, in bytes. The broker takes messages of 1 MiB, headers included.
pub const VALUE_BYTES_MAX: usize = (1 << 20) - 1024;

/// The longest name of a bucket. The broker takes stream names of 255 bytes, and a bucket's is `KV_` and its name.
pub const NAME_BYTES_MAX: usize = 252;

/// The shortest age that the broker gives a bucket.
pub const AGE_MIN: Duration = Duration::from_millis(100);

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

/// A certified listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The live keys, each once, in order, at the newest revision read.
    pub entries: Vec<(Key, Version)>,
    /// The broker's clock at an instant inside the listing.
    pub clock: Timestamp,
}

/// The keys that the leader's index names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Keys with a revision, removal markers included, in order.
    pub keys: Vec<Key>,
    /// The broker's clock when it answered.
    pub clock: Timestamp,
}

/// A watch: a certified listing, then every change after it.
#[derive(Debug)]
pub struct Watch<C> {
    /// What the bucket held when the watch began.
    pub listing: Listing,
    /// What changes from then on.
    pub changes: C,
}

/// The changes of a watched bucket, in order.
pub trait Changes: Send + 'static {
    /// The next change: a key and its new version. No revision is given that is not newer than the listing's of its key.
    /// Expiry is no change; it is seen by reading.
    ///
    /// # Errors
    /// When the watch can no longer promise every change. It has then ended, and is to be opened again.
    fn next(&mut self) -> impl Future<Output = Result<(Key, Version), Unknown>> + Send;
}

/// One bucket, opened.
pub trait Bucket: Clone + Send + Sync + 'static {
    /// The changes of a watch.
    type Changes: Changes;

    /// The bucket's name.
    fn name(&self) -> &str;

    /// The age in force: how long a record is kept after it was written.
    fn age(&self) -> Option<Duration>;

    /// The newest version of a key, as the stream leader has it: a value, a removal marker, or nothing.
    fn get(&self, key: &Key) -> impl Future<Output = Result<Option<Version>, Unknown>> + Send;

    /// Writes a key under an expectation.
    ///
    /// # Errors
    /// A value above [`VALUE_BYTES_MAX`], before anything is sent; or unknown, which says whether the write may still land.
    fn put(&self, key: &Key, write: Write, expect: Expect) -> impl Future<Output = Result<Put, Error>> + Send;

    /// Erases a key up to a revision, leaving no marker; a later revision stays. Answers how many revisions went.
    fn purge(&self, key: &Key, through: u64) -> impl Future<Output = Result<u64, Unknown>> + Send;

    /// Every key live throughout the listing, or unknown; never fewer. A value may be an older one, from a member that is
    /// behind: whoever would leave a key out for what its value says asks the leader first.
    fn list(&self, filter: &Filter) -> impl Future<Output = Result<Listing, Unknown>> + Send;

    /// The keys that the leader's index names: one request, no values.
    fn names(&self, filter: &Filter) -> impl Future<Output = Result<Names, Unknown>> + Send;

    /// A certified listing and the changes after it.
    fn watch(&self, filter: &Filter) -> impl Future<Output = Result<Watch<Self::Changes>, Unknown>> + Send;

    /// The broker's clock, by a request of its own.
    fn clock(&self) -> impl Future<Output = Result<Timestamp, Unknown>> + Send;
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
}

/// A bucket as it is asked for. One that exists is adopted as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSpec {
    /// The bucket's whole name.
    pub name: String,
    /// How long it keeps a record; `None` keeps it for ever.
    pub age: Option<Duration>,
    /// Whether an existing bucket's shorter age is raised to this one. It is never lowered.
    pub raise_age: bool,
    /// The fewest copies it may have.
    pub replicas: u8,
}

impl BucketSpec {
    /// The bucket of `slot`, named `<prefix>_<slot>`.
    pub fn of(slot: &Slot, prefix: &str, lease_ttl: Duration, replicas: u8) -> BucketSpec {
        let (age, raise_age) = match slot.age {
            Age::LeaseTtl => (Some(lease_ttl), false),
            Age::AtLeast(age) => (Some(age), true),
            Age::None => (None, false),
        };
        BucketSpec { name: format!("{prefix}_{}", slot.name), age, raise_age, replicas }
    }

    /// Checks what no broker can keep, before one is asked.
    ///
    /// # Errors
    /// A name that is no subject token or longer than [`NAME_BYTES_MAX`], an age below [`AGE_MIN`], or a replica count that
    /// is not 1, 3 or 5.
    pub fn check(&self) -> Result<(), BadArgument> {
        let token = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if self.name.is_empty() || !self.name.bytes().all(token) {
            return Err(BadArgument::new("bucket", self.name.as_str(), "a bucket's name is made of A-Z a-z 0-9 _ -"));
        }
        if self.name.len() > NAME_BYTES_MAX {
            let rule = format!("{} bytes, at most {NAME_BYTES_MAX}", self.name.len());
            return Err(BadArgument::new("bucket", self.name.as_str(), rule));
        }
        match self.age {
            Some(age) if age < AGE_MIN => {
                let rule = format!("the broker keeps records for at least {AGE_MIN:?}");
                return Err(BadArgument::new("retention", format!("{age:?} for bucket {}", self.name), rule));
            }
            _ => {}
        }
        if !matches!(self.replicas, 1 | 3 | 5) {
            let given = format!("{} for bucket {}", self.replicas, self.name);
            return Err(BadArgument::new(
                "replicas",
                given,
                "1, 3 or 5: an even count survives no more than the odd one below",
            ));
        }
        Ok(())
    }
}

/// Why a bucket cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The specification breaks a rule; nothing was sent.
    #[error(transparent)]
    BadArgument(#[from] BadArgument),
    /// The store could not be asked.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// The bucket has fewer copies than this node is configured for, and would go on losing what it keeps with one disk.
    #[error(
        "bucket {bucket} has {have} replica(s) and this node is configured for {want}: resize the stream KV_{bucket} or lower the setting"
    )]
    Replicas {
        /// The bucket.
        bucket: String,
        /// The copies it has.
        have: u8,
        /// The copies asked for.
        want: u8,
    },
}

/// The rule about values, the same on every backend.
///
/// # Errors
/// A value above [`VALUE_BYTES_MAX`].
pub fn check_value(key: &Key, write: &Write) -> Result<(), BadArgument> {
    match write {
        Write::Value(value) if value.len() > VALUE_BYTES_MAX => {
            let given = format!("{} bytes for key {key}", value.len());
            Err(BadArgument::new("value", given, format!("at most {VALUE_BYTES_MAX} bytes")))
        }
        _ => Ok(()),
    }
}
