//! `loadgen floor` from the outside: that every request is answered on real brokers, that charges add up, and what another
//! scenario says of it.

use serde_json::json;

use crate::support::{Running, no_anomaly, valid};

/// A ratio for each of these operations, in the report and in a line of its own.
#[track_caller]
fn held_against(scenario: &str, args: &str, request: &str, ops: &[&str]) {
    let ended = Running::scenario(scenario, &format!("{args} --brokers 1 --floor")).end();
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stderr, ended.stdout);
    let report = ended.report();
    valid(&report);
    for op in ops {
        let floor = &report["params"]["floor"][op];
        assert_eq!(floor["request"], json!(request), "{op}");
        assert!(floor["p50_ns"].as_u64().unwrap() > 0, "{op}: {floor}");
        assert!(ended.stdout.contains(&format!("\n{op}: ratio to floor ")), "{}", ended.stdout);
    }
}

/// Every cell that was asked for had answers and nothing else, and a line of its own.
#[track_caller]
fn measured(brokers: u8, args: &str) {
    let ended = Running::scenario("floor", &format!("{args} --keys 50 --brokers {brokers} --seed 7")).end();
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stderr, ended.stdout);
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    let cells = report["params"]["cells"].as_object().unwrap();
    assert!(!cells.is_empty());
    for (name, cell) in cells {
        let op = &report["ops"][name];
        assert!(op["ok"].as_u64().unwrap() > 0, "{name}: {op}");
        assert_eq!(
            (&op["unknown"], &op["errors"], &op["in_flight"]),
            (&json!(0), &json!(0), &json!(0)),
            "{name}: {op}"
        );
        assert!(ended.stdout.contains(&format!("\n{name}: ")), "{name} in\n{}", ended.stdout);
        let charges = &cell["charges"];
        if !charges.is_null() {
            assert_eq!((&charges["miscounted"], &charges["partial"]), (&json!(0), &json!(0)), "{name}: {charges}");
        }
    }
    let stderr = ended.own_stderr();
    for part in ["WARN", "ERROR", "panicked"] {
        assert!(!stderr.contains(part), "{part} in\n{stderr}");
    }
}

#[test]
fn every_request_is_answered_on_one_broker() {
    measured(1, "--duration 20s");
}

#[test]
fn charges_add_up_in_every_way_on_three_brokers() {
    measured(3, "--request two_writes,batch,counters,pass --duration 12s");
}

#[test]
fn another_scenario_is_held_against_it() {
    let listings = "--keys 5 --churned 0 --count 20 --strategy naive,leader";
    held_against("listing", listings, "pass", &["listing/naive", "listing/leader"]);
    let charges = ["charge/combined", "charge/uncombined"];
    held_against("budgets", "--chargers 8 --nodes 2 --rounds 40", "two_writes", &charges);
}

#[test]
fn where_there_is_none_it_is_refused_before_anything_is_started() {
    for (scenario, args, why) in [
        ("floor", "", "none of its operations"),
        ("budgets", "--chargers 8,16", "a single number of --chargers"),
        ("budgets", "--chargers 33", "up to 32"),
    ] {
        let ended = Running::scenario(scenario, &format!("{args} --floor")).end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
        assert!(
            ended.stderr.contains(&format!("--floor: {scenario}: ")) && ended.stderr.contains(why),
            "{}",
            ended.stderr
        );
        assert!(!ended.stderr.contains("broker_"), "{}", ended.stderr);
    }
}
