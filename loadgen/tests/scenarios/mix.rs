//! `loadgen mix` from the outside: a small fleet does everything once on three brokers, and how it ends.

use serde_json::json;

use crate::support::{Running, interrupted, no_anomaly, valid};

fn start(args: &str) -> Running {
    Running::scenario("mix", args)
}

#[test]
fn a_small_fleet_does_everything_and_no_answer_is_wrong() {
    let ended = start("--seats 30 --turns 1/10s --duration 12s --brokers 3 --output json --seed 7").end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    assert_eq!((&report["params"]["nodes"], &report["params"]["seats_held_at_end"]), (&json!(3), &json!(30)));
    assert_eq!(report["params"]["streams"]["turn"], json!("30/10s"));
    for phase in ["bring_up", "founding", "warm_up", "mix", "drain"] {
        assert!(report["phases"].as_array().unwrap().iter().any(|told| told["name"] == phase), "{phase}");
    }
    // What comes due seldom or by chance may have its time before the measurement or after.
    for op in ["claims/claim", "rate/allow", "ledger/worked", "budgets/charge", "ledger/record", "config/target"] {
        assert!(report["ops"][op]["ok"].as_u64().unwrap() > 0, "{op}");
    }
    assert_eq!(report["warmup"]["mailboxes/create"]["ok"].as_u64().unwrap().min(30), 30);
    let stderr = ended.own_stderr();
    for part in ["ERROR", "async_nats", "panicked"] {
        assert!(!stderr.contains(part), "{part} in\n{stderr}");
    }
}

#[tokio::test]
async fn a_signal_ends_it_in_order_with_a_report_of_what_was() {
    interrupted(start("--seats 30 --brokers 1 --duration 1h"), "  mix  ").await;
}
