//! What the cases about single records share: what stands below them, and what befalls the store.

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Landing, Unknown};
use coordproto::key::Key;
use coordproto::slot::Slot;
use engine::store::counting::Counting;
use engine::store::faulty::{Call, Fault, Faulty, Verb};
use engine::store::{Bucket, Expect, Put, Store, Write};

use crate::Fixture;

/// A store whose every call has the same fault.
pub(crate) fn faulty<S: Store>(t: &Fixture<S>, fault: Fault) -> Faulty<S> {
    Faulty::new(t.store.clone(), t.env.clone(), move |_| fault)
}

/// A store that loses every read, and nothing else.
pub(crate) fn unreadable<S: Store>(t: &Fixture<S>) -> Faulty<S> {
    Faulty::new(t.store.clone(), t.env.clone(), |call: &Call<'_>| match call.verb {
        Verb::Read => Fault::DropRequest,
        _ => Fault::None,
    })
}

/// The bucket of a slot, as it is below the records.
pub(crate) async fn bucket<S: Store>(t: &Fixture<S>, slot: &Slot) -> S::Bucket {
    t.settings().open(&t.store, slot).await.expect("the bucket opens")
}

/// Writes what no build writes.
pub(crate) async fn stored<B: Bucket>(bucket: &B, key: &str, value: impl Into<Bytes>) -> u64 {
    let key = Key::parse(key).expect("a key");
    match bucket.put(&key, Write::Value(value.into()), Expect::Any).await.expect("a definite answer") {
        Put::Stored(revision) => revision,
        Put::Lost(race) => panic!("{race:?}"),
    }
}

/// What stands at a key, a removal marker perhaps.
pub(crate) async fn stands<B: Bucket>(bucket: &B, key: &str) -> Option<(u64, Option<Bytes>)> {
    let version = bucket.get(&Key::parse(key).expect("a key")).await.expect("a definite answer");
    version.map(|version| (version.revision, version.value))
}

/// The argument that was refused.
pub(crate) fn refused<T>(answer: Result<T, Error>) -> &'static str {
    match answer {
        Err(Error::BadArgument(error)) => error.what,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

/// Expects that nothing was asked of a store.
pub(crate) fn unasked<S: Store>(store: &Counting<S>) {
    assert_eq!(store.take().total(), 0, "what is refused is refused before anything is asked");
}

/// The unknown that was answered.
pub(crate) fn unknown<T>(answer: Result<T, impl Into<Error>>) -> Unknown {
    match answer.map_err(Into::into) {
        Err(Error::Unknown(unknown)) => unknown,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was answered"),
    }
}

/// Expects a write without an answer, which may still land.
pub(crate) fn may_land<T>(answer: Result<T, impl Into<Error>>) {
    let unknown = unknown(answer);
    assert_eq!(unknown.landing, Landing::InFlight, "{unknown}");
}

/// Expects an unknown of which nothing lands.
pub(crate) fn settled<T>(answer: Result<T, impl Into<Error>>) {
    let unknown = unknown(answer);
    assert_eq!(unknown.landing, Landing::Settled, "{unknown}");
}

/// Expects that a row cannot be read, and that the error names it.
pub(crate) fn undecodable<T>(answer: Result<T, impl Into<Error>>, key: &str) {
    let unknown = unknown(answer);
    assert!(matches!(unknown.cause, Cause::Undecodable(_)), "{unknown}");
    assert_eq!((&*unknown.resource, unknown.landing), (key, Landing::Settled), "{unknown}");
}
