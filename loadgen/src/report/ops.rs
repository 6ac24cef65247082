//! The measured part of a report, taken from the recorder.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::blocks::Block;
use crate::histogram::{Percentiles, nanos};
use crate::recorder::{Counts, Latency, Outcome, Snapshot};

/// What was measured of all operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurements {
    /// The results, by operation; every declared one is there.
    pub ops: BTreeMap<String, Operation>,
    /// What came before the measurement, by operation; in no result.
    pub warmup: BTreeMap<String, Arrivals>,
    /// The width of the intervals of `series`.
    pub series_interval_ns: u64,
    /// The operations over time, without intervals in which nothing ended.
    pub series: Vec<SeriesPoint>,
    /// The width of the operations' `blocks`.
    pub block_ns: u64,
}

/// How many operations reached which state. `scheduled = started + dropped`, and
/// `started = ok + refused + unknown + errors + in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the recorder documents them")]
pub struct Arrivals {
    pub scheduled: u64,
    pub started: u64,
    pub ok: u64,
    pub refused: u64,
    pub unknown: u64,
    pub errors: u64,
    pub dropped: u64,
    pub in_flight: u64,
}

/// The results of one operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// How many there were.
    #[serde(flatten)]
    pub arrivals: Arrivals,
    /// Mean requests to the broker of an ended one; null when none ended.
    pub requests_per_op: Option<f64>,
    /// Ended ones whose corrected latency is over the 60 s that histograms hold.
    pub overflow: u64,
    /// Ended ones that were on their way while the generator stalled: that time is not in their service latency.
    pub spanned_stall: u64,
    /// When the first and the last of the unknown ended; null when there were none.
    pub unknown_window: Option<Window>,
    /// Actual minus intended start.
    pub lateness: Lateness,
    /// Of definite answers, ok and refused. An unknown or an error is no answer and in neither column.
    pub latency: Columns,
    /// Of ok answers alone.
    pub latency_ok: Columns,
    /// Of refusals alone.
    pub latency_refused: Columns,
    /// Of operations whose outcome is unknown: how long it took to find out so.
    pub latency_unknown: Columns,
    /// Of errors.
    pub latency_errors: Columns,
    /// The operation in blocks of time, without those in which nothing ended: what two runs are compared by.
    pub blocks: Vec<TimeBlock>,
}

/// What ended in a block of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeBlock {
    /// When it began.
    pub t_ns: u64,
    /// How many ended in it, in whichever way.
    pub ended: u64,
    /// Requests to the broker that they took.
    pub requests: u64,
    /// The corrected latencies of ok answers.
    pub ok_us: Distribution,
    /// Those of refusals.
    pub refused_us: Distribution,
}

/// How many values lie in each bucket, by its top; as text `127:3 131:9`, the tops going up. See [`crate::blocks::bucket`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Distribution(pub BTreeMap<u64, u64>);

impl From<Distribution> for String {
    fn from(distribution: Distribution) -> String {
        let pairs = distribution.0.iter().map(|(top, count)| format!("{top}:{count}"));
        pairs.collect::<Vec<_>>().join(" ")
    }
}

impl TryFrom<String> for Distribution {
    type Error = String;

    fn try_from(text: String) -> Result<Distribution, String> {
        let pair = |pair: &str| {
            let (top, count) = pair.split_once(':')?;
            Some((top.parse().ok()?, count.parse().ok().filter(|count| *count > 0)?))
        };
        let mut counts = BTreeMap::new();
        for word in text.split_ascii_whitespace() {
            let rule =
                || format!("`{word}` is no bucket: its top, a colon and a count are expected, and tops that go up");
            let (top, count) = pair(word).ok_or_else(rule)?;
            if counts.last_key_value().is_some_and(|(last, _)| *last >= top) {
                return Err(rule());
            }
            counts.insert(top, count);
        }
        Ok(Distribution(counts))
    }
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct Window {
    pub first_ns: u64,
    pub last_ns: u64,
}

/// How late the generator started operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct Lateness {
    pub count: u64,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub max_ns: Option<u64>,
}

/// Both latencies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// From the intended start.
    pub corrected: Percentiles,
    /// From the actual send.
    pub service: Percentiles,
}

/// One interval of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesPoint {
    /// When it began.
    pub t_ns: u64,
    /// What ended in it, by operation.
    pub ops: BTreeMap<String, SeriesOp>,
}

/// One operation in one interval. Latencies are corrected ones of definite answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct SeriesOp {
    pub ok: u64,
    pub refused: u64,
    pub unknown: u64,
    pub errors: u64,
    pub p99_ns: Option<u64>,
    pub max_ns: Option<u64>,
}

impl Measurements {
    /// What a recorder holds.
    pub fn of(snapshot: &[Snapshot]) -> Measurements {
        let interval = snapshot.iter().map(|op| op.measured.interval()).max().unwrap_or(Duration::from_secs(1));
        let mut points: BTreeMap<u64, BTreeMap<String, SeriesOp>> = BTreeMap::new();
        for op in snapshot {
            for (index, point) in (0..).zip(op.measured.over_time(interval)) {
                let [ok, refused, unknown, errors] = point.outcomes;
                if point.outcomes != [0; 4] {
                    let (p99_ns, max_ns) = (point.p99.map(nanos), point.max.map(nanos));
                    let entry = SeriesOp { ok, refused, unknown, errors, p99_ns, max_ns };
                    points.entry(index * nanos(interval)).or_default().insert(op.name.to_owned(), entry);
                }
            }
        }
        let width = snapshot.iter().map(|op| op.measured.block_width()).max().unwrap_or(Duration::from_secs(1));
        Measurements {
            ops: snapshot.iter().map(|op| (op.name.to_owned(), Operation::of(op, width))).collect(),
            warmup: snapshot.iter().map(|op| (op.name.to_owned(), Arrivals::from(op.warmup))).collect(),
            series_interval_ns: nanos(interval),
            series: points.into_iter().map(|(t_ns, ops)| SeriesPoint { t_ns, ops }).collect(),
            block_ns: nanos(width),
        }
    }
}

impl From<Counts> for Arrivals {
    fn from(counts: Counts) -> Arrivals {
        let [ok, refused, unknown, errors] = counts.outcomes;
        Arrivals {
            scheduled: counts.scheduled,
            started: counts.started,
            ok,
            refused,
            unknown,
            errors,
            dropped: counts.dropped(),
            in_flight: counts.in_flight(),
        }
    }
}

impl From<&Latency> for Columns {
    fn from(latency: &Latency) -> Columns {
        Columns { corrected: Percentiles::from(&latency.corrected), service: Percentiles::from(&latency.service) }
    }
}

impl Operation {
    fn of(op: &Snapshot, width: Duration) -> Operation {
        let measured = &op.measured;
        let columns = |outcomes: &[Outcome]| Columns::from(&measured.latency(outcomes));
        let lateness = Percentiles::from(&measured.lateness);
        let ended = measured.counts.ended();
        let mean = measured.requests as f64 / ended as f64;
        Operation {
            arrivals: Arrivals::from(measured.counts),
            requests_per_op: (ended > 0).then(|| (mean * 1000.0).round() / 1000.0),
            overflow: measured.latency(&Outcome::ALL).corrected.overflow(),
            spanned_stall: measured.spanned_stall,
            unknown_window: measured
                .unknown_between
                .map(|(first, last)| Window { first_ns: nanos(first), last_ns: nanos(last) }),
            lateness: Lateness {
                count: lateness.count,
                p50_ns: lateness.p50_ns,
                p99_ns: lateness.p99_ns,
                max_ns: lateness.max_ns,
            },
            latency: columns(&[Outcome::Ok, Outcome::Refused]),
            latency_ok: columns(&[Outcome::Ok]),
            latency_refused: columns(&[Outcome::Refused]),
            latency_unknown: columns(&[Outcome::Unknown]),
            latency_errors: columns(&[Outcome::Error]),
            blocks: blocks(measured.blocks(width), width),
        }
    }
}

fn blocks(blocks: Vec<Block>, width: Duration) -> Vec<TimeBlock> {
    let met = (0..).zip(blocks).filter(|(_, block)| block.ended > 0);
    let block = |(index, Block { ended, requests, ok, refused }): (u64, Block)| TimeBlock {
        t_ns: index * nanos(width),
        ended,
        requests,
        ok_us: Distribution(ok),
        refused_us: Distribution(refused),
    };
    met.map(block).collect()
}
