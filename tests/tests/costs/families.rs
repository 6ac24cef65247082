//! The record families: what is done most, and what it costs to be told that somebody else was first.

use std::collections::BTreeMap;
use std::time::Duration;

use coordproto::record::config::{Origin, Proposal};
use coordproto::record::cooldown::Credential;
use coordproto::record::follow::Thread;
use coordproto::record::mailbox::MailboxRecord;
use coordproto::record::objects::CollectionRecord;
use coordproto::record::position::{Admission, Floor, Hold, Maintenance, MaintenanceAck, NodePosition};
use coordproto::record::seat_pause::SeatPauseRecord;
use coordproto::record::secret::{Sealed, SecretRecord};
use coordproto::record::status::{ApplyStatus, StatusRecord};
use coordproto::slot::Retention;
use coordproto::tally::Ceilings;
use coordproto::window::{Windows, Zone};
use engine::slots::Settings;
use engine::slots::budgets::{Budgets, Caps, Gate};
use engine::slots::channels::{Channels, Close, Count, Open};
use engine::slots::claims::{Delivery, DeliveryClaims, Release};
use engine::slots::config::{Activation, Activations, Payload};
use engine::slots::cooldowns::{Cool, Cooldowns};
use engine::slots::custody::Custody;
use engine::slots::fires::{Fire, Fires};
use engine::slots::follows::{Following, Follows, Unfollow};
use engine::slots::integrations::{self, Integrations};
use engine::slots::ledger::{Ledger, Recorded};
use engine::slots::mailboxes::{self, Mailboxes};
use engine::slots::objects::Objects;
use engine::slots::pauses::{Pause, Resume, SeatPauses};
use engine::slots::positions::{Forget, Positions};
use engine::slots::rate::{RateValve, Take};
use engine::slots::rebases::Rebases;
use engine::slots::rows::{Change, Create, Remove};
use engine::slots::sandbox_runs::{self, SandboxRuns};
use engine::slots::secrets::{self, Secrets};
use engine::slots::status::Statuses;
use engine::store::follow::News;
use engine::store::listing::LIST_WITHIN;
use engine::store::nats::Nats;
use engine::store::{Bucket, BucketSpec, Certified, Expect, Put, Store, Write};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use tests::{Brokers, class, resource};

use crate::Counted;

const SECOND: Duration = Duration::from_secs(1);

/// How many records a listing has, unless the operation says otherwise.
const LISTED: usize = 10;

fn at() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("an instant")
}

/// More keys than one batched direct get carries.
const LARGE: usize = 1_100;

pub(crate) async fn count(counted: &mut Counted, brokers: &Brokers, store: &Nats) {
    let settings = brokers.settings("costs");
    Box::pin(large(counted, store)).await;
    Box::pin(valves(counted, store, &settings)).await;
    Box::pin(company(counted, store, &settings)).await;
    Box::pin(work(counted, store, &settings)).await;
    Box::pin(once(counted, store, &settings)).await;
    Box::pin(named(counted, store, &settings)).await;
    Box::pin(positions(counted, store, &settings)).await;
    Box::pin(pauses(counted, store, &settings)).await;
    Box::pin(budgets(counted, store, &settings)).await;
}

/// A class that fills its bucket, listed for the first time and again.
async fn large(counted: &mut Counted, store: &Nats) {
    counted.family("Large classes");
    let spec = BucketSpec { name: "costs_large".into(), age: None, raise_age: false, replicas: 3 };
    let bucket = store.open(&spec).await.unwrap();
    let keys = (0..LARGE).map(|i| resource(&format!("seat:s{i:04}")));
    let puts = keys.map(async |seat| bucket.put(seat.key(), Write::Value("v".into()), Expect::Any).await);
    for put in join_all(puts).await {
        assert!(matches!(put.unwrap(), Put::Stored(_)));
    }
    let filter = class("seat").filter();
    let barrier = bucket.barrier(bucket.deadline()).await.unwrap();
    let by = || bucket.env().now() + LIST_WITHIN;
    for (operation, certified) in [
        ("list 1,100 seats, by the leader, first", Certified::Leader),
        ("list 1,100 seats, by the leader, again", Certified::Leader),
        ("list 1,100 seats, proved by a barrier, again", Certified::Quorum(barrier)),
    ] {
        let listing = counted.of(operation, bucket.list(&filter, &certified, by())).await.unwrap();
        assert_eq!(listing.entries.len(), LARGE);
    }
}

/// The names of the records of a listing.
fn names() -> impl Iterator<Item = String> {
    (0..LISTED).map(|nth| format!("x{nth}"))
}

async fn valves(counted: &mut Counted, store: &Nats, settings: &Settings) {
    counted.family("Rate");
    // Nothing that is counted ages away meanwhile, however slow the machine.
    let retention = Retention { rate_window: SECOND * 60, ..settings.retention };
    let valve = RateValve::open(store, &Settings { retention, ..settings.clone() }).await.unwrap();
    for operation in ["let one through, the first of its window", "let one through"] {
        let take = counted.of(operation, valve.allow("alpha", 2, SECOND, at())).await;
        assert_eq!(take.unwrap(), Take::Allowed);
    }
    let take = counted.of("refuse one at the limit", valve.allow("alpha", 2, SECOND, at())).await;
    assert_eq!(take.unwrap(), Take::Refused);

    counted.family("Cooldowns");
    let cooldowns = Cooldowns::open(store, settings).await.unwrap();
    let credential = Credential::new("fast", b"sk-1").unwrap();
    let later = at() + SignedDuration::from_mins(1);
    assert_eq!(counted.of("say that a credential cools", cooldowns.cool(&credential, at())).await, Ok(Cool::Cooled));
    assert_eq!(counted.of("extend it", cooldowns.cool(&credential, later)).await, Ok(Cool::Cooled));
    let again = counted.of("say what is known", cooldowns.cool(&credential, at())).await;
    assert_eq!(again, Ok(Cool::Already(later)));
    for name in names().skip(1) {
        assert_eq!(cooldowns.cool(&Credential::new(&name, b"sk-1").unwrap(), later).await, Ok(Cool::Cooled));
    }
    assert_eq!(counted.least("pull 10 that cool", async || cooldowns.since(at()).await).await.unwrap().len(), LISTED);
}

async fn company(counted: &mut Counted, store: &Nats, settings: &Settings) {
    counted.family("Config");
    let config = Activations::open(store, settings).await.unwrap();
    let origin =
        Origin { author: "ada".into(), author_kind: "operator".into(), source: "api".into(), created_at: at() };
    assert_eq!(counted.of("read the pointer", config.target()).await, Ok(None));
    for operation in ["activate the first revision", "activate another"] {
        let proposal = Proposal::new("cfg-1", origin.clone());
        let told = counted.of(operation, config.activate(&proposal, "sealed".into(), at())).await;
        assert!(matches!(told, Ok(Activation::Activated(_))), "{told:?}");
    }
    let stale = Proposal { expect: Some("cfg-0".into()), ..Proposal::new("cfg-2", origin) };
    let told = counted.of("be told that another is current", config.activate(&stale, "s".into(), at())).await;
    assert!(matches!(told, Ok(Activation::Lost(_))), "{told:?}");
    let body = counted.of("read the body of the current revision", config.payload("cfg-1")).await;
    assert!(matches!(body, Ok(Payload::Body(_))), "{body:?}");

    counted.family("Status");
    let statuses = Statuses::open(store, settings).await.unwrap();
    let report = StatusRecord { epoch: 1, revision: "cfg-1".into(), status: ApplyStatus::Ok, error: String::new() };
    for name in names().skip(1) {
        statuses.record_apply(&name, &report).await.unwrap();
    }
    counted.of("report", statuses.record_apply("x0", &report)).await.unwrap();
    assert_eq!(counted.least("read a fleet of 10", async || statuses.fleet().await).await.unwrap().nodes.len(), LISTED);
}

async fn work(counted: &mut Counted, store: &Nats, settings: &Settings) {
    counted.family("Claims on deliveries");
    let claims = DeliveryClaims::open(store, settings).await.unwrap();
    let (one, two) = (claims.attempt("slack", "x1").unwrap(), claims.attempt("slack", "x1").unwrap());
    let minute = 60 * SECOND;
    assert_eq!(counted.of("claim, first", claims.claim(&one, minute, at())).await, Ok(Delivery::First));
    let seen = counted.of("claim, seen before", claims.claim(&two, minute, at())).await;
    assert!(matches!(seen, Ok(Delivery::Seen { .. })), "{seen:?}");
    let later = at() + minute;
    assert_eq!(counted.of("claim, lapsed", claims.claim(&two, minute, later)).await, Ok(Delivery::First));
    assert_eq!(counted.of("release one's own", claims.release(&two)).await, Ok(Release::Released));
    assert_eq!(counted.of("release nothing", claims.release(&one)).await, Ok(Release::NotHeld));

    counted.family("Ledger");
    let ledger = Ledger::open(store, settings).await.unwrap();
    let record = counted.of("record", ledger.record("alpha", "e0", "done", at())).await;
    assert_eq!(record, Ok(Recorded::First));
    let record = counted.of("record again", ledger.record("alpha", "e0", "done", at())).await;
    assert_eq!(record, Ok(Recorded::Before));
    assert!(counted.of("ask about a key", ledger.worked("alpha", &["e0"])).await.unwrap().contains("e0"));
    let keys: Vec<String> = (0..50).map(|nth| format!("e{nth}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    assert_eq!(counted.of("ask about 50 keys", ledger.worked("alpha", &keys)).await.unwrap().records().len(), 1);

    counted.family("Channels");
    let channels = Channels::open_bucket(store, settings).await.unwrap();
    for name in names().skip(1) {
        assert!(matches!(channels.open(&name, "ada", "bob", at()).await, Ok(Open::Opened(_))));
    }
    let told = counted.of("open", channels.open("x0", "ada", "bob", at())).await;
    assert!(matches!(told, Ok(Open::Opened(_))), "{told:?}");
    let told = counted.of("open what stands", channels.open("x0", "ada", "bob", at())).await;
    assert!(matches!(told, Ok(Open::Stands(_))), "{told:?}");
    assert!(counted.of("read", channels.get("x0")).await.unwrap().is_some());
    let told = counted.of("count a message", channels.count_message("x0")).await;
    assert!(matches!(told, Ok(Count::Counted(_))), "{told:?}");
    assert_eq!(
        counted.least("list 10 open ones", async || channels.open_channels().await).await.unwrap().len(),
        LISTED
    );
    let told = counted.of("close", channels.close("x0", at())).await;
    assert!(matches!(told, Ok(Close::Closed(_))), "{told:?}");
    assert_eq!(
        counted
            .least("list 9 open ones beside a closed one", async || channels.open_channels().await)
            .await
            .unwrap()
            .len(),
        9
    );
    assert_eq!(
        counted.least("list 10, open or closed", async || channels.all_channels().await).await.unwrap().len(),
        LISTED
    );
    assert_eq!(counted.of("purge one of 10", channels.purge(Duration::ZERO)).await, Ok(1));
}

/// What is created once, and the threads that seats follow.
async fn once(counted: &mut Counted, store: &Nats, settings: &Settings) {
    counted.family("Fires");
    let fires = Fires::open(store, settings).await.unwrap();
    assert_eq!(counted.of("claim", fires.claim_fire("standup", at())).await, Ok(Fire::Claimed));
    assert_eq!(counted.of("claim what is taken", fires.claim_fire("standup", at())).await, Ok(Fire::Taken));

    counted.family("Rebases");
    let rebases = Rebases::open(store, settings).await.unwrap();
    let Change::Stored(version) = counted.of("record the first", rebases.record_rebase("t1", at(), 0)).await.unwrap()
    else {
        panic!("none is recorded")
    };
    let told = counted.of("inherit where one is recorded", rebases.record_rebase("t1", at(), 0)).await;
    assert!(matches!(told, Ok(Change::Changed(_))), "{told:?}");
    let told = counted.of("replace", rebases.record_rebase("t1", at(), version)).await;
    assert!(matches!(told, Ok(Change::Stored(_))), "{told:?}");
    assert!(counted.of("read", rebases.rebase("t1")).await.unwrap().is_some());

    counted.family("Custody");
    let custody = Custody::open(store, settings).await.unwrap();
    assert_eq!(counted.of("claim", custody.claim_custody("b", "n1")).await.unwrap(), "n1");
    assert_eq!(counted.of("be told the keeper", custody.claim_custody("b", "n2")).await.unwrap(), "n1");

    counted.family("Objects");
    let objects = Objects::open(store, settings).await.unwrap();
    assert_eq!(counted.of("agree, the first node", objects.agree_backend("nats")).await.unwrap(), "nats");
    assert_eq!(counted.of("agree, every other node", objects.agree_backend("nats")).await.unwrap(), "nats");
    let pass = CollectionRecord { node: "n1".into(), at: at(), found: 3.into() };
    counted.of("record a collection", objects.record_collection(&pass)).await.unwrap();
    assert_eq!(counted.of("read the collection", objects.collection()).await, Ok(Some(pass)));

    counted.family("Follows");
    let follows = Follows::open(store, settings).await.unwrap();
    let thread = Thread { backend: "slack", handle: "alpha", channel: "C1", thread: "17" };
    counted.of("follow", follows.follow(&thread)).await.unwrap();
    assert_eq!(counted.of("ask", follows.following(&thread)).await, Ok(Following::Yes));
    assert_eq!(counted.of("unfollow", follows.unfollow(&thread)).await, Ok(Unfollow::Removed));
}

/// The buckets of one kind of record, each under its name.
async fn named(counted: &mut Counted, store: &Nats, settings: &Settings) {
    counted.family("Sandbox runs");
    let runs = SandboxRuns::open(store, settings).await.unwrap();
    for name in names().skip(1) {
        assert!(matches!(runs.create(&name, "1".into()).await, Ok(sandbox_runs::Create::Created(_))));
    }
    let sandbox_runs::Create::Created(version) = counted.of("create", runs.create("x0", "1".into())).await.unwrap()
    else {
        panic!("there is none")
    };
    let told = counted.of("update", runs.update("x0", "2".into(), version)).await;
    let Ok(sandbox_runs::Update::Updated(now)) = told else { panic!("{told:?}") };
    let told = counted.of("be told that another was faster", runs.update("x0", "3".into(), version)).await;
    assert!(matches!(told, Ok(sandbox_runs::Update::Changed(_))), "{told:?}");
    assert!(counted.of("read", runs.get("x0")).await.unwrap().is_some());
    assert_eq!(counted.least("list 10", async || runs.list().await).await.unwrap().len(), LISTED);
    assert_eq!(counted.of("delete", runs.delete("x0", now)).await, Ok(sandbox_runs::Delete::Deleted));

    counted.family("Secrets");
    let secrets = Secrets::open(store, settings).await.unwrap();
    let record = SecretRecord { sealed: Sealed::new("sealed").unwrap(), by: "ada".into(), at: at() };
    for name in names().skip(1) {
        secrets.put(&name, &record).await.unwrap();
    }
    counted.of("set", secrets.put("x0", &record)).await.unwrap();
    assert!(counted.of("read", secrets.get("x0")).await.unwrap().is_some());
    assert_eq!(counted.least("list 10", async || secrets.list().await).await.unwrap().len(), LISTED);
    assert_eq!(counted.of("delete", secrets.delete("x0")).await, Ok(secrets::Delete::Deleted));
    assert_eq!(counted.of("delete nothing", secrets.delete("x0")).await, Ok(secrets::Delete::NotThere));

    counted.family("Integrations");
    let surfaces = Integrations::open(store, settings).await.unwrap();
    for name in names().skip(1) {
        surfaces.put(&name, "1".into()).await.unwrap();
    }
    counted.of("write", surfaces.put("x0", "1".into())).await.unwrap();
    assert_eq!(counted.least("list 10", async || surfaces.list().await).await.unwrap().len(), LISTED);
    assert_eq!(counted.of("forget", surfaces.delete("x0")).await, Ok(integrations::Delete::Deleted));

    counted.family("Mailboxes");
    let boxes = Mailboxes::open(store, settings).await.unwrap();
    let present = MailboxRecord::default();
    for name in names().skip(1) {
        assert!(matches!(boxes.create(&name, &present).await, Ok(mailboxes::Create::Created(_))));
    }
    let mailboxes::Create::Created(revision) = counted.of("record", boxes.create("x0", &present)).await.unwrap() else {
        panic!("it is not recorded")
    };
    let told = counted.of("record what is recorded", boxes.create("x0", &present)).await;
    assert!(matches!(told, Ok(mailboxes::Create::Exists(_))), "{told:?}");
    let told = counted.of("stamp", boxes.update("x0", &present.absent(at()), revision)).await;
    let Ok(mailboxes::Update::Updated(revision)) = told else { panic!("{told:?}") };
    assert!(counted.of("read", boxes.get("x0")).await.unwrap().is_some());
    assert_eq!(counted.least("list 10", async || boxes.list().await).await.unwrap().len(), LISTED);
    assert_eq!(counted.of("delete", boxes.delete("x0", revision)).await, Ok(mailboxes::Delete::Deleted));
}

async fn positions(counted: &mut Counted, store: &Nats, settings: &Settings) {
    counted.family("Positions");
    let p = Positions::open(store, settings).await.unwrap();
    let node = |node: &str| NodePosition { node: node.into(), domain: "work".into(), applied: 4, at: at() };
    for name in names().skip(1) {
        assert!(matches!(p.nodes.record(&node(&name), 0).await, Ok(Change::Stored(_))));
    }
    let told = counted.of("record a node's first", p.nodes.record(&node("x0"), 0)).await;
    let Ok(Change::Stored(revision)) = told else { panic!("{told:?}") };
    let told = counted.of("record a node's next", p.nodes.record(&node("x0"), revision)).await;
    assert!(matches!(told, Ok(Change::Stored(_))), "{told:?}");
    assert!(counted.of("read a node's", p.nodes.get("x0", "work")).await.unwrap().is_some());
    assert_eq!(counted.least("list 10 nodes", async || p.nodes.list().await).await.unwrap().len(), LISTED);

    let hold = Hold { id: "h1".into(), by: "a backup".into(), pins: BTreeMap::new(), at: at() };
    let Create::Created(revision) = counted.of("take a hold", p.holds.take(&hold)).await.unwrap() else {
        panic!("it is free")
    };
    assert_eq!(counted.of("release a hold", p.holds.release("h1", revision)).await, Ok(Remove::Removed));

    let terms = BTreeMap::from([("node.x0".to_owned(), 4)]);
    let floor = Floor { domain: "work".into(), floor: 4, trim_to: 4, terms, blocked_by: None, at: at() };
    let told = counted.of("publish a floor", p.floors.publish(&floor, 0)).await;
    assert!(matches!(told, Ok(Change::Stored(_))), "{told:?}");
    assert_eq!(counted.least("list the floors", async || p.floors.list().await).await.unwrap().len(), 1);

    let operation =
        Maintenance { log: "work".into(), operation: "o1".into(), by: "ada".into(), at: at(), state: 1.into() };
    let Create::Created(revision) = counted.of("open an operation", p.maintenance.open(&operation)).await.unwrap()
    else {
        panic!("none is open")
    };
    let told = counted.of("be told the operation that is open", p.maintenance.open(&operation)).await;
    assert!(matches!(told, Ok(Create::Exists(_))), "{told:?}");
    assert_eq!(counted.of("close an operation", p.maintenance.close("work", revision)).await, Ok(Remove::Removed));

    let run = |run: &str| Admission { node: "n1".into(), incarnation: run.into(), at: at() };
    for (operation, incarnation) in
        [("admit a node's first run", "r1"), ("admit it again", "r1"), ("admit another run", "r2")]
    {
        counted.of(operation, p.admitted.admit(&run(incarnation))).await.unwrap();
    }
    assert_eq!(counted.of("forget a run", p.admitted.forget("n1", "r2")).await, Ok(Forget::Forgotten));
    let ack = MaintenanceAck { operation: "o1".into(), node: "n1".into(), at: at() };
    let told = counted.of("acknowledge an operation", p.acks.acknowledge(&ack)).await;
    assert!(matches!(told, Ok(Create::Created(_))), "{told:?}");
}

async fn pauses(counted: &mut Counted, store: &Nats, settings: &Settings) {
    counted.family("Paused seats");
    let pauses = SeatPauses::open(store, settings).await.unwrap();
    let record = SeatPauseRecord { by: "ada".into(), why: "it mails".into(), at: at(), turn_stopped: false };
    for name in names().skip(1) {
        assert!(matches!(pauses.pause(&name, &record).await, Ok(Pause::Paused(_))));
    }
    let Pause::Paused(revision) = counted.of("pause", pauses.pause("x0", &record)).await.unwrap() else {
        panic!("it is not paused")
    };
    let told = counted.of("pause what is paused", pauses.pause("x0", &record)).await;
    assert!(matches!(told, Ok(Pause::AlreadyPaused(_))), "{told:?}");
    assert!(counted.of("read", pauses.get("x0")).await.unwrap().is_some());
    assert_eq!(counted.least("list 10", async || pauses.list().await).await.unwrap().len(), LISTED);
    let mut follow = pauses.follow();
    match counted.of("begin to follow 10", follow.next()).await {
        News::All { entries, .. } => assert_eq!(entries.len(), LISTED),
        other => panic!("{other:?}"),
    }
    assert_eq!(counted.of("resume", pauses.resume("x0", revision)).await, Ok(Resume::Resumed));
    let told = counted.of("hear of a change", follow.next()).await;
    assert!(matches!(told, News::Changed(_, None)), "{told:?}");
}

async fn budgets(counted: &mut Counted, store: &Nats, settings: &Settings) {
    counted.family("Budgets");
    let budgets = Budgets::open(store, settings).await.unwrap();
    let windows = Windows::at(at(), &Zone::parse("timezone", "UTC").unwrap()).unwrap();
    let org = Ceilings::parse([("day", 100)]).unwrap();
    let caps = Caps { org, seat: Ceilings::default() };
    let charge = async |tokens| budgets.charge("alpha", tokens, &windows, &caps, at()).await.unwrap().gate;
    for (operation, admitted) in
        [("charge, the first of both scopes", true), ("charge", true), ("charge, refused", false)]
    {
        let gate = counted.of(operation, charge(40)).await;
        assert_eq!(gate == Gate::Admitted, admitted, "{operation}: {gate:?}");
    }
    assert_eq!(counted.of("charge nothing", charge(0)).await, Gate::Admitted);
    counted.of("record spend after the fact", budgets.post_charge("alpha", 1, &windows)).await.unwrap();
    let later = at() + SignedDuration::from_secs(1);
    let refused = counted.of("turn a call away unmade", budgets.refuse("alpha", &windows, &caps, later)).await;
    assert!(refused.unwrap().is_some(), "it is full");
    let room = Caps::default();
    let refused = counted.of("find room on both", budgets.refuse("alpha", &windows, &room, later)).await;
    assert_eq!(refused.unwrap(), None);
    assert_eq!(counted.of("read both counters", budgets.used("alpha", &windows)).await.unwrap().org.day.spent, 121);
    for name in names().skip(2) {
        budgets.post_charge_seat(&name, 1, &windows).await.unwrap();
    }
    assert_eq!(counted.least("list 10 scopes", async || budgets.usage(&windows).await).await.unwrap().len(), LISTED);
}
