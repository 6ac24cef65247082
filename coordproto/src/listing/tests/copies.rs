//! Copies that a barrier proves, of members that are behind and members that catch up.

use super::*;

/// When a question is answered, and by whom.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// How many events after what came before it.
    after: usize,
    /// How many of the newest events who answers has not applied.
    lag: usize,
    /// Of how many events after those a member has heard what they took away.
    ahead: usize,
}

/// What a listing looks at before it believes copies.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Checked {
    Nothing,
    /// That each is late enough.
    Late,
    /// And that nothing is missing from them that an index names.
    Whole,
}

/// A stream whose history is `events`, with a barrier committed before the event at `at`. What `index` asks for names the keys,
/// and each part of them, from its first to the next part's, is copied by a member of its own; what they lack is copied `again`,
/// by one member after another, and in the end by the leader. Answers the keys live from the barrier on to the end, with the
/// revision each had at the barrier, and what was listed, or why it is unknown.
fn spread(
    events: &[Event],
    (barrier, at): (&Key, usize),
    index: Asked,
    (parts, again): (&[(usize, Asked)], &[Asked]),
    checked: Checked,
) -> (Revisions, Result<Revisions, Cause>) {
    let (mut stream, mut states) = (Stream::full(), Vec::new());
    let (mut revision, mut want) = (0, Vec::new());
    for (n, event) in events.iter().map(Some).chain([None]).enumerate() {
        if n == at {
            // A member may have applied what came right before it, and not the barrier.
            states.push(stream.clone());
            revision = stream.write(barrier.clone(), true);
            want = stream.copy(&stream.live()).into_iter().map(|(key, v)| (key, v.revision)).collect();
        }
        states.push(stream.clone());
        let Some(event) = event else { break };
        stream.apply(event);
        if let (Event::Remove(k) | Event::Expire(k), true) = (event, n >= at) {
            want.retain(|(key, _)| *key != name(*k));
        }
    }
    want.retain(|(key, _)| *key != Key::barrier());
    want.sort_unstable();
    let last = states.len() - 1;
    let state = |since: usize, asked: &Asked| (since + asked.after).min(last).saturating_sub(asked.lag);
    let copy = |state: usize, asked: &Asked, mut names: Vec<Key>| {
        names.push(barrier.clone());
        let copy = states[state].catching_up(&states[(state + asked.ahead).min(last)]).copy(&names);
        if checked >= Checked::Late {
            prove(&copy, barrier, revision)?;
        }
        Ok::<_, Cause>(copy)
    };
    let told = |state: usize| {
        let index = states[state].index();
        if checked >= Checked::Late {
            index.covers(revision)?;
        }
        Ok::<_, Cause>(index)
    };
    let listed = || {
        let named = told(state(at + 1, &index))?;
        let mut all = Vec::new();
        for (n, (from, asked)) in parts.iter().enumerate() {
            let to = parts.get(n + 1).map_or(KEYS, |(next, _)| *next);
            let names = named.keys().filter(|key| (*from..to).any(|k| *key == name(k))).collect();
            all.extend(copy(state(at + 1 + index.after, asked), asked, names)?);
        }
        let mut missing = if checked == Checked::Whole { named.missing_from(&all) } else { Vec::new() };
        let leader = Asked { after: last, lag: 0, ahead: 0 };
        for asked in again.iter().chain([&leader]) {
            if missing.is_empty() {
                break;
            }
            let state = state(at + 1, asked);
            let copied = copy(state, asked, missing.clone())?;
            missing.retain(|key| copied.iter().all(|(copied, _)| copied != key));
            missing = told(state)?.named_of(missing);
            all.extend(copied);
        }
        assert_eq!(missing, [], "the leader has what it names");
        let listed = live(all, &Class::seat().filter()).into_iter();
        Ok(listed.map(|(key, version)| (key, version.revision)).collect())
    };
    let listed = listed();
    (want, listed)
}

fn asked() -> impl Strategy<Value = Asked> {
    // Who is asked has mostly come as far as anybody.
    let some = || prop_oneof![2 => Just(0), 1 => 1..8_usize];
    (0..8_usize, some(), some()).prop_map(|(after, lag, ahead)| Asked { after, lag, ahead })
}

/// As many parts as there are keys at most, which divide them up.
fn parts() -> impl Strategy<Value = Vec<(usize, Asked)>> {
    proptest::collection::vec((0..KEYS, asked()), 1..=KEYS).prop_map(|mut parts| {
        parts.sort_by_key(|(from, _)| *from);
        parts.dedup_by_key(|(from, _)| *from);
        parts[0].0 = 0;
        parts
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn proved_copies_are_never_short_and_never_old(
        events in proptest::collection::vec(change(), 0..24),
        at in 0..24_usize,
        index in asked(),
        parts in parts(),
        again in proptest::collection::vec(asked(), 0..3),
        record in any::<bool>(),
    ) {
        let barrier = if record { name(0) } else { Key::barrier() };
        let at = at.min(events.len());
        let (want, listed) = spread(&events, (&barrier, at), index, (&parts, &again), Checked::Whole);
        match listed {
            Ok(listed) => {
                prop_assert!(!old_or_short(&want, &listed), "{want:?} {listed:?}");
                prop_assert!(!twice(&listed, |(key, _)| key), "{listed:?}");
            }
            Err(_) => {
                let asked = parts.iter().map(|(_, asked)| asked).chain(&again);
                let behind = index.lag > 0 || asked.clone().any(|asked| asked.lag > 0 || asked.ahead > 0);
                let aged = events[at..].iter().any(|event| matches!(event, Event::Expire(0)));
                prop_assert!(behind || record && aged, "who has come as far is believed");
            }
        }
    }
}

#[test]
fn without_the_proof_a_member_behind_is_believed() {
    let events = [Event::Write(1), Event::Remove(2), Event::Write(2)];
    let now = Asked { after: 0, lag: 0, ahead: 0 };
    let of = |lag, checked| spread(&events, (&Key::barrier(), 3), now, (&[(0, Asked { lag, ..now })], &[]), checked);
    for (lag, told) in [(4, "an old revision passes for the newest"), (2, "a live key passes for a removed one")] {
        let (want, unproved) = of(lag, Checked::Nothing);
        assert!(old_or_short(&want, &unproved.unwrap()), "{told}");
    }
    for lag in 1..=4 {
        assert!(of(lag, Checked::Whole).1.is_err(), "{lag} behind");
    }
    let (want, proved) = of(0, Checked::Whole);
    assert_eq!(proved, Ok(want));
}

/// A member holds the barrier, was away while two keys were overwritten, and catches up: it has heard that what it has of them
/// is gone, and not yet what stands there. The barrier says nothing of that.
#[test]
fn without_the_index_a_member_that_catches_up_takes_live_keys_away() {
    let events = [Event::Write(1), Event::Write(2)];
    let catching_up = Asked { after: 0, lag: 0, ahead: 2 };
    for again in [&[][..], &[catching_up]] {
        let of = |checked| {
            let index = Asked { ahead: 0, ..catching_up };
            spread(&events, (&Key::barrier(), 0), index, (&[(0, catching_up)], again), checked)
        };
        let (want, believed) = of(Checked::Late);
        assert!(old_or_short(&want, &believed.unwrap()));
        let (want, proved) = of(Checked::Whole);
        let proved = proved.unwrap();
        assert!(!old_or_short(&want, &proved), "{want:?} {proved:?}");
    }
}
