//! `report.json` against its published schema: what the generator writes is what `docs/report.schema.json` promises, and
//! the schema refuses what it does not promise.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::Duration;

use engine::env::Env;
use jsonschema::Validator;
use loadgen::environment::{Environment, Store};
use loadgen::recorder::{Outcome, Recorder};
use loadgen::report::{
    Anomalies, BringUp, Fault, Measurements, Own, Phase, Report, SchemaVersion, Server, command_line,
};
use loadgen::sampler::Sampler;
use loadgen::slo::Slo;
use loadgen::soak::trend::{Finding, Trend, Unit};
use serde_json::{Value, json};

const S: Duration = Duration::from_secs(1);

fn validator() -> Validator {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/report.schema.json");
    let schema: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

#[track_caller]
fn valid(validator: &Validator, report: &Value) {
    let errors: Vec<String> =
        validator.iter_errors(report).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert_eq!(errors, [] as [String; 0]);
}

fn trend(series: &str, watched: bool) -> Trend {
    let slope = watched.then_some(-3.5);
    Trend {
        series: series.to_owned(),
        unit: Unit::Bytes,
        points: if watched { 60 } else { 0 },
        watched_ns: 60_000_000_000,
        last: slope,
        slope,
        low: slope,
        high: slope,
        limit: slope,
        finding: if watched { Finding::Flat } else { Finding::Unmeasured },
    }
}

/// What a run leaves that asked `operations` times with every outcome among them, on this machine, through the file.
fn run(operations: u64, anomalies: Anomalies, interrupted: bool) -> Value {
    let env = Env::seeded(1);
    let origin = env.now();
    let mut recorder = Recorder::new(origin);
    let [claim, renew] = ["claim", "renew"].map(|name| recorder.declare(name));
    let sampler = Sampler::new(env.clone(), origin);
    sampler.set_pid("n1", Some(std::process::id()));
    sampler.set_pid("n2", None);
    sampler.sample();
    drop(claim.arrival(origin));
    recorder.measure_from(origin + S);
    let intended = (0..operations).map(|i| origin + S + Duration::from_millis(i));
    for (intended, outcome) in intended.zip(Outcome::ALL.into_iter().cycle()) {
        renew.arrival(intended).start(intended).finish(outcome, intended + Duration::from_millis(3), 1);
    }
    if operations > 0 {
        drop(renew.arrival(origin + S));
        drop(renew.arrival(origin + S).start(origin + S));
    }
    // The edges of a mean are two samples some time apart.
    while env.now() == origin {
        std::hint::spin_loop();
    }
    sampler.sample();
    let to = env.now();
    let measurements = Measurements::of(&recorder.snapshot());
    let slos = ["renew.p50<20ms", "renew.unknown<0.1%", "claim.p50<20ms"].map(|slo| slo.parse::<Slo>().unwrap());
    let server = |(name, usage): (String, _)| {
        sampler.lag(&name, to, operations);
        let lag = sampler.raft_lag(&name, origin, to);
        Server { name, usage, lag }
    };
    let report = Report {
        schema_version: SchemaVersion,
        run_id: "run".to_owned(),
        started_at: env.wall(),
        duration_ns: operations * 1_000_000,
        interrupted,
        command: command_line(["loadgen", "run"].map(str::to_owned)),
        seed: u64::MAX,
        params: serde_json::Map::from_iter([("duration".to_owned(), json!("1m30s"))]),
        environment: Environment::of(Store { storage: Some("file".to_owned()), ..Store::default() }),
        findings: anomalies.into(),
        trends: ["watched", "not watched"].map(|series| trend(series, series == "watched")).into_iter().collect(),
        slos: slos.iter().map(|slo| slo.judge(&measurements)).collect(),
        measurements,
        bring_up: (operations > 0).then_some(BringUp { seats: operations, duration_ns: 1 }),
        phases: vec![Phase {
            name: "steady".to_owned(),
            start_ns: 0,
            end_ns: 1,
            brokers_cpu_percent: sampler.servers_cpu_percent(origin, to),
            generator_cpu_percent: sampler.own(origin, to).cpu_percent_mean,
        }],
        servers: sampler.servers(origin, to).into_iter().map(server).collect(),
        own: Own {
            usage: sampler.own(origin, to),
            other_cpu_percent: sampler.other_cpu_percent(origin, to),
            stalls: recorder.stalls().into(),
        },
        faults: (0..operations.min(1))
            .map(|t_ns| Fault { t_ns, kind: "kill".into(), server: "n1".into(), detail: "killed by signal 9".into() })
            .collect(),
    };
    let dir = tempfile::tempdir().unwrap();
    let path = report.write(dir.path()).unwrap();
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn full() -> Value {
    run(4000, Anomalies { double_holders: 1, ..Anomalies::default() }, false)
}

#[test]
fn every_report_keeps_to_the_schema() {
    let validator = validator();
    for (what, report) in [
        ("no operation", run(0, Anomalies::default(), false)),
        ("few samples", run(50, Anomalies::default(), false)),
        ("interrupted", run(50, Anomalies::default(), true)),
        ("full", full()),
    ] {
        println!("{what}");
        valid(&validator, &report);
    }
}

#[test]
fn the_accounts_balance() {
    for operations in [0, 50, 4000] {
        let report = run(operations, Anomalies::default(), false);
        for counts in report["ops"].as_object().unwrap().values().chain(report["warmup"].as_object().unwrap().values())
        {
            let of = |name: &str| counts[name].as_u64().unwrap();
            assert_eq!(of("scheduled"), of("started") + of("dropped"), "{counts}");
            let ended = of("ok") + of("refused") + of("unknown") + of("errors");
            assert_eq!(of("started"), ended + of("in_flight"), "{counts}");
        }
        let renew = &report["ops"]["renew"];
        assert_eq!(renew["ok"], json!(operations.div_ceil(4)));
        assert_eq!(renew["latency"]["corrected"]["count"], json!(operations.div_ceil(4) + (operations + 2) / 4));
        assert_eq!(report["warmup"]["claim"]["dropped"], json!(1));
    }
}

#[test]
fn too_few_samples_are_null_and_not_invented() {
    let latency = run(50, Anomalies::default(), false)["ops"]["renew"]["latency"]["corrected"].clone();
    assert_eq!(latency["count"], json!(26));
    assert_eq!(
        (&latency["p50_ns"], &latency["p99_ns"], &latency["p99_9_ns"]),
        (&json!(3_000_000), &json!(null), &json!(null))
    );
}

/// The paths of all object members of `value`.
fn members(value: &Value, path: &str, into: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                into.push((path.to_owned(), name.clone()));
                members(inner, &format!("{path}/{name}"), into);
            }
        }
        Value::Array(list) => {
            list.first().into_iter().for_each(|inner| members(inner, &format!("{path}/0"), into));
        }
        _ => {}
    }
}

#[test]
fn nothing_may_be_missing_or_extra() {
    let validator = validator();
    let report = full();
    let mut all = Vec::new();
    members(&report, "", &mut all);
    // What is keyed by a name of the workload's own has no fixed members.
    let open = |path: &str| matches!(path, "/params" | "/ops" | "/warmup") || path.ends_with("/ops");
    assert!(all.len() > 100, "{}", all.len());
    for (path, name) in all.iter().filter(|(path, _)| !open(path)) {
        let mut without = report.clone();
        without.pointer_mut(path).unwrap().as_object_mut().unwrap().remove(name);
        assert!(!validator.is_valid(&without), "valid without {path}/{name}");
    }
    let mut objects: Vec<&String> = all.iter().map(|(path, _)| path).collect();
    objects.dedup();
    for path in objects.into_iter().filter(|path| *path != "/params") {
        let mut extra = report.clone();
        extra.pointer_mut(path).unwrap()["extra"] = json!("something");
        assert!(!validator.is_valid(&extra), "valid with {path}/extra");
    }
}

#[test]
fn a_wrong_value_is_refused() {
    let validator = validator();
    let failed = full();
    assert_eq!((&failed["verdict"], &failed["anomalies"]["double_holders"]), (&json!("failed"), &json!(1)));
    let passed = run(50, Anomalies::default(), false);
    assert_eq!(passed["verdict"], json!("ok"));
    for (report, path, wrong) in [
        (&failed, "/verdict", json!("ok")),
        (&passed, "/verdict", json!("failed")),
        (&passed, "/verdict", json!("fine")),
        (&passed, "/anomalies/double_holders", json!(1)),
        (&passed, "/anomalies/double_holders", json!(-1)),
        (&passed, "/schema_version", json!(2)),
        (&passed, "/duration_ns", json!("1m")),
        (&passed, "/duration_ns", json!(1.5)),
        (&passed, "/started_at", json!("yesterday")),
        (&passed, "/ops/renew/ok", json!(null)),
        (&passed, "/ops/renew/latency/corrected/p50_ns", json!(-3)),
        (&passed, "/environment/profile", json!("fast")),
        (&passed, "/slos/2/met", json!(true)),
        (&passed, "/trends/0/finding", json!("steep")),
        (&passed, "/trends/1/finding", json!("flat")),
        (&passed, "/slos/0/unit", json!("ms")),
        (&passed, "/ops/renew/blocks/0/ok_us", json!("127:3,131:9")),
        (&passed, "/ops/renew/blocks/0/refused_us", json!("127:0")),
    ] {
        let mut wronged = report.clone();
        *wronged.pointer_mut(path).unwrap() = wrong.clone();
        assert!(!validator.is_valid(&wronged), "valid with {wrong} at {path}");
    }
}
