//! The certification of a listing: what must be read again, and what is handed over.
//!
//! A pass over a bucket delivers every key's newest revision, but it cannot tell that it is complete: a key rewritten
//! before the pass reaches it is delivered by nobody, and the marker that ends a pass is a guess. The stream leader's index,
//! read beside the pass, names every key that the leader holds. Whatever the index names and the pass did not deliver, or
//! delivered only as a removal (a replica behind a re-creation says that of a live key), is read from the leader.
//!
//! A removal for a key that the index does not name needs no read: the leader held nothing there at an instant inside the
//! listing, so the key was not live throughout.

use std::collections::HashMap;

use bytes::Bytes;
use jiff::Timestamp;

use crate::answer::Cause;

/// The most keys under one filter that an index read names on one page, and so the most that a listing certifies: the
/// server sorts its list anew for every page, and a removal between two pages shifts a key past both.
pub const KEYS_MAX: u64 = 100_000;

/// Whether an index page that names `named` of `total` keys is whole, and so can certify a listing.
///
/// # Errors
/// More keys than [`KEYS_MAX`], or a page that names fewer than it counts.
pub fn is_whole(total: u64, named: usize) -> Result<(), Cause> {
    let named = named as u64;
    match total.max(named) {
        keys if keys > KEYS_MAX => Err(Cause::TooMany { keys, most: KEYS_MAX }),
        keys if keys > named => {
            Err(Cause::Garbage(format!("an index that counts {keys} keys and names {named}").into()))
        }
        _ => Ok(()),
    }
}

/// Whether `revision` of a key, delivered after a certified listing, is news to whoever has that listing.
///
/// `listed` is the key's revision in the listing, and `index_seq` the stream's last sequence as the index told it. A key that
/// the listing does not hold was not live when the leader had come that far, so an earlier revision of it comes from a
/// replica that is behind, and would bring back what is gone.
pub fn is_news(revision: u64, listed: Option<u64>, index_seq: u64) -> bool {
    revision > listed.unwrap_or(index_seq)
}

/// One revision of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The revision, the sequence of the write in the bucket's stream.
    pub revision: u64,
    /// When the broker stored it, on the broker's clock.
    pub written: Timestamp,
    /// The value; `None` is a removal marker.
    pub value: Option<Bytes>,
}

/// What the pass of a listing has delivered so far, keyed by the bucket's raw keys.
#[derive(Debug, Default)]
pub struct Pass(HashMap<Box<str>, Version>);

impl Pass {
    /// A pass that has delivered nothing.
    pub fn new() -> Pass {
        Pass::default()
    }

    /// Takes a revision that was delivered or read; an older one than is known changes nothing.
    pub fn take(&mut self, key: &str, version: Version) {
        match self.0.get_mut(key) {
            Some(known) if known.revision >= version.revision => {}
            Some(known) => *known = version,
            None => {
                self.0.insert(key.into(), version);
            }
        }
    }

    /// The keys of the leader's `index` that the leader must be asked about, one by one.
    pub fn to_read<'a>(&'a self, index: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        index.filter(|key| self.0.get(*key).is_none_or(|version| version.value.is_none())).collect()
    }

    /// Takes the leader's answer about a key that it was asked about: a version, or nothing there.
    ///
    /// # Errors
    /// An answer older than what the pass delivered for the same key: whoever answered was not the leader any more.
    pub fn settle(&mut self, key: &str, answer: Option<Version>) -> Result<(), Cause> {
        let known = self.0.get(key).map_or(0, |version| version.revision);
        match answer {
            Some(version) if version.revision < known => {
                return Err(Cause::Stale { answered: version.revision, known });
            }
            Some(version) => self.take(key, version),
            // The pass delivered at most a marker for a key that is asked about, so nothing live is dropped.
            None => {
                self.0.remove(key);
            }
        }
        Ok(())
    }

    /// The live keys, each once, in order.
    pub fn finish(self) -> Vec<(Box<str>, Version)> {
        let mut live: Vec<_> = self.0.into_iter().filter(|(_, version)| version.value.is_some()).collect();
        live.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        live
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version(revision: u64, value: Option<&'static str>) -> Version {
        Version { revision, written: Timestamp::UNIX_EPOCH, value: value.map(|v| Bytes::from_static(v.as_bytes())) }
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
        let mut pass = Pass::new();
        pass.take("seat.live", version(1, Some("v")));
        pass.take("seat.marked", version(2, None));
        pass.take("seat.gone", version(3, None));
        assert_eq!(pass.to_read(["seat.live", "seat.lost", "seat.marked"].into_iter()), ["seat.lost", "seat.marked"]);
        pass.settle("seat.lost", Some(version(9, Some("w")))).unwrap();
        pass.settle("seat.marked", None).unwrap();
        let listed: Vec<_> = pass.finish().into_iter().map(|(key, v)| (key, v.revision)).collect();
        assert_eq!(listed, [("seat.live".into(), 1), ("seat.lost".into(), 9)]);
    }

    #[test]
    fn the_newest_revision_wins_whatever_order_it_came_in() {
        let mut pass = Pass::new();
        pass.take("k", version(5, Some("new")));
        pass.take("k", version(4, Some("old")));
        assert_eq!(pass.finish()[0].1.revision, 5);
    }

    #[test]
    fn an_answer_older_than_the_pass_is_not_the_leaders() {
        let mut pass = Pass::new();
        pass.take("k", version(5, None));
        let stale = pass.settle("k", Some(version(3, Some("old"))));
        assert_eq!(stale, Err(Cause::Stale { answered: 3, known: 5 }));
    }

    /// What a store went through while it was listed.
    #[derive(Clone, Debug)]
    enum Event {
        Write(usize),
        Remove(usize),
        Expire(usize),
        Deliver,
        Index,
    }

    /// Plays events against one stream with one revision per key and a pass that walks it by sequence, then certifies.
    /// Answers the keys live throughout and the keys listed.
    fn play(events: &[Event], lag: usize, certify: bool) -> (Vec<String>, Vec<String>) {
        const KEYS: usize = 4;
        let name = |k: usize| format!("seat.{k}");
        let mut log: Vec<(u64, usize, bool)> = (0..KEYS).map(|k| (k as u64 + 1, k, true)).collect();
        let mut throughout = [true; KEYS];
        let (mut next, mut cursor) = (KEYS as u64 + 1, 0);
        let mut pass = Pass::new();
        let mut index: Option<Vec<String>> = None;
        // The pass is served by a replica that has not applied the newest `lag` writes.
        let deliver = |pass: &mut Pass, log: &[(u64, usize, bool)], cursor: &mut u64, next: u64| {
            let applied = next.saturating_sub(lag as u64);
            if let Some(&(seq, k, live)) =
                log.iter().filter(|(s, ..)| *s > *cursor && *s < applied).min_by_key(|(s, ..)| *s)
            {
                pass.take(&name(k), version(seq, live.then_some("v")));
                *cursor = seq;
            }
        };
        for event in events {
            match event {
                Event::Write(k) | Event::Remove(k) => {
                    let live = matches!(event, Event::Write(_));
                    log.retain(|(_, key, _)| key != k);
                    log.push((next, *k, live));
                    next += 1;
                    throughout[*k] &= live;
                }
                Event::Expire(k) => {
                    log.retain(|(_, key, _)| key != k);
                    throughout[*k] = false;
                }
                Event::Deliver => deliver(&mut pass, &log, &mut cursor, next),
                Event::Index => {
                    index.get_or_insert_with(|| log.iter().map(|(_, k, _)| name(*k)).collect());
                }
            }
        }
        let index = index.unwrap_or_else(|| log.iter().map(|(_, k, _)| name(*k)).collect());
        if certify {
            let asked: Vec<String> =
                pass.to_read(index.iter().map(String::as_str)).into_iter().map(str::to_owned).collect();
            for key in asked {
                let answer = log.iter().find(|(_, k, _)| name(*k) == key);
                let answer = answer.map(|(seq, _, live)| version(*seq, live.then_some("v")));
                pass.settle(&key, answer).expect("the model's leader is never behind");
            }
        }
        let live = (0..KEYS).filter(|k| throughout[*k]).map(name).collect();
        (live, pass.finish().into_iter().map(|(key, _)| key.into()).collect())
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            (0..4_usize).prop_map(Event::Write),
            (0..4_usize).prop_map(Event::Remove),
            (0..4_usize).prop_map(Event::Expire),
            Just(Event::Deliver),
            Just(Event::Deliver),
            Just(Event::Index),
        ];
        proptest::collection::vec(event, 0..24)
    }

    proptest! {
        #[test]
        fn a_certified_listing_holds_every_key_live_throughout(events in events(), lag in 0..3_usize) {
            let (live, listed) = play(&events, lag, true);
            for key in live {
                prop_assert!(listed.contains(&key), "{key} is missing from {listed:?}");
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
}
