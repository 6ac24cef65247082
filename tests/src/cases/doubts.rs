//! Listings misled: passes that end early, fall silent, stutter or break, members that are behind, indexes and reads without
//! an answer. What comes of it is the whole listing or unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use coordproto::answer::{Cause, Landing, Unknown};
use coordproto::listing::Version;
use engine::lease::Config;
use engine::store::faulty::{Call, Fault, Faulty, Verb};
use engine::store::listing::LIST_WITHIN;
use engine::store::{Bucket, Certified, Copy, Expect, Store, Write};
use futures_util::future::{join, join_all};
use tokio::sync::watch as signal;

use super::listings::{barrier, fill, names, seat_names, seats, strategies};
use super::stores::{bucket, bucket_through, key, stored, value};
use crate::{Fixture, before_it_goes_on, class, eventually, watch};

/// How long after its deadline a listing is over at the latest: a moment for the last question to say why it has no answer.
const LAST_WORD: Duration = Duration::from_millis(20);

/// The case's bucket through a store that does as it is told, and past it.
async fn pair<S: Store>(t: &Fixture<S>, age: Option<Duration>) -> (Faulty<S>, Faulty<S::Bucket>, S::Bucket) {
    let faulty = Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::None);
    let through = bucket_through(t, &faulty, age).await;
    (faulty, through, bucket(t, age).await)
}

/// What else there is: nothing, but that no drain is answered. It would do without what these cases are about.
fn otherwise(call: &Call<'_>) -> Fault {
    if call.verb == Verb::Drain { Fault::DropRequest } else { Fault::None }
}

/// A fault of one verb, every time.
fn every(verb: Verb, fault: Fault) -> impl FnMut(&Call<'_>) -> Fault + Send + 'static {
    move |call| if call.verb == verb { fault } else { otherwise(call) }
}

/// A fault of one verb, that often.
fn first(times: usize, verb: Verb, fault: Fault) -> impl FnMut(&Call<'_>) -> Fault + Send + 'static {
    let mut met = 0;
    move |call| {
        met += usize::from(call.verb == verb);
        if call.verb == verb && met <= times { fault } else { otherwise(call) }
    }
}

/// Which listing it was, and that nothing of it may still happen.
fn told(unknown: &Unknown, bucket: &impl Bucket) {
    assert_eq!((unknown.op, unknown.landing), ("list", Landing::Settled), "{unknown}");
    assert_eq!(*unknown.resource, *format!("{} seat.>", bucket.name()), "{unknown}");
}

/// Whatever the pass does, the listing is whole; and a quorum's has no pass to be misled by.
pub async fn a_pass_that_goes_wrong_costs_no_key<S: Store>(t: Fixture<S>) {
    let (faulty, b, _) = pair(&t, None).await;
    let all = seat_names(6);
    let mut want = fill(&b, &all).await;
    // A marker is delivered as well, and is no key.
    stored(&b, &all[5], Write::Removal, Expect::Any).await;
    want.pop();
    let moment = Duration::from_millis(3);
    for fault in [
        Fault::None,
        Fault::Split(0),
        Fault::Split(1),
        Fault::Split(5),
        Fault::Split(6),
        Fault::Broken(0),
        Fault::Broken(3),
        Fault::Replay,
        Fault::Slow(moment),
        Fault::Delay(moment),
        Fault::DropRequest,
        Fault::DropReply,
    ] {
        for certified in strategies(&b).await {
            faulty.choose(every(Verb::Pass, fault));
            let revisions = || async {
                let listing = seats(&b, &certified).await.unwrap();
                (fault, listing.entries.iter().map(|(_, version)| version.revision).collect::<Vec<u64>>())
            };
            t.lists((fault, want.clone()), revisions).await;
            faulty.choose(|_| Fault::None);
        }
    }
}

/// A member that catches up holds the barrier, or has come as far as is asked, and lacks what is live. Whatever a copy lacks is
/// asked for again, and where no copy ever has it, the listing is unknown.
pub async fn what_a_copy_lacks_is_nobodys_word<S: Store>(t: Fixture<S>) {
    let (faulty, b, direct) = pair(&t, None).await;
    let all = seat_names(1_100);
    let mut revisions: Vec<u64> = Vec::new();
    for n in [12, 1_100] {
        revisions.extend(fill(&direct, &all[revisions.len()..n]).await);
        for (times, held) in [(1, 0), (2, 0), (2, 5), (4, 5)] {
            let quorum = Certified::Quorum(barrier(&direct).await);
            faulty.choose(first(times, Verb::Copy, Fault::Split(held)));
            let listing = seats(&b, &quorum).await.unwrap();
            let listed: Vec<u64> = listing.entries.iter().map(|(_, version)| version.revision).collect();
            assert_eq!(listed, revisions, "{n} keys, {times} copies with {held}");
        }
        let quorum = Certified::Quorum(barrier(&direct).await);
        faulty.choose(every(Verb::Copy, Fault::Split(0)));
        let short = seats(&b, &quorum).await.unwrap_err();
        assert!(
            matches!(&short.cause, Cause::Garbage(what) if what.ends_with("that an index names and no copy holds"))
        );
        told(&short, &b);
    }
    // So it is of keys that are asked for by name, of which one is gone.
    let keys: Vec<_> = all[..12].iter().map(|name| key(name)).collect();
    assert_eq!(direct.purge(&keys[3], revisions[3]).await.unwrap(), 1);
    let (seats, seq) = (class("seat").filter(), revisions[1_099]);
    faulty.choose(first(2, Verb::Copy, Fault::Split(0)));
    let mut found = b.since(&seats, &keys, seq, b.deadline()).await.unwrap();
    found.sort_unstable_by_key(|(_, version)| version.revision);
    let found: Vec<u64> = found.into_iter().map(|(_, version)| version.revision).collect();
    assert_eq!(found, [&revisions[..3], &revisions[4..12]].concat());
    faulty.choose(every(Verb::Copy, Fault::Split(0)));
    let short = b.since(&seats, &keys, seq, b.deadline()).await.unwrap_err();
    assert!(matches!(short.cause, Cause::Garbage(_)), "{short}");
}

/// Three keys are gone, and nobody's word is taken for it. One of them is known to be, and comes back while it is still asked
/// about another: that is news, and whoever watches is told.
pub async fn what_comes_back_while_another_is_looked_for_is_told<S: Store>(t: Fixture<S>) {
    let (faulty, b, direct) = pair(&t, None).await;
    let names = ["seat:a", "seat:b", "seat:c"];
    for write in [value("v"), Write::Removal] {
        for name in names {
            stored(&direct, name, write.clone(), Expect::Any).await;
        }
    }
    let (below, mut indexes, mut copies) = (direct, 0, 0);
    faulty.choose(move |call| {
        indexes += usize::from(call.verb == Verb::Index);
        copies += usize::from(call.verb == Verb::Copy);
        match call.verb {
            // The newest alone is found to be gone. Of the others one is erased before they are looked for in an index.
            Verb::Copy if copies == 1 => return Fault::Split(0),
            Verb::Index if indexes == 2 => drop(before_it_goes_on(below.purge(&key(names[0]), u64::MAX - 1))),
            // The other is once the first is back.
            Verb::Copy if copies == 2 => before_it_goes_on(async {
                stored(&below, names[0], value("again"), Expect::Any).await;
                drop(below.purge(&key(names[1]), u64::MAX - 1).await);
            }),
            _ => {}
        }
        otherwise(call)
    });
    let mut watch = watch(&b, "seat").await.unwrap();
    let listed = watch.listing.entries.iter().any(|(found, _)| *found == key(names[0]));
    let told = async {
        loop {
            let (found, version) = watch.changes.next().await.expect("it goes on");
            if found == key(names[0]) && version.value.is_some() {
                return;
            }
        }
    };
    let by = t.env.now() + LIST_WITHIN;
    assert!(listed || t.env.within(by, told).await.is_ok(), "nobody is told of a live key");
}

/// A pass that the broker has stopped feeding is ended five seconds after the later of the index's answer and the last
/// delivery, and the rest is read.
pub async fn a_silent_pass_is_ended_and_the_rest_is_read<S: Store>(t: Fixture<S>) {
    let s = Duration::from_secs(1);
    let all = seat_names(5);
    let revisions = fill(&bucket(&t, None).await, &all).await;
    // How late the index is, how long each delivery takes, how many there are before the silence, and which of it is last.
    let passes = [
        (Fault::None, Fault::None, 0, Duration::ZERO),
        (Fault::None, Fault::None, 3, Duration::ZERO),
        (Fault::Delay(s * 3), Fault::None, 0, s * 3),
        (Fault::Delay(s * 3), Fault::None, 3, s * 3),
        (Fault::Delay(s * 3), Fault::Slow(s * 2), 1, s * 3),
        (Fault::None, Fault::Slow(s * 4), 1, s * 4),
        (Fault::None, Fault::Slow(s * 2), 2, s * 4),
    ];
    let listed = passes.map(async |(index, each, delivered, last)| {
        let silent = Faulty::new(t.store.clone(), t.env.clone(), every(Verb::Pass, Fault::Silent(delivered)));
        let misled = move |call: &Call<'_>| match call.verb {
            Verb::Index => index,
            Verb::Pass => each,
            // However long the consumer takes, no copy takes its place.
            Verb::Copy => Fault::DropRequest,
            _ => Fault::None,
        };
        let b = bucket_through(&t, &Faulty::new(silent, t.env.clone(), misled), None).await;
        let began = t.env.now();
        let listing = b.list(&class("seat").filter(), &Certified::Leader, began + s * 60).await.unwrap();
        let took = t.env.now().since(began);
        let listed: Vec<u64> = listing.entries.iter().map(|(_, version)| version.revision).collect();
        assert_eq!(listed, revisions, "{index:?} {each:?} {delivered}");
        let quiet = last + s * 5;
        // And not at the deadline, at which there would be no listing.
        let when = if t.leaps { took == quiet } else { took >= quiet };
        assert!(when, "{index:?} {each:?} {delivered}: {took:?}, and {last:?} was the last of it");
    });
    join_all(listed).await;
}

/// Records that age out before the pass comes to them are delivered by nobody. The pass ends all the same, and they are not
/// missed: they were not live throughout.
pub async fn a_pass_whose_records_age_out_is_ended<S: Store>(t: Fixture<S>) {
    let age = Duration::from_millis(1_500);
    let (silent, aged_silently, direct) = pair(&t, Some(age)).await;
    let (slow, aged_slowly, _) = pair(&t, Some(age)).await;
    fill(&direct, &seat_names(3)).await;
    // However long a consumer takes, no copy takes its place: one is asked only about what is read and gone.
    let by_its_pass = |fault: Fault| {
        let mut read = false;
        move |call: &Call<'_>| {
            read |= call.verb == Verb::Read;
            match call.verb {
                Verb::Pass => fault,
                Verb::Copy if !read => Fault::DropRequest,
                _ => Fault::None,
            }
        }
    };
    silent.choose(by_its_pass(Fault::Silent(0)));
    // In the memory twin they end before the first delivery is looked for, and the pass waits for what never comes.
    slow.choose(by_its_pass(Fault::Slow(age + age / 2)));
    let (one, other) = join(seats(&aged_silently, &Certified::Leader), seats(&aged_slowly, &Certified::Leader)).await;
    assert_eq!(one.unwrap().entries, [], "the leader says that they have gone");
    assert!(matches!(other.unwrap().entries.len(), 0 | 3), "gone, or delivered while they stood");
    // A barrier ages too, and a member may keep a moment longer what has ended.
    let proved = || async { Some(seats(&direct, &Certified::Quorum(barrier(&direct).await)).await.ok()?.entries) };
    t.lists(Some(vec![]), proved).await;
}

/// A pass or a copy by a member that is behind a re-creation says that the key was removed. The listing has the key.
pub async fn a_marker_from_the_past_hides_no_key<S: Store>(t: Fixture<S>) {
    let (faulty, b, direct) = pair(&t, None).await;
    stored(&direct, "seat:kept", value("1"), Expect::At(0)).await;
    stored(&direct, "seat:a", value("1"), Expect::At(0)).await;
    stored(&direct, "seat:a", Write::Removal, Expect::Any).await;
    // From here on the past is known: read key by key, and as copies.
    faulty.choose(every(Verb::Pass, Fault::DropRequest));
    assert_eq!(names(&seats(&b, &Certified::Leader).await.unwrap()), ["seat.kept"]);
    for name in ["seat:a", "seat:kept"] {
        b.get(&key(name)).await.unwrap();
    }
    let again = stored(&direct, "seat:a", value("2"), Expect::Any).await;
    let later = stored(&direct, "seat:kept", value("2"), Expect::Any).await;
    for name in ["seat:a", "seat:kept"] {
        b.get(&key(name)).await.unwrap();
    }
    let known = strategies(&b).await;
    seats(&b, &known[1]).await.unwrap();
    let stale_pass = |call: &Call<'_>| if call.verb == Verb::Pass { Fault::Stale } else { Fault::None };
    let stale_copies = |call: &Call<'_>| match call.verb {
        Verb::Pass => Fault::DropRequest,
        Verb::Copy => Fault::Stale,
        _ => Fault::None,
    };
    for (copies, behind) in [(false, stale_pass as fn(&Call<'_>) -> Fault), (true, stale_copies)] {
        faulty.choose(behind);
        match seats(&b, &Certified::Leader).await {
            // Copies that stand in for a pass are as late as the index, or none.
            Err(unknown) => assert!(copies && matches!(unknown.cause, Cause::Stale { .. }), "{unknown}"),
            Ok(listing) => {
                assert_eq!(names(&listing), ["seat.a", "seat.kept"]);
                assert_eq!(listing.entries[0].1.revision, again, "read from the leader");
                let kept = listing.entries[1].1.revision;
                assert!(!copies && kept < later, "a value is taken as it comes, which is what a quorum mends");
            }
        }
        faulty.choose(|_| Fault::None);
        let barrier = barrier(&b).await;
        faulty.choose(behind);
        // A quorum's listing has no pass, and takes no copy from before its barrier.
        match seats(&b, &Certified::Quorum(barrier)).await {
            Ok(listing) => {
                let listed: Vec<u64> = listing.entries.iter().map(|(_, version)| version.revision).collect();
                assert_eq!((listed, copies), (vec![again, later], false));
            }
            Err(unknown) => assert!(copies && matches!(unknown.cause, Cause::Stale { .. }), "{unknown}"),
        }
    }
}

/// A consumer that does not come about is waited for half a second; copies take its place, certified by the index.
pub async fn without_a_consumer_a_listing_is_made_of_copies<S: Store>(t: Fixture<S>) {
    let (faulty, b, direct) = pair(&t, None).await;
    let all = seat_names(5);
    let written = fill(&direct, &all).await;
    for fault in [Fault::DropRequest, Fault::Delay(Duration::from_secs(60)), Fault::Broken(0)] {
        let (asked, copies) = signal::channel(0);
        let mut chosen = every(Verb::Pass, fault);
        faulty.choose(move |call| {
            asked.send_modify(|copies| *copies += usize::from(call.verb == Verb::Copy));
            chosen(call)
        });
        let listing = seats(&b, &Certified::Leader).await.unwrap();
        let listed: Vec<u64> = listing.entries.iter().map(|(_, version)| version.revision).collect();
        assert_eq!(listed.len(), written.len(), "{fault:?}");
        // A member that is behind is not the last that is asked, and a consumer that is long in coming and then lost costs two.
        let asked = *copies.borrow();
        assert!(if t.leaps { asked == 1 } else { asked >= 1 }, "{fault:?}: {asked}");
        // With no copies either there is nothing to hand over.
        faulty.choose(move |call| match call.verb {
            Verb::Pass if fault != Fault::Delay(Duration::from_secs(60)) => fault,
            Verb::Pass | Verb::Copy => Fault::DropRequest,
            _ => Fault::None,
        });
        told(&seats(&b, &Certified::Leader).await.unwrap_err(), &b);
    }
}

/// Without the index, however whole the pass or the copy was, nothing is handed over.
pub async fn without_an_index_there_is_no_listing<S: Store>(t: Fixture<S>) {
    let (faulty, b, direct) = pair(&t, None).await;
    let all = seat_names(1_100);
    for n in [3, 1_100] {
        fill(&direct, &all[..n]).await;
        for fault in [Fault::DropRequest, Fault::DropReply] {
            for certified in strategies(&direct).await {
                faulty.choose(every(Verb::Index, fault));
                let refused = seats(&b, &certified).await.unwrap_err();
                assert_eq!(refused.cause, Cause::Timeout, "{n} {certified:?}");
                told(&refused, &b);
                faulty.choose(|_| Fault::None);
            }
        }
    }
}

/// An index from before the barrier names too few keys. It is asked for again, and in the end refused.
pub async fn an_index_from_before_the_barrier_is_refused<S: Store>(t: Fixture<S>) {
    let (faulty, b, direct) = pair(&t, None).await;
    let all = seat_names(1_200);
    fill(&direct, &all[..1_100]).await;
    let past = b.index(&class("seat").filter(), b.deadline()).await.unwrap();
    fill(&direct, &all[1_100..]).await;
    let barrier = barrier(&direct).await;
    let quorum = Certified::Quorum(barrier.clone());
    faulty.choose(first(1, Verb::Index, Fault::Stale));
    assert_eq!(seats(&b, &quorum).await.unwrap().entries.len(), 1_200);
    faulty.choose(every(Verb::Index, Fault::Stale));
    let refused = seats(&b, &quorum).await.unwrap_err();
    assert_eq!(refused.cause, Cause::Stale { answered: past.last_seq, known: barrier.revision });
    told(&refused, &b);
}

/// A member that is behind the barrier is not believed: others are asked, whether one answer is enough or several are needed,
/// and when all of them are behind, the listing is unknown.
pub async fn a_member_behind_is_asked_again_and_never_believed<S: Store>(t: Fixture<S>) {
    let all = seat_names(1_100);
    for n in [3, 1_100] {
        let (faulty, b, direct) = pair(&t, None).await;
        fill(&direct, &all[..n]).await;
        let past = barrier(&direct).await;
        seats(&b, &Certified::Quorum(past.clone())).await.unwrap();
        let rewritten = fill(&direct, &all[..n]).await;
        let barrier = barrier(&direct).await;
        let quorum = Certified::Quorum(barrier.clone());
        for times in [1, 4] {
            faulty.choose(first(times, Verb::Copy, Fault::Stale));
            let listing = seats(&b, &quorum).await.unwrap();
            let listed: Vec<u64> = listing.entries.iter().map(|(_, version)| version.revision).collect();
            assert_eq!(listed, rewritten, "behind {times} times");
        }
        faulty.choose(every(Verb::Copy, Fault::Stale));
        let refused = seats(&b, &quorum).await.unwrap_err();
        assert_eq!(refused.cause, Cause::Stale { answered: past.revision, known: barrier.revision });
        told(&refused, &b);
        // By the older barrier the same copies are good: the listing begins where that does.
        let listing = seats(&b, &Certified::Quorum(past)).await.unwrap();
        assert!(listing.entries.iter().all(|(_, version)| version.revision < barrier.revision));
        assert_eq!(listing.entries.len(), n);
        faulty.choose(every(Verb::Copy, Fault::DropRequest));
        let refused = seats(&b, &quorum).await.unwrap_err();
        assert_eq!(refused.cause, Cause::Timeout);
        told(&refused, &b);
        faulty.choose(|_| Fault::None);
    }
}

/// "Nothing there", of a key that the index names, may come from somebody who is no leader any more. A copy as late as the
/// index is asked.
pub async fn what_is_named_and_not_found_is_asked_again<S: Store>(t: Fixture<S>) {
    let (faulty, b, direct) = pair(&t, None).await;
    fill(&direct, &seat_names(3)).await;
    let lost = |then: Fault, times: usize| {
        let mut reads = 0;
        move |call: &Call<'_>| match call.verb {
            Verb::Pass => Fault::Split(1),
            Verb::Read => {
                reads += 1;
                if reads > times { Fault::None } else { then }
            }
            _ => Fault::None,
        }
    };
    for times in 1..=2 {
        faulty.choose(lost(Fault::Before, times));
        assert_eq!(seats(&b, &Certified::Leader).await.unwrap().entries.len(), 3, "{times} reads");
    }
    // Whoever goes on saying so: a copy that is as late as the index knows better.
    faulty.choose(lost(Fault::Before, usize::MAX));
    assert_eq!(seats(&b, &Certified::Leader).await.unwrap().entries.len(), 3);
    faulty.choose(lost(Fault::DropRequest, 1));
    let refused = seats(&b, &Certified::Leader).await.unwrap_err();
    assert_eq!(refused.cause, Cause::Timeout);
    told(&refused, &b);
}

/// A key that goes between the index and its read has gone. One that has come back by the time it is asked about again is
/// listed.
pub async fn a_key_purged_meanwhile_is_asked_about_once_more<S: Store>(t: Fixture<S>) {
    let (faulty, b, direct) = pair(&t, None).await;
    for comes_back in [false, true] {
        eventually(&t.env, "a round in which no copy is from before the purge", || async {
            for name in ["seat:a", "seat:b"] {
                stored(&direct, name, value("v"), Expect::Any).await;
            }
            let asked = Arc::new(AtomicUsize::new(0));
            let (below, steps) = (direct.clone(), asked.clone());
            // The pass delivers nothing; the key goes before it is read, and comes back before the index is asked again.
            faulty.choose(move |call| {
                let is_step = match call.verb {
                    Verb::Pass => return Fault::Split(0),
                    Verb::Read => call.about == "seat.a",
                    Verb::Index => steps.load(Ordering::Relaxed) > 0,
                    _ => false,
                };
                if is_step {
                    match steps.fetch_add(1, Ordering::Relaxed) {
                        0 => assert_eq!(before_it_goes_on(below.purge(&key("seat:a"), u64::MAX - 1)).unwrap(), 1),
                        1 if comes_back => {
                            before_it_goes_on(stored(&below, "seat:a", value("again"), Expect::At(0)));
                        }
                        _ => {}
                    }
                }
                Fault::None
            });
            let listing = seats(&b, &Certified::Leader).await.unwrap();
            faulty.choose(|_| Fault::None);
            // One that still has it is later than the index, and needs no other.
            if t.lags() && asked.load(Ordering::Relaxed) == 1 {
                return None;
            }
            assert_eq!(names(&listing), if comes_back { vec!["seat.a", "seat.b"] } else { vec!["seat.b"] });
            Some(())
        })
        .await;
    }
}

/// A removal from before the index, of a key that was written again since, may come from somebody who is no leader any more,
/// whether the pass lost the key or delivered that same removal.
pub async fn a_removal_from_the_past_hides_no_key<S: Store>(t: Fixture<S>) {
    let (faulty, b, direct) = pair(&t, None).await;
    stored(&direct, "seat:a", value("1"), Expect::At(0)).await;
    stored(&direct, "seat:a", Write::Removal, Expect::Any).await;
    b.get(&key("seat:a")).await.unwrap();
    let again = stored(&direct, "seat:a", value("2"), Expect::Any).await;
    b.get(&key("seat:a")).await.unwrap();
    for pass in [Fault::Split(0), Fault::Stale] {
        faulty.choose(move |call| match call.verb {
            Verb::Pass => pass,
            Verb::Read => Fault::Stale,
            _ => Fault::None,
        });
        let listing = seats(&b, &Certified::Leader).await.unwrap();
        assert_eq!((names(&listing), listing.entries[0].1.revision), (vec!["seat.a"], again), "{pass:?}");
    }
}

/// An answer about a key that is older than what the pass delivered of it is no leader's.
pub async fn a_read_behind_the_pass_is_refused<S: Store>(t: Fixture<S>) {
    let (faulty, b, direct) = pair(&t, None).await;
    let first = stored(&direct, "seat:a", value("v"), Expect::At(0)).await;
    b.get(&key("seat:a")).await.unwrap();
    let marker = stored(&direct, "seat:a", Write::Removal, Expect::Any).await;
    b.get(&key("seat:a")).await.unwrap();
    faulty.choose(every(Verb::Read, Fault::Stale));
    let refused = seats(&b, &Certified::Leader).await.unwrap_err();
    assert_eq!(refused.cause, Cause::Stale { answered: first, known: marker });
    told(&refused, &b);
}

/// One deadline for all of a listing, whichever of its questions is not answered.
pub async fn a_listing_ends_at_its_deadline<S: Store>(t: Fixture<S>) {
    let (faulty, b, direct) = pair(&t, None).await;
    let all = seat_names(1_100);
    fill(&direct, &all[..3]).await;
    let within = Duration::from_secs(1);
    let long = Fault::Delay(LIST_WITHIN * 2);
    let large = [Verb::Index, Verb::Copy].map(|verb| (verb, 1_100));
    for (verb, n) in [Verb::Pass, Verb::Index, Verb::Read, Verb::Copy].map(|verb| (verb, 3)).into_iter().chain(large) {
        fill(&direct, &all[..n]).await;
        for certified in strategies(&direct).await {
            let leader = certified == Certified::Leader;
            // What each strategy asks, and cannot do without.
            let asks = match verb {
                Verb::Pass | Verb::Read => leader,
                Verb::Index => true,
                _ => !leader,
            };
            faulty.choose(move |call| match call.verb {
                asked if asked == verb && verb != Verb::Pass => long,
                Verb::Pass if verb == Verb::Pass => Fault::Silent(1),
                // What the pass leaves out is read, or there is nobody to read it from.
                Verb::Pass if verb == Verb::Read => Fault::Split(0),
                Verb::Copy if verb == Verb::Pass && leader => long,
                _ => otherwise(call),
            });
            let began = t.env.now();
            let by = began + if asks { within } else { LIST_WITHIN };
            let answer = b.list(&class("seat").filter(), &certified, by).await;
            let took = t.env.now().since(began);
            faulty.choose(|_| Fault::None);
            if !asks {
                assert_eq!(answer.unwrap().entries.len(), n, "{verb:?} {certified:?}");
                continue;
            }
            let unknown = answer.expect_err("a question without an answer");
            assert_eq!(unknown.cause, Cause::Timeout, "{verb:?} {certified:?}");
            told(&unknown, &b);
            // And not when the one that takes long is answered.
            let most = if t.leaps { within + LAST_WORD } else { LIST_WITHIN };
            assert!(took >= within && took <= most, "{verb:?} {certified:?}: {took:?}");
        }
    }
}

/// A barrier that is not acknowledged is none.
pub async fn an_unanswered_barrier_is_unknown<S: Store>(t: Fixture<S>) {
    let (faulty, b, _) = pair(&t, None).await;
    for fault in [Fault::DropRequest, Fault::DropReply, Fault::Delay(LIST_WITHIN)] {
        faulty.choose(every(Verb::Put, fault));
        let unknown = b.barrier(t.env.now() + Duration::from_millis(200)).await.unwrap_err();
        assert_eq!((unknown.op, &*unknown.resource, unknown.cause), ("barrier", b.name(), Cause::Timeout), "{fault:?}");
    }
    // One answer lost is a barrier written again: it stands on the write that was answered.
    for fault in [Fault::DropRequest, Fault::DropReply, Fault::Delay(LIST_WITHIN)] {
        let lost = AtomicBool::new(false);
        faulty.choose(move |call| match call.verb {
            Verb::Put if !lost.swap(true, Ordering::Relaxed) => fault,
            _ => Fault::None,
        });
        let began = t.env.now();
        let barrier = b.barrier(began + LIST_WITHIN).await.unwrap();
        assert!(barrier.sent > began, "{fault:?}");
        assert_eq!(b.get(&barrier.key).await.unwrap().expect("written").revision, barrier.revision);
    }
}

/// A listing of leases names their class, whatever it could not ask.
pub async fn an_unknown_listing_of_leases_names_the_class<S: Store>(t: Fixture<S>) {
    let faulty = Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::None);
    let leases = t.leases_on(&faulty, Config { ..t.config() }).await;
    let node = crate::held(&leases, &crate::terms(&leases, "node:n1", "n1:1")).await;
    for verb in [Verb::Index, Verb::Copy] {
        faulty.choose(every(verb, Fault::DropRequest));
        let certified = if verb == Verb::Index { Certified::Leader } else { Certified::Quorum(leases.barrier(&node)) };
        let unknown = leases.list(&class("seat"), &certified).await.unwrap_err();
        assert_eq!((unknown.op, &*unknown.resource, unknown.cause), ("list", "seat", Cause::Timeout));
        assert_eq!(unknown.landing, Landing::Settled);
    }
}

/// Removed and written anew, a key has a new value in every copy that a barrier proves, whichever member gives it.
pub async fn a_proved_copy_is_never_from_before_the_barrier<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, None).await;
    for round in 0..100 {
        let text = round.to_string();
        stored(&b, "seat:a", Write::Removal, Expect::Any).await;
        let again = stored(&b, "seat:a", value(&text), Expect::Any).await;
        let barrier = barrier(&b).await;
        let listing = seats(&b, &Certified::Quorum(barrier)).await.unwrap();
        let [(_, Version { revision, value, .. })] = &listing.entries[..] else { panic!("{listing:?}") };
        assert_eq!((*revision, value.as_deref()), (again, Some(text.as_bytes())));
    }
    assert!(matches!(b.copy(&["seat.>"], b.deadline()).await.unwrap(), Copy::Whole(_)));
}
