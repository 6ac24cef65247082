use proptest::prelude::*;

use super::*;
use crate::key::{Class, Resource};

fn version(revision: u64, value: Option<&'static str>) -> Version {
    Version { revision, written: Timestamp::UNIX_EPOCH, value: value.map(|v| Bytes::from_static(v.as_bytes())) }
}

fn key(name: &str) -> Key {
    Resource::parse(&format!("seat:{name}")).unwrap().key().clone()
}

fn index(names: &[&str], last_seq: u64) -> Index {
    Index::of_keys(names.iter().map(|name| key(name)).collect(), last_seq, Timestamp::UNIX_EPOCH)
}

#[test]
fn an_index_certifies_when_it_is_whole_and_within_the_bound() {
    assert_eq!(is_whole(0, 0), Ok(()));
    assert_eq!(is_whole(KEYS_MAX, KEYS_MAX as usize), Ok(()));
    let too_many = Err(Cause::TooMany { keys: KEYS_MAX + 1, most: KEYS_MAX });
    assert_eq!(is_whole(KEYS_MAX + 1, KEYS_MAX as usize), too_many, "the first page of two");
    assert_eq!(is_whole(KEYS_MAX + 1, KEYS_MAX as usize + 1), too_many);
    assert!(matches!(is_whole(3, 2), Err(Cause::Garbage(_))), "a server with smaller pages");
}

#[test]
fn news_is_what_a_listing_does_not_tell_already() {
    assert!(is_news(8, Some(7), 20), "a later revision");
    assert!(!is_news(7, Some(7), 20), "the one that was listed");
    assert!(!is_news(25, Some(25), 20), "read from the leader after the index");
    assert!(is_news(21, None, 20), "a key that is new");
    assert!(!is_news(20, None, 20), "a key that was gone by then");
}

#[test]
fn lost_and_marked_keys_are_read_again() {
    let mut collected = Collected::default();
    collected.take(key("live"), version(1, Some("v")));
    collected.take(key("marked"), version(2, None));
    collected.take(key("gone"), version(3, None));
    let index = index(&["live", "lost", "marked"], 3);
    assert_eq!(collected.to_read(&index), [key("lost"), key("marked")]);
    assert_eq!(collected.settle(&key("lost"), Some(version(9, Some("w"))), &index), Ok(true));
    assert_eq!(collected.settle(&key("marked"), None, &index), Ok(false), "nobody's word alone");
    collected.prove(key("marked"), None, 12);
    let finished = collected.finish(&index);
    let listed: Vec<_> = finished.live.into_iter().map(|(key, v)| (key, v.revision)).collect();
    assert_eq!(listed, [(key("live"), 1), (key("lost"), 9)]);
    assert_eq!(finished.gone, [(key("marked"), 12)]);
}

#[test]
fn the_newest_revision_wins_whatever_order_it_came_in() {
    let mut collected = Collected::default();
    collected.take(key("k"), version(5, Some("new")));
    collected.take(key("k"), version(4, Some("old")));
    assert_eq!(collected.finish(&index(&["k"], 5)).live[0].1.revision, 5);
}

#[test]
fn an_answer_older_than_the_pass_is_not_the_leaders() {
    let mut collected = Collected::default();
    collected.take(key("k"), version(5, None));
    let stale = collected.settle(&key("k"), Some(version(3, Some("old"))), &index(&["k"], 5));
    assert_eq!(stale, Err(Cause::Stale { answered: 3, known: 5 }));
}

#[test]
fn a_key_that_the_leader_no_longer_held_is_not_brought_back_by_a_replica_behind() {
    let mut collected = Collected::default();
    collected.take(key("purged"), version(7, Some("v")));
    collected.take(key("new"), version(9, Some("v")));
    let listed: Vec<_> = collected.finish(&index(&[], 8)).live.into_iter().map(|(key, _)| key).collect();
    assert_eq!(listed, [key("new")], "written after the index was read");
}

#[test]
fn of_several_copies_the_newest_revision_of_a_key_counts() {
    let filter = Class::seat().filter();
    let copies =
        |moved| vec![(key("b"), version(3, Some("old"))), (key("a"), version(1, Some("v"))), (key("b"), moved)];
    for (moved, rest) in [(version(9, Some("new")), Some(9)), (version(9, None), None)] {
        for turned in [false, true] {
            let mut copies = copies(moved.clone());
            if turned {
                copies.reverse();
            }
            let listed: Vec<_> = live(copies, &filter).into_iter().map(|(key, v)| (key, v.revision)).collect();
            let want: Vec<_> =
                [Some((key("a"), 1)), rest.map(|revision| (key("b"), revision))].into_iter().flatten().collect();
            assert_eq!(listed, want);
        }
    }
}

#[test]
fn a_copy_is_proved_by_the_barrier_and_by_nothing_else() {
    let filter = Class::seat().filter();
    let (barrier, seat) = (Key::barrier(), key("a"));
    let copy = |barrier: Key, at| vec![(seat.clone(), version(4, Some("v"))), (barrier, version(at, Some("")))];
    assert_eq!(prove(&copy(barrier.clone(), 8), &barrier, 8), Ok(Timestamp::UNIX_EPOCH));
    assert_eq!(prove(&copy(barrier.clone(), 9), &barrier, 8), Ok(Timestamp::UNIX_EPOCH), "written again since");
    assert_eq!(prove(&copy(barrier.clone(), 7), &barrier, 8), Err(Cause::Stale { answered: 7, known: 8 }));
    assert_eq!(prove(&[], &barrier, 8), Err(Cause::Stale { answered: 0, known: 8 }), "an empty class has a barrier");
    assert_eq!(live(copy(barrier, 8), &filter), [(seat.clone(), version(4, Some("v")))], "the barrier is no record");
    let twice = vec![(seat.clone(), version(4, Some("v"))), (seat.clone(), version(4, Some("v")))];
    assert_eq!(live(twice, &filter).len(), 1);
    assert_eq!(live(vec![(seat, version(4, None))], &filter), []);
    assert_eq!(live(vec![(Key::barrier(), version(1, Some("")))], &Filter::every()), []);
}

#[test]
fn an_index_from_before_the_barrier_covers_nothing() {
    assert_eq!(index(&[], 8).covers(8), Ok(()));
    assert_eq!(index(&[], 7).covers(8), Err(Cause::Stale { answered: 7, known: 8 }));
}

/// What a store went through while it was listed.
#[derive(Clone, Debug)]
enum Event {
    Write(usize),
    Remove(usize),
    Expire(usize),
    /// The pass delivers, or the reader takes one more copy.
    Deliver,
    Index,
}

const KEYS: usize = 4;

fn name(k: usize) -> Key {
    key(&k.to_string())
}

/// One stream with one revision per key: sequence, key, whether it is a value.
#[derive(Clone)]
struct Stream {
    log: Vec<(u64, usize, bool)>,
    next: u64,
}

impl Stream {
    fn full() -> Stream {
        Stream { log: (0..KEYS).map(|k| (k as u64 + 1, k, true)).collect(), next: KEYS as u64 + 1 }
    }

    fn write(&mut self, k: usize, live: bool) {
        self.log.retain(|(_, key, _)| *key != k);
        self.log.push((self.next, k, live));
        self.next += 1;
    }

    fn expire(&mut self, k: usize) {
        self.log.retain(|(_, key, _)| *key != k);
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Write(k) => self.write(*k, true),
            Event::Remove(k) => self.write(*k, false),
            Event::Expire(k) => self.expire(*k),
            Event::Deliver | Event::Index => {}
        }
    }

    fn index(&self) -> Index {
        Index::of_keys(self.log.iter().map(|(_, k, _)| name(*k)).collect(), self.next - 1, Timestamp::UNIX_EPOCH)
    }

    fn copy(&self) -> Vec<(Key, Version)> {
        self.log.iter().map(|(seq, k, live)| (name(*k), version(*seq, live.then_some("v")))).collect()
    }
}

/// Plays events against one stream and a pass that walks it by sequence, then certifies. Answers the keys live throughout and
/// the keys listed.
fn play(events: &[Event], lag: usize, certify: bool) -> (Vec<Key>, Vec<Key>) {
    let mut stream = Stream::full();
    // The pass is served by a replica that has not applied the newest `lag` events.
    let mut behind = Stream::full();
    let mut throughout = [true; KEYS];
    let mut cursor = 0;
    let mut collected = Collected::default();
    let mut index: Option<Index> = None;
    for (at, event) in events.iter().enumerate() {
        stream.apply(event);
        if let Some(applied) = at.checked_sub(lag) {
            behind.apply(&events[applied]);
        }
        match event {
            Event::Remove(k) | Event::Expire(k) => throughout[*k] = false,
            Event::Index => {
                index.get_or_insert_with(|| stream.index());
            }
            Event::Deliver => {
                let next = behind.log.iter().filter(|(seq, ..)| *seq > cursor).min_by_key(|(seq, ..)| *seq);
                if let Some(&(seq, k, live)) = next {
                    collected.take(name(k), version(seq, live.then_some("v")));
                    cursor = seq;
                }
            }
            Event::Write(_) => {}
        }
    }
    let mut index = index.unwrap_or_else(|| stream.index());
    if certify {
        for key in collected.to_read(&index) {
            let answer = stream.copy().into_iter().find(|(k, _)| *k == key).map(|(_, version)| version);
            if !collected.settle(&key, answer.clone(), &index).expect("the model's leader is never behind") {
                collected.prove(key, answer, stream.next - 1);
            }
        }
    } else {
        index = Index::of_keys((0..KEYS).map(name).collect(), index.last_seq, index.clock);
    }
    let live = (0..KEYS).filter(|k| throughout[*k]).map(name).collect();
    (live, collected.finish(&index).live.into_iter().map(|(key, _)| key).collect())
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (0..KEYS).prop_map(Event::Write),
        (0..KEYS).prop_map(Event::Remove),
        (0..KEYS).prop_map(Event::Expire),
        Just(Event::Deliver),
        Just(Event::Deliver),
        Just(Event::Index),
    ];
    proptest::collection::vec(event, 0..24)
}

type Revisions = Vec<(Key, u64)>;

/// A stream whose history is `events`, with a barrier committed at `barrier`, read when all of it had happened from a member
/// that has applied the first `applied` events, as a whole. Answers the keys live throughout with the revision each had at the
/// barrier, and what was listed, or that it was refused.
fn read(events: &[Event], barrier: usize, applied: usize, check: bool) -> (Revisions, Option<Revisions>) {
    let (mut stream, mut member) = (Stream::full(), None);
    let (mut at_barrier, mut throughout) = (Vec::new(), Vec::new());
    let mut revision = 0;
    for at in 0..=events.len() {
        if at == barrier {
            revision = stream.next;
            stream.next += 1;
            at_barrier = stream.copy();
            throughout = at_barrier.iter().filter(|(_, v)| v.value.is_some()).map(|(k, _)| k.clone()).collect();
        }
        if at == applied {
            member = Some((stream.clone(), at >= barrier));
        }
        let Some(event) = events.get(at) else { break };
        stream.apply(event);
        if let (Event::Remove(k) | Event::Expire(k), true) = (event, at >= barrier) {
            throughout.retain(|key| *key != name(*k));
        }
    }
    let (member, has_barrier) = member.expect("a member has applied some of it");
    let mut copy = member.copy();
    if has_barrier {
        copy.push((Key::barrier(), version(revision, Some(""))));
    }
    let want =
        at_barrier.iter().filter(|(k, _)| throughout.contains(k)).map(|(k, v)| (k.clone(), v.revision)).collect();
    if check && prove(&copy, &Key::barrier(), revision).is_err() {
        return (want, None);
    }
    let listed = live(copy, &Class::seat().filter()).into_iter().map(|(k, v)| (k, v.revision)).collect();
    (want, Some(listed))
}

fn old_or_short(want: &[(Key, u64)], listed: &[(Key, u64)]) -> bool {
    want.iter().any(|(key, since)| !listed.iter().any(|(listed, revision)| listed == key && revision >= since))
}

proptest! {
    #[test]
    fn a_certified_listing_holds_every_key_live_throughout(events in events(), lag in 0..6_usize) {
        let (live, listed) = play(&events, lag, true);
        for key in live {
            prop_assert!(listed.contains(&key), "{key} is missing from {listed:?}");
        }
    }

    #[test]
    fn a_proved_copy_is_never_short_and_never_old(events in events(), barrier in 0..24_usize, applied in 0..24_usize) {
        let (barrier, applied) = (barrier.min(events.len()), applied.min(events.len()));
        let (want, listed) = read(&events, barrier, applied, true);
        match listed {
            Some(listed) => prop_assert!(!old_or_short(&want, &listed), "{want:?} {listed:?}"),
            None => prop_assert!(applied < barrier, "a member that has come as far is believed"),
        }
    }
}

#[test]
fn without_the_certification_a_rewritten_key_is_lost() {
    let events = [Event::Deliver, Event::Write(1), Event::Deliver, Event::Deliver, Event::Write(1)];
    let (live, bare) = play(&events, 0, false);
    assert!(live.iter().any(|key| !bare.contains(key)), "the model shows the race that the index closes");
    let (live, certified) = play(&events, 0, true);
    assert!(live.iter().all(|key| certified.contains(key)));
}

#[test]
fn without_the_proof_a_member_behind_is_believed() {
    let events = [Event::Write(1), Event::Remove(2), Event::Write(2)];
    let (want, unproved) = read(&events, 3, 0, false);
    assert!(old_or_short(&want, &unproved.unwrap()), "an old revision passes for the newest");
    let (want, unproved) = read(&events, 3, 2, false);
    assert!(old_or_short(&want, &unproved.unwrap()), "a live key passes for a removed one");
    assert_eq!(read(&events, 3, 2, true).1, None);
}

#[test]
fn that_a_key_is_gone_is_nobodys_word_unless_the_index_could_not_know_it() {
    let index = index(&["a", "b", "c", "d", "e"], 10);
    let mut collected = Collected::default();
    collected.take(key("e"), version(14, None));
    let mut settle = |name: &str, answer| collected.settle(&key(name), answer, &index);
    assert_eq!(settle("a", Some(version(9, None))), Ok(false), "a removal that another write may have followed");
    assert_eq!(settle("b", Some(version(11, None))), Ok(true), "one that came after the index");
    assert_eq!(settle("c", None), Ok(false));
    assert_eq!(settle("d", Some(version(4, Some("old")))), Ok(true), "a value may be an older one");
    collected.prove(key("a"), Some(version(10, Some("again"))), 10);
    collected.prove(key("c"), None, 12);
    collected.prove(key("e"), Some(version(13, Some("before its removal"))), 13);
    let finished = collected.finish(&index);
    let listed: Vec<_> = finished.live.iter().map(|(key, version)| (key.clone(), version.revision)).collect();
    assert_eq!(listed, [(key("a"), 10), (key("d"), 4)]);
    assert_eq!(finished.gone, [(key("b"), 11), (key("c"), 12), (key("e"), 14)], "and up to where nothing is news");
}
