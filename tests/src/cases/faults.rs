//! The third answer: a store that cannot be asked is unknown in every verb, never a no; and an unfinished claim leaves
//! nothing dark behind it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use coordproto::answer::{Cause, Error, Landing, Unknown};
use engine::env::Env;
use engine::lease::{Claim, FailsClosed, Holds, Lease, Leases, Refusal, Release, Renew, Tenure, Terms};
use engine::store::faulty::{Call, Fault, Faulty, Odds, Verb};
use engine::store::{Certified, Expect, Store};
use engine::tasks;
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::{Fixture, before_it_goes_on, class, eventually, held, resource, terms};

/// Leases over a store that does what `choose` says, beside leases over the store itself.
async fn pair<S: Store>(
    t: &Fixture<S>,
    choose: impl FnMut(&Call<'_>) -> Fault + Send + 'static,
) -> (Faulty<S>, Leases<Faulty<S>>, Leases<S>) {
    let faulty = Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::None);
    let leases = t.leases_on(&faulty, t.config()).await;
    faulty.choose(choose);
    (faulty, leases, t.leases().await)
}

/// Waits until a peer is granted what an unfinished claim may have left.
async fn peer_is_granted<S: Store>(t: &Fixture<S>, leases: &Leases<S>, name: &str) -> Lease {
    eventually(&t.env, "a peer is granted", || async {
        match leases.claim(&terms(leases, name, "peer:1")).await.unwrap() {
            Claim::Held(lease) => Some(lease),
            Claim::Refused(_) => None,
        }
    })
    .await
}

/// With no request arriving, every verb is unknown, and nothing is lost by it.
pub async fn a_store_that_cannot_be_asked_is_unknown_in_every_verb<S: Store>(t: Fixture<S>) {
    for fault in [Fault::DropRequest, Fault::DropReply] {
        let (faulty, leases, direct) = pair(&t, |_| Fault::None).await;
        let name = if fault == Fault::DropRequest { "seat:a" } else { "seat:b" };
        let mut lease = held(&leases, &terms(&leases, name, "n1:1")).await;
        faulty.choose(move |_| fault);
        let unknown = |answer: Unknown| assert_eq!(answer.cause, Cause::Timeout, "{answer}");
        for other in ["seat:other", "node:other", "worker:other", name] {
            let claim = leases.claim(&terms(&leases, other, "n1:1")).await;
            unknown(claim.as_ref().unwrap_err().unknown().expect("unknown").clone());
            assert!(claim.fails_closed().unwrap().is_none(), "{other} is not held");
        }
        let bound = lease.good_until();
        unknown(leases.renew(&mut lease).await.unwrap_err());
        assert_eq!(lease.good_until(), bound, "an unknown renewal changes nothing about the lease");
        let again = leases.renew(&mut lease).await;
        assert_eq!(again.clone().holds(&lease, t.env.now()), Tenure::Held { until: bound }, "ambiguity is not loss");
        assert_eq!(again.holds(&lease, bound), Tenure::Over, "and it has its bound");
        unknown(leases.renew_with(&mut lease, serde_json::json!(1)).await.unwrap_err().unknown().unwrap().clone());
        for answer in leases.renew_all(&mut [lease.clone()]).await {
            unknown(answer.answer.unwrap_err());
        }
        unknown(leases.get(&resource(name)).await.unwrap_err());
        unknown(leases.get(&resource("worker:a")).await.unwrap_err());
        unknown(leases.list(&class("seat"), &Certified::Leader).await.unwrap_err());
        unknown(leases.list(&class("worker"), &Certified::Leader).await.unwrap_err());
        unknown(leases.owned(&class("seat"), "n1:1").await.unwrap_err());
        unknown(leases.hints(&class("seat")).await.unwrap_err());
        unknown(leases.older_protocol().await.unwrap_err());
        faulty.choose(|_| Fault::None);
        let answer = leases.renew(&mut lease).await;
        assert_eq!(answer.clone().unwrap(), Renew::Extended, "the lease was held all along");
        assert_eq!(answer.holds(&lease, t.env.now()), Tenure::Held { until: lease.good_until() });
        assert_eq!(Ok(Renew::Lost).holds(&lease, t.env.now()), Tenure::Over);
        faulty.choose(move |_| fault);
        unknown(leases.release(&lease).await.unwrap_err());
        faulty.choose(|_| Fault::None);
        // The release that was unknown may have been carried out.
        let _either = leases.release(&lease).await.unwrap();
        assert_eq!(direct.get(&resource(name)).await.unwrap(), None);
    }
}

/// A write whose answer is missing says that it may still land.
pub async fn an_unanswered_renewal_may_still_land<S: Store>(t: Fixture<S>) {
    let (faulty, leases, _direct) = pair(&t, |_| Fault::None).await;
    let mut lease = held(&leases, &terms(&leases, "seat:a", "n1:1")).await;
    faulty.choose(|_| Fault::DropReply);
    let unknown = leases.renew(&mut lease).await.unwrap_err();
    assert_eq!((unknown.op, &*unknown.resource, unknown.landing), ("renew", "seat:a", Landing::InFlight));
    faulty.choose(|_| Fault::None);
    assert_eq!(leases.renew(&mut lease).await.unwrap(), Renew::Extended, "the straggler was our own");
    assert_eq!(leases.release(&lease).await.unwrap(), Release::Released);
}

/// A claim that loses the answer to any one of its writes is unknown, and gives the resource back.
pub async fn a_claim_without_an_answer_gives_the_resource_back<S: Store>(t: Fixture<S>) {
    for kind in ["seat", "worker"] {
        for fault in [Fault::DropRequest, Fault::DropReply, Fault::Late(Duration::from_millis(60))] {
            for lost in 0..3 {
                let name = format!("{kind}:{lost}-{fault:?}");
                let mut writes = 0;
                let (faulty, leases, direct) = pair(&t, move |call| {
                    writes += usize::from(call.verb == Verb::Put);
                    if call.verb == Verb::Put && writes == lost + 1 { fault } else { Fault::None }
                })
                .await;
                let answer = leases.claim(&terms(&leases, &name, "n1:1")).await.unwrap_err();
                let unknown = answer.unknown().expect("unknown");
                assert_eq!((unknown.op, &*unknown.resource), ("claim", name.as_str()));
                let mut lease = peer_is_granted(&t, &direct, &name).await;
                eventually(&t.env, "the late write has arrived", || async {
                    (faulty.late_writes() == 0).then_some(())
                })
                .await;
                let view = direct.get(&resource(&name)).await.unwrap().expect("held");
                assert_eq!((view.owner.as_str(), view.epoch), ("peer:1", lease.epoch()), "{name}");
                assert_eq!(direct.renew(&mut lease).await.unwrap(), Renew::Extended, "{name}");
            }
        }
    }
}

/// A claim cancelled at any of 64 points leaves the owner's next claim granted, and then a peer's.
pub async fn an_abandoned_claim_leaves_the_next_one_granted<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    let (faulty, slow, _) = pair(&t, |_| Fault::None).await;
    // Every call is held back a little, so that a claim has many points to be cancelled at.
    faulty.choose(|_| Fault::Delay(Duration::from_micros(300)));
    let mut finished = 0;
    for point in 0..64_u32 {
        let name = format!("seat:s{point}");
        let ask = terms(&slow, &name, "n1:1");
        let mut claim = Box::pin(slow.claim(&ask));
        // A point is a poll, or for the later ones a moment: both the shortest and the longest claim are cut everywhere.
        let mut polls = 0;
        let cut = t.env.now() + Duration::from_micros(u64::from(point) * 150);
        let cancelled = std::future::poll_fn(|cx| match claim.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => {
                polls += 1;
                if polls > point { Poll::Ready(None) } else { Poll::Pending }
            }
        });
        let answer = t.env.within(cut, cancelled).await.unwrap_or(None);
        drop(claim);
        if let Some(answer) = answer {
            assert!(matches!(answer.unwrap(), Claim::Held(_)));
            finished += 1;
        }
        let mine = held(&leases, &terms(&leases, &name, "n1:1")).await;
        eventually(&t.env, "the tenure settles and is released", || async {
            // A give-back under way may end the tenure first; either way the resource is free afterwards.
            let _either = leases.release(&mine).await.unwrap();
            leases.get(&resource(&name)).await.unwrap().is_none().then_some(())
        })
        .await;
        peer_is_granted(&t, &leases, &name).await;
    }
    assert!(finished < 64, "some claims were cut");
}

/// A read from the past never turns a lease into a lost one.
pub async fn a_stale_read_is_unknown_and_never_lost<S: Store>(t: Fixture<S>) {
    let (faulty, leases, direct) = pair(&t, |_| Fault::None).await;
    let name = "seat:a";
    let mut lease = held(&leases, &terms(&leases, name, "n1:1")).await;
    leases.get(&resource(name)).await.unwrap();
    // The same tenure renewed elsewhere: this handle's revision is behind, so a renewal has to look.
    let mut twin = lease.clone();
    assert_eq!(direct.renew(&mut twin).await.unwrap(), Renew::Extended);
    leases.get(&resource(name)).await.unwrap();
    faulty.choose(|call| if call.verb == Verb::Read { Fault::Stale } else { Fault::None });
    let unknown = leases.renew(&mut lease).await.unwrap_err();
    assert!(matches!(unknown.cause, Cause::Stale { .. }), "{unknown}");
    faulty.choose(|_| Fault::None);
    assert_eq!(leases.renew(&mut lease).await.unwrap(), Renew::Extended);
}

/// Nor does one whose second look at a record is from the past too, or from before it.
pub async fn a_second_look_from_the_past_leaves_nobody_out<S: Store>(t: Fixture<S>) {
    let (faulty, leases, direct) = pair(&t, |_| Fault::None).await;
    let former = held(&direct, &terms(&direct, "node:a", "n1:1")).await;
    assert_eq!(direct.release(&former).await.unwrap(), Release::Released);
    leases.get(&resource("node:a")).await.unwrap();
    let holder = held(&direct, &terms(&direct, "node:a", "n2:1")).await;
    leases.get(&resource("node:a")).await.unwrap();
    for second in [Fault::Stale, Fault::Before] {
        faulty.choose(move |call| match call.verb {
            Verb::Pass => Fault::Stale,
            Verb::Read => second,
            _ => Fault::None,
        });
        let listed = leases.list(&class("node"), &Certified::Leader).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|view| (view.owner.as_str(), view.epoch)).collect();
        assert_eq!(listed, [("n2:1", holder.epoch())], "{second:?}");
    }
}

/// A listing whose values are from the past leaves out nobody who holds a lease.
pub async fn a_listing_from_the_past_leaves_nobody_out<S: Store>(t: Fixture<S>) {
    let (faulty, leases, direct) = pair(&t, |_| Fault::None).await;
    for name in ["seat:a", "node:a", "worker:a"] {
        let former = held(&direct, &terms(&direct, name, "n1:1")).await;
        assert_eq!(direct.release(&former).await.unwrap(), Release::Released);
        leases.get(&resource(name)).await.unwrap();
        let holder = held(&direct, &terms(&direct, name, "n2:1")).await;
        // From here on the past is known: that the lease is free.
        leases.get(&resource(name)).await.unwrap();
        faulty.choose(|call| if call.verb == Verb::Pass { Fault::Stale } else { Fault::None });
        let listed = leases.list(&class(resource(name).class()), &Certified::Leader).await.unwrap();
        let listed: Vec<_> =
            listed.iter().map(|view| (view.resource.name(), view.owner.as_str(), view.epoch)).collect();
        assert_eq!(listed, [(name, "n2:1", holder.epoch())]);
        faulty.choose(|_| Fault::None);
    }
}

/// One lost reply costs a renewal, not the lease.
pub async fn one_lost_reply_is_not_a_lost_lease<S: Store>(t: Fixture<S>) {
    let mut writes = 0;
    let (_faulty, leases, _) = pair(&t, move |call| {
        writes += usize::from(call.verb == Verb::Put);
        // The three writes of the claim, then the first renewal.
        if call.verb == Verb::Put && writes == 4 { Fault::DropReply } else { Fault::None }
    })
    .await;
    let mut lease = held(&leases, &terms(&leases, "seat:a", "n1:1")).await;
    let mut unknown = 0;
    for _ in 0..5 {
        match leases.renew(&mut lease).await {
            Ok(answer) => assert_eq!(answer, Renew::Extended),
            Err(_) => unknown += 1,
        }
    }
    assert_eq!(unknown, 1);
}

/// Whatever is lost, late, delayed or stale: no epoch is given to two owners, and no holder is told that it lost what is
/// still its own.
pub async fn no_fault_breaks_the_fence<S: Store>(t: Fixture<S>) {
    let odds =
        Odds { drop_request: 30, drop_reply: 30, late: 40, delay: 200, stale: 20, wait: Duration::from_millis(15) };
    for seed in 0..4_u64 {
        let name = format!("seat:s{seed}");
        let env = Env::seeded(seed);
        let given: Arc<Mutex<HashMap<u64, String>>> = Arc::default();
        // Opened before anything goes wrong.
        t.leases().await;
        let workers = (0..6).map(|worker| {
            let (given, env, name) = (given.clone(), env.clone(), name.clone());
            let (store, config) = (t.store.clone(), t.config());
            tasks::spawn(async move {
                let leases = Leases::open(env.clone(), &store, &config).await.expect("the buckets open");
                let faults = Faulty::seeded(store, env.clone(), odds);
                let faulty = Leases::open(env.clone(), &faults, &config).await;
                // The boot itself may meet a fault, and then says so.
                let faulty = match faulty {
                    Ok(faulty) => faulty,
                    Err(error) => return assert!(error.to_string().contains("unknown"), "{error}"),
                };
                let ask = Terms::new(resource(&name), format!("n{worker}:1"), leases.lease_ttl());
                for _ in 0..40 {
                    match faulty.claim(&ask).await {
                        Ok(Claim::Held(mut lease)) => {
                            let before = given.lock().insert(lease.epoch(), ask.owner.clone());
                            assert!(
                                before.is_none_or(|owner| owner == ask.owner),
                                "epoch {} given twice",
                                lease.epoch()
                            );
                            if let Ok(answer) = faulty.renew(&mut lease).await {
                                // Only this owner's own give-back may end it: nobody else claims what is held.
                                if answer == Renew::Lost {
                                    let stands = leases.get(&resource(&name)).await.unwrap();
                                    assert!(
                                        stands.is_none_or(|v| (v.owner, v.epoch) != (ask.owner.clone(), lease.epoch()))
                                    );
                                }
                            }
                            let _unknown_lapses_by_itself = faulty.release(&lease).await;
                        }
                        Ok(Claim::Refused(Refusal::Held { by, .. })) => assert_ne!(by, ask.owner, "a winner told no"),
                        Ok(Claim::Refused(other)) => panic!("{other}"),
                        Err(Error::Unknown(_)) => {}
                        Err(Error::BadArgument(error)) => panic!("{error}"),
                    }
                    env.sleep(env.jitter(Duration::from_millis(3))).await;
                }
            })
        });
        join_all(workers.map(tasks::Task::join)).await;
        assert!(!given.lock().is_empty(), "somebody held it");
    }
}

/// Of a hundred writes at one expectation exactly one is stored, every round.
pub async fn one_expectation_is_met_once<S: Store>(t: Fixture<S>) {
    use engine::store::{Bucket, BucketSpec, Put, Write};
    let spec = BucketSpec { name: format!("{}_x", t.prefix), age: None, raise_age: false, replicas: t.replicas };
    let bucket = t.store.open(&spec).await.unwrap();
    let key = resource("seat:a").key().clone();
    let mut stands = 0;
    for round in 0..20 {
        let writes = (0..100).map(|i| {
            let (bucket, key) = (bucket.clone(), key.clone());
            tasks::spawn(async move {
                let value = Write::Value(format!("{round}-{i}").into());
                bucket.put(&key, value, Expect::At(stands)).await.expect("a definite answer")
            })
        });
        let stored: Vec<u64> = join_all(writes.map(tasks::Task::join))
            .await
            .into_iter()
            .filter_map(|put| match put {
                Put::Stored(revision) => Some(revision),
                Put::Lost(_) => None,
            })
            .collect();
        assert_eq!(stored.len(), 1, "round {round}: {stored:?}");
        assert!(stored[0] > stands);
        stands = stored[0];
    }
}

/// A give-back that reads the record as it was before the claim goes on until it has seen the claim's own write.
pub async fn a_give_back_is_not_settled_by_the_past<S: Store>(t: Fixture<S>) {
    for name in ["seat:a", "worker:a"] {
        let (faulty, leases, direct) = pair(&t, |_| Fault::None).await;
        let former = held(&direct, &terms(&direct, name, "n0:1")).await;
        leases.get(&resource(name)).await.unwrap();
        assert_eq!(direct.release(&former).await.unwrap(), Release::Released);
        leases.get(&resource(name)).await.unwrap();
        // The winning write lands without its answer, and the first read after it is from the former holder's days.
        let (mut writes, mut reads) = (0, 0);
        faulty.choose(move |call| {
            writes += usize::from(call.verb == Verb::Put);
            reads += usize::from(call.verb == Verb::Read && call.bucket.ends_with("s") && writes > 1);
            match call.verb {
                Verb::Put if writes == 1 => Fault::DropReply,
                Verb::Read if writes > 1 && reads == 1 => Fault::Stale,
                _ => Fault::None,
            }
        });
        leases.claim(&terms(&leases, name, "n1:1")).await.unwrap_err();
        peer_is_granted(&t, &direct, name).await;
    }
}

/// A claim that lost to a later revision is not refused on the word of somebody who is behind that revision.
pub async fn a_lost_race_is_not_told_from_the_past<S: Store>(t: Fixture<S>) {
    let (faulty, leases, direct) = pair(&t, |_| Fault::None).await;
    let name = "seat:a";
    let former = held(&direct, &terms(&direct, name, "n0:1")).await;
    leases.get(&resource(name)).await.unwrap();
    assert_eq!(direct.release(&former).await.unwrap(), Release::Released);
    leases.get(&resource(name)).await.unwrap();
    let (mut writes, mut reads) = (0, 0);
    faulty.choose(move |call| {
        writes += usize::from(call.verb == Verb::Put);
        reads +=
            usize::from(call.verb == Verb::Read && call.about.starts_with("seat") && call.bucket.ends_with("leases"));
        if call.verb == Verb::Put && writes == 1 {
            // The rival is there first.
            before_it_goes_on(held(&direct, &terms(&direct, name, "n2:1")));
        }
        if call.verb == Verb::Read && reads == 2 { Fault::Stale } else { Fault::None }
    });
    let error = leases.claim(&terms(&leases, name, "n1:1")).await.expect_err("the former holder's record is no answer");
    assert!(matches!(error.unknown().expect("unknown").cause, Cause::Stale { .. }), "{error}");
}

/// An unknown renewal or release says that it may land where one of its writes may.
pub async fn an_unknown_after_a_doubtful_refusal_may_still_land<S: Store>(t: Fixture<S>) {
    use engine::store::{Bucket, BucketSpec};
    let (faulty, leases, _) = pair(&t, |_| Fault::None).await;
    let config = t.config();
    for name in ["seat:a", "worker:a"] {
        let mut lease = held(&leases, &terms(&leases, name, "n1:1")).await;
        let slot = if name == "seat:a" { &coordproto::slot::LEASES } else { &coordproto::slot::DUTIES };
        let spec = BucketSpec::of(slot, &config.prefix, config.lease_ttl, config.replicas);
        let bucket = t.store.open(&spec).await.unwrap();
        bucket.purge(resource(name).key(), u64::MAX - 1).await.unwrap();
        // "Nothing stands" may come from a member that is behind, while the leader stores the write.
        faulty.choose(|call| if call.verb == Verb::Read { Fault::DropRequest } else { Fault::None });
        let renewal = leases.renew(&mut lease).await.unwrap_err();
        assert_eq!((renewal.op, renewal.landing), ("renew", Landing::InFlight));
        let release = leases.release(&lease).await.unwrap_err();
        assert_eq!((release.op, release.landing), ("release", Landing::InFlight));
        faulty.choose(|_| Fault::None);
        assert_eq!(leases.renew(&mut lease).await.unwrap(), Renew::Lost);
    }
}

/// Two nodes that draw from one seed draw the same claim ids: the one's give-back does not release what the other holds.
pub async fn a_give_back_touches_no_other_owners_lease<S: Store>(t: Fixture<S>) {
    let open = async || {
        let env = Env::seeded(7);
        let faulty = Faulty::new(t.store.clone(), env.clone(), |_| Fault::None);
        (faulty.clone(), Leases::open(env, &faulty, &t.config()).await.expect("the buckets open"))
    };
    let ((faulty, one), (_, other)) = (open().await, open().await);
    let granted = Arc::new(Mutex::new(None));
    let (peer, grants, looked) = (other.clone(), granted.clone(), Arc::new(AtomicBool::new(false)));
    let (in_use, looks) = (Arc::downgrade(&grants), looked.clone());
    let mut writes = 0;
    faulty.choose(move |call| {
        writes += usize::from(call.verb == Verb::Put);
        match call.verb {
            Verb::Put if writes == 1 => return Fault::DropRequest,
            // The peer is there before the give-back.
            Verb::Put if writes == 2 => {
                *grants.lock() = Some(before_it_goes_on(held(&peer, &terms(&peer, "seat:a", "n2:1"))));
            }
            // It looks at what stands there.
            Verb::Read if writes == 2 => looks.store(true, Ordering::Relaxed),
            _ => {}
        }
        Fault::None
    });
    one.claim(&terms(&one, "seat:a", "n1:1")).await.unwrap_err();
    drop((one, faulty));
    eventually(&t.env, "the give-back is over", || async { (in_use.strong_count() == 1).then_some(()) }).await;
    assert!(looked.load(Ordering::Relaxed), "its release was refused");
    let mut lease = granted.lock().take().expect("the peer was granted");
    assert_eq!(other.renew(&mut lease).await.unwrap(), Renew::Extended);
}

/// Two claims of one owner at once: the one that lost the race, and then the answer to its own claim again, gives nothing
/// back of what the other was granted.
pub async fn a_give_back_spares_what_a_sibling_was_granted<S: Store>(t: Fixture<S>) {
    let (faulty, leases, direct) = pair(&t, |_| Fault::None).await;
    let ask = terms(&leases, "seat:a", "n1:1");
    let granted = Arc::new(Mutex::new(None));
    let (sibling, asks, grants) = (direct.clone(), ask.clone(), granted.clone());
    let in_use = Arc::downgrade(&grants);
    let mut writes = 0;
    faulty.choose(move |call| {
        writes += usize::from(call.verb == Verb::Put);
        match (call.verb, writes) {
            // The sibling is there first.
            (Verb::Put, 1) => *grants.lock() = Some(before_it_goes_on(held(&sibling, &asks))),
            (Verb::Put, 2) => return Fault::DropReply,
            _ => {}
        }
        Fault::None
    });
    let error = leases.claim(&ask).await.expect_err("the answer was lost");
    assert_eq!(error.unknown().expect("unknown").landing, Landing::InFlight);
    drop((leases, faulty));
    eventually(&t.env, "no give-back is under way", || async { (in_use.strong_count() == 1).then_some(()) }).await;
    let mut granted = granted.lock().take().expect("the sibling was granted");
    assert_eq!(direct.renew(&mut granted).await.unwrap(), Renew::Extended);
}
