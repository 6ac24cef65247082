//! `loadgen peers` from the outside: every peer that is there has its turn at everything, and the layer is right.

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
    assert_eq!(turns.len(), if with_etcd { 40 } else { 20 });
    for (turn, came_to) in turns {
        assert_eq!(came_to["rounds"], json!(1), "{turn}");
        assert!(came_to["ok"].as_u64().unwrap() > 0, "{turn}: {came_to}");
        if turn.ends_with("/layer") {
            assert_eq!(came_to["wrong"], json!(0), "{turn}: {came_to}");
        }
    }
    assert_eq!(turns["claim/layer"]["ok"], json!(200));
    until_gone(&servers).await;
}
