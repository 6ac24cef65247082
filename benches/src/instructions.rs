//! The instruction gate: counted instructions against the checked-in ones.
//!
//! Gungraun counts, once for each path, under callgrind; its own baselines are files below `target`, so what is checked in is
//! compared here. A count repeats to the last instruction for the same compiler, C library, valgrind and code, whatever else
//! the machine does, and the same code compiled by another compiler is other code: then a change is advice.

use serde_json::Value;

use crate::baseline::{Baseline, Fact, Table, first_line};
use crate::verdict::Wrong;

/// The counts, one of each path.
pub const INSTRUCTIONS: Table = Table { file: "instructions.txt", each: 1 };

/// How many hundredths more than the baseline a path may take, and how many fewer.
pub const PERCENT: u64 = 3;

/// What an instruction count depends on beside the code.
pub fn here() -> Vec<Fact> {
    let fact = |name: &str, value: String| (name.to_owned(), value);
    vec![
        fact("rustc", first_line("rustc", &["--version"])),
        fact("target", std::env::consts::ARCH.to_owned()),
        fact("valgrind", first_line("valgrind", &["--version"])),
        fact("libc", libc(&first_line("ldd", &["--version"]))),
        fact("cpu picks", features().join(" ")),
    ]
}

/// The C library's own version, from the first line of `ldd`: a distribution's patches of it change what is beside the code.
fn libc(line: &str) -> String {
    line.split_whitespace().next_back().unwrap_or("unknown").to_owned()
}

/// What this processor has of what the C library and `memchr` look at to pick their code.
#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    let known = [
        ("sse4.2", is_x86_feature_detected!("sse4.2")),
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("bmi2", is_x86_feature_detected!("bmi2")),
        ("lzcnt", is_x86_feature_detected!("lzcnt")),
    ];
    known.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
}

/// Elsewhere nothing is picked that the target does not say already.
#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<&'static str> {
    vec!["nothing"]
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

/// What is wrong with counts held against the baseline. A path that went missing is wrong too; one that is new is not, as
/// long as it was counted.
pub fn judge(counted: &[(&str, u64)], baseline: &Baseline) -> Vec<Wrong> {
    let mut wrong = baseline.missing(counted.iter().map(|(name, _)| *name), |_| true);
    for &(name, count) in counted {
        let Some(&[was]) = baseline.of(name) else {
            if count == 0 {
                wrong.push(Wrong::Broken(format!("{name}: new, and nothing was counted")));
            }
            continue;
        };
        let told = |why: &str| format!("{name}: {count} instructions, {was} in the baseline: {why}");
        let change = format!("{:+.1} %", 100.0 * (count as f64 / was - 1.0));
        // In whole hundredths of the baseline, so that the limits themselves are let pass.
        let hundredths = count as f64 * 100.0;
        if count == 0 || was <= 0.0 {
            wrong.push(Wrong::Broken(told("nothing was counted")));
        } else if hundredths > was * (100 + PERCENT) as f64 {
            wrong.push(Wrong::Changed(told(&format!("{change}, at most +{PERCENT} %"))));
        } else if hundredths < was * (100 - PERCENT) as f64 {
            wrong.push(Wrong::Changed(told(&format!("{change}, cheaper than the table says: write it down"))));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline() -> Baseline {
        Baseline::parse("leader read | 2000\nkey | 100\n", 1).unwrap()
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
    fn three_in_a_hundred_are_let_pass_either_way_and_more_are_not() {
        assert_eq!(judge(&[("leader read", 2060), ("key", 97)], &baseline()), []);
        let wrong = judge(&[("leader read", 2061), ("key", 96)], &baseline());
        let more = "leader read: 2061 instructions, 2000 in the baseline: +3.0 %, at most +3 %";
        let fewer = "key: 96 instructions, 100 in the baseline: -4.0 %, cheaper than the table says: write it down";
        assert_eq!(wrong, [Wrong::Changed(more.to_owned()), Wrong::Changed(fewer.to_owned())]);
    }

    #[test]
    fn what_was_not_counted_is_broken_and_so_is_what_went_missing_and_what_is_new_is_not() {
        let wrong = judge(&[("leader read", 0), ("new", 5), ("newer", 0)], &baseline());
        assert_eq!(
            wrong.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "key: in the baseline, and missing from this run",
                "leader read: 0 instructions, 2000 in the baseline: nothing was counted",
                "newer: new, and nothing was counted",
            ]
        );
        assert!(wrong.iter().all(|wrong| matches!(wrong, Wrong::Broken(_))), "{wrong:?}");
    }

    #[test]
    fn a_patch_of_the_distribution_is_no_other_library() {
        assert_eq!(libc("ldd (Debian GLIBC 2.36-9+deb12u14) 2.36"), "2.36");
        assert_eq!(libc("ldd (Ubuntu GLIBC 2.39-0ubuntu8.6) 2.39"), "2.39");
        assert_eq!(libc(""), "unknown");
    }
}
