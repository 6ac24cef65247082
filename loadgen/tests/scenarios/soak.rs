//! `loadgen soak` from the outside: that it looks at everything, and that too little of it does not pass.

use serde_json::{Value, json};

use crate::support::{Running, no_anomaly, valid};

fn finding<'a>(report: &'a Value, series: &str) -> &'a Value {
    let trends = report["trends"].as_array().unwrap();
    &trends.iter().find(|trend| trend["series"] == json!(series)).unwrap_or_else(|| panic!("{trends:?}"))["finding"]
}

#[test]
fn a_soak_looks_at_everything_and_one_that_is_too_short_does_not_pass() {
    let args = "--seats 30 --nodes 3 --heartbeat 1s --warmup 1s --brokers 3";
    let ended = Running::scenario("soak", &format!("{args} --duration 6s")).end();
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    let trends = report["trends"].as_array().unwrap();
    assert_eq!(trends.len(), 4 + 3 * 6);
    assert!(trends.iter().all(|trend| trend["finding"] == json!("unmeasured")), "{trends:?}");
    assert!(trends.iter().all(|trend| trend["points"].as_u64() >= Some(2)), "{trends:?}");
    assert!(ended.stdout.contains("n3 stream messages: UNMEASURED: "), "{}", ended.stdout);
}

#[test]
fn a_small_fleet_leaks_no_file_task_consumer_subscription_or_message() {
    let args = "--seats 60 --nodes 4 --heartbeat 1s --warmup 5s --brokers 1";
    let ended = Running::scenario("soak", &format!("{args} --duration 40s")).end();
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    assert_eq!(report["params"]["claims_settled"], json!(45 * 8), "claims go on from the warm-up to the end");
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
