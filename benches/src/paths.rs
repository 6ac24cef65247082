//! The pure paths: everything that a node decides or reads all day, without a broker and without a clock.
//!
//! One list, for the instruction counts, the gate and criterion. A path is deterministic: no randomness, no clock, no hash map,
//! so that its instructions are a number.

use std::hint::black_box;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use coordproto::api::direct::Batch;
use coordproto::api::{info, message, puback, verdict};
use coordproto::key::{Key, Resource};
use coordproto::lease::{Expiry, step};
use coordproto::listing::{self, Collected, Index, Standing, Version};
use coordproto::record::budget::BudgetRecord;
use coordproto::record::lease::{EpochRecord, LeaseRecord};
use coordproto::tally::{self, Ceilings};
use coordproto::window::{Label, Windows, Zone};
use engine::jetstream::waiters::{self, Delivery, Event, NEVER, Room, Tick, Waiters};
use jiff::Timestamp;

use crate::work::{Path, Work, each, on};
use crate::{budget, index_reply, leader_reply, record, seat, subject};

/// One key in this many was lost by the pass and read from the leader.
const LOST: usize = 100;

/// Waiters beside the one that is looked at.
const WAITING: usize = 1_000;

const STORED: &[u8] = br#"{"stream":"KV_crewlet_leases","seq":1234567}"#;
const REFUSED: &[u8] = br#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 1234567"},"stream":"KV_crewlet_leases","seq":0}"#;
const PLAIN: &str = "seat:s00042";
const ESCAPED: &str = "seat:Équipe de nuit/α.1";

/// Every path, in the order of the tables.
pub const ALL: [Path; 33] = [
    Path::quick("key: encode, plain", || on(PLAIN, |name| done(Resource::parse(name)))),
    Path::quick("key: encode, escaped", || on(ESCAPED, |name| done(Resource::parse(name)))),
    Path::quick("key: decode, plain", || decoded(PLAIN)),
    Path::quick("key: decode, escaped", || decoded(ESCAPED)),
    Path::quick("lease record: encode", || on(record(), |record| done(record.encode()))),
    Path::quick("lease record: decode", || on(record().encode(), |wire| done(LeaseRecord::decode(wire)))),
    Path::quick("epoch record: encode", || on(epoch(), |record| done(record.encode()))),
    Path::quick("epoch record: decode", || on(epoch().encode(), |wire| done(EpochRecord::decode(wire)))),
    Path::quick("budget record: encode, 10 writers", || on(budget(10), |record| done(record.encode()))),
    Path::quick("budget record: decode, 10 writers", || {
        on(budget(10).encode(), |wire| done(BudgetRecord::decode(wire)))
    }),
    Path::quick("acknowledgement: stored", || on(STORED, |reply| done(puback::parse(reply)))),
    Path::quick("acknowledgement: refused", || on(REFUSED, |reply| done(puback::parse(reply)))),
    Path::quick("leader read", || {
        let subject = subject(42);
        on(leader_reply(), move |reply| done(message::parse(reply.as_bytes(), &subject)))
    }),
    Path::quick("headers: a record of a batch", headers),
    Path::quick("headers: a delivery of a pass", || {
        let reply = "$JS.ACK.KV_crewlet_leases.a3c59ff1b2d4e608.1.1234567.42.1767323045148754874.958".to_owned();
        on(reply, |reply| done(message::coordinates(reply)))
    }),
    Path::quick("index: 100 keys", || indexed(100)),
    Path::long("index: 10,000 keys", || indexed(10_000)),
    Path::quick("verdict: a put is stored", || {
        on(STORED, |reply| done(verdict::put(Some(7), None, puback::parse(reply))))
    }),
    Path::quick("verdict: a put is lost", || {
        on(REFUSED, |reply| done(verdict::put(Some(7), None, puback::parse(reply))))
    }),
    Path::quick("verdict: the step of a claim", || {
        on(record(), |record| {
            let (written, now) = (instant(), instant());
            let live = record.is_live(written, Expiry::ByAge(Duration::from_secs(45)), now);
            black_box(step(Some(record), live, "n007:9f86d081884c7d65"));
        })
    }),
    Path::quick("certification: 100 keys", || certified(100)),
    Path::long("certification: 10,000 keys", || certified(10_000)),
    Path::quick("proof of a copy: 100 keys", || proved(100)),
    Path::quick("windows at an instant", || on((instant(), zone()), |(now, zone)| done(Windows::at(*now, zone)))),
    Path::quick("window label: write", || {
        let windows = windows();
        on(windows, |windows| {
            coordproto::window::Period::ALL.into_iter().for_each(|period| done(windows[period].label.to_string()))
        })
    }),
    Path::quick("window label: read", || {
        on(["2026-01-02", "2026-W01", "2026-01"], |texts| texts.iter().for_each(|text| done(text.parse::<Label>())))
    }),
    Path::quick("tally: a charge is admitted", || charged(9_999_999)),
    Path::quick("tally: a charge is refused", || charged(1_000)),
    Path::quick("tally: the first charge of a window", || {
        let (windows, ceilings) = (windows(), ceilings(9_999_999));
        on((), move |()| done(tally::charge(None, &windows, &ceilings, 1_234, instant())))
    }),
    Path::quick("tally: spend after the fact", || {
        let windows = windows();
        on(budget(10), move |record| done(tally::post_charge(Some(record), &windows, 1_234)))
    }),
    Path::quick("budget record: sign, 10 writers", || {
        each(
            |_| budget(10),
            |mut record| {
                record.sign("n003", 42, 1_234_567, instant());
                record
            },
        )
    }),
    Path::quick("waiters: asked, answered and gone", answered),
    Path::quick("waiters: a tick, one of 1,000 is due", ticked),
];

/// Takes what a path came to, so that nothing of the way there can be left out.
fn done<T>(outcome: T) {
    black_box(outcome);
}

/// The path of that name.
///
/// # Panics
/// Where there is none.
pub fn named(name: &str) -> Path {
    *ALL.iter().find(|path| path.name == name).unwrap_or_else(|| panic!("no path is called {name:?}"))
}

/// The instant at which everything here happens.
///
/// # Panics
/// Never: it is one.
pub fn instant() -> Timestamp {
    Timestamp::from_second(1_767_323_045).expect("an instant of 2026")
}

fn zone() -> Zone {
    Zone::parse("timezone", "Europe/Berlin").expect("a zone")
}

/// The windows at [`instant`].
///
/// # Panics
/// Never: it is within the calendar.
pub fn windows() -> Windows {
    Windows::at(instant(), &zone()).expect("an instant within the calendar")
}

fn ceilings(day: u64) -> Ceilings {
    Ceilings::parse([("day", day), ("month", 99_999_999)]).expect("two ceilings")
}

fn epoch() -> EpochRecord {
    EpochRecord { resource: PLAIN.into(), epoch: 7, preferred: Some("n007".into()), newer: Default::default() }
}

fn decoded(name: &str) -> Box<dyn Work> {
    let key = Resource::parse(name).expect("a good name").key().as_str().to_owned();
    on(key, |key| done(Key::parse(key)))
}

fn headers() -> Box<dyn Work> {
    let subject = subject(42);
    let headers = [
        ("Nats-Expected-Last-Subject-Sequence", "1234566".to_owned()),
        ("Nats-Stream", "KV_crewlet_leases".to_owned()),
        ("Nats-Subject", subject),
        ("Nats-Sequence", "1234567".to_owned()),
        ("Nats-Time-Stamp", "2026-01-02T03:04:05.148754874Z".to_owned()),
        ("Nats-Num-Pending", "99".to_owned()),
        ("Nats-Last-Sequence", "0".to_owned()),
    ];
    on(headers, |headers| {
        let mut batch = Batch::of("KV_crewlet_leases");
        let part = batch.take(None, None, headers.iter().map(|(name, value)| (*name, value.as_str())));
        assert!(part.is_ok());
        done(part);
    })
}

fn indexed(keys: usize) -> Box<dyn Work> {
    on(Bytes::from(index_reply(keys)), |reply| done(info::parse(reply)))
}

fn version(n: usize) -> Version {
    Version { revision: n as u64 + 1, written: instant(), value: Some(Bytes::from_static(b"a value")) }
}

/// A pass that lost some keys, held against the index, the lost ones settled, and the listing made of it.
fn certified(keys: usize) -> Box<dyn Work> {
    let names: Vec<Key> = (0..keys).map(|n| seat(n).key().clone()).collect();
    let index =
        Index::of_keys(names.clone(), Standing { clock: instant(), last_seq: keys as u64, records: keys as u64 });
    let delivered = move |_| {
        let mut collected = Collected::default();
        for (n, name) in names.iter().enumerate().filter(|(n, _)| n % LOST != 0) {
            collected.take(name.clone(), version(n));
        }
        collected
    };
    each(delivered, move |mut collected| {
        for (n, name) in collected.to_read(&index).into_iter().enumerate() {
            let settled = collected.settle(&name, Some(version(n * LOST)), &index);
            assert_eq!(settled, Ok(true), "live, and newer than what was delivered");
        }
        collected.finish(&index)
    })
}

/// A copy of a class that holds the barrier, and the live keys of it.
fn proved(keys: usize) -> Box<dyn Work> {
    let copy: Vec<(Key, Version)> = (0..keys).map(|n| (seat(n).key().clone(), version(n))).collect();
    let barrier = copy[keys / 2].0.clone();
    let filter = coordproto::key::Class::seat().filter();
    each(
        move |_| copy.clone(),
        move |copy| {
            assert_eq!(listing::prove(&copy, &barrier, 1), Ok(()));
            listing::live(copy, &filter)
        },
    )
}

/// So many waiters, of which each is told in its own tick to ask again, and never before that.
fn waiting() -> (Waiters<Bytes>, Vec<waiters::Key>) {
    let mut waiters = Waiters::with_capacity(WAITING + 1);
    let keys = (1..=WAITING as Tick).map(|tick| waiters.insert(NEVER, tick, Room::Answer)).collect();
    (waiters, keys)
}

/// What a request takes of the waiters, beside others that wait.
fn answered() -> Box<dyn Work> {
    let (mut waiters, _) = waiting();
    let mut context = Context::from_waker(Waker::noop());
    each(
        |_| Bytes::from_static(STORED),
        move |reply| {
            let key = waiters.insert(WAITING as Tick, NEVER, Room::Answer);
            assert!(waiters.poll(key, &mut context).is_pending(), "it has no answer yet");
            if let Delivery::Taken(Some(waker)) = waiters.deliver(key, reply, true) {
                waker.wake();
            }
            let told = waiters.poll(key, &mut context);
            waiters.remove(key);
            told
        },
    )
}

/// A tick of the wheel in which one waiter is due and waits on. A thousand ticks later it is its turn again.
fn ticked() -> Box<dyn Work> {
    let (mut waiters, keys) = waiting();
    let mut context = Context::from_waker(Waker::noop());
    let (mut now, mut wake) = (0, Vec::new());
    on((), move |()| {
        let key = keys[now as usize % WAITING];
        now += 1;
        assert!(waiters.poll(key, &mut context).is_pending(), "it is not due yet");
        waiters.advance(now, &mut wake);
        wake.drain(..).for_each(Waker::wake);
        assert_eq!(waiters.poll(key, &mut context), Poll::Ready(Event::Resend));
        waiters.resend_at(key, now + WAITING as Tick);
        done(waiters.next_due());
    })
}

fn charged(day: u64) -> Box<dyn Work> {
    let (windows, ceilings) = (windows(), ceilings(day));
    on(budget(10), move |record| done(tally::charge(Some(record), &windows, &ceilings, 1_234, instant())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::baseline::Table;
    use crate::instructions::INSTRUCTIONS;
    use crate::judge::TIMINGS;
    use crate::operations::stands;

    #[test]
    fn the_tables_have_a_row_of_every_path_and_operation_and_no_other() {
        let paths: Vec<String> = ALL.iter().map(|path| path.name.to_owned()).collect();
        let all: Vec<String> = paths.iter().cloned().chain(stands().map(|(_, _, name)| name)).collect();
        let rows = |table: &Table| -> Vec<String> {
            table.read().expect("a table").rows.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(rows(&INSTRUCTIONS), paths);
        assert_eq!(rows(&TIMINGS), all);
    }

    #[test]
    fn every_path_has_a_name_of_its_own_and_runs() {
        let names: BTreeSet<&str> = ALL.iter().map(|path| path.name).collect();
        assert_eq!(names.len(), ALL.len());
        for path in ALL {
            assert!(!path.name.contains(['|', '\n']), "{}: a table has no room for that", path.name);
            path.warm();
        }
    }
}
