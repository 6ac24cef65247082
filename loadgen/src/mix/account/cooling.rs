//! Which credentials cool, and until when: the latest instant that was said of each.

use std::collections::HashMap;

use engine::env::Mono;
use jiff::Timestamp;

use super::{Verdict, Wrong, holds};

/// What was said, by credential.
#[derive(Default)]
pub(in super::super) struct Cooling(HashMap<String, Instants>);

#[derive(Default)]
struct Instants {
    /// All that were ever said.
    said: Vec<Timestamp>,
    /// The latest that was acknowledged.
    acknowledged: Option<Timestamp>,
    /// When the first was.
    since: Option<Mono>,
}

impl Cooling {
    /// An instant is about to be said. Answers the latest that was acknowledged.
    pub(in super::super) fn saying(&mut self, credential: &str, until: Timestamp) -> Option<Timestamp> {
        let instants = self.0.entry(credential.to_owned()).or_default();
        instants.said.push(until);
        instants.acknowledged
    }

    /// It was answered at `now` that a credential cools until `until`, of one for which `before` had been acknowledged when
    /// `asked` was said.
    pub(in super::super) fn told(
        &mut self,
        credential: &str,
        (before, asked): (Option<Timestamp>, Timestamp),
        until: Timestamp,
        now: Mono,
    ) -> Verdict {
        let instants = self.0.entry(credential.to_owned()).or_default();
        instants.acknowledged = instants.acknowledged.max(Some(until));
        instants.since.get_or_insert(now);
        holds(instants.said.contains(&until) && Some(until) >= before && until >= asked, Wrong::Record)
    }

    /// Judges a reading of what cools at `at`, which began at `began`. Of a member that is behind it may have an earlier
    /// instant, so a credential of which one has passed may be missing.
    pub(in super::super) fn read(&self, began: Mono, at: Timestamp, rows: &[(String, Timestamp)]) -> Verdict {
        for (credential, until) in rows {
            let said = self.0.get(credential).is_some_and(|instants| instants.said.contains(until));
            holds(said && *until > at, Wrong::Record)?;
        }
        let due = |instants: &Instants| {
            instants.since.is_some_and(|since| since < began) && instants.said.iter().all(|until| *until > at)
        };
        let there = |credential: &String| rows.iter().any(|(listed, _)| listed == credential);
        holds(self.0.iter().all(|(credential, instants)| !due(instants) || there(credential)), Wrong::ListingShort)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::env::Env;

    use super::*;

    #[test]
    fn the_later_instant_stays_and_is_read() {
        let start = Env::seeded(1).now();
        let second = |second| Timestamp::from_second(second).unwrap();
        let (wrong, short) = (Err(Wrong::Record), Err(Wrong::ListingShort));
        let mut cooling = Cooling::default();
        assert_eq!(cooling.saying("a", second(100)), None);
        assert_eq!(cooling.told("a", (None, second(100)), second(100), start), Ok(()));
        let before = cooling.saying("a", second(90));
        assert_eq!(before, Some(second(100)));
        assert_eq!(cooling.told("a", (before, second(90)), second(90), start), wrong, "it went back");
        assert_eq!(cooling.told("a", (before, second(90)), second(100), start), Ok(()));
        let read = |at, rows: &[(&str, i64)]| {
            let rows: Vec<_> = rows.iter().map(|(key, until)| ((*key).to_owned(), second(*until))).collect();
            cooling.read(start + Duration::from_secs(1), second(at), &rows)
        };
        assert_eq!(read(50, &[("a", 100)]), Ok(()));
        assert_eq!(read(50, &[("a", 90)]), Ok(()), "from a member that is behind");
        assert_eq!(read(50, &[]), short);
        assert_eq!(read(95, &[]), Ok(()), "by an earlier instant it has lapsed");
        assert_eq!(read(50, &[("a", 101)]), wrong);
        assert_eq!(read(50, &[("a", 100), ("b", 100)]), wrong);
        assert_eq!(read(100, &[("a", 100)]), wrong, "it has lapsed");
    }
}
