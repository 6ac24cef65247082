//! `loadgen compare`: whether one run's operations got slower than another's, or cost more, or went wrong more often.
//!
//! What is exact is compared exactly: anomalies, errors, arrivals that were dropped, unknowns where nothing was done to the
//! brokers, and the requests of an operation that took the same number every time in both. What is not is compared by its significance
//! (see `spread`): a median is worse when the whole interval of its ratio lies above a threshold, and better when all of it
//! lies below the inverse. An interval that holds a threshold says nothing either way and fails nothing. All the intervals of a
//! comparison together are wrong once in twenty comparisons, if that.
//!
//! Runs of different environments, parameters or seeds are compared all the same, and the outcome is advice: neither a pass nor
//! a failure. So it is where no latency could be compared and nothing else is worse: a run that came to nothing is a failure.

mod conditions;
mod spread;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

pub(crate) use spread::{autocorrelation, normal};

use crate::exit::Exit;
use crate::report::{Distribution, Operation, Report, TimeBlock};
use crate::table::table;
use crate::table::units::{count, time};
use spread::{Draw, Sure};

/// Above these a ratio is worse, and below their inverse better. Two runs of one build on one machine lie apart by as much: in
/// which member leads, in where the files lie, in what else the machine does.
const MEDIAN: f64 = 1.15;
const TAIL: f64 = 1.3;
const REQUESTS: f64 = 1.05;

/// How many values lie beyond a percentile, at least, before it is compared.
const BEYOND: u64 = 10;
/// In how many blocks of time, at least.
const BLOCKS: usize = 8;
/// How often a comparison of two runs that do not differ may say that they do.
const DOUBT: f64 = 0.05;

const EXITS: &str = "\
Exit codes:
  0  nothing is worse
  2  a file cannot be read, or is no report
  3  something is worse, or missing
  4  the two cannot be compared: what was found is advice

Example:
  loadgen compare before/report.json after/report.json";

/// Holds a report against an earlier one: what got slower, what costs more, what is missing.
#[derive(Debug, Args)]
#[command(after_help = EXITS)]
pub struct CompareArgs {
    /// The earlier report.
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// The later one.
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
}

/// A file is no report.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the report {}: {source}", path.display())]
pub struct LoadError {
    path: PathBuf,
    source: std::io::Error,
}

/// Reads a report.
///
/// # Errors
/// When there is none, or one of another form.
pub fn load(path: &Path) -> Result<Report, LoadError> {
    let read = fs::read(path).and_then(|text| Ok(serde_json::from_slice(&text)?));
    read.map_err(|source| LoadError { path: path.to_owned(), source })
}

/// What a figure came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Better, beyond doubt and by more than the threshold.
    Better,
    /// Within the threshold, beyond doubt; of an exact figure: the same.
    Same,
    /// Neither.
    CannotTell,
    /// Worse, beyond doubt and by more than the threshold; or not there any more.
    Worse,
}

impl Finding {
    fn name(self) -> &'static str {
        match self {
            Finding::Better => "better",
            Finding::Same => "same",
            Finding::CannotTell => "cannot tell",
            Finding::Worse => "WORSE",
        }
    }

    fn of([_, low, high]: [f64; 3], threshold: f64) -> Finding {
        match () {
            () if low > threshold => Finding::Worse,
            () if high < 1.0 / threshold => Finding::Better,
            () if low > 1.0 / threshold && high < threshold => Finding::Same,
            () => Finding::CannotTell,
        }
    }

    fn exact(before: u64, after: u64) -> Finding {
        match after.cmp(&before) {
            std::cmp::Ordering::Less => Finding::Better,
            std::cmp::Ordering::Equal => Finding::Same,
            std::cmp::Ordering::Greater => Finding::Worse,
        }
    }
}

/// One figure of both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it is a figure of: an operation, or the run.
    pub of: String,
    /// Which figure.
    pub figure: &'static str,
    /// What it was.
    pub before: String,
    /// What it is.
    pub after: String,
    /// The ratio of the two and its interval; none of an exact figure.
    pub ratio: Option<[f64; 3]>,
    /// What it came to.
    pub finding: Finding,
}

/// What a comparison came to.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Why it is advice only; empty where it is not.
    pub only_advice: Vec<String>,
    /// What was not compared, and why that fails nothing.
    pub remarks: Vec<String>,
    /// Every figure that was compared.
    pub rows: Vec<Row>,
}

/// The latencies that are compared. A refusal takes other requests than a yes, so each is held against its own kind: of four who
/// race for a seat three are refused, and a slower winner would vanish among them.
const QUANTILES: [Quantile; 4] = [
    Quantile { figure: "p50", of_ten_thousand: 5_000, threshold: MEDIAN, needed: true, of: |block| &block.ok_us },
    Quantile { figure: "p99", of_ten_thousand: 9_900, threshold: TAIL, needed: true, of: |block| &block.ok_us },
    Quantile {
        figure: "refused p50",
        of_ten_thousand: 5_000,
        threshold: MEDIAN,
        needed: false,
        of: |block| &block.refused_us,
    },
    Quantile {
        figure: "refused p99",
        of_ten_thousand: 9_900,
        threshold: TAIL,
        needed: false,
        of: |block| &block.refused_us,
    },
];

/// A figure that is compared by its significance, before it is known how many there are.
struct Pending {
    row: Row,
    threshold: f64,
    sure: [Sure; 2],
}

impl Comparison {
    /// Holds `after` against `before`.
    pub fn of(before: &Report, after: &Report) -> Comparison {
        let mut found = Comparison { only_advice: conditions::differing(before, after), ..Comparison::default() };
        found.anomalies(before, after);
        let mut pending = Vec::new();
        let calm = before.faults.is_empty() && after.faults.is_empty();
        for (name, op) in before.measurements.ops.iter().filter(|(_, op)| op.arrivals.scheduled > 0) {
            match after.measurements.ops.get(name).filter(|op| op.arrivals.scheduled > 0) {
                None => found.exact(name, "operations", op.arrivals.scheduled, "missing", Finding::Worse),
                Some(now) => {
                    found.counts(name, op, now, calm);
                    pending.extend(found.requests(name, [op, now], [before, after]));
                    for quantile in &QUANTILES {
                        pending.extend(found.latency(name, quantile, [op, now], [before, after]));
                    }
                }
            }
        }
        let is_new = |name: &&String| before.measurements.ops.get(*name).is_none_or(|op| op.arrivals.scheduled == 0);
        let met = after.measurements.ops.iter().filter(|(_, op)| op.arrivals.scheduled > 0).map(|(name, _)| name);
        found.remarks.extend(met.filter(is_new).map(|name| format!("{name}: new in the later run")));
        // What is missing or wrong needs no latency beside it: a run that collapsed has none to compare.
        if pending.is_empty() && found.worse().next().is_none() {
            found.only_advice.push("no latency of the two could be compared".to_owned());
        }
        // Each of them may be wrong so rarely that all together are rarely wrong.
        let doubt = DOUBT / pending.len() as f64;
        for Pending { mut row, threshold, sure: [was, is] } in pending {
            let ratio = was.ratio(is, doubt);
            (row.ratio, row.finding) = (Some(ratio), Finding::of(ratio, threshold));
            found.rows.push(row);
        }
        found.rows.sort_by(|a, b| (&a.of, a.figure).cmp(&(&b.of, b.figure)));
        found
    }

    /// The exit code that says so.
    pub fn exit(&self) -> Exit {
        match () {
            () if !self.only_advice.is_empty() => Exit::Unavailable,
            () if self.worse().next().is_some() => Exit::Missed,
            () => Exit::Ok,
        }
    }

    /// The figures that are worse.
    pub fn worse(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.finding == Finding::Worse)
    }

    /// The text that a person reads.
    pub fn render(&self) -> String {
        let worse: Vec<String> = self.worse().map(|row| format!("{} {}", row.of, row.figure)).collect();
        let worse =
            if worse.is_empty() { "nothing is worse".to_owned() } else { format!("worse: {}", worse.join(", ")) };
        let mut text = match self.only_advice.is_empty() {
            true => format!("comparison: {worse}\n"),
            false => format!("comparison: advice only, neither passed nor failed; {worse}\n"),
        };
        self.only_advice.iter().for_each(|why| text.push_str(&format!("advice only: {why}\n")));
        self.remarks.iter().for_each(|remark| text.push_str(&format!("not compared: {remark}\n")));
        let rows = self.rows.iter().map(|row| {
            let [ratio, between] = row.ratio.map_or_else(
                || ["-".to_owned(), "exact".to_owned()],
                |[ratio, low, high]| [format!("{ratio:.2}"), format!("{low:.2} to {high:.2}")],
            );
            let (of, figure, finding) = (row.of.clone(), row.figure.to_owned(), row.finding.name().to_owned());
            vec![of, figure, row.before.clone(), row.after.clone(), ratio, between, finding]
        });
        let header = ["", "figure", "before", "after", "ratio", "surely", "so"];
        text.push_str(&format!("\n{}\n", table(header.iter(), rows)));
        text.push_str(&format!(
            "\nWorse: the whole interval lies above {MEDIAN} (p50), {TAIL} (p99), {REQUESTS} (requests that vary); \
             exact figures: any increase.\n"
        ));
        text
    }

    fn exact(&mut self, of: &str, figure: &'static str, before: u64, after: impl ToString, finding: Finding) {
        let (of, before, after) = (of.to_owned(), count(before), after.to_string());
        self.rows.push(Row { of, figure, before, after, ratio: None, finding });
    }

    fn anomalies(&mut self, before: &Report, after: &Report) {
        let (was, is) = (before.findings.anomalies().each(), after.findings.anomalies().each());
        for ((name, was), (_, is)) in was.into_iter().zip(is).filter(|((_, was), (_, is))| was + is > 0) {
            self.exact("anomalies", name, was, count(is), Finding::exact(was, is));
        }
    }

    fn counts(&mut self, name: &str, was: &Operation, is: &Operation, calm: bool) {
        let (was, is) = (&was.arrivals, &is.arrivals);
        let unknown = ("unknown", was.unknown, is.unknown);
        let counts = [("errors", was.errors, is.errors), ("dropped", was.dropped, is.dropped)];
        for (figure, was, is) in counts.into_iter().chain(calm.then_some(unknown)).filter(|(_, was, is)| was + is > 0) {
            self.exact(name, figure, was, count(is), Finding::exact(was, is));
        }
    }

    fn requests(&mut self, name: &str, ops: [&Operation; 2], reports: [&Report; 2]) -> Option<Pending> {
        let figure = "requests";
        let [was, is] = ops.map(|op| op.requests_per_op);
        let was = was?;
        let text = |value: f64| format!("{value:.3}");
        let row = |after, finding| Row { of: name.to_owned(), figure, before: text(was), after, ratio: None, finding };
        let Some(is) = is.filter(|is| is.is_finite()) else {
            self.rows.push(row("none".to_owned(), Finding::Worse));
            return None;
        };
        let each =
            |op: &Operation| op.blocks.iter().map(|block| vec![block.requests as f64, block.ended as f64]).collect();
        let mean = |blocks: &[&[f64]]| {
            let sum = |index: usize| blocks.iter().map(|block| block[index]).sum::<f64>();
            Some(sum(0) / sum(1))
        };
        // Where all of both runs took the same number, it is exact. A write that has to look again, because another came first
        // or a broker led no more, takes one more, and how many do is chance.
        if was.fract() == 0.0 && is.fract() == 0.0 {
            let finding = Finding::exact((was * 1000.0).round() as u64, (is * 1000.0).round() as u64);
            self.rows.push(row(text(is), finding));
            return None;
        }
        let of = |side: usize| Sure::of(&draws(ops[side], reports[side], each(ops[side])), &mean);
        let sure = self.enough(name, figure, ops).then(|| Some([of(0)?, of(1)?]))??;
        Some(Pending { row: row(text(is), Finding::CannotTell), threshold: REQUESTS, sure })
    }

    fn latency(
        &mut self,
        name: &str,
        quantile: &Quantile,
        ops: [&Operation; 2],
        reports: [&Report; 2],
    ) -> Option<Pending> {
        let figure = quantile.figure;
        let [was, is] = ops.map(|op| quantile.counted(op));
        if was == 0 {
            return None;
        }
        let row = |before, after, finding| Row { of: name.to_owned(), figure, before, after, ratio: None, finding };
        if is == 0 && quantile.needed {
            self.rows.push(row(format!("of {}", count(was)), "none".to_owned(), Finding::Worse));
            return None;
        }
        if quantile.beyond(was.min(is)) < BEYOND {
            self.remarks.push(format!(
                "{name} {figure}: {} and {} answers, and it takes {BEYOND} that lie beyond it",
                count(was),
                count(is)
            ));
            return None;
        }
        if !self.enough(name, figure, ops) {
            return None;
        }
        let tops: Vec<u64> = {
            let all =
                ops.iter().flat_map(|op| op.blocks.iter().flat_map(|block| (quantile.of)(block).0.keys().copied()));
            let mut all: Vec<u64> = all.collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let at = |blocks: &[&[f64]]| quantile.at(&tops, blocks);
        // Of each block, how many of its values lie up to each top.
        let each = |op: &Operation| {
            let up_to = |block: &TimeBlock| {
                let mut sum = 0.0;
                let count = |top| (quantile.of)(block).0.get(top).map_or(0.0, |count| *count as f64);
                let add = |top| {
                    sum += count(top);
                    sum
                };
                tops.iter().map(add).collect()
            };
            op.blocks.iter().map(up_to).collect()
        };
        let of = |side: usize| {
            let draws = draws(ops[side], reports[side], each(ops[side]));
            let whole = at(&draws.iter().map(|draw| &draw.weights[..]).collect::<Vec<_>>())?;
            Some((Sure::of(&draws, &at)?, time((whole * 1000.0) as u64)))
        };
        let ((was, before), (is, after)) = (of(0)?, of(1)?);
        let row = row(before, after, Finding::CannotTell);
        Some(Pending { row, threshold: quantile.threshold, sure: [was, is] })
    }

    /// Whether both runs have blocks enough, with a remark where they have not.
    fn enough(&mut self, name: &str, figure: &str, ops: [&Operation; 2]) -> bool {
        let [was, is] = ops.map(|op| op.blocks.len());
        let enough = was.min(is) >= BLOCKS;
        if !enough {
            self.remarks
                .push(format!("{name} {figure}: it was met in {was} and {is} blocks of time, and it takes {BLOCKS}"));
        }
        enough
    }
}

struct Quantile {
    figure: &'static str,
    of_ten_thousand: u64,
    threshold: f64,
    /// Whether a run without any such answer is worse for it.
    needed: bool,
    /// Which of a block's latencies.
    of: fn(&TimeBlock) -> &Distribution,
}

impl Quantile {
    /// How many values an operation's blocks hold.
    fn counted(&self, op: &Operation) -> u64 {
        op.blocks.iter().flat_map(|block| (self.of)(block).0.values()).sum()
    }

    /// How many of so many values lie beyond it.
    fn beyond(&self, of: u64) -> u64 {
        of.saturating_mul(10_000 - self.of_ten_thousand) / 10_000
    }

    /// It, in microseconds, of blocks that hold so many values up to each of the tops.
    fn at(&self, tops: &[u64], blocks: &[&[f64]]) -> Option<f64> {
        let up_to = |index: usize| blocks.iter().map(|block| block[index]).sum::<f64>();
        let total = up_to(tops.len().checked_sub(1)?);
        let wanted = total * self.of_ten_thousand as f64 / 10_000.0;
        let (mut low, mut high) = (0, tops.len() - 1);
        while low < high {
            let middle = (low + high) / 2;
            if up_to(middle) >= wanted { high = middle } else { low = middle + 1 }
        }
        (total > 0.0).then(|| tops[low] as f64)
    }
}

/// An operation's blocks with their part of the run, in the order of time.
fn draws(op: &Operation, report: &Report, weights: Vec<Vec<f64>>) -> Vec<Draw> {
    let middle = report.measurements.block_ns / 2;
    let part = |t_ns: u64| report.phases.iter().filter(|phase| phase.start_ns <= t_ns + middle).count();
    op.blocks.iter().zip(weights).map(|(block, weights)| Draw { part: part(block.t_ns), weights }).collect()
}

#[cfg(test)]
mod tests;
