//! What must be true of a listing, whatever the store says: the load generator's own account of its keys.
//!
//! It is told of every write as it is answered, and of every removal before it is sent, and knows nothing else. A key that it
//! counts as live when a listing begins, and under the same write still when the answer has come, was live throughout. A
//! revision that it knows when a listing begins was acknowledged before; an older one in the listing is old.

use std::collections::HashMap;

use coordproto::key::{Key, Resource};
use coordproto::listing::Version;
use parking_lot::Mutex;

use super::Params;

/// The account of every key.
pub struct Account {
    keys: Vec<Key>,
    numbers: HashMap<Key, usize>,
    /// So many of the first keys are rewritten, removed or made while listings are made; the others stay as they are.
    moving: usize,
    state: Mutex<Vec<State>>,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// The newest revision that was acknowledged, removals included.
    acknowledged: u64,
    /// The write since which it is certainly live.
    live_since: Option<u64>,
}

/// The account as it was when a listing began.
pub struct Before(Vec<State>);

/// What is wrong with a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wrong {
    /// Keys that were live throughout and are not in it.
    pub missed: usize,
    /// Keys that are in it again.
    pub twice: usize,
    /// Keys in it at an older revision than had been acknowledged.
    pub old: usize,
}

impl Account {
    /// The account of a run's keys, none of which is written: first those that are rewritten, then those that come and go,
    /// then those that stay as they are.
    pub fn new(params: &Params) -> Account {
        let (churned, extra) = (params.churned, params.extra());
        let named = |name: String| Resource::parse(&name).expect("a number makes a name").key().clone();
        let kept = |number: usize| named(format!("node:k{number:06}"));
        let coming = (0..extra).map(|number| named(format!("node:x{number:06}")));
        let keys: Vec<Key> = (0..churned).map(kept).chain(coming).chain((churned..params.keys).map(kept)).collect();
        let numbers = keys.iter().cloned().zip(0..).collect();
        let state = Mutex::new(vec![State::default(); keys.len()]);
        Account { keys, numbers, moving: churned + extra, state }
    }

    /// The keys, by their numbers.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// How many are written.
    pub fn written(&self) -> usize {
        self.state.lock().iter().filter(|state| state.acknowledged > 0).count()
    }

    /// A key's value was acknowledged: it is live until its removal is sent.
    pub fn stored(&self, number: usize, revision: u64) {
        let state = &mut self.state.lock()[number];
        state.acknowledged = state.acknowledged.max(revision);
        state.live_since.get_or_insert(revision);
    }

    /// A key's removal is about to be sent.
    pub fn removing(&self, number: usize) {
        self.state.lock()[number].live_since = None;
    }

    /// A key's removal was acknowledged.
    pub fn removed(&self, number: usize, revision: u64) {
        let state = &mut self.state.lock()[number];
        state.acknowledged = state.acknowledged.max(revision);
    }

    /// A listing begins.
    pub fn before(&self) -> Before {
        Before(self.state.lock()[..self.moving].to_vec())
    }

    /// What is wrong with a listing that has been answered.
    pub fn check(&self, before: &Before, listed: &[(Key, Version)]) -> Wrong {
        let state = self.state.lock();
        let began = |number: usize| before.0.get(number).unwrap_or_else(|| &state[number]);
        let (mut wrong, mut seen) = (Wrong::default(), vec![false; self.keys.len()]);
        for (key, version) in listed {
            // A key that nobody here wrote is not what this is about.
            let Some(&number) = self.numbers.get(key) else { continue };
            wrong.twice += usize::from(std::mem::replace(&mut seen[number], true));
            wrong.old += usize::from(version.revision < began(number).acknowledged);
        }
        let throughout = |number: usize| {
            let since = began(number).live_since;
            since.is_some() && since == state[number].live_since
        };
        wrong.missed = (0..seen.len()).filter(|number| !seen[*number] && throughout(*number)).count();
        wrong
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use jiff::Timestamp;

    use super::super::{Churn, Strategy};
    use super::*;

    /// Keys 0 and 2 stay, of which 0 is rewritten; 1 comes and goes.
    fn account() -> Account {
        let strategies = vec![Strategy::Leader];
        let (churn, duration) = (Churn::Tight, Duration::from_secs(1));
        let account =
            Account::new(&Params { keys: 2, churned: 1, churn, readers: 1, strategies, count: None, duration });
        (0..3).for_each(|number| account.stored(number, 1 + number as u64));
        account
    }

    fn listed(account: &Account, entries: &[(usize, u64)]) -> Vec<(Key, Version)> {
        let version = |revision| Version { revision, written: Timestamp::UNIX_EPOCH, value: Some(Bytes::new()) };
        entries.iter().map(|(number, revision)| (account.keys()[*number].clone(), version(*revision))).collect()
    }

    fn wrong(missed: usize, twice: usize, old: usize) -> Wrong {
        Wrong { missed, twice, old }
    }

    #[test]
    fn every_wrong_is_found() {
        let account = account();
        account.stored(0, 10);
        let before = account.before();
        let check = |entries: &[(usize, u64)]| account.check(&before, &listed(&account, entries));
        assert_eq!(check(&[(0, 10), (1, 2), (2, 3)]), wrong(0, 0, 0));
        assert_eq!(check(&[(0, 10), (1, 2)]), wrong(1, 0, 0));
        assert_eq!(check(&[]), wrong(3, 0, 0));
        assert_eq!(check(&[(0, 10), (0, 11), (1, 2), (2, 3)]), wrong(0, 1, 0));
        assert_eq!(check(&[(0, 1), (1, 2), (2, 2)]), wrong(0, 0, 2));
    }

    #[test]
    fn what_was_acknowledged_meanwhile_is_not_asked_for() {
        let account = account();
        let before = account.before();
        account.stored(0, 10);
        assert_eq!(account.check(&before, &listed(&account, &[(0, 1), (1, 2), (2, 3)])), Wrong::default());
    }

    #[test]
    fn what_came_or_went_meanwhile_may_be_missing() {
        let account = account();
        let stay = [(0, 1), (2, 3)];
        let check = |before: &Before| account.check(before, &listed(&account, &stay));
        let before = account.before();
        account.removing(1);
        assert_eq!(check(&before), Wrong::default(), "it may be gone");
        account.stored(1, 20);
        assert_eq!(check(&before), Wrong::default(), "it may have been away");
        let before = account.before();
        assert_eq!(check(&before), wrong(1, 0, 0));
        account.removing(1);
        account.removed(1, 30);
        let before = account.before();
        assert_eq!(check(&before), Wrong::default());
        let ghost = listed(&account, &[(0, 1), (1, 20), (2, 3)]);
        assert_eq!(account.check(&before, &ghost), wrong(0, 0, 1), "its removal had been acknowledged");
        account.stored(1, 40);
        assert_eq!(check(&before), Wrong::default(), "it was not there when it began");
    }
}
