use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::tally::{Charge, charge_all};
use crate::window::{Windows, Zone};

fn record() -> BudgetRecord {
    let spend = |label: &str, spent| Spend { label: label.parse().unwrap(), spent, refused_at: None };
    BudgetRecord {
        slots: ByPeriod {
            day: Spend { refused_at: Some("2026-09-23T10:00:00.5Z".parse().unwrap()), ..spend("2026-09-23", 101) },
            week: spend("2026-W39", 9_007_199_254_740_993),
            month: spend("2026-09", u64::MAX),
        },
        writes: Vec::new(),
        forgotten: None,
        newer: Map::new(),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

const WIRE: &str = r#"{"day":{"label":"2026-09-23","spent":101,"refused_at":"2026-09-23T10:00:00.5Z"},"week":{"label":"2026-W39","spent":9007199254740993},"month":{"label":"2026-09","spent":18446744073709551615}}"#;

#[test]
fn a_record_keeps_its_wire_shape_and_its_counters_are_exact() {
    assert_eq!(record().encode(), WIRE);
    assert_eq!(BudgetRecord::decode(WIRE.as_bytes()).unwrap(), record());

    let mut signed = record();
    signed.forgotten = Some(0);
    signed.sign("n1:9f", 7, 40, "2026-09-23T10:00:01.75Z".parse().unwrap());
    let tail = r#","writes":[{"writer":"n1:9f","batch":7,"over":40,"at":"2026-09-23T10:00:01Z"}],"forgotten":0}"#;
    let wire = format!("{}{tail}", &WIRE[..WIRE.len() - 1]);
    assert_eq!(signed.encode(), wire);
    assert_eq!(BudgetRecord::decode(wire.as_bytes()).unwrap(), signed);
}

#[test]
fn what_a_newer_build_keeps_beside_is_written_back_by_every_charge() {
    let wire = format!(r#"{},"quarter":{{"label":"2026-Q3","spent":18446744073709551615}}}}"#, &WIRE[..WIRE.len() - 1]);
    let zone = Zone::parse("timezone", "UTC").unwrap();
    let windows = Windows::at("2026-09-23T12:00:00Z".parse().unwrap(), &zone).unwrap();
    let read = BudgetRecord::decode(wire.as_bytes()).unwrap();
    let (written, _) = charge_all(Some(&read), &[Charge::Post { tokens: 1, windows: &windows }]);
    let written = written.unwrap();
    assert_eq!(written.slots.day.spent, 102);
    assert_eq!(written.newer, read.newer);
    assert!(written.encode().ends_with(br#","quarter":{"label":"2026-Q3","spent":18446744073709551615}}"#));
}

#[test]
fn fields_of_a_newer_build_decide_nothing_wherever_they_stand() {
    let wire = r#"{"quarter":{"label":"2026-Q3","spent":-1},"v":2,"day":{"currency":"EUR","label":"2026-09-23","spent":1},
        "week":{"label":"2026-W39","spent":2,"by":null},"month":{"label":"2026-09","spent":3,"refused_at":null},
        "writes":[{"writer":"w","batch":1,"over":2,"at":"2026-09-23T10:00:01Z","of":3}]}"#;
    let record = BudgetRecord::decode(wire.as_bytes()).unwrap();
    assert_eq!(Period::ALL.map(|period| record.slots[period].spent), [1, 2, 3]);
    assert_eq!(record.trace("w", 1, 2), Trace::Landed);
}

#[test]
fn what_is_not_a_whole_record_is_unknown() {
    let mut broken: Vec<String> = ["", "{}", "null", "[]", "0", "garbage"].map(String::from).into();
    broken.push(WIRE[..WIRE.len() - 1].to_owned());
    for (old, new) in [
        (r#""spent":101"#, r#""spent":"101""#),
        (r#""spent":101"#, r#""spent":101.0"#),
        (r#""spent":101"#, r#""spent":1e2"#),
        (r#""spent":101"#, r#""spent":-1"#),
        (r#""spent":101"#, r#""spent":null"#),
        (r#""spent":101"#, r#""spent":101,"spent":1"#),
        (r#""spent":101,"#, ""),
        ("18446744073709551615", "18446744073709551616"),
        (r#""2026-09-23","#, r#""2026-09-31","#),
        (r#""2026-09-23","#, r#""2026-W39","#),
        (r#""2026-W39""#, r#""2026-09""#),
        (r#""2026-09","#, r#""2026-09-01","#),
        (r#""label":"2026-09","#, ""),
        (r#""week""#, r#""weak""#),
        (r#""week""#, r#""day""#),
        ("10:00:00.5Z", "25:00:00Z"),
        (r#","week":{"#, r#","writes":[{}],"week":{"#),
        (r#","week":{"#, r#","writes":null,"week":{"#),
        (r#","week":{"#, r#","forgotten":-1,"week":{"#),
    ] {
        let wire = WIRE.replacen(old, new, 1);
        assert_ne!(wire, WIRE, "{old} is in the record");
        broken.push(wire);
    }
    for wire in broken {
        assert!(matches!(BudgetRecord::decode(wire.as_bytes()), Err(Cause::Undecodable(_))), "{wire}");
    }
}

#[test]
fn each_writer_keeps_one_entry_and_a_rival_does_not_hide_it() {
    let mut record = record();
    record.sign("a", 1, 10, at(0));
    for n in 0..1_000 {
        record.sign("b", n, 11 + n, at(0));
    }
    assert_eq!(record.trace("a", 1, 10), Trace::Landed);
    assert_eq!(record.trace("b", 999, 1_010), Trace::Landed);
    assert_eq!(record.writes.len(), 2);
    assert_eq!(record.forgotten, None, "an entry that its writer replaces is not forgotten");
    assert_eq!(record.trace("a", 2, 1_005), Trace::Never, "the entry is of the batch before");
    assert_eq!(record.trace("c", 1, 0), Trace::Never);
    assert_eq!(record.trace("b", 998, 1_009), Trace::Forgotten, "its writer has gone on");
}

#[test]
fn a_dropped_entry_costs_an_answer_and_never_a_count() {
    let mut record = record();
    record.sign("old", 1, 5, at(0));
    record.sign("mid", 1, 6, at(300));
    record.sign("new", 1, 7, at(600));
    assert_eq!(record.forgotten, None, "ten minutes are kept");
    record.sign("new", 2, 8, at(601));
    assert_eq!(record.forgotten, Some(5));
    assert_eq!(record.trace("old", 1, 5), Trace::Forgotten);
    assert_eq!(record.trace("other", 1, 4), Trace::Forgotten);
    assert_eq!(record.trace("other", 1, 6), Trace::Never, "whoever wrote over a later revision would be on record");
    assert_eq!(record.trace("mid", 1, 6), Trace::Landed);

    // A clock far ahead forgets everybody else, and one far behind is forgotten by the next.
    record.sign("ahead", 1, 9, at(1_000_000));
    assert_eq!((record.writes.len(), record.forgotten), (1, Some(8)));
    record.sign("behind", 1, 10, at(0));
    assert_eq!(record.trace("behind", 1, 10), Trace::Landed);
    record.sign("ahead", 2, 11, at(1_000_000));
    assert_eq!(record.trace("behind", 1, 10), Trace::Forgotten);
}

#[test]
fn more_writers_than_are_remembered_drop_the_first() {
    let mut record = record();
    let most = u64::try_from(WRITERS_MAX).unwrap();
    for n in 0..=most {
        record.sign(&format!("n{n}"), 1, n, at(0));
    }
    assert_eq!((record.writes.len(), record.forgotten), (WRITERS_MAX, Some(0)));
    assert_eq!(record.trace("n0", 1, 0), Trace::Forgotten);
    assert_eq!(record.trace("n1", 1, 1), Trace::Landed);
    // Each writes again; nobody is pushed out by those who are on record.
    for n in 1..=most {
        record.sign(&format!("n{n}"), 2, most + n, at(0));
    }
    assert_eq!((record.writes.len(), record.forgotten), (WRITERS_MAX, Some(0)));
}

/// A writer, and the revision that its batch in doubt was sent over.
#[derive(Default)]
struct Writer {
    batch: u64,
    in_doubt: Option<u64>,
}

proptest! {
    /// Writers write over what they have read, and their answers are lost at will. Whoever asks the record settles its batch
    /// as it did land, however many others wrote in between.
    #[test]
    fn a_trace_tells_what_happened(steps in prop::collection::vec((0..6_usize, any::<bool>(), 0..400_i64), 1..200)) {
        let mut stored: (u64, Option<BudgetRecord>) = (0, None);
        let mut writers: [Writer; 6] = Default::default();
        let mut landed: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        let (mut revision, mut now) = (0, 0);
        for (who, arrives, passed) in steps {
            now += passed;
            let name = format!("w{who}");
            let writer = &mut writers[who];
            match writer.in_doubt {
                None => {
                    // A new batch, sent over what is stored; it may be on its way for a while.
                    writer.batch += 1;
                    writer.in_doubt = Some(stored.0);
                }
                Some(over) if stored.0 == over => {}
                Some(over) => {
                    let record = stored.1.as_ref().unwrap();
                    let truth = landed.contains_key(&(who, writer.batch));
                    match record.trace(&name, writer.batch, over) {
                        Trace::Landed => prop_assert!(truth),
                        Trace::Never => prop_assert!(!truth),
                        Trace::Forgotten => {}
                    }
                    // Settled, or given up: either way nothing of this batch is sent again.
                    writer.in_doubt = None;
                    continue;
                }
            }
            if arrives {
                let mut next = stored.1.clone().unwrap_or_else(record);
                next.sign(&name, writer.batch, stored.0, at(now));
                prop_assert_eq!(BudgetRecord::decode(&next.encode()).unwrap(), next.clone());
                revision += 3;
                stored = (revision, Some(next));
                *landed.entry((who, writer.batch)).or_default() += 1;
            }
        }
        prop_assert!(landed.values().all(|times| *times == 1));
    }
}

#[test]
fn a_scope_is_one_segment_and_comes_back_byte_for_byte() {
    let seat = |handle: &str| Scope::Seat(handle.into());
    for (scope, want) in [
        (Scope::Org, "org"),
        (seat("alpha"), "seat=3Aalpha"),
        (seat("org"), "seat=3Aorg"),
        (seat("A.B"), "seat=3AA=2EB"),
        (seat("a:b"), "seat=3Aa=3Ab"),
        (seat("é *"), "seat=3A=C3=A9=20=2A"),
    ] {
        let key = scope.key().unwrap();
        assert_eq!((key.as_str(), Scope::of(&key)), (want, Some(scope)));
    }
    for handle in ["", ":", "a:", "a::b", &"a".repeat(5000)] {
        assert_eq!(seat(handle).key().unwrap_err().what, "seat", "{handle}");
    }
    for raw in ["alpha", "org.a", "seat=3A", "seat=3Aa.b", "seat.a", "seat=3Aa=3A"] {
        assert_eq!(Scope::of(&Key::parse(raw).unwrap()), None, "{raw}");
    }
}

#[test]
fn who_landed_longest_ago_is_first_and_who_is_long_gone_races_no_more() {
    let mut record = record();
    for (n, (writer, second)) in [("gone", 0), ("a", 13), ("b", 14), ("late", 3), ("c", 15)].into_iter().enumerate() {
        record.sign(writer, 1, n as u64, at(second));
    }
    let before =
        |record: &BudgetRecord, writer: &str| record.before(writer, at(15)).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(before(&record, "c"), ["a", "b"]);
    assert_eq!(before(&record, "b"), ["a"]);
    assert_eq!(before(&record, "a"), [] as [&str; 0]);
    assert_eq!(before(&record, "new"), [] as [&str; 0], "it has no turn yet");
    record.sign("a", 2, 9, at(15));
    assert_eq!(before(&record, "b"), [] as [&str; 0]);
    assert_eq!(before(&record, "a"), ["b", "c"]);
    record.sign("ahead", 1, 10, at(60));
    record.sign("a", 3, 11, at(15));
    assert_eq!(before(&record, "a"), ["b", "c", "ahead"], "one clock that is ahead makes nobody else old");
}
