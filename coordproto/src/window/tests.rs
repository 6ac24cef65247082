use std::collections::BTreeSet;
use std::sync::LazyLock;

use jiff::SignedDuration;
use jiff::civil::date;
use proptest::prelude::*;

use super::*;

/// Every zone that a setting may name.
static ZONES: LazyLock<Vec<Zone>> = LazyLock::new(|| {
    TimeZoneDatabase::bundled().available().filter_map(|name| Zone::parse("timezone", name.as_str()).ok()).collect()
});

fn zone(name: &str) -> Zone {
    Zone::parse("timezone", name).unwrap()
}

fn instant(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn windows(at: &str, name: &str) -> Windows {
    Windows::at(instant(at), &zone(name)).unwrap()
}

#[test]
fn windows_are_those_worked_out_elsewhere() {
    let (mut rows, mut zones) = (0, BTreeSet::new());
    for row in include_str!("instants.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut fields = row.split(" | ").map(|group| group.split(' ').collect::<Vec<_>>());
        let asked = fields.next().unwrap();
        let windows = windows(asked[1], asked[0]);
        for (period, want) in Period::ALL.into_iter().zip(fields) {
            let Window { label, start, end } = windows[period];
            assert_eq!([label.to_string(), start.to_string(), end.to_string()], *want, "{row}");
        }
        rows += 1;
        zones.insert(asked[0]);
    }
    assert!(rows >= 40 && zones.len() >= 8, "{rows} instants in {} zones", zones.len());
}

#[test]
fn a_week_bears_its_iso_year_and_a_day_and_a_month_the_calendars() {
    for (day, week) in [
        ("2026-12-27", "2026-W52"),
        ("2026-12-28", "2026-W53"),
        ("2026-12-31", "2026-W53"),
        ("2027-01-01", "2026-W53"),
        ("2027-01-03", "2026-W53"),
        ("2027-01-04", "2027-W01"),
        ("2024-12-30", "2025-W01"),
        ("2025-12-29", "2026-W01"),
        ("2023-01-01", "2022-W52"),
        ("2021-01-03", "2020-W53"),
        ("2010-01-03", "2009-W53"),
        ("2026-09-23", "2026-W39"),
    ] {
        let windows = windows(&format!("{day}T12:00:00Z"), "UTC");
        let labels = Period::ALL.map(|period| windows[period].label.to_string());
        assert_eq!(labels, [day, week, &day[..7]]);
    }
}

#[test]
fn one_instant_lies_in_different_days_on_different_clocks() {
    for (name, day, month) in [
        ("UTC", "2026-12-31", "2026-12"),
        ("Asia/Kolkata", "2027-01-01", "2027-01"),
        ("Pacific/Kiritimati", "2027-01-01", "2027-01"),
        ("America/Los_Angeles", "2026-12-31", "2026-12"),
    ] {
        let windows = windows("2026-12-31T23:30:00Z", name);
        let labels = Period::ALL.map(|period| windows[period].label.to_string());
        assert_eq!(labels, [day, "2026-W53", month], "{name}");
    }
}

#[test]
fn an_hour_that_happens_twice_is_in_one_day() {
    let azores = "Atlantic/Azores";
    let (first, second) = (windows("2026-10-25T00:30:00Z", azores), windows("2026-10-25T01:30:00Z", azores));
    assert_eq!(first, second);
    let day = first[Period::Day];
    assert_eq!(day.label.to_string(), "2026-10-25");
    assert_eq!(day.end.duration_since(day.start), SignedDuration::from_hours(25));
}

#[test]
fn a_day_does_not_come_back_when_the_clock_is_put_back_over_midnight() {
    // The clock of St. John's showed 00:00 of the 7th, and a minute later 23:01 of the 6th.
    let name = "America/St_Johns";
    let shown = |at: &str| zone(name).0.to_datetime(instant(at)).to_string();
    assert_eq!(shown("2010-11-07T02:30:00Z"), "2010-11-07T00:00:00");
    assert_eq!(shown("2010-11-07T02:31:00Z"), "2010-11-06T23:01:00");
    for at in ["2010-11-07T02:30:00Z", "2010-11-07T02:31:00Z", "2010-11-07T03:30:00Z"] {
        assert_eq!(windows(at, name)[Period::Day].label.to_string(), "2010-11-07", "{at}");
    }
}

#[test]
fn what_is_no_time_zone_is_refused_by_the_fields_name() {
    for (name, rule) in [
        ("", "empty"),
        ("Mars/Base", "not in the IANA"),
        ("UTC+5", "not in the IANA"),
        ("+05:00", "not in the IANA"),
        ("Z", "not in the IANA"),
        ("EST5EDT,M3.2.0,M11.1.0", "not in the IANA"),
        (" Europe/Berlin", "not in the IANA"),
        ("Europe/Berlin\0", "not in the IANA"),
        ("../Europe/Berlin", "not in the IANA"),
        ("posix/Europe/Berlin", "not in the IANA"),
        ("Local", "not in the IANA"),
        ("EST5EDT", "legacy"),
        ("EST", "legacy"),
        ("CET", "legacy"),
        ("GMT", "legacy"),
        ("GMT+0", "legacy"),
        ("Japan", "legacy"),
        ("Factory", "legacy"),
        ("Etc/GMT+5", "an offset"),
        ("Etc/GMT", "an offset"),
        ("Etc/Unknown", "an offset"),
        ("europe/berlin", "spells it Europe/Berlin"),
        ("utc", "spells it UTC"),
    ] {
        let error = Zone::parse("company.timezone", name).unwrap_err();
        assert!(error.what == "company.timezone" && *error.given == *name && error.rule.contains(rule), "{error}");
    }
    let error = Zone::parse("company.timezone", &"é/".repeat(1_000_000)).unwrap_err();
    assert!(error.given.len() < 300, "{error}");
}

#[test]
fn the_zones_to_choose_from_are_the_databases_areas_and_utc() {
    assert!(ZONES.len() > 450, "{}", ZONES.len());
    for zone in ZONES.iter() {
        let name = zone.name();
        assert!(matches!(name, "UTC" | "Etc/UTC") || name.contains('/') && !name.starts_with("Etc/"), "{name}");
    }
    for name in ["UTC", "Etc/UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Asia/Calcutta", "US/Pacific"] {
        assert_eq!(zone(name).name(), name);
    }
}

#[test]
fn no_zone_jumps_from_before_a_midnight_to_after_it() {
    // The start of a day rests on that: see `Zone::start_of`.
    let (from, to) = (instant("1970-01-01T00:00:00Z"), instant("2040-01-01T00:00:00Z"));
    for Zone(tz) in ZONES.iter() {
        for change in tz.following(from).take_while(|change| change.timestamp() < to) {
            let at = change.timestamp();
            let before = tz.to_offset(at - SignedDuration::from_nanos(1)).to_datetime(at);
            let after = change.offset().to_datetime(at);
            let midnight = before.date().tomorrow().unwrap().to_datetime(Time::midnight());
            assert!(after <= midnight || before.time() == Time::midnight(), "{tz:?} {before} {after}");
        }
    }
}

#[test]
fn a_month_is_shorter_than_a_budget_record_is_kept() {
    let longest = ZONES
        .iter()
        .flat_map(|zone| (2024..2038).flat_map(move |year| (1..=12).map(move |month| (zone, date(year, month, 1)))))
        .map(|(zone, first)| {
            let window = zone.window(Label::of(Period::Month, first).unwrap());
            window.end.duration_since(window.start)
        })
        .max()
        .unwrap();
    assert!(longest > SignedDuration::from_hours(31 * 24), "{longest:?}");
    assert!(longest < SignedDuration::from_hours(32 * 24), "{longest:?}");
}

#[test]
fn a_label_has_one_text() {
    for text in ["2026-09-23", "2026-W39", "2026-09", "1970-01-01", "1970-W01", "9998-12-31", "9998-12", "2026-W53"] {
        let label: Label = text.parse().unwrap();
        assert_eq!(label.to_string(), text);
    }
    for text in [
        "",
        "2026",
        "2026-9-23",
        "2026-02-29",
        "2026-13",
        "2026-00",
        "2026-W00",
        "2025-W53",
        "2026-W54",
        "2026-w39",
        "2026W39",
        "2026-W+3",
        "+026-09",
        "2026/09/23",
        "2026-09-23 ",
        " 2026-09",
        "2026-+9",
        "1969-12-31",
        "1969-W52",
        "9999-01",
        "9999-01-01",
        "12026-09-23",
        "2026-09-éé",
        "2026-é9",
        "２026-09",
        "2026-09-23T00:00:00Z",
    ] {
        let error = text.parse::<Label>().unwrap_err();
        assert!(error.what == "window label" && *error.given == *text, "{error}");
    }
}

#[test]
fn a_period_is_one_of_three() {
    for period in Period::ALL {
        assert_eq!(period.to_string().parse(), Ok(period));
    }
    for name in ["", "Day", "days", "hour", "year", "DAY", "quarter"] {
        assert_eq!(name.parse::<Period>().unwrap_err().rule, "a period is day, week or month".into());
    }
}

#[test]
fn an_instant_that_no_label_can_name_is_a_bad_argument() {
    for (at, name) in [
        ("1970-01-01T00:00:00Z", "UTC"),
        ("1969-12-31T18:30:00Z", "Asia/Kolkata"),
        ("9998-12-31T23:59:59Z", "UTC"),
        ("9999-01-01T00:00:00Z", "America/Los_Angeles"),
    ] {
        assert!(Windows::at(instant(at), &zone(name)).is_ok(), "{at} {name}");
    }
    for (at, name) in [
        ("1969-12-31T23:59:59Z", "UTC"),
        ("1970-01-01T00:00:00Z", "America/Los_Angeles"),
        ("9999-01-01T00:00:00Z", "UTC"),
        ("9998-12-31T23:59:59Z", "Asia/Kolkata"),
    ] {
        let error = Windows::at(instant(at), &zone(name)).unwrap_err();
        assert!(error.what == "instant" && error.rule.contains("1970 to 9998"), "{error}");
    }
    for zone in ZONES.iter() {
        for at in [Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH - SignedDuration::from_hours(24)] {
            assert!(Windows::at(at, zone).is_err(), "{zone:?} {at}");
        }
    }
}

prop_compose! {
    fn any_label()(period in 0..3_usize, day in 0..2_932_532_i64) -> Label {
        let first = date(YEAR_MIN, 1, 1);
        Label::of(Period::ALL[period], first.saturating_add(day.days())).unwrap_or_else(|| {
            Label::of(Period::ALL[period], first).unwrap()
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_order_of_labels_is_that_of_their_texts_and_of_their_days(a in any_label(), b in any_label()) {
        prop_assert_eq!(a.to_string().parse(), Ok(a));
        prop_assert_eq!(serde_json::from_str::<Label>(&serde_json::to_string(&a).unwrap()).unwrap(), a);
        let next = Label::of(a.period(), a.after());
        prop_assert!(next.is_none_or(|next| a < next && next.first() == a.after()));
        if a.period() == b.period() {
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
            prop_assert_eq!(a.cmp(&b), a.first().cmp(&b.first()));
        }
    }

    #[test]
    fn windows_follow_each_other_and_never_come_back(
        nth in any::<prop::sample::Index>(),
        second in 0..253_370_000_000_i64,
        near in 0..2_208_988_800_i64,
        later in 0..200_000_i64,
    ) {
        let zone = nth.get(&ZONES);
        let after = |at: Timestamp, by| Windows::at(at + SignedDuration::from_secs(by), zone);
        let nano = SignedDuration::from_nanos(1);
        for second in [second, near] {
            // The first days and the last ones are not labelled on every clock.
            let at = Timestamp::from_second(second + 2 * 86_400).unwrap();
            let windows = Windows::at(at, zone).unwrap();
            for period in Period::ALL {
                let window = windows[period];
                prop_assert!(window.start <= at && at < window.end);
                prop_assert_eq!(zone.window(window.label), window);
                prop_assert_eq!(window.label.period(), period);
                for inside in [window.start, window.end - nano] {
                    if let Ok(windows) = Windows::at(inside, zone) {
                        prop_assert_eq!(windows[period], window);
                    }
                }
                if let Ok(next) = Windows::at(window.end, zone) {
                    prop_assert!(next[period].label > window.label);
                    prop_assert_eq!(next[period].start, window.end);
                }
                if let Ok(next) = after(at, later) {
                    prop_assert!(next[period].label >= window.label);
                }
            }
        }
    }
}
