//! What a listing answers, by the leader's word and by a quorum's: all of it, once, and not from before it began.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coordproto::answer::{Cause, Landing, Unknown};
use coordproto::key::{Filter, Key};
use engine::lease::Renew;
use engine::store::counting::Counting;
use engine::store::faulty::{Fault, Faulty, Verb};
use engine::store::listing::LIST_WITHIN;
use engine::store::{Barrier, Bucket, Certified, Expect, Listing, Put, Store, Write};
use engine::tasks;
use futures_util::StreamExt;
use futures_util::stream;

use super::stores::{bucket, bucket_through, key, stored, value};
use crate::{Fixture, before_it_goes_on, class, eventually, held, terms};

/// A listing of the seats by the usual deadline.
pub(super) async fn seats<B: Bucket>(bucket: &B, certified: &Certified) -> Result<Listing, Unknown> {
    bucket.list(&class("seat").filter(), certified, bucket.env().now() + LIST_WITHIN).await
}

/// A barrier under its own key, written now.
pub(super) async fn barrier<B: Bucket>(bucket: &B) -> Barrier {
    bucket.barrier(bucket.deadline()).await.expect("nothing is failing")
}

/// Both strategies, for a listing that begins now.
pub(super) async fn strategies<B: Bucket>(bucket: &B) -> [Certified; 2] {
    [Certified::Leader, Certified::Quorum(barrier(bucket).await)]
}

/// A record written now, as a barrier.
pub(super) async fn barrier_at<B: Bucket>(bucket: &B, name: &str) -> Barrier {
    let sent = bucket.env().now();
    let revision = stored(bucket, name, value("barrier"), Expect::Any).await;
    Barrier { bucket: bucket.name().into(), key: key(name), revision, sent }
}

/// The keys of a listing, in its order.
pub(super) fn names(listing: &Listing) -> Vec<&str> {
    listing.entries.iter().map(|(key, _)| key.as_str()).collect()
}

/// The names of that many seats, in the order of their keys.
pub(super) fn seat_names(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("seat:s{i:04}")).collect()
}

/// Writes these seats, many at once; answers their revisions.
pub(super) async fn fill<B: Bucket>(bucket: &B, seats: &[String]) -> Vec<u64> {
    let writes: Vec<_> = seats.iter().map(|name| stored(bucket, name, value("v"), Expect::Any)).collect();
    stream::iter(writes).buffered(256).collect().await
}

/// The keys of these seats, and their revisions.
fn standing(seats: &[String], revisions: &[u64]) -> Vec<(Key, u64)> {
    seats.iter().map(|name| key(name)).zip(revisions.iter().copied()).collect()
}

fn revisions(listing: &Listing) -> Vec<(Key, u64)> {
    listing.entries.iter().map(|(key, version)| (key.clone(), version.revision)).collect()
}

/// Expects that nothing is listed by a barrier whose record is gone. Another member may have it a moment longer; what it proves
/// by it is true.
async fn refused<S: Store, B: Bucket>(t: &Fixture<S>, b: &B, gone: &Barrier) -> Unknown {
    let quorum = Certified::Quorum(gone.clone());
    eventually(&t.env, "no member proves anything by it", || async {
        match seats(b, &quorum).await {
            Ok(listing) => assert!(t.lags(), "{listing:?}"),
            Err(refused) if refused.cause == (Cause::Stale { answered: 0, known: gone.revision }) => {
                return Some(refused);
            }
            // Not on a machine that answers.
            Err(refused) => assert!(!t.leaps && refused.cause == Cause::Timeout, "{refused}"),
        }
        None
    })
    .await
}

/// Five keys, three of them rewritten all the time: each is in every listing, once; and what a quorum proved is no older than
/// what was acknowledged before its barrier was sent.
pub async fn a_listing_under_rewrites_is_never_short_and_never_old<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, None).await;
    let seats_of_five = seat_names(5);
    let first = fill(&b, &seats_of_five).await;
    let acked: Arc<Vec<AtomicU64>> = Arc::new(first.into_iter().map(AtomicU64::new).collect());
    let rewriting: Vec<_> = (0..3)
        .map(|i| {
            let (b, acked, name) = (b.clone(), acked.clone(), seats_of_five[i].clone());
            tasks::spawn(async move {
                loop {
                    let revision = stored(&b, &name, value("v"), Expect::Any).await;
                    acked[i].store(revision, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let mut unknown = [0; 3];
    for round in 0..900 {
        let known: Vec<u64> = acked.iter().map(|revision| revision.load(Ordering::SeqCst)).collect();
        let certified = match round % 3 {
            0 => Certified::Leader,
            1 => Certified::Quorum(barrier(&b).await),
            _ => Certified::Quorum(barrier_at(&b, &seats_of_five[4]).await),
        };
        let listing = match seats(&b, &certified).await {
            Ok(listing) => listing,
            // Where members fall behind the writes, all that are asked may be behind the barrier.
            Err(Unknown { cause: Cause::Stale { .. }, .. }) if certified != Certified::Leader && t.replicas > 1 => {
                unknown[round % 3] += 1;
                continue;
            }
            Err(unknown) => panic!("nothing is failing: {unknown}"),
        };
        assert_eq!(names(&listing), ["seat.s0000", "seat.s0001", "seat.s0002", "seat.s0003", "seat.s0004"], "{round}");
        if let Certified::Quorum(barrier) = &certified {
            for ((key, version), known) in listing.entries.iter().zip(known) {
                assert!(version.revision >= known, "round {round}: {key} at {}, {known} is known", version.revision);
                assert!(*key != barrier.key || version.revision == barrier.revision);
            }
        }
    }
    drop(rewriting);
    println!("unknown of 300 each, by the leader, by a barrier, by a record: {unknown:?}");
    assert!(unknown[0] == 0 && unknown.iter().all(|unknown| *unknown < 150), "most are answered: {unknown:?}");
}

/// Classes that one answer carries and classes that it takes several for, with the barrier among the records and beside them.
pub async fn a_class_of_any_size_is_listed_whole<S: Store>(t: Fixture<S>) {
    let counting = Counting::new(t.store.clone());
    let faulty = Faulty::new(counting.clone(), t.env.clone(), |_| Fault::None);
    let b = bucket_through(&t, &faulty, None).await;
    let all = seat_names(2_500);
    let mut revisions_of: Vec<u64> = Vec::new();
    for n in [1, 1_023, 1_024, 1_025, 2_500] {
        revisions_of.extend(fill(&b, &all[revisions_of.len()..n]).await);
        let inside = barrier_at(&b, &all[n - 1]).await;
        revisions_of[n - 1] = inside.revision;
        let want = standing(&all[..n], &revisions_of);
        let beside = barrier(&b).await;
        // One answer carries 1,024 records, the barrier among them.
        for (barrier, one_answer) in [(inside, n <= 1_024), (beside, n < 1_024)] {
            counting.take();
            let listing = seats(&b, &Certified::Quorum(barrier)).await.unwrap();
            assert_eq!(revisions(&listing), want, "{n}");
            let calls = counting.take();
            assert_eq!((calls.pass, calls.read, calls.put), (0, 0, 0), "{n}: {calls:?}");
            // What one answer does not carry takes several, or a drain once it is known that it is so large.
            let several = calls.drain > 0 || calls.copy > 1;
            assert!(if one_answer { calls.drain == 0 && calls.index > 0 } else { several }, "{n}: {calls:?}");
        }
        t.lists(want.clone(), || async { revisions(&seats(&b, &Certified::Leader).await.unwrap()) }).await;
        // Without a consumer to be had.
        faulty.choose(|call| match call.verb {
            Verb::Pass | Verb::Drain => Fault::DropRequest,
            _ => Fault::None,
        });
        let listing = seats(&b, &Certified::Leader).await.unwrap();
        let read: Vec<Key> = listing.entries.iter().map(|(key, _)| key.clone()).collect();
        assert_eq!(read, want.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), "{n}");
        faulty.choose(|_| Fault::None);
    }
}

/// Names so long that a request cannot carry as many of them as an answer could.
pub async fn a_class_of_the_longest_names_is_listed_whole<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, None).await;
    let all: Vec<String> = (0..1_100).map(|i| format!("seat:{i:04}{}", "x".repeat(1_000))).collect();
    let written = fill(&b, &all).await;
    for certified in strategies(&b).await {
        assert_eq!(revisions(&seats(&b, &certified).await.unwrap()), standing(&all, &written));
    }
}

/// A bucket's records of every class, without the barrier's.
pub async fn every_record_is_listed_and_no_barrier<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, None).await;
    for name in ["seat:a", "node:n1", "worker:w:1", "seat:team.lead", "seat:é"] {
        stored(&b, name, value("v"), Expect::At(0)).await;
    }
    stored(&b, "seat:gone", value("v"), Expect::At(0)).await;
    stored(&b, "seat:gone", Write::Removal, Expect::Any).await;
    let mut all: Vec<Key> = ["seat:a", "node:n1", "worker:w:1", "seat:team.lead", "seat:é"].map(key).into();
    all.sort_unstable();
    for certified in strategies(&b).await {
        let every = b.list(&Filter::every(), &certified, b.deadline()).await.unwrap();
        assert_eq!(every.entries.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), all, "{certified:?}");
        let listing = seats(&b, &certified).await.unwrap();
        let of_class: Vec<_> = all.iter().map(Key::as_str).filter(|key| key.starts_with("seat.")).collect();
        assert_eq!(names(&listing), of_class, "{certified:?}");
    }
    let index = b.index(&Filter::every(), b.deadline()).await.unwrap();
    assert!(index.keys().all(|key| key != Key::barrier()));
}

/// A class without a live key is empty, for certain: the barrier tells it from an answer that knows nothing.
pub async fn an_empty_class_is_an_answer<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, None).await;
    assert_eq!(seats(&b, &Certified::Leader).await.unwrap().entries, [], "nothing was ever written");
    for certified in strategies(&b).await {
        assert_eq!(seats(&b, &certified).await.unwrap().entries, []);
    }
    stored(&b, "seat:a", value("v"), Expect::At(0)).await;
    stored(&b, "seat:a", Write::Removal, Expect::Any).await;
    stored(&b, "node:a", value("v"), Expect::At(0)).await;
    for certified in strategies(&b).await {
        assert_eq!(seats(&b, &certified).await.unwrap().entries, [], "a marker and another class's key");
    }
}

/// A barrier holds however often it was written over, and as a marker; once its record is gone there is no proof, and no
/// listing.
pub async fn a_barrier_proves_as_long_as_its_record_stands<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, None).await;
    for n in [3, 1_100] {
        let all = seat_names(n);
        for name in [all[0].as_str(), "node:n1"] {
            fill(&b, &all).await;
            let barrier = barrier_at(&b, name).await;
            let quorum = Certified::Quorum(barrier.clone());
            assert_eq!(seats(&b, &quorum).await.unwrap().entries.len(), n);
            let over = barrier_at(&b, name).await;
            assert_eq!(seats(&b, &quorum).await.unwrap().entries.len(), n);
            let removed = stored(&b, name, Write::Removal, Expect::At(over.revision)).await;
            let rest = n - usize::from(name == all[0]);
            // A marker is a record. A member that has not come to it, or to the purge, proves by what it has.
            t.lists(rest, || async { seats(&b, &quorum).await.unwrap().entries.len() }).await;
            assert_eq!(b.purge(&key(name), removed).await.unwrap(), 1);
            let gone = refused(&t, &b, &barrier).await;
            assert_eq!((gone.op, gone.landing), ("list", Landing::Settled));
            assert_eq!(*gone.resource, *format!("{} seat.>", b.name()));
        }
    }
}

/// The same of a barrier that has aged away, and with it all that it was to prove.
pub async fn a_barrier_that_has_aged_away_proves_nothing<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, Some(Duration::from_millis(1_200))).await;
    stored(&b, "seat:a", value("v"), Expect::At(0)).await;
    let old = barrier(&b).await;
    eventually(&t.env, "the barrier is gone", || async {
        let copy = b.copy(&[Key::barrier().as_str()], b.deadline()).await.unwrap();
        (copy == engine::store::Copy::Whole(engine::store::Held::default())).then_some(())
    })
    .await;
    refused(&t, &b, &old).await;
    // The record was written before the old barrier, and another member may keep it a moment longer.
    t.lists(vec![], || async { seats(&b, &Certified::Quorum(barrier(&b).await)).await.unwrap().entries }).await;
}

/// A barrier among the records is in every one of the answers that a large class takes. Written over or removed between two
/// of them, it is listed once, as the later of them has it.
pub async fn a_barrier_that_moves_meanwhile_is_listed_as_it_was_read_last<S: Store>(t: Fixture<S>) {
    let faulty = Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::None);
    let direct = bucket(&t, None).await;
    let b = bucket_through(&t, &faulty, None).await;
    let all = seat_names(4_200);
    fill(&direct, &all).await;
    for (n, then) in [value("later"), Write::Removal].into_iter().enumerate() {
        let at = &all[1_500 + n];
        eventually(&t.env, "a listing whose last part has what was written", || async {
            let before = barrier_at(&direct, at).await;
            let moved = Arc::new(AtomicU64::new(0));
            let (below, write, stands, moves) = (direct.clone(), then.clone(), before.clone(), moved.clone());
            let (mut asked, at) = (HashSet::new(), at.clone());
            // All at once, then five parts, of which four are asked for at a time: before the fifth is, another was answered.
            faulty.choose(move |call| {
                match call.verb {
                    Verb::Drain => return Fault::DropRequest,
                    Verb::Copy => asked.insert(call.about.to_owned()),
                    _ => return Fault::None,
                };
                if asked.len() == 6 && moves.load(Ordering::Relaxed) == 0 {
                    let after = before_it_goes_on(stored(&below, &at, write.clone(), Expect::At(stands.revision)));
                    moves.store(after, Ordering::Relaxed);
                }
                Fault::None
            });
            // So much of it takes its time on a busy machine.
            let (quorum, by) = (Certified::Quorum(before.clone()), t.env.now() + LIST_WITHIN * 6);
            let listing = b.list(&class("seat").filter(), &quorum, by).await.unwrap();
            faulty.choose(|_| Fault::None);
            let after = moved.load(Ordering::Relaxed);
            assert_ne!(after, 0, "it takes five parts");
            let found: Vec<u64> =
                listing.entries.iter().filter(|(key, _)| *key == before.key).map(|(_, v)| v.revision).collect();
            // The fifth was answered by a member that had not come to it.
            if t.lags() && found == [before.revision] {
                return None;
            }
            let want = if then == Write::Removal { vec![] } else { vec![after] };
            assert_eq!(found, want, "{then:?}, {} before", before.revision);
            assert_eq!(listing.entries.len(), 4_200 - n);
            Some(())
        })
        .await;
    }
}

/// A holder's last renewal carries a listing of the leases that costs it no write.
pub async fn a_renewal_carries_a_listing_of_the_leases<S: Store>(t: Fixture<S>) {
    let counting = Counting::new(t.store.clone());
    let leases = t.leases_on(&counting, t.config()).await;
    let mut node = held(&leases, &terms(&leases, "node:n1", "n1:1")).await;
    let seat = held(&leases, &terms(&leases, "seat:a", "n1:1")).await;
    let duty = held(&leases, &terms(&leases, "worker:a", "n1:1")).await;
    // The seat was claimed after the node's last good write, and is proved by the one after that.
    assert_eq!(leases.renew(&mut node).await.unwrap(), Renew::Extended);
    counting.take();
    for (barrier, class_name, name) in [
        (leases.barrier(&node), "seat", "seat:a"),
        (leases.barrier(&seat), "node", "node:n1"),
        (leases.barrier(&duty), "worker", "worker:a"),
    ] {
        let views = leases.list(&class(class_name), &Certified::Quorum(barrier)).await.unwrap();
        assert_eq!(views.iter().map(|view| view.resource.name()).collect::<Vec<_>>(), [name]);
    }
    let calls = counting.take();
    assert_eq!((calls.put, calls.pass, calls.read, calls.standing), (0, 0, 0, 0), "{calls:?}");
    // A lease of another bucket proves nothing about this one, and the listing pays for a barrier that does.
    let views = leases.list(&class("worker"), &Certified::Quorum(leases.barrier(&node))).await.unwrap();
    assert_eq!(views.iter().map(|view| view.resource.name()).collect::<Vec<_>>(), ["worker:a"]);
    let barriers = counting.take().put;
    // One whose acknowledgement takes long is written again.
    assert!(if t.leaps { barriers == 1 } else { barriers >= 1 }, "{barriers}");
}

/// What another writes at once with a listing is not what a listing is refused for.
pub async fn a_barrier_is_written_whatever_stands_there<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, None).await;
    let (one, other) = futures_util::future::join(barrier(&b), barrier(&b)).await;
    assert_ne!(one.revision, other.revision);
    for barrier in [one, other] {
        assert_eq!(seats(&b, &Certified::Quorum(barrier)).await.unwrap().entries, []);
    }
    let seat = b.put(&key("seat:a"), value("v"), Expect::At(0)).await.unwrap();
    assert!(matches!(seat, Put::Stored(_)));
}
