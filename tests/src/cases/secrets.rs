//! Secrets.

use std::sync::atomic::Ordering;

use coordproto::answer::{Error, Landing};
use coordproto::record::secret::{SEALED_BYTES_MAX, Sealed, SecretRecord};
use coordproto::slot::SECRETS;
use engine::slots::secrets::{Delete, Secret, Secrets};
use engine::store::faulty::{Fault, Verb};
use engine::store::{Bucket, Store};
use futures_util::future::join_all;

use crate::Fixture;
use crate::bench::{
    assert_refused, assert_undecodable, assert_unknown, bucket, counted, failing, failing_at, raw_key, stored,
};

/// What must be in nothing that anybody reads.
const VALUE: &str = "TOK_SECRET123";

async fn secrets<S: Store>(store: &S, t: &Fixture<impl Store>) -> Secrets<S> {
    Secrets::open(store, &t.settings()).await.expect("the bucket opens")
}

fn record(sealed: impl Into<bytes::Bytes>, by: &str) -> SecretRecord {
    let at = "2026-01-02T03:04:05Z".parse().expect("an instant");
    SecretRecord { sealed: Sealed::new(sealed).expect("not empty"), by: by.to_owned(), at }
}

fn secret(name: &str, record: &SecretRecord) -> Secret {
    Secret { name: name.to_owned(), record: record.clone() }
}

/// The last one set stands, byte for byte, and a listing has every secret by its name.
pub async fn the_last_secret_set_stands<S: Store>(t: Fixture<S>) {
    let (s, b) = (secrets(&t.store, &t).await, bucket(&t, &SECRETS).await);
    assert_eq!((s.get("API_KEY").await.unwrap(), s.list().await.unwrap()), (None, vec![]));
    let whole: Vec<u8> = (0..=255).collect();
    let largest = record(vec![0xff; SEALED_BYTES_MAX], "ada");
    let mut want = Vec::new();
    for name in ["API_KEY", "api_key", "_", "A", "A1", "A_", &"A".repeat(1024)] {
        for record in [record(VALUE, "bob"), largest.clone(), record(whole.clone(), "ada")] {
            s.put(name, &record).await.unwrap();
            assert_eq!(s.get(name).await.unwrap(), Some(secret(name, &record)));
        }
        want.push(secret(name, &record(whole.clone(), "ada")));
    }
    want.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    for foreign in ["of.two", "no-name", "1A"] {
        stored(&b, &raw_key(foreign), "a key that is the name of no secret").await;
    }
    t.lists(want, || async { s.list().await.unwrap() }).await;
}

/// A delete says whether the secret was there; of many at once one was the one.
pub async fn a_delete_says_whether_the_secret_was_there<S: Store>(t: Fixture<S>) {
    let (s, b) = (secrets(&t.store, &t).await, bucket(&t, &SECRETS).await);
    assert_eq!(s.delete("API_KEY").await.unwrap(), Delete::NotThere);
    s.put("OTHER", &record("1", "ada")).await.unwrap();
    for round in 0..5 {
        s.put("API_KEY", &record(VALUE, "ada")).await.unwrap();
        let told = join_all((0..8).map(|_| s.delete("API_KEY"))).await;
        let told: Vec<Delete> = told.into_iter().map(|told| told.expect("a definite answer")).collect();
        assert_eq!(told.iter().filter(|told| **told == Delete::Deleted).count(), 1, "round {round}: {told:?}");
        assert_eq!(s.get("API_KEY").await.unwrap(), None);
    }
    s.put("LAST", &record(VALUE, "ada")).await.unwrap();
    assert_eq!(s.delete("LAST").await.unwrap(), Delete::Deleted);
    assert_eq!(b.get(&raw_key("LAST")).await.unwrap(), None, "nothing is left of it");
    t.lists([secret("OTHER", &record("1", "ada"))], || async { s.list().await.unwrap() }).await;
}

/// A row that cannot be read fails the listing, by name, and shows nothing of itself; it can be set anew and deleted unread.
pub async fn an_unreadable_secret_fails_the_listing_and_is_not_shown<S: Store>(t: Fixture<S>) {
    let (s, b) = (secrets(&t.store, &t).await, bucket(&t, &SECRETS).await);
    s.put("OTHER", &record("1", "ada")).await.unwrap();
    let at = r#""by":"ada","at":"2026-01-02T03:04:05Z""#;
    let broken = [
        VALUE.to_owned(),
        format!("\"{VALUE}\""),
        format!("{{\"{VALUE}\":1}}"),
        format!("{{\"sealed\":\"{VALUE}\",{at}}}"),
        format!("{{\"sealed\":\"\",{at}}}"),
        format!("{{\"sealed\":\"VE9L\",\"by\":\"ada\",\"at\":\"{VALUE}\"}}"),
        String::new(),
    ];
    for broken in &broken {
        stored(&b, &raw_key("API_KEY"), broken.clone()).await;
        let listed = t.listed(|| s.list(), Result::is_err).await;
        let told = [s.get("API_KEY").await.unwrap_err(), Error::from(listed.unwrap_err())];
        for error in &told {
            let shown = format!("{error} {error:?}");
            assert!(shown.contains("API_KEY") && !shown.contains(VALUE), "{shown}");
        }
        assert_undecodable(s.get("API_KEY").await, "get", "API_KEY");
        assert_undecodable(t.listed(|| s.list(), Result::is_err).await, "list", "API_KEY");
        assert_eq!(s.get("OTHER").await.unwrap(), Some(secret("OTHER", &record("1", "ada"))));
    }
    s.put("API_KEY", &record("2", "ada")).await.unwrap();
    t.lists(Some(2), || async { s.list().await.ok().map(|secrets| secrets.len()) }).await;
    stored(&b, &raw_key("API_KEY"), VALUE).await;
    assert_eq!(s.delete("API_KEY").await.unwrap(), Delete::Deleted);
    t.lists(Some(1), || async { s.list().await.ok().map(|secrets| secrets.len()) }).await;
}

/// A name that no `${NAME}` can name is refused before anything is asked, and unseen, since it may be a value.
pub async fn a_bad_name_is_refused_unseen<S: Store>(t: Fixture<S>) {
    let (store, asked) = counted(&t);
    let s = secrets(&store, &t).await;
    let pasted = format!("API_KEY={VALUE}");
    for name in ["", "1A", "A-B", "A.B", "A B", "${A}", "é", "a:b", "*", &pasted, &VALUE.repeat(200)] {
        assert_refused(s.get(name).await, "name");
        assert_refused(s.put(name, &record("1", "ada")).await, "name");
        let refused = s.delete(name).await.unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains(VALUE), "{refused}");
        assert_refused::<()>(Err(refused), "name");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing was asked");
    assert_refused(s.put("A", &record("1", &"a".repeat(2 << 20))).await, "value");
    assert_eq!(Sealed::new("").unwrap_err().what, "sealed value", "and an empty value is never made");
}

/// No value is in what is printed or in any error, whatever goes wrong.
pub async fn no_value_is_shown_by_anything<S: Store>(t: Fixture<S>) {
    let s = secrets(&t.store, &t).await;
    s.put("API_KEY", &record(VALUE, "ada")).await.unwrap();
    let mut shown = format!("{:?} {:#?}", s.get("API_KEY").await, s.list().await);
    for fault in [Fault::DropRequest, Fault::DropReply] {
        let f = secrets(&failing(&t, fault), &t).await;
        for error in [
            f.get("API_KEY").await.map(drop).unwrap_err(),
            f.list().await.map(drop).unwrap_err().into(),
            f.put("API_KEY", &record(VALUE, "ada")).await.unwrap_err(),
            f.delete("API_KEY").await.map(drop).unwrap_err(),
        ] {
            shown.push_str(&format!("{error} {error:?} {error:#?}"));
        }
    }
    let large = s.put("API_KEY", &record(VALUE, &VALUE.repeat(100_000))).await.unwrap_err();
    shown.push_str(&format!("{large} {large:?}"));
    // As it is, in base64, and as a list of bytes.
    for value in [VALUE, "VE9LX1NFQ1JFVDEyMw", "84, 79", "54 4f"] {
        assert!(!shown.contains(value), "{value}: {shown}");
    }
    assert!(shown.contains("Sealed(13 bytes)"), "{shown}");
}

/// Without an answer nothing is said of a secret, and what may have been written is told to be so.
pub async fn without_an_answer_nothing_is_said_of_a_secret<S: Store>(t: Fixture<S>) {
    let s = secrets(&t.store, &t).await;
    for (fault, landed) in [(Fault::DropRequest, false), (Fault::DropReply, true)] {
        let f = secrets(&failing(&t, fault), &t).await;
        s.put("OLD", &record("1", "ada")).await.unwrap();
        assert_unknown(f.get("OLD").await, "get", Landing::Settled);
        assert_unknown(f.list().await, "list", Landing::Settled);
        assert_unknown(f.put("NEW", &record("1", "ada")).await, "put", Landing::InFlight);
        assert_unknown(f.delete("OLD").await, "delete", Landing::Settled);
        let f = secrets(&failing_at(&t, Verb::Put, fault), &t).await;
        assert_unknown(f.delete("OLD").await, "delete", Landing::InFlight);
        assert_eq!(s.get("NEW").await.unwrap().is_some(), landed, "{fault:?}");
        assert_eq!(s.get("OLD").await.unwrap().is_none(), landed, "{fault:?}");
    }
}
