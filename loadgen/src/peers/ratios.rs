//! The layer against the others, work by work.
//!
//! All have their turns in one round on the same machine, so what is compared is a round's figure with the same round's. A
//! ratio is that of the medians over the rounds; how far it can be trusted, the least and the most of the rounds' own say.

use serde_json::{Map, Value, json};

use super::tally::{Round, Rounds};
use super::turns::{Column, Figure, WORKS, Work};
use crate::rounds::spread;

/// As a report has it, by work and column; what has no two sides is left out.
pub(super) fn reported(rounds: &Rounds) -> Value {
    let of_work = |work: &Work| {
        let (figure, layers, others) = work.contest()?;
        let of = |work: &str, column: Column| rounds.get(&*format!("{work}/{}", column.name()));
        let layer = of(layers, Column::Layer)?;
        let against = |column: Column| Some((column.name().to_owned(), ratio(figure, layer, of(others, column)?)?));
        let mut all: Map<String, Value> = Column::OTHERS.into_iter().filter_map(against).collect();
        if all.is_empty() {
            return None;
        }
        all.insert("of".to_owned(), figure.name().into());
        Some((work.name.to_owned(), all.into()))
    };
    Value::Object(WORKS.iter().filter_map(of_work).collect())
}

fn ratio(figure: Figure, layer: &[Round], other: &[Round]) -> Option<Value> {
    let figures = |rounds: &[Round]| rounds.iter().filter_map(|round| round.figure(figure)).collect::<Vec<_>>();
    let over = |layer: f64, other: f64| (other > 0.0).then(|| layer / other);
    let medians = over(spread(&figures(layer))?.0, spread(&figures(other))?.0)?;
    let paired =
        layer.iter().zip(other).filter_map(|(layer, other)| over(layer.figure(figure)?, other.figure(figure)?));
    let (_, least, most) = spread(&paired.collect::<Vec<_>>())?;
    Some(json!({ "of_medians": medians, "least": least, "most": most }))
}

/// A line for each work, from what is reported.
pub(super) fn remarks(reported: &Value) -> Vec<String> {
    let line = |work: &Work| {
        let (ratios, (figure, ..)) = (reported.get(work.name)?, work.contest()?);
        let against = |column: Column| {
            let number = |which: &str| ratios.get(column.name())?.get(which)?.as_f64();
            let (ratio, least, most) = (number("of_medians")?, number("least")?, number("most")?);
            Some(format!("{} {ratio:.2} ({least:.2} to {most:.2})", column.name()))
        };
        let what = match figure {
            Figure::Rate => "rate",
            Figure::Median => "p50",
            Figure::Cpu => "CPU of the servers",
        };
        let all: Vec<String> = Column::OTHERS.into_iter().filter_map(against).collect();
        Some(format!("{}: {what}, layer against {}", work.name, all.join(", ")))
    };
    WORKS.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds<const N: usize>(of: impl Fn(f64) -> Round, values: [f64; N]) -> Vec<Round> {
        values.into_iter().map(of).collect()
    }

    #[test]
    fn rounds_are_paired_and_a_ratio_is_that_of_the_medians() {
        let rate = |value: f64| Round { per_second: Some(value), ..Round::default() };
        let p50 = |value: f64| Round { p50_ns: Some(value as u64), ..Round::default() };
        let cpu = |value: f64| Round { servers_cpu_percent: Some(value), ..Round::default() };
        let all = Rounds::from([
            ("claim/layer", rounds(rate, [10.0, 30.0, 20.0])),
            ("claim/floor", rounds(rate, [40.0, 60.0, 20.0])),
            // Interrupted before its last turn.
            ("claim/kv", rounds(rate, [20.0, 60.0])),
            ("renew_paced/layer", rounds(cpu, [4.0])),
            ("renew_burst/kv", rounds(cpu, [8.0])),
            ("list_5/etcd_seats", rounds(p50, [500.0])),
            ("list_5_proved/layer", rounds(p50, [1000.0])),
            ("charge/layer", rounds(rate, [5.0])),
            ("charge/kv", rounds(rate, [0.0])),
        ]);
        let reported = reported(&all);
        let ratio = |of: f64, least: f64, most: f64| json!({ "of_medians": of, "least": least, "most": most });
        let expected = json!({
            "claim": { "of": "per_second", "floor": ratio(0.5, 0.25, 1.0), "kv": ratio(0.5, 0.5, 0.5) },
            "renew_burst": { "of": "servers_cpu_percent", "kv": ratio(0.5, 0.5, 0.5) },
            "list_5_proved": { "of": "p50_ns", "etcd_seats": ratio(2.0, 2.0, 2.0) },
        });
        assert_eq!(reported, expected, "what came to nothing has no ratio");
        let lines = [
            "claim: rate, layer against floor 0.50 (0.25 to 1.00), kv 0.50 (0.50 to 0.50)",
            "renew_burst: CPU of the servers, layer against kv 0.50 (0.50 to 0.50)",
            "list_5_proved: p50, layer against etcd_seats 2.00 (2.00 to 2.00)",
        ];
        assert_eq!(remarks(&reported), lines);
    }
}
