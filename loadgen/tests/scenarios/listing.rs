//! `loadgen listing` from the outside: what it counts on a real broker, and how it ends.

use serde_json::{Value, json};

use crate::support::{Running, interrupted, no_anomaly, valid};

fn start(args: &str) -> Running {
    Running::scenario("listing", args)
}

#[test]
fn a_pass_alone_is_short_on_a_broker_and_the_others_are_not() {
    let ended = start("--keys 5 --count 300 --brokers 1 --output json --seed 7").end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap(), report);
    let (ops, listings) = (&report["ops"], &report["params"]["listings"]);
    for way in ["leader", "quorum", "naive"] {
        let (op, came_to) = (&ops[format!("listing/{way}")], &listings[way]);
        assert_eq!(op["ok"], came_to["answered"], "{way}");
        let [answered, unknown] = ["answered", "unknown"].map(|count| came_to[count].as_u64().unwrap());
        // Without its barrier, a listing is not begun.
        let not_begun = if way == "quorum" { ops["barrier"]["unknown"].as_u64().unwrap() } else { 0 };
        // A machine that is slow at the wrong moment costs one its deadline.
        assert!(answered + unknown + not_begun == 300 && answered >= 294, "{way}: {came_to}, {not_begun} not begun");
        assert!(op["latency"]["corrected"]["p99_ns"].is_number(), "{way}");
    }
    for way in ["leader", "quorum"] {
        assert_eq!((&listings[way]["short"], &listings[way]["double"]), (&json!(0), &json!(0)), "{way}");
    }
    assert_eq!(listings["quorum"]["old"], json!(0));
    assert!(listings["naive"]["short"].as_u64().unwrap() > 0, "{listings}");
    let reads = listings["leader"]["leader_reads_per_listing"].as_f64().unwrap();
    // The few that are unknown may have asked for less. One request more of each is not lost in that.
    for (way, want, why) in [
        ("naive", 2.0, "a consumer is made and removed"),
        ("quorum", 2.0, "a copy and an index"),
        ("leader", 3.0 + reads, "an index beside it, and reads"),
    ] {
        let took = ops[format!("listing/{way}")]["requests_per_op"].as_f64().unwrap();
        assert!((took - want).abs() < 0.1, "{way}: {why}: {took}, not {want}");
    }
    let (barriers, proved) = (ops["barrier"]["ok"].as_u64(), listings["quorum"]["answered"].as_u64());
    assert!(barriers >= proved && barriers <= Some(300), "one for each: {barriers:?}, {proved:?}");
    assert_eq!(report["warmup"]["create"]["ok"], json!(8), "five keys and three that come and go");
    assert!(ops["remove"]["ok"].as_u64().unwrap() > 0, "{}", ops["remove"]);
    assert_eq!(report["params"]["keys"], json!(5));
    let stderr = ended.own_stderr();
    for part in ["WARN", "ERROR", "async_nats", "panicked"] {
        assert!(!stderr.contains(part), "{part} in\n{stderr}");
    }
}

#[test]
fn three_brokers_are_listed_at_a_rate_and_told_of_in_lines() {
    let args = "--keys 50 --churned 10 --churn 200/s --duration 3s --strategy quorum,leader --brokers 3";
    let ended = start(args).end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    let written: u64 =
        ["write", "remove", "create"].map(|op| report["ops"][op]["scheduled"].as_u64().unwrap()).iter().sum();
    assert_eq!(written, 600);
    assert_eq!(report["ops"]["listing/naive"]["scheduled"], json!(0));
    for line in ["leader: of ", "quorum: of "] {
        assert!(ended.stdout.contains(&format!("\n{line}")), "{line} in\n{}", ended.stdout);
    }
    assert!(!ended.stdout.contains("\nnaive: "), "{}", ended.stdout);
}

#[tokio::test]
async fn a_signal_ends_it_in_order_with_a_report_of_what_was() {
    let report = interrupted(start("--brokers 1 --count 100000000"), "leader 1").await;
    assert!(report["params"]["listings"]["leader"]["answered"].as_u64().unwrap() > 0);
}

#[test]
fn more_keys_than_a_listing_may_have_are_refused() {
    let ended = start("--keys 100001").end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("'100001'") && ended.stderr.contains("from 1 to 100000"), "{}", ended.stderr);
}
