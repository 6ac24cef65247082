//! A storm of claims while a follower of the leases is restarted, with watches open that nobody looks at meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use coordproto::answer::Unknown;
use coordproto::slot::LEASES;
use engine::lease::{Claim, Lease, Leases, Refusal, Renew, Terms};
use engine::store::nats::{Nats, NatsBucket, NatsPass};
use engine::store::{BucketSpec, Certified, Store, Watch};
use futures_util::future::{join, join_all};
use parking_lot::Mutex;
use tests::{Brokers, class, eventually, held, resource, terms, watch};

use crate::{alone, claimed, definite, renewed};

const PREFIX: &str = "storm";
const STREAM: &str = "KV_storm_leases";
const TTL: Duration = Duration::from_secs(600);

const CLAIMERS: usize = 100;
/// How many seats each of them claims; every seat has two claimers, at different members.
const EACH: usize = 40;
const SEATS: usize = CLAIMERS * EACH / 2;
/// How long a watch may take to deliver what was missed, or to say that it cannot.
const NEWS_WITHIN: Duration = Duration::from_secs(30);

/// A node connected to one member and no other.
struct Node {
    leases: Leases<Nats>,
    bucket: NatsBucket,
}

impl Node {
    async fn watch(&self) -> Watch<NatsPass> {
        watch(&self.bucket, "seat").await.expect("nothing is failing")
    }
}

/// Who was granted which seat.
type Winners = Arc<Mutex<HashMap<String, Lease>>>;

/// Claims one seat until there is an answer. A winner's lease is looked at through another member at once, and again once it
/// was renewed.
async fn contend(brokers: &Brokers, own: &Node, other: &Node, ask: &Terms, winners: &Winners) {
    let name = ask.resource.name();
    let lease = match claimed(brokers, &own.leases, ask).await {
        Claim::Held(lease) => lease,
        Claim::Refused(Refusal::Held { by, .. }) => return assert_ne!(by, ask.owner, "{name}: a winner was told no"),
        Claim::Refused(other) => panic!("{other}"),
    };
    let before = winners.lock().insert(name.to_owned(), lease.clone());
    assert!(before.is_none(), "{name}: two winners, {before:?} and {lease:?}");
    let seen = async || {
        let view = definite(brokers, async || other.leases.get(&ask.resource).await).await;
        let view = view.unwrap_or_else(|| panic!("{name}: held, and read as free"));
        assert_eq!((view.owner, view.epoch), (ask.owner.clone(), lease.epoch()), "{name}");
        view.revision
    };
    let acknowledged = seen().await;
    let (answer, _) = renewed(brokers, &own.leases, lease.clone()).await;
    assert_eq!(answer, Renew::Extended, "{name}");
    assert!(seen().await > acknowledged, "{name}: a renewal was acknowledged, and the read is older");
}

#[test]
fn a_follower_restarted_under_a_storm_of_claims_costs_nobody_a_seat() {
    alone(3, async |brokers| {
        let config = brokers.config(PREFIX, TTL);
        let spec = BucketSpec::of(&LEASES, PREFIX, TTL, config.replicas);
        let mut nodes = Vec::new();
        for member in brokers.members() {
            let store = brokers.store_at(member).await;
            let leases = brokers.leases(&store, &config).await;
            nodes.push(Node { leases, bucket: store.open(&spec).await.expect("the bucket opens") });
        }
        let mut watches = Vec::new();
        for node in nodes.iter().chain(&nodes) {
            watches.push((node, node.watch().await));
        }

        let winners = Winners::default();
        let claimers = (0..CLAIMERS).map(|claimer| {
            let (nodes, winners) = (&nodes, &winners);
            async move {
                for n in 0..EACH {
                    let name = format!("seat:s{:04}", (claimer * EACH / 2 + n) % SEATS);
                    let (own, other) = (&nodes[claimer % 3], &nodes[(claimer + 1) % 3]);
                    contend(brokers, own, other, &terms(&own.leases, &name, &format!("n{claimer}:1")), winners).await;
                }
            }
        });
        let restarts = async {
            let leader = brokers.leader(STREAM).await.index();
            let follower = &brokers.members()[(leader + 1) % 3];
            let mut restarts = 0;
            // Again with every tenth of the seats that was won, until three quarters were.
            for won in (SEATS / 10..SEATS * 3 / 4).step_by(SEATS / 10) {
                eventually(&brokers.env, "the storm is on", async || (winners.lock().len() > won).then_some(())).await;
                follower.restart().await.expect("restarted");
                restarts += 1;
            }
            restarts
        };
        let began = brokers.env.now();
        let (restarts, _) = join(restarts, join_all(claimers)).await;
        let took = brokers.env.now().since(began);
        println!("{} claims for {SEATS} seats in {took:?}, {restarts} restarts meanwhile", CLAIMERS * EACH);
        assert!(restarts > 0, "a follower was restarted");

        let listed = definite(brokers, async || nodes[0].leases.list(&class("seat"), &Certified::Leader).await).await;
        let listed: HashMap<_, _> =
            listed.into_iter().map(|v| (v.resource.name().to_owned(), (v.owner, v.epoch))).collect();
        let won: HashMap<_, _> =
            winners.lock().iter().map(|(name, l)| (name.clone(), (l.owner().to_owned(), l.epoch()))).collect();
        assert_eq!(listed.len(), SEATS, "a listing is never short");
        // It may tell a tenure before the last one, from a member that is behind. The leader may not.
        for (name, winner) in won.iter().filter(|(name, winner)| listed.get(*name) != Some(winner)) {
            let view = definite(brokers, async || nodes[0].leases.get(&resource(name)).await).await.expect("held");
            assert_eq!((&view.owner, view.epoch), (&winner.0, winner.1), "{name} has one winner, who holds it");
        }

        // Every watch was open throughout, and nobody looked at it.
        let last = held(&nodes[1].leases, &terms(&nodes[1].leases, "seat:last", "n1:1")).await;
        let mut ended = 0;
        for (node, mut watch) in watches {
            let news = brokers.env.within(brokers.env.now() + NEWS_WITHIN, until_last(&mut watch, &last)).await;
            if news.expect("a watch is never silent about what it missed").is_err() {
                ended += 1;
                let again = node.watch().await.listing;
                assert_eq!(again.entries.len(), SEATS + 1, "opened again, it begins with everything");
            }
        }
        println!("{ended} of 6 watches ended");
        eventually(&brokers.env, "no consumer is left behind", || async {
            (brokers.consumers(STREAM).await? == 0).then_some(())
        })
        .await;
    });
}

/// Takes changes until the watch delivers this lease, or ends.
async fn until_last(watch: &mut Watch<NatsPass>, last: &Lease) -> Result<(), Unknown> {
    while watch.changes.next().await?.0 != *last.resource().key() {}
    Ok(())
}
