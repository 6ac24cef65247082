//! Who has to be in a listing: the records of each family that are certainly there, and since when.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use engine::env::Mono;

use super::{Verdict, Wrong, holds};

/// The rolls, by family.
#[derive(Default)]
pub(in super::super) struct Rolls(HashMap<&'static str, BTreeMap<String, Entry>>);

#[derive(Default)]
struct Entry {
    /// Since when it is certainly there; none when it is not, or perhaps not.
    since: Option<Mono>,
    /// Every value that was ever sent for it.
    sent: BTreeSet<u64>,
}

impl Rolls {
    fn entry(&mut self, family: &'static str, key: &str) -> &mut Entry {
        self.0.entry(family).or_default().entry(key.to_owned()).or_default()
    }

    /// A write of this value is about to be sent.
    pub(in super::super) fn sending(&mut self, family: &'static str, key: &str, value: u64) {
        self.entry(family, key).sent.insert(value);
    }

    /// A write was acknowledged at `now`: it is there until its removal is sent.
    pub(in super::super) fn stands(&mut self, family: &'static str, key: &str, now: Mono) {
        self.entry(family, key).since.get_or_insert(now);
    }

    /// Its removal is about to be sent.
    pub(in super::super) fn leaving(&mut self, family: &'static str, key: &str) {
        self.entry(family, key).since = None;
    }

    /// Judges a listing of all of a family that began at `began` and has been answered. Which were there throughout is told by
    /// this account as it is now: a record that left and came again has a later beginning.
    pub(in super::super) fn listed(&self, family: &'static str, began: Mono, rows: &[(String, u64)]) -> Verdict {
        let empty = BTreeMap::new();
        let roll = self.0.get(family).unwrap_or(&empty);
        let mut seen = BTreeSet::new();
        for (key, value) in rows {
            holds(seen.insert(key), Wrong::ListingDouble)?;
            holds(roll.get(key).is_some_and(|entry| entry.sent.contains(value)), Wrong::Record)?;
        }
        let throughout = |entry: &Entry| entry.since.is_some_and(|since| since < began);
        holds(roll.iter().all(|(key, entry)| !throughout(entry) || seen.contains(key)), Wrong::ListingShort)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::env::Env;

    use super::*;

    #[test]
    fn what_is_there_throughout_is_listed_once_with_what_somebody_wrote() {
        let start = Env::seeded(1).now();
        let s = |seconds| start + Duration::from_secs(seconds);
        let mut rolls = Rolls::default();
        for (key, value) in [("a", 1), ("a", 2), ("b", 3), ("late", 4), ("gone", 5)] {
            rolls.sending("f", key, value);
            rolls.stands("f", key, s(if key == "late" { 5 } else { 1 }));
        }
        rolls.leaving("f", "gone");
        let listed = |rows: &[(&str, u64)]| {
            let rows: Vec<_> = rows.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
            rolls.listed("f", s(3), &rows)
        };
        assert_eq!(listed(&[("a", 2), ("b", 3)]), Ok(()));
        assert_eq!(listed(&[("a", 1), ("b", 3), ("gone", 5), ("late", 4)]), Ok(()), "a listing may lag");
        assert_eq!(listed(&[("a", 2)]), Err(Wrong::ListingShort));
        assert_eq!(listed(&[("a", 2), ("b", 3), ("a", 1)]), Err(Wrong::ListingDouble));
        assert_eq!(listed(&[("a", 9), ("b", 3)]), Err(Wrong::Record));
        assert_eq!(listed(&[("a", 2), ("b", 3), ("x", 1)]), Err(Wrong::Record));
    }
}
