//! Of many nodes that race, each connected to a member of its own, one wins, and everybody is told so: what is created once,
//! changed at one version, removed once or activated.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use coordproto::record::config::{Origin, Proposal};
use coordproto::record::follow::Thread;
use coordproto::record::mailbox::MailboxRecord;
use coordproto::record::position::Maintenance;
use coordproto::record::seat_pause::SeatPauseRecord;
use coordproto::record::secret::{Sealed, SecretRecord};
use coordproto::slot::Retention;
use engine::slots::Settings;
use engine::slots::channels::{Channels, Open};
use engine::slots::claims::{Delivery, DeliveryClaims, Release};
use engine::slots::config::{Activation, Activations, Payload};
use engine::slots::custody::Custody;
use engine::slots::fires::{Fire, Fires};
use engine::slots::follows::{Follows, Unfollow};
use engine::slots::ledger::{Ledger, Recorded};
use engine::slots::mailboxes::{self, Mailboxes};
use engine::slots::objects::Objects;
use engine::slots::pauses::{Pause, Resume, SeatPauses};
use engine::slots::positions::Positions;
use engine::slots::rate::{RateValve, Take};
use engine::slots::rebases::Rebases;
use engine::slots::rows::{Change, Create, Remove};
use engine::slots::sandbox_runs::{self, SandboxRuns};
use engine::slots::secrets::{self, Secrets};
use engine::store::nats::Nats;
use futures_util::future::join_all;
use jiff::Timestamp;
use tests::Brokers;

use crate::beside_others;

/// How often each race is run.
const ROUNDS: usize = 5;

/// How many at each member take part.
const EACH: usize = 4;

const MINUTE: Duration = Duration::from_secs(60);

fn at() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("an instant")
}

/// A store at every member.
async fn stores(brokers: &Brokers) -> Vec<Nats> {
    let mut stores = Vec::new();
    for member in brokers.members() {
        stores.push(brokers.store_at(member).await);
    }
    stores
}

/// What every node of the fleet opened, so many for each member, those at different members next to each other.
async fn nodes<T: Clone, E: Debug>(stores: &[Nats], open: impl AsyncFn(&Nats) -> Result<T, E>) -> Vec<T> {
    let mut opened = Vec::new();
    for store in stores {
        opened.push(open(store).await.expect("the bucket opens"));
    }
    opened.iter().cycle().take(EACH * stores.len()).cloned().collect()
}

/// Races once: every node does `work`, with its number.
async fn race<T, O, E: Debug>(nodes: &[T], work: impl AsyncFn(&T, usize) -> Result<O, E>) -> Vec<O> {
    let told = join_all(nodes.iter().enumerate().map(|(i, node)| work(node, i))).await;
    told.into_iter().map(|told| told.expect("a definite answer")).collect()
}

/// The only one of whom this is true.
fn one<T: Debug>(told: &[T], what: &str, won: impl Fn(&T) -> bool) -> usize {
    let winners: Vec<usize> = (0..told.len()).filter(|i| won(&told[*i])).collect();
    let [winner] = winners[..] else { panic!("{what}: {} won: {told:?}", winners.len()) };
    winner
}

#[test]
fn what_is_created_once_has_one_creator_through_any_member() {
    beside_others(async |brokers| {
        let (stores, settings) = (stores(brokers).await, brokers.settings("races_once"));
        let fires = nodes(&stores, async |store| Fires::open(store, &settings).await).await;
        let custody = nodes(&stores, async |store| Custody::open(store, &settings).await).await;
        let ledgers = nodes(&stores, async |store| Ledger::open(store, &settings).await).await;
        let claims = nodes(&stores, async |store| DeliveryClaims::open(store, &settings).await).await;
        let channels = nodes(&stores, async |store| Channels::open_bucket(store, &settings).await).await;
        let objects = nodes(&stores, async |store| Objects::open(store, &settings).await).await;
        // Nothing that is counted ages away while a round goes on, however slow the machine.
        let retention = Retention { rate_window: MINUTE, ..settings.retention };
        let windows = Settings { retention, ..settings.clone() };
        let valves = nodes(&stores, async |store| RateValve::open(store, &windows).await).await;
        for round in 0..ROUNDS {
            let name = format!("r{round}");
            let told = race(&fires, async |fires, _| fires.claim_fire(&name, at()).await).await;
            one(&told, "fires", |told| *told == Fire::Claimed);

            let told = race(&custody, async |custody, i| custody.claim_custody(&name, &format!("n{i}")).await).await;
            assert!(told.iter().all(|keeper| *keeper == told[0]), "custody: {told:?}");
            one(&(0..told.len()).collect::<Vec<_>>(), "custody", |i| told[*i] == format!("n{i}"));

            let told = race(&ledgers, async |ledger, i| ledger.record("s", &name, &format!("n{i}"), at()).await).await;
            let first = one(&told, "ledger", |told| *told == Recorded::First);
            let worked = ledgers[0].worked("s", &[&name]).await.unwrap();
            assert_eq!(worked.records()[&name].detail, format!("n{first}"));

            let attempts: Vec<_> = claims.iter().map(|claims| claims.attempt("slack", &name).unwrap()).collect();
            let told = race(&claims, async |claims, i| claims.claim(&attempts[i], MINUTE, at()).await).await;
            let first = one(&told, "claims", |told| *told == Delivery::First);
            let told = race(&claims, async |claims, i| claims.release(&attempts[i]).await).await;
            assert_eq!(one(&told, "releases", |told| *told == Release::Released), first);

            let told =
                race(&channels, async |channels, i| channels.open(&name, &format!("n{i}"), "b", at()).await).await;
            one(&told, "channels", |told| matches!(told, Open::Opened(_)));

            let told = race(&valves, async |valve, _| valve.allow(&name, 5, Duration::from_secs(1), at()).await).await;
            let allowed = told.iter().filter(|take| **take == Take::Allowed).count();
            assert_eq!(allowed, 5, "rate: {told:?}");
        }
        let told = race(&objects, async |objects, i| objects.agree_backend(&format!("s3:e/b{i}/")).await).await;
        assert!(told.iter().all(|backend| *backend == told[0]), "objects: {told:?}");
    });
}

#[test]
fn of_changes_of_one_version_one_happens_through_any_member() {
    beside_others(async |brokers| {
        let (stores, settings) = (stores(brokers).await, brokers.settings("races_versions"));
        let rebases = nodes(&stores, async |store| Rebases::open(store, &settings).await).await;
        let follows = nodes(&stores, async |store| Follows::open(store, &settings).await).await;
        let runs = nodes(&stores, async |store| SandboxRuns::open(store, &settings).await).await;
        let secrets = nodes(&stores, async |store| Secrets::open(store, &settings).await).await;
        let boxes = nodes(&stores, async |store| Mailboxes::open(store, &settings).await).await;
        let pauses = nodes(&stores, async |store| SeatPauses::open(store, &settings).await).await;
        let positions = nodes(&stores, async |store| Positions::open(store, &settings).await).await;
        let thread = Thread { backend: "slack", handle: "alpha", channel: "C1", thread: "17" };
        let secret = SecretRecord { sealed: Sealed::new("sealed").unwrap(), by: "ada".into(), at: at() };
        let mut recorded = 0;
        for round in 0..ROUNDS {
            let told = race(&rebases, async |rebases, i| {
                rebases.record_rebase("t1", at() + Duration::from_secs(i as u64), recorded).await
            })
            .await;
            let won = one(&told, "rebases", |told| matches!(told, Change::Stored(_)));
            let stands = rebases[won].rebase("t1").await.unwrap().expect("it is recorded");
            assert_eq!(told[won], Change::Stored(stands.revision));
            assert!(
                told.iter().all(|told| matches!(told, Change::Stored(_)) || *told == Change::Changed(stands.clone()))
            );
            recorded = stands.revision;

            follows[round].follow(&thread).await.unwrap();
            let told = race(&follows, async |follows, _| follows.unfollow(&thread).await).await;
            one(&told, "follows", |told| *told == Unfollow::Removed);

            let told = race(&runs, async |runs, i| runs.create("t1", Bytes::from(format!("n{i}"))).await).await;
            let won = one(&told, "runs", |told| matches!(told, sandbox_runs::Create::Created(_)));
            let sandbox_runs::Create::Created(version) = told[won] else { unreachable!("it won") };
            let told =
                race(&runs, async |runs, i| runs.update("t1", Bytes::from(format!("m{i}")), version).await).await;
            let won = one(&told, "runs", |told| matches!(told, sandbox_runs::Update::Updated(_)));
            let sandbox_runs::Update::Updated(version) = told[won] else { unreachable!("it won") };
            let told = race(&runs, async |runs, _| runs.delete("t1", version).await).await;
            one(&told, "runs", |told| *told == sandbox_runs::Delete::Deleted);

            secrets[round].put("API_KEY", &secret).await.unwrap();
            let told = race(&secrets, async |secrets, _| secrets.delete("API_KEY").await).await;
            one(&told, "secrets", |told| *told == secrets::Delete::Deleted);

            let present = MailboxRecord::default();
            let told = race(&boxes, async |boxes, _| boxes.create("alpha", &present).await).await;
            let won = one(&told, "mailboxes", |told| matches!(told, mailboxes::Create::Created(_)));
            let mailboxes::Create::Created(revision) = told[won] else { unreachable!("it won") };
            let told =
                race(&boxes, async |boxes, _| boxes.update("alpha", &present.absent(at()), revision).await).await;
            let won = one(&told, "mailboxes", |told| matches!(told, mailboxes::Update::Updated(_)));
            let mailboxes::Update::Updated(revision) = told[won] else { unreachable!("it won") };
            let told = race(&boxes, async |boxes, _| boxes.delete("alpha", revision).await).await;
            one(&told, "mailboxes", |told| *told == mailboxes::Delete::Deleted);

            let told = race(&pauses, async |pauses, i| {
                let by = format!("n{i}");
                let record = SeatPauseRecord { by, why: "it mails".into(), at: at(), turn_stopped: false };
                pauses.pause("alpha", &record).await
            })
            .await;
            let won = one(&told, "pauses", |told| matches!(told, Pause::Paused(_)));
            let Pause::Paused(revision) = told[won] else { unreachable!("it won") };
            let told = race(&pauses, async |pauses, _| pauses.resume("alpha", revision).await).await;
            one(&told, "pauses", |told| *told == Resume::Resumed);

            let told = race(&positions, async |positions, i| {
                let (log, operation, by) = ("work".into(), format!("o{i}"), "ada".into());
                positions.maintenance.open(&Maintenance { log, operation, by, at: at(), state: 1.into() }).await
            })
            .await;
            let won = one(&told, "operations", |told| matches!(told, Create::Created(_)));
            let Create::Created(revision) = told[won] else { unreachable!("it won") };
            let told = race(&positions, async |positions, _| positions.maintenance.close("work", revision).await).await;
            one(&told, "operations", |told| *told == Remove::Removed);
        }
    });
}

#[test]
fn of_activations_one_replaces_a_revision_through_any_member() {
    beside_others(async |brokers| {
        let (stores, settings) = (stores(brokers).await, brokers.settings("races_config"));
        let config = nodes(&stores, async |store| Activations::open(store, &settings).await).await;
        let mut expect = None;
        for round in 0..ROUNDS {
            let told = race(&config, async |config, i| {
                let (author, author_kind, source) = (format!("n{i}"), "node".into(), "seed".into());
                let origin = Origin { author, author_kind, source, created_at: at() };
                let expect_absent = expect.is_none();
                // All of them activate one revision, each with a body of its own.
                let revision = format!("cfg-{round}");
                let proposal = Proposal { expect: expect.clone(), expect_absent, ..Proposal::new(revision, origin) };
                config.activate(&proposal, Bytes::from(format!("sealed by n{i}")), at()).await
            })
            .await;
            let won = one(&told, "activations", |told| matches!(told, Activation::Activated(_)));
            let revision = format!("cfg-{round}");
            for config in &config {
                let stands = config.target().await.unwrap().expect("a pointer");
                assert_eq!((&*stands.revision, stands.origin.author), (&*revision, format!("n{won}")));
                let body = config.payload(&revision).await.unwrap();
                assert_eq!(body, Payload::Body(format!("sealed by n{won}").into()));
            }
            expect = Some(revision);
        }
    });
}
