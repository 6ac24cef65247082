//! How a lease whose holder died, stalls or is cut off comes to its end: at its TTL, on the broker's clock, and not before.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use coordproto::answer::Error;
use coordproto::api::requests::StreamConfig;
use engine::env::Mono;
use engine::lease::{Claim, Lease, Leases, Refusal, Release, Renew, Terms};
use engine::store::Certified;
use engine::store::nats::Nats;
use futures_util::future::{join, join_all};
use tests::{Brokers, class, eventually, held, refused, resource, terms};

use crate::{beside_others, definite, renewed, still_held};

/// How much later than its TTL a lease may end. The broker looks for what has aged out every quarter of a second; the rest is
/// a loaded machine's.
const SLACK: Duration = Duration::from_secs(3);

/// How often what a slow machine says nothing about is begun anew.
const ATTEMPTS: u32 = 5;

/// A lease of each way to end: by the bucket's age, by its own deadline in that bucket, and by its own deadline.
fn one_of_each(ttl: Duration) -> [(&'static str, Duration); 4] {
    let short = ttl - Duration::from_millis(500);
    [("seat:full", ttl), ("seat:short", short), ("node:full", ttl), ("worker:duty", ttl)]
}

async fn open(brokers: &Brokers, prefix: &str, ttl: Duration) -> Leases<Nats> {
    brokers.leases(&brokers.store().await, &brokers.config(prefix, ttl)).await
}

/// A lease whose holder says nothing more.
struct Dead {
    lease: Lease,
    ttl: Duration,
    /// When it has lapsed at the latest, but for the slack: its TTL after the broker had said that it stored it.
    lapses: Mono,
}

impl Dead {
    /// What its holder was told just now.
    fn now(brokers: &Brokers, lease: Lease, ttl: Duration) -> Dead {
        Dead { lease, ttl, lapses: brokers.env.now() + ttl }
    }

    /// Claims until granted, and fails when that is before its holder had to stop, or is refused later than its TTL and the
    /// slack. Answers how often it was refused too.
    async fn inherited(&self, brokers: &Brokers, leases: &Leases<Nats>, heir: &Terms) -> (Lease, u32) {
        let (refusals, name, ttl) = (Cell::new(0), &heir.resource, self.ttl);
        let since = |at: Mono| at.since(self.lease.confirmed());
        let granted = eventually(&brokers.env, "the dead holder's lease is granted", || async {
            let asked = brokers.env.now();
            match leases.claim(heir).await {
                Ok(Claim::Held(lease)) => return Some(lease),
                Ok(Claim::Refused(Refusal::Held { by, .. })) => assert_eq!(by, self.lease.owner()),
                Ok(Claim::Refused(other)) => panic!("{other}"),
                // Between two leaders nobody answers.
                Err(Error::Unknown(_)) => return None,
                Err(Error::BadArgument(error)) => panic!("{error}"),
            }
            assert!(asked <= self.lapses + SLACK, "{name}: refused {:?} into a TTL of {ttl:?}", since(asked));
            refusals.set(refusals.get() + 1);
            None
        });
        let granted = granted.await;
        let now = brokers.env.now();
        println!("{name}: ttl {ttl:?}, granted to a peer after {:?} and {} refusals", since(now), refusals.get());
        assert!(now >= self.lease.good_until(), "{name}: granted {:?} into a TTL of {ttl:?}", since(now));
        assert!(granted.epoch() > self.lease.epoch());
        (granted, refusals.get())
    }
}

#[test]
fn a_dead_holders_lease_is_granted_at_its_ttl_and_not_before() {
    beside_others(async |brokers| {
        let ttl = Duration::from_millis(2_500);
        let leases = open(brokers, "exact", ttl).await;
        let deaths = one_of_each(ttl).map(async |(name, ttl)| {
            // One whose heir came late says nothing about what would have been too soon.
            for attempt in 0..ATTEMPTS {
                let name = format!("{name}-{attempt}");
                let ask = |owner: &str| Terms::new(resource(&name), owner, ttl);
                let mut dead = Dead::now(brokers, held(&leases, &ask("n1:1")).await, ttl);
                let (_, refusals) = dead.inherited(brokers, &leases, &ask("n2:1")).await;
                assert_eq!(leases.renew(&mut dead.lease).await.unwrap(), Renew::Lost, "{name}");
                assert_eq!(leases.release(&dead.lease).await.unwrap(), Release::NotHeld, "{name}");
                if refusals > 0 {
                    return;
                }
            }
            panic!("{name}: the machine was too slow to say anything");
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
        let dead = Dead::now(brokers, held(&leases, &terms(&leases, "node:n1", "n1:1")).await, ttl);
        let mut alive = held(&leases, &terms(&leases, "node:n2", "n2:1")).await;
        loop {
            alive = still_held(brokers, &leases, alive).await;
            let asked = brokers.env.now();
            let nodes = definite(brokers, async || leases.list(&class("node"), &Certified::Leader).await).await;
            let now = brokers.env.now();
            let listed = |name: &str| nodes.iter().any(|view| view.resource.name() == name);
            assert!(listed("node:n2") || now >= alive.good_until(), "a node that renews is listed");
            if !listed("node:n1") {
                println!("ttl {ttl:?}, off the list after {:?}", now.since(dead.lease.confirmed()));
                assert!(now >= dead.lease.good_until(), "off the list before its time");
                return;
            }
            assert!(asked <= dead.lapses + SLACK, "still listed");
            brokers.env.sleep(Duration::from_millis(50)).await;
        }
    });
}

#[test]
fn changes_of_leader_do_not_prolong_a_dead_holders_lease() {
    beside_others(async |brokers| {
        // A TTL that starts again with the last change of leader is told from one that does not.
        let ttl = Duration::from_secs(6);
        let leases = open(brokers, "deposed", ttl).await;
        for attempt in 0..ATTEMPTS {
            let name = format!("seat:a{attempt}");
            let dead = Dead::now(brokers, held(&leases, &terms(&leases, &name, "n1:1")).await, ttl);
            let mut leaders = vec![brokers.leader("KV_deposed_leases").await.name()];
            for change in 1..=3 {
                brokers.env.sleep_until(dead.lease.confirmed() + ttl / 4 * change).await;
                eventually(&brokers.env, "the leader steps down", || async {
                    brokers.step_down("KV_deposed_leases").await.then_some(())
                })
                .await;
                leaders.push(brokers.leader("KV_deposed_leases").await.name());
            }
            println!("leaders: {leaders:?}");
            let in_time = brokers.env.now() < dead.lease.good_until();
            let changed = leaders.windows(2).any(|pair| pair[0] != pair[1]);
            dead.inherited(brokers, &leases, &terms(&leases, &name, "n2:1")).await;
            if in_time && changed {
                return;
            }
        }
        panic!("no leader changed in time: the machine was too slow to say anything");
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
                    definite(brokers, async || leases.get(&resource(name)).await).await.is_none().then_some(())
                })
                .await;
                lease
            };
            let (taken, alone) = (name.to_owned(), format!("{name}-alone"));
            let (former, lapsed) = join(lapse(&taken, "n1:1"), lapse(&alone, "n1:1")).await;
            assert_eq!(leases.release(&lapsed).await.unwrap(), Release::NotHeld, "{alone}");
            assert_eq!(leases.get(&resource(&alone)).await.unwrap(), None, "{alone}");
            // The peer's lease lapses like every other, and then there is nothing that could be touched.
            for _ in 0..ATTEMPTS {
                let peers = held(&leases, &Terms::new(resource(&taken), "n2:1", ttl)).await;
                let before = leases.get(&resource(&taken)).await.unwrap();
                assert_eq!(leases.release(&former).await.unwrap(), Release::NotHeld, "{taken}");
                let after = leases.get(&resource(&taken)).await.unwrap();
                if brokers.env.now() < peers.good_until() {
                    assert!(before.is_some(), "{taken}: the peer holds it");
                    assert_eq!(after, before, "{taken}: the peer's is untouched");
                    return;
                }
            }
            panic!("{taken}: the machine was too slow to say anything");
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
        let ttl = Duration::from_secs(3);
        let (first, twin) = (open(brokers, "twins", ttl).await, open(brokers, "twins", ttl).await);
        for attempt in 0..ATTEMPTS {
            let name = format!("node:n{attempt}");
            let own = held(&first, &terms(&first, &name, "n1:5eed")).await;
            let (epoch, until) = (own.epoch(), own.good_until());
            let mine = terms(&twin, &name, "n1:f00d");
            let told = twin.claim(&mine).await.unwrap();
            let (renewed, own) = renewed(brokers, &first, own).await;
            let mut own = Dead::now(brokers, own, ttl);
            if brokers.env.now() >= until {
                // Whatever was told, it may have lapsed by then.
                continue;
            }
            let Claim::Refused(told) = told else { panic!("{name}: granted to a twin of its holder") };
            assert_eq!(told, Refusal::Held { by: "n1:5eed".to_owned(), epoch: Some(epoch) });
            assert_eq!(renewed, Renew::Extended, "the refusal changed nothing");
            let (mut twins, _) = own.inherited(brokers, &twin, &mine).await;
            assert_eq!(first.renew(&mut own.lease).await.unwrap(), Renew::Lost, "a node id alone renews nothing");
            assert_eq!(first.release(&own.lease).await.unwrap(), Release::NotHeld);
            let until = twins.good_until();
            let answer = twin.renew(&mut twins).await.unwrap();
            if brokers.env.now() < until {
                assert_eq!(answer, Renew::Extended);
                return;
            }
        }
        panic!("the machine was too slow to say anything");
    });
}

/// A process that stands still between any two steps of its claim or its renewal, for longer than the lease lasts: what it is
/// told when it goes on is not a lease that has ended already.
#[test]
fn a_holder_that_stood_still_is_never_given_a_lease_of_the_past() {
    beside_others(async |brokers| {
        let ttl = Duration::from_secs(2);
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
