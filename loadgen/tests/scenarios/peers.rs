//! `loadgen peers` from the outside: every peer that is there has its turn at everything, so has the floor,
//! and the layer is right.

use serde_json::json;

use crate::support::{Running, no_anomaly, until_gone, valid};

#[tokio::test]
async fn every_peer_has_its_turn_and_nothing_is_left_behind() {
    let args = "--seats 200 --nodes 4 --claimers 8 --rounds 1 --heartbeat 1s --duration 8s --brokers 3";
    let mut running = Running::scenario("peers", args);
    running.until("peers_connected");
    let servers = running.servers();
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stderr, ended.stdout);
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    let with_etcd = !ended.stdout.contains("etcd was left out");
    assert_eq!(servers.len(), if with_etcd { 6 } else { 3 });
    let turns = report["params"]["turns"].as_object().unwrap();
    // Twelve works that each peer does, one that some do in another way too, the floor's five, the layer's three.
    assert_eq!(turns.len(), if with_etcd { 4 * 12 + 2 + 5 + 3 } else { 2 * 12 + 1 + 5 + 3 });
    for (turn, came_to) in turns {
        assert_eq!(came_to["rounds"], json!(1), "{turn}");
        let least = match turn.split_once('/').unwrap().0 {
            "idle" => 0,
            work if work.starts_with("list_") => 3,
            _ => 1,
        };
        assert!(came_to["ok"].as_u64().unwrap() >= least, "{turn}: {came_to}");
        if turn.ends_with("/layer") {
            assert_eq!(came_to["wrong"], json!(0), "{turn}: {came_to}");
        }
    }
    assert_eq!((&turns["claim/layer"]["ok"], &turns["claim_read/layer"]["ok"]), (&json!(200), &json!(20)));
    assert_eq!(turns["claim/floor"]["ok"], json!(200));
    assert_eq!(turns["renew_burst/kv"]["ok"], json!(200));
    assert_eq!(turns["idle/layer"]["per_second"], json!(null));
    let ratios = &report["params"]["ratios"];
    for (work, of) in [("claim", "per_second"), ("renew_burst", "servers_cpu_percent"), ("list_all_proved", "p50_ns")] {
        assert_eq!(ratios[work]["of"], json!(of));
        assert!(ratios[work]["kv"]["of_medians"].as_f64().unwrap() > 0.0, "{work}: {ratios}");
    }
    assert!(ended.stdout.contains("claim: rate, layer against floor "), "{}", ended.stdout);
    assert!(report["ops"]["barrier/layer"]["ok"].as_u64().unwrap() >= 9, "three classes, three listings each");
    until_gone(&servers).await;
}
