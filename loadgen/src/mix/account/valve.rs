//! The notification valve: what one window let through, and what it refused.

use std::collections::HashMap;
use std::time::Duration;

use engine::env::Mono;
use jiff::Timestamp;

use super::{Said, Verdict, Wrong, holds};

/// A bucket and the beginning of a window.
pub(in super::super) type Window = (String, Timestamp);

/// The windows that are not over.
#[derive(Default)]
pub(in super::super) struct Valve(HashMap<Window, Takes>);

/// What was answered in one window.
struct Takes {
    first: Mono,
    last: Mono,
    let_through: u32,
    refused: u32,
    unknown: u32,
    under_way: u32,
}

impl Valve {
    /// A take is about to be sent, at `now`.
    pub(in super::super) fn taking(&mut self, window: &Window, now: Mono) {
        let fresh = || Takes { first: now, last: now, let_through: 0, refused: 0, unknown: 0, under_way: 0 };
        self.0.entry(window.clone()).or_insert_with(fresh).under_way += 1;
    }

    /// A take was answered, at `now`; what it was let through or refused is told as a race is.
    pub(in super::super) fn told(&mut self, window: &Window, said: Said, now: Mono) {
        let Some(takes) = self.0.get_mut(window) else { return };
        takes.last = now;
        takes.under_way -= 1;
        match said {
            Said::Won => takes.let_through += 1,
            Said::Lost => takes.refused += 1,
            Said::Unknown => takes.unknown += 1,
        }
    }

    /// Judges every window of which all takes are answered and that began so long before `now` that no other will come. A
    /// count is forgotten `remembered` after it was last written, so one that was asked for over a longer time promises
    /// nothing.
    pub(in super::super) fn settled(&mut self, limit: u32, remembered: Duration, now: Mono) -> Verdict {
        let mut verdict = Ok(());
        self.0.retain(|_, takes| {
            if takes.under_way > 0 || now.since(takes.first) < remembered {
                return true;
            }
            let judged = takes.judged(limit, remembered);
            verdict = verdict.and(judged);
            false
        });
        verdict
    }
}

impl Takes {
    fn judged(&self, limit: u32, remembered: Duration) -> Verdict {
        holds(self.refused == 0 || self.let_through + self.unknown >= limit, Wrong::Valve)?;
        holds(self.let_through <= limit || self.last.since(self.first) >= remembered, Wrong::Valve)
    }
}

#[cfg(test)]
mod tests {
    use engine::env::Env;

    use super::Said::{Lost, Unknown, Won};
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn settled(said: &[Said], over: Duration) -> Verdict {
        let start = Env::seeded(1).now();
        let (mut valve, window) = (Valve::default(), ("a".to_owned(), Timestamp::UNIX_EPOCH));
        for said in said {
            valve.taking(&window, start);
            assert_eq!(valve.settled(2, S, start + S * 9), Ok(()), "not while one is under way");
            valve.told(&window, *said, start + over);
        }
        valve.settled(2, S, start + S * 9)
    }

    #[test]
    fn no_more_than_the_limit_and_no_less() {
        assert_eq!(settled(&[Won, Won, Lost], S / 2), Ok(()));
        assert_eq!(settled(&[Won], S / 2), Ok(()));
        assert_eq!(settled(&[Won, Won, Won], S / 2), Err(Wrong::Valve));
        assert_eq!(settled(&[Won, Lost], S / 2), Err(Wrong::Valve));
        assert_eq!(settled(&[Won, Unknown, Lost], S / 2), Ok(()), "it may have been counted");
        assert_eq!(settled(&[Won, Won, Won], S), Ok(()), "the count may have been forgotten meanwhile");
    }
}
