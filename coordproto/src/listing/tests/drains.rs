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
    /// It ends where a count of what is pending says so, and not where the member has nothing more.
    End,
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

    fn is_right(&self) -> bool {
        let Ok(listed) = &self.listed else { return true };
        let gone_before = |(key, _): &(Key, u64)| !self.ever.contains(key);
        !old_or_short(&self.want, listed) && !twice(listed, |(key, _)| key) && !listed.iter().any(gone_before)
    }
}

/// A drain that begins after `before`, by a member that is `lag` states behind then, while `during` happens.
fn drain(before: &[Step], during: &[Step], lag: usize, without: Without) -> Drain {
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
    let counted = drain.states[at].log.len() as u64;
    let (mut entries, mut last) = (Vec::new(), 0);
    let next = |member: &Stream, last: u64| {
        let (seq, key, live) = member.log.iter().filter(|(seq, ..)| *seq > last).min_by_key(|(seq, ..)| *seq)?;
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
    while without != Without::End
        && let Some((key, version)) = next(&drain.states[at], last)
    {
        last = version.revision;
        entries.push((key, version));
    }
    let mut after = drain.now().standing();
    if without == Without::Records {
        after.records = u64::MAX;
    }
    let since = if without == Without::Since { 0 } else { since };
    let listed = Drained { entries, others: 0, counted, last, after }.whole(since);
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
    ) {
        let drained = drain(&before, &during, lag, Without::Nothing);
        prop_assert!(drained.is_right(), "{drained:?}");
    }

    #[test]
    fn a_drain_that_nothing_disturbs_is_believed(before in proptest::collection::vec(changes(), 0..8)) {
        let drained = drain(&before, &[], 0, Without::Nothing);
        prop_assert_eq!(drained.listed.is_ok(), drained.newest_stood, "{:?}", drained);
    }
}

/// The mutant is wrong where it is believed, and the decision either right or not believed.
fn told_apart(before: &[Step], during: &[Step], lag: usize, without: Without) -> Result<Revisions, Cause> {
    let mutant = drain(before, during, lag, without);
    assert!(mutant.listed.is_ok() && !mutant.is_right(), "{mutant:?}");
    let drained = drain(before, during, lag, Without::Nothing);
    assert!(drained.is_right(), "{drained:?}");
    drained.listed
}

#[test]
fn without_its_sequence_a_member_behind_hides_a_key() {
    let before = [Step::Erase(1), Step::Change(Event::Write(0)), Step::Change(Event::Write(1))];
    // It has all but the last write, which is one key more.
    let listed = told_apart(&before, &[], 1, Without::Since).map(drop);
    assert_eq!(listed, Err(Cause::Stale { answered: 6, known: 7 }));
}

#[test]
fn without_the_end_a_key_that_is_rewritten_ahead_is_lost() {
    // One that has come moves and comes again, so that as many come as were counted, and the one that moves behind it does not.
    let during = [
        Step::Deliver,
        Step::Change(Event::Write(0)),
        Step::Change(Event::Write(1)),
        Step::CatchUp(2),
        Step::Deliver,
        Step::Deliver,
        Step::Deliver,
    ];
    assert!(told_apart(&[], &during, 0, Without::End).is_ok());
}

#[test]
fn without_the_count_a_member_that_was_behind_brings_a_key_back() {
    let before = [Step::Erase(0), Step::Change(Event::Write(3))];
    let listed = told_apart(&before, &[Step::Deliver, Step::CatchUp(3)], 3, Without::Records);
    assert!(matches!(listed, Err(Cause::Garbage(_))), "{listed:?}");
}

#[test]
fn what_a_drain_is_held_against() {
    let drained = |counted, after: (u64, u64)| Drained {
        entries: vec![(key("a"), version(3, Some("v"))), (key("b"), version(5, None))],
        others: 1,
        counted,
        last: 6,
        after: Standing { clock: Timestamp::UNIX_EPOCH, last_seq: after.0, records: after.1 },
    };
    assert_eq!(drained(3, (6, 3)).whole(6).unwrap().len(), 2);
    assert_eq!(drained(3, (8, 5)).whole(6).unwrap().len(), 2, "two more keys since");
    assert!(matches!(drained(4, (6, 4)).whole(6), Err(Cause::Garbage(_))), "its store cannot be read");
    assert_eq!(drained(3, (6, 3)).whole(7).unwrap_err(), Cause::Stale { answered: 6, known: 7 });
    assert_eq!(drained(3, (5, 3)).whole(6).unwrap_err(), Cause::Stale { answered: 5, known: 6 }, "a leader behind");
    assert!(matches!(drained(3, (7, 3)).whole(6), Err(Cause::Garbage(_))), "which of the two is it");
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
}
