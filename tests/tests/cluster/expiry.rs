//! How a lease whose holder died, stalls or is cut off comes to its end: at its TTL, on the broker's clock, and not before.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use coordproto::answer::Error;
use coordproto::api::requests::StreamConfig;
use engine::lease::{Claim, Lease, Leases, Refusal, Release, Renew, Terms};
use engine::store::Certified;
use engine::store::nats::Nats;
use futures_util::future::{join, join_all};
use tests::{Brokers, class, eventually, held, refused, resource, terms};

use crate::beside_others;

/// How much later than its TTL a lease may end. The broker looks for what has aged out every quarter of a second; the rest is
/// a loaded machine's.
const SLACK: Duration = Duration::from_secs(1);

/// A lease of each way to end: by the bucket's age, by its own deadline in that bucket, and by its own deadline.
fn one_of_each(ttl: Duration) -> [(&'static str, Duration); 4] {
    let short = ttl - Duration::from_millis(500);
    [("seat:full", ttl), ("seat:short", short), ("node:full", ttl), ("worker:duty", ttl)]
}

async fn open(brokers: &Brokers, prefix: &str, ttl: Duration) -> Leases<Nats> {
    brokers.leases(&brokers.store().await, &brokers.config(prefix, ttl)).await
}

/// Claims until granted, and fails when that is before `dead`'s holder had to stop or later than its TTL and the slack.
async fn inherit(brokers: &Brokers, leases: &Leases<Nats>, dead: &Lease, heir: &Terms) -> Lease {
    let refusals = Cell::new(0);
    let granted = eventually(&brokers.env, "the dead holder's lease is granted", || async {
        match leases.claim(heir).await {
            Ok(Claim::Held(lease)) => return Some(lease),
            Ok(Claim::Refused(Refusal::Held { by, .. })) => assert_eq!(by, dead.owner()),
            Ok(Claim::Refused(other)) => panic!("{other}"),
            // Between two leaders nobody answers.
            Err(Error::Unknown(_)) => return None,
            Err(Error::BadArgument(error)) => panic!("{error}"),
        }
        refusals.set(refusals.get() + 1);
        None
    });
    let granted = granted.await;
    let (now, ttl) = (brokers.env.now(), heir.ttl);
    let took = now.since(dead.confirmed());
    println!("{}: ttl {ttl:?}, granted to a peer after {took:?} and {} refusals", heir.resource, refusals.get());
    assert!(now >= dead.good_until(), "{}: granted {took:?} into a TTL of {ttl:?}", heir.resource);
    assert!(took <= ttl + SLACK, "{}: granted only {took:?} into a TTL of {ttl:?}", heir.resource);
    assert!(refusals.get() > 0 && granted.epoch() > dead.epoch());
    granted
}

#[test]
fn a_dead_holders_lease_is_granted_at_its_ttl_and_not_before() {
    beside_others(async |brokers| {
        let ttl = Duration::from_millis(2_500);
        let leases = open(brokers, "exact", ttl).await;
        let deaths = one_of_each(ttl).map(async |(name, ttl)| {
            let ask = |owner: &str| Terms::new(resource(name), owner, ttl);
            let mut dead = held(&leases, &ask("n1:1")).await;
            inherit(brokers, &leases, &dead, &ask("n2:1")).await;
            assert_eq!(leases.renew(&mut dead).await.unwrap(), Renew::Lost, "{name}");
            assert_eq!(leases.release(&dead).await.unwrap(), Release::NotHeld, "{name}");
        });
        join_all(deaths).await;
    });
}

/// A peer that only lists, as a node does on every tick.
#[test]
fn a_dead_node_is_off_the_list_once_its_ttl_has_passed() {
    beside_others(async |brokers| {
        let ttl = Duration::from_secs(2);
        let leases = open(brokers, "presence", ttl).await;
        let dead = held(&leases, &terms(&leases, "node:n1", "n1:1")).await;
        let mut alive = held(&leases, &terms(&leases, "node:n2", "n2:1")).await;
        let took = loop {
            let began = brokers.env.now();
            assert_eq!(leases.renew(&mut alive).await.unwrap(), Renew::Extended);
            let nodes = leases.list(&class("node"), &Certified::Leader).await.unwrap();
            let listed = |name: &str| nodes.iter().any(|view| view.resource.name() == name);
            assert!(listed("node:n2"), "a node that renews is listed");
            if !listed("node:n1") {
                break brokers.env.now().since(dead.confirmed());
            }
            assert!(began.since(dead.confirmed()) <= ttl + SLACK, "still listed");
            brokers.env.sleep(Duration::from_millis(50)).await;
        };
        println!("ttl {ttl:?}, off the list after {took:?}");
        assert!(took >= ttl);
    });
}

#[test]
fn changes_of_leader_do_not_prolong_a_dead_holders_lease() {
    beside_others(async |brokers| {
        let ttl = Duration::from_secs(3);
        let leases = open(brokers, "deposed", ttl).await;
        let dead = held(&leases, &terms(&leases, "seat:a", "n1:1")).await;
        // The last one comes late enough that a TTL which starts again with it would be told from one that does not.
        let mut leaders = vec![brokers.leader("KV_deposed_leases").await.name()];
        for change in 1..=3 {
            brokers.env.sleep_until(dead.confirmed() + ttl / 4 * change).await;
            eventually(&brokers.env, "the leader steps down", || async {
                brokers.step_down("KV_deposed_leases").await.then_some(())
            })
            .await;
            leaders.push(brokers.leader("KV_deposed_leases").await.name());
        }
        println!("leaders: {leaders:?}");
        assert!(leaders.windows(2).any(|pair| pair[0] != pair[1]), "the leader changed: {leaders:?}");
        assert!(brokers.env.now() < dead.good_until(), "the machine was too slow to say anything");
        inherit(brokers, &leases, &dead, &terms(&leases, "seat:a", "n2:1")).await;
    });
}

#[test]
fn a_release_of_a_lapsed_lease_touches_nothing() {
    beside_others(async |brokers| {
        let ttl = Duration::from_millis(1_500);
        let leases = open(brokers, "late", ttl).await;
        let releases = one_of_each(ttl).map(async |(name, ttl)| {
            let lapse = async |name: &str, owner: &str| {
                let lease = held(&leases, &Terms::new(resource(name), owner, ttl)).await;
                eventually(&brokers.env, "the lease lapses", || async {
                    leases.get(&resource(name)).await.unwrap().is_none().then_some(())
                })
                .await;
                lease
            };
            let (taken, alone) = (name.to_owned(), format!("{name}-alone"));
            let (former, lapsed) = join(lapse(&taken, "n1:1"), lapse(&alone, "n1:1")).await;
            assert_eq!(leases.release(&lapsed).await.unwrap(), Release::NotHeld, "{alone}");
            assert_eq!(leases.get(&resource(&alone)).await.unwrap(), None, "{alone}");
            held(&leases, &Terms::new(resource(&taken), "n2:1", ttl)).await;
            let before = leases.get(&resource(&taken)).await.unwrap();
            assert_eq!(leases.release(&former).await.unwrap(), Release::NotHeld, "{taken}");
            assert_eq!(leases.get(&resource(&taken)).await.unwrap(), before, "{taken}: the peer's is untouched");
        });
        join_all(releases).await;
    });
}

/// A broker that is late to sweep, or that came back and begins an age anew: the record reads as held, and its former holder,
/// past its own bound, neither takes it up again nor leaves it standing.
#[test]
fn a_record_that_outlives_its_ttl_is_lost_to_its_holder_and_free_for_the_next() {
    beside_others(async |brokers| {
        let store = brokers.store().await;
        let leases = brokers.leases(&store, &brokers.config("unswept", Duration::from_secs(1))).await;
        let (js, stream) = (store.jetstream(), "KV_unswept_leases");
        let info = js.info(stream, None, js.deadline()).await.unwrap().expect("the stream");
        let later = StreamConfig { max_age: Duration::from_secs(600), ..info.config().unwrap() };
        js.update_stream(&later, js.deadline()).await.unwrap();

        for end in ["renew", "release"] {
            let name = format!("seat:{end}");
            let mut former = held(&leases, &terms(&leases, &name, "n1:1")).await;
            brokers.env.sleep_until(former.good_until()).await;
            let peer = terms(&leases, &name, "n2:1");
            refused(&leases, &peer).await;
            if end == "renew" {
                assert_eq!(leases.renew(&mut former).await.unwrap(), Renew::Lost);
            } else {
                assert_eq!(leases.release(&former).await.unwrap(), Release::NotHeld);
            }
            assert_eq!(held(&leases, &peer).await.epoch(), former.epoch() + 1, "{name}");
        }
    });
}

/// Two processes that were given the same node id. What tells them apart is drawn at their start.
#[test]
fn a_twin_of_the_same_node_id_renews_nothing() {
    beside_others(async |brokers| {
        let ttl = Duration::from_millis(1_500);
        let (first, twin) = (open(brokers, "twins", ttl).await, open(brokers, "twins", ttl).await);
        let mut own = held(&first, &terms(&first, "node:n1", "n1:5eed")).await;
        let mine = terms(&twin, "node:n1", "n1:f00d");
        let told = refused(&twin, &mine).await;
        assert_eq!(told, Refusal::Held { by: "n1:5eed".to_owned(), epoch: Some(own.epoch()) });
        assert_eq!(first.renew(&mut own).await.unwrap(), Renew::Extended, "the refusal changed nothing");
        let mut twins = inherit(brokers, &twin, &own, &mine).await;
        assert_eq!(first.renew(&mut own).await.unwrap(), Renew::Lost, "a node id alone renews nothing");
        assert_eq!(first.release(&own).await.unwrap(), Release::NotHeld);
        assert_eq!(twin.renew(&mut twins).await.unwrap(), Renew::Extended);
    });
}

/// A process that stands still between any two steps of its claim or its renewal, for longer than the lease lasts: what it is
/// told when it goes on is not a lease that has ended already.
#[test]
fn a_holder_that_stood_still_is_never_given_a_lease_of_the_past() {
    beside_others(async |brokers| {
        let ttl = Duration::from_millis(600);
        let leases = open(brokers, "stalled", ttl).await;
        let stalls = (1..=8_u32).flat_map(|point| ["seat", "worker"].map(|kind| (point, format!("{kind}:s{point}"))));
        let stalls = stalls.map(async |(point, name)| {
            let ask = terms(&leases, &name, "n1:1");
            let claim = stalling(brokers, point, ttl * 2, leases.claim(&ask)).await.expect("a definite answer");
            let Claim::Held(mut lease) = claim else { panic!("{name}: nobody else claims it") };
            assert!(brokers.env.now() < lease.good_until(), "{name}, stalled at step {point} of a claim");
            let renewal = stalling(brokers, point, ttl * 2, leases.renew(&mut lease)).await.expect("a definite answer");
            if renewal == Renew::Extended {
                assert!(brokers.env.now() < lease.good_until(), "{name}, stalled at step {point} of a renewal");
            }
        });
        join_all(stalls).await;
    });
}

/// Runs `work`, which is not looked at for `stall` once it has made `point` steps.
async fn stalling<F: Future>(brokers: &Brokers, point: u32, stall: Duration, work: F) -> F::Output {
    let mut work = Box::pin(work);
    let mut steps = 0;
    let stopped = poll_fn(|cx| {
        if steps == point {
            return Poll::Ready(None);
        }
        steps += 1;
        work.as_mut().poll(cx).map(Some)
    });
    match stopped.await {
        Some(done) => done,
        None => {
            brokers.env.sleep(stall).await;
            work.await
        }
    }
}
