//! What was spent: of the company and of each seat at least what was acknowledged, and at most what was sent.

use std::collections::HashMap;

use super::{Verdict, Wrong, holds};

/// The sums of a company.
#[derive(Default)]
pub(in super::super) struct Spend {
    org: Sums,
    seats: HashMap<String, Sums>,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    acknowledged: u64,
    sent: u64,
}

impl Sums {
    fn told(self, least: u64, spent: u64) -> Verdict {
        holds((least..=self.sent).contains(&spent), Wrong::SpendOff)
    }
}

/// What was acknowledged when a question was sent: the company's and the seat's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Before {
    org: u64,
    seat: u64,
}

impl Spend {
    fn seat(&self, seat: &str) -> Sums {
        self.seats.get(seat).copied().unwrap_or_default()
    }

    /// A question about a seat is about to be sent, which counts so many tokens; none where it only reads.
    pub(in super::super) fn sending(&mut self, seat: &str, tokens: u64) -> Before {
        let own = self.seats.entry(seat.to_owned()).or_default();
        own.sent += tokens;
        self.org.sent += tokens;
        Before { org: self.org.acknowledged, seat: own.acknowledged }
    }

    /// So many tokens are counted on the company.
    pub(in super::super) fn company(&mut self, tokens: u64) {
        self.org.acknowledged += tokens;
    }

    /// So many tokens are counted on a seat.
    pub(in super::super) fn counted(&mut self, seat: &str, tokens: u64) {
        self.seats.entry(seat.to_owned()).or_default().acknowledged += tokens;
    }

    /// Judges the counters that a question was answered with, which counted so many tokens.
    pub(in super::super) fn told(&self, before: Before, seat: &str, tokens: u64, counters: (u64, u64)) -> Verdict {
        self.org.told(before.org + tokens, counters.0)?;
        self.seat(seat).told(before.seat + tokens, counters.1)
    }

    /// What is counted on the company by now.
    pub(in super::super) fn acknowledged(&self) -> u64 {
        self.org.acknowledged
    }

    /// Judges a counter of the company alone, of which so much was acknowledged when it was asked for.
    pub(in super::super) fn company_told(&self, before: u64, spent: u64) -> Verdict {
        self.org.told(before, spent)
    }

    /// Judges the counter of the company, or of one seat, that was read when nothing was under way any more.
    pub(in super::super) fn final_count(&self, seat: Option<&str>, spent: u64) -> Verdict {
        let sums = seat.map_or(self.org, |seat| self.seat(seat));
        sums.told(sums.acknowledged, spent)
    }

    /// Whose counter has to be there in the end.
    pub(in super::super) fn spenders(&self) -> impl Iterator<Item = &str> {
        self.seats.iter().filter(|(_, sums)| sums.acknowledged > 0).map(|(seat, _)| seat.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFF: Verdict = Err(Wrong::SpendOff);

    #[test]
    fn a_counter_lies_between_what_was_acknowledged_and_what_was_sent() {
        let mut spend = Spend::default();
        let before = spend.sending("a", 10);
        assert_eq!(spend.told(before, "a", 10, (10, 10)), Ok(()));
        for counters in [(9, 10), (11, 10), (10, 9), (10, 11), (0, 0)] {
            assert_eq!(spend.told(before, "a", 10, counters), OFF, "{counters:?}");
        }
        spend.company(10);
        spend.counted("a", 10);
        // Unknown: it may be counted or not.
        let before = spend.sending("b", 5);
        assert_eq!(spend.told(before, "b", 5, (15, 5)), Ok(()));
        assert_eq!(spend.told(before, "b", 5, (10, 5)), OFF, "the company's share is missing");
        assert_eq!([10, 15].map(|spent| spend.final_count(None, spent)), [Ok(()); 2]);
        assert_eq!([9, 16].map(|spent| spend.final_count(None, spent)), [OFF; 2]);
        assert_eq!([0, 5].map(|spent| spend.final_count(Some("b"), spent)), [Ok(()); 2]);
        assert_eq!([6].map(|spent| spend.final_count(Some("b"), spent)), [OFF]);
        assert_eq!(spend.final_count(Some("a"), 9), OFF);
        assert_eq!(spend.spenders().collect::<Vec<_>>(), ["a"]);
    }
}
