//! The listing of a large class by a copy that is read to its end: the same answer as ever, and as ever where it proves nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coordproto::answer::{Cause, Unknown};
use coordproto::key::Key;
use engine::store::counting::{Calls, Counting};
use engine::store::faulty::{Fault, Faulty, Verb};
use engine::store::{Bucket, Certified, Expect, Listing, Store, Write};
use engine::tasks;
use futures_util::stream::{self, StreamExt};

use super::listings::{barrier, barrier_at, fill, seat_names, seats};
use super::stores::{bucket, bucket_through, key, stored, value};
use crate::{Fixture, class};

/// More than one batched direct get carries.
const LARGE: usize = 1_100;

/// How often a listing is made whose drain may not be believed: by a member that is a moment behind, or was.
const ROUNDS: usize = 200;

/// What a drain is followed by that came to nothing: so many listings without one.
const PAUSE: u64 = 16;

fn revisions(listing: &Listing) -> BTreeMap<Key, u64> {
    listing.entries.iter().map(|(key, version)| (key.clone(), version.revision)).collect()
}

/// Lists until a drain answered, and holds every answer against what it must be; answers what that one asked.
async fn by_a_drain<S: Store, B: Bucket>(
    t: &Fixture<S>,
    b: &B,
    asked: impl Fn() -> Calls,
    certified: &Certified,
    want: &BTreeMap<Key, u64>,
) -> Calls {
    for _ in 0..ROUNDS {
        asked();
        let listing = seats(b, certified).await.expect("nothing is failing");
        let calls = asked();
        let drained = calls.drain > 0 && calls.index + calls.copy == 0;
        assert!(listing.entries.windows(2).all(|two| two[0].0 < two[1].0), "in order, each once");
        // What is certified by the leader's index alone may have a value of a member that is behind.
        if drained || *certified != Certified::Leader || !t.lags() {
            assert_eq!(revisions(&listing), *want, "{certified:?} {calls:?}");
        }
        if drained {
            return calls;
        }
    }
    panic!("no drain in {ROUNDS} listings");
}

/// What changed between two listings is in the second: removed, created again, rewritten, new, and of another class.
pub async fn a_large_class_is_listed_again_without_an_index<S: Store>(t: Fixture<S>) {
    let counting = Counting::new(t.store.clone());
    let b = bucket_through(&t, &counting, None).await;
    let all = seat_names(LARGE);
    let mut want: BTreeMap<Key, u64> = all.iter().map(|name| key(name)).zip(fill(&b, &all).await).collect();
    counting.take();
    let first = seats(&b, &Certified::Leader).await.unwrap();
    let calls = counting.take();
    assert_eq!((calls.index, calls.drain, calls.standing), (1, 0, 0), "nobody knew how large it is: {calls:?}");
    assert_eq!(revisions(&first), want);
    for round in 0..3 {
        let leader = by_a_drain(&t, &b, || counting.take(), &Certified::Leader, &want).await;
        assert_eq!(leader, Calls { drain: 1, standing: 1, ..Calls::default() });
        let beside = Certified::Quorum(barrier(&b).await);
        let quorum = by_a_drain(&t, &b, || counting.take(), &beside, &want).await;
        assert_eq!(quorum, Calls { drain: 1, ..Calls::default() });
        let inside = barrier_at(&b, &all[7]).await;
        want.insert(inside.key.clone(), inside.revision);
        by_a_drain(&t, &b, || counting.take(), &Certified::Quorum(inside), &want).await;

        stored(&b, &format!("node:n{round}"), value("v"), Expect::Any).await;
        want.insert(key(&all[round]), stored(&b, &all[round], value("again"), Expect::Any).await);
        let (gone, back) = (&all[100 + round], &all[200 + round]);
        stored(&b, gone, Write::Removal, Expect::Any).await;
        want.remove(&key(gone));
        let marker = stored(&b, back, Write::Removal, Expect::Any).await;
        assert_eq!(b.purge(&key(back), marker).await.unwrap(), 1);
        want.insert(key(back), stored(&b, back, value("back"), Expect::At(0)).await);
        let new = format!("seat:t{round}");
        want.insert(key(&new), stored(&b, &new, value("v"), Expect::At(0)).await);
    }
    // A class of the bucket that nobody has listed is listed as a first one is.
    counting.take();
    let nodes = b.list(&class("node").filter(), &Certified::Leader, b.deadline()).await.unwrap();
    assert_eq!((nodes.entries.len(), counting.take().index), (3, 1));

    // Without the newest record there is no proof until the next write, and the same answer.
    let newest = stored(&b, "node:last", Write::Removal, Expect::Any).await;
    assert_eq!(b.purge(&key("node:last"), newest).await.unwrap(), 1);
    counting.take();
    t.lists(want, || async { revisions(&seats(&b, &Certified::Leader).await.unwrap()) }).await;
    assert!(counting.take().index > 0);
}

/// Classes that an index is no trouble for, and a large one beside as much of others.
pub async fn what_is_small_or_one_of_many_is_not_drained<S: Store>(t: Fixture<S>) {
    let counting = Counting::new(t.store.clone());
    let b = bucket_through(&t, &counting, None).await;
    let all = seat_names(1_024);
    let nodes: Vec<String> = (0..129).map(|i| format!("node:n{i}")).collect();
    for (seats_of, new) in [(1_023, &all[..1_023]), (1_024, &[&all[1_023..], &nodes].concat())] {
        fill(&b, new).await;
        for _ in 0..3 {
            counting.take();
            assert_eq!(seats(&b, &Certified::Leader).await.unwrap().entries.len(), seats_of);
            let calls = counting.take();
            assert_eq!((calls.index, calls.drain, calls.standing), (1, 0, 0), "{seats_of}: {calls:?}");
        }
    }
}

/// While all that a class has is being rewritten, every listing has all of it; and a proved one nothing from before its barrier.
pub async fn a_large_class_under_rewrites_is_never_short<S: Store>(t: Fixture<S>) {
    let counting = Counting::new(t.store.clone());
    let b = bucket_through(&t, &counting, None).await;
    let all = Arc::new(seat_names(LARGE));
    let acked: Arc<Vec<AtomicU64>> = Arc::new(fill(&b, &all).await.into_iter().map(AtomicU64::new).collect());
    let rewriting: Vec<_> = (0..4)
        .map(|writer| {
            let (b, all, acked) = (b.clone(), all.clone(), acked.clone());
            tasks::spawn(async move {
                for i in (0..LARGE).cycle().skip(writer * LARGE / 4) {
                    let revision = stored(&b, &all[i], value("v"), Expect::Any).await;
                    acked[i].fetch_max(revision, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let (mut drained, mut unknown) = (0, 0);
    for round in 0..120 {
        let known: Vec<u64> = acked.iter().map(|revision| revision.load(Ordering::SeqCst)).collect();
        let certified = match round % 2 {
            0 => Certified::Leader,
            _ => Certified::Quorum(barrier(&b).await),
        };
        counting.take();
        let listing = match seats(&b, &certified).await {
            Ok(listing) => listing,
            Err(Unknown { cause: Cause::Stale { .. }, .. }) if certified != Certified::Leader && t.replicas > 1 => {
                unknown += 1;
                continue;
            }
            Err(unknown) => panic!("nothing is failing: {unknown}"),
        };
        let calls = counting.take();
        drained += u64::from(calls.drain > 0 && calls.index + calls.copy == 0);
        let want: Vec<Key> = all.iter().map(|name| key(name)).collect();
        assert!(listing.entries.iter().map(|(key, _)| key).eq(&want), "{round}: {} of {LARGE}", listing.entries.len());
        if certified != Certified::Leader {
            for ((key, version), known) in listing.entries.iter().zip(known) {
                assert!(version.revision >= known, "{round}: {key} at {}, {known} is known", version.revision);
            }
        }
    }
    drop(rewriting);
    println!("of 120 listings, {drained} by a drain, {unknown} unknown");
    assert!(unknown < 30, "most of the 60 that a barrier proves are answered: {unknown}");
}

/// A member behind, one that cannot read what it has, and every way to come to nothing.
pub async fn a_drain_that_proves_nothing_is_followed_by_what_does<S: Store>(t: Fixture<S>) {
    let counting = Counting::new(t.store.clone());
    let faulty = Faulty::new(counting.clone(), t.env.clone(), |_| Fault::None);
    let b = bucket_through(&t, &faulty, None).await;
    let all = seat_names(LARGE);
    let want: BTreeMap<Key, u64> = all.iter().map(|name| key(name)).zip(fill(&b, &all).await).collect();
    let drains = Arc::new(AtomicU64::new(0));
    // A drain is tried where the last listing took no more than a quarter of that.
    let within = Duration::from_secs(20);
    let list = async |certified: &Certified| {
        let listed = b.list(&class("seat").filter(), certified, b.env().now() + within).await;
        assert_eq!(revisions(&listed.expect("there is time left")), want);
    };
    list(&Certified::Leader).await;
    let faults =
        [Fault::Stale, Fault::Split(10), Fault::DropRequest, Fault::DropReply, Fault::Silent(0), Fault::Broken(0)];
    for (n, fault) in faults.into_iter().enumerate() {
        let counted = drains.clone();
        faulty.choose(move |call| match call.verb {
            Verb::Drain => {
                counted.fetch_add(1, Ordering::SeqCst);
                fault
            }
            _ => Fault::None,
        });
        let certified = match n % 2 {
            0 => Certified::Leader,
            _ => Certified::Quorum(barrier(&b).await),
        };
        list(&certified).await;
        assert_eq!(drains.swap(0, Ordering::SeqCst), 1, "{fault:?}");
        for _ in 0..PAUSE {
            list(&certified).await;
        }
        assert_eq!(drains.load(Ordering::SeqCst), 0, "{fault:?}: for some time none is tried");
        faulty.choose(|_| Fault::None);
        // One that is believed, and so the next listing tries one as well.
        by_a_drain(&t, &b, || counting.take(), &Certified::Leader, &want).await;
    }
    // One that delivers everything twice is as good as one that does not.
    let counted = drains.clone();
    faulty.choose(move |call| match call.verb {
        Verb::Drain => {
            counted.fetch_add(1, Ordering::SeqCst);
            Fault::Replay
        }
        _ => Fault::None,
    });
    list(&Certified::Leader).await;
    assert_eq!(drains.load(Ordering::SeqCst), 1);
}

/// Handles to a bucket know the same, and what many of them list at once is listed whole.
pub async fn many_list_a_large_class_at_once<S: Store>(t: Fixture<S>) {
    let b = bucket(&t, None).await;
    fill(&b, &seat_names(LARGE)).await;
    assert_eq!(seats(&b, &Certified::Leader).await.unwrap().entries.len(), LARGE);
    let listed =
        stream::iter(0..32).map(async |_| seats(&b.clone(), &Certified::Leader).await.map(|l| l.entries.len()));
    let listed: Vec<_> = listed.buffer_unordered(8).collect().await;
    assert!(listed.iter().all(|listed| *listed == Ok(LARGE)), "{listed:?}");
}
