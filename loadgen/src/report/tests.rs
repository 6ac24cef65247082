use std::time::Duration;

use engine::env::{Env, Mono};

use super::*;
use crate::environment::Store;
use crate::recorder::{Outcome, Recorder};
use crate::sampler::{LagPoint, UsagePoint};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// A recorder with a run of two operations in it: 6,000 renews, some unknown after ten seconds, and 50 claims.
pub(crate) fn recorded() -> Recorder {
    let origin = Env::seeded(1).now();
    let mut recorder = Recorder::new(origin);
    let [claim, renew, _] = ["claim", "renew", "release"].map(|name| recorder.declare(name));
    recorder.measure_from(origin + S * 5);
    let run = |op: &crate::recorder::Op, intended: Mono, outcome, wait: Duration| {
        op.arrival(intended).start(intended + MS / 10).finish(outcome, intended + wait, 1);
    };
    (0..500).for_each(|i| run(&renew, origin + MS * 10 * i, Outcome::Ok, S));
    for i in 0..6000 {
        let (outcome, wait) = match i {
            500..537 => (Outcome::Unknown, S * 2 + MS * 100),
            540..600 => (Outcome::Error, MS),
            _ if i % 100 == 0 => (Outcome::Refused, MS * 3),
            _ => (Outcome::Ok, MS / 2 + MS / 1000 * (i % 100)),
        };
        run(&renew, origin + S * 5 + MS * 10 * i, outcome, wait);
    }
    drop(renew.arrival(origin + S * 65));
    for i in 0..50 {
        claim.arrival(origin + S * 6).start(origin + S * 6).finish(Outcome::Ok, origin + S * 6 + MS * i, 2);
    }
    recorder
}

pub(crate) fn full(anomalies: Anomalies) -> Report {
    let usage = |pid: u32, cpu: f64| Usage {
        pid: Some(pid),
        cpu_percent_mean: Some(cpu),
        rss_bytes_max: Some(67_100_000),
        series: vec![
            UsagePoint { t_ns: 0, cpu_percent: None, rss_bytes: 60_000_000, disk_written_bytes: None },
            UsagePoint {
                t_ns: 1_000_000_000,
                cpu_percent: Some(cpu),
                rss_bytes: 67_100_000,
                disk_written_bytes: Some(4096),
            },
        ],
    };
    Report {
        schema_version: SchemaVersion,
        run_id: "20261130T084300Z-42".to_owned(),
        started_at: "2026-11-30T08:43:00.123456789Z".parse().unwrap(),
        duration_ns: 60_000_000_000,
        interrupted: false,
        command: command_line(["loadgen", "run", "--seats", "50", "--duration", "1m"].map(str::to_owned)),
        seed: 42,
        params: serde_json::from_str(r#"{"duration":"1m","rate":"100/s","seats":50}"#).unwrap(),
        environment: Environment {
            cpu_model: Some("AMD EPYC".to_owned()),
            cores: Some(2),
            kernel: Some("6.18.44".to_owned()),
            git_commit: Some("5557df5a0000000000000000000000000000abcd".to_owned()),
            profile: "release".to_owned(),
            store: Store {
                nats_server_version: Some("2.15.1".to_owned()),
                replicas: Some(3),
                storage: Some("file".to_owned()),
                sync_interval: Some("2m".to_owned()),
            },
        },
        findings: anomalies.into(),
        measurements: Measurements::of(&recorded().snapshot()),
        bring_up: Some(BringUp { seats: 50, duration_ns: 2_310_000_000 }),
        phases: vec![
            Phase {
                name: "warm_up".to_owned(),
                start_ns: 0,
                end_ns: 5_000_000_000,
                brokers_cpu_percent: Some(40.0),
                generator_cpu_percent: Some(3.8),
            },
            Phase {
                name: "steady".to_owned(),
                start_ns: 5_000_000_000,
                end_ns: 65_000_000_000,
                brokers_cpu_percent: None,
                generator_cpu_percent: None,
            },
        ],
        servers: vec![
            Server { name: "n1".to_owned(), usage: usage(101, 21.5), lag: RaftLag::default() },
            Server {
                name: "n2".to_owned(),
                usage: usage(102, 18.0),
                lag: RaftLag { raft_lag_max: Some(40), raft_lag: vec![LagPoint { t_ns: 5_000_000_000, entries: 40 }] },
            },
            Server { name: "n3".to_owned(), usage: Usage::default(), lag: RaftLag::default() },
        ],
        own: Own {
            usage: usage(100, 3.8),
            other_cpu_percent: Some(10.0),
            stalls: Stalls { count: 0, total_ns: 0, longest_ns: 0 },
        },
        faults: vec![Fault {
            t_ns: 10_000_000_000,
            kind: "kill".to_owned(),
            server: "n2".to_owned(),
            detail: "killed by signal 9".to_owned(),
        }],
        slos: Vec::new(),
        trends: Vec::new(),
    }
}

#[test]
fn every_count_of_the_recorder_is_in_the_report() {
    let report = full(Anomalies::default());
    let renew = &report.measurements.ops["renew"];
    assert_eq!(
        renew.arrivals,
        Arrivals {
            scheduled: 6001,
            started: 6000,
            ok: 5844,
            refused: 59,
            unknown: 37,
            errors: 60,
            dropped: 1,
            in_flight: 0
        }
    );
    assert_eq!(renew.latency.corrected.count, 5844 + 59);
    assert_eq!(renew.latency_ok.service.count, 5844);
    assert_eq!(renew.latency_unknown.corrected.max_ns, Some(2_100_000_000));
    assert_eq!(renew.latency_errors.corrected.count, 60);
    assert_eq!(renew.unknown_window, Some(Window { first_ns: 12_100_000_000, last_ns: 12_460_000_000 }));
    assert_eq!(renew.requests_per_op, Some(1.0));
    assert_eq!(report.measurements.warmup["renew"].ok, 500);
    assert_eq!(report.measurements.ops["claim"].requests_per_op, Some(2.0));
    let release = &report.measurements.ops["release"];
    assert_eq!((release.arrivals, release.requests_per_op), (Arrivals::default(), None));
    assert_eq!(release.latency.corrected.max_ns, None);
    let series = &report.measurements.series;
    let blocks = &renew.blocks;
    let ended: u64 = blocks.iter().map(|block| block.ended).sum();
    let sum = |of: fn(&TimeBlock) -> &Distribution| blocks.iter().flat_map(|block| of(block).0.values()).sum::<u64>();
    assert_eq!((ended, sum(|block| &block.ok_us), sum(|block| &block.refused_us)), (6000, 5844, 59));
    assert!(blocks.iter().all(|block| block.t_ns % report.measurements.block_ns == 0 && block.requests == block.ended));
    assert_eq!(series.iter().filter_map(|point| point.ops.get("renew")).map(|op| op.ok).sum::<u64>(), 5844);
    assert!(series.iter().all(|point| point.t_ns % report.measurements.series_interval_ns == 0));
}

#[test]
fn a_report_is_replaced_whole_and_read_back_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("made/on/the/way");
    let mut report = full(Anomalies { double_holders: 2, ..Anomalies::default() });
    report.interrupted = true;
    let path = report.write(&dir).unwrap();
    assert_eq!(path, dir.join("report.json"));
    report.interrupted = false;
    report.write(&dir).unwrap();
    let read: Report = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(read, report);
    write_distributions(&dir, &recorded().snapshot()).unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "claim.hgrm",
            "claim.service.hgrm",
            "release.hgrm",
            "release.service.hgrm",
            "renew.hgrm",
            "renew.service.hgrm",
            "report.json"
        ]
    );
}

#[test]
fn a_distribution_is_read_as_it_was_written_and_no_other_way() {
    let read = |text: &str| serde_json::from_value::<Distribution>(text.into());
    for text in ["", "1:1", "127:3 131:9"] {
        assert_eq!(serde_json::to_value(read(text).unwrap()).unwrap(), text);
    }
    for text in ["127", "127:", ":3", "127:0", "127:-3", "131:9 127:3", "127:3 127:3", "127:3,131:9"] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains("is no bucket"), "{text}: {error}");
    }
}

#[test]
fn an_operation_done_in_several_ways_has_a_name_for_each() {
    let mut recorder = Recorder::new(Env::seeded(1).now());
    for name in ["read/leader", "read/follower", "read"] {
        recorder.declare(name);
    }
    let mut report = full(Anomalies::default());
    report.measurements = Measurements::of(&recorder.snapshot());
    let schema = serde_json::from_str(include_str!("../../../docs/report.schema.json")).unwrap();
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    assert!(schema.is_valid(&serde_json::to_value(&report).unwrap()));
    for name in ["read/", "/read", "read/by/leader", "read-leader", "Read"] {
        let mut wrong = report.clone();
        let read = wrong.measurements.ops["read"].clone();
        wrong.measurements.ops.insert(name.to_owned(), read);
        assert!(!schema.is_valid(&serde_json::to_value(&wrong).unwrap()), "valid with {name}");
    }
    let dir = tempfile::tempdir().unwrap();
    write_distributions(dir.path(), &recorder.snapshot()).unwrap();
    for name in ["read", "read-leader", "read-follower"] {
        assert!(dir.path().join(format!("{name}.hgrm")).exists(), "{name}");
        assert!(dir.path().join(format!("{name}.service.hgrm")).exists(), "{name}");
    }
}

#[test]
fn a_failed_write_names_the_file_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("report.json")).unwrap();
    std::fs::write(dir.path().join("report.json/in-the-way"), "").unwrap();
    let error = full(Anomalies::default()).write(dir.path()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot write {}", dir.path().join("report.json").display())), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_command_line_keeps_no_credentials() {
    let given = [
        "--nats",
        "nats://user:p@ss@n1:4222,nats://n2:4222,tls://token@n3:4222",
        "nats://n1/a@b",
        "me@example.org",
        "--url=http://u:p@h/x",
    ];
    assert_eq!(
        command_line(given.map(str::to_owned)),
        [
            "--nats",
            "nats://***@n1:4222,nats://n2:4222,tls://***@n3:4222",
            "nats://n1/a@b",
            "me@example.org",
            "--url=http://***@h/x"
        ]
    );
}
