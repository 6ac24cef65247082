//! The leases on brokers that things happen to: members killed, frozen, restarted, deposed and cut off, holders that die or
//! stall.
//!
//! Tests that leave the members alone share one cluster and run beside each other. A test that does something to a member has
//! the machine to itself and brokers of its own.

mod directions;
mod expiry;
mod leftovers;
mod listings;
mod opening;
mod outage;
mod partition;
mod races;
mod recoveries;
mod sizes;
mod spends;
mod storm;
mod takeover;
mod watches;

use std::sync::LazyLock;
use std::time::Duration;

use coordproto::answer::{Error, Unknown};
use engine::broker::Settings;
use engine::lease::{Claim, Lease, Leases, Renew, Terms};
use engine::store::nats::Nats;
use parking_lot::RwLock;
use tests::{Brokers, Links, eventually};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

/// Held for reading by the tests on the shared cluster, for writing by those that have the machine to themselves.
static MACHINE: RwLock<()> = RwLock::new(());

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
/// Never dropped; the members end with the process.
static SHARED: OnceCell<Brokers> = OnceCell::const_new();

/// Runs a test that leaves the members alone, on the three brokers that all such tests share.
fn beside_others(test: impl AsyncFnOnce(&'static Brokers)) {
    let _machine = MACHINE.read();
    RUNTIME.block_on(async { Box::pin(test(SHARED.get_or_init(|| Brokers::start(3)).await)).await });
}

/// Runs a test that does something to the members of brokers of its own, while no other test runs.
fn alone(members: u8, test: impl AsyncFnOnce(&Brokers)) {
    alone_with(Settings::new(members), test);
}

/// The same, of brokers that are set up like this.
fn alone_with(settings: Settings, test: impl AsyncFnOnce(&Brokers)) {
    let _machine = MACHINE.write();
    Runtime::new().expect("a runtime").block_on(async {
        let brokers = Brokers::start_with(settings).await;
        Box::pin(test(&brokers)).await;
    });
}

/// The same, of brokers whose links to each other the test may cut.
fn alone_with_links(members: u8, test: impl AsyncFnOnce(&Brokers, &Links)) {
    let _machine = MACHINE.write();
    Runtime::new().expect("a runtime").block_on(async {
        let (brokers, links) = Brokers::start_with_links(members).await;
        Box::pin(test(&brokers, &links)).await;
    });
}

/// Asks until there is a definite answer: a member that went away ends the requests of whoever is connected to it, and one
/// that has just started may not have an answer yet.
async fn definite<T>(brokers: &Brokers, ask: impl AsyncFn() -> Result<T, Unknown>) -> T {
    eventually(&brokers.env, "a definite answer", || async { ask().await.ok() }).await
}

/// Claims until there is a definite answer.
async fn claimed(brokers: &Brokers, leases: &Leases<Nats>, ask: &Terms) -> Claim {
    definite(brokers, async || match leases.claim(ask).await {
        Ok(claim) => Ok(claim),
        Err(Error::Unknown(unknown)) => Err(unknown),
        Err(Error::BadArgument(error)) => panic!("{error}"),
    })
    .await
}

/// Renews a lease that nobody else claims, and claims it again if that came too late for it.
async fn still_held(brokers: &Brokers, leases: &Leases<Nats>, lease: Lease) -> Lease {
    let until = lease.good_until();
    let (answer, lease) = renewed(brokers, leases, lease).await;
    if answer == Renew::Extended {
        return lease;
    }
    assert!(brokers.env.now() >= until, "{}: lost before its time", lease.resource());
    let ask = Terms::new(lease.resource().clone(), lease.owner(), leases.lease_ttl());
    match claimed(brokers, leases, &ask).await {
        Claim::Held(lease) => lease,
        Claim::Refused(refusal) => panic!("{}: nobody else claims it: {refusal}", lease.resource()),
    }
}

/// Renews until there is a definite answer.
async fn renewed(brokers: &Brokers, leases: &Leases<Nats>, mut lease: Lease) -> (Renew, Lease) {
    let until = brokers.env.now() + Duration::from_secs(30);
    loop {
        match leases.renew(&mut lease).await {
            Ok(answer) => return (answer, lease),
            Err(unknown) => assert!(brokers.env.now() < until, "{unknown}"),
        }
        brokers.env.sleep(Duration::from_millis(20)).await;
    }
}
