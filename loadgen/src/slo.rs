//! Service levels: what a figure of a run has to stay below, `renew.p99<20ms`.
//!
//! An operation, a point, a figure, `<` or `<=`, and a bound with its unit. Figures and the units of their bounds:
//!
//! - `p50`, `p90`, `p99`, `p99.9`, `max`: the corrected latency of ok answers, a duration. Those of other outcomes are asked for by
//!   name: `claim.refused.p99<50ms`;
//! - `requests`: mean requests to the broker of an operation, a plain number;
//! - `refused`, `unknown`, `errors`, `dropped`, `in_flight`: how many operations, a whole number, or with `%` how many of those
//!   that were scheduled.
//!
//! A figure that was not measured keeps to nothing: no operation of that name ran, or too few for the percentile.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::duration::{self, DurationError};
use crate::histogram::{Percentiles, nanos};
use crate::report::{Measurements, Operation};
use crate::table::units::{count, time};

/// A service level, as it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    text: String,
    operation: String,
    figure: Figure,
    or_equal: bool,
    bound: f64,
    unit: Unit,
}

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Requests to the broker.
    Requests,
    /// Operations.
    Operations,
    /// Of the operations that were scheduled.
    Percent,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    Latency(Answers, At),
    Requests,
    Count(Kind),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answers {
    Ok,
    Refused,
    Unknown,
    Errors,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    P50,
    P90,
    P99,
    P99_9,
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Refused,
    Unknown,
    Errors,
    Dropped,
    InFlight,
}

/// What became of a service level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// As it was asked for.
    pub slo: String,
    /// The figure; null where there is none.
    pub measured: Option<f64>,
    /// What the figure is counted in.
    pub unit: Unit,
    /// Whether the figure is there and keeps to the bound.
    pub met: bool,
}

/// Why a text is no service level: the input, and the rule it breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SloError {
    /// It has no comparison.
    #[error(
        "`{0}` is no service level: an operation, a figure, `<` or `<=` and a bound are expected, like `renew.p99<20ms`"
    )]
    Shape(String),
    /// There is no such figure.
    #[error(
        "`{0}` is no service level: behind the operation's point a figure is expected: p50, p90, p99, p99.9 or max, also of other answers like refused.p99; requests; refused, unknown, errors, dropped or in_flight"
    )]
    Figure(String),
    /// A latency is bounded by something else.
    #[error("`{input}` is no service level: {source}")]
    Duration {
        /// The whole input.
        input: String,
        /// What is wrong with the part behind the comparison.
        source: DurationError,
    },
    /// A number is bounded by something else.
    #[error(
        "`{0}` is no service level: its bound is a number in plain digits, or for a count of operations a share like 0.1%"
    )]
    Number(String),
}

impl FromStr for Slo {
    type Err = SloError;

    fn from_str(input: &str) -> Result<Slo, SloError> {
        let shape = || SloError::Shape(input.to_owned());
        let (asked, bound) = input.split_once('<').ok_or_else(shape)?;
        let (or_equal, bound) = bound.strip_prefix('=').map_or((false, bound), |bound| (true, bound));
        let (operation, figure) = asked.split_once('.').ok_or_else(shape)?;
        if operation.is_empty() || bound.is_empty() {
            return Err(shape());
        }
        let figure = Figure::parse(figure).ok_or_else(|| SloError::Figure(input.to_owned()))?;
        let number = |text: &str| {
            let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && !text.is_empty();
            text.parse::<f64>().ok().filter(|_| plain).ok_or_else(|| SloError::Number(input.to_owned()))
        };
        let (bound, unit) = match (figure, bound.strip_suffix('%')) {
            (Figure::Latency(..), _) => {
                let bound = duration::parse(bound);
                let bound = bound.map_err(|source| SloError::Duration { input: input.to_owned(), source })?;
                (nanos(bound) as f64, Unit::Ns)
            }
            (Figure::Count(_), Some(share)) => (number(share)?, Unit::Percent),
            (Figure::Count(_), None) if bound.contains('.') => return Err(SloError::Number(input.to_owned())),
            (Figure::Count(_), None) => (number(bound)?, Unit::Operations),
            (Figure::Requests, _) => (number(bound)?, Unit::Requests),
        };
        Ok(Slo { text: input.to_owned(), operation: operation.to_owned(), figure, or_equal, bound, unit })
    }
}

impl Figure {
    fn parse(text: &str) -> Option<Figure> {
        let at = |text| match text {
            "p50" => Some(At::P50),
            "p90" => Some(At::P90),
            "p99" => Some(At::P99),
            "p99.9" => Some(At::P99_9),
            "max" => Some(At::Max),
            _ => None,
        };
        let of = |text| match text {
            "ok" => Some(Answers::Ok),
            "refused" => Some(Answers::Refused),
            "unknown" => Some(Answers::Unknown),
            "errors" => Some(Answers::Errors),
            _ => None,
        };
        Some(match text {
            "requests" => Figure::Requests,
            "refused" => Figure::Count(Kind::Refused),
            "unknown" => Figure::Count(Kind::Unknown),
            "errors" => Figure::Count(Kind::Errors),
            "dropped" => Figure::Count(Kind::Dropped),
            "in_flight" => Figure::Count(Kind::InFlight),
            _ => match at(text) {
                Some(at) => Figure::Latency(Answers::Ok, at),
                None => {
                    let (answers, rest) = text.split_once('.')?;
                    Figure::Latency(of(answers)?, at(rest)?)
                }
            },
        })
    }

    /// The figure of an operation, in `unit`; none where nothing stands behind it.
    fn of(self, op: &Operation, unit: Unit) -> Option<f64> {
        match self {
            Figure::Latency(answers, at) => {
                let columns = match answers {
                    Answers::Ok => &op.latency_ok,
                    Answers::Refused => &op.latency_refused,
                    Answers::Unknown => &op.latency_unknown,
                    Answers::Errors => &op.latency_errors,
                };
                at.of(&columns.corrected).map(|ns| ns as f64)
            }
            Figure::Requests => op.requests_per_op,
            Figure::Count(kind) => {
                let arrivals = &op.arrivals;
                let number = match kind {
                    Kind::Refused => arrivals.refused,
                    Kind::Unknown => arrivals.unknown,
                    Kind::Errors => arrivals.errors,
                    Kind::Dropped => arrivals.dropped,
                    Kind::InFlight => arrivals.in_flight,
                } as f64;
                // Of none there is no share. And that none was unknown says nothing where none ended, nor that none is in flight
                // where none was started.
                let behind = match kind {
                    Kind::Refused | Kind::Unknown | Kind::Errors => {
                        arrivals.ok + arrivals.refused + arrivals.unknown + arrivals.errors
                    }
                    Kind::InFlight => arrivals.started,
                    Kind::Dropped => arrivals.scheduled,
                };
                let share = number / arrivals.scheduled as f64 * 100.0;
                (behind > 0).then_some(if unit == Unit::Percent { share } else { number })
            }
        }
    }
}

impl At {
    fn of(self, values: &Percentiles) -> Option<u64> {
        match self {
            At::P50 => values.p50_ns,
            At::P90 => values.p90_ns,
            At::P99 => values.p99_ns,
            At::P99_9 => values.p99_9_ns,
            At::Max => values.max_ns,
        }
    }
}

impl Slo {
    /// The operation it is about.
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// Whether a run kept to it.
    pub fn judge(&self, measurements: &Measurements) -> Judged {
        let measured = measurements.ops.get(&self.operation).and_then(|op| self.figure.of(op, self.unit));
        let keeps = |figure: f64| figure < self.bound || self.or_equal && figure == self.bound;
        Judged { slo: self.text.clone(), measured, unit: self.unit, met: measured.is_some_and(keeps) }
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figure = match (self.measured, self.unit) {
            (None, _) => "not measured".to_owned(),
            (Some(ns), Unit::Ns) => time(ns as u64),
            (Some(requests), Unit::Requests) => format!("{requests:.3} requests"),
            (Some(number), Unit::Operations) => count(number as u64),
            (Some(share), Unit::Percent) => format!("{share:.4} %"),
        };
        write!(f, "slo {}: {figure}: {}", self.slo, if self.met { "kept" } else { "MISSED" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::full;
    use crate::report::{Anomalies, Arrivals};

    fn judged(slo: &str) -> Judged {
        slo.parse::<Slo>().unwrap().judge(&full(Anomalies::default()).measurements)
    }

    #[test]
    fn a_figure_keeps_to_its_bound_or_misses_it() {
        for (slo, met) in [
            ("renew.p99<20ms", true),
            ("renew.p99<500us", false),
            ("renew.p99.9<1ms", true),
            ("renew.max<1ms", true),
            ("claim.max<=49ms", true),
            ("claim.max<49ms", false),
            ("renew.refused.p50<=3ms", true),
            ("renew.refused.p50<3ms", false),
            ("renew.unknown.max<2s", false),
            ("renew.unknown.max<=2100ms", true),
            ("renew.requests<=1", true),
            ("renew.requests<1", false),
            ("claim.requests<2.5", true),
            ("renew.unknown<38", true),
            ("renew.unknown<37", false),
            ("renew.unknown<0.7%", true),
            ("renew.unknown<0.6%", false),
            ("renew.dropped<1", false),
            ("renew.errors<=60", true),
            ("renew.in_flight<1", true),
            ("claim.refused<1", true),
        ] {
            let judged = judged(slo);
            assert_eq!((judged.met, judged.slo.as_str()), (met, slo), "{judged}");
            assert!(judged.measured.is_some());
        }
    }

    #[test]
    fn what_was_not_measured_keeps_to_nothing() {
        for slo in
            ["claim.p99<60s", "release.p50<60s", "release.unknown<1", "release.unknown<1%", "claim.refused.p50<1s"]
        {
            let judged = judged(slo);
            assert!(!judged.met && judged.measured.is_none(), "{judged}");
            assert!(judged.to_string().ends_with("not measured: MISSED"), "{judged}");
        }
        assert!(!judged("sweep.requests<100").met);
    }

    #[test]
    fn what_never_ended_keeps_to_nothing() {
        let mut measurements = full(Anomalies::default()).measurements;
        let renew = measurements.ops.get_mut("renew").unwrap();
        renew.arrivals = Arrivals { scheduled: 900, dropped: 900, ..Arrivals::default() };
        let judge = |slo: &str, of: &Measurements| slo.parse::<Slo>().unwrap().judge(of);
        for slo in ["renew.unknown<1", "renew.unknown<1%", "renew.errors<1", "renew.refused<1", "renew.in_flight<1"] {
            let judged = judge(slo, &measurements);
            assert!(!judged.met && judged.measured.is_none(), "{judged}");
        }
        assert_eq!(judge("renew.dropped<1", &measurements).measured, Some(900.0));
        let renew = measurements.ops.get_mut("renew").unwrap();
        renew.arrivals = Arrivals { scheduled: 900, started: 900, in_flight: 900, ..Arrivals::default() };
        assert!(!judge("renew.unknown<1", &measurements).met);
        assert_eq!(judge("renew.in_flight<1", &measurements).measured, Some(900.0));
    }

    #[test]
    fn what_is_asked_of_ok_answers_is_told_of_them_alone() {
        let report = full(Anomalies::default());
        let ok = report.measurements.ops["renew"].latency_ok.corrected.p99_ns.map(|ns| ns as f64);
        assert_eq!(judged("renew.p99<1s").measured, ok);
        assert_eq!(judged("renew.ok.p99<1s").measured, ok);
        assert_ne!(judged("renew.refused.p50<1s").measured, judged("renew.p50<1s").measured);
    }

    #[test]
    fn what_makes_no_sense_names_the_input_and_the_rule() {
        for (input, rule) in [
            ("renew", "like `renew.p99<20ms`"),
            ("renew<20ms", "like `renew.p99<20ms`"),
            (".p99<20ms", "like `renew.p99<20ms`"),
            ("renew.p99>20ms", "`<` or `<=`"),
            ("renew.p99<", "a bound"),
            ("renew.p98<20ms", "p50, p90"),
            ("renew.mean<20ms", "p50, p90"),
            ("renew.late.p99<20ms", "p50, p90"),
            ("renew.p99<20", "`20` is not a duration"),
            ("renew.p99<0s", "longer than zero"),
            ("renew.p99<1%", "not a duration"),
            ("renew.requests<1ms", "plain digits"),
            ("renew.requests<1%", "plain digits"),
            ("renew.requests<NaN", "plain digits"),
            ("renew.unknown<inf", "plain digits"),
            ("renew.unknown<-1", "plain digits"),
            ("renew.unknown<1.5", "plain digits"),
            ("renew.unknown<%", "plain digits"),
            ("renew.unknown<1e3", "plain digits"),
        ] {
            let error = input.parse::<Slo>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{input}`")) && error.contains(rule), "{input}: {error}");
        }
    }
}
