use std::time::Duration;

use engine::env::Env;

use super::*;
use crate::recorder::{Outcome, Recorder};
use crate::report::tests::full;
use crate::report::{Anomalies, Measurements, Stalls};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// A run of forty seconds: a hundred renewals a second, whose latency is 1 ms and more, `slower` times that, with noise of
/// the moment and of their own that `seed` decides; and 20 claims a second that take about five requests.
fn run(seed: u64, slower: f64) -> Report {
    let env = Env::seeded(seed);
    let origin = env.now();
    let mut recorder = Recorder::new(origin);
    let [claim, renew] = ["claim", "renew"].map(|name| recorder.declare(name));
    recorder.measure_from(origin);
    for second in 0..40 {
        let moment = 1.0 + env.below(100) as f64 / 500.0;
        for i in 0..100 {
            let own = 1.0 + (env.below(1000) as f64 / 1000.0).powi(8) * 10.0;
            let at = origin + S * second + MS * 10 * i;
            let took = MS.mul_f64(moment * own * slower);
            renew.arrival(at).start(at).finish(Outcome::Ok, at + took, 1);
            if i % 5 == 0 {
                claim.arrival(at).start(at).finish(Outcome::Ok, at + took, 4 + env.below(3));
            }
        }
    }
    let mut report = full(Anomalies::default());
    report.faults.clear();
    report.phases.truncate(1);
    report.measurements = Measurements::of(&recorder.snapshot());
    report
}

fn finding(found: &Comparison, of: &str, figure: &str) -> Finding {
    found.rows.iter().find(|row| row.of == of && row.figure == figure).unwrap_or_else(|| panic!("{found:?}")).finding
}

#[test]
fn runs_that_do_not_differ_are_none_the_worse() {
    for seed in 0..5 {
        let found = Comparison::of(&run(seed * 2, 1.0), &run(seed * 2 + 1, 1.0));
        assert_eq!((found.exit(), found.worse().count()), (Exit::Ok, 0), "{}", found.render());
        assert_eq!(finding(&found, "renew", "p50"), Finding::Same, "{}", found.render());
    }
}

#[test]
fn what_got_slower_is_named_and_what_got_faster_too() {
    for seed in 0..5 {
        let (was, is) = (run(seed * 2, 1.0), run(seed * 2 + 1, 1.6));
        let found = Comparison::of(&was, &is);
        assert_eq!(found.exit(), Exit::Missed, "{}", found.render());
        assert_eq!(finding(&found, "renew", "p50"), Finding::Worse);
        assert!(found.render().starts_with("comparison: worse: claim p50, renew p50"), "{}", found.render());
        let found = Comparison::of(&is, &was);
        assert_eq!((found.exit(), finding(&found, "renew", "p50")), (Exit::Ok, Finding::Better), "{}", found.render());
    }
}

#[test]
fn a_difference_within_the_threshold_is_none() {
    let found = Comparison::of(&run(1, 1.0), &run(2, 1.04));
    assert_eq!((found.exit(), finding(&found, "renew", "p50")), (Exit::Ok, Finding::Same), "{}", found.render());
}

/// One slow moment of a run is one thing that was seen, however many operations were in it.
#[test]
fn a_single_bad_moment_is_no_proof() {
    let was = run(1, 1.0);
    let mut is = run(2, 1.0);
    let renew = is.measurements.ops.get_mut("renew").unwrap();
    for block in &mut renew.blocks[10..12] {
        block.ok_us.0 = block.ok_us.0.iter().map(|(top, count)| (top * 100, *count)).collect();
    }
    let found = Comparison::of(&was, &is);
    assert_eq!(finding(&found, "renew", "p99"), Finding::CannotTell, "{}", found.render());
    assert_eq!(found.exit(), Exit::Ok);
}

#[test]
fn parts_of_a_run_that_differ_are_no_doubt() {
    let halves = |seed, slower| {
        let (mut report, other) = (run(seed, slower), run(seed + 100, slower * 8.0));
        let renew = report.measurements.ops.get_mut("renew").unwrap();
        let later = &other.measurements.ops["renew"].blocks;
        renew.blocks.iter_mut().zip(later).skip(20).for_each(|(block, later)| *block = later.clone());
        let mut second = report.phases[0].clone();
        second.start_ns = 20_000_000_000;
        report.phases.push(second);
        report
    };
    let found = Comparison::of(&halves(1, 1.0), &halves(2, 1.0));
    assert_eq!(finding(&found, "renew", "p99"), Finding::Same, "{}", found.render());
    let found = Comparison::of(&halves(1, 1.0), &halves(2, 1.6));
    assert_eq!(finding(&found, "renew", "p99"), Finding::Worse, "{}", found.render());
}

#[test]
fn exact_figures_are_compared_exactly() {
    let was = run(1, 1.0);
    let mut is = was.clone();
    assert_eq!(finding(&Comparison::of(&was, &is), "renew", "requests"), Finding::Same);
    is.measurements.ops.get_mut("renew").unwrap().requests_per_op = Some(2.0);
    let found = Comparison::of(&was, &is);
    assert_eq!((found.exit(), finding(&found, "renew", "requests")), (Exit::Missed, Finding::Worse));
    let found = Comparison::of(&was, &run(2, 1.0));
    assert_eq!(finding(&found, "claim", "requests"), Finding::Same, "that of a contest varies: {}", found.render());
    for (more, expected) in [(1, Finding::Same), (20, Finding::Worse)] {
        let mut is = was.clone();
        let renew = is.measurements.ops.get_mut("renew").unwrap();
        renew.requests_per_op = Some(1.0 + more as f64 / 100.0);
        renew.blocks.iter_mut().for_each(|block| block.requests += more * block.ended / 100);
        let found = Comparison::of(&was, &is);
        assert_eq!(
            finding(&found, "renew", "requests"),
            expected,
            "{more} in a hundred asked twice: {}",
            found.render()
        );
    }

    let mut is = was.clone();
    is.measurements.ops.get_mut("renew").unwrap().arrivals.dropped = 1;
    is.measurements.ops.get_mut("claim").unwrap().arrivals.unknown = 1;
    is.findings = Anomalies { double_holders: 1, ..Anomalies::default() }.into();
    let found = Comparison::of(&was, &is);
    let worse: Vec<_> = found.worse().map(|row| (row.of.as_str(), row.figure)).collect();
    assert_eq!(worse, [("anomalies", "double_holders"), ("claim", "unknown"), ("renew", "dropped")]);
}

#[test]
fn what_is_missing_fails_and_what_is_new_does_not() {
    let was = run(1, 1.0);
    let mut gone = was.clone();
    gone.measurements.ops.remove("claim");
    let found = Comparison::of(&was, &gone);
    assert_eq!((found.exit(), finding(&found, "claim", "operations")), (Exit::Missed, Finding::Worse));
    let found = Comparison::of(&gone, &was);
    assert_eq!((found.exit(), found.remarks), (Exit::Ok, vec!["claim: new in the later run".to_owned()]));

    let mut idle = was.clone();
    let renew = idle.measurements.ops.get_mut("renew").unwrap();
    renew.requests_per_op = None;
    renew.blocks.iter_mut().for_each(|block| block.ok_us.0.clear());
    let found = Comparison::of(&was, &idle);
    for figure in ["requests", "p50", "p99"] {
        assert_eq!(finding(&found, "renew", figure), Finding::Worse, "{figure}");
    }
    assert_eq!(found.exit(), Exit::Missed);
    renew_nan(&was);
}

/// Nothing of it can be compared any more, which is no excuse.
#[test]
fn a_run_that_came_to_nothing_fails() {
    type Change = fn(&mut Report);
    let was = run(1, 1.0);
    let changes: [(&str, Change); 3] = [
        ("every operation is missing", |r| r.measurements.ops.clear()),
        ("nothing was scheduled", |r| {
            r.measurements.ops.values_mut().for_each(|op| (op.arrivals, op.blocks) = Default::default());
        }),
        ("nothing was answered yes", |r| {
            for op in r.measurements.ops.values_mut() {
                op.requests_per_op = None;
                (op.arrivals.unknown, op.arrivals.ok) = (op.arrivals.ok, 0);
                op.blocks.iter_mut().for_each(|block| block.ok_us.0.clear());
            }
        }),
    ];
    for (what, change) in changes {
        let mut is = was.clone();
        change(&mut is);
        let found = Comparison::of(&was, &is);
        assert_eq!((found.exit(), &found.only_advice), (Exit::Missed, &vec![]), "{what}: {}", found.render());
    }
    // Too short to compare a latency, and wrong.
    let mut short = was;
    short.measurements.ops.values_mut().for_each(|op| op.blocks.truncate(7));
    assert_eq!(Comparison::of(&short, &short).exit(), Exit::Unavailable);
    let wrong = Report { findings: Anomalies { double_holders: 1, ..Anomalies::default() }.into(), ..short.clone() };
    assert_eq!(Comparison::of(&short, &wrong).exit(), Exit::Missed);
}

fn renew_nan(was: &Report) {
    let mut is = was.clone();
    is.measurements.ops.get_mut("renew").unwrap().requests_per_op = Some(f64::NAN);
    assert_eq!(finding(&Comparison::of(was, &is), "renew", "requests"), Finding::Worse);
}

#[test]
fn a_run_of_another_place_is_advice_and_neither_passes_nor_fails() {
    type Change = fn(&mut Report);
    let was = run(1, 1.0);
    let changes: [(&str, Change); 16] = [
        ("cpu_model: AMD EPYC before, unknown after", |r| r.environment.cpu_model = None),
        ("cores: 2 before, 4 after", |r| r.environment.cores = Some(4)),
        ("kernel: ", |r| r.environment.kernel = Some("6.19".to_owned())),
        ("build profile: release before, debug after", |r| r.environment.profile = "debug".to_owned()),
        ("sync_interval: 2m before, always after", |r| r.environment.store.sync_interval = Some("always".to_owned())),
        ("replicas: 3 before, 1 after", |r| r.environment.store.replicas = Some(1)),
        ("seed: 42 before, 43 after", |r| r.seed = 43),
        ("seats: 50 before, 60 after", |r| r.params["seats"] = 60.into()),
        ("nodes: unknown before, 7 after", |r| drop(r.params.insert("nodes".to_owned(), 7.into()))),
        ("the later run was interrupted", |r| r.interrupted = true),
        ("the later run measured nothing", |r| r.duration_ns = 0),
        ("the later run had 1 fault", |r| r.faults = full(Anomalies::default()).faults),
        ("other work on the machine: 10.0 % of a core before, 60.0 % after", |r| r.own.other_cpu_percent = Some(60.0)),
        ("other work on the machine: 10.0 % of a core before, unknown after", |r| r.own.other_cpu_percent = None),
        ("the later run shared its machine with work that took 60.0 % of a core", |r| {
            r.own.other_cpu_percent = Some(60.0)
        }),
        ("the later run stood still itself for 1.00 s", |r| {
            r.own.stalls = Stalls { count: 1, total_ns: 1_000_000_000, longest_ns: 1_000_000_000 };
        }),
    ];
    for (why, change) in changes {
        for slower in [1.0, 1.6] {
            let mut is = run(2, slower);
            change(&mut is);
            let found = Comparison::of(&was, &is);
            assert_eq!(found.exit(), Exit::Unavailable, "{why}: {}", found.render());
            assert!(found.render().contains(&format!("advice only: {why}")), "{why}: {}", found.render());
        }
    }
    let mut failed = was.clone();
    failed.findings = Anomalies { double_holders: 1, ..Anomalies::default() }.into();
    assert_eq!(Comparison::of(&failed, &was).exit(), Exit::Unavailable);
    let mut same = run(2, 1.0);
    same.environment.git_commit = Some("abc".to_owned());
    same.params.insert("schedule_digest".to_owned(), "7".into());
    same.own.other_cpu_percent = Some(25.0);
    assert_eq!(Comparison::of(&was, &same).exit(), Exit::Ok, "what is compared, and what it came to, differs");
}

/// Three of four who race are refused, and what they wait for is another thing than what the winner does.
#[test]
fn slower_winners_do_not_vanish_among_the_refused() {
    let contest = |seed, winner: f64, loser: f64| {
        let env = Env::seeded(seed);
        let origin = env.now();
        let mut recorder = Recorder::new(origin);
        let claim = recorder.declare("claim");
        recorder.measure_from(origin);
        for i in 0..4_000 {
            let at = origin + MS * 10 * i;
            let (outcome, took) =
                if i % 4 == 0 { (Outcome::Ok, 8.0 * winner) } else { (Outcome::Refused, 3.0 * loser) };
            let took = MS.mul_f64(took * (1.0 + env.below(100) as f64 / 1000.0));
            claim.arrival(at).start(at).finish(outcome, at + took, 1);
        }
        Report { measurements: Measurements::of(&recorder.snapshot()), ..run(seed, 1.0) }
    };
    let was = contest(1, 1.0, 1.0);
    let worse = |is: &Report| {
        let found = Comparison::of(&was, is);
        found.worse().map(|row| row.figure).collect::<Vec<_>>()
    };
    assert_eq!(worse(&contest(2, 1.0, 1.0)), [] as [&str; 0]);
    assert_eq!(worse(&contest(2, 1.25, 1.0)), ["p50"]);
    assert_eq!(worse(&contest(2, 1.0, 1.25)), ["refused p50"]);
    // Whether somebody is refused is chance, and nobody is the worse for it. That nobody won is another thing.
    let without = |of: fn(&mut TimeBlock) -> &mut Distribution| {
        let mut is = contest(2, 1.0, 1.0);
        is.measurements.ops.get_mut("claim").unwrap().blocks.iter_mut().for_each(|block| of(block).0.clear());
        is
    };
    assert_eq!(worse(&without(|block| &mut block.refused_us)), [] as [&str; 0]);
    assert_eq!(worse(&without(|block| &mut block.ok_us)), ["p50", "p99"]);
}

/// The names under which a report says what a run came to stand among those of what it was asked to be.
#[test]
fn what_a_run_came_to_is_no_condition_of_it() {
    let was = run(1, 1.0);
    for (scenario, name) in [
        ("fleet", "claims_settled"),
        ("fleet", "floor"),
        ("soak", "seats_held_at_end"),
        ("soak", "copies_differing"),
        ("mix", "seats_held_at_end"),
        ("listing", "listings"),
        ("budgets", "charges"),
        ("floor", "cells"),
        ("peers", "turns"),
        ("peers", "ratios"),
    ] {
        let of = |mut report: Report, value: u64| {
            report.params.insert("scenario".to_owned(), scenario.into());
            report.params.insert(name.to_owned(), value.into());
            report
        };
        let found = Comparison::of(&of(was.clone(), 1), &of(run(2, 1.0), 2));
        assert_eq!(found.exit(), Exit::Ok, "{scenario} {name}: {}", found.render());
    }
    // What is a result of one scenario is asked for in another.
    let peers = |charges: u64| {
        let mut report = run(1, 1.0);
        report.params.insert("scenario".to_owned(), "peers".into());
        report.params.insert("charges".to_owned(), charges.into());
        report
    };
    assert_eq!(Comparison::of(&peers(1), &peers(2)).exit(), Exit::Unavailable);
}

#[test]
fn too_little_is_not_compared_and_says_so() {
    let mut was = run(1, 1.0);
    was.measurements.ops.get_mut("claim").unwrap().blocks.truncate(7);
    let found = Comparison::of(&was, &was.clone());
    assert!(found.remarks.iter().any(|r| r.starts_with("claim p50: it was met in 7 and 7")), "{:?}", found.remarks);
    assert!(found.remarks.iter().any(|r| r.starts_with("claim p99: 140 and 140 answers")), "{:?}", found.remarks);
    was.measurements.ops.retain(|name, _| name == "claim");
    assert_eq!(Comparison::of(&was, &was.clone()).exit(), Exit::Unavailable, "of nothing nothing can be said");
}

#[test]
fn a_file_that_is_no_report_names_itself() {
    let dir = tempfile::tempdir().unwrap();
    let error = load(&dir.path().join("gone.json")).unwrap_err().to_string();
    assert!(error.contains("gone.json") && error.contains("No such file"), "{error}");
    let path = dir.path().join("other.json");
    std::fs::write(&path, r#"{"schema_version": 1}"#).unwrap();
    let error = load(&path).unwrap_err().to_string();
    assert!(error.contains("other.json") && error.contains("missing field"), "{error}");
    let written = run(1, 1.0).write(dir.path()).unwrap();
    assert_eq!(load(&written).unwrap(), run(1, 1.0));
}
