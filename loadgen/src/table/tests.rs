use super::*;
use crate::report::{Anomalies, Fault, Stalls, tests::full};

const PLAIN: Style = Style { colour: false, columns: None };
const RED: Style = Style { colour: true, columns: None };

/// Written as it is printed, so that a change of the text is seen for what it is.
const GOLDEN: &str = include_str!("golden.txt");

#[test]
fn the_whole_text() {
    let anomalies = Anomalies { double_holders: 2, seats_not_held: 1, ..Anomalies::default() };
    let text = render(&full(anomalies), &[], &PLAIN);
    assert_eq!(text, GOLDEN, "\n{text}");
    assert!(text.lines().all(|line| line.len() <= 120 && line.trim_end() == line), "\n{text}");
}

#[test]
fn large_figures_still_fit_the_terminal() {
    let mut report = full(Anomalies::default());
    let renew = report.measurements.ops.get_mut("renew").unwrap();
    renew.arrivals.scheduled = 3_600_000;
    renew.arrivals.ok = 3_000_000;
    renew.arrivals.refused = 500_000;
    renew.arrivals.unknown = 100_000;
    renew.arrivals.errors = 10_000;
    let text = render(&report, &[], &PLAIN);
    assert!(text.lines().all(|line| line.len() <= 120), "\n{text}");
}

#[test]
fn the_first_line_is_the_verdict() {
    let mut report = full(Anomalies::default());
    let first = |report: &Report| render(report, &[], &PLAIN).lines().next().unwrap().to_owned();
    assert_eq!(first(&report), "verdict: ok");
    report.interrupted = true;
    report.duration_ns = 31_240_000_000;
    assert_eq!(first(&report), "verdict: ok (interrupted after 31.2 s)");
    report.findings = Anomalies { ops_unsettled: 1200, ..Anomalies::default() }.into();
    assert_eq!(first(&report), "verdict: failed: 1,200 ops_unsettled (interrupted after 31.2 s)");
}

#[test]
fn dropped_arrivals_are_red_on_a_terminal_and_in_words_everywhere() {
    let mut report = full(Anomalies::default());
    let words = "dropped, scheduled and never started: renew 1 of 6,001";
    assert!(render(&report, &[], &RED).contains(&format!("\x1b[31m{words}\x1b[0m\n")));
    let plain = render(&report, &[], &PLAIN);
    assert!(plain.contains(&format!("\n{words}\n")) && !plain.contains('\x1b'));
    report.measurements.ops.get_mut("renew").unwrap().arrivals.dropped = 0;
    let none = render(&report, &[], &RED);
    assert!(none.contains(", 0 dropped, ") && !none.contains('\x1b'), "{none}");
}

#[test]
fn the_unknown_are_placed_in_time() {
    let mut report = full(Anomalies::default());
    let second = |report: &Report| render(report, &[], &PLAIN).lines().nth(1).unwrap().to_owned();
    let resumed = Fault { t_ns: 12_000_000_000, kind: "resume".into(), server: "n3".into(), detail: "resumed".into() };
    report.faults.push(resumed.clone());
    assert!(second(&report).contains("37 unknown (all within 460 ms after n3 was resumed)"), "{}", second(&report));
    // Connections fell silent a moment before the system told of the end.
    report.faults = vec![Fault { t_ns: 12_103_000_000, ..resumed.clone() }];
    assert!(second(&report).contains("37 unknown (all within 357 ms after n3 was resumed)"), "{}", second(&report));
    report.faults = vec![Fault { t_ns: 20_000_000_000, ..resumed }];
    assert!(second(&report).contains("37 unknown (from 12.1 s to 12.5 s)"), "{}", second(&report));
    report.measurements.ops.get_mut("renew").unwrap().unknown_window = None;
    assert!(!second(&report).contains("unknown ("), "{}", second(&report));
}

#[test]
fn the_remarks_of_a_scenario_stand_below_the_verdict() {
    let remarks = ["57 leases ended".to_owned(), "all is well".to_owned()];
    let text = render(&full(Anomalies::default()), &remarks, &PLAIN);
    let lines: Vec<_> = text.lines().skip(2).take(3).collect();
    assert!(lines[0].starts_with("60 errors") && lines[1..] == remarks, "{lines:?}");
}

#[test]
fn stalls_and_missing_figures_are_told() {
    let mut report = full(Anomalies::default());
    report.own.stalls = Stalls { count: 1, total_ns: 10_000_000_000, longest_ns: 10_000_000_000 };
    report.own.usage = Usage::default();
    report.environment.cpu_model = None;
    let text = render(&report, &[], &PLAIN);
    assert!(text.contains("\nthe generator itself stood still 1 time for 10.0 s (longest 10.0 s)"), "{text}");
    assert!(text.contains("\ngenerator    not a process of this machine, CPU and memory not measured\n"), "{text}");
    assert!(text.contains("\nenvironment  unknown, cores 2"), "{text}");
}

#[test]
fn a_command_can_be_pasted_back() {
    assert_eq!(quoted("--rate=667/s"), "--rate=667/s");
    assert_eq!(quoted("two words"), "'two words'");
    assert_eq!(quoted("it's"), r"'it'\''s'");
    assert_eq!(quoted(""), "''");
}

/// What had a part of its own is not counted per second of the whole run.
#[test]
fn an_operation_with_a_part_of_its_own_name_was_measured_in_that() {
    let mut report = full(Anomalies::default());
    report.phases[0].name = "claim".to_owned();
    let text = render(&report, &[], &PLAIN);
    assert!(text.contains("throughput   claim 10.0/s ok\n") && text.contains("renew 97.4/s ok"), "{text}");
}
