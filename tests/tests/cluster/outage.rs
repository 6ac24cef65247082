//! Every broker away, frozen or killed, and back with its data.

use std::cell::Cell;
use std::time::Duration;

use coordproto::answer::Unknown;
use engine::lease::{Claim, Lease, Leases, Refusal, Release, Renew, Terms};
use engine::store::Certified;
use engine::store::nats::Nats;
use futures_util::future::join_all;
use tests::{Brokers, class, held, refused, resource, terms};

use crate::{alone, claimed, definite, renewed};

/// The longest that a verb may keep its caller waiting when nobody answers: a listing's own bound of some 10 s, the time to
/// notice, and what a busy machine adds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks everything at once, of a lease that is held and of things that are not.
async fn every_verb_is_unknown(brokers: &Brokers, leases: &Leases<Nats>, lease: &Lease) {
    let no = |unknown: Option<Unknown>, what: &str| println!("{what}: {}", unknown.expect("unknown"));
    let began = brokers.env.now();
    let claim = async {
        for name in [lease.resource().name(), "seat:new", "node:new", "worker:new"] {
            let answer = leases.claim(&terms(leases, name, lease.owner())).await;
            no(answer.expect_err("nobody answers").unknown().cloned(), name);
        }
    };
    let renew = async {
        let (mut renewed, mut again) = (lease.clone(), lease.clone());
        no(leases.renew(&mut renewed).await.err(), "renew");
        let with = leases.renew_with(&mut again, serde_json::json!(1)).await;
        no(with.expect_err("nobody answers").unknown().cloned(), "renew with");
        for renewal in leases.renew_all(&mut [lease.clone()]).await {
            no(renewal.answer.err(), "renew all");
        }
        assert_eq!(renewed.good_until(), lease.good_until(), "an unknown renewal changes nothing");
    };
    let read = async {
        no(leases.get(lease.resource()).await.err(), "get");
        no(leases.get(&resource("worker:new")).await.err(), "get a duty");
        no(leases.older_protocol().await.err(), "older protocol");
    };
    let list = async {
        no(leases.list(&class("seat"), &Certified::Leader).await.err(), "list");
        no(leases.owned(&class("worker"), "n1:1").await.err(), "owned");
        no(leases.hints(&class("seat")).await.err(), "hints");
    };
    let release = async { no(leases.release(lease).await.err(), "release") };
    let all = Box::pin(join_all([
        Box::pin(claim) as std::pin::Pin<Box<dyn Future<Output = ()>>>,
        Box::pin(renew),
        Box::pin(read),
        Box::pin(list),
        Box::pin(release),
    ]));
    brokers.env.within(began + PATIENCE, all).await.expect("the waiting is bounded");
    println!("every verb was unknown within {:?}", brokers.env.now().since(began));
}

#[test]
fn an_outage_of_every_broker_is_unknown_and_afterwards_no_epoch_comes_twice() {
    alone(3, async |brokers| {
        let store = brokers.store().await;
        let ttl = Duration::from_secs(3);
        let short = brokers.leases(&store, &brokers.config("short", ttl)).await;
        let long = brokers.leases(&store, &brokers.config("long", Duration::from_secs(600))).await;
        let hold = async |leases: &Leases<Nats>, names: Vec<String>| {
            let asks: Vec<Terms> =
                names.iter().map(|name| Terms::new(resource(name), "n1:1", leases.lease_ttl())).collect();
            join_all(asks.iter().map(|ask| held(leases, ask))).await
        };
        let lasting = hold(&long, (0..100).map(|i| format!("seat:s{i}")).collect()).await;
        let ending = ["seat:a", "seat:b", "node:n1", "worker:a", "worker:b"].map(str::to_owned);
        let ending = hold(&short, ending.to_vec()).await;

        for member in brokers.members() {
            member.pause().await.expect("paused");
        }
        every_verb_is_unknown(brokers, &long, &lasting[0]).await;
        join_all(brokers.members().iter().map(async |member| member.kill().await.expect("killed"))).await;
        every_verb_is_unknown(brokers, &long, &lasting[0]).await;
        let last = ending.iter().map(Lease::good_until).max().expect("some");
        brokers.env.sleep_until(last).await;
        brokers.start_the_rest().await;

        // Those whose TTL was shorter than the outage: the holder's first call is a renewal at the revision that it knows.
        let lost = ending.into_iter().map(async |lease| {
            let (answer, lease) = renewed(brokers, &short, lease).await;
            assert_eq!(answer, Renew::Lost, "{}", lease.resource());
            let ask = Terms::new(lease.resource().clone(), "n1:1", short.lease_ttl());
            let Claim::Held(again) = claimed(brokers, &short, &ask).await else { panic!("nobody else claims it") };
            assert!(again.epoch() > lease.epoch(), "{}", lease.resource());
        });
        join_all(lost).await;

        // Those whose TTL was longer: held all along, and handed on at a new epoch.
        let kept = lasting.into_iter().map(async |lease| {
            let name = lease.resource().name().to_owned();
            let (answer, lease) = renewed(brokers, &long, lease).await;
            assert_eq!(answer, Renew::Extended, "{name}");
            let view = definite(brokers, async || long.get(lease.resource()).await).await.expect("held");
            assert_eq!((view.owner.as_str(), view.epoch), ("n1:1", lease.epoch()), "{name}");
            let peer = terms(&long, &name, "n2:1");
            let Claim::Refused(refusal) = claimed(brokers, &long, &peer).await else { panic!("{name} is held") };
            assert_eq!(refusal, Refusal::Held { by: "n1:1".to_owned(), epoch: Some(lease.epoch()) });
            let in_doubt = Cell::new(false);
            let release = async || long.release(&lease).await.inspect_err(|_| in_doubt.set(true));
            let told = definite(brokers, release).await;
            // One without an answer may have landed, and is not held when it is asked for again.
            assert!(told == Release::Released || in_doubt.get() && told == Release::NotHeld, "{name}: {told:?}");
            let Claim::Held(next) = claimed(brokers, &long, &peer).await else { panic!("{name} was released") };
            assert!(next.epoch() > lease.epoch(), "{name}");
        });
        join_all(kept).await;
    });
}

/// One broker, one copy. Whatever a kill brings back of a released lease is of a past tenure, and its former holder can do
/// nothing with it.
#[test]
fn what_a_killed_broker_brings_back_is_below_the_fence() {
    alone(1, async |brokers| {
        let leases = brokers.leases(&brokers.store().await, &brokers.config("one", Duration::from_secs(600))).await;
        let names = ["seat", "node", "worker"].iter().flat_map(|kind| (0..10).map(move |i| format!("{kind}:s{i}")));
        let mut former = Vec::new();
        for name in names {
            let ask = Terms::new(resource(&name), "n1:1", leases.lease_ttl());
            let lease = held(&leases, &ask).await;
            // Every other one at a later tenure.
            let lease = if former.len() % 2 == 0 {
                lease
            } else {
                assert_eq!(leases.release(&lease).await.unwrap(), Release::Released);
                held(&leases, &ask).await
            };
            former.push(lease);
        }
        let kept = held(&leases, &terms(&leases, "seat:kept", "n1:1")).await;
        for answer in join_all(former.iter().map(|lease| leases.release(lease))).await {
            assert_eq!(answer.unwrap(), Release::Released);
        }
        brokers.members()[0].kill().await.expect("killed");
        brokers.start_the_rest().await;

        let listed = definite(brokers, async || leases.list(&class("seat"), &Certified::Leader).await).await;
        let names: Vec<&str> = listed.iter().map(|view| view.resource.name()).collect();
        println!("back after the kill: {names:?}");
        for lease in former {
            let name = lease.resource().name().to_owned();
            let back = definite(brokers, async || leases.get(lease.resource()).await).await;
            let (answer, lease) = renewed(brokers, &leases, lease).await;
            assert_eq!(answer, Renew::Lost, "{name} came back as {back:?}");
            let ask = terms(&leases, &name, "n2:1");
            let Claim::Held(mut peers) = claimed(brokers, &leases, &ask).await else { panic!("{name}: {back:?}") };
            assert!(peers.epoch() > lease.epoch(), "{name}");
            assert!(back.is_none_or(|back| back.epoch < peers.epoch()), "{name}");
            let before = leases.get(lease.resource()).await.unwrap();
            assert_eq!(renewed(brokers, &leases, lease.clone()).await.0, Renew::Lost, "{name}");
            assert_eq!(leases.release(&lease).await.unwrap(), Release::NotHeld, "{name}");
            assert_eq!(leases.get(lease.resource()).await.unwrap(), before, "{name}: the peer's is untouched");
            assert_eq!(leases.renew(&mut peers).await.unwrap(), Renew::Extended, "{name}");
        }
        let (answer, kept) = renewed(brokers, &leases, kept).await;
        assert_eq!((answer, kept.epoch()), (Renew::Extended, 1), "what was held is held still");
        let told = refused(&leases, &terms(&leases, "seat:kept", "n2:1")).await;
        assert_eq!(told, Refusal::Held { by: "n1:1".to_owned(), epoch: Some(1) });
    });
}
