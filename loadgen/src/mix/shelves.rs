//! The families whose records live alike: made where none stands, changed and removed at the revision that was seen. Each is
//! asked in its own words, and answers in the same ones here.

use std::collections::BTreeMap;

use bytes::Bytes;
use coordproto::answer::Error;
use coordproto::record::mailbox::MailboxRecord;
use coordproto::record::position::{Hold, Maintenance, MaintenanceAck};
use coordproto::record::seat_pause::SeatPauseRecord;
use engine::slots::mailboxes::Mailbox;
use engine::slots::pauses::PausedSeat;
use engine::slots::sandbox_runs::SandboxRun;
use engine::slots::{mailboxes, pauses, rows, sandbox_runs};
use engine::store::Store;

use super::context::{instant, number};
use super::node::Node;

/// The name under which a mailbox keeps its number, where a newer build would keep what it adds.
const NUMBER: &str = "number";

/// Who holds or asks, where a record says so.
const BY: &str = "loadgen";

/// The domain that a hold pins.
const DOMAIN: &str = "tracker";

/// A family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shelf {
    Runs,
    Mailboxes,
    Pauses,
    Holds,
    Maintenance,
    Acks,
}

/// A definite answer: what was written, or what stands instead, as a number and a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Done; a record that stands then has this revision.
    Done(u64),
    /// Not done, since this stands.
    Stands((u64, u64)),
    /// Not done, since nothing stands.
    Absent,
}

/// The operations of a family; none for what it has not.
pub(super) struct Names {
    pub(super) create: &'static str,
    pub(super) get: Option<&'static str>,
    pub(super) change: Option<&'static str>,
    pub(super) remove: &'static str,
    pub(super) list: &'static str,
}

impl Shelf {
    pub(super) fn names(self) -> Names {
        let (create, get, change, remove, list) = match self {
            Shelf::Runs => (
                "sandbox_runs/create",
                Some("sandbox_runs/get"),
                Some("sandbox_runs/update"),
                "sandbox_runs/delete",
                "sandbox_runs/list",
            ),
            Shelf::Mailboxes => (
                "mailboxes/create",
                Some("mailboxes/get"),
                Some("mailboxes/update"),
                "mailboxes/delete",
                "mailboxes/list",
            ),
            Shelf::Pauses => ("pauses/pause", Some("pauses/get"), None, "pauses/resume", "pauses/list"),
            Shelf::Holds => (
                "positions_hold/take",
                None,
                Some("positions_hold/update"),
                "positions_hold/release",
                "positions_hold/list",
            ),
            Shelf::Maintenance => (
                "positions_maintenance/open",
                Some("positions_maintenance/get"),
                Some("positions_maintenance/update"),
                "positions_maintenance/close",
                "positions_maintenance/list",
            ),
            Shelf::Acks => ("positions_acks/acknowledge", None, None, "positions_acks/forget", "positions_acks/list"),
        };
        Names { create, get, change, remove, list }
    }

    /// Makes the record of a key, with this number in it.
    pub(super) async fn create<S: Store>(self, node: &Node<S>, key: &str, value: u64) -> Result<Told, Error> {
        Ok(match self {
            Shelf::Runs => match node.runs.create(key, bytes(value)).await? {
                sandbox_runs::Create::Created(version) => Told::Done(version),
                sandbox_runs::Create::Exists(run) => Told::Stands(run_of(&run)),
            },
            Shelf::Mailboxes => match node.mailboxes.create(key, &mailbox(value)).await? {
                mailboxes::Create::Created(revision) => Told::Done(revision),
                mailboxes::Create::Exists(mailbox) => Told::Stands(mailbox_of(&mailbox)),
            },
            Shelf::Pauses => match node.pauses.pause(key, &pause(value)).await? {
                pauses::Pause::Paused(revision) => Told::Done(revision),
                pauses::Pause::AlreadyPaused(paused) => Told::Stands(pause_of(&paused)),
            },
            Shelf::Holds => created(node.positions.holds.take(&hold(key, value)).await?, hold_of),
            Shelf::Maintenance => created(node.positions.maintenance.open(&operation(key, value)).await?, operation_of),
            Shelf::Acks => created(node.positions.acks.acknowledge(&ack(key, value)).await?, ack_of),
        })
    }

    /// Reads the record of a key, in a family that has such a question.
    pub(super) async fn get<S: Store>(self, node: &Node<S>, key: &str) -> Result<Option<(u64, u64)>, Error> {
        Ok(match self {
            Shelf::Runs => node.runs.get(key).await?.as_ref().map(run_of),
            Shelf::Mailboxes => node.mailboxes.get(key).await?.as_ref().map(mailbox_of),
            Shelf::Pauses => node.pauses.get(key).await?.as_ref().map(pause_of),
            Shelf::Maintenance => {
                let row = node.positions.maintenance.get(key).await?;
                row.map(|row| (operation_of(&row.record), row.revision))
            }
            Shelf::Holds | Shelf::Acks => None,
        })
    }

    /// Puts another number in place of that of a revision, in a family that has such a change.
    pub(super) async fn change<S: Store>(
        self,
        node: &Node<S>,
        key: &str,
        value: u64,
        over: u64,
    ) -> Result<Told, Error> {
        Ok(match self {
            Shelf::Runs => match node.runs.update(key, bytes(value), over).await? {
                sandbox_runs::Update::Updated(version) => Told::Done(version),
                sandbox_runs::Update::Changed(run) => Told::Stands(run_of(&run)),
                sandbox_runs::Update::Gone => Told::Absent,
            },
            Shelf::Mailboxes => match node.mailboxes.update(key, &mailbox(value), over).await? {
                mailboxes::Update::Updated(revision) => Told::Done(revision),
                mailboxes::Update::Changed(mailbox) => Told::Stands(mailbox_of(&mailbox)),
                mailboxes::Update::Gone => Told::Absent,
            },
            Shelf::Holds => changed(node.positions.holds.update(&hold(key, value), over).await?, hold_of),
            Shelf::Maintenance => {
                changed(node.positions.maintenance.update(&operation(key, value), over).await?, operation_of)
            }
            Shelf::Pauses | Shelf::Acks => Told::Absent,
        })
    }

    /// Removes the record of a revision.
    pub(super) async fn remove<S: Store>(self, node: &Node<S>, key: &str, over: u64) -> Result<Told, Error> {
        Ok(match self {
            Shelf::Runs => match node.runs.delete(key, over).await? {
                sandbox_runs::Delete::Deleted => Told::Done(0),
                sandbox_runs::Delete::Changed(run) => Told::Stands(run_of(&run)),
                sandbox_runs::Delete::Gone => Told::Absent,
            },
            Shelf::Mailboxes => match node.mailboxes.delete(key, over).await? {
                mailboxes::Delete::Deleted => Told::Done(0),
                mailboxes::Delete::Changed(mailbox) => Told::Stands(mailbox_of(&mailbox)),
                mailboxes::Delete::Gone => Told::Absent,
            },
            Shelf::Pauses => match node.pauses.resume(key, over).await? {
                pauses::Resume::Resumed => Told::Done(0),
                pauses::Resume::Changed(paused) => Told::Stands(pause_of(&paused)),
                pauses::Resume::NotPaused => Told::Absent,
            },
            Shelf::Holds => removed(node.positions.holds.release(key, over).await?, hold_of),
            Shelf::Maintenance => removed(node.positions.maintenance.close(key, over).await?, operation_of),
            Shelf::Acks => removed(node.positions.acks.forget(key, BY, over).await?, ack_of),
        })
    }

    /// Every record: its key and its number.
    pub(super) async fn list<S: Store>(self, node: &Node<S>) -> Result<Vec<(String, u64)>, Error> {
        Ok(match self {
            Shelf::Runs => {
                node.runs.list().await?.into_iter().map(|run| (run_of(&run).0, run.turn)).map(pair).collect()
            }
            Shelf::Mailboxes => {
                let all = node.mailboxes.list().await?.into_iter();
                all.map(|mailbox| (mailbox_of(&mailbox).0, mailbox.handle)).map(pair).collect()
            }
            Shelf::Pauses => {
                let all = node.pauses.list().await?.into_iter();
                all.map(|paused| (pause_of(&paused).0, paused.handle)).map(pair).collect()
            }
            Shelf::Holds => listed(node.positions.holds.list().await?, |hold| (hold_of(&hold), hold.id)),
            Shelf::Maintenance => {
                listed(node.positions.maintenance.list().await?, |operation| (operation_of(&operation), operation.log))
            }
            Shelf::Acks => listed(node.positions.acks.list().await?, |ack| (ack_of(&ack), ack.operation)),
        })
    }
}

fn pair((value, key): (u64, String)) -> (String, u64) {
    (key, value)
}

fn listed<R>(all: Vec<rows::Row<R>>, of: impl Fn(R) -> (u64, String)) -> Vec<(String, u64)> {
    all.into_iter().map(|row| pair(of(row.record))).collect()
}

fn created<R>(told: rows::Create<R>, of: impl Fn(&R) -> u64) -> Told {
    match told {
        rows::Create::Created(revision) => Told::Done(revision),
        rows::Create::Exists(row) => Told::Stands((of(&row.record), row.revision)),
    }
}

pub(super) fn changed<R>(told: rows::Change<R>, of: impl Fn(&R) -> u64) -> Told {
    match told {
        rows::Change::Stored(revision) => Told::Done(revision),
        rows::Change::Changed(row) => Told::Stands((of(&row.record), row.revision)),
        rows::Change::Gone => Told::Absent,
    }
}

fn removed<R>(told: rows::Remove<R>, of: impl Fn(&R) -> u64) -> Told {
    match told {
        rows::Remove::Removed => Told::Done(0),
        rows::Remove::Changed(row) => Told::Stands((of(&row.record), row.revision)),
        rows::Remove::Gone => Told::Absent,
    }
}

/// A number as an opaque value.
pub(super) fn bytes(value: u64) -> Bytes {
    Bytes::from(value.to_string())
}

/// The number of an opaque value; one that was never sent where it has none.
pub(super) fn of_bytes(value: &[u8]) -> u64 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

fn run_of(run: &SandboxRun) -> (u64, u64) {
    (of_bytes(&run.record), run.version)
}

fn mailbox(value: u64) -> MailboxRecord {
    let newer = serde_json::Map::from_iter([(NUMBER.to_owned(), value.into())]);
    MailboxRecord { newer, ..MailboxRecord::default() }
}

fn mailbox_of(mailbox: &Mailbox) -> (u64, u64) {
    let value = mailbox.record.newer.get(NUMBER).and_then(serde_json::Value::as_u64).unwrap_or(u64::MAX);
    (value, mailbox.revision)
}

fn pause(value: u64) -> SeatPauseRecord {
    SeatPauseRecord { by: BY.into(), why: value.to_string(), at: instant(value), turn_stopped: false }
}

fn pause_of(paused: &PausedSeat) -> (u64, u64) {
    (of_bytes(paused.record.why.as_bytes()), paused.revision)
}

fn hold(id: &str, value: u64) -> Hold {
    Hold { id: id.into(), by: BY.into(), pins: pins(value), at: instant(value) }
}

fn hold_of(hold: &Hold) -> u64 {
    of_pins(&hold.pins)
}

/// What a record says of its one domain.
pub(super) fn pins(value: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([(DOMAIN.to_owned(), value)])
}

/// The number that it says.
pub(super) fn of_pins(pins: &BTreeMap<String, u64>) -> u64 {
    pins.get(DOMAIN).copied().unwrap_or(u64::MAX)
}

fn operation(log: &str, value: u64) -> Maintenance {
    let operation = format!("resize-{log}");
    Maintenance { log: log.into(), operation, by: BY.into(), at: instant(value), state: value.into() }
}

fn operation_of(operation: &Maintenance) -> u64 {
    operation.state.as_u64().unwrap_or(u64::MAX)
}

fn ack(operation: &str, value: u64) -> MaintenanceAck {
    MaintenanceAck { operation: operation.into(), node: BY.into(), at: instant(value) }
}

fn ack_of(ack: &MaintenanceAck) -> u64 {
    number(ack.at)
}
