//! What has to be true of a listing, whoever made it. Every key of a class is there throughout, so a listing lacks none and has
//! each once; and none is at an older revision than was acknowledged before the listing began.
//!
//! Revisions are what every peer gives for a write and with a key, and they go up as a key is rewritten, also where a write
//! without an answer comes through late. The floor's passes are counted and not read: of them none of this is known.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::listing::Wrong;

/// A key as a listing has it, whose value was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// Its name in its class.
    pub(super) key: String,
    /// The write that its value is of, in the peer's own count.
    pub(super) revision: u64,
}

/// A key of a class by its number.
pub(super) fn key(number: usize) -> String {
    format!("k{number:05}")
}

fn number(key: &str) -> Option<usize> {
    key.strip_prefix('k')?.parse().ok()
}

/// The newest revision that a peer has acknowledged of each key, by class and number. Clones are handles to the same.
#[derive(Clone, Default)]
pub(super) struct Account(Arc<Mutex<BTreeMap<&'static str, Vec<u64>>>>);

/// An account of a class as it was when a listing began.
pub(super) struct Before(Vec<u64>);

impl Account {
    /// A write was acknowledged.
    pub(super) fn stored(&self, class: &'static str, number: usize, revision: u64) {
        let mut classes = self.0.lock();
        let known = classes.entry(class).or_default();
        if known.len() <= number {
            known.resize(number + 1, 0);
        }
        known[number] = known[number].max(revision);
    }

    /// A listing of a class begins.
    pub(super) fn before(&self, class: &str) -> Before {
        Before(self.0.lock().get(class).cloned().unwrap_or_default())
    }
}

impl Before {
    /// What is wrong with the answer.
    pub(super) fn check(&self, listed: &[Listed]) -> Wrong {
        let (mut wrong, mut seen) = (Wrong::default(), vec![false; self.0.len()]);
        for Listed { key, revision } in listed {
            // A key that nobody here wrote is not what this is about.
            let Some((number, acknowledged)) = number(key).and_then(|number| Some((number, self.0.get(number)?)))
            else {
                continue;
            };
            wrong.twice += usize::from(std::mem::replace(&mut seen[number], true));
            wrong.old += usize::from(revision < acknowledged);
        }
        wrong.missed = seen.into_iter().filter(|seen| !seen).count();
        wrong
    }
}

/// Listings that were wrong, by what was wrong with them. One may be wrong in several ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wrongs {
    /// They lacked a key.
    pub(super) short: u64,
    /// They had a key more than once.
    pub(super) double: u64,
    /// They had a key at an older revision than had been acknowledged before.
    pub(super) old: u64,
}

impl Wrongs {
    /// Counts a listing; says whether anything was wrong with it.
    pub(super) fn told(&mut self, Wrong { missed, twice, old }: Wrong) -> bool {
        let [missed, twice, old] = [missed, twice, old].map(|keys| keys > 0);
        self.short += u64::from(missed);
        self.double += u64::from(twice);
        self.old += u64::from(old);
        missed || twice || old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(entries: &[(usize, u64)]) -> Vec<Listed> {
        entries.iter().map(|(number, revision)| Listed { key: key(*number), revision: *revision }).collect()
    }

    #[test]
    fn every_wrong_is_found() {
        let account = Account::default();
        (0..3).for_each(|number| account.stored("list_5", number, 1 + number as u64));
        account.stored("list_5", 0, 10);
        account.stored("list_5", 0, 9);
        let before = account.before("list_5");
        let check = |entries: &[(usize, u64)]| before.check(&listed(entries));
        let wrong = |missed, twice, old| Wrong { missed, twice, old };
        assert_eq!(check(&[(0, 10), (1, 2), (2, 3)]), wrong(0, 0, 0));
        assert_eq!(check(&[(2, 30), (1, 20), (0, 11)]), wrong(0, 0, 0), "what was written meanwhile, in any order");
        assert_eq!(check(&[(0, 10), (2, 3)]), wrong(1, 0, 0));
        assert_eq!(check(&[]), wrong(3, 0, 0));
        assert_eq!(check(&[(0, 10), (0, 11), (1, 2), (2, 3)]), wrong(0, 1, 0));
        assert_eq!(check(&[(0, 9), (1, 2), (2, 3)]), wrong(0, 0, 1));
        assert_eq!(check(&[(0, 10), (0, 9), (1, 2)]), wrong(1, 1, 1));
        assert_eq!(check(&[(0, 10), (1, 2), (2, 3), (7, 1)]), wrong(0, 0, 0), "nobody wrote it");
        account.stored("list_5", 1, 12);
        assert_eq!(check(&[(0, 10), (1, 2), (2, 3)]), wrong(0, 0, 0), "it was acknowledged later");
    }
}
