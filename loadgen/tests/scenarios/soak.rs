//! `loadgen soak` from the outside: that it looks at everything, finds what is lost on purpose, and that too little of it does
//! not pass.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Running, no_anomaly, send, valid};

fn finding<'a>(report: &'a Value, series: &str) -> &'a Value {
    let trends = report["trends"].as_array().unwrap();
    &trends.iter().find(|trend| trend["series"] == json!(series)).unwrap_or_else(|| panic!("{trends:?}"))["finding"]
}

#[test]
fn a_soak_looks_at_everything_and_one_that_is_too_short_does_not_pass() {
    let args = "--seats 30 --nodes 3 --heartbeat 1s --warmup 1s --brokers 3";
    let ended = Running::scenario("soak", &format!("{args} --duration 20s")).end();
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    let trends = report["trends"].as_array().unwrap();
    assert_eq!(trends.len(), 4 + 3 * 6);
    assert!(trends.iter().all(|trend| trend["finding"] == json!("unmeasured")), "{trends:?}");
    assert!(trends.iter().all(|trend| trend["points"].as_u64() >= Some(2)), "{trends:?}");
    assert!(ended.stdout.contains("n3 stream messages: UNMEASURED: "), "{}", ended.stdout);
    for server in report["servers"].as_array().unwrap() {
        assert!(server["raft_lag_max"].is_u64() && !server["raft_lag"].as_array().unwrap().is_empty(), "{server}");
    }
}

#[test]
fn a_leak_is_found_and_named() {
    let args = "--seats 200 --nodes 4 --heartbeat 1s --warmup 4s --brokers 1 --duration 60s";
    let ended =
        Running::scenario("soak", &format!("{args} --leak memory,file,task,subscription,consumer,message")).end();
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    for series in [
        "generator memory",
        "generator open files",
        "generator tasks",
        "n1 subscriptions",
        "n1 consumers",
        "n1 stream messages",
    ] {
        assert_eq!(finding(&report, series), &json!("rising"), "{series}: {}", ended.stdout);
        assert!(ended.stdout.contains(&format!("\n{series}: RISING: ")), "{}", ended.stdout);
    }
}

#[test]
fn a_broker_that_ends_late_fails_it() {
    let args = "--seats 30 --nodes 3 --heartbeat 1s --warmup 1s --brokers 3 --duration 20s";
    let mut running = Running::scenario("soak", args);
    running.until(" contest ");
    running.until(" contest ");
    send(running.servers()[2], Signal::KILL);
    let ended = running.end();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let report = ended.report();
    valid(&report);
    assert_eq!(report["verdict"], json!("failed"));
    assert!(report["anomalies"]["ops_unsettled"].as_u64() >= Some(1), "{}", report["anomalies"]);
    assert!(ended.stderr.contains("copies_differ") && ended.stderr.contains("ended=1"), "{}", ended.stderr);
    let of_leases = |line: &&str| line.starts_with("copies differ: ") && line.contains("_leases: ");
    let leases = ended.stdout.lines().find(of_leases);
    assert!(leases.is_some_and(|line| line.ends_with("; 3 copies expected")), "{}", ended.stdout);
}

#[test]
fn a_small_fleet_leaks_no_file_task_consumer_subscription_or_message() {
    let args = "--seats 60 --nodes 4 --heartbeat 1s --warmup 5s --brokers 1";
    let ended = Running::scenario("soak", &format!("{args} --duration 40s")).end();
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    let settled = report["params"]["claims_settled"].as_u64().unwrap();
    assert!(settled > 40 * 8 && settled <= 45 * 8, "claims go on from the warm-up to the end: {settled}");
    for series in [
        "generator open files",
        "generator tasks",
        "n1 open files",
        "n1 consumers",
        "n1 subscriptions",
        "n1 stream messages",
        "n1 messages behind in a copy",
    ] {
        assert!([&json!("flat"), &json!("undecided")].contains(&finding(&report, series)), "{}", ended.stdout);
    }
}
