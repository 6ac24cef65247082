//! Percentile distributions in the text format of HdrHistogram, as its public plotter reads them.
//!
//! Four columns, `Value Percentile TotalCount 1/(1-Percentile)`. Values are milliseconds. Percentiles and counts only go up,
//! the last line alone has percentile 1 and `inf`, and its count is the number of samples. What follows it starts with
//! `#[`.

use std::fmt::Write;

use crate::histogram::Samples;

/// Steps per halving of the distance to 100 %.
const TICKS: u32 = 5;

/// The distribution of `samples` as text.
pub fn text(samples: &Samples) -> String {
    let histogram = samples.micros();
    let ms = |micros: f64| micros / 1000.0;
    let total = histogram.len();
    let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    // Writing to a String does not fail.
    let mut below = 0;
    for step in histogram.iter_quantiles(TICKS) {
        below += step.count_since_last_iteration();
        // The step that reaches the last sample is followed by another for the same value at percentile 1.
        if below == total {
            break;
        }
        let quantile = step.quantile_iterated_to();
        let value = ms(step.value_iterated_to() as f64);
        let _ = writeln!(text, "{value:12.3} {quantile:2.12} {below:10} {:14.2}", 1.0 / (1.0 - quantile));
    }
    // The histogram ends at its range, the samples know the longest of all.
    let max = samples.max().unwrap_or_default().as_secs_f64() * 1000.0;
    let _ = writeln!(text, "{max:12.3} {:2.12} {total:10} {:>14}", 1.0, "inf");
    let (mean, deviation) = (ms(histogram.mean()), ms(histogram.stdev()));
    let _ = writeln!(text, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]");
    let _ = writeln!(text, "#[Max     = {max:12.3}, Total count    = {total:12}]");
    let _ = writeln!(text, "#[Buckets = {:12}, SubBuckets     = {:12}]", histogram.buckets(), 2048);
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Value, percentile, count, 1/(1-percentile) of each line, and the footer.
    fn read(text: &str) -> (Vec<[f64; 4]>, Vec<&str>) {
        let mut lines = text.lines();
        assert_eq!(
            lines.next().unwrap().split_whitespace().collect::<Vec<_>>(),
            ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
        );
        assert_eq!(lines.next(), Some(""));
        let (footer, rows): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("#["));
        let row = |line: &&str| {
            let columns = line.split_whitespace().map(|column| column.parse().unwrap()).collect::<Vec<f64>>();
            <[f64; 4]>::try_from(columns).unwrap()
        };
        (rows.iter().map(row).collect(), footer)
    }

    fn check(values: &[Duration]) -> Vec<[f64; 4]> {
        let mut samples = Samples::default();
        values.iter().for_each(|value| samples.record(*value));
        let text = text(&samples);
        let (rows, footer) = read(&text);
        for pair in rows.windows(2) {
            assert!(pair[0][0] <= pair[1][0] && pair[0][1] < pair[1][1] && pair[0][2] <= pair[1][2], "{text}");
            assert!(pair[0][3] < pair[1][3], "{text}");
        }
        let last = rows.last().unwrap();
        let max = values.iter().max().copied().unwrap_or_default();
        assert!(text.contains(&format!("#[Max     = {:12.3},", max.as_secs_f64() * 1000.0)), "{text}");
        assert_eq!(last[1..], [1.0, values.len() as f64, f64::INFINITY], "{text}");
        assert_eq!(text.matches("inf").count(), 1);
        assert_eq!(footer.len(), 3);
        assert!(text.ends_with("]\n") && text.lines().rev().take(3).all(|line| line.starts_with("#[")), "{text}");
        rows
    }

    #[test]
    fn the_distribution_is_well_formed_whatever_the_samples() {
        let ms = Duration::from_millis;
        check(&[]);
        check(&[ms(3)]);
        check(&[ms(3); 100_000]);
        assert_eq!(check(&[ms(1), ms(70_000)]).last().unwrap()[0], 70_000.0, "beyond the histogram's range");
        let spread: Vec<_> = (1..=1_000_000).map(|i| Duration::from_micros(i * 7)).collect();
        let rows = check(&spread);
        let of = |percentile: f64| rows.iter().find(|row| row[1] >= percentile).unwrap()[0];
        assert!((3499.0..3510.0).contains(&of(0.5)), "values are in milliseconds: {}", of(0.5));
        assert!((6929.0..6990.0).contains(&of(0.99)), "{}", of(0.99));
        let lopsided: Vec<_> = (0..100_000).map(|i| if i % 1000 == 0 { ms(900) } else { ms(1) }).collect();
        assert_eq!(check(&lopsided)[0][0], 1.0);
    }
}
