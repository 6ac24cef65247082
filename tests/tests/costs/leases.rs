//! The verbs of the leases.

use std::time::Duration;

use coordproto::answer::Unknown;
use coordproto::slot::LEASES;
use engine::lease::{Claim, Lease, Leases, Release, Renew, Terms};
use engine::store::nats::{Nats, NatsBucket};
use engine::store::{Bucket, BucketSpec, Certified, Store};
use tests::{Brokers, class, eventually, held, resource, terms};

use crate::Counted;

impl Counted {
    async fn held(&mut self, operation: String, leases: &Leases<Nats>, terms: &Terms) -> Lease {
        match self.of(operation, leases.claim(terms)).await.expect("a definite answer") {
            Claim::Held(lease) => lease,
            Claim::Refused(refusal) => panic!("{}: {refusal}", terms.resource),
        }
    }
}

pub(crate) async fn count(counted: &mut Counted, brokers: &Brokers, store: &Nats) {
    let leases = brokers.leases(store, &brokers.config("costs", Duration::from_secs(45))).await;
    counted.family("Leases");
    claims(counted, &leases).await;
    lapsed(counted, brokers, store).await;
    tenures(counted, &leases).await.expect("nothing is failing");
    let spec = BucketSpec::of(&LEASES, "costs", Duration::from_secs(45), 3);
    let bucket = store.open(&spec).await.expect("the bucket opens");
    reads(counted, &leases, &bucket).await.expect("nothing is failing");
}

const KINDS: [(&str, &str); 3] = [("seat", "seat:a"), ("presence", "node:a"), ("duty", "worker:a")];

async fn claims(counted: &mut Counted, leases: &Leases<Nats>) {
    for (kind, name) in KINDS {
        let ask = terms(leases, name, "n1:1");
        counted.held(format!("claim a {kind}, fresh"), leases, &ask).await;
        let lease = counted.held(format!("claim a {kind}, the holder again"), leases, &ask).await;
        let peer = terms(leases, name, "n2:1");
        let refused = counted.of(format!("claim a {kind}, a peer holds it"), leases.claim(&peer)).await;
        assert!(matches!(refused.expect("a definite answer"), Claim::Refused(_)));
        let released = counted.of(format!("release a {kind}"), leases.release(&lease)).await;
        assert_eq!(released.expect("a definite answer"), Release::Released);
        counted.held(format!("claim a {kind}, released"), leases, &peer).await;
    }
}

/// A lease whose holder went away. The claimer is a node like any other: its heartbeat goes on.
async fn lapsed(counted: &mut Counted, brokers: &Brokers, store: &Nats) {
    let ttl = Duration::from_secs(3);
    let leases = brokers.leases(store, &brokers.config("lapsing", ttl)).await;
    let lapse = async |name: &str| {
        held(&leases, &terms(&leases, name, "n1:1")).await;
        eventually(&brokers.env, "the lease lapses", || async {
            leases.get(&resource(name)).await.expect("nothing is failing").is_none().then_some(())
        })
        .await;
    };
    for (kind, name) in KINDS {
        lapse(name).await;
        leases.renew_all(&mut []).await;
        let ask = terms(&leases, name, "n2:1");
        counted.held(format!("claim a {kind}, lapsed"), &leases, &ask).await;
    }
    // One that said nothing for a TTL says that its protocol is in use, beside the bump, unless it has just seen that nobody
    // could think otherwise.
    for (kind, name) in KINDS {
        lapse(&format!("{name}-quiet")).await;
        let ask = terms(&leases, &format!("{name}-quiet"), "n2:1");
        counted.held(format!("claim a {kind}, lapsed, after a TTL without a heartbeat"), &leases, &ask).await;
    }
}

async fn tenures(counted: &mut Counted, leases: &Leases<Nats>) -> Result<(), Unknown> {
    let mut seats = Vec::new();
    for i in 0..100 {
        let ask = Terms { preferred: Some("n1".to_owned()), ..terms(leases, &format!("seat:s{i:02}"), "n1:1") };
        seats.push(held(leases, &ask).await);
    }
    let renewed = counted.of("renew a seat", leases.renew(&mut seats[0])).await?;
    assert_eq!(renewed, Renew::Extended);
    let burst = counted.of("renew 100 seats in a burst", leases.renew_all(&mut seats)).await;
    for renewal in burst {
        assert_eq!(renewal.answer?, Renew::Extended);
    }
    let mut presence = held(leases, &terms(leases, "node:status", "n1:1")).await;
    let status = serde_json::json!({"seats": 100});
    let renewed = counted.of("renew a presence with a status", leases.renew_with(&mut presence, status)).await;
    assert_eq!(renewed.expect("a small status"), Renew::Extended);
    let mut duty = held(leases, &terms(leases, "worker:renewed", "n1:1")).await;
    assert_eq!(counted.of("renew a duty", leases.renew(&mut duty)).await?, Renew::Extended);
    Ok(())
}

async fn reads(counted: &mut Counted, leases: &Leases<Nats>, bucket: &NatsBucket) -> Result<(), Unknown> {
    let mut duty = held(leases, &terms(leases, "worker:w0", "n1:1")).await;
    for i in 1..18 {
        held(leases, &terms(leases, &format!("worker:w{i}"), "n1:1")).await;
    }
    for (kind, name) in KINDS {
        assert!(counted.of(format!("get a {kind}"), leases.get(&resource(name))).await?.is_some());
    }
    assert_eq!(counted.of("get a free seat", leases.get(&resource("seat:free"))).await?, None);
    for (operation, name, keys) in [("list 20 duties", "worker", 20), ("list 100 seats", "seat", 101)] {
        let list = async || leases.list(&class(name), &Certified::Leader).await;
        assert_eq!(counted.least(operation, list).await?.len(), keys);
    }
    let mut seat = held(leases, &terms(leases, "seat:s00", "n1:1")).await;
    for (kind, name, lease, keys) in [("100 seats", "seat", &mut seat, 101), ("20 duties", "worker", &mut duty, 20)] {
        assert_eq!(leases.renew(lease).await?, Renew::Extended);
        let proved = Certified::Quorum(leases.barrier(lease));
        let operation = format!("list {kind}, proved by a renewal");
        let list = async || leases.list(&class(name), &proved).await;
        assert_eq!(counted.least(&operation, list).await?.len(), keys);
    }
    // One that is slow to be acknowledged is written anew, and leaves what one leaves.
    let barrier = counted.least("a barrier", async || bucket.barrier(bucket.deadline()).await).await?;
    assert!(barrier.revision > 0);
    let hints = async || leases.hints(&class("seat")).await;
    assert_eq!(counted.least("the hints of 100 seats", hints).await?.len(), 100);
    assert_eq!(counted.least("ask for an older protocol", async || leases.older_protocol().await).await?, None);
    Ok(())
}
