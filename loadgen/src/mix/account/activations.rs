//! Which revision is current: epochs and instants that only grow, and bodies of which a loser's is never read.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use engine::slots::config::Target;
use jiff::Timestamp;

use super::{Verdict, Wrong, holds};

/// The activations so far.
#[derive(Default)]
pub(in super::super) struct Activated {
    /// The bodies that were sent, by revision.
    sent: HashMap<String, HashSet<Bytes>>,
    /// Those whose activation was told that it lost.
    lost: HashSet<Bytes>,
    /// The epochs of which an activation was told that they are its own.
    won: HashSet<u64>,
    /// What each epoch was told to be.
    known: BTreeMap<u64, (String, Timestamp)>,
}

impl Activated {
    /// The newest epoch that anybody was told of.
    pub(in super::super) fn newest(&self) -> u64 {
        self.known.last_key_value().map_or(0, |(epoch, _)| *epoch)
    }

    /// An activation is about to be sent.
    pub(in super::super) fn sending(&mut self, revision: &str, body: &Bytes) {
        self.sent.entry(revision.to_owned()).or_default().insert(body.clone());
    }

    /// It was told that it made `target` current, when `before` was the newest epoch as it was sent.
    pub(in super::super) fn activated(&mut self, before: u64, revision: &str, target: &Target) -> Verdict {
        let fresh = target.epoch > before && self.won.insert(target.epoch);
        holds(fresh && target.revision == revision, Wrong::Record)?;
        self.told(before, Some(target))
    }

    /// It was told that it lost.
    pub(in super::super) fn lost(&mut self, before: u64, body: &Bytes, target: &Target) -> Verdict {
        self.lost.insert(body.clone());
        self.told(before, Some(target))
    }

    /// The pointer was told to be this, when `before` was the newest epoch as it was asked for.
    pub(in super::super) fn told(&mut self, before: u64, target: Option<&Target>) -> Verdict {
        let Some(Target { revision, epoch, activated_at, .. }) = target else {
            return holds(before == 0, Wrong::Record);
        };
        holds(*epoch >= before && self.sent.contains_key(revision), Wrong::Record)?;
        let (known, at) = self.known.entry(*epoch).or_insert_with(|| (revision.clone(), *activated_at));
        holds(known == revision && at == activated_at, Wrong::Record)?;
        let earlier = self.known.range(..epoch).next_back().is_none_or(|(_, (_, at))| at < activated_at);
        let later = self.known.range(epoch + 1..).next().is_none_or(|(_, (_, at))| at > activated_at);
        holds(earlier && later, Wrong::Record)
    }

    /// The body of a revision was told to be this.
    pub(in super::super) fn body(&self, revision: &str, body: &Bytes) -> Verdict {
        let sent = self.sent.get(revision).is_some_and(|bodies| bodies.contains(body));
        holds(sent && !self.lost.contains(body), Wrong::Record)
    }
}

#[cfg(test)]
mod tests {
    use coordproto::record::config::Origin;

    use super::*;

    const WRONG: Verdict = Err(Wrong::Record);

    fn target(revision: &str, epoch: u64, second: i64) -> Target {
        let at = |second| Timestamp::from_second(second).unwrap();
        let origin =
            Origin { author: "a".into(), author_kind: "operator".into(), source: "api".into(), created_at: at(0) };
        Target { revision: revision.into(), epoch, origin, activated_at: at(second) }
    }

    /// Revision `r1` at epoch 3 and `r2` at epoch 5; the body `lost` lost.
    fn two() -> Activated {
        let mut two = Activated::default();
        for (revision, body, epoch) in [("r1", "one", 3), ("r2", "two", 5)] {
            two.sending(revision, &Bytes::from(body));
            let before = two.newest();
            assert_eq!(two.activated(before, revision, &target(revision, epoch, epoch as i64)), Ok(()));
        }
        two.sending("r2", &Bytes::from("lost"));
        assert_eq!(two.lost(5, &Bytes::from("lost"), &target("r2", 5, 5)), Ok(()));
        two
    }

    #[test]
    fn an_epoch_never_goes_back_and_is_one_revision() {
        assert_eq!(two().told(5, Some(&target("r2", 5, 5))), Ok(()));
        assert_eq!(two().told(0, Some(&target("r1", 3, 3))), Ok(()), "asked before any was known");
        assert_eq!(two().told(5, Some(&target("r1", 3, 3))), WRONG, "it went back");
        assert_eq!(two().told(5, None), WRONG);
        assert_eq!(Activated::default().told(0, None), Ok(()));
        assert_eq!(two().told(5, Some(&target("r1", 5, 5))), WRONG, "an epoch of two revisions");
        assert_eq!(two().told(5, Some(&target("never", 7, 7))), WRONG);
        assert_eq!(two().told(5, Some(&target("r1", 7, 4))), WRONG, "an instant that went back");
    }

    #[test]
    fn an_epoch_is_given_once_and_grows() {
        assert_eq!(two().activated(5, "r1", &target("r1", 7, 7)), Ok(()));
        assert_eq!(two().activated(3, "r2", &target("r2", 5, 5)), WRONG, "it was given before");
        assert_eq!(two().activated(5, "r1", &target("r1", 4, 4)), WRONG);
        assert_eq!(two().activated(5, "r1", &target("r2", 7, 7)), WRONG, "somebody else's");
    }

    #[test]
    fn a_losers_body_is_never_read() {
        let read = |body: &'static str| two().body("r2", &Bytes::from(body));
        assert_eq!((read("two"), read("lost"), read("one")), (Ok(()), WRONG, WRONG));
    }
}
