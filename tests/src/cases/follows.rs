//! Followed threads.

use std::time::Duration;

use coordproto::answer::Cause;
use coordproto::record::follow::Thread;
use coordproto::slot::FOLLOWS;
use engine::slots::follows::{FailsClosed, Following, Follows, Unfollow};
use engine::store::counting::Counting;
use engine::store::faulty::{Call, Fault, Faulty, Verb};
use engine::store::{Bucket, Store};
use futures_util::future::{join, join_all};

use crate::Fixture;
use crate::rows::{bucket, faulty, may_land, refused, settled, stands, stored, unasked, unknown, unreadable};

const THREAD: Thread<'_> = Thread { backend: "slack", handle: "alpha", channel: "C1", thread: "17.5" };

const KEY: &str = "slack.alpha.C1.17=2E5";

async fn follows<S: Store, T: Store>(t: &Fixture<T>, store: &S) -> Follows<S> {
    Follows::open(store, &t.settings()).await.expect("the bucket opens")
}

async fn following<S: Store>(follows: &Follows<S>, thread: &Thread<'_>) -> bool {
    follows.following(thread).await.expect("a definite answer") == Following::Yes
}

async fn unfollow<S: Store>(follows: &Follows<S>, thread: &Thread<'_>) -> bool {
    follows.unfollow(thread).await.expect("a definite answer") == Unfollow::Removed
}

/// A thread is followed from the follow to the unfollow, and every part of its identity tells it from others.
pub async fn a_thread_is_followed_until_it_is_not<S: Store>(t: Fixture<S>) {
    let f = follows(&t, &t.store).await;
    assert!(!following(&f, &THREAD).await);
    assert!(!unfollow(&f, &THREAD).await);
    f.follow(&THREAD).await.unwrap();
    assert!(following(&f, &THREAD).await);
    for other in [
        Thread { backend: "mattermost", ..THREAD },
        Thread { handle: "beta", ..THREAD },
        Thread { channel: "C2", ..THREAD },
        Thread { thread: "17", ..THREAD },
        Thread { handle: "alpha.C1", channel: "17.5", ..THREAD },
    ] {
        assert!(!following(&f, &other).await, "{other:?}");
        assert!(!unfollow(&f, &other).await, "{other:?}");
    }
    assert!(unfollow(&f, &THREAD).await);
    assert!(!following(&f, &THREAD).await);
    assert!(!unfollow(&f, &THREAD).await);
    f.follow(&THREAD).await.unwrap();
    assert!(following(&f, &THREAD).await, "and again");
}

/// Every follow is written anew, so that the age is counted from the last.
pub async fn a_follow_restarts_its_age<S: Store>(t: Fixture<S>) {
    let (f, b) = (follows(&t, &t.store).await, bucket(&t, &FOLLOWS).await);
    assert_eq!(b.age(), Some(Duration::from_secs(90 * 24 * 60 * 60)));
    let mut newest = 0;
    for _ in 0..3 {
        f.follow(&THREAD).await.unwrap();
        let (revision, _) = stands(&b, KEY).await.expect("it is followed");
        assert!(revision > newest, "{revision} after {newest}");
        newest = revision;
    }
}

/// Of many who unfollow at once exactly one is told that it did.
pub async fn of_many_who_unfollow_one_removes_it<S: Store>(t: Fixture<S>) {
    let f = follows(&t, &t.store).await;
    for round in 0..5 {
        f.follow(&THREAD).await.unwrap();
        let told = join_all((0..16).map(|_| unfollow(&f, &THREAD))).await;
        assert_eq!(told.into_iter().filter(|told| *told).count(), 1, "round {round}");
        assert!(!following(&f, &THREAD).await, "round {round}");
    }
}

/// Follows beside unfollows: there are never more unfollows that removed something than there were follows, and the last one
/// on its own has the last word.
pub async fn a_follow_beside_an_unfollow_loses_neither<S: Store>(t: Fixture<S>) {
    let f = follows(&t, &t.store).await;
    for round in 0..10 {
        f.follow(&THREAD).await.unwrap();
        let (followed, removed) = join(f.follow(&THREAD), unfollow(&f, &THREAD)).await;
        followed.unwrap();
        assert!(removed, "round {round}: there was one all the time");
        let left = following(&f, &THREAD).await;
        assert_eq!(unfollow(&f, &THREAD).await, left, "round {round}");
        assert!(!following(&f, &THREAD).await, "round {round}");
    }
}

/// An incomplete identity is refused before anything is written, and nobody follows it.
pub async fn an_incomplete_thread_is_refused_and_not_followed<S: Store>(t: Fixture<S>) {
    let store = Counting::new(t.store.clone());
    let f = follows(&t, &store).await;
    store.take();
    let long = "a".repeat(2000);
    for (what, thread) in [
        ("backend", Thread { backend: "", ..THREAD }),
        ("handle", Thread { handle: "", ..THREAD }),
        ("channel", Thread { channel: "", ..THREAD }),
        ("thread", Thread { thread: "", ..THREAD }),
        ("thread", Thread { thread: &long, ..THREAD }),
    ] {
        assert_eq!(refused(f.follow(&thread).await), what);
        assert_eq!(refused(f.unfollow(&thread).await), what);
        assert_eq!(f.following(&thread).await.unwrap(), Following::No, "{what}");
    }
    unasked(&store);
}

/// Without an answer nothing is said of a thread.
pub async fn without_an_answer_nothing_is_said_of_a_follow<S: Store>(t: Fixture<S>) {
    let f = follows(&t, &t.store).await;
    let other = Thread { thread: "18", ..THREAD };
    for (fault, landed) in [(Fault::DropRequest, false), (Fault::DropReply, true)] {
        f.follow(&THREAD).await.unwrap();
        let lossy = follows(&t, &faulty(&t, fault)).await;
        may_land(lossy.follow(&other).await);
        settled(lossy.following(&THREAD).await);
        settled(lossy.unfollow(&THREAD).await);
        assert_eq!(following(&f, &other).await, landed, "{fault:?}");
        let writes = Faulty::new(t.store.clone(), t.env.clone(), move |call: &Call<'_>| match call.verb {
            Verb::Put => fault,
            _ => Fault::None,
        });
        may_land(follows(&t, &writes).await.unfollow(&THREAD).await);
        assert_eq!(following(&f, &THREAD).await, !landed, "{fault:?}");
    }
    let unread = follows(&t, &unreadable(&t)).await;
    unread.follow(&THREAD).await.unwrap();
    settled(unread.following(&THREAD).await);
    assert_eq!(unread.following(&THREAD).await.fails_closed(), Following::No, "nobody can say that it is followed");
    assert_eq!(f.following(&THREAD).await.fails_closed(), Following::Yes);
}

/// A member that is behind removes nothing, and is believed in nothing that was written over.
pub async fn the_past_unfollows_nothing<S: Store>(t: Fixture<S>) {
    let f = follows(&t, &t.store).await;
    let behind = faulty(&t, Fault::None);
    let past = follows(&t, &behind).await;
    f.follow(&THREAD).await.unwrap();
    assert!(following(&past, &THREAD).await);
    f.follow(&THREAD).await.unwrap();
    assert!(following(&past, &THREAD).await);
    behind.choose(|call: &Call<'_>| if call.verb == Verb::Read { Fault::Stale } else { Fault::None });
    let told = unknown(past.unfollow(&THREAD).await);
    assert!(matches!(told.cause, Cause::Contended { .. }), "{told}");
    assert!(following(&f, &THREAD).await, "it is followed still");
}

/// A follow is its being there, whatever it says.
pub async fn a_follow_that_cannot_be_read_is_one<S: Store>(t: Fixture<S>) {
    let (f, b) = (follows(&t, &t.store).await, bucket(&t, &FOLLOWS).await);
    for value in ["garbage", r#"{"since":7}"#] {
        stored(&b, KEY, value).await;
        assert!(following(&f, &THREAD).await);
        assert!(unfollow(&f, &THREAD).await);
        assert!(!following(&f, &THREAD).await);
    }
}
