//! What the state log may delete, and what a change of a log's size waits for.

use std::collections::BTreeMap;

use coordproto::answer::Unknown;
use coordproto::record::keyed::Keyed;
use coordproto::record::position::{Admission, Backup, Floor, Hold, Maintenance, MaintenanceAck, NodePosition};
use coordproto::record::seat_pause::SeatPauseRecord;
use coordproto::slot::POSITIONS;
use engine::slots::pauses::{Pause, SeatPauses};
use engine::slots::positions::{Forget, Positions};
use engine::slots::rows::{Change, Create, Remove, Row};
use engine::store::counting::Counting;
use engine::store::faulty::{Call, Fault, Faulty, Verb};
use engine::store::{Bucket, Store};
use futures_util::future::{join, join_all};
use jiff::Timestamp;
use serde_json::json;

use crate::Fixture;
use crate::rows::{bucket, faulty, may_land, refused, settled, stands, stored, unasked, undecodable, unreadable};

/// The key of one row of each class, in the order of [`listed`].
const KEYS: [&str; 7] =
    ["node.n1.work", "hold.h1", "backup.ops", "floor.work", "maintenance.work", "admitted.n1", "maintenance-ack.o1.n1"];

async fn positions<S: Store, T: Store>(t: &Fixture<T>, store: &S) -> Positions<S> {
    Positions::open(store, &t.settings()).await.expect("the bucket opens")
}

fn at() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("an instant")
}

fn sequences(sequence: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([("work".to_owned(), sequence)])
}

fn node(node: &str, applied: u64) -> NodePosition {
    NodePosition { node: node.into(), domain: "work".into(), applied, at: at() }
}

fn hold(id: &str, from: u64) -> Hold {
    Hold { id: id.into(), by: "a backup".into(), pins: sequences(from), at: at() }
}

fn backup(owner: &str, backup: &str) -> Backup {
    Backup { owner: owner.into(), backup: backup.into(), covers: sequences(7), at: at() }
}

fn floor(domain: &str, floor: u64) -> Floor {
    Floor {
        domain: domain.into(),
        floor,
        trim_to: floor,
        terms: sequences(9),
        blocked_by: Some("work".into()),
        at: at(),
    }
}

fn operation(log: &str, operation: &str) -> Maintenance {
    let state = json!({"to_bytes": 7});
    Maintenance { log: log.into(), operation: operation.into(), by: "ada".into(), at: at(), state }
}

fn admission(node: &str, incarnation: &str) -> Admission {
    Admission { node: node.into(), incarnation: incarnation.into(), at: at() }
}

fn ack(operation: &str, node: &str) -> MaintenanceAck {
    MaintenanceAck { operation: operation.into(), node: node.into(), at: at() }
}

fn row<R>(record: R, revision: u64) -> Row<R> {
    Row { record, revision }
}

fn changed<R: std::fmt::Debug>(told: Change<R>) -> u64 {
    match told {
        Change::Stored(revision) => revision,
        other => panic!("{other:?}"),
    }
}

fn created<R: std::fmt::Debug>(told: Create<R>) -> u64 {
    match told {
        Create::Created(revision) => revision,
        other => panic!("{other:?}"),
    }
}

/// One row of each class.
async fn one_of_each<S: Store>(p: &Positions<S>) {
    changed(p.nodes.record(&node("n1", 4), 0).await.unwrap());
    created(p.holds.take(&hold("h1", 4)).await.unwrap());
    changed(p.backups.record(&backup("ops", "b1"), 0).await.unwrap());
    changed(p.floors.publish(&floor("work", 4), 0).await.unwrap());
    created(p.maintenance.open(&operation("work", "o1")).await.unwrap());
    p.admitted.admit(&admission("n1", "r1")).await.unwrap();
    created(p.acks.acknowledge(&ack("o1", "n1")).await.unwrap());
}

type Listed = Result<Vec<String>, Unknown>;

/// The keys that each class lists.
async fn listed<S: Store>(p: &Positions<S>) -> [Listed; 7] {
    fn keys<R: Keyed>(rows: Result<Vec<Row<R>>, Unknown>) -> Listed {
        Ok(rows?.iter().map(|row| row.record.key().expect("it stands").as_str().to_owned()).collect())
    }
    [
        keys(p.nodes.list().await),
        keys(p.holds.list().await),
        keys(p.backups.list().await),
        keys(p.floors.list().await),
        keys(p.maintenance.list().await),
        keys(p.admitted.list().await),
        keys(p.acks.list().await),
    ]
}

/// Eight classes share a bucket without an age, and every listing is of one.
pub async fn a_listing_of_positions_is_of_one_class<S: Store>(t: Fixture<S>) {
    let p = positions(&t, &t.store).await;
    let pauses = SeatPauses::open(&t.store, &t.settings()).await.unwrap();
    assert_eq!(listed(&p).await, [const { Ok(Vec::new()) }; 7]);
    one_of_each(&p).await;
    let why = "it mails the wrong people".to_owned();
    let pause = SeatPauseRecord { by: "ada".into(), why, at: at(), turn_stopped: false };
    assert!(matches!(pauses.pause("alpha", &pause).await.unwrap(), Pause::Paused(_)));
    assert_eq!(listed(&p).await, KEYS.map(|key| Ok(vec![key.to_owned()])));
    assert_eq!(pauses.list().await.unwrap().len(), 1);
    assert_eq!(bucket(&t, &POSITIONS).await.age(), None, "none of them ever expires");
}

/// A node stands where it recorded last, and is changed at the revision that was read.
pub async fn a_node_stands_where_it_recorded<S: Store>(t: Fixture<S>) {
    let p = positions(&t, &t.store).await.nodes;
    assert_eq!(p.get("n1", "work").await.unwrap(), None);
    let first = changed(p.record(&node("n1", 4), 0).await.unwrap());
    let second = changed(p.record(&node("n1", u64::MAX), first).await.unwrap());
    for revision in [0, first] {
        let told = p.record(&node("n1", 5), revision).await.unwrap();
        assert_eq!(told, Change::Changed(row(node("n1", u64::MAX), second)));
    }
    assert_eq!(p.get("n1", "work").await.unwrap(), Some(row(node("n1", u64::MAX), second)));
    let other = NodePosition { domain: "memory".into(), ..node("n1", 1) };
    let other_at = changed(p.record(&other, 0).await.unwrap());
    let two_at = changed(p.record(&node("n0", 2), 0).await.unwrap());
    let want = [row(node("n0", 2), two_at), row(other, other_at), row(node("n1", u64::MAX), second)];
    // By node and domain.
    t.lists(want, || async { p.list().await.unwrap() }).await;
    assert_eq!(p.record(&node("n9", 1), first).await.unwrap(), Change::Gone);
}

/// A hold stands from its taking to its release, by whoever has seen it.
pub async fn a_hold_stands_until_it_is_released<S: Store>(t: Fixture<S>) {
    let (p, b) = (positions(&t, &t.store).await.holds, bucket(&t, &POSITIONS).await);
    let first = created(p.take(&hold("h1", 4)).await.unwrap());
    assert_eq!(p.take(&hold("h1", 5)).await.unwrap(), Create::Exists(row(hold("h1", 4), first)));
    let second = changed(p.update(&hold("h1", 6), first).await.unwrap());
    let stands_now = row(hold("h1", 6), second);
    for revision in [0, first] {
        assert_eq!(p.update(&hold("h1", 7), revision).await.unwrap(), Change::Changed(stands_now.clone()));
        assert_eq!(p.release("h1", revision).await.unwrap(), Remove::Changed(stands_now.clone()));
    }
    t.lists([stands_now], || async { p.list().await.unwrap() }).await;
    assert_eq!(p.release("h1", second).await.unwrap(), Remove::Removed);
    assert_eq!(stands(&b, "hold.h1").await, None, "no marker is left");
    for revision in [0, second] {
        assert_eq!(p.release("h1", revision).await.unwrap(), Remove::Gone);
        assert_eq!(p.update(&hold("h1", 7), revision).await.unwrap(), Change::Gone);
    }
    t.lists([], || async { p.list().await.unwrap() }).await;
    created(p.take(&hold("h1", 8)).await.unwrap());
}

/// Of each owner the newest backup stands; whoever would put an older one in its place is told.
pub async fn of_each_owner_one_backup_stands<S: Store>(t: Fixture<S>) {
    let p = positions(&t, &t.store).await.backups;
    let first = changed(p.record(&backup("ops", "b1"), 0).await.unwrap());
    let second = changed(p.record(&backup("ops", "b2"), first).await.unwrap());
    let told = p.record(&backup("ops", "late"), first).await.unwrap();
    assert_eq!(told, Change::Changed(row(backup("ops", "b2"), second)));
    let other = changed(p.record(&backup("n1", "b9"), 0).await.unwrap());
    t.lists([row(backup("n1", "b9"), other), row(backup("ops", "b2"), second)], || async { p.list().await.unwrap() })
        .await;
}

/// A floor is never below what is trimmed, and a trim that may delete nothing says what blocks it: on the way in and out.
pub async fn a_floor_does_not_contradict_itself<S: Store>(t: Fixture<S>) {
    let (counting, b) = (Counting::new(t.store.clone()), bucket(&t, &POSITIONS).await);
    let p = positions(&t, &counting).await.floors;
    counting.take();
    let above = Floor { trim_to: 5, ..floor("work", 4) };
    let unnamed = Floor { trim_to: 0, blocked_by: None, ..floor("work", 4) };
    for revision in [0, 1] {
        assert_eq!(refused(p.publish(&above, revision).await), "trim_to");
        assert_eq!(refused(p.publish(&unnamed, revision).await), "blocked_by");
    }
    unasked(&counting);
    let mut revision = 0;
    for good in [
        Floor { trim_to: 0, ..floor("work", 4) },
        Floor { terms: BTreeMap::new(), ..unnamed.clone() },
        Floor { blocked_by: None, ..floor("work", 4) },
    ] {
        revision = changed(p.publish(&good, revision).await.unwrap());
        assert_eq!(p.get("work").await.unwrap(), Some(row(good.clone(), revision)));
        t.lists(Some(vec![row(good, revision)]), || async { p.list().await.ok() }).await;
    }
    for bad in [above, unnamed] {
        let broken = stored(&b, "floor.work", bad.encode()).await;
        undecodable(p.get("work").await, "floor.work");
        undecodable(t.listed(|| p.list(), Result::is_err).await, "floor.work");
        undecodable(p.publish(&floor("work", 4), revision).await, "floor.work");
        changed(p.publish(&floor("work", 4), broken).await.unwrap());
    }
}

/// An operation is opened once for a log, and taken on and closed by whoever has seen it as it is.
pub async fn an_operation_is_open_until_it_is_closed<S: Store>(t: Fixture<S>) {
    let p = positions(&t, &t.store).await.maintenance;
    let first = created(p.open(&operation("work", "o1")).await.unwrap());
    let holder = row(operation("work", "o1"), first);
    assert_eq!(p.open(&operation("work", "o2")).await.unwrap(), Create::Exists(holder.clone()));
    assert_eq!(p.get("work").await.unwrap(), Some(holder));
    created(p.open(&operation("memory", "o2")).await.unwrap());
    let on = Maintenance { state: json!({"sealed": true}), ..operation("work", "o1") };
    let second = changed(p.update(&on, first).await.unwrap());
    for revision in [0, first] {
        assert_eq!(p.update(&on, revision).await.unwrap(), Change::Changed(row(on.clone(), second)));
        assert_eq!(p.close("work", revision).await.unwrap(), Remove::Changed(row(on.clone(), second)));
    }
    assert_eq!(p.close("work", second).await.unwrap(), Remove::Removed);
    assert_eq!(p.close("work", second).await.unwrap(), Remove::Gone);
    assert_eq!(p.update(&on, second).await.unwrap(), Change::Gone);
    assert_eq!(p.get("work").await.unwrap(), None);
    let again = created(p.open(&operation("work", "o3")).await.unwrap());
    assert_eq!(p.close("work", second).await.unwrap(), Remove::Changed(row(operation("work", "o3"), again)));
}

/// Of many who open one does; of many who take it on and close it at once, one does either.
pub async fn of_many_at_one_operation_one_is_heard<S: Store>(t: Fixture<S>) {
    let p = positions(&t, &t.store).await.maintenance;
    for round in 0..10 {
        let asked: Vec<Maintenance> = (0..8).map(|i| operation("work", &format!("o{i}"))).collect();
        let told = join_all(asked.iter().map(|asked| p.open(asked))).await;
        let open = p.get("work").await.unwrap().expect("one is open");
        let mut won = Vec::new();
        for (asked, told) in asked.iter().zip(told) {
            match told.expect("a definite answer") {
                Create::Created(revision) => won.push(row(asked.clone(), revision)),
                Create::Exists(other) => assert_eq!(other, open, "round {round}"),
            }
        }
        assert_eq!(won, std::slice::from_ref(&open), "round {round}");
        // Whoever is sent first is likely to be heard, so each is sent first in turn.
        let updates = join_all((0..4).map(|_| p.update(&open.record, open.revision)));
        let closes = join_all((0..4).map(|_| p.close("work", open.revision)));
        let (updates, closes) = if round % 2 == 0 {
            join(updates, closes).await
        } else {
            let (closes, updates) = join(closes, updates).await;
            (updates, closes)
        };
        let updated = updates.into_iter().filter(|told| matches!(told, Ok(Change::Stored(_)))).count();
        let closed = closes.into_iter().filter(|told| matches!(told, Ok(Remove::Removed))).count();
        assert_eq!(updated + closed, 1, "round {round}: {updated} updates and {closed} closes");
        let left = p.get("work").await.unwrap();
        assert_eq!(left.is_some(), updated == 1, "round {round}");
        if let Some(left) = left {
            assert_eq!(p.close("work", left.revision).await.unwrap(), Remove::Removed, "round {round}");
        }
    }
}

/// The newest run of a node is admitted, and only that run's word ends it.
pub async fn an_admission_is_forgotten_by_its_own_run<S: Store>(t: Fixture<S>) {
    let (p, b) = (positions(&t, &t.store).await.admitted, bucket(&t, &POSITIONS).await);
    assert_eq!(p.forget("n1", "r1").await.unwrap(), Forget::NotAdmitted);
    p.admit(&admission("n1", "r1")).await.unwrap();
    let (first, _) = stands(&b, "admitted.n1").await.expect("admitted");
    p.admit(&Admission { at: Timestamp::UNIX_EPOCH, ..admission("n1", "r1") }).await.unwrap();
    // It stays as it is.
    t.lists([row(admission("n1", "r1"), first)], || async { p.list().await.unwrap() }).await;
    p.admit(&admission("n1", "r2")).await.unwrap();
    let (second, _) = stands(&b, "admitted.n1").await.expect("admitted");
    let newest = row(admission("n1", "r2"), second);
    for other in ["r1", ""] {
        assert_eq!(p.forget("n1", other).await.unwrap(), Forget::Another(newest.clone()), "{other:?}");
    }
    assert_eq!(p.forget("n2", "r2").await.unwrap(), Forget::NotAdmitted);
    t.lists([newest], || async { p.list().await.unwrap() }).await;
    assert_eq!(p.forget("n1", "r2").await.unwrap(), Forget::Forgotten);
    assert_eq!(p.forget("n1", "r2").await.unwrap(), Forget::NotAdmitted);
    assert_eq!(stands(&b, "admitted.n1").await, None);
    t.lists([], || async { p.list().await.unwrap() }).await;
}

/// A run that was forgotten and admitted anew is forgotten again, also by one who is told of the first admission.
pub async fn a_run_that_was_admitted_anew_is_forgotten<S: Store>(t: Fixture<S>) {
    let store = Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::None);
    let p = positions(&t, &store).await.admitted;
    let mut newest = None;
    for _ in 0..2 {
        if newest.is_some() {
            assert_eq!(positions(&t, &t.store).await.admitted.forget("n1", "r1").await.unwrap(), Forget::Forgotten);
        }
        p.admit(&admission("n1", "r1")).await.unwrap();
        let Forget::Another(stands) = p.forget("n1", "r2").await.unwrap() else { panic!("r1 is admitted") };
        assert!(newest.is_none_or(|first| first < stands.revision), "admitted anew");
        newest = Some(stands.revision);
    }
    let mut reads = 0;
    store.choose(move |call| {
        reads += u32::from(call.verb == Verb::Read);
        if call.verb == Verb::Read && reads == 1 { Fault::Stale } else { Fault::None }
    });
    assert_eq!(p.forget("n1", "r1").await.unwrap(), Forget::Forgotten);
    t.lists([], || async { p.list().await.unwrap() }).await;
}

/// Of many runs that are admitted at once one is, and of many who forget it at once one does.
pub async fn of_many_runs_one_is_admitted_and_forgotten_once<S: Store>(t: Fixture<S>) {
    let p = positions(&t, &t.store).await.admitted;
    for round in 0..5 {
        let runs: Vec<Admission> = (0..8).map(|i| admission("n1", &format!("r{i}"))).collect();
        for told in join_all(runs.iter().map(|run| p.admit(run))).await {
            told.expect("a definite answer");
        }
        let Forget::Another(admitted) = p.forget("n1", "nobody").await.unwrap() else { panic!("one is admitted") };
        assert!(runs.contains(&admitted.record), "round {round}: {admitted:?}");
        t.lists(vec![admitted.clone()], || async { p.list().await.unwrap() }).await;
        let run = &admitted.record.incarnation;
        let told = join_all((0..8).map(|_| p.forget("n1", run))).await;
        let told: Vec<Forget> = told.into_iter().map(|told| told.expect("a definite answer")).collect();
        assert_eq!(told.iter().filter(|told| **told == Forget::Forgotten).count(), 1, "round {round}: {told:?}");
        assert!(!told.iter().any(|told| matches!(told, Forget::Another(_))), "round {round}: {told:?}");
    }
}

/// A node's word stands for its operation, whatever it says of others.
pub async fn an_acknowledgement_is_for_one_operation<S: Store>(t: Fixture<S>) {
    let p = positions(&t, &t.store).await.acks;
    let first = created(p.acknowledge(&ack("o1", "n1")).await.unwrap());
    let told = p.acknowledge(&MaintenanceAck { at: Timestamp::UNIX_EPOCH, ..ack("o1", "n1") }).await.unwrap();
    assert_eq!(told, Create::Exists(row(ack("o1", "n1"), first)), "the first stays");
    let second = created(p.acknowledge(&ack("o2", "n1")).await.unwrap());
    let want = [row(ack("o1", "n1"), first), row(ack("o2", "n1"), second)];
    assert_eq!(p.list().await.unwrap(), want, "neither takes the other's place");
    assert_eq!(p.forget("o1", "n1", 0).await.unwrap(), Remove::Changed(want[0].clone()));
    assert_eq!(p.forget("o1", "n1", first).await.unwrap(), Remove::Removed);
    assert_eq!(p.forget("o1", "n1", first).await.unwrap(), Remove::Gone);
    t.lists(want[1..].to_vec(), || async { p.list().await.unwrap() }).await;
}

/// A row that cannot be read, or that stands where another belongs, fails the listing of its class by name, and no other.
pub async fn a_position_that_cannot_be_read_fails_its_class<S: Store>(t: Fixture<S>) {
    let (p, b) = (positions(&t, &t.store).await, bucket(&t, &POSITIONS).await);
    one_of_each(&p).await;
    for (class, key) in KEYS.into_iter().enumerate() {
        let (revision, good) = stands(&b, key).await.expect("it stands");
        let elsewhere = format!("{key}x");
        for (at, value) in [(key, "garbage".into()), (key, "{}".into()), (&*elsewhere, good.clone().unwrap())] {
            let broken = stored(&b, at, value).await;
            let apart = |told: &[Listed; 7]| told.iter().enumerate().all(|(n, told)| told.is_err() == (n == class));
            for (other, told) in t.listed(|| listed(&p), apart).await.into_iter().enumerate() {
                if other == class {
                    undecodable(told, at);
                } else {
                    assert_eq!(told.unwrap(), [KEYS[other]]);
                }
            }
            if at == key {
                let single = match class {
                    0 => p.nodes.get("n1", "work").await.map(drop),
                    1 => p.holds.take(&hold("h1", 4)).await.map(drop),
                    2 => p.backups.record(&backup("ops", "b1"), revision).await.map(drop),
                    3 => p.floors.publish(&floor("work", 4), revision).await.map(drop),
                    4 => p.maintenance.close("work", revision).await.map(drop),
                    5 => p.admitted.admit(&admission("n1", "r1")).await,
                    _ => p.acks.acknowledge(&ack("o1", "n1")).await.map(drop),
                };
                undecodable(single, key);
                assert_eq!(stands(&b, key).await.expect("it stands").0, broken, "nothing was written over it");
                stored(&b, key, good.clone().unwrap()).await;
            } else {
                b.purge(&coordproto::key::Key::parse(at).unwrap(), broken).await.unwrap();
            }
        }
    }
    stored(&b, "admitted.n1", "garbage").await;
    undecodable(p.admitted.forget("n1", "r1").await, "admitted.n1");
}

/// What has no name is refused before anything is asked.
pub async fn a_position_without_a_name_is_refused<S: Store>(t: Fixture<S>) {
    let counting = Counting::new(t.store.clone());
    let p = positions(&t, &counting).await;
    counting.take();
    let long = "a".repeat(2000);
    for bad in ["", &long] {
        assert_eq!(refused(p.nodes.record(&node(bad, 1), 0).await), if bad.is_empty() { "node" } else { "domain" });
        assert_eq!(refused(p.nodes.get("n1", bad).await), "domain");
        for revision in [0, 1] {
            assert_eq!(refused(p.holds.update(&hold(bad, 1), revision).await), "id");
            assert_eq!(refused(p.holds.release(bad, revision).await), "id");
            assert_eq!(refused(p.backups.record(&backup(bad, "b"), revision).await), "owner");
            assert_eq!(refused(p.floors.publish(&floor(bad, 1), revision).await), "domain");
            assert_eq!(refused(p.maintenance.update(&operation(bad, "o1"), revision).await), "log");
            assert_eq!(refused(p.maintenance.close(bad, revision).await), "log");
            assert_eq!(refused(p.acks.forget("o1", bad, revision).await), "node");
        }
        assert_eq!(refused(p.holds.take(&hold(bad, 1)).await), "id");
        assert_eq!(refused(p.floors.get(bad).await), "domain");
        assert_eq!(refused(p.maintenance.open(&operation(bad, "o1")).await), "log");
        assert_eq!(refused(p.maintenance.get(bad).await), "log");
        assert_eq!(refused(p.admitted.admit(&admission(bad, "r1")).await), "node");
        assert_eq!(refused(p.admitted.forget(bad, "r1").await), "node");
        assert_eq!(refused(p.acks.acknowledge(&ack("o1", bad)).await), "node");
    }
    assert_eq!(refused(p.maintenance.open(&operation("work", "")).await), "operation");
    assert_eq!(refused(p.admitted.admit(&admission("n1", "")).await), "incarnation");
    assert_eq!(refused(p.acks.acknowledge(&ack("", "n1")).await), "operation");
    unasked(&counting);
}

/// Every name is one segment of its key, byte for byte, and a row's class is never another's.
pub async fn names_of_positions_are_kept_to_the_byte<S: Store>(t: Fixture<S>) {
    let p = positions(&t, &t.store).await;
    let mut names: Vec<String> =
        [".", "a.b", "*", ">", "a:b", "maintenance-ack", "a b", "é", "e\u{301}", "\u{0}", "=", "🙂"]
            .map(str::to_owned)
            .into();
    for name in &names {
        changed(p.nodes.record(&NodePosition { domain: name.clone(), ..node(name, 1) }, 0).await.unwrap());
        p.admitted.admit(&admission(name, name)).await.unwrap();
        created(p.acks.acknowledge(&ack(name, name)).await.unwrap());
    }
    names.sort_unstable();
    let sorted = |mut told: Vec<String>| {
        told.sort_unstable();
        told
    };
    let nodes = p.nodes.list().await.unwrap();
    assert!(nodes.iter().all(|row| row.record.node == row.record.domain));
    assert_eq!(sorted(nodes.into_iter().map(|row| row.record.node).collect()), names);
    let admitted = p.admitted.list().await.unwrap();
    assert_eq!(sorted(admitted.into_iter().map(|row| row.record.incarnation).collect()), names);
    let acks = p.acks.list().await.unwrap();
    assert_eq!(sorted(acks.into_iter().map(|row| row.record.operation).collect()), names);
}

/// Without an answer nothing is said of any class, and no listing is empty or short.
pub async fn without_an_answer_nothing_is_said_of_a_position<S: Store>(t: Fixture<S>) {
    let (p, b) = (positions(&t, &t.store).await, bucket(&t, &POSITIONS).await);
    one_of_each(&p).await;
    for (fault, landed) in [(Fault::DropRequest, false), (Fault::DropReply, true)] {
        let f = positions(&t, &faulty(&t, fault)).await;
        for told in listed(&f).await {
            settled(told);
        }
        settled(f.nodes.get("n1", "work").await);
        settled(f.floors.get("work").await);
        settled(f.maintenance.get("work").await);
        settled(f.admitted.forget("n1", "r1").await);
        may_land(f.nodes.record(&node("n2", 1), 0).await);
        may_land(f.backups.record(&backup("n2", "b1"), 0).await);
        may_land(f.floors.publish(&floor("n2", 1), 0).await);
        may_land(f.admitted.admit(&admission("n2", "r1")).await);
        may_land(f.acks.acknowledge(&ack("o1", "n2")).await);
        for key in ["node.n2.work", "backup.n2", "floor.n2", "admitted.n2", "maintenance-ack.o1.n2"] {
            assert_eq!(stands(&b, key).await.is_some(), landed, "{key}");
        }
        let (held, _) = stands(&b, "hold.h1").await.expect("held");
        may_land(f.holds.update(&hold("h1", 9), held).await);
        let (open, _) = stands(&b, "maintenance.work").await.expect("open");
        may_land(f.maintenance.close("work", open).await);
        assert_eq!(p.maintenance.get("work").await.unwrap().is_none(), landed);
        let want = hold("h1", if landed { 9 } else { 4 });
        t.lists(want, || async { p.holds.list().await.unwrap().remove(0).record }).await;
    }
    created(p.maintenance.open(&operation("work", "o1")).await.unwrap());
    let f = positions(&t, &unreadable(&t)).await;
    settled(f.holds.take(&hold("h1", 4)).await);
    settled(f.maintenance.open(&operation("work", "o2")).await);
    settled(f.maintenance.close("work", 1).await);
    settled(f.admitted.admit(&admission("n1", "r1")).await);
}

/// A removal is decided once its marker is written. A purge that fails then leaves the marker to the sweep, and it is in
/// nobody's way.
pub async fn a_removal_stands_though_its_purge_is_lost<S: Store>(t: Fixture<S>) {
    let store = Faulty::new(t.store.clone(), t.env.clone(), |call: &Call<'_>| match call.verb {
        Verb::Purge => Fault::DropRequest,
        _ => Fault::None,
    });
    let (p, b) = (positions(&t, &store).await.holds, bucket(&t, &POSITIONS).await);
    let first = created(p.take(&hold("h1", 4)).await.unwrap());
    assert_eq!(p.release("h1", first).await.unwrap(), Remove::Removed);
    assert!(matches!(stands(&b, "hold.h1").await, Some((_, None))), "a marker");
    t.lists([], || async { p.list().await.unwrap() }).await;
    for revision in [0, first] {
        assert_eq!(p.release("h1", revision).await.unwrap(), Remove::Gone, "at {revision}");
    }
    created(p.take(&hold("h1", 5)).await.unwrap());
}
