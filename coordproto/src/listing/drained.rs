//! A copy read to its end: what one member of the cluster holds, record by record, until it has nothing more.
//!
//! A bucket keeps one revision per key, so a consumer of each key's last revision is a cursor that walks one member's store in
//! the order of sequences and never turns back. It is believed for what it delivered, beside what the leader tells when asked
//! after its end, and for nothing that the member says. Let *c* be the last sequence delivered, and let the leader tell
//! afterwards that *c* is the stream's last and that the stream has *R* records, which is so many keys.
//!
//! **Nothing is missing.** A record that the leader holds then has a sequence *s* up to *c* and was never removed. To deliver
//! *c* the member had come to *c*, so it had *s* when the cursor went past, and delivered it. It does not matter how the drain
//! ended, or what was rewritten ahead of it: that would be after *c*.
//!
//! **Nothing is there that was gone before, and no record was lost by the member alone.** A removal whose marker is erased leaves
//! no trace, so a member that was behind when the drain began can deliver a key, catch up, and never deliver that the key is
//! gone. Then more than *R* keys came. A member whose store has lost a record, or cannot read it, delivers fewer. If as many keys
//! came as the leader has, and it is neither, they are the leader's.
//!
//! **It is new enough** if *c* is not before *S*, which was committed by an instant inside the listing: whoever answered for the
//! leader is then no leader of the past.
//!
//! What it does not cover: as many keys too many as too few, by a member that is behind and has lost something. And every member
//! ages a bucket's records by its own clock, as everywhere.

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

/// Whether a drain of what were `counted` records is to go on after so many were `delivered`. All of them are held until the
/// end, and where keys are rewritten as fast as they come, there would be none.
///
/// # Errors
/// It is not: there were more than a class that is drained can have beside it, or twice as many came as there were.
pub fn goes_on(delivered: u64, counted: u64) -> Result<(), Cause> {
    let most = KEYS_MAX + KEYS_MAX / 8;
    if counted > most {
        return Err(Cause::TooMany { keys: counted, most });
    }
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
    /// The last sequence delivered; 0 for none.
    pub last: u64,
    /// The stream as its leader told of it after the end.
    pub after: Standing,
}

impl Drained {
    /// Every key the leader held after it, each once at its newest revision, in order; markers are among them.
    ///
    /// # Errors
    /// Stale, from a member that had not come to `since`, or to what the leader had; garbage, when more or fewer keys came than
    /// the leader has.
    pub fn whole(mut self, since: u64) -> Result<Vec<(Key, Version)>, Cause> {
        // Written meanwhile, or the leader is behind: either way the two do not speak of one state.
        for known in [since, self.after.last_seq] {
            if self.last < known {
                return Err(Cause::Stale { answered: self.last, known });
            }
        }
        if self.after.last_seq < self.last {
            return Err(Cause::Stale { answered: self.after.last_seq, known: self.last });
        }
        self.entries.sort_unstable_by(|(a, x), (b, y)| a.cmp(b).then_with(|| y.revision.cmp(&x.revision)));
        self.entries.dedup_by(|older, newest| older.0 == newest.0);
        let (keys, records) = (self.entries.len() as u64 + self.others, self.after.records);
        if keys != records {
            return Err(Cause::Garbage(format!("a copy with {keys} keys of a stream with {records}").into()));
        }
        Ok(self.entries)
    }
}
