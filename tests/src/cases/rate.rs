//! The notification valve.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coordproto::answer::{Cause, Error, Landing};
use coordproto::record::rate;
use coordproto::slot::{RATE, Retention};
use engine::slots::Settings;
use engine::slots::rate::{FailsClosed, RateValve, Take};
use engine::store::counting::{Calls, Counting};
use engine::store::faulty::{Fault, Faulty, Verb};
use engine::store::{Bucket, Store};
use futures_util::future::join_all;
use jiff::Timestamp;

use crate::bench::{
    assert_refused, assert_undecodable, assert_unknown, bucket, counted, failing, failing_at, stored, unknown,
};
use crate::{Fixture, eventually};

const SECOND: Duration = Duration::from_secs(1);

/// A window after which a count is forgotten long after any case, however slow the machine.
const MINUTE: Duration = Duration::from_secs(60);

async fn valve<S: Store>(t: &Fixture<S>) -> RateValve<S> {
    valve_on(t, &t.store, MINUTE).await
}

/// A valve of a node that is configured with this window.
async fn valve_on<S: Store, T: Store>(t: &Fixture<S>, store: &T, rate_window: Duration) -> RateValve<T> {
    let retention = Retention { rate_window, ..Retention::default() };
    let settings = Settings { retention, ..t.settings() };
    RateValve::open(store, &settings).await.expect("the bucket opens")
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("an instant")
}

/// Takes that many, each of which is within the limit.
async fn taken<S: Store>(valve: &RateValve<S>, bucket: &str, limit: u32, now: &str, times: u32) {
    for nth in 0..times {
        let take = valve.allow(bucket, limit, SECOND, at(now)).await.expect("a definite answer");
        assert_eq!(take, Take::Allowed, "the {nth}th of {bucket} at {now}");
    }
}

/// As many are let through as the limit says, each for a read and a write; the next is refused for a read alone.
pub async fn a_window_lets_through_its_limit<S: Store>(t: Fixture<S>) {
    let store = Counting::new(t.store.clone());
    let v = valve_on(&t, &store, MINUTE).await;
    for nth in 0..3 {
        store.take();
        taken(&v, "alpha", 3, "2026-01-02T03:04:05.1Z", 1).await;
        assert_eq!(store.take(), Calls { read: 1, put: 1, ..Calls::default() }, "the {nth}th");
    }
    for now in ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.999999999Z"] {
        assert_eq!(v.allow("alpha", 3, SECOND, at(now)).await.unwrap(), Take::Refused, "{now}");
        assert_eq!(store.take(), Calls { read: 1, ..Calls::default() }, "{now}");
    }
    taken(&v, "beta", 3, "2026-01-02T03:04:05.1Z", 3).await;
    taken(&v, "alpha", 4, "2026-01-02T03:04:05.1Z", 1).await;
    assert_eq!(v.allow("alpha", 2, SECOND, at("2026-01-02T03:04:05.1Z")).await.unwrap(), Take::Refused, "lowered");
}

/// Each window has its own count, before the epoch too. Across an edge that is twice the limit, and within no window more.
pub async fn the_next_window_begins_anew<S: Store>(t: Fixture<S>) {
    let v = valve(&t).await;
    for (end, begin) in [
        ("2026-01-02T03:04:05.999Z", "2026-01-02T03:04:06.001Z"),
        ("1969-12-31T23:59:58.999Z", "1969-12-31T23:59:59Z"),
        ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00Z"),
    ] {
        for now in [end, begin] {
            taken(&v, end, 5, now, 5).await;
            assert_eq!(v.allow(end, 5, SECOND, at(now)).await.unwrap(), Take::Refused, "{now}");
        }
    }
}

/// Of many nodes that take at once as many are let through as the limit says, and all are told.
pub async fn takes_at_once_never_exceed_the_limit<S: Store>(t: Fixture<S>) {
    let nodes = [valve(&t).await, valve(&t).await];
    for second in 0..5 {
        let now = at(&format!("2026-01-02T03:04:0{second}.5Z"));
        let takes = (0..32).map(|i| nodes[i % 2].allow("alpha", 5, SECOND, now));
        let told = join_all(takes).await;
        let allowed = told.iter().filter(|take| matches!(take, Ok(Take::Allowed))).count();
        assert!(allowed == 5 && told.iter().all(Result::is_ok), "{allowed} at {now}: {told:?}");
    }
}

/// Nothing is let through at a limit of nothing, and none in a window of no length; the store has no say in it.
pub async fn a_valve_of_nothing_is_closed<S: Store>(t: Fixture<S>) {
    let (store, asked) = counted(&t);
    let v = valve_on(&t, &store, MINUTE).await;
    for (limit, window) in [(0, SECOND), (5, Duration::ZERO), (0, Duration::ZERO)] {
        assert_eq!(v.allow("alpha", limit, window, at("2026-01-02T03:04:05Z")).await.unwrap(), Take::Refused);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing was asked");
}

/// A bucket needs a name, and a window may be as long as a count is certain to be kept: the age in force, of whoever was first.
pub async fn what_no_valve_can_count_is_refused<S: Store>(t: Fixture<S>) {
    let first = valve_on(&t, &t.store, 10 * SECOND).await;
    let (store, asked) = counted(&t);
    let second = valve_on(&t, &store, SECOND).await;
    assert_eq!((first.longest_window(), second.longest_window()), (30 * SECOND, 30 * SECOND));
    let now = at("2026-01-02T03:04:05Z");
    let above = 30 * SECOND + Duration::from_nanos(1);
    let long = "a".repeat(5000);
    for (bucket, limit, window, what) in [
        ("", 5, SECOND, "bucket"),
        ("", 0, SECOND, "bucket"),
        ("", 5, Duration::ZERO, "bucket"),
        (&long, 5, SECOND, "bucket"),
        ("alpha", 5, above, "window"),
        ("alpha", 0, above, "window"),
        ("alpha", 5, Duration::MAX, "window"),
    ] {
        let refused = second.allow(bucket, limit, window, now).await;
        assert!(
            !matches!(&refused, Err(error) if what == "window" && !error.to_string().contains("30s")),
            "{refused:?}"
        );
        assert_refused(refused, what);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing was asked");
    assert_eq!(second.allow("alpha", 1, 30 * SECOND, now).await.unwrap(), Take::Allowed);
    assert_eq!(second.allow("alpha", 1, 30 * SECOND, at("2026-01-02T03:04:29Z")).await.unwrap(), Take::Refused);
}

/// A valve that cannot be asked is no open valve, and what it was asked may be counted.
pub async fn a_valve_without_an_answer_is_closed<S: Store>(t: Fixture<S>) {
    let v = valve(&t).await;
    let now = "2026-01-02T03:04:05Z";
    for (fault, counts) in [(Fault::DropRequest, false), (Fault::DropReply, true)] {
        let name = format!("{fault:?}");
        let f = valve_on(&t, &failing(&t, fault), MINUTE).await;
        assert_unknown(f.allow(&name, 1, SECOND, at(now)).await, "allow", Landing::Settled);
        assert_eq!(f.allow(&name, 1, SECOND, at(now)).await.fails_closed().unwrap(), Take::Refused);
        let store = failing_at(&t, Verb::Put, fault);
        let f = valve_on(&t, &store, MINUTE).await;
        assert_unknown(f.allow(&name, 1, SECOND, at(now)).await, "allow", Landing::InFlight);
        let want = if counts { Take::Refused } else { Take::Allowed };
        assert_eq!(v.allow(&name, 1, SECOND, at(now)).await.fails_closed().unwrap(), want, "{fault:?}");
    }
    assert_eq!(v.allow("", 1, SECOND, at(now)).await.fails_closed().unwrap_err().what, "bucket");
}

/// A count that cannot be read is unknown, and is not begun anew.
pub async fn an_unreadable_count_is_unknown<S: Store>(t: Fixture<S>) {
    let (v, b) = (valve(&t).await, bucket(&t, &RATE).await);
    let now = at("2026-01-02T03:04:05Z");
    let key = rate::key("alpha", now).unwrap();
    for broken in ["garbage", "{}", r#"{"taken":-1}"#] {
        stored(&b, &key, broken).await;
        assert_undecodable(v.allow("alpha", 5, SECOND, now).await, "allow", "alpha");
    }
    stored(&b, &key, r#"{"by":{"n1":4},"taken":4}"#).await;
    taken(&v, "alpha", 5, "2026-01-02T03:04:05Z", 1).await;
    assert_eq!(v.allow("alpha", 5, SECOND, now).await.unwrap(), Take::Refused);
}

/// A member that is behind says of a full window that there is room. Its word lets nothing through.
pub async fn the_past_lets_nothing_through<S: Store>(t: Fixture<S>) {
    let behind = Arc::new(AtomicUsize::new(0));
    let left = behind.clone();
    let store = Faulty::new(t.store.clone(), t.env.clone(), move |call| {
        let take = |n: usize| n.checked_sub(1);
        let stale = call.verb == Verb::Read && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if stale { Fault::Stale } else { Fault::None }
    });
    let f = valve_on(&t, &store, MINUTE).await;
    let now = "2026-01-02T03:04:05Z";
    taken(&f, "alpha", 3, now, 3).await;
    assert_eq!(f.allow("alpha", 3, SECOND, at(now)).await.unwrap(), Take::Refused);
    for reads in 1..4 {
        behind.store(reads, Ordering::Relaxed);
        assert_eq!(f.allow("alpha", 3, SECOND, at(now)).await.unwrap(), Take::Refused, "{reads}");
    }
    behind.store(usize::MAX, Ordering::Relaxed);
    let contended = unknown(f.allow("alpha", 3, SECOND, at(now)).await);
    assert!(matches!(contended.cause, Cause::Contended { .. }), "{contended}");
    assert_eq!(Err::<Take, _>(Error::from(contended)).fails_closed().unwrap(), Take::Refused);
}

/// However often a window was counted, its record goes with the bucket's age.
pub async fn a_counted_window_ages_away<S: Store>(t: Fixture<S>) {
    let v = valve_on(&t, &t.store, SECOND).await;
    let b = bucket(&t, &RATE).await;
    let now = "2026-01-02T03:04:05Z";
    taken(&v, "alpha", 9, now, 4).await;
    let key = rate::key("alpha", at(now)).unwrap();
    eventually(&t.env, "the window is forgotten", || async { b.get(&key).await.ok()?.is_none().then_some(()) }).await;
}
