//! Paused seats, and what whoever follows them is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Landing, Unknown};
use coordproto::key::Key;
use coordproto::record::seat_pause::{self, SeatPauseRecord};
use coordproto::slot::POSITIONS;
use engine::slots::pauses::{Hand, Holds, Pause, PausedSeat, Resume, SeatPauses};
use engine::store::faulty::{Call, Fault, Faulty, Verb};
use engine::store::follow::{Follow, News};
use engine::store::{Bucket, BucketSpec, Expect, Put, Store, Write};
use futures_util::future::join_all;

use crate::{Fixture, eventually};

/// How long news may take.
const PATIENCE: Duration = Duration::from_secs(30);

async fn pauses<S: Store>(t: &Fixture<S>) -> SeatPauses<S> {
    SeatPauses::open(&t.store, &t.settings()).await.expect("the bucket opens")
}

/// The same pauses through a store on whose passes the faults befall that are given, one for each pass in turn; none after.
async fn faulty<S: Store>(t: &Fixture<S>, faults: impl IntoIterator<Item = Fault>) -> SeatPauses<Faulty<S>> {
    let mut faults: Vec<Fault> = faults.into_iter().collect();
    faults.reverse();
    let store = Faulty::new(t.store.clone(), t.env.clone(), move |call: &Call<'_>| match call.verb {
        Verb::Pass => faults.pop().unwrap_or(Fault::None),
        _ => Fault::None,
    });
    SeatPauses::open(&store, &t.settings()).await.expect("the bucket opens")
}

/// The bucket below, to write what this build does not write.
async fn bucket<S: Store>(t: &Fixture<S>) -> S::Bucket {
    let config = t.config();
    let spec = BucketSpec::of(&POSITIONS, &config.prefix, config.lease_ttl, config.replicas);
    t.store.open(&spec).await.expect("the bucket opens")
}

async fn stored<B: Bucket>(bucket: &B, key: &Key, value: impl Into<Bytes>) -> u64 {
    match bucket.put(key, Write::Value(value.into()), Expect::Any).await.expect("a definite answer") {
        Put::Stored(revision) => revision,
        Put::Lost(race) => panic!("{race:?}"),
    }
}

fn key(handle: &str) -> Key {
    seat_pause::key(handle).expect("a good handle")
}

fn record(by: &str) -> SeatPauseRecord {
    let at = "2026-01-02T03:04:05Z".parse().expect("an instant");
    SeatPauseRecord { by: by.to_owned(), why: "it mails the wrong people".to_owned(), at, turn_stopped: by == "ada" }
}

fn seat(handle: &str, by: &str, revision: u64) -> PausedSeat {
    PausedSeat { handle: handle.to_owned(), record: record(by), revision }
}

/// Pauses a seat that is not paused.
async fn paused<S: Store>(pauses: &SeatPauses<S>, handle: &str, by: &str) -> u64 {
    match pauses.pause(handle, &record(by)).await.expect("a definite answer") {
        Pause::Paused(revision) => revision,
        Pause::AlreadyPaused(seat) => panic!("{handle} is paused by {}", seat.record.by),
    }
}

async fn resumed<S: Store>(pauses: &SeatPauses<S>, handle: &str, revision: u64) {
    assert_eq!(pauses.resume(handle, revision).await.expect("a definite answer"), Resume::Resumed, "{handle}");
}

async fn news<S: Store, B: Bucket>(t: &Fixture<S>, follow: &mut Follow<B, PausedSeat>) -> News<PausedSeat> {
    t.env.within(t.env.now() + PATIENCE, follow.next()).await.expect("a follow is never silent")
}

/// The news that everything is told anew, as the pauses that there are.
async fn all<S: Store, B: Bucket>(t: &Fixture<S>, follow: &mut Follow<B, PausedSeat>) -> Vec<PausedSeat> {
    match news(t, follow).await {
        News::All { entries, .. } => {
            assert!(entries.iter().all(|(at, seat)| *at == key(&seat.handle)));
            entries.into_iter().map(|(_, seat)| seat).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// Everything told anew, once what kept it from being told is over. A member that is behind may not have heard that yet.
async fn again<S: Store, B: Bucket>(t: &Fixture<S>, follow: &mut Follow<B, PausedSeat>) -> Vec<PausedSeat> {
    loop {
        match news(t, follow).await {
            News::All { entries, .. } => return entries.into_iter().map(|(_, seat)| seat).collect(),
            News::Ended(unknown) => assert!(matches!(unknown.cause, Cause::Undecodable(_)), "{unknown}"),
            other @ News::Changed(..) => panic!("{other:?}"),
        }
    }
}

/// The news that it ended, and why.
async fn ended<S: Store, B: Bucket>(t: &Fixture<S>, follow: &mut Follow<B, PausedSeat>) -> Unknown {
    match news(t, follow).await {
        News::Ended(unknown) => unknown,
        other => panic!("{other:?}"),
    }
}

fn names_row(unknown: &Unknown, handle: &str) {
    assert!(matches!(unknown.cause, Cause::Undecodable(_)), "{unknown}");
    assert!(unknown.resource.ends_with(key(handle).as_str()), "{unknown}");
}

/// The first of two who pause a seat has paused it, and the second learns by whom, why and when.
pub async fn a_pause_is_created_once<S: Store>(t: Fixture<S>) {
    let p = pauses(&t).await;
    assert_eq!(p.get("alpha").await.unwrap(), None);
    assert_eq!(p.list().await.unwrap(), []);
    let revision = paused(&p, "alpha", "ada").await;
    assert_eq!(p.get("alpha").await.unwrap(), Some(seat("alpha", "ada", revision)));
    let told = p.pause("alpha", &record("bob")).await.unwrap();
    assert_eq!(told, Pause::AlreadyPaused(seat("alpha", "ada", revision)));
    let other = paused(&p, "beta", "bob").await;
    t.lists([seat("alpha", "ada", revision), seat("beta", "bob", other)], || async { p.list().await.unwrap() }).await;
}

/// A resume lifts the pause that it names and no other, and leaves what a new pause can be written over.
pub async fn a_resume_lifts_the_pause_that_was_seen<S: Store>(t: Fixture<S>) {
    let p = pauses(&t).await;
    let first = paused(&p, "alpha", "ada").await;
    let other = paused(&p, "beta", "bob").await;
    resumed(&p, "alpha", first).await;
    assert_eq!(p.get("alpha").await.unwrap(), None);
    t.lists([seat("beta", "bob", other)], || async { p.list().await.unwrap() }).await;
    let second = paused(&p, "alpha", "bob").await;
    assert!(second > first);
    for stale in [0, first] {
        let told = p.resume("alpha", stale).await.unwrap();
        assert_eq!(told, Resume::Changed(seat("alpha", "bob", second)), "at {stale}");
        assert_eq!(p.get("alpha").await.unwrap(), Some(seat("alpha", "bob", second)));
    }
    resumed(&p, "alpha", second).await;
}

/// A seat that is not paused is not resumed, whether it never was, was resumed before, or its marker was swept.
pub async fn a_resume_of_nothing_says_so<S: Store>(t: Fixture<S>) {
    let p = pauses(&t).await;
    assert_eq!(p.resume("alpha", 0).await.unwrap(), Resume::NotPaused);
    assert_eq!(bucket(&t).await.get(&key("alpha")).await.unwrap(), None, "nothing was written");
    let first = paused(&p, "alpha", "ada").await;
    resumed(&p, "alpha", first).await;
    assert_eq!(p.resume("alpha", first).await.unwrap(), Resume::NotPaused);
    let marker = bucket(&t).await.get(&key("alpha")).await.unwrap().expect("a marker");
    assert_eq!(bucket(&t).await.purge(&key("alpha"), marker.revision).await.unwrap(), 1);
    for revision in [first, marker.revision] {
        assert_eq!(p.resume("alpha", revision).await.unwrap(), Resume::NotPaused, "at {revision}");
    }
    assert_eq!(p.resume("never", first).await.unwrap(), Resume::NotPaused);
    t.lists([], || async { p.list().await.unwrap() }).await;
    paused(&p, "alpha", "bob").await;
}

/// Of many who pause at once one has, and the others are told whom; of many who resume at once one has.
pub async fn of_many_at_once_one_pauses_and_one_resumes<S: Store>(t: Fixture<S>) {
    let p = pauses(&t).await;
    for round in 0..5 {
        let records: Vec<SeatPauseRecord> = (0..16).map(|i| record(&format!("p{i}"))).collect();
        let told = join_all(records.iter().map(|record| p.pause("alpha", record))).await;
        let stands = p.get("alpha").await.unwrap().expect("it is paused");
        let mut won = Vec::new();
        for (record, told) in records.iter().zip(told) {
            match told.expect("a definite answer") {
                Pause::Paused(revision) => won.push((record, revision)),
                Pause::AlreadyPaused(seat) => assert_eq!(seat, stands, "round {round}"),
            }
        }
        assert_eq!(won, [(&stands.record, stands.revision)], "round {round}");
        let told = join_all((0..16).map(|_| p.resume("alpha", stands.revision))).await;
        let told: Vec<Resume> = told.into_iter().map(|told| told.expect("a definite answer")).collect();
        assert_eq!(told.iter().filter(|told| **told == Resume::Resumed).count(), 1, "round {round}: {told:?}");
        assert!(told.iter().all(|told| matches!(told, Resume::Resumed | Resume::NotPaused)), "round {round}: {told:?}");
    }
}

/// A handle that no seat can have is refused before anything is asked; every other one comes back byte for byte.
pub async fn handles_are_kept_to_the_byte_or_refused<S: Store>(t: Fixture<S>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let store = Faulty::new(t.store.clone(), t.env.clone(), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Fault::None
    });
    let p = SeatPauses::open(&store, &t.settings()).await.expect("the bucket opens");
    for handle in ["", ":", "a:", ":a", "a::b", &"a".repeat(5000), &"é".repeat(256)] {
        for refused in [
            p.pause(handle, &record("ada")).await.map(drop),
            p.resume(handle, 1).await.map(drop),
            p.get(handle).await.map(drop),
        ] {
            let Err(Error::BadArgument(refused)) = refused else { panic!("{handle:?}: {refused:?}") };
            assert_eq!(refused.what, "handle");
        }
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing was asked");
    let mut handles: Vec<String> = [
        " ", "a b", ".", ".a", "a..b", "a.b*>", "*", ">", "a:b", "a/b", "../x", "a\tb", "a\u{0}b", "~", "a=b", "🙂",
        "e\u{301}", "é", "%2e", "-rf", "\"x\"", "$KV", "Seat", "seat",
    ]
    .map(str::to_owned)
    .to_vec();
    handles.push("a".repeat(300));
    for handle in &handles {
        let revision = paused(&p, handle, "ada").await;
        assert_eq!(p.get(handle).await.unwrap(), Some(seat(handle, "ada", revision)));
    }
    let mut follow = p.follow();
    for told in [p.list().await.unwrap(), all(&t, &mut follow).await] {
        let mut told: Vec<String> = told.into_iter().map(|seat| seat.handle).collect();
        told.sort_unstable();
        handles.sort_unstable();
        assert_eq!(told, handles);
    }
}

/// A row that cannot be read is unknown in every answer that it is part of, by name, and in no other; corrected, it is a row.
pub async fn an_unreadable_row_is_unknown_until_it_is_corrected<S: Store>(t: Fixture<S>) {
    let (p, b) = (pauses(&t).await, bucket(&t).await);
    let alpha = paused(&p, "alpha", "ada").await;
    let mut follow = p.follow();
    assert_eq!(all(&t, &mut follow).await, [seat("alpha", "ada", alpha)]);
    stored(&b, &Key::parse("node.n1").unwrap(), "another class's").await;
    let foreign = Key::parse("seat_pause.a.b").unwrap();
    for at in [&key("beta"), &foreign] {
        let broken = stored(&b, at, "garbage").await;
        let listed = t.listed(|| p.list(), Result::is_err).await.unwrap_err();
        assert!(matches!(listed.cause, Cause::Undecodable(_)) && *listed.resource == *at.as_str(), "{listed}");
        for look in 0..3 {
            let unknown = ended(&t, &mut follow).await;
            assert!(matches!(unknown.cause, Cause::Undecodable(_)), "look {look}: {unknown}");
            assert!(unknown.resource.ends_with(at.as_str()), "look {look}: {unknown}");
        }
        if *at == foreign {
            assert_eq!(b.purge(at, broken).await.unwrap(), 1);
        } else {
            let whole = [
                p.get("beta").await.map(drop),
                p.pause("beta", &record("bob")).await.map(drop),
                p.resume("beta", alpha).await.map(drop),
            ];
            for unknown in whole {
                let unknown = unknown.unwrap_err().unknown().cloned().expect("unknown");
                assert!(matches!(unknown.cause, Cause::Undecodable(_)) && *unknown.resource == *"beta", "{unknown}");
            }
            stored(&b, at, record("bob").encode()).await;
        }
        assert_eq!(p.get("alpha").await.unwrap(), Some(seat("alpha", "ada", alpha)), "the others are as they were");
        let handles = |back: &Vec<PausedSeat>| back.iter().map(|seat| seat.handle.clone()).collect::<Vec<_>>();
        let back = eventually(&t.env, "everything is told anew", || async {
            p.list().await.ok().filter(|back| handles(back) == ["alpha", "beta"])
        })
        .await;
        assert_eq!(again(&t, &mut follow).await, back);
    }
    // Whoever sees its revision can lift it unread.
    let broken = stored(&b, &key("beta"), "garbage").await;
    names_row(&ended(&t, &mut follow).await, "beta");
    resumed(&p, "beta", broken).await;
    assert_eq!(again(&t, &mut follow).await, [seat("alpha", "ada", alpha)]);
}

/// Whoever follows has every pause at once, and then hears of each that comes and goes, in order.
pub async fn a_follow_begins_with_every_pause_and_misses_no_change<S: Store>(t: Fixture<S>) {
    let (p, b) = (pauses(&t).await, bucket(&t).await);
    let mut early = p.follow();
    assert_eq!(all(&t, &mut early).await, [], "no pause is an answer");
    let alpha = paused(&p, "alpha", "ada").await;
    let mut follow = p.follow();
    assert_eq!(all(&t, &mut follow).await, [seat("alpha", "ada", alpha)]);
    stored(&b, &Key::parse("node.n1").unwrap(), "another class's").await;
    let beta = paused(&p, "beta", "bob").await;
    assert_eq!(news(&t, &mut follow).await, News::Changed(key("beta"), Some(seat("beta", "bob", beta))));
    resumed(&p, "alpha", alpha).await;
    assert_eq!(news(&t, &mut follow).await, News::Changed(key("alpha"), None));
    let again = paused(&p, "alpha", "bob").await;
    assert_eq!(news(&t, &mut follow).await, News::Changed(key("alpha"), Some(seat("alpha", "bob", again))));
    assert_eq!(p.resume("alpha", alpha).await.unwrap(), Resume::Changed(seat("alpha", "bob", again)));
    // One that was not looked at all this while has it too: of each seat the newest, whatever went before.
    let mut told = std::collections::BTreeMap::new();
    while told.len() < 2 || told[&key("alpha")] != Some(again) {
        match news(&t, &mut early).await {
            News::Changed(key, seat) => told.insert(key, seat.map(|seat| seat.revision)),
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(told[&key("beta")], Some(beta));
}

/// What a pass delivers late, twice, or from the past changes nothing that was told already.
pub async fn nothing_older_than_the_answer_is_told<S: Store>(t: Fixture<S>) {
    let p = pauses(&t).await;
    for fault in [Fault::Stale, Fault::Replay, Fault::Split(0), Fault::Split(1)] {
        let name = |handle: &str| format!("{fault:?}-{handle}").to_lowercase();
        let (alpha, beta, gamma) = (name("alpha"), name("beta"), name("gamma"));
        let f = faulty(&t, [fault]).await;
        // A member that is behind says of alpha that it was resumed, which it was before.
        let first = paused(&p, &alpha, "ada").await;
        resumed(&p, &alpha, first).await;
        assert_eq!(f.get(&alpha).await.unwrap(), None);
        let alpha_at = paused(&p, &alpha, "ada").await;
        f.get(&alpha).await.unwrap().expect("paused again");
        let beta_at = paused(&p, &beta, "bob").await;
        let mut follow = f.follow();
        let mut told = all(&t, &mut follow).await;
        told.retain(|seat| seat.handle == alpha || seat.handle == beta);
        assert_eq!(told, [seat(&alpha, "ada", alpha_at), seat(&beta, "bob", beta_at)], "{fault:?}");
        let gamma_at = paused(&p, &gamma, "bob").await;
        let news = news(&t, &mut follow).await;
        assert_eq!(news, News::Changed(key(&gamma), Some(seat(&gamma, "bob", gamma_at))), "{fault:?}");
    }
}

/// A pass that says too early that it is done, or falls silent, is completed from the leader.
pub async fn a_follow_of_a_short_pass_begins_with_every_pause<S: Store>(t: Fixture<S>) {
    let p = pauses(&t).await;
    let mut want = Vec::new();
    for handle in ["alpha", "beta", "gamma"] {
        want.push(seat(handle, "ada", paused(&p, handle, "ada").await));
    }
    let began = join_all([Fault::Split(0), Fault::Split(2), Fault::Silent(0), Fault::Silent(2)].map(|fault| {
        let (t, want) = (&t, &want);
        async move {
            let f = faulty(t, [fault]).await;
            let mut follow = f.follow();
            let told = all(t, &mut follow).await;
            assert_eq!(told, *want, "{fault:?}");
            (fault, f, follow)
        }
    }))
    .await;
    // Those whose pass goes on have the changes from it too.
    let delta = paused(&p, "delta", "bob").await;
    for (fault, _, mut follow) in began {
        if matches!(fault, Fault::Split(_)) {
            let news = news(&t, &mut follow).await;
            assert_eq!(news, News::Changed(key("delta"), Some(seat("delta", "bob", delta))), "{fault:?}");
        }
    }
}

/// A pass that is lost, before or after the answer, is told, and then everything is told anew.
pub async fn a_follow_that_ended_begins_again_with_everything<S: Store>(t: Fixture<S>) {
    let p = pauses(&t).await;
    let mut want = Vec::new();
    for handle in ["alpha", "beta"] {
        want.push(seat(handle, "ada", paused(&p, handle, "ada").await));
    }
    // The first is lost while it is opened, the second after one change.
    let f = faulty(&t, [Fault::Broken(1), Fault::Broken(3)]).await;
    let mut follow = f.follow();
    let unknown = ended(&t, &mut follow).await;
    assert_eq!((unknown.op, matches!(unknown.cause, Cause::Garbage(_))), ("watch", true), "{unknown}");
    assert_eq!(all(&t, &mut follow).await, want);
    let gamma = seat("gamma", "bob", paused(&p, "gamma", "bob").await);
    assert_eq!(news(&t, &mut follow).await, News::Changed(key("gamma"), Some(gamma.clone())));
    let delta = seat("delta", "bob", paused(&p, "delta", "bob").await);
    resumed(&p, "alpha", want[0].revision).await;
    let unknown = ended(&t, &mut follow).await;
    assert!(matches!(unknown.cause, Cause::Garbage(_)), "{unknown}");
    assert_eq!(all(&t, &mut follow).await, [want[1].clone(), delta, gamma]);
    let epsilon = paused(&p, "epsilon", "bob").await;
    assert_eq!(news(&t, &mut follow).await, News::Changed(key("epsilon"), Some(seat("epsilon", "bob", epsilon))));
}

/// Without an answer no seat is paused, none is resumed, and none is said not to be; and whoever follows is told.
pub async fn without_an_answer_nothing_is_said_of_a_pause<S: Store>(t: Fixture<S>) {
    let p = pauses(&t).await;
    let alpha = paused(&p, "alpha", "ada").await;
    for (fault, landed) in [(Fault::DropRequest, false), (Fault::DropReply, true)] {
        let store = Faulty::new(t.store.clone(), t.env.clone(), move |_| fault);
        let f = SeatPauses::open(&store, &t.settings()).await.expect("opening never fails");
        let landing = |error: Error| error.unknown().expect("unknown").landing;
        assert_eq!(landing(f.pause("beta", &record("bob")).await.unwrap_err()), Landing::InFlight);
        assert_eq!(landing(f.resume("alpha", alpha).await.unwrap_err()), Landing::InFlight);
        assert_eq!(landing(f.get("alpha").await.unwrap_err()), Landing::Settled);
        assert_eq!(f.get("nobody").await.holds().unwrap(), Hand::Defer, "nobody can say that it is not paused");
        assert_eq!(f.list().await.unwrap_err().landing, Landing::Settled);
        assert_eq!(ended(&t, &mut f.follow()).await.op, "watch");
        assert_eq!(p.get("beta").await.unwrap().is_some(), landed, "{fault:?}");
        assert_eq!(p.get("alpha").await.unwrap().is_none(), landed, "{fault:?}");
    }
    assert_eq!(p.get("beta").await.holds().unwrap(), Hand::Defer);
    assert_eq!(p.get("alpha").await.holds().unwrap(), Hand::Over);
    assert_eq!(p.get("").await.holds().unwrap_err().what, "handle");
    let beta = p.get("beta").await.unwrap().expect("it landed");
    let told = p.pause("beta", &record("bob")).await.unwrap();
    assert_eq!(told, Pause::AlreadyPaused(beta), "asked again, it is told its own");
    assert_eq!(p.resume("alpha", alpha).await.unwrap(), Resume::NotPaused, "and this that it is done");
}

/// A member that is behind says of a seat what was true of an earlier pause. It is asked again, and believed in nothing.
pub async fn the_past_resumes_nothing<S: Store>(t: Fixture<S>) {
    let p = pauses(&t).await;
    let behind = Arc::new(AtomicUsize::new(0));
    let left = behind.clone();
    let store = Faulty::new(t.store.clone(), t.env.clone(), move |call: &Call<'_>| {
        let stale = call.verb == Verb::Read
            && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok();
        if stale { Fault::Stale } else { Fault::None }
    });
    let f = SeatPauses::open(&store, &t.settings()).await.expect("the bucket opens");
    let first = paused(&p, "alpha", "ada").await;
    assert_eq!(f.get("alpha").await.unwrap(), Some(seat("alpha", "ada", first)));
    resumed(&p, "alpha", first).await;
    let second = paused(&p, "alpha", "bob").await;
    assert_eq!(f.get("alpha").await.unwrap(), Some(seat("alpha", "bob", second)));
    for reads in 1..4 {
        behind.store(reads, Ordering::Relaxed);
        assert_eq!(f.resume("alpha", first).await.unwrap(), Resume::Changed(seat("alpha", "bob", second)));
        behind.store(reads, Ordering::Relaxed);
        let told = f.pause("alpha", &record("cyd")).await.unwrap();
        assert_eq!(told, Pause::AlreadyPaused(seat("alpha", "bob", second)));
    }
    behind.store(usize::MAX, Ordering::Relaxed);
    for error in [f.resume("alpha", first).await.map(drop), f.pause("alpha", &record("cyd")).await.map(drop)] {
        let unknown = error.unwrap_err().unknown().cloned().expect("unknown");
        assert!(matches!(unknown.cause, Cause::Contended { .. }), "{unknown}");
        assert_eq!((&*unknown.resource, unknown.landing), ("alpha", Landing::Settled));
    }
    assert_eq!(p.get("alpha").await.unwrap(), Some(seat("alpha", "bob", second)), "nothing was touched");
}

/// A purge is told to nobody, which is why a resume leaves a marker; and sweeping that marker later is told to nobody either.
pub async fn a_purge_is_told_to_nobody<S: Store>(t: Fixture<S>) {
    let (p, b) = (pauses(&t).await, bucket(&t).await);
    let alpha = paused(&p, "alpha", "ada").await;
    let mut follow = p.follow();
    assert_eq!(all(&t, &mut follow).await, [seat("alpha", "ada", alpha)]);
    assert_eq!(b.purge(&key("alpha"), alpha).await.unwrap(), 1);
    let beta = paused(&p, "beta", "bob").await;
    assert_eq!(news(&t, &mut follow).await, News::Changed(key("beta"), Some(seat("beta", "bob", beta))));
    resumed(&p, "beta", beta).await;
    assert_eq!(news(&t, &mut follow).await, News::Changed(key("beta"), None));
    let marker = b.get(&key("beta")).await.unwrap().expect("a marker");
    assert_eq!(b.purge(&key("beta"), marker.revision).await.unwrap(), 1);
    let gamma = paused(&p, "gamma", "bob").await;
    assert_eq!(news(&t, &mut follow).await, News::Changed(key("gamma"), Some(seat("gamma", "bob", gamma))));
    assert_eq!(
        all(&t, &mut p.follow()).await,
        [seat("gamma", "bob", gamma)],
        "and whoever begins now knows of neither"
    );
}
