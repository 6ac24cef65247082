mod copies;
mod drains;

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
    let stream = Standing { clock: Timestamp::UNIX_EPOCH, last_seq, records: names.len() as u64 };
    Index::of_keys(names.iter().map(|name| key(name)).collect(), stream)
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
    assert_eq!(prove(&copy(barrier.clone(), 8), &barrier, 8), Ok(()));
    assert_eq!(prove(&copy(barrier.clone(), 9), &barrier, 8), Ok(()), "written again since");
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

/// What a store goes through, and what whoever lists it comes to meanwhile.
#[derive(Clone, Copy, Debug)]
enum Event {
    Write(usize),
    Remove(usize),
    Expire(usize),
    /// The pass delivers.
    Deliver,
    /// The leader tells its index.
    Index,
    /// The next question about a key is answered by a member that has not applied the newest so many events.
    Answer(usize),
    /// Such a member hands over a copy of what is in doubt.
    Copy(usize),
    /// So does such a member that is catching up, and has heard of all that was taken away since.
    CatchUp(usize),
}

const KEYS: usize = 4;

fn name(k: usize) -> Key {
    key(&k.to_string())
}

/// One stream with one revision per key: sequence, key, whether it is a value.
#[derive(Clone, Debug)]
struct Stream {
    log: Vec<(u64, Key, bool)>,
    next: u64,
}

impl Stream {
    fn full() -> Stream {
        Stream { log: (0..KEYS).map(|k| (k as u64 + 1, name(k), true)).collect(), next: KEYS as u64 + 1 }
    }

    fn write(&mut self, key: Key, live: bool) -> u64 {
        self.log.retain(|(_, known, _)| *known != key);
        self.log.push((self.next, key, live));
        self.next += 1;
        self.last()
    }

    /// The last sequence. What expires leaves it as it is.
    fn last(&self) -> u64 {
        self.next - 1
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Write(k) => drop(self.write(name(*k), true)),
            Event::Remove(k) => drop(self.write(name(*k), false)),
            Event::Expire(k) => self.log.retain(|(_, key, _)| *key != name(*k)),
            Event::Deliver | Event::Index | Event::Answer(_) | Event::Copy(_) | Event::CatchUp(_) => {}
        }
    }

    fn standing(&self) -> Standing {
        Standing { clock: Timestamp::UNIX_EPOCH, last_seq: self.last(), records: self.log.len() as u64 }
    }

    fn index(&self) -> Index {
        Index::of_keys(self.log.iter().map(|(_, key, _)| key.clone()).collect(), self.standing())
    }

    fn copy(&self, names: &[Key]) -> Vec<(Key, Version)> {
        let named = self.log.iter().filter(|(_, key, _)| names.contains(key));
        named.map(|(seq, key, live)| (key.clone(), version(*seq, live.then_some("v")))).collect()
    }

    fn read(&self, key: &Key) -> Option<Version> {
        self.copy(std::slice::from_ref(key)).pop().map(|(_, version)| version)
    }

    fn live(&self) -> Vec<Key> {
        self.log.iter().filter(|(.., live)| *live).map(|(_, key, _)| key.clone()).collect()
    }

    /// A member that has come as far as this, and has taken away what a later state has no more.
    fn catching_up(&self, later: &Stream) -> Stream {
        Stream { log: self.log.iter().filter(|record| later.log.contains(record)).cloned().collect(), ..*self }
    }
}

/// Whom a listing believes that a key which the index names is gone.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Believed {
    /// The pass that did not deliver it.
    Pass,
    /// Whoever answers a question about the key.
    Anybody,
    /// Whoever tells of a removal later than the index, and otherwise a member that has come as far as the index.
    Proved,
}

/// A listing by a pass and the leader's index.
struct Certifying {
    believed: Believed,
    collected: Collected,
    index: Index,
    unread: Vec<Key>,
    /// What somebody says is gone who has not proved that he knows.
    doubtful: Vec<Key>,
}

impl Certifying {
    fn of(mut collected: Collected, index: Index, believed: Believed) -> Certifying {
        let unread = if believed == Believed::Pass { Vec::new() } else { collected.to_read(&index) };
        Certifying { believed, collected, index, unread, doubtful: Vec::new() }
    }

    /// The answer of this member about the next key.
    fn answer(&mut self, member: &Stream) -> Result<(), Cause> {
        let Some(key) = self.unread.pop() else { return Ok(()) };
        let answer = member.read(&key);
        if !self.collected.settle(&key, answer.clone(), &self.index)? {
            match self.believed {
                Believed::Proved => self.doubtful.push(key),
                Believed::Pass | Believed::Anybody => self.collected.prove(key, answer, member.last()),
            }
        }
        Ok(())
    }

    /// What this member holds of the keys in doubt. One that has not come as far as the index settles nothing, and what another
    /// lacks is gone if the leader does not name it either.
    fn copy(&mut self, member: &Stream, leader: &Stream) {
        if member.last() >= self.index.last_seq {
            for key in std::mem::take(&mut self.doubtful) {
                match member.read(&key) {
                    None if leader.read(&key).is_some() => self.doubtful.push(key),
                    None => self.collected.prove(key, None, leader.last()),
                    held => self.collected.prove(key, held, member.last()),
                }
            }
        }
    }

    /// The keys, once the leader has answered what nobody has.
    fn finish(mut self, leader: &Stream) -> Result<Vec<Key>, Cause> {
        while !self.unread.is_empty() {
            self.answer(leader)?;
        }
        self.copy(leader, leader);
        if self.believed == Believed::Pass {
            self.index = Index::of_keys((0..KEYS).map(name).collect(), self.index.stream());
        }
        Ok(self.collected.finish(&self.index).live.into_iter().map(|(key, _)| key).collect())
    }
}

/// Plays events against one stream. From the event at `began` on it is listed: by a pass that walks it by sequence, served by a
/// member that has not applied the newest `lag` events, and by what certifies that. Answers the keys live throughout the
/// listing, and the keys listed, or why it is unknown.
fn play(events: &[Event], began: usize, lag: usize, believed: Believed) -> (Vec<Key>, Result<Vec<Key>, Cause>) {
    let mut stream = Stream::full();
    // What the leader was at every event, and so what a member is that lags.
    let mut states = vec![stream.clone()];
    let mut throughout = None;
    let (mut cursor, mut collected, mut index, mut certifying) = (0, Collected::default(), None, None);
    for (at, event) in events.iter().enumerate() {
        if at >= began {
            throughout.get_or_insert_with(|| stream.live());
        }
        stream.apply(event);
        states.push(stream.clone());
        let behind = |lag: usize| &states[(at + 1).saturating_sub(lag)];
        match (event, &mut throughout) {
            (_, None) | (Event::Write(_), _) => {}
            (Event::Remove(k) | Event::Expire(k), Some(throughout)) => throughout.retain(|key| *key != name(*k)),
            (Event::Index, _) => {
                index.get_or_insert_with(|| stream.index());
            }
            (Event::Deliver, _) if certifying.is_none() => {
                let next = behind(lag).log.iter().filter(|(seq, ..)| *seq > cursor).min_by_key(|(seq, ..)| *seq);
                if let Some((seq, key, live)) = next {
                    collected.take(key.clone(), version(*seq, live.then_some("v")));
                    cursor = *seq;
                }
            }
            (Event::Deliver, _) => {}
            (Event::Answer(lag) | Event::Copy(lag) | Event::CatchUp(lag), Some(throughout)) => {
                let Some(index) = index.clone() else { continue };
                let asking =
                    certifying.get_or_insert_with(|| Certifying::of(std::mem::take(&mut collected), index, believed));
                let member = behind(*lag);
                let told = match event {
                    Event::Copy(_) => {
                        asking.copy(member, &stream);
                        Ok(())
                    }
                    Event::CatchUp(_) => {
                        asking.copy(&member.catching_up(&stream), &stream);
                        Ok(())
                    }
                    _ => asking.answer(member),
                };
                if let Err(cause) = told {
                    return (throughout.clone(), Err(cause));
                }
            }
        }
    }
    let index = index.unwrap_or_else(|| stream.index());
    let listed = certifying.unwrap_or_else(|| Certifying::of(collected, index, believed)).finish(&stream);
    (throughout.unwrap_or_else(|| stream.live()), listed)
}

fn change() -> impl Strategy<Value = Event> {
    prop_oneof![(0..KEYS).prop_map(Event::Write), (0..KEYS).prop_map(Event::Remove), (0..KEYS).prop_map(Event::Expire)]
}

/// What was before a listing, and the changes and the steps of the listing, of which each may come anywhere.
fn events() -> impl Strategy<Value = (Vec<Event>, Vec<Event>)> {
    let event = prop_oneof![
        2 => change(),
        1 => Just(Event::Deliver),
        1 => Just(Event::Index),
        3 => (0..24_usize).prop_map(Event::Answer),
        2 => (0..24_usize).prop_map(Event::Copy),
        2 => (0..24_usize).prop_map(Event::CatchUp),
    ];
    (proptest::collection::vec(change(), 0..8), proptest::collection::vec(event, 0..24))
}

type Revisions = Vec<(Key, u64)>;

fn old_or_short(want: &[(Key, u64)], listed: &[(Key, u64)]) -> bool {
    want.iter().any(|(key, since)| !listed.iter().any(|(listed, revision)| listed == key && revision >= since))
}

fn twice<T>(listed: &[T], key: impl Fn(&T) -> &Key) -> bool {
    listed.windows(2).any(|two| key(&two[0]) >= key(&two[1]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_certified_listing_holds_every_key_live_throughout((before, during) in events(), lag in 0..8_usize) {
        let events = [&before[..], &during].concat();
        let (live, listed) = play(&events, before.len(), lag, Believed::Proved);
        match listed {
            Ok(listed) => {
                prop_assert!(!twice(&listed, |key| key));
                for key in live {
                    prop_assert!(listed.contains(&key), "{key} is missing from {listed:?}");
                }
            }
            Err(Cause::Stale { .. }) => {
                let leaders = events.iter().all(|event| !matches!(event, Event::Answer(1..)));
                prop_assert!(!leaders, "the leader is never behind");
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

#[test]
fn without_the_certification_a_rewritten_key_is_lost() {
    let events = [Event::Deliver, Event::Write(1), Event::Deliver, Event::Deliver, Event::Write(1)];
    let (live, bare) = play(&events, 0, 0, Believed::Pass);
    let bare = bare.unwrap();
    assert!(live.iter().any(|key| !bare.contains(key)), "the model shows the race that the index closes");
    let (live, certified) = play(&events, 0, 0, Believed::Proved);
    assert_eq!(certified, Ok(live));
}

/// A key was removed or ended and came back before the listing began. Who knows of that and not of the rest says that it is
/// gone: no older revision of it was delivered by which to tell, and only the index says how far he would have to be.
#[test]
fn without_the_proof_a_member_from_the_past_takes_a_live_key_away() {
    for goes in [Event::Remove(1), Event::Expire(1)] {
        // The pass delivers the three others. The member that is asked about this one, and then for a copy, has come to where
        // it was gone.
        let passed = [Event::Deliver, Event::Deliver, Event::Deliver, Event::Index];
        let events = [&[goes, Event::Write(1)], &passed[..], &[Event::Answer(6), Event::Copy(7)]].concat();
        let lost = |believed| {
            let (live, listed) = play(&events, 2, 0, believed);
            let listed = listed.unwrap();
            live.into_iter().filter(|key| !listed.contains(key)).collect::<Vec<_>>()
        };
        assert_eq!(lost(Believed::Anybody), [name(1)], "{goes:?}");
        assert_eq!(lost(Believed::Proved), [], "{goes:?}");
    }
}

#[test]
fn what_a_copy_lacks_is_what_the_index_names_beyond_it() {
    let index = index(&["a", "b", "c", "d"], 9);
    let held = |names: &[&str]| names.iter().map(|name| (key(name), version(3, None))).collect::<Vec<_>>();
    assert_eq!(index.missing_from(&held(&["d", "b", "e"])), [key("a"), key("c")]);
    assert_eq!(index.missing_from(&held(&["a", "b", "c", "d", "d"])), []);
    assert_eq!(index.missing_from(&[]).len(), 4);
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
