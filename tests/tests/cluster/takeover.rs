//! The leader of the leases killed and frozen while leases are renewed: unknown meanwhile, and nobody loses one.

use std::collections::HashSet;
use std::time::Duration;

use engine::lease::{Claim, Lease, Leases, Refusal, Renew, Terms};
use engine::store::nats::Nats;
use engine::tasks;
use futures_util::future::join_all;
use tests::{Brokers, held, terms};
use tokio::sync::watch;

use crate::alone;

const STREAM: &str = "KV_takeover_leases";

/// A node that is connected to one member and no other, and holds leases.
struct Node {
    leases: Leases<Nats>,
    held: Vec<Lease>,
    /// The causes of the renewals that were unknown.
    unknown: HashSet<String>,
}

impl Node {
    /// One burst; whether every lease was renewed. A renewal that says "lost" fails the test.
    async fn renew(&mut self) -> bool {
        let mut all = true;
        for (renewal, lease) in self.leases.renew_all(&mut self.held).await.into_iter().zip(&self.held) {
            match renewal.answer {
                Ok(answer) => assert_eq!(answer, Renew::Extended, "{}", lease.resource()),
                Err(unknown) => {
                    self.unknown.insert(unknown.cause.to_string());
                    all = false;
                }
            }
        }
        all
    }
}

/// Renews on all of these nodes until a burst renews every lease of every one.
async fn until_renewed(brokers: &Brokers, nodes: &mut [&mut Node], what: &str) {
    let began = brokers.env.now();
    let until = began + Duration::from_secs(40);
    loop {
        let renewed = join_all(nodes.iter_mut().map(|node| node.renew())).await;
        if renewed.into_iter().all(|all| all) {
            break;
        }
        assert!(brokers.env.now() < until, "{what}: not all renewed again");
        brokers.env.sleep(Duration::from_millis(50)).await;
    }
    println!("{what}: all renewed after {:?}", brokers.env.now().since(began));
}

/// Somebody connected to the frozen leader alone, who asks for as long as it takes, and so among the first when it wakes.
struct Stranger {
    leases: Leases<Nats>,
    /// A lease that was renewed elsewhere while the leader was frozen.
    twin: Lease,
    /// One that was claimed elsewhere meanwhile.
    fresh: Lease,
    /// How often the fresh one read as held by nobody: the deposed leader's copy is from before it.
    misread: u64,
    answers: u64,
}

impl Stranger {
    async fn ask(&mut self) {
        let held = self.twin.resource().clone();
        match self.leases.renew(&mut self.twin).await {
            Ok(answer) => assert_eq!(answer, Renew::Extended, "{held}"),
            Err(unknown) => println!("renew: {unknown}"),
        }
        for resource in [held.clone(), self.fresh.resource().clone()] {
            match self.leases.claim(&Terms::new(resource.clone(), "stranger:1", self.leases.lease_ttl())).await {
                Ok(Claim::Refused(Refusal::Held { .. })) => self.answers += 1,
                Ok(other) => panic!("{resource}: {other:?}"),
                Err(_unknown) => {}
            }
        }
        if let Ok(view) = self.leases.get(&held).await {
            let view = view.expect("held by somebody all along");
            assert_eq!((view.owner.as_str(), view.epoch), (self.twin.owner(), self.twin.epoch()), "{held}");
        }
        if let Ok(view) = self.leases.get(self.fresh.resource()).await {
            self.misread += u64::from(view.is_none());
        }
    }
}

#[test]
fn a_leader_killed_or_frozen_under_renewals_costs_nobody_a_lease() {
    alone(3, async |brokers| {
        let config = brokers.config("takeover", Duration::from_secs(600));
        let mut nodes = Vec::new();
        for member in brokers.members() {
            let leases = brokers.leases(&brokers.store_at(member).await, &config).await;
            let names = (0..20).map(|i| format!("seat:{}-{i}", member.name()));
            let asks: Vec<Terms> = names.map(|name| terms(&leases, &name, member.name())).collect();
            let held = join_all(asks.iter().map(|ask| held(&leases, ask))).await;
            nodes.push(Node { leases, held, unknown: HashSet::new() });
        }

        let killed = brokers.leader(STREAM).await;
        killed.kill().await.expect("killed");
        until_renewed(brokers, &mut but(&mut nodes, killed.index()), "leader killed").await;
        brokers.start_the_rest().await;
        until_renewed(brokers, &mut nodes.iter_mut().collect::<Vec<_>>(), "killed leader back").await;
        let unknown: HashSet<String> = nodes.iter_mut().flat_map(|node| node.unknown.drain()).collect();
        println!("unknown: {unknown:?}");
        assert!(!unknown.is_empty(), "nobody answers during an election");

        let frozen = brokers.leader(STREAM).await;
        let mut standing_by = Vec::new();
        for _ in 0..8 {
            standing_by.push(brokers.leases(&brokers.store_at(frozen).await, &config).await);
        }
        frozen.pause().await.expect("paused");
        let mut rest = but(&mut nodes, frozen.index());
        until_renewed(brokers, &mut rest, "leader frozen").await;
        let fresh = held(&rest[0].leases, &terms(&rest[0].leases, "seat:fresh", "fresh")).await;
        let twins: Vec<Lease> = rest.iter().flat_map(|node| node.held.clone()).collect();
        let (awake, woken) = watch::channel(false);
        let strangers = standing_by.into_iter().zip(twins).map(|(leases, twin)| {
            let mut stranger = Stranger { leases, twin, fresh: fresh.clone(), misread: 0, answers: 0 };
            let (env, woken) = (brokers.env.clone(), woken.clone());
            tasks::spawn(async move {
                // Until the leader is itself again and answered a few times more.
                let mut more = 0;
                while more < 20 {
                    stranger.ask().await;
                    more += u32::from(*woken.borrow());
                    env.sleep(Duration::from_millis(1)).await;
                }
                stranger
            })
        });
        let strangers: Vec<_> = strangers.collect();
        frozen.resume().expect("resumed");
        until_renewed(brokers, &mut nodes.iter_mut().collect::<Vec<_>>(), "frozen leader back").await;
        awake.send_replace(true);
        let strangers = join_all(strangers.into_iter().map(tasks::Task::join)).await;
        assert!(strangers.iter().all(|stranger| stranger.answers > 0));
        println!("misread: {:?}", strangers.iter().map(|stranger| stranger.misread).collect::<Vec<_>>());
    });
}

/// All nodes but the one connected to that member.
fn but(nodes: &mut [Node], member: usize) -> Vec<&mut Node> {
    nodes.iter_mut().enumerate().filter(|(index, _)| *index != member).map(|(_, node)| node).collect()
}
