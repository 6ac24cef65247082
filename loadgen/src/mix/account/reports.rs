//! What the nodes said that they applied: who has to be in a reading of the fleet, and with what.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use engine::env::Mono;

use super::{Verdict, Wrong, holds};

/// The reports, by node.
#[derive(Default)]
pub(in super::super) struct Reports(HashMap<String, Told>);

#[derive(Default)]
struct Told {
    /// When the last one that was acknowledged was sent, and when it was acknowledged.
    last: Option<(Mono, Mono)>,
    /// Every epoch that was ever sent.
    sent: HashSet<u64>,
}

impl Reports {
    /// A node is about to report this epoch.
    pub(in super::super) fn sending(&mut self, node: &str, epoch: u64) {
        self.0.entry(node.to_owned()).or_default().sent.insert(epoch);
    }

    /// A report that was sent at `sent` was acknowledged at `now`.
    pub(in super::super) fn acknowledged(&mut self, node: &str, sent: Mono, now: Mono) {
        self.0.entry(node.to_owned()).or_default().last = Some((sent, now));
    }

    /// Judges a reading from `began` to `ended` of the nodes and their epochs. A report is there from its acknowledgement
    /// until `age` after it was sent.
    pub(in super::super) fn read(&self, (began, ended): (Mono, Mono), age: Duration, rows: &[(&str, u64)]) -> Verdict {
        let mut seen = HashSet::new();
        for (node, epoch) in rows {
            holds(seen.insert(*node), Wrong::ListingDouble)?;
            holds(self.0.get(*node).is_some_and(|told| told.sent.contains(epoch)), Wrong::Record)?;
        }
        let due = |told: &Told| told.last.is_some_and(|(sent, there)| there < began && sent + age > ended);
        holds(self.0.iter().all(|(node, told)| !due(told) || seen.contains(node.as_str())), Wrong::ListingShort)
    }
}

#[cfg(test)]
mod tests {
    use engine::env::Env;

    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn who_reported_within_the_age_is_there_with_what_it_said() {
        let start = Env::seeded(1).now();
        let mut reports = Reports::default();
        for (node, epoch, at) in [("a", 1, 0), ("a", 2, 10), ("b", 2, 10), ("late", 2, 20)] {
            reports.sending(node, epoch);
            reports.acknowledged(node, start + S * at, start + S * at);
        }
        let read =
            |from: u32, to: u32, rows: &[(&str, u64)]| reports.read((start + S * from, start + S * to), S * 60, rows);
        assert_eq!(read(15, 16, &[("a", 2), ("b", 2)]), Ok(()));
        assert_eq!(read(15, 16, &[("a", 1), ("b", 2), ("late", 2)]), Ok(()), "a member may be behind");
        assert_eq!(read(15, 16, &[("a", 2)]), Err(Wrong::ListingShort));
        assert_eq!(read(69, 70, &[("late", 2)]), Ok(()), "the others may be gone");
        assert_eq!(read(15, 16, &[("a", 2), ("b", 2), ("a", 1)]), Err(Wrong::ListingDouble));
        assert_eq!(read(15, 16, &[("a", 3), ("b", 2)]), Err(Wrong::Record));
        assert_eq!(read(15, 16, &[("a", 2), ("b", 2), ("x", 2)]), Err(Wrong::Record));
    }
}
