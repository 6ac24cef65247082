//! Values across the families: too large, as large as can be, and the largest that nobody can read, each by its family's rule;
//! and the names that one-segment keys are made of.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Landing};
use coordproto::record::channel::ChannelRecord;
use coordproto::record::config::{Origin, Proposal};
use coordproto::record::cooldown::Credential;
use coordproto::record::follow::Thread;
use coordproto::record::keyed::Keyed;
use coordproto::record::mailbox::MailboxRecord;
use coordproto::record::objects::CollectionRecord;
use coordproto::record::position::{Admission, Backup, Floor, Hold, Kind, Maintenance, MaintenanceAck, NodePosition};
use coordproto::record::seat_pause::{self, SeatPauseRecord};
use coordproto::record::secret::{Sealed, SecretRecord};
use coordproto::record::status::{ApplyStatus, StatusRecord};
use coordproto::record::{claim, ledger, rate};
use coordproto::slot::{
    CHANNELS, CLAIMS, CONFIG, COOLDOWNS, CUSTODY, DUTIES, EPOCHS, FIRES, FOLLOWS, INTEGRATIONS, LEASES, LEDGER,
    MAILBOXES, OBJECTS, POSITIONS, RATE, REBASES, Retention, SANDBOX_RUNS, SECRETS, STATUS, Slot,
};
use engine::jetstream::Meter;
use engine::lease::{Leases, Renew, Terms};
use engine::slots::Settings;
use engine::slots::channels::Channels;
use engine::slots::claims::{Delivery, DeliveryClaims};
use engine::slots::config::Activations;
use engine::slots::cooldowns::{Cool, Cooldowns};
use engine::slots::custody::Custody;
use engine::slots::fires::{Fire, Fires};
use engine::slots::follows::{Following, Follows, Unfollow};
use engine::slots::integrations::{Integration, Integrations};
use engine::slots::ledger::{Ledger, Recorded};
use engine::slots::mailboxes::Mailboxes;
use engine::slots::objects::Objects;
use engine::slots::pauses::{Pause, SeatPauses};
use engine::slots::positions::Positions;
use engine::slots::rate::{RateValve, Take};
use engine::slots::rebases::Rebases;
use engine::slots::rows::{self, Change};
use engine::slots::sandbox_runs::{Create, SandboxRuns, Update};
use engine::slots::secrets::Secrets;
use engine::slots::status::Statuses;
use engine::store::faulty::{Fault, Faulty, Verb};
use engine::store::listing::LIST_WITHIN;
use engine::store::{Bucket, OpenError, Store};
use jiff::Timestamp;

use crate::bench::{assert_undecodable, bucket, raw_key, stored, unknown};
use crate::{Fixture, held, resource, terms};

const SECOND: Duration = Duration::from_secs(1);

fn at() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("an instant")
}

/// What stands for too much, wherever text goes.
fn much() -> String {
    "x".repeat(1 << 20)
}

fn origin(author: &str) -> Origin {
    let (author_kind, source) = ("operator".to_owned(), "api".to_owned());
    Origin { author: author.to_owned(), author_kind, source, created_at: at() }
}

fn operation(by: &str, state: &str) -> Maintenance {
    Maintenance { log: "work".into(), operation: "o1".into(), by: by.to_owned(), at: at(), state: state.into() }
}

fn hold(by: String) -> Hold {
    Hold { id: "h1".into(), by, pins: BTreeMap::new(), at: at() }
}

/// Expects that a write was refused before a broker was asked, and that the error has the record, its size and the limit.
async fn refuses<S: Store, T: Debug>(
    t: &Fixture<S>,
    (slot, key): (&Slot, &str),
    what: &str,
    write: impl Future<Output = Result<T, Error>>,
) {
    let most = bucket(t, slot).await.value_bytes_max();
    let (told, cost) = Meter::measure(Box::pin(write)).await;
    let Err(Error::BadArgument(refused)) = told else { panic!("{key} in {}: {told:?}", slot.name) };
    let (bytes, record) = refused.given.split_once(" bytes for ").expect("a size and a record");
    assert!(bytes.parse::<usize>().expect("a size") > most, "{refused}");
    assert_eq!((record, refused.what), (&*format!("{key} in {}_{}", t.prefix, slot.name), what), "{refused}");
    assert_eq!(*refused.rule, *format!("at most {most} bytes"), "{refused}");
    assert_eq!(cost.requests, 0, "{key} in {}", slot.name);
}

/// A broker that takes hardly anything takes no marker and no instant either. Nobody's argument was wrong, so it is unknown,
/// and settled: nothing was sent.
pub async fn where_even_a_marker_is_too_large_nothing_is_said<S: Store>(t: Fixture<S>) {
    let (store, settings) = (Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::None), t.settings());
    let cooldowns = Cooldowns::open(&store, &settings).await.unwrap();
    let pauses = SeatPauses::open(&store, &settings).await.unwrap();
    let holds = Positions::open(&store, &settings).await.unwrap().holds;
    let positions = settings.open(&store, &POSITIONS).await.unwrap();
    let pause = SeatPauseRecord { by: "ada".into(), why: "why".into(), at: at(), turn_stopped: false };
    let Pause::Paused(paused) = pauses.pause("alpha", &pause).await.unwrap() else { panic!("it was not paused") };
    let rows::Create::Created(held) = holds.take(&hold("ada".into())).await.unwrap() else {
        panic!("it was not taken")
    };
    store.choose(|call| if call.verb == Verb::Put { Fault::TooLarge } else { Fault::None });
    let by = t.env.now() + LIST_WITHIN;
    let Err(OpenError::Unknown(opened)) = Leases::open(t.env.clone(), &store, &t.config()).await else {
        panic!("what protocol it speaks was not told");
    };
    let told: [Error; 5] = [
        cooldowns.cool(&Credential::new("vendor", b"key").unwrap(), at()).await.unwrap_err().into(),
        pauses.resume("alpha", paused).await.unwrap_err(),
        holds.release("h1", held).await.unwrap_err(),
        positions.barrier(by).await.unwrap_err().into(),
        opened.into(),
    ];
    for (told, op) in told.into_iter().zip(["cool", "resume", "release_hold", "barrier", "declare protocol"]) {
        let unknown = told.unknown().unwrap_or_else(|| panic!("{op}: {told}"));
        assert!(matches!(unknown.cause, Cause::TooLarge(_)), "{unknown}");
        assert_eq!((unknown.op, unknown.landing), (op, Landing::Settled), "{unknown}");
    }
}

/// Whatever a family keeps of what it is given, too much of it is refused by the record, its size and the limit, before
/// anybody is asked; and nothing of it stands.
pub async fn what_is_too_large_is_refused_by_record_size_and_limit<S: Store>(t: Fixture<S>) {
    let (store, settings) = (&t.store, t.settings());
    let leases = t.leases().await;
    for (slot, name) in [(&LEASES, "seat:a"), (&LEASES, "node:a"), (&DUTIES, "worker:a")] {
        let ask = Terms { meta: Some(much().into()), ..terms(&leases, name, "n1:1") };
        let key = resource(name).key().clone();
        refuses(&t, (slot, key.as_str()), "value", leases.claim(&ask)).await;
        assert_eq!(leases.get(&resource(name)).await.unwrap(), None);
    }
    let mut presence = held(&leases, &terms(&leases, "node:a", "n1:1")).await;
    refuses(&t, (&LEASES, "node.a"), "value", leases.renew_with(&mut presence, much().into())).await;
    assert_eq!(leases.renew(&mut presence).await.unwrap(), Renew::Extended);

    let config = Activations::open(store, &settings).await.unwrap();
    let body = "body.cfg-1.0000000000000000";
    let plain = Proposal::new("cfg-1", origin("ada"));
    refuses(&t, (&CONFIG, body), "body", config.activate(&plain, much().into(), at())).await;
    let chatty = Proposal::new("cfg-1", origin(&much()));
    refuses(&t, (&CONFIG, "pointer"), "origin", config.activate(&chatty, "b".into(), at())).await;
    assert_eq!(config.target().await.unwrap(), None);

    let status = Statuses::open(store, &settings).await.unwrap();
    let report = StatusRecord { epoch: 1, revision: much(), status: ApplyStatus::Ok, error: String::new() };
    refuses(&t, (&STATUS, "n1"), "value", status.record_apply("n1", &report)).await;
    assert_eq!(status.fleet().await.unwrap().nodes, []);

    let ledger = Ledger::open(store, &settings).await.unwrap();
    refuses(&t, (&LEDGER, "alpha=7Ce1"), "value", ledger.record("alpha", "e1", &much(), at())).await;
    assert!(!ledger.worked("alpha", &["e1"]).await.unwrap().contains("e1"));

    let channels = Channels::open_bucket(store, &settings).await.unwrap();
    refuses(&t, (&CHANNELS, "x"), "value", channels.open("x", &much(), "bob", at())).await;
    assert_eq!(channels.get("x").await.unwrap(), None);

    let runs = SandboxRuns::open(store, &settings).await.unwrap();
    refuses(&t, (&SANDBOX_RUNS, "t1"), "value", runs.create("t1", much().into())).await;
    let Create::Created(version) = runs.create("t1", "small".into()).await.unwrap() else { panic!("it is free") };
    refuses(&t, (&SANDBOX_RUNS, "t1"), "value", runs.update("t1", much().into(), version)).await;
    assert_eq!(runs.get("t1").await.unwrap().unwrap().record, "small");

    let secrets = Secrets::open(store, &settings).await.unwrap();
    let secret = SecretRecord { sealed: Sealed::new("s").unwrap(), by: much(), at: at() };
    refuses(&t, (&SECRETS, "API_KEY"), "value", secrets.put("API_KEY", &secret)).await;
    assert_eq!(secrets.get("API_KEY").await.unwrap(), None);

    let surfaces = Integrations::open(store, &settings).await.unwrap();
    refuses(&t, (&INTEGRATIONS, "chat"), "value", surfaces.put("chat", much().into())).await;
    assert_eq!(surfaces.list().await.unwrap(), []);

    let mailboxes = Mailboxes::open(store, &settings).await.unwrap();
    let mut large = MailboxRecord::default();
    large.newer.insert("much".into(), much().into());
    refuses(&t, (&MAILBOXES, "alpha"), "value", mailboxes.create("alpha", &large)).await;
    refuses(&t, (&MAILBOXES, "alpha"), "value", mailboxes.update("alpha", &large, 1)).await;
    assert_eq!(mailboxes.get("alpha").await.unwrap(), None);

    let custody = Custody::open(store, &settings).await.unwrap();
    refuses(&t, (&CUSTODY, "b"), "value", custody.claim_custody("b", &much())).await;
    assert_eq!(custody.claim_custody("b", "n2").await.unwrap(), "n2");

    let objects = Objects::open(store, &settings).await.unwrap();
    refuses(&t, (&OBJECTS, "backend"), "value", objects.agree_backend(&much())).await;
    let pass = CollectionRecord { node: "n1".into(), at: at(), found: much().into() };
    refuses(&t, (&OBJECTS, "collection"), "value", objects.record_collection(&pass)).await;
    assert_eq!(objects.agree_backend("nats").await.unwrap(), "nats");
    positions_too_large(&t).await;
}

async fn positions_too_large<S: Store>(t: &Fixture<S>) {
    let p = Positions::open(&t.store, &t.settings()).await.unwrap();
    let pauses = SeatPauses::open(&t.store, &t.settings()).await.unwrap();
    let pause = SeatPauseRecord { by: "ada".into(), why: much(), at: at(), turn_stopped: false };
    refuses(t, (&POSITIONS, "seat_pause.alpha"), "value", pauses.pause("alpha", &pause)).await;
    for revision in [0, 1] {
        let backup = Backup { owner: "ops".into(), backup: much(), covers: BTreeMap::new(), at: at() };
        refuses(t, (&POSITIONS, "backup.ops"), "value", p.backups.record(&backup, revision)).await;
        let terms = BTreeMap::from([(much(), 9)]);
        let floor = Floor { domain: "work".into(), floor: 9, trim_to: 9, terms, blocked_by: None, at: at() };
        refuses(t, (&POSITIONS, "floor.work"), "value", p.floors.publish(&floor, revision)).await;
    }
    refuses(t, (&POSITIONS, "hold.h1"), "value", p.holds.take(&hold(much()))).await;
    refuses(t, (&POSITIONS, "hold.h1"), "value", p.holds.update(&hold(much()), 1)).await;
    let open = operation("ada", &much());
    refuses(t, (&POSITIONS, "maintenance.work"), "value", p.maintenance.open(&open)).await;
    refuses(t, (&POSITIONS, "maintenance.work"), "value", p.maintenance.update(&open, 1)).await;
    let admission = Admission { node: "n1".into(), incarnation: much(), at: at() };
    refuses(t, (&POSITIONS, "admitted.n1"), "value", p.admitted.admit(&admission)).await;
    let nothing = p.nodes.list().await.unwrap().len() + p.holds.list().await.unwrap().len();
    assert_eq!(nothing + p.backups.list().await.unwrap().len() + p.floors.list().await.unwrap().len(), 0);
    assert_eq!(p.maintenance.list().await.unwrap(), []);
    assert_eq!(p.admitted.list().await.unwrap(), []);
    assert_eq!(pauses.list().await.unwrap(), []);
}

/// A value at the limit is kept and comes back whole. A record that would outgrow the limit in being changed is refused by
/// name, and stands as it did: it is neither cut nor absent.
pub async fn a_value_at_the_limit_is_whole<S: Store>(t: Fixture<S>) {
    let (store, settings) = (&t.store, t.settings());
    let runs = SandboxRuns::open(store, &settings).await.unwrap();
    let surfaces = Integrations::open(store, &settings).await.unwrap();
    let most = bucket(&t, &SANDBOX_RUNS).await.value_bytes_max();
    let (one, two) = (Bytes::from(vec![b'1'; most]), Bytes::from(vec![0xff; most]));
    let Create::Created(version) = runs.create("t1", one.clone()).await.unwrap() else { panic!("it is free") };
    assert_eq!(runs.get("t1").await.unwrap().unwrap().record, one);
    let Update::Updated(version) = runs.update("t1", two.clone(), version).await.unwrap() else { panic!("it stands") };
    let listed = runs.list().await.unwrap();
    assert_eq!((listed.len(), listed[0].version, &listed[0].record), (1, version, &two));
    surfaces.put("chat", two.clone()).await.unwrap();
    assert_eq!(surfaces.list().await.unwrap(), [Integration { surface: "chat".into(), record: two }]);

    let (channels, b) = (Channels::open_bucket(store, &settings).await.unwrap(), bucket(&t, &CHANNELS).await);
    let mut record = ChannelRecord::open("ada", "bob", at()).unwrap();
    record.newer.insert("topic".into(), "".into());
    let room = most - record.encode().len();
    record.newer.insert("topic".into(), "x".repeat(room).into());
    assert_eq!(record.encode().len(), most);
    let revision = stored(&b, &raw_key("x"), record.encode()).await;
    match channels.close("x", at()).await {
        Err(Error::BadArgument(refused)) => assert!(refused.given.contains(" bytes for x in "), "{refused}"),
        other => panic!("{other:?}"),
    }
    assert!(channels.get("x").await.unwrap().expect("it stands").record.is_open());
    assert_eq!(channels.open_channels().await.unwrap().len(), 1);
    assert_eq!(b.get(&raw_key("x")).await.unwrap().unwrap().revision, revision);
}

/// Expects that an answer is unknown since a record cannot be read, in few words however large it is.
fn unreadable<T>(answer: Result<T, impl Into<Error>>) {
    let unknown = unknown(answer);
    assert!(matches!(unknown.cause, Cause::Undecodable(_)), "{unknown}");
    assert_eq!(unknown.landing, Landing::Settled, "{unknown}");
    assert!(unknown.to_string().len() < 600, "{} bytes: {unknown:.600}", unknown.to_string().len());
}

/// The largest value there is, made by nobody who speaks of these records, is what each family says of one that cannot be
/// read: unknown, nobody's, or there. It is absent for none, and no error repeats it.
pub async fn the_largest_value_that_nobody_can_read_is_by_its_familys_rule<S: Store>(t: Fixture<S>) {
    let (store, settings) = (&t.store, t.settings());
    let most = bucket(&t, &RATE).await.value_bytes_max();
    // JSON, of another shape, which a decoder quotes in its error.
    let large = Bytes::from(format!("\"{}\"", "x".repeat(most - 2)));
    let put = async |slot: &Slot, key: &str| stored(&bucket(&t, slot).await, &raw_key(key), large.clone()).await;

    let leases = t.leases().await;
    for (slot, name) in [(&LEASES, "seat:a"), (&DUTIES, "worker:a"), (&EPOCHS, "seat:b")] {
        put(slot, resource(name).key().as_str()).await;
        unreadable(leases.claim(&terms(&leases, name, "n1:1")).await);
    }
    unreadable(leases.get(&resource("seat:a")).await);

    // What says nothing suppresses nothing, holds nothing back and is left out; what says it by being there does.
    let deliveries = DeliveryClaims::open(store, &settings).await.unwrap();
    put(&CLAIMS, claim::key("slack", "x1").unwrap().as_str()).await;
    let attempt = deliveries.attempt("slack", "x1").unwrap();
    assert_eq!(deliveries.claim(&attempt, SECOND, at()).await.unwrap(), Delivery::First);
    let cooldowns = Cooldowns::open(store, &settings).await.unwrap();
    let credential = Credential::new("fast", b"sk-1").unwrap();
    put(&COOLDOWNS, credential.key().as_str()).await;
    assert_eq!(cooldowns.since(at()).await.unwrap(), []);
    assert_eq!(cooldowns.cool(&credential, at() + SECOND).await.unwrap(), Cool::Cooled);
    let status = Statuses::open(store, &settings).await.unwrap();
    put(&STATUS, "n1").await;
    assert_eq!(status.fleet().await.unwrap().nodes, []);
    put(&FIRES, "standup").await;
    assert_eq!(Fires::open(store, &settings).await.unwrap().claim_fire("standup", at()).await.unwrap(), Fire::Taken);
    let follows = Follows::open(store, &settings).await.unwrap();
    let thread = Thread { backend: "slack", handle: "alpha", channel: "C1", thread: "17" };
    put(&FOLLOWS, thread.key().unwrap().as_str()).await;
    assert_eq!(follows.following(&thread).await.unwrap(), Following::Yes);
    put(&SANDBOX_RUNS, "t1").await;
    let runs = SandboxRuns::open(store, &settings).await.unwrap();
    assert_eq!(runs.get("t1").await.unwrap().expect("bytes are bytes").record, large);
    put(&INTEGRATIONS, "chat").await;
    assert_eq!(Integrations::open(store, &settings).await.unwrap().list().await.unwrap()[0].record, large);

    // Everywhere else it is unknown.
    let valve = RateValve::open(store, &settings).await.unwrap();
    put(&RATE, rate::key("alpha", at()).unwrap().as_str()).await;
    unreadable(valve.allow("alpha", 5, SECOND, at()).await);
    let ledger = Ledger::open(store, &settings).await.unwrap();
    put(&LEDGER, ledger::key("alpha", "e1").unwrap().as_str()).await;
    unreadable(ledger.worked("alpha", &["e1"]).await);
    assert_eq!(ledger.record("alpha", "e1", "done", at()).await.unwrap(), Recorded::Before);
    let config = Activations::open(store, &settings).await.unwrap();
    put(&CONFIG, "pointer").await;
    unreadable(config.target().await);
    unreadable(config.payload("cfg-1").await);
    unreadable(config.activate(&Proposal::new("cfg-1", origin("ada")), "b".into(), at()).await);
    let channels = Channels::open_bucket(store, &settings).await.unwrap();
    put(&CHANNELS, "x").await;
    unreadable(channels.get("x").await);
    unreadable(channels.all_channels().await);
    let rebases = Rebases::open(store, &settings).await.unwrap();
    put(&REBASES, "turn").await;
    unreadable(rebases.rebase("turn").await);
    let secrets = Secrets::open(store, &settings).await.unwrap();
    put(&SECRETS, "API_KEY").await;
    assert_undecodable(secrets.list().await, "list", "API_KEY");
    unreadable(secrets.get("API_KEY").await);
    let mailboxes = Mailboxes::open(store, &settings).await.unwrap();
    put(&MAILBOXES, "alpha").await;
    unreadable(mailboxes.get("alpha").await);
    unreadable(mailboxes.list().await);
    put(&CUSTODY, "b").await;
    unreadable(Custody::open(store, &settings).await.unwrap().claim_custody("b", "n1").await);
    let objects = Objects::open(store, &settings).await.unwrap();
    put(&OBJECTS, "backend").await;
    put(&OBJECTS, "collection").await;
    unreadable(objects.agree_backend("nats").await);
    unreadable(objects.collection().await);

    let (p, pauses) =
        (Positions::open(store, &settings).await.unwrap(), SeatPauses::open(store, &settings).await.unwrap());
    put(&POSITIONS, NodePosition::key_of("n1", "work").unwrap().as_str()).await;
    unreadable(p.nodes.list().await);
    for kind in [Kind::Hold, Kind::Backup, Kind::Floor, Kind::Maintenance, Kind::Admitted] {
        put(&POSITIONS, kind.key("name", "x").unwrap().as_str()).await;
    }
    unreadable(p.holds.list().await);
    unreadable(p.backups.list().await);
    unreadable(p.floors.list().await);
    unreadable(p.maintenance.list().await);
    unreadable(p.admitted.list().await);
    let ack = MaintenanceAck { operation: "o1".into(), node: "n1".into(), at: at() };
    put(&POSITIONS, ack.key().unwrap().as_str()).await;
    unreadable(p.acks.list().await);
    put(&POSITIONS, seat_pause::key("alpha").unwrap().as_str()).await;
    unreadable(pauses.list().await);
    unreadable(pauses.get("alpha").await);
}

/// Names are bytes: whatever a name is made of, its record is its own and nobody else's. None of these is normalised, and none
/// reads as a separator or a wildcard.
pub async fn names_of_one_segment_are_kept_to_the_byte<S: Store>(t: Fixture<S>) {
    const NAMES: [&str; 18] = [
        " ", ".", "..", "*", ">", "=", "=2E", "a", "A", "a.b", "a|b", "a\\|b", "a:b", "\u{0}", "a\nb", "é", "e\u{301}",
        "🙂",
    ];
    let (store, settings) = (&t.store, t.settings());
    // No count ages away before it is looked at again, however slow the machine.
    let retention = Retention { rate_window: 60 * SECOND, ..settings.retention };
    let valve = RateValve::open(store, &Settings { retention, ..settings.clone() }).await.unwrap();
    let fires = Fires::open(store, &settings).await.unwrap();
    let rebases = Rebases::open(store, &settings).await.unwrap();
    let custody = Custody::open(store, &settings).await.unwrap();
    let follows = Follows::open(store, &settings).await.unwrap();
    let thread = |name| Thread { backend: name, handle: name, channel: name, thread: name };
    let mut version = BTreeMap::new();
    for (nth, name) in (0..).zip(NAMES) {
        assert_eq!(valve.allow(name, 1, SECOND, at()).await.unwrap(), Take::Allowed, "{name:?}");
        assert_eq!(fires.claim_fire(name, at()).await.unwrap(), Fire::Claimed, "{name:?}");
        match rebases.record_rebase(name, at() + nth * SECOND, 0).await.unwrap() {
            Change::Stored(at) => version.insert(name, at),
            other => panic!("{name:?}: {other:?}"),
        };
        assert_eq!(custody.claim_custody(name, name).await.unwrap(), name);
        assert_eq!(follows.following(&thread(name)).await.unwrap(), Following::No, "{name:?}");
        follows.follow(&thread(name)).await.unwrap();
    }
    for (nth, name) in (0..).zip(NAMES) {
        assert_eq!(valve.allow(name, 1, SECOND, at()).await.unwrap(), Take::Refused, "{name:?}");
        assert_eq!(fires.claim_fire(name, at()).await.unwrap(), Fire::Taken, "{name:?}");
        let row = rebases.rebase(name).await.unwrap().expect("it is recorded");
        assert_eq!((row.record.at, row.revision), (at() + nth * SECOND, version[name]), "{name:?}");
        assert_eq!(custody.claim_custody(name, "late").await.unwrap(), name);
        assert_eq!(follows.unfollow(&thread(name)).await.unwrap(), Unfollow::Removed, "{name:?}");
    }
}
