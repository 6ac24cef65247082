//! Greeted newcomers.

use super::greetings::{FailsClosed, Greet, Greetings};
use engine::store::Store;
use engine::store::faulty::{Fault, Faulty};
use futures_util::future::join_all;
use jiff::Timestamp;
use tests::Fixture;

/// Of many who greet a newcomer one says hello, and without an answer nobody does.
pub async fn a_newcomer_is_greeted_once<S: Store>(t: Fixture<S>) {
    let g = Greetings::open(&t.store, &t.settings()).await.expect("the bucket opens");
    let told = join_all((0..32).map(|_| g.greet("beta", Timestamp::UNIX_EPOCH))).await;
    assert_eq!(told.into_iter().filter(|told| *told == Ok(Greet::First)).count(), 1);

    let dark = Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::DropRequest);
    let dark = Greetings::open(&dark, &t.settings()).await.expect("opening never fails");
    let unanswered = dark.greet("gamma", Timestamp::UNIX_EPOCH).await;
    assert!(unanswered.as_ref().is_err_and(|error| error.unknown().is_some()));
    assert_eq!(unanswered.fails_closed(), Ok(Greet::Greeted));
    let nobody = g.greet("", Timestamp::UNIX_EPOCH).await.fails_closed();
    assert!(matches!(nobody, Err(error) if error.what == "handle"));
}
