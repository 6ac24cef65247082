//! A record of which every write says more than the one before: where it stands is a number that only grows.

use super::{Verdict, Wrong, holds};

/// What is known of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Rising {
    /// What was acknowledged last, and its revision; 0 and 0 where nothing stands.
    stands: (u64, u64),
    /// The highest that was ever sent.
    sent: u64,
    /// Those of which it was told that they lost.
    lost: Vec<u64>,
    /// The highest that had been sent when it was removed. None of those stands again.
    gone: u64,
}

impl Rising {
    /// The number of the next write, and the revision that it is made over.
    pub(in super::super) fn next(&mut self) -> (u64, u64) {
        self.sent += 1;
        (self.sent, self.stands.1)
    }

    /// The number and the revision that stand, as far as is known.
    pub(in super::super) fn stands(&self) -> (u64, u64) {
        self.stands
    }

    /// The write of this number was stored, at this revision.
    pub(in super::super) fn stored(&mut self, number: u64, revision: u64) -> Verdict {
        let (_, before) = std::mem::replace(&mut self.stands, (number, revision));
        holds(revision > before, Wrong::Record)
    }

    /// The write of this number over this revision was told that it lost, and what stands instead.
    pub(in super::super) fn refused(&mut self, number: u64, over: u64, stands: (u64, u64)) -> Verdict {
        self.lost.push(number);
        holds(stands.1 != over, Wrong::Record)?;
        self.told(stands)
    }

    /// It was told to stand at this number and revision; 0 and 0 where nothing stands.
    pub(in super::super) fn told(&mut self, (number, revision): (u64, u64)) -> Verdict {
        let (least, before) = self.stands;
        let sent = (least..=self.sent).contains(&number) && !self.lost.contains(&number);
        let may = sent && (number == 0 || number > self.gone);
        // One revision is one number.
        holds(may && revision >= before && (number == least) == (revision == before), Wrong::Record)?;
        self.stands = (number, revision);
        Ok(())
    }

    /// It was removed by whoever keeps this account.
    pub(in super::super) fn removed(&mut self) {
        (self.stands, self.gone) = ((0, 0), self.sent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRONG: Verdict = Err(Wrong::Record);

    /// The second of two writes stands, at revision 7.
    fn second() -> Rising {
        let mut rising = Rising::default();
        assert_eq!(rising.next(), (1, 0));
        assert_eq!(rising.stored(1, 5), Ok(()));
        assert_eq!(rising.next(), (2, 5));
        assert_eq!(rising.stored(2, 7), Ok(()));
        rising
    }

    #[test]
    fn what_was_acknowledged_is_read_and_nothing_else() {
        assert_eq!(second().told((2, 7)), Ok(()));
        for stands in [(1, 5), (0, 0), (3, 9), (2, 9), (1, 7)] {
            assert_eq!(second().told(stands), WRONG, "{stands:?}");
        }
    }

    #[test]
    fn a_write_without_an_answer_may_stand_or_not() {
        let mut unheard = second();
        assert_eq!(unheard.next(), (3, 7));
        let mut landed = unheard.clone();
        assert_eq!((landed.told((3, 9)), landed.told((2, 7))), (Ok(()), WRONG), "and once it is seen it stays");
        assert_eq!((unheard.told((2, 7)), unheard.told((4, 9))), (Ok(()), WRONG));
    }

    #[test]
    fn whoever_lost_never_stands_and_lost_to_somebody() {
        let mut rising = second();
        let (number, _) = rising.next();
        assert_eq!(rising.clone().refused(number, 7, (2, 7)), WRONG, "what it expected is what stands");
        assert_eq!(rising.refused(number, 5, (2, 7)), Ok(()));
        assert_eq!(rising.told((number, 9)), WRONG);
    }

    #[test]
    fn what_was_removed_is_gone_until_it_is_written_again() {
        let mut rising = second();
        rising.removed();
        assert_eq!((rising.told((0, 0)), rising.clone().told((2, 7))), (Ok(()), WRONG));
        let (number, over) = rising.next();
        assert_eq!((over, rising.stored(number, 9)), (0, Ok(())));
        assert_eq!(rising.told((0, 0)), WRONG);
    }

    #[test]
    fn a_revision_grows() {
        let mut rising = second();
        let (number, _) = rising.next();
        assert_eq!(rising.stored(number, 6), WRONG);
    }
}
