//! Every broker away: what is done then, of every slot at once, through the step that is named for it.
//!
//! The steps are what the callers take, so this is what a fleet does in an outage, and the table of the slots is what it is
//! held to.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Error, Unknown};
use coordproto::record::follow::Thread;
use coordproto::slot::{self, OnUnknown, SLOTS, Slot};
use coordproto::window::{Windows, Zone};
use engine::env::Env;
use engine::lease::{FailsClosed as _, Holds as _, Lease, Leases, Renew, Tenure, Terms};
use engine::slots::budgets::{Budgets, Caps, FailsClosed as _, Round};
use engine::slots::channels::{Channels, FailsClosed as _, Open, Passage};
use engine::slots::claims::{Delivery, DeliveryClaims, FailsOpen as _};
use engine::slots::config::Activations;
use engine::slots::cooldowns::{Cooldowns, Holds as _};
use engine::slots::custody::{Copy, Custody, Holds as _};
use engine::slots::fires::{FailsClosed as _, Fires};
use engine::slots::follows::{FailsClosed as _, Following, Follows};
use engine::slots::integrations::Integrations;
use engine::slots::ledger::{FailsOpen as _, Ledger};
use engine::slots::mailboxes::Mailboxes;
use engine::slots::objects::{FailsClosed as _, MustNotBoot, Objects};
use engine::slots::pauses::{Hand, Holds as _, SeatPauses};
use engine::slots::positions::Positions;
use engine::slots::rate::{FailsClosed as _, RateValve, Take};
use engine::slots::rebases::Rebases;
use engine::slots::sandbox_runs::SandboxRuns;
use engine::slots::secrets::Secrets;
use engine::slots::shared::Shared;
use engine::slots::status::Statuses;
use engine::store::Certified;
use engine::store::nats::Nats;
use futures_util::future::{join, join_all, join3};
use jiff::Timestamp;
use tests::{class, held, resource};

use crate::alone;

/// The longest that anybody is kept waiting when nobody answers: a listing's own bound of some 10 s, the time to notice, and
/// what a busy machine adds.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a lease lasts that has ended before the brokers are back.
const BRIEF: Duration = Duration::from_secs(5);

const THREAD: Thread<'static> = Thread { backend: "slack", handle: "alpha", channel: "C1", thread: "17.5" };

/// Which way was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Closed,
    Open,
    Holds,
    Unknown,
}

fn safe(slot: &Slot) -> Way {
    match slot.on_unknown {
        OnUnknown::Closed(_) => Way::Closed,
        OnUnknown::Open(_) => Way::Open,
        OnUnknown::Holds(_) => Way::Holds,
        OnUnknown::Unknown(_) => Way::Unknown,
    }
}

/// What one family did, when it has.
type Shown<'a> = (&'static Slot, Pin<Box<dyn Future<Output = Way> + 'a>>);

/// Expects no answer, and no shorter one.
fn unknown<T>(answer: Result<T, impl Into<Error>>) {
    let Err(error) = answer.map_err(Into::into) else { panic!("nobody is there to answer") };
    assert!(error.unknown().is_some(), "{error}");
}

/// A fleet as it was before its brokers went: a seat held, a thread followed, a channel open, a store agreed on.
struct Fleet {
    env: Env,
    leases: Leases<Shared<Nats>>,
    seat: Lease,
    duty: Lease,
    /// A seat and a duty that are held for a moment only.
    brief: [Lease; 2],
    windows: Windows,
    config: Activations<Shared<Nats>>,
    status: Statuses<Shared<Nats>>,
    ledger: Ledger<Shared<Nats>>,
    claims: DeliveryClaims<Shared<Nats>>,
    rate: RateValve<Shared<Nats>>,
    cooldowns: Cooldowns<Shared<Nats>>,
    budgets: Budgets<Shared<Nats>>,
    channels: Channels<Shared<Nats>>,
    fires: Fires<Shared<Nats>>,
    rebases: Rebases<Shared<Nats>>,
    runs: SandboxRuns<Shared<Nats>>,
    secrets: Secrets<Shared<Nats>>,
    integrations: Integrations<Shared<Nats>>,
    mailboxes: Mailboxes<Shared<Nats>>,
    follows: Follows<Shared<Nats>>,
    custody: Custody<Shared<Nats>>,
    objects: Objects<Shared<Nats>>,
    positions: Positions<Shared<Nats>>,
    pauses: SeatPauses<Shared<Nats>>,
}

impl Fleet {
    async fn boot(brokers: &tests::Brokers) -> Fleet {
        // Longer than anybody is kept waiting, and than that is looked at twice.
        let ttl = Duration::from_secs(600);
        let settings = engine::slots::Settings { retention: ttl.into(), ..brokers.settings("away") };
        let shared = Shared::open(&brokers.env, &brokers.store().await, &settings).await.expect("the buckets open");
        let leases = Leases::open(brokers.env.clone(), &shared, &brokers.config("away", ttl)).await.expect("opened");
        let terms = |name: &str| Terms::new(resource(name), "n1:1", ttl);
        let (seat, duty) = (held(&leases, &terms("seat:alpha")).await, held(&leases, &terms("worker:sweep")).await);
        let briefly = |name: &str| Terms { ttl: BRIEF, ..terms(name) };
        let brief = [held(&leases, &briefly("seat:brief")).await, held(&leases, &briefly("worker:brief")).await];
        macro_rules! opened {
            ($family:ident :: $open:ident) => {
                $family::$open(&shared, &settings).await.expect("it was opened before")
            };
        }
        let fleet = Fleet {
            env: brokers.env.clone(),
            leases,
            seat,
            duty,
            brief,
            windows: Windows::at(brokers.env.wall(), &Zone::parse("timezone", "UTC").expect("a zone"))
                .expect("windows"),
            config: opened!(Activations::open),
            status: opened!(Statuses::open),
            ledger: opened!(Ledger::open),
            claims: opened!(DeliveryClaims::open),
            rate: opened!(RateValve::open),
            cooldowns: opened!(Cooldowns::open),
            budgets: opened!(Budgets::open),
            channels: opened!(Channels::open_bucket),
            fires: opened!(Fires::open),
            rebases: opened!(Rebases::open),
            runs: opened!(SandboxRuns::open),
            secrets: opened!(Secrets::open),
            integrations: opened!(Integrations::open),
            mailboxes: opened!(Mailboxes::open),
            follows: opened!(Follows::open),
            custody: opened!(Custody::open),
            objects: opened!(Objects::open),
            positions: opened!(Positions::open),
            pauses: opened!(SeatPauses::open),
        };
        // What is asked about later is so that an answer would be another than the safe one.
        let now = fleet.now();
        assert!(matches!(fleet.channels.open("ask", "alpha", "beta", now).await, Ok(Open::Opened(_))));
        fleet.follows.follow(&THREAD).await.expect("nothing is failing");
        assert_eq!(fleet.objects.agree_backend("nats").await.fails_closed("nats"), Ok(()));
        assert_eq!(fleet.pauses.get("alpha").await.holds(), Ok(Hand::Over));
        assert_eq!(fleet.valve().await, Take::Allowed);
        fleet
    }

    fn now(&self) -> Timestamp {
        self.env.wall()
    }

    async fn valve(&self) -> Take {
        let take = self.rate.allow("alpha", 5, Duration::from_secs(1), self.now()).await;
        take.fails_closed().expect("good arguments")
    }

    async fn renewal(&self, lease: &Lease) -> Tenure {
        let mut renewed = lease.clone();
        let answer: Result<Renew, Unknown> = self.leases.renew(&mut renewed).await;
        unknown(answer.clone());
        assert_eq!(renewed.good_until(), lease.good_until(), "an unknown renewal changes nothing");
        answer.holds(&renewed, self.env.now())
    }

    /// A claim of what is free, or held by this very owner.
    async fn is_claimed(&self, name: &str) -> bool {
        let answer = self.leases.claim(&Terms::new(resource(name), "n1:1", self.leases.lease_ttl())).await;
        answer.fails_closed().expect("good terms").is_some()
    }

    /// What each family does now, one for every slot of the table and in its order.
    fn families(&self) -> Vec<Shown<'_>> {
        vec![
            (
                &slot::LEASES,
                Box::pin(async {
                    let list = async { unknown(self.leases.list(&class("node"), &Certified::Leader).await) };
                    let (tenure, claimed, ()) =
                        join3(self.renewal(&self.seat), self.is_claimed("node:new"), list).await;
                    assert!(!claimed && tenure == Tenure::Held { until: self.seat.good_until() }, "{tenure:?}");
                    Way::Holds
                }),
            ),
            (
                &slot::DUTIES,
                Box::pin(async {
                    let (tenure, claimed) = join(self.renewal(&self.duty), self.is_claimed("worker:new")).await;
                    assert!(!claimed && tenure == Tenure::Held { until: self.duty.good_until() }, "{tenure:?}");
                    Way::Holds
                }),
            ),
            (
                &slot::EPOCHS,
                Box::pin(async {
                    let hints = async { unknown(self.leases.hints(&class("seat")).await) };
                    let (claimed, ()) = join(self.is_claimed("seat:new"), hints).await;
                    assert!(!claimed, "nobody is given an epoch");
                    Way::Closed
                }),
            ),
            (
                &slot::CONFIG,
                Box::pin(async {
                    let (target, payload) = join(self.config.target(), self.config.payload("r1")).await;
                    unknown(target);
                    unknown(payload);
                    Way::Unknown
                }),
            ),
            (
                &slot::STATUS,
                Box::pin(async {
                    unknown(self.status.fleet().await);
                    Way::Unknown
                }),
            ),
            (
                &slot::LEDGER,
                Box::pin(async {
                    let worked = self.ledger.worked("alpha", &["t1", "t2"]).await.fails_open().expect("good keys");
                    assert!(worked.records().is_empty(), "the work is done");
                    Way::Open
                }),
            ),
            (
                &slot::CLAIMS,
                Box::pin(async {
                    let attempt = self.claims.attempt("github", "d1").expect("a good id");
                    let claim = self.claims.claim(&attempt, Duration::from_secs(300), self.now()).await;
                    assert_eq!(claim.fails_open(), Ok(Delivery::First), "it is handled");
                    Way::Open
                }),
            ),
            (
                &slot::RATE,
                Box::pin(async {
                    assert_eq!(self.valve().await, Take::Refused);
                    Way::Closed
                }),
            ),
            (
                &slot::COOLDOWNS,
                Box::pin(async {
                    assert_eq!(self.cooldowns.since(self.now()).await.holds(), [], "no news");
                    Way::Holds
                }),
            ),
            (
                &slot::BUDGETS,
                Box::pin(async {
                    let (caps, now) = (Caps::default(), self.now());
                    let charge = self.budgets.charge("alpha", 1, &self.windows, &caps, now);
                    let refuse = self.budgets.refuse("alpha", &self.windows, &caps, now);
                    let (charge, refuse, usage) = join3(charge, refuse, self.budgets.usage(&self.windows)).await;
                    unknown(refuse);
                    unknown(usage);
                    let round = charge.fails_closed().expect("a good handle");
                    assert!(matches!(round, Round::Outage(_)), "an outage, and nobody is out of budget: {round:?}");
                    Way::Closed
                }),
            ),
            (
                &slot::CHANNELS,
                Box::pin(async {
                    let (count, open) = join(self.channels.count_message("ask"), self.channels.open_channels()).await;
                    unknown(open);
                    assert!(matches!(count.fails_closed(), Ok(Passage::Outage(_))), "withheld, and the ask not closed");
                    Way::Closed
                }),
            ),
            (
                &slot::FIRES,
                Box::pin(async {
                    assert!(!self.fires.claim_fire("standup", self.now()).await.fails_closed());
                    Way::Closed
                }),
            ),
            (
                &slot::REBASES,
                Box::pin(async {
                    let record = self.rebases.record_rebase("seed", self.now(), 0);
                    let (read, recorded) = join(self.rebases.rebase("seed"), record).await;
                    unknown(read);
                    unknown(recorded);
                    Way::Unknown
                }),
            ),
            (
                &slot::SANDBOX_RUNS,
                Box::pin(async {
                    let create = self.runs.create("turn", Bytes::from_static(b"run"));
                    let (listed, created) = join(self.runs.list(), create).await;
                    unknown(listed);
                    unknown(created);
                    Way::Unknown
                }),
            ),
            (
                &slot::SECRETS,
                Box::pin(async {
                    let (listed, read) = join(self.secrets.list(), self.secrets.get("TOKEN")).await;
                    unknown(listed);
                    unknown(read);
                    Way::Unknown
                }),
            ),
            (
                &slot::INTEGRATIONS,
                Box::pin(async {
                    unknown(self.integrations.list().await);
                    Way::Unknown
                }),
            ),
            (
                &slot::MAILBOXES,
                Box::pin(async {
                    let (listed, read) = join(self.mailboxes.list(), self.mailboxes.get("alpha")).await;
                    unknown(listed);
                    unknown(read);
                    Way::Unknown
                }),
            ),
            (
                &slot::FOLLOWS,
                Box::pin(async {
                    assert_eq!(self.follows.following(&THREAD).await.fails_closed(), Following::No);
                    Way::Closed
                }),
            ),
            (
                &slot::CUSTODY,
                Box::pin(async {
                    let keeper = self.custody.claim_custody("batch", "n1").await;
                    assert_eq!(keeper.holds("n1"), Ok(Copy::KeepAndAskAgain));
                    Way::Holds
                }),
            ),
            (
                &slot::OBJECTS,
                Box::pin(async {
                    let (agreed, found) = join(self.objects.agree_backend("nats"), self.objects.collection()).await;
                    unknown(found);
                    let boots = agreed.fails_closed("nats");
                    assert!(matches!(boots, Err(MustNotBoot::Unknown(_))), "it does not boot: {boots:?}");
                    Way::Closed
                }),
            ),
            (
                &slot::POSITIONS,
                Box::pin(async {
                    let (nodes, floors, pause) =
                        join3(self.positions.nodes.list(), self.positions.floors.list(), self.pauses.get("alpha"))
                            .await;
                    unknown(nodes);
                    unknown(floors);
                    assert_eq!(pause.holds(), Ok(Hand::Defer));
                    Way::Holds
                }),
            ),
        ]
    }

    /// Asks every family at once, and expects each in its safe direction, and soon.
    async fn shows_every_direction(&self, brokers_are: &str) {
        let families = self.families();
        assert!(families.iter().map(|(slot, _)| *slot).eq(SLOTS), "each slot of the table is shown, once");
        let began = self.env.now();
        let shown = join_all(families.into_iter().map(async |(slot, way)| {
            let way = way.await;
            println!("{brokers_are}: {}: {way:?} after {:?}", slot.name, self.env.now().since(began));
            assert_eq!(way, safe(slot), "{}", slot.name);
        }));
        self.env.within(began + PATIENCE, Box::pin(shown)).await.expect("the waiting is bounded");
    }
}

#[test]
fn with_every_broker_stopped_every_slot_takes_its_safe_direction() {
    alone(3, async |brokers| {
        let fleet = Box::pin(Fleet::boot(brokers)).await;
        for member in brokers.members() {
            member.pause().await.expect("paused");
        }
        fleet.shows_every_direction("silent").await;
        join_all(brokers.members().iter().map(async |member| member.kill().await.expect("killed"))).await;
        fleet.shows_every_direction("gone").await;

        // A renewal holds until the holder's own bound, and not for longer.
        for lease in &fleet.brief {
            fleet.env.sleep_until(lease.good_until()).await;
            assert_eq!(fleet.renewal(lease).await, Tenure::Over, "{}", lease.resource());
        }
    });
}
