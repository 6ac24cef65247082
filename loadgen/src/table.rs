//! A report as a person reads it: the verdict first, then the figures, in 120 columns.
//!
//! Plain text, nearly the same on a terminal and in a file: on a terminal, arrivals that were dropped are also red, and where
//! it is narrow the latencies stand below the counts. A percentile that too few samples stand behind says how many it needs.
//! Nothing is here that does not follow from the report; an operation that never was is in the report alone.

pub(crate) mod units;

use std::io::IsTerminal;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

use crate::histogram::{Percentile, Percentiles};
use crate::may_colour;
use crate::report::{Arrivals, Operation, Report, Verdict};
use crate::sampler::Usage;
use units::{bytes, count, per_second, percent, plural, time};

/// What the text is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether it may have colour.
    pub colour: bool,
    /// How many columns there are; `None` where lines have no end.
    pub columns: Option<usize>,
}

impl Style {
    /// What suits stdout.
    pub fn of_stdout() -> Style {
        let stdout = std::io::stdout();
        let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten();
        // A terminal that does not know its size says 0.
        let columns = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
        Style { colour: may_colour(&stdout), columns }
    }
}

/// The text of `report`, in which its scenario's remarks stand below the verdict.
pub fn render(report: &Report, remarks: &[String], style: &Style) -> String {
    let mut text = format!("{}\n{}\n", verdict(report), findings(report, remarks));
    if let Some(dropped) = dropped(report) {
        text.push_str(&if style.colour { format!("\x1b[31m{dropped}\x1b[0m\n") } else { format!("{dropped}\n") });
    }
    for fault in &report.faults {
        text.push_str(&format!("fault at {}: {} was {}\n", time(fault.t_ns), fault.server, fault.detail));
    }
    text.push_str(&format!(
        "\n{}\n\nLatency of ok and refused answers, from the intended start; service: from the actual send.\n\n",
        operations(report, style.columns)
    ));
    text.push_str(&facts(report));
    text
}

fn verdict(report: &Report) -> String {
    let mut line = match report.findings.verdict() {
        Verdict::Ok => "verdict: ok".to_owned(),
        Verdict::Failed => {
            let met = report.findings.anomalies().each().into_iter().filter(|(_, times)| *times > 0);
            let met: Vec<String> = met.map(|(name, times)| format!("{} {name}", count(times))).collect();
            format!("verdict: failed: {}", met.join(", "))
        }
    };
    if report.interrupted {
        line.push_str(&format!(" (interrupted after {})", time(report.duration_ns)));
    }
    line
}

fn findings(report: &Report, remarks: &[String]) -> String {
    let sum = |of: fn(&Arrivals) -> u64| report.measurements.ops.values().map(|op| of(&op.arrivals)).sum::<u64>();
    let mut lines = format!(
        "{}, {} unknown{}\n{}, {} still in flight, {} dropped, {}",
        plural(report.findings.anomalies().total(), "anomaly", "anomalies"),
        count(sum(|op| op.unknown)),
        unknown_when(report),
        plural(sum(|op| op.errors), "error", "errors"),
        count(sum(|op| op.in_flight)),
        count(sum(|op| op.dropped)),
        plural(report.faults.len() as u64, "fault", "faults"),
    );
    for slo in &report.slos {
        lines.push_str(&format!("\n{slo}"));
    }
    for remark in remarks {
        lines.push_str(&format!("\n{remark}"));
    }
    let stalls = report.own.stalls;
    if stalls.count > 0 {
        lines.push_str(&format!(
            "\nthe generator itself stood still {} for {} (longest {}): in the latency rows, not in the service rows",
            plural(stalls.count, "time", "times"),
            time(stalls.total_ns),
            time(stalls.longest_ns)
        ));
    }
    lines
}

/// How much later than its first unknown a fault may stand and still be what they come from: connections tell of a server's
/// end sooner than the system does.
const NOTICED_WITHIN_NS: u64 = 100_000_000;

/// Where the unknown lie in time: behind the last fault before them, if there is one.
fn unknown_when(report: &Report) -> String {
    let windows = || report.measurements.ops.values().filter_map(|op| op.unknown_window);
    let first = windows().map(|window| window.first_ns).min();
    let last = windows().map(|window| window.last_ns).max();
    let Some((first, last)) = first.zip(last) else { return String::new() };
    match report.faults.iter().filter(|fault| fault.t_ns <= first + NOTICED_WITHIN_NS).max_by_key(|fault| fault.t_ns) {
        Some(fault) => {
            format!(
                " (all within {} after {} was {})",
                time(last.saturating_sub(fault.t_ns)),
                fault.server,
                fault.detail
            )
        }
        None => format!(" (from {} to {})", time(first), time(last)),
    }
}

fn dropped(report: &Report) -> Option<String> {
    let ops = report.measurements.ops.iter().filter(|(_, op)| op.arrivals.dropped > 0);
    let each: Vec<String> = ops
        .map(|(name, op)| format!("{name} {} of {}", count(op.arrivals.dropped), count(op.arrivals.scheduled)))
        .collect();
    (!each.is_empty()).then(|| format!("dropped, scheduled and never started: {}", each.join(", ")))
}

/// The operations that were, by name.
fn met(report: &Report) -> impl Iterator<Item = (&String, &Operation)> {
    report.measurements.ops.iter().filter(|(_, op)| op.arrivals.scheduled > 0)
}

fn operations(report: &Report, columns: Option<usize>) -> String {
    let counted = ["operation", "scheduled", "ok", "refused", "unknown", "errors", "req/op"];
    let timed = ["p50", "p90", "p99", "p99.9", "max"];
    let mut counts = Vec::new();
    let mut times = Vec::new();
    for (name, op) in met(report) {
        let arrivals = op.arrivals;
        let each = [arrivals.scheduled, arrivals.ok, arrivals.refused, arrivals.unknown, arrivals.errors].map(count);
        let requests = op.requests_per_op.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.2}"));
        counts.push([vec![name.clone()], each.to_vec(), vec![requests]].concat());
        times.push((name.clone(), percentiles(&op.latency.corrected)));
        times.push(("  service".to_owned(), percentiles(&op.latency.service)));
    }
    // Every operation has two lines of latencies; its counts stand beside the first.
    let lines = times.iter().enumerate().map(|(line, (name, times))| {
        let besides = if line % 2 == 0 { counts[line / 2].clone() } else { vec![name.clone()] };
        let mut row = besides;
        row.resize(counted.len(), String::new());
        row.extend(times.iter().cloned());
        row
    });
    let whole = table(counted.iter().chain(&timed), lines);
    if columns.is_none_or(|columns| whole.lines().all(|line| line.chars().count() <= columns)) {
        return whole;
    }
    let lines = times.into_iter().map(|(name, times)| [vec![name], times.to_vec()].concat());
    let below = table(["operation"].iter().chain(&timed), lines);
    format!("{}\n\n{below}", table(counted.iter(), counts.into_iter()))
}

pub(crate) fn table<'a>(
    header: impl Iterator<Item = &'a &'static str>,
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header).add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        column.set_cell_alignment(if index == 0 { CellAlignment::Left } else { CellAlignment::Right });
    }
    table.trim_fmt()
}

fn percentiles(values: &Percentiles) -> [String; 5] {
    // Of nothing there is nothing to say, and more samples is not what it needs.
    let shown = |value: Option<u64>, of: Percentile| if values.count == 0 { "-".to_owned() } else { at(value, of) };
    [
        shown(values.p50_ns, Percentile::P50),
        shown(values.p90_ns, Percentile::P90),
        shown(values.p99_ns, Percentile::P99),
        shown(values.p99_9_ns, Percentile::P99_9),
        values.max_ns.map_or_else(|| "-".to_owned(), time),
    ]
}

/// A percentile, or how many samples it needs.
fn at(value: Option<u64>, percentile: Percentile) -> String {
    value.map_or_else(|| format!("needs {}", count(percentile.needs())), time)
}

/// The lines of a name and what is to be said of it.
fn facts(report: &Report) -> String {
    let mut facts = vec![("measured", measured(report))];
    facts.extend(met(report).filter_map(|(name, op)| Some(("throughput", throughput(report, name, op)?))));
    facts.extend(met(report).filter_map(|(name, op)| Some(("lateness", lateness(name, op)?))));
    if let Some(up) = report.bring_up {
        facts.push(("bring-up", format!("{} in {}", plural(up.seats, "seat", "seats"), time(up.duration_ns))));
    }
    facts.extend(report.phases.iter().map(|phase| {
        let cpu = phase.brokers_cpu_percent.map_or_else(|| "not measured".to_owned(), percent);
        let length = time(phase.end_ns.saturating_sub(phase.start_ns));
        ("phase", format!("{} from {} for {length}, CPU of the brokers {cpu}", phase.name, time(phase.start_ns)))
    }));
    facts.extend(report.trends.iter().map(|trend| ("trend", trend.to_string())));
    facts.extend(report.servers.iter().map(|server| {
        let behind = server.lag.raft_lag_max;
        let behind = behind.map(|entries| format!(", behind by up to {}", plural(entries, "entry", "entries")));
        ("broker", format!("{} {}{}", server.name, usage(&server.usage), behind.unwrap_or_default()))
    }));
    facts.push(("generator", usage(&report.own.usage)));
    let other = report.own.other_cpu_percent.map_or_else(|| "not measured".to_owned(), percent);
    facts.push(("machine", format!("CPU of everything else {other}")));
    facts.push(("environment", environment(report)));
    facts.push(("command", report.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")));
    facts.push(("seed", report.seed.to_string()));
    let mut text = String::new();
    let mut last = "";
    for (name, fact) in facts {
        // A name is written once for the lines that share it.
        text.push_str(format!("{:13}{fact}", if name == last { "" } else { name }).trim_end());
        text.push('\n');
        last = name;
    }
    text
}

fn measured(report: &Report) -> String {
    let warmup: u64 = report.measurements.warmup.values().map(|op| op.scheduled).sum();
    let apart = if warmup == 0 {
        String::new()
    } else {
        format!(", after {} as warm-up", plural(warmup, "operation", "operations"))
    };
    format!("{} of run {} started at {:.0}{apart}", time(report.duration_ns), report.run_id, report.started_at)
}

/// How long an operation was measured: the parts of its own name, where it had such, else all the time.
fn measured_ns(report: &Report, name: &str) -> u64 {
    let own = report.phases.iter().filter(|phase| phase.name == name);
    let lasted: u64 = own.map(|phase| phase.end_ns.saturating_sub(phase.start_ns)).sum();
    if lasted > 0 { lasted } else { report.duration_ns }
}

/// How many ended in which way per second; none when none ended.
fn throughput(report: &Report, name: &str, op: &Operation) -> Option<String> {
    let counts = op.arrivals;
    let each = [(counts.ok, "ok"), (counts.refused, "refused"), (counts.unknown, "unknown"), (counts.errors, "errors")];
    let met = each.into_iter().filter(|(number, _)| *number > 0);
    let rates: Vec<String> =
        met.map(|(number, outcome)| format!("{} {outcome}", per_second(number, measured_ns(report, name)))).collect();
    (!rates.is_empty()).then(|| format!("{name} {}", rates.join(", ")))
}

/// How late the generator started them; none when it started none.
fn lateness(name: &str, op: &Operation) -> Option<String> {
    let late = &op.lateness;
    let (p50, p99) = (at(late.p50_ns, Percentile::P50), at(late.p99_ns, Percentile::P99));
    Some(format!("{name} p50 {p50}, p99 {p99}, max {}", time(late.max_ns?)))
}

fn usage(usage: &Usage) -> String {
    let pid = usage.pid.map_or_else(|| "not a process of this machine".to_owned(), |pid| format!("pid {pid}"));
    match (usage.cpu_percent_mean, usage.rss_bytes_max) {
        (Some(cpu), Some(rss)) => format!("{pid}, CPU {}, memory up to {}", percent(cpu), bytes(rss)),
        (None, Some(rss)) => format!("{pid}, CPU not measured, memory up to {}", bytes(rss)),
        _ => format!("{pid}, CPU and memory not measured"),
    }
}

fn environment(report: &Report) -> String {
    let environment = &report.environment;
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let number = |value: Option<usize>| value.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
    let store = &environment.store;
    format!(
        "{}, cores {}, kernel {}, {} build, commit {}\n{:13}nats-server {}, replicas {}, storage {}, sync_interval {}",
        known(&environment.cpu_model),
        number(environment.cores),
        known(&environment.kernel),
        environment.profile,
        environment.git_commit.as_deref().map_or("unknown", |commit| commit.get(..12).unwrap_or(commit)),
        "",
        known(&store.nats_server_version),
        number(store.replicas),
        known(&store.storage),
        known(&store.sync_interval),
    )
}

/// A word of a command line as a shell takes it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests;
