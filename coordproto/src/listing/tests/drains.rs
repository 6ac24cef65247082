//! Drains against a model of a stream, a member that lags and catches up, a cursor, and everything that happens meanwhile.

use super::*;

/// What happens, before a drain or while it goes on.
#[derive(Clone, Copy, Debug)]
enum Step {
    Change(Event),
    /// A key is removed, and its marker is erased at once.
    Erase(usize),
    /// The member applies the next so many of what the leader has applied.
    CatchUp(usize),
    /// The cursor takes the next record.
    Deliver,
}

/// What a mutant of the decision leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    Nothing,
    /// Whatever the member had come to is late enough.
    Since,
    /// It need not have come to what the leader has.
    Newest,
    /// Any number of keys is believed.
    Records,
}

/// A drain of a model, and what it must come to.
#[derive(Debug)]
struct Drain {
    states: Vec<Stream>,
    began: bool,
    /// Keys live throughout the listing, each with the revision that it had when that began.
    want: Revisions,
    /// Keys live at some instant of it.
    ever: Vec<Key>,
    /// Whether the newest record stood when it began.
    newest_stood: bool,
    listed: Result<Revisions, Cause>,
}

impl Drain {
    fn now(&self) -> &Stream {
        self.states.last().expect("there is one")
    }

    fn change(&mut self, step: &Step) {
        let events = match step {
            Step::Change(event) => vec![*event],
            Step::Erase(k) => vec![Event::Remove(*k), Event::Expire(*k)],
            Step::CatchUp(_) | Step::Deliver => vec![],
        };
        for event in events {
            let mut next = self.now().clone();
            next.apply(&event);
            if self.began {
                let live = next.live();
                if let Event::Remove(k) | Event::Expire(k) = event {
                    self.want.retain(|(key, _)| *key != name(k));
                }
                self.ever.extend(live);
            }
            self.states.push(next);
        }
    }

    fn is_short(&self) -> bool {
        self.listed.as_ref().is_ok_and(|listed| old_or_short(&self.want, listed))
    }

    fn is_right(&self) -> bool {
        let Ok(listed) = &self.listed else { return true };
        let gone_before = |(key, _): &(Key, u64)| !self.ever.contains(key);
        !self.is_short() && !twice(listed, |(key, _)| key) && !listed.iter().any(gone_before)
    }
}

/// What is wrong with who is asked.
#[derive(Clone, Copy, Debug, Default)]
struct Ill {
    /// The member ends the drain before it has nothing more.
    ends_early: bool,
    /// The member's copy lacks this record.
    lost: Option<u64>,
    /// Who answers for the leader has no more than the member.
    leader_behind: bool,
}

/// A drain that begins after `before`, by a member that is `lag` states behind then, while `during` happens.
fn drain(before: &[Step], during: &[Step], lag: usize, ill: Ill, without: Without) -> Drain {
    let mut drain = Drain {
        states: vec![Stream::full()],
        began: false,
        want: Vec::new(),
        ever: Vec::new(),
        newest_stood: false,
        listed: Ok(Vec::new()),
    };
    before.iter().for_each(|step| drain.change(step));
    drain.ever = drain.now().live();
    drain.want = drain.now().copy(&drain.ever).into_iter().map(|(key, v)| (key, v.revision)).collect();
    let since = drain.now().last();
    drain.newest_stood = drain.now().log.iter().any(|(seq, ..)| *seq == since);
    drain.began = true;

    let mut at = (drain.states.len() - 1).saturating_sub(lag);
    let (mut entries, mut last) = (Vec::new(), 0);
    let next = |member: &Stream, last: u64| {
        let held = member.log.iter().filter(|(seq, ..)| *seq > last && Some(*seq) != ill.lost);
        let (seq, key, live) = held.min_by_key(|(seq, ..)| *seq)?;
        Some((key.clone(), version(*seq, live.then_some("v"))))
    };
    for step in during {
        drain.change(step);
        match step {
            Step::CatchUp(by) => at = (at + by).min(drain.states.len() - 1),
            Step::Deliver => {
                if let Some((key, version)) = next(&drain.states[at], last) {
                    last = version.revision;
                    entries.push((key, version));
                }
            }
            Step::Change(_) | Step::Erase(_) => {}
        }
    }
    while !ill.ends_early
        && let Some((key, version)) = next(&drain.states[at], last)
    {
        last = version.revision;
        entries.push((key, version));
    }
    let mut after = if ill.leader_behind { drain.states[at].standing() } else { drain.now().standing() };
    if without == Without::Records {
        after.records = entries.iter().map(|(key, _)| key).collect::<std::collections::BTreeSet<_>>().len() as u64;
    }
    if without == Without::Newest {
        after.last_seq = last;
    }
    let since = if without == Without::Since { 0 } else { since };
    let listed = Drained { entries, others: 0, last, after }.whole(since);
    drain.listed = listed.map(|entries| {
        let listed = live(entries, &Class::seat().filter()).into_iter();
        listed.map(|(key, version)| (key, version.revision)).collect()
    });
    drain
}

fn changes() -> impl Strategy<Value = Step> {
    prop_oneof![4 => change().prop_map(Step::Change), 1 => (0..KEYS).prop_map(Step::Erase)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => changes(),
        2 => Just(Step::Deliver),
        2 => (1..12_usize).prop_map(Step::CatchUp),
    ];
    proptest::collection::vec(step, 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_drain_that_is_believed_is_neither_short_nor_old_nor_of_keys_gone_before(
        before in proptest::collection::vec(changes(), 0..8),
        during in steps(),
        lag in 0..10_usize,
        ends_early: bool,
        leader_behind: bool,
    ) {
        let ill = Ill { ends_early, leader_behind, ..Ill::default() };
        let drained = drain(&before, &during, lag, ill, Without::Nothing);
        if leader_behind {
            // Whoever leads no more may not have heard of a removal that left no trace either.
            prop_assert!(!drained.is_short(), "{drained:?}");
        } else {
            prop_assert!(drained.is_right(), "{drained:?}");
        }
    }

    #[test]
    fn a_drain_that_lacks_a_record_is_not_believed(
        before in proptest::collection::vec(changes(), 0..8),
        ends_early: bool,
        which: proptest::sample::Index,
    ) {
        let whole = drain(&before, &[], 0, Ill::default(), Without::Nothing);
        prop_assume!(!whole.now().log.is_empty());
        let lost = Some(which.get(&whole.now().log).0);
        let drained = drain(&before, &[], 0, Ill { ends_early, lost, ..Ill::default() }, Without::Nothing);
        prop_assert!(drained.listed.is_err(), "{:?}", drained);
    }

    #[test]
    fn a_drain_that_nothing_disturbs_is_believed(before in proptest::collection::vec(changes(), 0..8)) {
        let drained = drain(&before, &[], 0, Ill::default(), Without::Nothing);
        prop_assert_eq!(drained.listed.is_ok(), drained.newest_stood, "{:?}", drained);
    }
}

/// The mutant is wrong where it is believed, and the decision does not believe it.
fn told_apart(before: &[Step], during: &[Step], lag: usize, ill: Ill, without: Without) -> Cause {
    let mutant = drain(before, during, lag, ill, without);
    assert!(mutant.listed.is_ok() && !mutant.is_right(), "{mutant:?}");
    drain(before, during, lag, ill, Without::Nothing).listed.expect_err("the decision is no mutant")
}

#[test]
fn without_its_sequence_a_leader_of_the_past_hides_a_key() {
    let before = [Step::Erase(1), Step::Change(Event::Write(0)), Step::Change(Event::Write(1))];
    // The member and who answers for the leader have all but the last write, which is one key more.
    let ill = Ill { leader_behind: true, ..Ill::default() };
    let refused = told_apart(&before, &[], 1, ill, Without::Since);
    assert_eq!(refused, Cause::Stale { answered: 6, known: 7 });
}

#[test]
fn without_the_newest_a_key_that_is_rewritten_ahead_is_lost() {
    // One that has come is gone, and one that is yet to come moves behind where the drain ends: as many came as there are.
    let during =
        [Step::Deliver, Step::Erase(0), Step::Change(Event::Write(1)), Step::CatchUp(3), Step::Deliver, Step::Deliver];
    let refused = told_apart(&[], &during, 0, Ill { ends_early: true, ..Ill::default() }, Without::Newest);
    assert_eq!(refused, Cause::Stale { answered: 4, known: 6 });
}

#[test]
fn without_the_count_a_member_that_was_behind_brings_a_key_back() {
    let before = [Step::Erase(0), Step::Change(Event::Write(3))];
    let during = [Step::Deliver, Step::CatchUp(3)];
    let refused = told_apart(&before, &during, 3, Ill::default(), Without::Records);
    assert!(matches!(refused, Cause::Garbage(_)), "{refused:?}");
}

#[test]
fn what_a_drain_is_held_against() {
    let drained = |(last_seq, records): (u64, u64)| Drained {
        entries: vec![(key("a"), version(3, Some("v"))), (key("b"), version(5, None))],
        others: 1,
        last: 6,
        after: Standing { clock: Timestamp::UNIX_EPOCH, last_seq, records },
    };
    assert_eq!(drained((6, 3)).whole(6).unwrap().len(), 2);
    assert_eq!(drained((6, 3)).whole(7).unwrap_err(), Cause::Stale { answered: 6, known: 7 });
    assert_eq!(drained((7, 3)).whole(6).unwrap_err(), Cause::Stale { answered: 6, known: 7 }, "written since");
    assert_eq!(drained((5, 3)).whole(6).unwrap_err(), Cause::Stale { answered: 5, known: 6 }, "a leader behind");
    assert!(matches!(drained((6, 4)).whole(6), Err(Cause::Garbage(_))), "it lacks one");
    assert!(matches!(drained((6, 2)).whole(6), Err(Cause::Garbage(_))), "one is gone");
}

#[test]
fn a_large_class_that_is_most_of_its_bucket_is_drained() {
    assert!(is_drained(1_024, 1_152) && is_drained(KEYS_MAX, KEYS_MAX));
    assert!(!is_drained(1_023, 1_023) && !is_drained(1_024, 1_153) && !is_drained(KEYS_MAX + 1, KEYS_MAX + 1));
}

#[test]
fn a_drain_ends_at_twice_what_there_was() {
    assert_eq!(goes_on(0, 0), Ok(()));
    assert_eq!(goes_on(2_000, 1_000), Ok(()));
    assert!(goes_on(2_001, 1_000).is_err());
    assert_eq!(goes_on(0, KEYS_MAX * 9 / 8), Ok(()));
    assert!(goes_on(0, KEYS_MAX * 9 / 8 + 1).is_err());
}
