//! What a gate says in the end: which findings fail it, and which are advice on this machine.

use std::fmt;

/// What is wrong with a benchmark. Each text names it.
#[derive(Clone, Debug, PartialEq)]
pub enum Wrong {
    /// It costs more, or less, than the baseline lets pass. Where the baseline was made elsewhere, that may be the machine's
    /// or the tools' doing, and is advice.
    Changed(String),
    /// It cannot be judged, or what was counted exactly is off: it is missing, nothing was measured, or a request is too
    /// many. No machine explains that, so it fails everywhere.
    Broken(String),
}

impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Wrong::Changed(why) | Wrong::Broken(why)) = self;
        out.write_str(why)
    }
}

/// One in so many benchmarks of a whole run may be without a verdict, for want of quiet, where the baseline was made. A gate
/// that sees less than that holds nothing, however little it finds wrong.
const BLIND: usize = 4;

/// What came of a run of a gate.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// What its lines begin with, and what cargo calls the bench.
    pub gate: &'static str,
    /// How many benchmarks there are.
    pub all: usize,
    /// How many of them were chosen to run. A part of them says so in the last line, so that it is not taken for the gate.
    pub ran: usize,
    /// What is wrong with them.
    pub wrong: Vec<Wrong>,
    /// Those whose samples are too far apart for a verdict.
    pub blind: Vec<String>,
    /// Those that the baseline has no row of. Nothing is wrong with them, and nothing holds them: that both tables have a row
    /// of everything, a unit test sees to.
    pub new: Vec<String>,
}

impl Run {
    /// Ends the gate: prints what is said and fails nothing, and gives the last line. `elsewhere` is how this machine differs
    /// from the one where the baseline was made.
    ///
    /// # Errors
    /// What fails the gate on this machine, a line for each benchmark.
    pub fn settle(&self, elsewhere: &[String]) -> Result<String, Vec<String>> {
        self.said(elsewhere).iter().for_each(|line| println!("{}: {line}", self.gate));
        let failed = self.failed(elsewhere);
        if failed.is_empty() { Ok(self.end(elsewhere)) } else { Err(failed) }
    }

    /// What is said beside the verdict.
    fn said(&self, elsewhere: &[String]) -> Vec<String> {
        let listed = |what: &str, those: &[String]| format!("{what}:\n  {}", those.join("\n  "));
        let mut said = Vec::new();
        if !self.blind.is_empty() {
            said.push(listed("this machine is too noisy for a verdict on", &self.blind));
        }
        if !self.new.is_empty() {
            let how = format!("CREWLET_BASELINE=write cargo bench -p benches --bench {}", self.gate);
            said.push(listed(&format!("NEW, so held against nothing; write it down: {how}"), &self.new));
        }
        if !elsewhere.is_empty() {
            said.push(listed("the baseline was made elsewhere, so that a change is advice", elsewhere));
            let changed = self.wrong.iter().filter(|wrong| matches!(wrong, Wrong::Changed(_)));
            let changed: Vec<String> = changed.map(ToString::to_string).collect();
            if !changed.is_empty() {
                said.push(listed("there it would have failed", &changed));
            }
        }
        said
    }

    fn failed(&self, elsewhere: &[String]) -> Vec<String> {
        let here = elsewhere.is_empty();
        let fails = |wrong: &&Wrong| here || matches!(wrong, Wrong::Broken(_));
        let mut failed: Vec<String> = self.wrong.iter().filter(fails).map(ToString::to_string).collect();
        let blind = self.blind.len();
        if here && self.ran == self.all && BLIND * blind > self.all {
            let why = format!("no verdict, and {blind} of {} have none: at most one in {BLIND} may", self.all);
            failed.extend(self.blind.iter().map(|name| format!("{name}: {why}")));
        }
        failed
    }

    /// The last line of a gate that has not failed. It is "ok" only where all that ran has a verdict that counts.
    fn end(&self, elsewhere: &[String]) -> String {
        let Run { gate, all, ran, new, .. } = self;
        let without = self.blind.len() + new.len();
        let word = match without {
            _ if !elsewhere.is_empty() => "advice only",
            0 => "ok",
            _ => "not failed",
        };
        let part = if ran < all { format!(", a part: {ran} of {all} benchmarks") } else { String::new() };
        let (told, which) = if without == 0 { (*ran, "with") } else { (without, "without") };
        let new = if new.is_empty() { String::new() } else { format!(", {} of them new", new.len()) };
        format!("{gate}: {word}{part}, and {told} of {ran} {which} a verdict{new}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (1..=count).map(|n| format!("b{n}")).collect()
    }

    fn run(ran: usize, blind: usize) -> Run {
        Run { gate: "gate", all: 49, ran, blind: names(blind), ..Run::default() }
    }

    fn elsewhere() -> Vec<String> {
        vec!["cores: 4 here, 2 in the baseline".to_owned()]
    }

    #[test]
    fn elsewhere_a_change_is_advice_and_what_is_broken_fails() {
        let wrong = vec![Wrong::Changed("slow".to_owned()), Wrong::Broken("gone".to_owned())];
        let both = Run { wrong, ..run(49, 0) };
        assert_eq!(both.settle(&[]), Err(vec!["slow".to_owned(), "gone".to_owned()]));
        assert_eq!(both.settle(&elsewhere()), Err(vec!["gone".to_owned()]));
        let slow = Run { wrong: both.wrong[..1].to_vec(), ..run(49, 0) };
        assert_eq!(slow.settle(&elsewhere()), Ok("gate: advice only, and 49 of 49 with a verdict".to_owned()));
        assert_eq!(slow.said(&elsewhere())[1], "there it would have failed:\n  slow");
    }

    #[test]
    fn elsewhere_is_always_told_and_never_ok() {
        let told = "the baseline was made elsewhere, so that a change is advice:\n  cores: 4 here, 2 in the baseline";
        assert_eq!(run(49, 0).said(&elsewhere()), [told]);
        assert_eq!(run(49, 0).settle(&elsewhere()), Ok("gate: advice only, and 49 of 49 with a verdict".to_owned()));
        let part = "gate: advice only, a part: 3 of 49 benchmarks, and 1 of 3 without a verdict";
        assert_eq!(run(3, 1).settle(&elsewhere()), Ok(part.to_owned()));
    }

    #[test]
    fn only_a_whole_run_with_every_verdict_is_plainly_ok() {
        for (ran, blind, end) in [
            (49, 0, "gate: ok, and 49 of 49 with a verdict"),
            (3, 0, "gate: ok, a part: 3 of 49 benchmarks, and 3 of 3 with a verdict"),
            (49, 1, "gate: not failed, and 1 of 49 without a verdict"),
            (3, 3, "gate: not failed, a part: 3 of 49 benchmarks, and 3 of 3 without a verdict"),
        ] {
            assert_eq!(run(ran, blind).settle(&[]), Ok(end.to_owned()));
        }
    }

    #[test]
    fn a_whole_run_that_sees_less_than_three_quarters_fails_where_the_baseline_was_made() {
        assert_eq!(run(49, 12).settle(&[]), Ok("gate: not failed, and 12 of 49 without a verdict".to_owned()));
        let failed = run(49, 13).settle(&[]).unwrap_err();
        assert_eq!(failed.len(), 13, "each is named");
        assert_eq!(failed[12], "b13: no verdict, and 13 of 49 have none: at most one in 4 may");
        assert_eq!(run(49, 49).settle(&[]).unwrap_err().len(), 49);
        let advice = "gate: advice only, and 49 of 49 without a verdict";
        assert_eq!(run(49, 49).settle(&elsewhere()), Ok(advice.to_owned()));
    }

    #[test]
    fn what_is_new_is_said_and_does_not_fail_and_is_not_ok_either() {
        let new = Run { new: vec!["bench".to_owned()], ..run(49, 12) };
        let how =
            "NEW, so held against nothing; write it down: CREWLET_BASELINE=write cargo bench -p benches --bench gate";
        assert_eq!(new.said(&[])[1], format!("{how}:\n  bench"));
        let end = "gate: not failed, and 13 of 49 without a verdict, 1 of them new";
        assert_eq!(new.settle(&[]), Ok(end.to_owned()), "and only what is blind counts as such");
    }
}
