use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;
use crate::window::Zone;

fn instant(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn zone(name: &str) -> Zone {
    Zone::parse("timezone", name).unwrap()
}

fn windows_in(name: &str, at: &str) -> Windows {
    Windows::at(instant(at), &zone(name)).unwrap()
}

fn windows(at: &str) -> Windows {
    windows_in("UTC", at)
}

fn caps(listed: &[(&str, u64)]) -> Ceilings {
    Ceilings::parse(listed.iter().copied()).unwrap()
}

/// A scope's record as charge after charge is written, and the clock on which they are judged.
#[derive(Default)]
struct Scope(Option<BudgetRecord>);

impl Scope {
    fn spent(windows: &Windows, tokens: u64) -> Scope {
        let mut scope = Scope::default();
        scope.post(windows, tokens);
        scope
    }

    fn charge(&mut self, windows: &Windows, ceilings: &Ceilings, tokens: u64, now: &str) -> Charged {
        let (write, charged) = charge(self.0.as_ref(), windows, ceilings, tokens, instant(now));
        self.0 = write.or_else(|| self.0.take());
        assert_eq!(used(self.0.as_ref(), windows), charged.usage, "the answer tells what the next read does");
        charged
    }

    fn post(&mut self, windows: &Windows, tokens: u64) {
        let (write, _) = post_charge(self.0.as_ref(), windows, tokens);
        self.0 = write.or_else(|| self.0.take());
    }

    fn counters(&self, windows: &Windows) -> [u64; 3] {
        let usage = used(self.0.as_ref(), windows);
        Period::ALL.map(|period| usage[period].spent)
    }

    fn stamps(&self) -> [Option<Timestamp>; 3] {
        let record = self.0.as_ref().unwrap();
        Period::ALL.map(|period| record.slots[period].refused_at)
    }

    fn labels(&self) -> [String; 3] {
        let record = self.0.as_ref().unwrap();
        Period::ALL.map(|period| record.slots[period].label.to_string())
    }
}

fn refusal(charged: Charged) -> Refusal {
    match charged.verdict {
        Verdict::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

const NOON: &str = "2026-09-23T12:00:00Z";
const LATER: &str = "2026-09-23T12:00:01Z";

#[test]
fn a_refused_charge_is_counted_and_the_next_is_judged_on_it() {
    let (windows, cap) = (windows(NOON), caps(&[("day", 100)]));
    let mut scope = Scope::spent(&windows, 98);
    let first = refusal(scope.charge(&windows, &cap, 3, NOON));
    assert_eq!((first.used, first.limit.get(), first.window), (101, 100, windows[Period::Day]));
    let second = refusal(scope.charge(&windows, &cap, 1, LATER));
    assert_eq!((second.used, scope.counters(&windows)), (102, [102; 3]));
    assert_eq!(scope.stamps(), [Some(instant(LATER)), None, None], "the last refusal is on record");
}

#[test]
fn a_charge_that_fits_to_the_last_token_is_admitted() {
    let (windows, cap) = (windows(NOON), caps(&[("day", 100)]));
    let mut scope = Scope::spent(&windows, 98);
    assert_eq!(scope.charge(&windows, &cap, 2, NOON).verdict, Verdict::Admitted);
    assert_eq!(refusal(scope.charge(&windows, &cap, 1, NOON)).used, 101);
}

#[test]
fn a_stamp_goes_with_the_next_admitted_charge_and_with_its_window() {
    let today = windows(NOON);
    let full = || {
        let mut scope = Scope::spent(&today, 100);
        refusal(scope.charge(&today, &caps(&[("day", 100)]), 1, NOON));
        assert_eq!(scope.stamps(), [Some(instant(NOON)), None, None]);
        scope
    };
    let mut raised = full();
    assert_eq!(raised.charge(&today, &caps(&[("day", 1_000)]), 1, NOON).verdict, Verdict::Admitted);
    assert_eq!(raised.stamps(), [None; 3]);

    let mut rolled = full();
    let tomorrow = windows("2026-09-24T00:00:00Z");
    rolled.post(&tomorrow, 5);
    assert_eq!((rolled.stamps(), rolled.counters(&tomorrow)), ([None; 3], [5, 106, 106]));

    let mut posted = full();
    posted.post(&today, 1);
    assert_eq!(posted.stamps(), [Some(instant(NOON)), None, None], "a post-charge touches no stamp");
    assert_eq!(
        full().charge(&today, &caps(&[]), 0, LATER).usage.day.refused_at,
        Some(instant(NOON)),
        "nor does nothing"
    );
}

#[test]
fn an_admitted_charge_clears_no_stamp_that_is_newer_than_itself() {
    let windows = windows(NOON);
    let mut scope = Scope::spent(&windows, 100);
    refusal(scope.charge(&windows, &caps(&[("day", 100), ("week", 100)]), 1, LATER));
    assert_eq!(scope.charge(&windows, &caps(&[]), 1, NOON).verdict, Verdict::Admitted);
    assert_eq!(scope.stamps(), [Some(instant(LATER)), Some(instant(LATER)), None]);
    // A refusal by a clock that trails does not move the last one back.
    refusal(scope.charge(&windows, &caps(&[("day", 100)]), 1, NOON));
    assert_eq!(scope.stamps()[0], Some(instant(LATER)));
}

#[test]
fn of_several_refusing_windows_the_one_that_ends_last_is_named_and_all_are_stamped() {
    for (at, capped, named) in [
        (NOON, &["day", "week"][..], "2026-W39"),
        (NOON, &["day", "week", "month"], "2026-09"),
        (NOON, &["day"], "2026-09-23"),
        // The week goes on into October.
        ("2026-09-29T12:00:00Z", &["day", "week", "month"], "2026-W40"),
        ("2026-09-29T12:00:00Z", &["day", "month"], "2026-09"),
        // Sunday and its week end together, and so do a month's last day and its month: the longer period it is.
        ("2026-09-27T12:00:00Z", &["day", "week"], "2026-W39"),
        ("2026-09-30T12:00:00Z", &["day", "month"], "2026-09"),
        ("2026-05-31T12:00:00Z", &["day", "week", "month"], "2026-05"),
    ] {
        let windows = windows(at);
        let ceilings = Ceilings::parse(capped.iter().map(|period| (*period, 10))).unwrap();
        let mut scope = Scope::spent(&windows, 10);
        let refusal = refusal(scope.charge(&windows, &ceilings, 1, at));
        assert_eq!(refusal.window.label.to_string(), named, "{at} {capped:?}");
        assert_eq!(refusal.window, windows[refusal.window.label.period()]);
        let stamped = Period::ALL.map(|period| capped.contains(&period.name()).then(|| instant(at)));
        assert_eq!(scope.stamps(), stamped, "{at} {capped:?}");
    }
}

#[test]
fn every_window_is_counted_capped_or_not() {
    let mut scope = Scope::default();
    for day in 1..=20 {
        let at = format!("2026-09-{day:02}T12:00:00Z");
        assert_eq!(scope.charge(&windows(&at), &caps(&[("day", 10)]), 10, &at).verdict, Verdict::Admitted);
    }
    // A ceiling on the month finds the month's spend.
    let at = "2026-09-21T12:00:00Z";
    let refusal = refusal(scope.charge(&windows(at), &caps(&[("day", 10), ("month", 200)]), 1, at));
    assert_eq!((refusal.window.label.to_string(), refusal.used), ("2026-09".to_owned(), 201));
}

#[test]
fn a_slot_never_goes_back_when_a_clock_trails() {
    let (today, tomorrow) = (windows("2026-09-30T23:59:58Z"), windows("2026-10-01T00:00:00Z"));
    let cap = caps(&[("day", 100), ("month", 100)]);
    let mut scope = Scope::spent(&today, 70);
    assert_eq!(scope.charge(&tomorrow, &cap, 60, "2026-10-01T00:00:00Z").verdict, Verdict::Admitted);
    // The peer that is two seconds behind counts in the window that the record has reached.
    let charged = scope.charge(&today, &cap, 41, "2026-09-30T23:59:58Z");
    let refused = refusal(charged);
    assert_eq!((refused.window, refused.used), (tomorrow[Period::Month], 101), "named with its own start and end");
    assert_eq!(scope.labels(), ["2026-10-01", "2026-W40", "2026-10"]);
    assert_eq!(
        used(scope.0.as_ref(), &today),
        used(scope.0.as_ref(), &tomorrow),
        "and reads what it would be judged by"
    );
    assert_eq!(scope.counters(&today), [101, 171, 101], "the week goes over the boundary");
    let stamp = Some(instant("2026-09-30T23:59:58Z"));
    assert_eq!(used(scope.0.as_ref(), &today).day.refused_at, stamp);
    assert_eq!(used(scope.0.as_ref(), &today).day.window, tomorrow[Period::Day]);
}

#[test]
fn a_slot_never_goes_back_when_the_zone_moves_west() {
    let at = "2026-12-31T10:00:00Z";
    let (east, west) = (windows_in("Pacific/Kiritimati", at), windows_in("America/Los_Angeles", at));
    let mut scope = Scope::spent(&east, 40);
    let labels = ["2027-01-01", "2026-W53", "2027-01"].map(String::from);
    assert_eq!(scope.labels(), labels);
    scope.post(&west, 2);
    assert_eq!((scope.labels(), scope.counters(&west)), (labels.clone(), [42; 3]));
    // The window stated is the later one, on the clock that is asked about.
    assert_eq!(used(scope.0.as_ref(), &west).day.window.start, instant("2027-01-01T08:00:00Z"));
    let reached = windows_in("America/Los_Angeles", "2027-01-01T08:00:00Z");
    scope.post(&reached, 1);
    assert_eq!((scope.labels(), scope.counters(&reached)), (labels, [43; 3]), "until the clock has come that far");
    scope.post(&windows_in("America/Los_Angeles", "2027-01-02T08:00:00Z"), 1);
    assert_eq!(scope.labels()[0], "2027-01-02");
}

#[test]
fn an_hour_that_happens_twice_resets_nothing() {
    let azores = |at| windows_in("Atlantic/Azores", at);
    let mut scope = Scope::spent(&azores("2026-10-25T00:30:00Z"), 7);
    scope.post(&azores("2026-10-25T01:30:00Z"), 7);
    assert_eq!(scope.counters(&azores("2026-10-26T00:59:59Z")), [14; 3]);
    assert_eq!(scope.counters(&azores("2026-10-26T01:00:00Z")), [0, 0, 14]);
}

#[test]
fn two_nodes_that_roll_a_slot_at_once_write_one_label_and_lose_nothing() {
    let (old, new) = (windows("2026-09-30T23:59:59Z"), windows("2026-10-01T00:00:00Z"));
    let before = Scope::spent(&old, 99);
    let write = |record: Option<&BudgetRecord>, tokens| post_charge(record, &new, tokens).0.unwrap();
    // Both judge on the old record; one loses the compare-and-set and judges again on what the other wrote.
    let (first, lost) = (write(before.0.as_ref(), 3), write(before.0.as_ref(), 4));
    let labels = |record: &BudgetRecord| Period::ALL.map(|period| record.slots[period].label);
    assert_eq!(labels(&first), labels(&lost));
    let scope = Scope(Some(write(Some(&first), 4)));
    assert_eq!(scope.counters(&new), [7, 106, 7]);
}

#[test]
fn a_months_spend_is_there_at_its_end() {
    // March has an hour less on this clock, and October an hour more.
    for (start, end, next) in [
        ("2026-02-28T23:00:00Z", "2026-03-31T21:59:59Z", "2026-03-31T22:00:00Z"),
        ("2026-09-30T22:00:00Z", "2026-10-31T22:59:59Z", "2026-10-31T23:00:00Z"),
    ] {
        let scope = Scope::spent(&windows_in("Europe/Berlin", start), 11);
        assert_eq!(scope.counters(&windows_in("Europe/Berlin", end))[2], 11);
        assert_eq!(scope.counters(&windows_in("Europe/Berlin", next))[2], 0);
    }
}

#[test]
fn a_ceiling_is_at_least_one_token_and_an_absent_one_is_none() {
    for (listed, rule) in [
        (&[("day", 0)][..], "at least 1 token"),
        (&[("week", 5), ("month", 0)], "at least 1 token"),
        (&[("day", 1), ("day", 2)], "has a ceiling already"),
        (&[("quarter", 1)], "a period is day, week or month"),
        (&[("", 1)], "a period is day, week or month"),
    ] {
        let error = Ceilings::parse(listed.iter().copied()).unwrap_err();
        assert!(error.rule.contains(rule), "{error}");
    }
    assert_eq!(
        Ceilings::parse([("day", 0)]).unwrap_err().to_string(),
        "invalid ceiling \"day: 0\": at least 1 token; leave the period out to have no ceiling"
    );
    let windows = windows(NOON);
    let mut scope = Scope::default();
    assert_eq!(scope.charge(&windows, &Ceilings::default(), u64::MAX, NOON).verdict, Verdict::Admitted);
    assert_eq!(scope.counters(&windows), [u64::MAX; 3], "uncapped and counted");
    let mut scope = Scope::default();
    assert_eq!(scope.charge(&windows, &caps(&[("month", 1)]), 1, NOON).verdict, Verdict::Admitted);
    assert_eq!(refusal(scope.charge(&windows, &caps(&[("month", 1)]), 1, NOON)).used, 2);
}

#[test]
fn no_tokens_write_nothing() {
    let windows = windows(NOON);
    let cap = caps(&[("day", 10)]);
    for record in [None, Scope::spent(&windows, 10).0] {
        let (write, charged) = charge(record.as_ref(), &windows, &cap, 0, instant(NOON));
        assert_eq!((write, charged.verdict), (None, Verdict::Admitted));
        assert_eq!(charged.usage, used(record.as_ref(), &windows));
        assert_eq!(post_charge(record.as_ref(), &windows, 0), (None, charged.usage));
    }
    let nothing = Charge::Post { tokens: 0, windows: &windows };
    assert_eq!(charge_all(None, &[nothing; 3]).0, None);
    assert_eq!(charge_all(None, &[]), (None, Vec::new()));
}

#[test]
fn counters_are_exact_beyond_what_a_double_holds_and_stop_at_the_largest() {
    let windows = windows(NOON);
    let mut scope = Scope::spent(&windows, 1 << 53);
    scope.post(&windows, 1);
    assert_eq!(scope.counters(&windows), [(1 << 53) + 1; 3]);
    scope.post(&windows, u64::MAX - (1 << 53) - 2);
    assert_eq!(scope.counters(&windows), [u64::MAX - 1; 3]);

    let cap = caps(&[("day", u64::MAX)]);
    assert_eq!(scope.charge(&windows, &cap, 1, NOON).verdict, Verdict::Admitted, "there is room for one");
    assert_eq!(refusal(scope.charge(&windows, &cap, 1, NOON)).used, u64::MAX);
    assert_eq!(refusal(scope.charge(&windows, &cap, u64::MAX, NOON)).used, u64::MAX);
    scope.post(&windows, u64::MAX);
    assert_eq!(scope.counters(&windows), [u64::MAX; 3], "and it does not start again");
    assert!(refuse(scope.0.as_ref(), &windows, &cap, instant(NOON)).1.is_some());
}

#[test]
fn a_call_is_turned_away_only_where_no_token_has_room() {
    let windows = windows(NOON);
    let cap = caps(&[("day", 100), ("week", 200), ("month", 100)]);
    let now = instant(NOON);
    for spent in [0, 1, 99] {
        assert_eq!(refuse(Scope::spent(&windows, spent).0.as_ref(), &windows, &cap, now), (None, None));
    }
    assert_eq!(refuse(None, &windows, &cap, now), (None, None));
    assert_eq!(refuse(Scope::spent(&windows, 100).0.as_ref(), &windows, &caps(&[]), now), (None, None));

    let scope = Scope::spent(&windows, 100);
    let (write, Some(refusal)) = refuse(scope.0.as_ref(), &windows, &cap, now) else { panic!("there is room") };
    assert_eq!((refusal.window, refusal.used, refusal.limit.get()), (windows[Period::Month], 100, 100));
    let stamped = Scope(write);
    assert_eq!(stamped.stamps(), [Some(now), None, Some(now)], "every window without room, and no other");
    assert_eq!(stamped.counters(&windows), [100; 3], "nothing is counted");

    for (again, writes) in [(NOON, false), ("2026-09-23T11:59:59Z", false), (LATER, true)] {
        let (write, same) = refuse(stamped.0.as_ref(), &windows, &cap, instant(again));
        assert_eq!((same, write.is_some()), (Some(refusal), writes), "{again}");
    }
    // The windows that have turned over have room again; the one that has not is stamped, and the others are left alone.
    let at = "2026-09-24T12:00:00Z";
    let next_day = Windows::at(instant(at), windows.zone()).unwrap();
    let (write, Some(refusal)) = refuse(stamped.0.as_ref(), &next_day, &cap, instant(at)) else {
        panic!("the month is full")
    };
    assert_eq!(refusal.window.label.to_string(), "2026-09");
    let write = Scope(write);
    assert_eq!((write.stamps(), &write.labels()[0][..]), ([Some(now), None, Some(instant(at))], "2026-09-23"));
    let october = Windows::at(instant("2026-10-01T12:00:00Z"), windows.zone()).unwrap();
    assert_eq!(refuse(stamped.0.as_ref(), &october, &caps(&[("day", 100), ("month", 100)]), instant(at)), (None, None));
}

#[test]
fn whoever_asks_and_never_charges_leaves_no_spend() {
    let windows = windows(NOON);
    let mut scope = Scope::spent(&windows, 40);
    let cap = caps(&[("day", 50)]);
    for _ in 0..1_000 {
        assert_eq!(refuse(scope.0.as_ref(), &windows, &cap, instant(NOON)), (None, None));
        assert_eq!(used(scope.0.as_ref(), &windows).day.spent, 40);
    }
    assert_eq!(scope.charge(&windows, &cap, 10, NOON).verdict, Verdict::Admitted);
}

#[test]
fn a_charge_keeps_the_marks_of_earlier_writes() {
    let windows = windows(NOON);
    let mut scope = Scope::spent(&windows, 1);
    scope.0.as_mut().unwrap().sign("w", 1, 0, instant(NOON));
    let marks = scope.0.as_ref().unwrap().writes.clone();
    scope.charge(&windows, &caps(&[("day", 1)]), 1, NOON);
    let (write, _) = refuse(scope.0.as_ref(), &windows, &caps(&[("day", 1)]), instant(LATER));
    assert_eq!(write.unwrap().writes, marks);
}

/// Asked within a few days around a boundary of all three periods, on clocks hours apart.
fn any_windows() -> impl Strategy<Value = (Windows, Timestamp)> {
    const ZONES: [&str; 4] = ["UTC", "Pacific/Kiritimati", "America/Los_Angeles", "Australia/Lord_Howe"];
    (prop::sample::select(&ZONES[..]), -200_000..200_000_i64).prop_map(|(name, second)| {
        let now = instant("2026-06-01T00:00:00Z") + SignedDuration::from_secs(second);
        (Windows::at(now, &zone(name)).unwrap(), now)
    })
}

fn any_ceilings() -> impl Strategy<Value = Ceilings> {
    let limit = || prop::option::of(prop_oneof![1..400_u64, Just(u64::MAX)]);
    (limit(), limit(), limit()).prop_map(|(day, week, month)| {
        let listed = [("day", day), ("week", week), ("month", month)];
        Ceilings::parse(listed.into_iter().filter_map(|(name, limit)| Some((name, limit?)))).unwrap()
    })
}

type Given = ((Windows, Timestamp), Ceilings, u64, bool);

fn any_charges() -> impl Strategy<Value = Vec<Given>> {
    let tokens = prop_oneof![20 => 0..60_u64, 1 => Just(u64::MAX)];
    prop::collection::vec((any_windows(), any_ceilings(), tokens, any::<bool>()), 0..12)
}

fn as_charge(((windows, now), ceilings, tokens, judged): &Given) -> Charge<'_> {
    match judged {
        true => Charge::Judged { tokens: *tokens, windows, ceilings, now: *now },
        false => Charge::Post { tokens: *tokens, windows },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn charges_in_one_write_are_judged_as_one_after_another(earlier in any_charges(), given in any_charges()) {
        let earlier: Vec<Charge<'_>> = earlier.iter().map(as_charge).collect();
        let record = charge_all(None, &earlier).0;
        let together: Vec<Charge<'_>> = given.iter().map(as_charge).collect();
        let (write, answers) = charge_all(record.as_ref(), &together);

        let (mut alone, mut one_by_one, mut wrote) = (record, Vec::new(), false);
        for ((windows, now), ceilings, tokens, judged) in &given {
            let written = if *judged {
                let (written, charged) = charge(alone.as_ref(), windows, ceilings, *tokens, *now);
                one_by_one.push(charged);
                written
            } else {
                let (written, usage) = post_charge(alone.as_ref(), windows, *tokens);
                one_by_one.push(Charged { verdict: Verdict::Unjudged, usage });
                written
            };
            wrote |= written.is_some();
            alone = written.or(alone);
        }
        prop_assert_eq!(answers, one_by_one);
        prop_assert_eq!(write, alone.filter(|_| wrote));
    }

    #[test]
    fn spend_is_the_sum_in_every_order_and_refused_or_not(
        (windows, now) in any_windows(),
        ceilings in any_ceilings(),
        amounts in prop::collection::vec(0..1_000_000_u64, 0..30),
        order in any::<prop::sample::Index>(),
    ) {
        let sum: u64 = amounts.iter().sum();
        let mut turned = amounts.clone();
        turned.rotate_left(if amounts.is_empty() { 0 } else { order.index(amounts.len()) });
        let reversed: Vec<u64> = amounts.iter().rev().copied().collect();
        for amounts in [&amounts, &turned, &reversed] {
            let charges: Vec<_> = amounts
                .iter()
                .map(|tokens| Charge::Judged { tokens: *tokens, windows: &windows, ceilings: &ceilings, now })
                .collect();
            let record = charge_all(None, &charges).0;
            let usage = used(record.as_ref(), &windows);
            for period in Period::ALL {
                prop_assert_eq!(usage[period].spent, sum);
            }
        }
    }

    #[test]
    fn no_slot_goes_back_and_every_charge_is_in_it(given in any_charges()) {
        let mut record: Option<BudgetRecord> = None;
        for given in &given {
            let ((windows, _), ceilings, tokens, judged) = given;
            let before = used(record.as_ref(), windows);
            let (write, answers) = charge_all(record.as_ref(), &[as_charge(given)]);
            for period in Period::ALL {
                let after = answers[0].usage[period];
                prop_assert_eq!(after.spent, before[period].spent.saturating_add(*tokens));
                prop_assert_eq!(after.window, before[period].window);
                prop_assert!(after.window.label >= windows[period].label);
                if let (Some(old), Some(new)) = (&record, &write) {
                    prop_assert!(new.slots[period].label >= old.slots[period].label);
                }
            }
            let fits = |period: Period| {
                ceilings.of(period).is_none_or(|limit| {
                    u128::from(before[period].spent) + u128::from(*tokens) <= u128::from(limit.get())
                })
            };
            match answers[0].verdict {
                Verdict::Admitted => prop_assert!(*judged && (*tokens == 0 || Period::ALL.into_iter().all(fits))),
                Verdict::Refused(refusal) => {
                    let full = Period::ALL.into_iter().filter(|period| !fits(*period));
                    let ends_last = full.max_by_key(|period| (before[*period].window.end, *period));
                    prop_assert_eq!(Some(refusal.window), ends_last.map(|period| before[period].window));
                }
                Verdict::Unjudged => prop_assert!(!judged),
            }
            record = write.or(record);
        }
    }
}
