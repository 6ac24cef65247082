//! A race for what only one can have.

use super::{Verdict, Wrong, holds};

/// What one of those who raced was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Said {
    /// That it has it.
    Won,
    /// That another has it.
    Lost,
    /// Nothing that can be believed: it may have it.
    Unknown,
}

/// Judges what all who raced were told. Where it was `taken` before, nobody wins.
pub(in super::super) fn judged(said: &[Said], taken: bool) -> Verdict {
    let of = |what| said.iter().filter(|said| **said == what).count();
    let (won, unknown) = (of(Said::Won), of(Said::Unknown));
    holds(won + usize::from(taken) <= 1, Wrong::WinnersDoubled)?;
    holds(won + unknown > 0 || taken, Wrong::WinnersMissing)
}

#[cfg(test)]
mod tests {
    use super::Said::{Lost, Unknown, Won};
    use super::*;

    #[test]
    fn one_wins_and_only_one() {
        assert_eq!(judged(&[Won, Lost, Lost], false), Ok(()));
        assert_eq!(judged(&[Won, Lost, Won], false), Err(Wrong::WinnersDoubled));
        assert_eq!(judged(&[Lost, Lost], false), Err(Wrong::WinnersMissing));
        assert_eq!(judged(&[Lost, Unknown], false), Ok(()), "whoever is unknown may have won");
        assert_eq!(judged(&[Won, Unknown], false), Ok(()));
        assert_eq!(judged(&[Lost, Unknown], true), Ok(()));
        assert_eq!(judged(&[Lost, Won], true), Err(Wrong::WinnersDoubled));
    }
}
