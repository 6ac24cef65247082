//! Every anomaly planted and found, and what only looks like one let pass. Leases come from the memory twin, where each
//! store on its own is right; two of them that know nothing of each other make a lie.

use std::time::Duration;

use coordproto::key::Resource;
use coordproto::lease::Terms;
use engine::env::Env;
use engine::lease::{Claim, Config, Leases, Release, Renew};
use engine::store::memory::Memory;

use super::*;

const TTL: Duration = Duration::from_secs(30);
const S: Duration = Duration::from_secs(1);

struct World {
    env: Env,
    model: Model,
}

impl World {
    fn new() -> World {
        World { env: Env::seeded(1), model: Model::default() }
    }

    async fn store(&self) -> Leases<Memory> {
        let config = Config { prefix: "t".into(), lease_ttl: TTL, ..Config::default() };
        Leases::open(self.env.clone(), &Memory::new(self.env.clone()), &config).await.unwrap()
    }

    async fn claim(&self, store: &Leases<Memory>, name: &str, owner: &str) -> Lease {
        let terms = Terms::new(Resource::parse(name).unwrap(), owner, TTL);
        match store.claim(&terms).await.unwrap() {
            Claim::Held(lease) => lease,
            Claim::Refused(refusal) => panic!("{refusal}"),
        }
    }

    /// A lease of `seat:a` at this epoch, from a store of its own.
    async fn lease(&self, owner: &str, epoch: u64) -> (Leases<Memory>, Lease) {
        let store = self.store().await;
        for _ in 1..epoch {
            let before = self.claim(&store, "seat:a", "before").await;
            assert_eq!(store.release(&before).await.unwrap(), Release::Released);
        }
        let lease = self.claim(&store, "seat:a", owner).await;
        assert_eq!(lease.epoch(), epoch);
        (store, lease)
    }

    fn granted(&self, lease: &Lease) {
        self.model.granted(lease, self.env.now());
    }

    async fn pass(&self, time: Duration) {
        self.env.sleep(time).await;
    }

    #[track_caller]
    fn found(&self, expected: Anomalies) {
        assert_eq!(self.model.anomalies(), expected);
    }
}

async fn renewed(store: &Leases<Memory>, lease: &mut Lease) {
    assert_eq!(store.renew(lease).await.unwrap(), Renew::Extended);
}

#[tokio::test(start_paused = true)]
async fn every_holder_beside_the_first_is_found_once() {
    let world = World::new();
    let (store, mut first) = world.lease("first", 1).await;
    let (_, second) = world.lease("second", 2).await;
    world.granted(&first);
    world.granted(&second);
    world.found(Anomalies { double_holders: 1, ..Anomalies::default() });
    world.pass(S).await;
    renewed(&store, &mut first).await;
    world.model.extended(&first);
    world.found(Anomalies { double_holders: 1, ..Anomalies::default() });
    let (_, third) = world.lease("third", 3).await;
    world.granted(&third);
    world.found(Anomalies { double_holders: 2, ..Anomalies::default() });
}

#[tokio::test(start_paused = true)]
async fn a_renewal_answered_after_a_rival_was_granted_makes_two_holders() {
    let world = World::new();
    let (store, mut first) = world.lease("first", 1).await;
    world.granted(&first);
    world.pass(TTL - S).await;
    renewed(&store, &mut first).await;
    // The answer is still on its way: by what the model knows, the first holder's bound passes.
    world.pass(S * 2).await;
    let (_, second) = world.lease("second", 2).await;
    world.granted(&second);
    world.found(Anomalies::default());
    world.model.extended(&first);
    world.found(Anomalies { double_holders: 1, ..Anomalies::default() });
}

#[tokio::test(start_paused = true)]
async fn an_epoch_given_twice_is_found_also_when_nobody_holds_it_any_more() {
    let world = World::new();
    let (_, first) = world.lease("first", 1).await;
    world.granted(&first);
    world.pass(TTL * 2).await;
    let (_, second) = world.lease("second", 1).await;
    world.granted(&second);
    world.found(Anomalies { epochs_reused: 1, ..Anomalies::default() });
}

#[tokio::test(start_paused = true)]
async fn an_epoch_below_one_that_was_given_before_it_was_asked_for_is_found() {
    let world = World::new();
    let (_, high) = world.lease("high", 2).await;
    world.granted(&high);
    world.pass(TTL * 2).await;
    let (_, low) = world.lease("low", 1).await;
    world.granted(&low);
    world.found(Anomalies { epochs_reused: 1, ..Anomalies::default() });
}

#[tokio::test(start_paused = true)]
async fn the_same_tenure_given_again_after_it_was_over_is_found() {
    let world = World::new();
    let (_, lease) = world.lease("owner", 1).await;
    world.granted(&lease);
    world.model.releasing(&lease, world.env.now());
    world.model.released(&lease);
    world.found(Anomalies::default());
    world.granted(&lease);
    world.found(Anomalies { epochs_reused: 1, ..Anomalies::default() });
}

#[tokio::test(start_paused = true)]
async fn a_live_lease_that_is_lost_is_found_and_a_lapsed_one_is_not() {
    let world = World::new();
    let (_, lease) = world.lease("owner", 1).await;
    world.granted(&lease);
    world.pass(TTL - S).await;
    world.model.lost(&lease, world.env.now());
    world.found(Anomalies { live_leases_lost: 1, ..Anomalies::default() });

    let world = World::new();
    let (_, lease) = world.lease("owner", 1).await;
    world.granted(&lease);
    world.pass(TTL).await;
    world.model.lost(&lease, world.env.now());
    world.found(Anomalies::default());
}

#[tokio::test(start_paused = true)]
async fn a_grant_after_the_former_holders_bound_is_right() {
    let world = World::new();
    let store = world.store().await;
    let first = world.claim(&store, "seat:a", "first").await;
    world.granted(&first);
    world.pass(TTL).await;
    let second = world.claim(&store, "seat:a", "second").await;
    assert_eq!((first.epoch(), second.epoch()), (1, 2));
    world.granted(&second);
    world.found(Anomalies::default());
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_told_after_it_lapsed_and_was_followed_is_right() {
    let world = World::new();
    let store = world.store().await;
    let first = world.claim(&store, "seat:a", "first").await;
    world.pass(TTL).await;
    let second = world.claim(&store, "seat:a", "second").await;
    world.granted(&second);
    // Its answer took longer than the lease lasts: its owner never acts on it.
    world.granted(&first);
    world.found(Anomalies::default());
}

#[tokio::test(start_paused = true)]
async fn renewals_answered_in_any_order_and_late_are_right() {
    let world = World::new();
    let store = world.store().await;
    let mut lease = world.claim(&store, "seat:a", "first").await;
    world.granted(&lease);
    world.pass(S).await;
    renewed(&store, &mut lease).await;
    let sooner = lease.clone();
    world.pass(S).await;
    renewed(&store, &mut lease).await;
    world.model.extended(&lease);
    world.model.extended(&sooner);
    assert_eq!(world.model.good_until("seat:a"), Some(lease.good_until()), "an older answer takes nothing back");
    world.pass(TTL).await;
    let second = world.claim(&store, "seat:a", "second").await;
    world.granted(&second);
    world.model.extended(&lease);
    world.found(Anomalies::default());
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_what_is_held_by_the_claimer_is_right() {
    let world = World::new();
    let store = world.store().await;
    let lease = world.claim(&store, "seat:a", "owner").await;
    world.granted(&lease);
    world.pass(S).await;
    let again = world.claim(&store, "seat:a", "owner").await;
    assert_eq!((lease.epoch(), again.epoch()), (1, 1));
    world.granted(&again);
    assert_eq!(world.model.good_until("seat:a"), Some(again.good_until()));
    // Renewals without an answer that landed all the same: the bound passed, the record stands.
    let mut unheard = again.clone();
    world.pass(TTL - S).await;
    renewed(&store, &mut unheard).await;
    world.pass(S * 2).await;
    let third = world.claim(&store, "seat:a", "owner").await;
    assert_eq!(third.epoch(), 1);
    world.granted(&third);
    world.found(Anomalies::default());
}

#[tokio::test(start_paused = true)]
async fn a_grant_after_a_release_is_right_before_and_after_the_releases_answer() {
    let world = World::new();
    let store = world.store().await;
    let first = world.claim(&store, "seat:a", "first").await;
    world.granted(&first);
    world.pass(S).await;
    world.model.releasing(&first, world.env.now());
    assert_eq!(store.release(&first).await.unwrap(), Release::Released);
    world.pass(S).await;
    let second = world.claim(&store, "seat:a", "second").await;
    world.granted(&second);
    world.model.released(&first);
    world.found(Anomalies::default());
    // A renewal that was answered before the release and is told after it gives the first nothing back.
    world.model.extended(&first);
    world.found(Anomalies::default());
}

#[tokio::test(start_paused = true)]
async fn only_what_lasts_throughout_must_be_listed() {
    let world = World::new();
    let store = world.store().await;
    let start = world.env.now();
    let early = world.claim(&store, "node:early", "a").await;
    world.granted(&early);
    world.granted(&world.claim(&store, "seat:x", "a").await);
    world.pass(S).await;
    world.granted(&world.claim(&store, "node:late", "b").await);
    let names = |from: u32, to: Duration| {
        let live = world.model.live_throughout(start + S * from, start + to, "node:");
        let mut names: Vec<String> = live.iter().map(|(name, ..)| name.to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(0, S), [] as [&str; 0], "granted at the very beginning is not before it");
    assert_eq!(names(1, S * 2), ["node:early"]);
    assert_eq!(names(2, S * 3), ["node:early", "node:late"]);
    assert_eq!(names(2, TTL), ["node:late"], "the other may have lapsed at its bound");
    world.model.lost(&early, start + TTL);
    assert_eq!(names(2, S * 3), ["node:early", "node:late"]);
    world.model.releasing(&early, start + S * 2);
    assert_eq!(names(1, S * 3), [] as [&str; 0]);
    assert_eq!(world.model.held("node:", start + S * 3), 1);
    world.found(Anomalies::default());
}

#[tokio::test(start_paused = true)]
async fn what_ended_long_ago_is_let_go_and_the_last_epoch_never_is() {
    let world = World::new();
    let store = world.store().await;
    for minute in 0..100 {
        let lease = world.claim(&store, "seat:a", &format!("owner-{minute}")).await;
        world.granted(&lease);
        world.model.releasing(&lease, world.env.now());
        assert_eq!(store.release(&lease).await.unwrap(), Release::Released);
        world.model.released(&lease);
        world.pass(S * 60).await;
    }
    let kept = world.model.inner.lock().resources["seat:a"].tenures.len();
    assert!((10..=12).contains(&kept), "{kept}");
    world.pass(S * 3600).await;
    let (_other, old) = world.lease("late", 3).await;
    world.granted(&old);
    assert_eq!(world.model.anomalies().epochs_reused, 1);
}
