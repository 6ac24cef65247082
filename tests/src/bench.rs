//! What the cases of record families share: the bucket below a family, and stores on which calls go wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Landing, Unknown};
use coordproto::key::Key;
use coordproto::slot::Slot;
use engine::store::faulty::{Fault, Faulty, Verb};
use engine::store::{Bucket, Expect, Put, Store, Write};

use crate::Fixture;

/// The bucket of a slot, to write what this build does not write.
pub(crate) async fn bucket<S: Store>(t: &Fixture<S>, slot: &Slot) -> S::Bucket {
    t.settings().open(&t.store, slot).await.expect("the bucket opens")
}

/// A key as it is stored.
pub(crate) fn raw_key(raw: &str) -> Key {
    Key::parse(raw).expect("a good key")
}

/// Stores a value, whatever stands there.
pub(crate) async fn stored<B: Bucket>(bucket: &B, key: &Key, value: impl Into<Bytes>) -> u64 {
    match bucket.put(key, Write::Value(value.into()), Expect::Any).await.expect("a definite answer") {
        Put::Stored(revision) => revision,
        Put::Lost(race) => panic!("{race:?}"),
    }
}

/// A store that counts the calls to its buckets.
pub(crate) fn counted<S: Store>(t: &Fixture<S>) -> (Faulty<S>, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let store = Faulty::new(t.store.clone(), t.env.clone(), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Fault::None
    });
    (store, asked)
}

/// A store on whose every call this fault befalls.
pub(crate) fn failing<S: Store>(t: &Fixture<S>, fault: Fault) -> Faulty<S> {
    Faulty::new(t.store.clone(), t.env.clone(), move |_| fault)
}

/// A store on which one fault befalls every call of one verb.
pub(crate) fn failing_at<S: Store>(t: &Fixture<S>, verb: Verb, fault: Fault) -> Faulty<S> {
    Faulty::new(t.store.clone(), t.env.clone(), move |call| if call.verb == verb { fault } else { Fault::None })
}

/// The unknown that an answer is.
pub(crate) fn unknown<T>(answer: Result<T, impl Into<Error>>) -> Unknown {
    match answer.map_err(Into::into) {
        Err(Error::Unknown(unknown)) => unknown,
        Err(Error::BadArgument(refused)) => panic!("{refused}"),
        Ok(_) => panic!("a definite answer"),
    }
}

/// Expects that an answer is unknown, of this operation, and whether its write may still land.
pub(crate) fn assert_unknown<T>(answer: Result<T, impl Into<Error>>, op: &str, landing: Landing) {
    let unknown = unknown(answer);
    assert_eq!((unknown.op, unknown.landing), (op, landing), "{unknown}");
}

/// Expects that an answer is unknown since this record cannot be read.
pub(crate) fn assert_undecodable<T>(answer: Result<T, impl Into<Error>>, op: &str, resource: &str) {
    let unknown = unknown(answer);
    assert_eq!((unknown.op, &*unknown.resource, unknown.landing), (op, resource, Landing::Settled), "{unknown}");
    assert!(matches!(unknown.cause, Cause::Undecodable(_)), "{unknown}");
}

/// Expects that an argument was refused, and which.
pub(crate) fn assert_refused<T>(answer: Result<T, Error>, what: &str) {
    match answer {
        Err(Error::BadArgument(refused)) => assert_eq!(refused.what, what, "{refused}"),
        Err(Error::Unknown(unknown)) => panic!("{unknown}"),
        Ok(_) => panic!("a definite answer"),
    }
}
