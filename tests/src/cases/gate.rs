//! The protocol gate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coordproto::key::Key;
use coordproto::slot::EPOCHS;
use engine::lease::{Claim, Config, Leases, Refusal, Release};
use engine::store::counting::Counting;
use engine::store::faulty::{Fault, Faulty, Verb};
use engine::store::{Bucket, BucketSpec, Store};

use crate::{Fixture, eventually, held, refused, resource, terms};

/// A live seat or presence lease of an older protocol closes the gate for seats, by name; its release opens it.
pub async fn an_older_lease_closes_the_gate<S: Store>(t: Fixture<S>) {
    let (old, new) = (t.leases_at(3).await, t.leases_at(4).await);
    for name in ["node:n1", "seat:a"] {
        let lease = held(&old, &terms(&old, name, "n1:1")).await;
        let refusal = refused(&new, &terms(&new, "seat:b", "n2:1")).await;
        let Refusal::OlderProtocol { older } = refusal else { panic!("{refusal:?}") };
        assert_eq!((older.resource.name(), older.protocol), (name, 3));
        assert_eq!(new.older_protocol().await.unwrap(), Some(older), "asking tells the same");
        assert_eq!(new.get(&resource("seat:b")).await.unwrap(), None, "a gate refusal writes nothing");
        assert_eq!(old.release(&lease).await.unwrap(), Release::Released);
        t.lists(None, || async { new.older_protocol().await.unwrap() }).await;
    }
    let granted = async || match new.claim(&terms(&new, "seat:b", "n2:1")).await.unwrap() {
        Claim::Held(lease) => Some(lease.epoch()),
        Claim::Refused(_) => None,
    };
    // And burns no epoch.
    t.lists(Some(1), granted).await;
}

/// A duty of an older protocol closes nothing, and neither presence nor duties wait for the gate.
pub async fn the_gate_is_about_seats<S: Store>(t: Fixture<S>) {
    let (old, new) = (t.leases_at(3).await, t.leases_at(4).await);
    held(&old, &terms(&old, "worker:a", "n1:1")).await;
    held(&new, &terms(&new, "seat:a", "n2:1")).await;
    held(&old, &terms(&old, "node:n1", "n1:1")).await;
    held(&new, &terms(&new, "node:n2", "n2:1")).await;
    held(&new, &terms(&new, "worker:b", "n2:1")).await;
    refused(&new, &terms(&new, "seat:b", "n2:1")).await;
    held(&old, &terms(&old, "seat:b", "n1:1")).await;
}

/// A peer that holds the resource outranks the gate, and the holder's own claim again passes it.
pub async fn a_holder_outranks_the_gate<S: Store>(t: Fixture<S>) {
    let (old, new) = (t.leases_at(3).await, t.leases_at(4).await);
    held(&new, &terms(&new, "seat:a", "n2:1")).await;
    held(&old, &terms(&old, "node:n1", "n1:1")).await;
    let refusal = refused(&new, &terms(&new, "seat:a", "n3:1")).await;
    assert_eq!(refusal, Refusal::Held { by: "n2:1".into(), epoch: Some(1) });
    assert_eq!(held(&new, &terms(&new, "seat:a", "n2:1")).await.epoch(), 1);
}

/// Every older lease written before the gate is asked is seen, each time another one.
pub async fn the_gate_sees_every_lease_written_before<S: Store>(t: Fixture<S>) {
    let (old, new) = (t.leases_at(3).await, t.leases_at(4).await);
    let mut before = held(&old, &terms(&old, "seat:s0", "n1:1")).await;
    for i in 1..10 {
        // The one that was seen last goes, another comes: the remembered witness is not enough.
        let next = held(&old, &terms(&old, &format!("seat:s{i}"), "n1:1")).await;
        assert_eq!(old.release(&before).await.unwrap(), Release::Released);
        let want = Some(next.resource().clone());
        // A member that is behind may still have the one that went, and is never without any.
        t.lists(want, || async { Some(new.older_protocol().await.unwrap().expect("an older lease").resource) }).await;
        before = next;
    }
    assert_eq!(old.release(&before).await.unwrap(), Release::Released);
    t.lists(None, || async { new.older_protocol().await.unwrap() }).await;
}

/// Asking the gate costs the same however many leases are held, open or closed.
pub async fn the_gates_cost_does_not_grow<S: Store>(t: Fixture<S>) {
    let counting = Counting::new(t.store.clone());
    let new = t.leases_on(&counting, Config { protocol: 4, ..t.config() }).await;
    let cost = async || {
        counting.take();
        let older = new.older_protocol().await.unwrap();
        (older.is_some(), counting.take())
    };
    let (closed, bare) = cost().await;
    assert!(!closed);
    let mut held_by_new = 0;
    let hold = async |leases: &engine::lease::Leases<Counting<S>>, from: usize| {
        for i in from..from + 40 {
            held(leases, &terms(leases, &format!("seat:s{i}"), "n1:1")).await;
        }
    };
    hold(&new, held_by_new).await;
    held_by_new += 40;
    assert_eq!(cost().await, (false, bare));

    let old = t.leases_at(3).await;
    held(&old, &terms(&old, "node:old", "n0:1")).await;
    let (closed, _) = cost().await;
    assert!(closed);
    let (_, with_witness) = cost().await;
    let peers = t.leases_at(3).await;
    for i in held_by_new..held_by_new + 40 {
        held(&peers, &terms(&peers, &format!("seat:p{i}"), "n1:1")).await;
    }
    assert_eq!(cost().await, (true, with_witness));
    assert_eq!((with_witness.pass, with_witness.total()), (0, 2), "the index, and the witness");
}

/// A protocol that nobody speaks any more is retired, so that asking costs one read again.
pub async fn a_protocol_out_of_use_is_retired<S: Store>(t: Fixture<S>) {
    let config = Config { lease_ttl: Duration::from_secs(1), ..t.config() };
    let counting = Counting::new(t.store.clone());
    let new = t.leases_on(&counting, Config { protocol: 4, ..config.clone() }).await;
    let old = t.leases_with(Config { protocol: 3, ..config }).await;
    let lease = held(&old, &terms(&old, "seat:a", "n1:1")).await;
    let _released_or_lapsed = old.release(&lease).await.unwrap();
    eventually(&t.env, "the older protocol is retired", || async {
        counting.take();
        assert_eq!(new.older_protocol().await.unwrap(), None);
        (counting.take().total() == 1).then_some(())
    })
    .await;
    // A node of that protocol may come back at any time, and is seen at once.
    is_seen(&t, &old, &new, "seat:a").await;
}

/// Expects that a lease of an older protocol is seen for as long as it lasts.
async fn is_seen<S: Store, T: Store>(t: &Fixture<S>, old: &Leases<S>, new: &Leases<T>, name: &str) {
    eventually(&t.env, "a lease of an older protocol lasts until it is asked about", || async {
        let lease = held(old, &terms(old, name, "n1:1")).await;
        let seen = new.older_protocol().await.unwrap().map(|older| older.resource);
        let lasts = t.env.now() < lease.good_until();
        assert!(!lasts || seen.as_ref() == Some(lease.resource()), "{seen:?}");
        seen.map(drop)
    })
    .await;
}

/// A build that has just come retires nothing: a node of the older protocol may have looked around just before, and have seen
/// no newer build that it would have to tell of itself.
pub async fn a_build_that_just_came_retires_nothing<S: Store>(t: Fixture<S>) {
    let config = Config { lease_ttl: Duration::from_secs(2), ..t.config() };
    let old = t.leases_with(Config { protocol: 3, ..config.clone() }).await;
    let epochs = t.store.open(&BucketSpec::of(&EPOCHS, &config.prefix, config.lease_ttl, t.replicas)).await.unwrap();
    let key = Key::parse("protocol.3").unwrap();
    eventually(&t.env, "the older protocol's key is two TTLs old", || async {
        let written = epochs.get(&key).await.unwrap().expect("declared").written;
        let age = epochs.clock().await.unwrap().duration_since(written);
        (age.as_secs_f64() > 4.1).then_some(())
    })
    .await;
    assert_eq!(old.older_protocol().await.unwrap(), None);
    let new = t.leases_with(Config { protocol: 4, ..config }).await;
    assert_eq!(new.older_protocol().await.unwrap(), None, "nobody holds anything");
    is_seen(&t, &old, &new, "node:n1").await;
}

/// Retiring a protocol is housekeeping: where it cannot be done, the gate is as open as it was.
pub async fn a_retirement_that_cannot_be_done_holds_nobody_back<S: Store>(t: Fixture<S>) {
    let config = Config { lease_ttl: Duration::from_secs(1), ..t.config() };
    let old = t.leases_with(Config { protocol: 3, ..config.clone() }).await;
    let faulty = Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::None);
    let new = t.leases_on(&faulty, Config { protocol: 4, ..config.clone() }).await;
    let tried = Arc::new(AtomicBool::new(false));
    let trying = tried.clone();
    faulty.choose(move |call| {
        if call.verb != Verb::Purge {
            return Fault::None;
        }
        trying.store(true, Ordering::Relaxed);
        Fault::DropRequest
    });
    drop(old);
    eventually(&t.env, "the older protocol is to be retired", || async {
        assert_eq!(new.older_protocol().await.unwrap(), None);
        tried.load(Ordering::Relaxed).then_some(())
    })
    .await;
    held(&new, &terms(&new, "seat:a", "n1:1")).await;
}
