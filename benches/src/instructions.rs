//! The instruction gate: counted instructions against the checked-in ones.
//!
//! Gungraun counts, once for each path, under callgrind; its own baselines are files below `target`, so what is checked in is
//! compared here. A count repeats to the last instruction for the same compiler, C library, valgrind and code, whatever else
//! the machine does, and the same code compiled by another compiler is other code: then the gate advises and does not fail.

use serde_json::Value;

use crate::baseline::{Baseline, Fact, first_line};

/// How many hundredths more than the baseline a path may take.
pub const PERCENT: u64 = 3;

/// What an instruction count depends on beside the code.
pub fn here() -> Vec<Fact> {
    let fact = |name: &str, value: String| (name.to_owned(), value);
    vec![
        fact("rustc", first_line("rustc", &["--version"])),
        fact("target", std::env::consts::ARCH.to_owned()),
        fact("valgrind", first_line("valgrind", &["--version"])),
        fact("libc", first_line("ldd", &["--version"])),
    ]
}

/// The instructions that gungraun counted, from its summaries, one a line: the number of the path, and its count.
///
/// # Errors
/// A line that is no such summary.
pub fn read(summaries: &str) -> Result<Vec<(usize, u64)>, String> {
    summaries.lines().filter(|line| !line.trim().is_empty()).map(summary).collect()
}

fn summary(line: &str) -> Result<(usize, u64), String> {
    let summary: Value = serde_json::from_str(line).map_err(|error| format!("no summary: {error}: {line}"))?;
    let id = summary["id"].as_str().unwrap_or_default();
    let number = id.rsplit('_').next().and_then(|number| number.parse().ok());
    let number = number.ok_or_else(|| format!("a summary of {id:?}, which has no number"))?;
    let metrics = &summary["profiles"][0]["data"]["total"]["metrics"];
    let count = metrics["Ir"]["values"]["new"].as_u64();
    let count = count.ok_or_else(|| format!("a summary of {id} without its instructions: {metrics}"))?;
    Ok((number, count))
}

/// What is wrong with counts held against the baseline, a line for each path, which names it. A path that is new is not wrong.
pub fn judge(counted: &[(&str, u64)], baseline: &Baseline) -> Vec<String> {
    let mut wrong = Vec::new();
    for &(name, count) in counted {
        let Some(&[was]) = baseline.of(name) else { continue };
        // In whole hundredths of the baseline, so that the limit itself is let pass.
        let limit = was * (100 + PERCENT) as f64;
        if count == 0 || was.is_nan() || was <= 0.0 {
            wrong.push(format!("{name}: {count} instructions, {was} in the baseline: nothing was counted"));
        } else if count as f64 * 100.0 > limit {
            let more = 100.0 * (count as f64 / was - 1.0);
            wrong.push(format!(
                "{name}: {count} instructions, {was} in the baseline: {more:+.1} %, at most +{PERCENT} %"
            ));
        }
    }
    let missing = baseline.rows.iter().filter(|(name, _)| counted.iter().all(|(counted, _)| counted != name));
    wrong.extend(missing.map(|(name, _)| format!("{name}: in the baseline, and missing from this run")));
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline() -> Baseline {
        Baseline::parse("leader read | 2000\nkey | 100\n").unwrap()
    }

    #[test]
    fn a_summary_is_read_as_gungraun_writes_it() {
        let line = |metrics: &str| {
            format!(r#"{{"id":"path_7","profiles":[{{"data":{{"total":{{"metrics":{metrics},"regressions":[]}}}}}}]}}"#)
        };
        let first = line(r#"{"Ir":{"values":{"new":1234}}}"#);
        let again = line(r#"{"Ir":{"change":{"diff_pct":"0"},"values":{"new":1235,"old":1234}}}"#);
        assert_eq!(read(&format!("{first}\n{again}\n")), Ok(vec![(7, 1234), (7, 1235)]));
        for bad in
            [line("{}"), line(r#"{"Ir":{"values":{"old":1234}}}"#), "no JSON".to_owned(), first.replace("_7", "")]
        {
            assert!(read(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn three_in_a_hundred_are_let_pass_and_more_are_not() {
        assert_eq!(judge(&[("leader read", 2060), ("key", 103)], &baseline()), Vec::<String>::new());
        let wrong = judge(&[("leader read", 2061), ("key", 90)], &baseline());
        assert_eq!(wrong, ["leader read: 2061 instructions, 2000 in the baseline: +3.0 %, at most +3 %"]);
    }

    /// The plant: a tenth more in one path, ten times over.
    #[test]
    fn a_tenth_more_is_caught_ten_of_ten() {
        let paths = crate::paths::ALL;
        let rows = |plant: usize| -> Vec<(&str, u64)> {
            let count = |n: usize| 1_000 + 40 * n as u64;
            paths
                .iter()
                .enumerate()
                .map(|(n, path)| (path.name, count(n) + u64::from(n == plant) * count(n) / 10))
                .collect()
        };
        let was = rows(usize::MAX).into_iter().map(|(name, count)| (name.to_owned(), vec![count as f64])).collect();
        let baseline = Baseline { rows: was, ..Baseline::default() };
        for (plant, path) in paths.iter().enumerate().take(10) {
            let wrong = judge(&rows(plant), &baseline);
            assert_eq!(wrong.len(), 1, "{wrong:?}");
            assert!(wrong[0].starts_with(path.name) && wrong[0].contains("+10.0 %"), "{wrong:?}");
        }
    }

    #[test]
    fn a_path_that_is_missing_or_was_not_counted_is_wrong_and_a_new_one_is_not() {
        let wrong = judge(&[("leader read", 0), ("new", 5)], &baseline());
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].starts_with("leader read: 0 instructions"), "{wrong:?}");
        assert_eq!(wrong[1], "key: in the baseline, and missing from this run");
    }
}
