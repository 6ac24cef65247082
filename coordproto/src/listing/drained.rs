//! A copy read to its end: what one member of the cluster holds, record by record, until it has nothing more.
//!
//! A bucket keeps one revision per key, so a consumer of each key's last revision is a cursor that walks one member's store in
//! the order of sequences. What makes a pass short is its end alone, which it guesses from a count. A drain ends otherwise:
//! the member looked for the next record at an instant *t* and found none. Sequences only grow and the cursor never turns
//! back, so whatever the member held at *t* was delivered. It proves two things by what it holds, and by nothing it says:
//!
//! **Nothing is missing.** Its last record has the sequence *c*, and a member applies a stream in order, so at *t* it had
//! applied everything up to *c*. If *c* ≥ *S*, where *S* was committed by an instant inside the listing, a key that was live
//! from before that instant until after *t* is in what the member held at *t*, at the revision it had at *S* or a later one.
//!
//! **Nothing is there that was gone before.** A removal whose marker is erased leaves no trace, so a member that was behind
//! when the drain began can deliver a key, catch up, and never deliver that the key is gone. Then more keys were delivered
//! than the member held at *t*. How many it held, the leader tells when asked *after t*: at least as many as the leader holds
//! then, less the writes since *c*, each of which adds one key at most. If no more keys than that were delivered, each of them
//! was held at *t*.
//!
//! What it does not cover: a key erased at the member before the drain reached it that the leader, asked later, has still
//! not erased would hide one such key. And every member ages a bucket's records by its own clock, as everywhere.

use super::{KEYS_MAX, Standing, Version};
use crate::answer::Cause;
use crate::key::Key;

/// A class is large from so many keys on. A smaller one is proved by one batched direct get, and its index costs hardly
/// anything.
const LARGE: u64 = 1_024;

/// Whether a class of `keys` keys, in a bucket of `records` records, is cheaper to list by reading all of the bucket: a large
/// one that is most of it.
pub fn is_drained(keys: u64, records: u64) -> bool {
    (LARGE..=KEYS_MAX).contains(&keys) && records <= keys + keys / 8
}

/// Whether a drain of what were `counted` records is to go on after so many were `delivered`. Where keys are rewritten as fast as
/// they come, it would have no end.
///
/// # Errors
/// It is not: twice as many came as there were.
pub fn goes_on(delivered: u64, counted: u64) -> Result<(), Cause> {
    if delivered > counted.saturating_mul(2) {
        return Err(Cause::Garbage(format!("{delivered} records of a copy of {counted}, and no end").into()));
    }
    Ok(())
}

/// What one member delivered of a whole bucket, and what the bucket's leader told after that.
#[derive(Clone, Debug)]
pub struct Drained {
    /// What was delivered, removal markers included, in the order of revisions: a key that was written meanwhile comes again.
    pub entries: Vec<(Key, Version)>,
    /// Records delivered that nobody wrote who speaks of these records.
    pub others: u64,
    /// How many records there were to deliver when it began.
    pub counted: u64,
    /// The last sequence delivered; 0 for none.
    pub last: u64,
    /// The stream as its leader told of it after the end.
    pub after: Standing,
}

impl Drained {
    /// Every key the member held at its end, each once at its newest revision, in order; markers are among them. It is all of
    /// what was committed up to `since`, unless it ended sooner than it was read.
    ///
    /// # Errors
    /// Stale, from a member that had not come to `since` or a leader that was behind the member; garbage, when fewer records
    /// came than there were, which a member that cannot read its store gives away, or more keys than it can have held.
    pub fn whole(mut self, since: u64) -> Result<Vec<(Key, Version)>, Cause> {
        if self.last < since {
            return Err(Cause::Stale { answered: self.last, known: since });
        }
        let delivered = self.entries.len() as u64 + self.others;
        if delivered < self.counted {
            let short = format!("a copy of {} records that ended after {delivered}", self.counted);
            return Err(Cause::Garbage(short.into()));
        }
        let Some(since_then) = self.after.last_seq.checked_sub(self.last) else {
            return Err(Cause::Stale { answered: self.after.last_seq, known: self.last });
        };
        self.entries.sort_unstable_by(|(a, x), (b, y)| a.cmp(b).then_with(|| y.revision.cmp(&x.revision)));
        self.entries.dedup_by(|older, newest| older.0 == newest.0);
        let (keys, records) = (self.entries.len() as u64 + self.others, self.after.records);
        if keys.saturating_add(since_then) > records {
            let over = format!("a copy with {keys} keys of a stream with {records}, {since_then} writes later");
            return Err(Cause::Garbage(over.into()));
        }
        Ok(self.entries)
    }
}
