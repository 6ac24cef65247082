//! `loadgen fleet` from the outside: what it prints and writes, how it ends, and that nothing of it stays.

use std::process::Command;
use std::time::Duration;

use coordproto::api::requests::Storage;
use engine::broker::{Cluster, Settings};
use engine::env::Env;
use engine::jetstream::{Jetstream, Options};
use engine::store::nats::Nats;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Ended, Running, no_anomaly, send, until_gone, valid};

/// A fleet that is up in a moment, with one line of progress a second while it lasts.
const SMALL: &str = "--seats 60 --nodes 6 --heartbeat 1s --warmup 1s --claims 60 --claimers 8 --brokers 1";

fn start(args: &str) -> Running {
    Running::scenario("fleet", args)
}

fn sum(report: &Value, count: &str) -> u64 {
    report["ops"].as_object().unwrap().values().map(|op| op[count].as_u64().unwrap()).sum()
}

#[test]
fn a_run_reports_the_same_on_stdout_and_on_disk_and_one_seed_is_one_schedule() {
    let run = |seed| start(&format!("{SMALL} --duration 3s --output json --seed {seed}")).end();
    let ended = run(7);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap(), report);
    assert_eq!((&report["seed"], &report["interrupted"], &report["faults"]), (&json!(7), &json!(false), &json!([])));
    assert_eq!((&report["params"]["seats_held_at_end"], &report["bring_up"]["seats"]), (&json!(60), &json!(60)));
    assert_eq!(report["ops"]["claim"]["scheduled"], json!(60));
    assert_eq!(report["ops"]["membership/leader"]["scheduled"], json!(3));
    let by_quorum = &report["ops"]["membership/quorum"];
    // A listing may begin in what is measured that stands on a renewal of the warm-up.
    let in_all = |op: &str| ["warmup", "ops"].map(|part| report[part][op]["ok"].as_u64().unwrap()).iter().sum::<u64>();
    assert_eq!(in_all("membership/quorum"), in_all("presence"));
    assert_eq!(by_quorum["requests_per_op"], json!(1.0), "the presence's renewal is its barrier");
    assert!(sum(&report, "ok") > 180, "three beats of 60 seats, and more");
    let server = &report["servers"][0];
    assert!(server["cpu_percent_mean"].is_number() && server["rss_bytes_max"].is_number(), "{server}");
    let mut names: Vec<String> =
        ended.files().iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.ends_with(".hgrm"));
    assert_eq!(names.len(), 2 * report["ops"].as_object().unwrap().len(), "{names:?}");

    // A log that reads on its own, a line of progress a second, and nothing but that.
    let stderr = &ended.stderr;
    for part in ["broker_binary", "broker_ready", "storage=file", "sync_interval=always", " contest ", "60 of 60 seats"]
    {
        assert!(stderr.contains(part), "{part} in\n{stderr}");
    }
    for part in ["WARN", "ERROR", "async_nats", "\x1b", "panicked"] {
        assert!(!stderr.contains(part), "{part} in\n{stderr}");
    }

    let (again, other) = (run(7).report(), run(8).report());
    let schedule = |report: &Value| report["params"]["schedule_digest"].clone();
    assert_eq!(schedule(&report), schedule(&again));
    assert_eq!(report["ops"]["claim"]["scheduled"], again["ops"]["claim"]["scheduled"]);
    assert_ne!(report["run_id"], again["run_id"]);
    assert_ne!(schedule(&report), schedule(&other));
}

#[test]
fn a_broker_killed_on_the_way_costs_answers_and_no_correctness() {
    let args = "--seats 60 --nodes 6 --heartbeat 8s --warmup 1s --claims 120 --claimers 8 --brokers 3 --duration 24s";
    let mut running = start(args);
    running.until(" quiet ");
    let servers = running.servers();
    assert_eq!(servers.len(), 3);
    send(servers[0], Signal::KILL);
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let (before, _) = ended.stderr.split_once(" quiet ").unwrap();
    for part in ["ERROR", "nats-route"] {
        assert!(!before.contains(part), "three brokers start without {part}:\n{before}");
    }
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    let faults = report["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 1, "{faults:?}");
    let killed =
        report["servers"].as_array().unwrap().iter().find(|server| server["pid"] == json!(servers[0])).unwrap();
    assert_eq!((&faults[0]["server"], &faults[0]["detail"]), (&killed["name"], &json!("killed by signal 9 (SIGKILL)")));
    assert_eq!(report["params"]["seats_held_at_end"], json!(60));
    // At worst an election of ten seconds, and the deadline of what was asked at its end.
    for (name, op) in report["ops"].as_object().unwrap() {
        let last = op["unknown_window"]["last_ns"].as_u64().unwrap_or(0);
        let most = faults[0]["t_ns"].as_u64().unwrap() + 17_000_000_000;
        assert!(last < most, "{name}: unknown until {last}, {most} at most");
    }
    let renewals = |outcome: &str| report["ops"]["renew"][outcome].as_u64().unwrap();
    assert!(renewals("unknown") <= renewals("ok"), "one beat and a half at most:\n{}", ended.stdout);
    assert!(ended.stdout.contains("killed by signal 9 (SIGKILL)"), "{}", ended.stdout);
}

#[test]
fn a_broker_suspended_on_the_way_is_told_of() {
    let args = SMALL.replace("--heartbeat 1s", "--heartbeat 8s");
    let mut running = start(&format!("{args} --duration 15s"));
    running.until(" quiet ");
    let server = running.servers()[0];
    send(server, Signal::STOP);
    running.until("broker_disconnected");
    running.until(" anomalies");
    send(server, Signal::CONT);
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    let faults: Vec<_> =
        report["faults"].as_array().unwrap().iter().map(|fault| (&fault["server"], &fault["detail"])).collect();
    assert_eq!(faults, [(&json!("n1"), &json!("suspended")), (&json!("n1"), &json!("resumed"))]);
    assert!(ended.stdout.contains(" after n1 was suspended)"), "{}", ended.stdout);
}

#[tokio::test]
async fn standing_still_itself_it_tells_so_and_blames_nobody() {
    let args = SMALL.replace("--heartbeat 1s", "--heartbeat 8s");
    let mut running = start(&format!("{args} --duration 9s"));
    running.until(" contest ");
    running.signal(Signal::STOP);
    Env::system().sleep(Duration::from_millis(1_500)).await;
    running.signal(Signal::CONT);
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    let longest = Duration::from_nanos(report["own"]["stalls"]["longest_ns"].as_u64().unwrap());
    assert!(longest > Duration::from_secs(1), "{longest:?}");
    assert_eq!(report["faults"], json!([]));
    assert!(ended.stdout.contains("the generator itself stood still"), "{}", ended.stdout);
}

#[tokio::test]
async fn a_signal_ends_it_in_order_with_a_report_of_what_was() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 143)] {
        let mut running = start(&format!("{SMALL} --duration 60s"));
        running.until(" quiet ");
        running.until(" quiet ");
        let servers = running.servers();
        running.signal(signal);
        let ended = running.end();
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        let report = ended.report();
        valid(&report);
        no_anomaly(&report);
        let duration = Duration::from_nanos(report["duration_ns"].as_u64().unwrap());
        assert_eq!(report["interrupted"], json!(true));
        assert!(duration > Duration::from_secs(1) && duration < Duration::from_secs(20), "{duration:?}");
        assert_eq!(report["ops"]["claim"]["scheduled"], json!(0), "the contest was yet to come");
        assert!(ended.stdout.starts_with("verdict: ok (interrupted after "), "{}", ended.stdout);
        assert_eq!(servers.len(), 1);
        until_gone(&servers).await;
    }
}

#[tokio::test]
async fn a_bring_up_is_interrupted_too() {
    let mut running = start("--seats 100000 --nodes 4 --brokers 1");
    running.until(" bring_up ");
    let servers = running.servers();
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let report = ended.report();
    valid(&report);
    assert_eq!((&report["bring_up"], &report["duration_ns"]), (&Value::Null, &json!(0)));
    until_gone(&servers).await;
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let mut running = start(&format!("{SMALL} --duration 60s"));
    running.until(" quiet ");
    let servers = running.servers();
    // A broker that answers nothing keeps the first signal's orderly end waiting.
    send(servers[0], Signal::STOP);
    running.until_one(|line| line.contains(" in flight") && !line.contains(" 0 in flight"));
    running.signal(Signal::INT);
    running.until(" drain ");
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(130), ""), "{}", ended.stderr);
    assert!(!ended.stderr.contains("report: "), "{}", ended.stderr);
    until_gone(&servers).await;
}

#[tokio::test]
async fn killed_with_sigkill_it_leaves_no_server_and_a_report_that_can_be_read() {
    let mut running = start(&format!("{SMALL} --duration 60s"));
    // It is written every few seconds. A line of progress comes every second.
    while running.report().is_none() {
        running.until(" anomalies");
    }
    let servers = running.servers();
    running.signal(Signal::KILL);
    let ended = running.end();
    assert_eq!(ended.code, None, "{}", ended.status);
    let report = ended.report();
    valid(&report);
    assert_eq!(report["interrupted"], json!(true));
    assert_eq!(servers.len(), 1);
    until_gone(&servers).await;
}

#[test]
fn what_makes_no_sense_ends_with_2_and_names_input_and_rule() {
    for (args, parts) in [
        ("--duration 30", ["`30` is not a duration", "needs a unit"]),
        ("--brokers 2", ["'2'", "1, 3 or 5"]),
        ("--seats 0", ["'0'", "from 1 to 1000000"]),
        ("--heartbeat 10ms", ["'10ms'", "at least 100ms"]),
        ("--url http://127.0.0.1", ["http://127.0.0.1", "starts with nats:// or tls://"]),
        ("--url nats://ann:hush@127.0.0.1/x", ["nats://***@127.0.0.1/x", "ends after the port"]),
        ("--url nats://127.0.0.1 --creds /nowhere/x.creds", ["/nowhere/x.creds", "No such file"]),
    ] {
        let ended = start(args).end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{args}: {}", ended.stderr);
        assert!(parts.iter().all(|part| ended.stderr.contains(part)), "{args}: {}", ended.stderr);
        assert!(!ended.stderr.contains("hush"), "{args}: {}", ended.stderr);
    }
}

#[tokio::test]
async fn an_interruption_before_there_is_anything_to_report_ends_it_too() {
    let mut running = start("--url nats://127.0.0.1:1");
    running.until("external_broker_connecting");
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(130), ""), "{}", ended.stderr);
}

#[test]
fn a_store_that_is_not_there_ends_it_with_4() {
    let ended = start("--url nats://127.0.0.1:1").end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(4), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("loadgen: connect to nats://127.0.0.1:1: no broker within"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nats_that_runs_already_is_used_and_left_as_it_was_found() {
    let env = Env::system();
    let cluster = Cluster::start(Settings::new(1), env.clone()).await.unwrap();
    let access = cluster.access();
    let fleet = SMALL.replace("--brokers 1", "");
    let args = format!("{fleet} --duration 3s --url {}", access.exposed());
    let ended = engine::tasks::blocking(move || start(&args).end()).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    assert_eq!((&report["servers"], &report["environment"]["replicas"]), (&json!([]), &json!(1)));

    let exposed = access.exposed();
    let (user, _) = exposed.split_once("://").unwrap().1.split_once('@').unwrap();
    let (_, password) = user.split_once(':').unwrap();
    assert!(report["command"].to_string().contains("nats://***@127.0.0.1"), "{}", report["command"]);
    for told in [report.to_string(), ended.stdout.clone(), ended.stderr.clone()] {
        assert!(!told.contains(password), "{told}");
    }

    let base = access.connect_options().await.unwrap();
    let jetstream = Box::pin(Jetstream::connect(env, access.urls(), base, Options::named("look"))).await.unwrap();
    let store = Nats::new(jetstream, Storage::File);
    for slot in coordproto::slot::SLOTS {
        let bucket = format!("loadgen_{}_{}", report["run_id"].as_str().unwrap(), slot.name);
        assert!(!store.delete(&bucket).await.unwrap(), "{bucket} was left behind");
    }
    cluster.stop().await.unwrap();
}

/// Runs a line of shell in which `"$0"` is the binary and `"$1"` a directory, from which its answers are read.
fn shell(line: &str) -> (Ended, String) {
    let dir = tempfile::tempdir().unwrap();
    let kept = tempfile::tempdir().unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line, env!("CARGO_BIN_EXE_loadgen")]).arg(kept.path());
    let ended = Running::start(command, dir).end();
    let code = std::fs::read_to_string(kept.path().join("code")).unwrap();
    (ended, code.trim().to_owned())
}

#[test]
fn whoever_closes_its_outputs_is_not_answered_with_a_panic() {
    let fleet = format!("\"$0\" fleet {SMALL} --duration 1s --output json");
    let (ended, code) = shell(&format!("{{ {fleet}; echo $? >\"$1/code\"; }} | head -1"));
    assert_eq!((code.as_str(), ended.stdout.trim()), ("0", "{"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);

    let (ended, code) = shell(&format!("{{ {fleet} 2>&1; echo $? >\"$1/code\"; }} | head -1"));
    assert_eq!(code, "0", "{}", ended.stdout);
    assert!(ended.stdout.contains("broker_binary"), "{}", ended.stdout);
}

#[test]
fn a_report_that_cannot_be_kept_is_found_out_before_anything_starts() {
    let (ended, code) = shell("\"$0\" fleet --out \"$0\"; echo $? >\"$1/code\"");
    assert_eq!((code.as_str(), ended.stdout.as_str()), ("1", ""), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("loadgen: --out: cannot write "), "{}", ended.stderr);
    assert!(!ended.stderr.contains("broker"), "{}", ended.stderr);
}

#[test]
fn under_nohup_it_outlives_its_terminal() {
    let (ended, code) = shell(&format!(
        "trap '' HUP; \"$0\" fleet {SMALL} --duration 2s & while sleep 0.1; do kill -HUP $! || break; done; wait $!; \
         echo $? >\"$1/code\""
    ));
    assert_eq!(code, "0", "{}", ended.stderr);
    assert!(ended.stdout.starts_with("verdict: ok\n"), "{}", ended.stdout);
}

#[test]
fn too_few_open_files_are_found_out_before_anything_starts() {
    let (ended, code) = shell("ulimit -n 64; \"$0\" fleet; echo $? >\"$1/code\"");
    assert_eq!((code.as_str(), ended.stdout.as_str()), ("1", ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("100 nodes need about 276 open files"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("may open 64 (`ulimit -Hn`)") && !ended.stderr.contains("broker"),
        "{}",
        ended.stderr
    );
    // A limit that this process may raise itself is no obstacle.
    let small = format!("\"$0\" fleet {SMALL} --duration 1s");
    let (ended, code) = shell(&format!("ulimit -S -n 40; {small}; echo $? >\"$1/code\""));
    assert_eq!(code, "0", "{}", ended.stderr);
}
