//! Renewing and releasing what is held.

use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::slot::{DUTIES, EPOCHS, LEASES};
use engine::lease::{Config, Release, Renew, Terms};
use engine::store::{Bucket, BucketSpec, Certified, Expect, Put, Store, Write};

use crate::{Fixture, class, eventually, held, resource, terms};

/// A renewed lease has a later deadline and is otherwise as it was.
pub async fn a_renewal_moves_the_deadline_and_nothing_else<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    for name in ["seat:a", "node:n1", "worker:a"] {
        let ask = Terms { meta: Some(serde_json::json!({"k": [1]})), ..terms(&leases, name, "n1:1") };
        let mut lease = held(&leases, &ask).await;
        let before = leases.get(&resource(name)).await.unwrap().expect("held");
        let bound = lease.good_until();
        // A later deadline takes a later instant.
        t.env.sleep(Duration::from_millis(2)).await;
        assert_eq!(leases.renew(&mut lease).await.unwrap(), Renew::Extended);
        let after = leases.get(&resource(name)).await.unwrap().expect("held");
        assert!(after.deadline > before.deadline && after.revision > before.revision);
        assert!(lease.good_until() > bound);
        assert_eq!(engine::lease::LeaseView { deadline: before.deadline, revision: before.revision, ..after }, before);
    }
}

/// A lease that is renewed in time is never lost, however long it is held.
pub async fn a_renewed_lease_outlives_its_ttl<S: Store>(t: Fixture<S>) {
    let ttl = Duration::from_secs(2);
    let leases = t.leases_of(ttl).await;
    for name in ["seat:a", "worker:a"] {
        eventually(&t.env, "a lease is renewed in time each time", || async {
            let mut lease = held(&leases, &Terms::new(resource(name), "n1:1", ttl)).await;
            let until = t.env.now() + ttl * 2;
            while t.env.now() < until {
                t.env.sleep(ttl / 8).await;
                let bound = lease.good_until();
                let renewed = leases.renew(&mut lease).await.unwrap() == Renew::Extended;
                let in_time = t.env.now() < bound;
                assert!(renewed || !in_time, "{name} was lost before its time");
                if !renewed {
                    return None;
                }
            }
            let in_time = t.env.now() < lease.good_until();
            let held = leases.get(&resource(name)).await.unwrap();
            assert!(held.as_ref().is_none_or(|held| held.epoch == lease.epoch()), "{name}: {held:?}");
            (in_time && held.is_some()).then_some(())
        })
        .await;
    }
}

/// A renewal can say something new about the holder; one that is lost says nothing.
pub async fn a_renewal_can_carry_a_new_status<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    let mut lease = held(&leases, &terms(&leases, "node:n1", "n1:1")).await;
    let status = serde_json::json!({"seats": 100});
    assert_eq!(leases.renew_with(&mut lease, status.clone()).await.unwrap(), Renew::Extended);
    assert_eq!(leases.renew(&mut lease).await.unwrap(), Renew::Extended);
    let view = leases.get(&resource("node:n1")).await.unwrap().expect("held");
    assert_eq!(view.meta, Some(status), "later renewals keep it");
    let huge = "x".repeat(1 << 20).into();
    assert!(matches!(leases.renew_with(&mut lease, huge).await, Err(Error::BadArgument(_))));
    assert_eq!(leases.renew(&mut lease).await.unwrap(), Renew::Extended, "a refused status costs no lease");
}

/// A lapsed lease cannot be renewed, only claimed again; its release says that it is not held.
pub async fn a_lapsed_lease_is_lost_to_its_holder<S: Store>(t: Fixture<S>) {
    let ttl = Duration::from_secs(1);
    let leases = t.leases_of(ttl).await;
    for name in ["seat:a", "worker:a"] {
        let mut lease = held(&leases, &Terms::new(resource(name), "n1:1", ttl)).await;
        eventually(&t.env, "the lease lapses", || async {
            leases.get(&resource(name)).await.unwrap().is_none().then_some(())
        })
        .await;
        assert_eq!(leases.release(&lease).await.unwrap(), Release::NotHeld, "{name}");
        assert_eq!(leases.renew(&mut lease).await.unwrap(), Renew::Lost, "{name}");
        assert_eq!(leases.get(&resource(name)).await.unwrap(), None, "{name}");
    }
}

/// A former holder neither renews nor releases what a peer holds now, and changes no field of it.
pub async fn a_former_holder_touches_nothing<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    for name in ["seat:a", "worker:a"] {
        let mut former = held(&leases, &terms(&leases, name, "n1:1")).await;
        assert_eq!(leases.release(&former).await.unwrap(), Release::Released, "{name}");
        held(&leases, &terms(&leases, name, "n2:1")).await;
        let before = leases.get(&resource(name)).await.unwrap();
        assert_eq!(leases.renew(&mut former).await.unwrap(), Renew::Lost, "{name}");
        assert_eq!(leases.release(&former).await.unwrap(), Release::NotHeld, "{name}");
        assert_eq!(leases.get(&resource(name)).await.unwrap(), before, "{name}");
        // The same owner at a later epoch is another tenure.
        let own = leases.get(&resource(name)).await.unwrap().expect("held");
        assert_eq!((own.owner.as_str(), own.epoch), ("n2:1", 2));
    }
}

/// A burst renews every lease, each with its own answer.
pub async fn a_burst_answers_for_every_lease<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    let mut own = Vec::new();
    for i in 0..50 {
        own.push(held(&leases, &terms(&leases, &format!("seat:s{i}"), "n1:1")).await);
    }
    for gone in [7, 31] {
        assert_eq!(leases.release(&own[gone]).await.unwrap(), Release::Released);
    }
    held(&leases, &terms(&leases, "seat:s31", "n2:1")).await;
    let answers = leases.renew_all(&mut own).await;
    for (i, answer) in answers.into_iter().enumerate() {
        let want = if i == 7 || i == 31 { Renew::Lost } else { Renew::Extended };
        assert_eq!(answer.answer.unwrap(), want, "seat:s{i}");
    }
}

/// A record of a newer build is read by what this build knows of it; one that does not decode is unknown, not free.
pub async fn what_does_not_decode_is_unknown_and_never_free<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    let Config { prefix, lease_ttl, replicas, .. } = t.config();
    let open = |slot| BucketSpec::of(slot, &prefix, lease_ttl, replicas);
    let write = async |slot, name: &str, value: &'static [u8]| {
        let bucket = t.store.open(&open(slot)).await.unwrap();
        let put = bucket.put(resource(name).key(), Write::Value(Bytes::from_static(value)), Expect::Any).await.unwrap();
        assert!(matches!(put, Put::Stored(_)));
    };
    let newer = br#"{"resource":"seat:a","owner":"n9:1","epoch":4,"ttl_ms":45000,"protocol":3,"shard":{"of":2}}"#;
    write(&LEASES, "seat:a", newer).await;
    assert_eq!(leases.get(&resource("seat:a")).await.unwrap().expect("held").epoch, 4);

    let undecodable = |error: Unknown| assert!(matches!(error.cause, Cause::Undecodable(_)), "{error}");
    write(&LEASES, "seat:b", b"garbage").await;
    undecodable(leases.get(&resource("seat:b")).await.unwrap_err());
    let listed = leases.list(&class("seat"), &Certified::Leader).await.unwrap_err();
    assert!(listed.to_string().contains("seat:b"), "the record is named: {listed}");
    undecodable(listed);
    let claim = leases.claim(&terms(&leases, "seat:b", "n1:1")).await.unwrap_err();
    undecodable(claim.unknown().expect("unknown").clone());
    write(&DUTIES, "worker:b", b"garbage").await;
    undecodable(leases.get(&resource("worker:b")).await.unwrap_err());

    // A counter that cannot be read never starts again at 1.
    write(&EPOCHS, "seat:c", b"{}").await;
    let claim = leases.claim(&terms(&leases, "seat:c", "n1:1")).await.unwrap_err();
    undecodable(claim.unknown().expect("unknown").clone());
    let hints = leases.hints(&class("seat")).await.unwrap_err();
    assert!(hints.to_string().contains("seat:c"), "the counter is named: {hints}");
    undecodable(hints);
    let epochs = t.store.open(&open(&EPOCHS)).await.unwrap();
    let removed = epochs.put(resource("seat:d").key(), Write::Removal, Expect::Any).await.unwrap();
    assert!(matches!(removed, Put::Stored(_)));
    let claim = leases.claim(&terms(&leases, "seat:d", "n1:1")).await.unwrap_err();
    undecodable(claim.unknown().expect("unknown").clone());
}

/// A counter that was lost, or went back, is not followed back: the lease's own record tells how far it had come. One at its
/// end gives out nothing more.
pub async fn a_counter_never_starts_again<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    let Config { prefix, lease_ttl, replicas, .. } = t.config();
    let epochs = t.store.open(&BucketSpec::of(&EPOCHS, &prefix, lease_ttl, replicas)).await.unwrap();
    for name in ["seat:a", "worker:a"] {
        for tenure in 1..=3 {
            let lease = held(&leases, &terms(&leases, name, "n1:1")).await;
            assert_eq!(lease.epoch(), tenure);
            assert_eq!(leases.release(&lease).await.unwrap(), Release::Released);
        }
        epochs.purge(resource(name).key(), u64::MAX - 1).await.unwrap();
        let lease = held(&leases, &terms(&leases, name, "n2:1")).await;
        assert_eq!(lease.epoch(), 4, "{name}: after the counter was lost");
        assert_eq!(leases.release(&lease).await.unwrap(), Release::Released);
        let back = format!(r#"{{"resource":"{name}","epoch":2,"preferred":"n7","minted":{{"by":"n9"}}}}"#);
        assert!(matches!(
            epochs.put(resource(name).key(), Write::Value(back.into()), Expect::Any).await.unwrap(),
            Put::Stored(_)
        ));
        let lease = held(&leases, &terms(&leases, name, "n3:1")).await;
        assert_eq!(lease.epoch(), 5, "{name}: after the counter went back");
        assert_eq!(leases.get(&resource(name)).await.unwrap().expect("held").preferred.as_deref(), Some("n7"));
        // The holder's own claim with another hint writes the counter too. Neither loses what a newer build keeps there.
        let hinting = Terms { preferred: Some("n8".to_owned()), ..terms(&leases, name, "n3:1") };
        assert_eq!(held(&leases, &hinting).await.epoch(), 5, "{name}");
        let counter = epochs.get(resource(name).key()).await.unwrap().and_then(|version| version.value).unwrap();
        let want = format!(r#"{{"resource":"{name}","epoch":5,"preferred":"n8","minted":{{"by":"n9"}}}}"#);
        assert_eq!(counter, want);
        let lease = held(&leases, &terms(&leases, name, "n3:1")).await;
        assert_eq!(leases.release(&lease).await.unwrap(), Release::Released);
        let end = format!(r#"{{"resource":"{name}","epoch":{}}}"#, u64::MAX);
        assert!(matches!(
            epochs.put(resource(name).key(), Write::Value(end.into()), Expect::Any).await.unwrap(),
            Put::Stored(_)
        ));
        let error = leases.claim(&terms(&leases, name, "n1:1")).await.unwrap_err();
        assert!(error.to_string().contains("at its end"), "{error}");
        assert_eq!(leases.get(&resource(name)).await.unwrap(), None);
    }
}

/// A removal marker reads as absent, and a claim writes over it.
pub async fn a_removed_lease_reads_as_free<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    let Config { prefix, lease_ttl, replicas, .. } = t.config();
    for (slot, name) in [(&LEASES, "seat:a"), (&DUTIES, "worker:a")] {
        let mut lease = held(&leases, &terms(&leases, name, "n1:1")).await;
        let bucket = t.store.open(&BucketSpec::of(slot, &prefix, lease_ttl, replicas)).await.unwrap();
        let removed = bucket.put(resource(name).key(), Write::Removal, Expect::Any).await.unwrap();
        assert!(matches!(removed, Put::Stored(_)));
        assert_eq!(leases.get(&resource(name)).await.unwrap(), None);
        let listed = || async { leases.list(&class(resource(name).class()), &Certified::Leader).await.unwrap() };
        t.lists(vec![], listed).await;
        assert_eq!(leases.renew(&mut lease).await.unwrap(), Renew::Lost);
        assert_eq!(leases.release(&lease).await.unwrap(), Release::NotHeld);
        assert_eq!(held(&leases, &terms(&leases, name, "n2:1")).await.epoch(), 2);
    }
}
