//! Token budgets: every charge is counted once on both scopes, and judged on what was counted before it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Landing};
use coordproto::key::Key;
use coordproto::record::budget::{BudgetRecord, Scope};
use coordproto::slot::BUDGETS;
use coordproto::tally::{self, Ceilings, Usage, Verdict};
use coordproto::window::{Period, Windows, Zone};
use engine::env::Env;
use engine::slots::budgets::{Budgets, Caps, Charge, ChargeError, FailsClosed, Gate, Refused, Round};
use engine::store::counting::Counting;
use engine::store::faulty::{Fault, Faulty, Odds, Verb};
use engine::store::{Bucket, Expect, Put, Store, Write};
use engine::tasks;
use futures_util::future::{join, join_all};
use jiff::Timestamp;

use crate::{Fixture, eventually};

const NOON: &str = "2026-09-23T12:00:00Z";
const LATER: &str = "2026-09-23T12:00:01Z";
const TOMORROW: &str = "2026-09-24T00:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().expect("an instant")
}

fn windows(text: &str) -> Windows {
    Windows::at(at(text), &Zone::parse("timezone", "UTC").expect("a zone")).expect("windows")
}

fn ceilings(listed: &[(&str, u64)]) -> Ceilings {
    Ceilings::parse(listed.iter().copied()).expect("ceilings")
}

fn caps(org: &[(&str, u64)], seat: &[(&str, u64)]) -> Caps {
    Caps { org: ceilings(org), seat: ceilings(seat) }
}

fn seat(handle: &str) -> Scope {
    Scope::Seat(handle.into())
}

fn key(scope: &Scope) -> Key {
    scope.key().expect("a good handle")
}

async fn budgets<S: Store>(t: &Fixture<S>) -> Budgets<S> {
    Budgets::open(&t.store, &t.settings()).await.expect("the bucket opens")
}

/// Budgets over a store that does what is chosen later, nothing for now.
async fn faulty<S: Store>(t: &Fixture<S>) -> (Faulty<S>, Budgets<Faulty<S>>) {
    let store = Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::None);
    let budgets = Budgets::open(&store, &t.settings()).await.expect("the bucket opens");
    (store, budgets)
}

/// The bucket below, to write what this build does not write.
async fn bucket<S: Store>(t: &Fixture<S>) -> S::Bucket {
    t.settings().open(&t.store, &BUDGETS).await.expect("the bucket opens")
}

async fn charged<S: Store>(b: &Budgets<S>, handle: &str, tokens: u64, caps: &Caps, now: &str) -> Charge {
    b.charge(handle, tokens, &windows(now), caps, at(now)).await.expect("a definite answer")
}

/// Charges without ceilings.
async fn counted<S: Store>(b: &Budgets<S>, handle: &str, tokens: u64) {
    assert_eq!(charged(b, handle, tokens, &Caps::default(), NOON).await.gate, Gate::Admitted);
}

fn refusal(charge: Charge) -> Refused {
    match charge.gate {
        Gate::Refused(refused) => refused,
        Gate::Admitted => panic!("{charge:?}"),
    }
}

fn spent(usage: &Usage) -> [u64; 3] {
    Period::ALL.map(|period| usage[period].spent)
}

fn stamps(usage: &Usage) -> [Option<Timestamp>; 3] {
    Period::ALL.map(|period| usage[period].refused_at)
}

/// What the company and a seat have spent today.
async fn today<S: Store>(b: &Budgets<S>, handle: &str) -> (u64, u64) {
    let used = b.used(handle, &windows(NOON)).await.expect("a definite answer");
    (used.org.day.spent, used.seat.day.spent)
}

async fn arrived<S: Store, T: Store>(t: &Fixture<S>, faulty: &Faulty<T>) {
    eventually(&t.env, "the late writes have arrived", || async { (faulty.late_writes() == 0).then_some(()) }).await;
}

/// A refused charge has been billed: it is counted on both, and the next is judged on it, whichever scope refused.
pub async fn a_refused_charge_is_counted_on_both<S: Store>(t: Fixture<S>) {
    let b = budgets(&t).await;
    for (by, seat_of, cap) in
        [(Scope::Org, "a", caps(&[("day", 100)], &[])), (seat("b"), "b", caps(&[], &[("day", 100)]))]
    {
        let before = today(&b, seat_of).await.0;
        // The company's turn begins with nothing spent; by the seat's, it has spent more than the ceiling, and has none.
        assert_eq!(charged(&b, seat_of, 98, &cap, NOON).await.gate, Gate::Admitted);
        for (tokens, want, now) in [(3, 101, NOON), (1, 102, LATER)] {
            let charge = charged(&b, seat_of, tokens, &cap, now).await;
            let counters = charge.counters;
            let refused = refusal(charge);
            assert_eq!((&refused.scope, refused.refusal.used, refused.refusal.limit.get()), (&by, want, 100));
            assert_eq!(refused.refusal.window, windows(now)[Period::Day]);
            assert_eq!((spent(&counters.org), spent(&counters.seat)), ([before + want; 3], [want; 3]));
            assert_eq!(b.used(seat_of, &windows(now)).await.unwrap(), counters, "every later read says the same");
            let stamped = if by == Scope::Org { counters.org } else { counters.seat };
            assert_eq!(stamps(&stamped), [Some(at(now)), None, None]);
        }
        let raised = charged(&b, seat_of, 1, &caps(&[], &[]), LATER).await;
        assert_eq!(raised.gate, Gate::Admitted);
        assert_eq!((stamps(&raised.counters.org), stamps(&raised.counters.seat)), ([None; 3], [None; 3]));
    }
    refusal(charged(&b, "a", 1, &caps(&[("day", 100)], &[]), LATER).await);
    let rolled = b.post_charge("a", 5, &windows(TOMORROW)).await.unwrap();
    assert_eq!((rolled.org.day.spent, rolled.org.day.refused_at), (5, None), "a stamp goes with its window");
}

/// No ceiling is no bound and no excuse not to count; a ceiling of nothing is no ceiling to set; no tokens are no charge.
pub async fn what_has_no_ceiling_is_counted<S: Store>(t: Fixture<S>) {
    let store = Counting::new(t.store.clone());
    let b = Budgets::open(&store, &t.settings()).await.unwrap();
    assert_eq!(charged(&b, "a", u64::MAX / 2, &caps(&[], &[]), NOON).await.gate, Gate::Admitted);
    let capped = caps(&[("month", 1)], &[]);
    assert_eq!(refusal(charged(&b, "a", 1, &capped, NOON).await).refusal.window, windows(NOON)[Period::Month]);
    assert!(Ceilings::parse([("day", 0)]).is_err());
    let before = b.used("a", &windows(NOON)).await.unwrap();
    store.take();
    let nothing = charged(&b, "a", 0, &capped, NOON).await;
    assert_eq!((nothing.gate, nothing.counters), (Gate::Admitted, before));
    assert_eq!(b.post_charge("a", 0, &windows(NOON)).await.unwrap(), before);
    assert_eq!(b.post_charge_seat("a", 0, &windows(NOON)).await.unwrap(), before.seat);
    assert_eq!(b.post_charge_org(0, &windows(NOON)).await.unwrap(), before.org);
    assert_eq!(store.take().put, 0);
}

/// Of several windows without room the one that ends last is named, of whichever scope; all are stamped.
pub async fn the_refusal_that_ends_last_is_named<S: Store>(t: Fixture<S>) {
    let b = budgets(&t).await;
    let (day, month) = (("day", 10), ("month", 10));
    for (i, (org, own, by, named)) in [
        (day, month, seat("s0"), Period::Month),
        (month, day, Scope::Org, Period::Month),
        (day, day, Scope::Org, Period::Day),
    ]
    .into_iter()
    .enumerate()
    {
        let handle = format!("s{i}");
        let charge = charged(&b, &handle, 11, &caps(&[org], &[own]), NOON).await;
        for (usage, (period, _)) in [(charge.counters.org, org), (charge.counters.seat, own)] {
            assert_eq!(usage[period.parse().unwrap()].refused_at, Some(at(NOON)), "{i}");
        }
        let refused = refusal(charge);
        assert_eq!((refused.scope, refused.refusal.window), (by, windows(NOON)[named]), "{i}");
    }
}

/// A slot never goes back, and two nodes that open the same window count in one.
pub async fn windows_roll_once_and_never_back<S: Store>(t: Fixture<S>) {
    let (b, other) = (budgets(&t).await, budgets(&t).await);
    let capped = caps(&[("day", 100)], &[]);
    refusal(charged(&b, "a", 101, &capped, NOON).await);
    let tomorrow = windows(TOMORROW);
    let both = join_all([&b, &other].map(|b| charged(b, "a", 40, &capped, TOMORROW))).await;
    assert!(both.iter().all(|charge| charge.gate == Gate::Admitted), "{both:?}");
    let used = other.used("a", &tomorrow).await.unwrap();
    assert_eq!((spent(&used.org), spent(&used.seat)), ([80, 181, 181], [80, 181, 181]));
    // A node whose clock trails counts in the window that the record has reached, and reads it.
    assert_eq!(b.used("a", &windows(NOON)).await.unwrap().org.day.window, tomorrow[Period::Day]);
    let late = refusal(charged(&b, "a", 21, &capped, NOON).await);
    assert_eq!((late.refusal.window, late.refusal.used), (tomorrow[Period::Day], 101));
}

/// Spend that is recorded after the fact is never refused and touches no stamp, on both scopes or on one. The charge that is
/// judged beside it lets its round go on, or not.
pub async fn a_post_charge_is_never_refused<S: Store>(t: Fixture<S>) {
    let b = budgets(&t).await;
    refusal(charged(&b, "a", 11, &caps(&[("day", 10)], &[("day", 10)]), NOON).await);
    let w = windows(NOON);
    let counters = b.post_charge("a", 5, &w).await.unwrap();
    assert_eq!((spent(&counters.org), spent(&counters.seat)), ([16; 3], [16; 3]));
    assert_eq!((counters.org.day.refused_at, counters.seat.day.refused_at), (Some(at(NOON)), Some(at(NOON))));
    let charge = b.charge("b", 1, &w, &Caps::default(), at(NOON)).await;
    assert!(matches!(charge.fails_closed(), Ok(Round::GoesOn(counters)) if counters.seat.day.spent == 1));
    let charge = b.charge("b", 1, &w, &caps(&[], &[("day", 1)]), at(NOON)).await;
    assert!(matches!(charge.fails_closed(), Ok(Round::OutOfBudget(refused)) if refused.scope == seat("b")));
    assert_eq!(spent(&b.post_charge_seat("a", 2, &w).await.unwrap()), [18; 3]);
    assert_eq!(spent(&b.post_charge_org(1, &w).await.unwrap()), [19; 3]);
    assert_eq!(today(&b, "a").await, (19, 18));
}

/// A call that is turned away before it is made is stamped on the scope that would refuse it, the company before the seat.
pub async fn a_refusal_without_a_charge_counts_nothing<S: Store>(t: Fixture<S>) {
    let store = Counting::new(t.store.clone());
    let b = Budgets::open(&store, &t.settings()).await.unwrap();
    let w = windows(NOON);
    let (tight, wide) = (caps(&[("day", 10)], &[("day", 10)]), caps(&[("day", 11)], &[("day", 11)]));
    assert_eq!(b.refuse("a", &w, &tight, at(NOON)).await.unwrap(), None, "nothing is spent yet");
    assert_eq!(charged(&b, "a", 10, &tight, NOON).await.gate, Gate::Admitted);
    store.take();
    assert_eq!(b.refuse("a", &w, &wide, at(NOON)).await.unwrap(), None, "there is room for one token");
    assert_eq!(store.take().put, 0);
    let org = b.refuse("a", &w, &tight, at(NOON)).await.unwrap().expect("the company has no room");
    assert_eq!((org.scope, org.refusal.used), (Scope::Org, 10));
    assert_eq!(store.take().put, 1, "one write, on the first scope that refuses");
    let used = b.used("a", &w).await.unwrap();
    assert_eq!((used.org.day.refused_at, used.seat.day.refused_at), (Some(at(NOON)), None));
    let own = b.refuse("a", &w, &Caps { org: wide.org, ..tight }, at(LATER)).await.unwrap().expect("the seat has none");
    assert_eq!((own.scope, own.refusal.used), (seat("a"), 10));
    let used = b.used("a", &w).await.unwrap();
    assert_eq!((used.org.day.refused_at, used.seat.day.refused_at), (Some(at(NOON)), Some(at(LATER))));
    store.take();
    assert!(b.refuse("a", &w, &tight, at(NOON)).await.unwrap().is_some(), "it is stamped already");
    assert_eq!((store.take().put, today(&b, "a").await), (0, (10, 10)));
    assert_eq!(b.refuse("a", &windows(TOMORROW), &tight, at(TOMORROW)).await.unwrap(), None, "the window is over");
}

/// Every scope with a record is listed, as it stands.
pub async fn every_scope_is_listed_as_it_stands<S: Store>(t: Fixture<S>) {
    let b = budgets(&t).await;
    let w = windows(NOON);
    assert_eq!(b.usage(&w).await.unwrap(), []);
    let handles = ["a", "A.B", "org", "é *", "a:b"];
    for (tokens, handle) in (1..).zip(handles) {
        counted(&b, handle, tokens).await;
    }
    stored(&bucket(&t).await, &Key::parse("another").unwrap(), "another's").await;
    let told: BTreeMap<Scope, u64> =
        b.usage(&w).await.unwrap().into_iter().map(|(scope, usage)| (scope, usage.day.spent)).collect();
    let mut want: BTreeMap<Scope, u64> = handles.map(seat).into_iter().zip(1..).collect();
    want.insert(Scope::Org, 15);
    assert_eq!(told, want);
}

/// A handle that no seat can have is refused before anything is asked.
pub async fn bad_handles_are_charged_nothing<S: Store>(t: Fixture<S>) {
    let store = Counting::new(t.store.clone());
    let b = Budgets::open(&store, &t.settings()).await.unwrap();
    let (w, none) = (windows(NOON), Caps::default());
    store.take();
    for handle in ["", ":", "a:", "a::b", &"a".repeat(5000)] {
        for refused in [
            b.post_charge_seat(handle, 1, &w).await.map(drop),
            b.refuse(handle, &w, &none, at(NOON)).await.map(drop),
            b.used(handle, &w).await.map(drop),
        ] {
            assert!(matches!(refused, Err(Error::BadArgument(_))), "{refused:?}");
        }
        let charge = b.charge(handle, 1, &w, &none, at(NOON)).await;
        assert_eq!(charge.fails_closed().unwrap_err().what, "seat");
        assert!(matches!(b.post_charge(handle, 1, &w).await, Err(ChargeError::BadArgument(_))));
    }
    assert_eq!(store.take().total(), 0);
}

async fn stored<B: Bucket>(bucket: &B, key: &Key, value: impl Into<Bytes>) {
    let put = bucket.put(key, Write::Value(value.into()), Expect::Any).await.expect("a definite answer");
    assert!(matches!(put, Put::Stored(_)));
}

/// A record that cannot be read is unknown and stays as it is; it is never counted from nothing.
pub async fn what_cannot_be_read_is_unknown_and_never_reset<S: Store>(t: Fixture<S>) {
    let (b, raw, w) = (budgets(&t).await, bucket(&t).await, windows(NOON));
    for scope in [Scope::Org, seat("a")] {
        counted(&b, "a", 7).await;
        let whole = raw.get(&key(&scope)).await.unwrap().unwrap().value.unwrap();
        stored(&raw, &key(&scope), "garbage").await;
        let charge = b.charge("a", 1, &w, &Caps::default(), at(NOON)).await.unwrap_err();
        let unknown = match (&scope, &charge) {
            (Scope::Org, ChargeError::Unknown(unknown)) => unknown.clone(),
            (Scope::Seat(_), ChargeError::SeatUncounted { tokens: 1, unknown, .. }) => unknown.clone(),
            _ => panic!("{charge:?}"),
        };
        let mut told = vec![unknown];
        let unknown = |error: Error| error.unknown().cloned().expect("unknown");
        told.push(unknown(b.used("a", &w).await.unwrap_err()));
        let full = caps(&[("day", 100)], &[("day", 1)]);
        told.push(unknown(b.refuse("a", &w, &full, at(NOON)).await.unwrap_err()));
        told.push(b.usage(&w).await.unwrap_err());
        for unknown in told {
            assert!(matches!(unknown.cause, Cause::Undecodable(_)), "{unknown}");
            assert_eq!((&*unknown.resource, unknown.landing), (&*scope.to_string(), Landing::Settled));
        }
        let Ok(Round::Outage(_)) = Err(charge).fails_closed() else { panic!("an outage, and no refusal") };
        assert_eq!(raw.get(&key(&scope)).await.unwrap().unwrap().value.as_deref(), Some(&b"garbage"[..]));
        stored(&raw, &key(&scope), whole).await;
    }
    // The company has counted the charge whose seat could not be read.
    assert_eq!(today(&b, "a").await, (15, 14));
}

/// So many chargers, spread over nodes, each charging one company again and again: what is counted is what was answered, to
/// the token, and nobody runs out of attempts.
async fn charged_by_all<S: Store>(t: &Fixture<S>, node_count: usize, charger_count: usize, each: u64) {
    let nodes = join_all((0..node_count).map(|_| budgets(t))).await;
    let before = today(&nodes[0], "none").await.0;
    let chargers = (0..charger_count).map(|i| {
        let node = nodes[i % node_count].clone();
        tasks::spawn(async move {
            let (handle, w) = (format!("s{charger_count}.{i}"), windows(NOON));
            for n in 0..each {
                let charge = node.charge(&handle, 1, &w, &Caps::default(), at(NOON)).await;
                let charge = charge.unwrap_or_else(|error| panic!("charge {n} on {handle}: {error}"));
                assert_eq!(charge.gate, Gate::Admitted);
            }
        })
    });
    join_all(chargers.map(tasks::Task::join)).await;
    for i in 0..charger_count {
        let (company, seat) = today(&nodes[0], &format!("s{charger_count}.{i}")).await;
        assert_eq!((company - before, seat), (charger_count as u64 * each, each), "s{charger_count}.{i}");
    }
}

/// 32 nodes with a charger each, and then 100 chargers on 8 nodes, on one record.
pub async fn many_nodes_charge_one_company_to_the_token<S: Store>(t: Fixture<S>) {
    charged_by_all(&t, 32, 32, 20).await;
    charged_by_all(&t, 8, 100, 100).await;
}

/// A thousand charges at once on one node cost a fraction of a request each, and answer what a thousand one after another do.
pub async fn charges_that_wait_are_counted_together<S: Store>(t: Fixture<S>) {
    let store = Counting::new(t.store.clone());
    let b = Budgets::open(&store, &t.settings()).await.unwrap();
    store.take();
    let (w, cap) = (windows(NOON), caps(&[("day", 1_000)], &[("day", 400)]));
    let handles = ["a", "b", "c"];
    let asked = (0..1_000_usize).map(|i| (handles[i % 3], 1 + (i as u64 * 7) % 5));
    let told = asked.map(|(handle, tokens)| {
        let (b, w) = (&b, &w);
        async move { (handle, tokens, b.charge(handle, tokens, w, &cap, at(NOON)).await.expect("a definite answer")) }
    });
    let mut told = join_all(told).await;
    let calls = store.take();
    assert!(calls.total() < 200, "{calls:?}");
    // The counters tell the order in which the charges were judged; one after another in that order they come to the same.
    told.sort_unstable_by_key(|(_, _, charge)| charge.counters.org.day.spent);
    let (mut record, mut refused) = (None, Vec::new());
    for (_, tokens, charge) in &told {
        let (next, alone) = tally::charge(record.as_ref(), &w, &cap.org, *tokens, at(NOON));
        (record, refused) = (next, [refused, vec![alone.verdict != Verdict::Admitted]].concat());
        assert_eq!(charge.counters.org, alone.usage);
    }
    for handle in handles {
        let mut own: Vec<_> = told.iter().enumerate().filter(|(_, (of, ..))| *of == handle).collect();
        own.sort_unstable_by_key(|(_, (_, _, charge))| charge.counters.seat.day.spent);
        let mut record: Option<BudgetRecord> = None;
        for (at_org, (_, tokens, charge)) in own {
            let (next, alone) = tally::charge(record.as_ref(), &w, &cap.seat, *tokens, at(NOON));
            record = next;
            assert_eq!(charge.counters.seat, alone.usage);
            let admitted = !refused[at_org] && alone.verdict == Verdict::Admitted;
            assert_eq!(charge.gate == Gate::Admitted, admitted, "{charge:?}");
        }
    }
    let sum = told.iter().map(|(_, tokens, _)| tokens).sum::<u64>();
    assert_eq!(told.last().unwrap().2.counters.org.day.spent, sum);
}

/// A seat's write that fails after the company's: the company is exact, the seat is short of the charge, and the error says so.
pub async fn a_seat_that_cannot_be_written_is_named_with_its_share<S: Store>(t: Fixture<S>) {
    let (store, b) = faulty(&t).await;
    let mut org = 0;
    // It arrives when nobody goes on asking any more, which a charge does for 5 s at most.
    for (i, fault) in [Fault::DropRequest, Fault::Late(Duration::from_secs(8))].into_iter().enumerate() {
        let handle = format!("s{i}");
        let at_seat = key(&seat(&handle));
        store.choose(move |call| match call.verb {
            Verb::Put if call.about == at_seat.as_str() => fault,
            _ => Fault::None,
        });
        let charge = b.charge(&handle, 3, &windows(NOON), &caps(&[("day", 1)], &[]), at(NOON)).await;
        org += 3;
        let Err(ChargeError::SeatUncounted { seat: named, tokens: 3, org: counted, unknown }) = &charge else {
            panic!("{charge:?}")
        };
        assert_eq!((&**named, counted.day.spent, unknown.landing), (&*handle, org, Landing::InFlight));
        let Ok(Round::Outage(_)) = charge.fails_closed() else { panic!("an outage, and no refusal") };
        arrived(&t, &store).await;
        store.choose(|_| Fault::None);
        let counted = if fault == Fault::DropRequest { 0 } else { 3 };
        assert_eq!(today(&b, &handle).await, (org, counted), "{fault:?}: at most once, whatever was sent again");
        b.post_charge_seat(&handle, 3 - counted, &windows(NOON)).await.unwrap();
        assert_eq!(today(&b, &handle).await, (org, 3));
    }
}

/// A write whose answer is lost is counted once and answered, whatever a peer writes meanwhile.
pub async fn a_lost_answer_costs_no_charge<S: Store>(t: Fixture<S>) {
    let ((store, b), peer) = (faulty(&t).await, budgets(&t).await);
    let mut want = 0;
    for fault in [Fault::DropReply, Fault::DropRequest, Fault::Late(Duration::from_millis(20))] {
        for peer_writes in [false, true] {
            for number in 1..=2 {
                let mut faults = vec![fault; number];
                store.choose(move |call| match call.verb {
                    Verb::Put => faults.pop().unwrap_or(Fault::None),
                    // Time for a peer.
                    Verb::Read if peer_writes => Fault::Delay(Duration::from_millis(5)),
                    _ => Fault::None,
                });
                let work = async {
                    if peer_writes {
                        for _ in 0..3 {
                            counted(&peer, "a", 1).await;
                            t.env.sleep(Duration::from_millis(3)).await;
                        }
                        want += 3;
                    }
                };
                let (charge, ()) = join(charged(&b, "a", 100, &Caps::default(), NOON), work).await;
                want += 100;
                assert_eq!(charge.gate, Gate::Admitted);
                arrived(&t, &store).await;
                assert_eq!(today(&peer, "a").await, (want, want), "{fault:?}, {peer_writes}, {number}");
            }
        }
    }
    // With no answer at all it is unknown, and the company says whether it may have been counted.
    for (fault, landing) in [(Fault::DropReply, 7), (Fault::DropRequest, 0)] {
        store.choose(move |_| fault);
        let charge = b.charge("a", 7, &windows(NOON), &Caps::default(), at(NOON)).await.unwrap_err();
        assert!(matches!(&charge, ChargeError::Unknown(unknown) if unknown.cause == Cause::Timeout), "{charge:?}");
        let raw = key(&Scope::Org);
        store.choose(move |call| match call.verb {
            Verb::Put => fault,
            Verb::Read if call.about == raw.as_str() => Fault::None,
            _ => fault,
        });
        let (before, _) = today(&peer, "a").await;
        let answer = b.charge("a", 7, &windows(NOON), &Caps::default(), at(NOON)).await.unwrap_err();
        let (after, own) = today(&peer, "a").await;
        assert_eq!((after - before, own), (landing, want), "{fault:?}: {answer}");
        if landing > 0 {
            // The record told that the company's write landed, and nothing tells of the seat's.
            assert!(matches!(answer, ChargeError::SeatUncounted { .. }), "{answer:?}");
        }
    }
}

/// Whatever is lost, late, delayed or from the past: what was answered is counted once, and what is unknown at most once.
pub async fn no_fault_counts_a_charge_twice<S: Store>(t: Fixture<S>) {
    for round in 0..6 {
        let seed = t.env.random();
        let odds = Odds {
            drop_request: 100,
            drop_reply: 150,
            late: 150,
            delay: 200,
            stale: 50,
            wait: Duration::from_millis(30),
        };
        let store = Faulty::seeded(t.store.clone(), Env::seeded(seed), odds);
        let settings = t.settings();
        let nodes = join_all((0..3).map(|_| Budgets::open(&store, &settings))).await;
        let handle = format!("s{round}");
        // A digit of base 4 for each charge: the sum tells how often each was counted.
        let base = today(&budgets(&t).await, &handle).await.0;
        let charges = (0..30_usize).map(|i| {
            let node = nodes[i % 3].as_ref().expect("the bucket opens").clone();
            let handle = handle.clone();
            let begin = Duration::from_millis(4 * (i / 6) as u64);
            let env = t.env.clone();
            async move {
                env.sleep(begin).await;
                node.charge(&handle, 1 << (2 * i), &windows(NOON), &Caps::default(), at(NOON)).await
            }
        });
        let told = join_all(charges).await;
        arrived(&t, &store).await;
        let (org, own) = today(&budgets(&t).await, &handle).await;
        for (i, told) in told.into_iter().enumerate() {
            let times = |sum: u64| (sum >> (2 * i)) & 3;
            let (org, own) = (times(org.wrapping_sub(base)), times(own));
            let (org_may, own_may) = match &told {
                Ok(_) => (1..=1, 1..=1),
                Err(ChargeError::Unknown(unknown)) if unknown.landing == Landing::Settled => (0..=0, 0..=0),
                Err(ChargeError::Unknown(_)) => (0..=1, 0..=0),
                Err(ChargeError::SeatUncounted { unknown, .. }) if unknown.landing == Landing::Settled => {
                    (1..=1, 0..=0)
                }
                Err(ChargeError::SeatUncounted { .. }) => (1..=1, 0..=1),
                Err(ChargeError::BadArgument(error)) => panic!("{error}"),
            };
            assert!(org_may.contains(&org) && own_may.contains(&own), "seed {seed}, {i}: {org}, {own}: {told:?}");
        }
        // The company's record has no room for the digits of two rounds.
        let raw = bucket(&t).await;
        let stands = raw.get(&key(&Scope::Org)).await.unwrap().unwrap();
        raw.purge(&key(&Scope::Org), stands.revision).await.unwrap();
    }
}

/// A caller who goes away, at whatever point, has charged both scopes or neither.
pub async fn an_abandoned_charge_is_counted_on_both_or_on_neither<S: Store>(t: Fixture<S>) {
    let (store, b) = faulty(&t).await;
    store.choose(|_| Fault::Delay(Duration::from_micros(300)));
    let mut answered = 0;
    for point in 0..64 {
        let (w, none) = (windows(NOON), Caps::default());
        let charge = b.charge("a", 1, &w, &none, at(NOON));
        let cut = t.env.now() + Duration::from_micros(point * 150);
        if let Ok(answer) = t.env.within(cut, charge).await {
            assert_eq!(answer.expect("nothing is failing").gate, Gate::Admitted);
            answered += 1;
        }
    }
    // What goes on in the background is over when the two agree, after a charge that waited for the company's share of it.
    counted(&b, "a", 1).await;
    let counted = eventually(&t.env, "both have counted the same", || async {
        let (org, own) = today(&b, "a").await;
        (org == own).then_some(org)
    })
    .await;
    assert!((answered + 1..=65).contains(&counted), "{answered} were answered and {counted} counted");
}
