//! `loadgen compare`, baselines and service levels from the outside: what they print and how they end.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Ended, Running, no_anomaly, valid};

const SMALL: &str = "--seats 60 --nodes 6 --heartbeat 1s --warmup 1s --claims 60 --claimers 8 --brokers 1";

fn compare(before: &Path, after: &Path) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadgen"));
    command.arg("compare").arg(before).arg(after);
    Running::start(command, tempfile::tempdir().unwrap()).end()
}

/// The report with a change, in a file of this name. What its machine did meanwhile is left out of it.
fn changed(report: &Value, dir: &Path, name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let mut report = report.clone();
    report["own"]["other_cpu_percent"] = json!(0.0);
    report["own"]["stalls"] = json!({ "count": 0, "total_ns": 0, "longest_ns": 0 });
    change(&mut report);
    let path = dir.join(name);
    std::fs::write(&path, report.to_string()).unwrap();
    path
}

#[test]
fn service_levels_and_baselines_have_their_say_and_their_status() {
    let slos = "--slo renew.p50<60s --slo renew.requests<2 --slo claim.p99.9<60s";
    let run = Running::scenario("fleet", &format!("{SMALL} --duration 24s {slos}")).end();
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    let report = run.report();
    valid(&report);
    no_anomaly(&report);
    let met: Vec<_> = report["slos"].as_array().unwrap().iter().map(|slo| slo["met"].clone()).collect();
    assert_eq!(met, [json!(true), json!(true), json!(false)], "15 claims say nothing of a p99.9: {}", report["slos"]);
    assert!(run.stdout.contains("slo claim.p99.9<60s: not measured: MISSED"), "{}", run.stdout);
    // A seed that was drawn, and lengths as they were understood, are told.
    assert!(run.stdout.contains(&format!("seed         {}\n", report["seed"])), "{}", run.stdout);
    assert_eq!((&report["params"]["duration"], &report["params"]["heartbeat"]), (&json!("24s"), &json!("1s")));

    let dir = tempfile::tempdir().unwrap();
    let was = changed(&report, dir.path(), "was.json", |_| {});
    let same = compare(&was, &was);
    assert_eq!(same.code, Some(0), "{}", same.stdout);
    assert!(same.stdout.starts_with("comparison: nothing is worse\n"), "{}", same.stdout);
    let costly = changed(&report, dir.path(), "is.json", |report| {
        let renew = &mut report["ops"]["renew"];
        renew["requests_per_op"] = json!(renew["requests_per_op"].as_f64().unwrap() * 2.0);
        for block in renew["blocks"].as_array_mut().unwrap() {
            block["requests"] = json!(block["requests"].as_u64().unwrap() * 2);
        }
    });
    let worse = compare(&was, &costly);
    assert_eq!(worse.code, Some(3), "{}", worse.stdout);
    assert!(worse.stdout.starts_with("comparison: worse: renew requests\n"), "{}", worse.stdout);
    let elsewhere = changed(&report, dir.path(), "is.json", |report| report["environment"]["kernel"] = json!("9.9"));
    let advice = compare(&was, &elsewhere);
    assert_eq!(advice.code, Some(4), "{}", advice.stdout);
    assert!(advice.stdout.contains("advice only: kernel: "), "{}", advice.stdout);
    let gone = compare(&was, &dir.path().join("gone.json"));
    assert_eq!((gone.code, gone.stdout.as_str()), (Some(2), ""), "{}", gone.stderr);
    assert!(gone.stderr.contains("gone.json: No such file"), "{}", gone.stderr);

    let path = run.path();
    for (flag, code) in [("", 0), ("--fail-on-regression", 4)] {
        let args = format!("{SMALL} --duration 1s --baseline {} {flag}", path.display());
        let later = Running::scenario("fleet", &args).end();
        assert_eq!(later.code, Some(code), "{}", later.stderr);
        assert!(later.stdout.contains("advice only: duration: \"24s\" before, \"1s\" after"), "{}", later.stdout);
        assert_eq!(later.report()["seed"], report["seed"], "the baseline's, so that they do the same");
    }
}

/// What a run came to stands beside what it was asked to be, and is another thing in every run.
#[test]
fn two_runs_of_any_scenario_are_of_one_kind() {
    let fleet = format!("{SMALL} --duration 1s --floor");
    for (scenario, args) in [
        ("fleet", &*fleet),
        ("listing", "--keys 5 --count 20 --strategy leader --brokers 1 --floor"),
        ("mix", "--seats 30 --turns 1/10s --duration 2s --brokers 1 --floor"),
        ("budgets", "--chargers 4 --rounds 20 --brokers 1 --floor"),
        ("floor", "--request cas --duration 2s --brokers 1"),
        ("soak", "--seats 30 --nodes 3 --heartbeat 1s --warmup 1s --duration 2s --brokers 1 --floor"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let both = ["was.json", "is.json"].map(|name| (name, Running::scenario(scenario, &format!("{args} --seed 7"))));
        let [was, is] = both.map(|(name, run)| changed(&run.end().report(), dir.path(), name, |_| {}));
        let found = compare(&was, &is);
        let mut why = found.stdout.lines().filter_map(|line| line.strip_prefix("advice only: "));
        let unlike = why.find(|why| *why != "no latency of the two could be compared");
        assert_eq!(unlike, None, "{scenario}: {}", found.stdout);
    }
}

#[test]
fn what_makes_no_sense_is_found_out_and_named() {
    for (args, parts) in [
        ("--slo renew.p99<20", ["`renew.p99<20`", "needs a unit"]),
        ("--brokers 1 --slo renwe.p99<20ms", ["`renwe` is no operation of fleet", "renew_retry"]),
        ("--baseline /nowhere/report.json", ["/nowhere/report.json", "No such file"]),
    ] {
        let ended = Running::scenario("fleet", args).end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{args}: {}", ended.stderr);
        assert!(parts.iter().all(|part| ended.stderr.contains(part)), "{args}: {}", ended.stderr);
    }
}
