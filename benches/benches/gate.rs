//! The timed gate: every pure path and every operation over brokers, held against the checked-in baseline.
//!
//! It starts itself again for each attempt, since a process keeps for its whole life where its code and its memory happen to
//! lie, and that alone makes some paths a few hundredths quicker or slower. A benchmark is a regression where the whole
//! interval of its samples lies beyond the limit, and again in each of two more rounds of attempts of the suspects alone.

use std::process::{Command, ExitCode, Stdio};

use benches::baseline::{Baseline, file, is_written};
use benches::judge::{Interval, Limit, Wrong, here, judge, missing};
use benches::sampling::{NOISE, Sampled, attempt};
use engine::env::Env;
use tokio::runtime::Builder;

/// Set for a process that is one attempt: the benchmarks to sample, a line each, or nothing for all.
const ATTEMPT: &str = "CREWLET_BENCH_ATTEMPT";

/// Attempts of a round.
const ATTEMPTS: usize = 7;

/// Rounds that a suspect has to fail.
const ROUNDS: usize = 3;

/// What a pure path may take beyond its baseline.
const PURE: Limit = Limit { percent: 5.0 };

/// What an operation over brokers may take beyond its baseline, both in bare publishes. Most of it is the disk's and the
/// brokers' own, so this is a trip wire; what the code asks for is held to the unit beside it.
const OPERATION: Limit = Limit { percent: 50.0 };

fn main() -> ExitCode {
    if let Some(wanted) = std::env::var_os(ATTEMPT) {
        let wanted = wanted.to_string_lossy().into_owned();
        let wanted: Vec<&str> = wanted.lines().collect();
        let env = Env::seeded(1);
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let named = |name: &str| wanted.is_empty() || wanted.contains(&name);
        runtime.block_on(Box::pin(attempt(&env, named, |sampled| println!("{}", sampled.line()))));
        return ExitCode::SUCCESS;
    }
    match gate() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("gate: FAILED\n  {}", why.join("\n  "));
            ExitCode::FAILURE
        }
    }
}

fn gate() -> Result<(), Vec<String>> {
    let path = file("timings.txt");
    let text = std::fs::read_to_string(&path).map_err(|error| vec![format!("{}: {error}", path.display())])?;
    let mut baseline = Baseline::parse(&text).map_err(|why| vec![format!("{}: {why}", path.display())])?;
    let found = round(&[]).map_err(|why| vec![why])?;
    let noise = noise(&found);
    println!("gate: noise of this machine now: {noise}");
    let here = here();
    if is_written() {
        baseline.rows = rows(&found)?;
        baseline.made_on = here;
        baseline.made_on.push(("noise".to_owned(), noise));
        return std::fs::write(&path, baseline.render()).map_err(|error| vec![format!("{}: {error}", path.display())]);
    }
    let (mut broken, mut suspects) = (Vec::new(), Vec::new());
    for sampled in found.iter().filter(|sampled| sampled.name != NOISE) {
        let verdict = judged(sampled, &baseline);
        print(sampled, &baseline, &verdict);
        match verdict {
            Ok(_) => {}
            Err(Wrong::Broken(why)) => broken.push(why),
            Err(Wrong::Slower(_)) => suspects.push(sampled.name.clone()),
        }
    }
    let ran: Vec<String> = found.iter().map(|sampled| sampled.name.clone()).collect();
    broken.extend(missing(&ran, &baseline));
    let slower = convicted(suspects, &baseline).map_err(|why| vec![why])?;
    let wrong: Vec<String> = broken.into_iter().chain(slower).collect();
    let elsewhere = baseline.elsewhere(&here);
    match (wrong.is_empty(), elsewhere.is_empty()) {
        (true, _) => println!("gate: ok: {} benchmarks", ran.len()),
        (false, true) => return Err(wrong),
        (false, false) => {
            println!("gate: advice only, as the baseline was made elsewhere:\n  {}", elsewhere.join("\n  "));
            println!("gate: it would have failed:\n  {}", wrong.join("\n  "));
        }
    }
    Ok(())
}

/// Those of the suspects that are slower in every further round too, and by how much in the last.
fn convicted(mut suspects: Vec<String>, baseline: &Baseline) -> Result<Vec<String>, String> {
    let mut slower = Vec::new();
    for number in 2..=ROUNDS {
        if suspects.is_empty() {
            return Ok(Vec::new());
        }
        println!("gate: round {number} of {ROUNDS}: {}", suspects.join(", "));
        slower.clear();
        for sampled in round(&suspects)?.iter().filter(|sampled| suspects.contains(&sampled.name)) {
            if let Err(Wrong::Slower(why) | Wrong::Broken(why)) = judged(sampled, baseline) {
                slower.push((sampled.name.clone(), why));
            }
        }
        suspects = slower.iter().map(|(name, _)| name.clone()).collect();
    }
    Ok(slower.into_iter().map(|(_, why)| why).collect())
}

fn judged(sampled: &Sampled, baseline: &Baseline) -> Result<Interval, Wrong> {
    let limit = if sampled.requests == 0 { PURE } else { OPERATION };
    judge(&sampled.name, &sampled.samples, sampled.requests, baseline, limit)
}

/// A round of attempts, each a process of its own, of the benchmarks named, or of all where none is.
fn round(wanted: &[String]) -> Result<Vec<Sampled>, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    let mut found: Vec<Sampled> = Vec::new();
    for _ in 0..ATTEMPTS {
        let mut attempt = Command::new(&program);
        attempt.env(ATTEMPT, wanted.join("\n")).stderr(Stdio::inherit());
        let output = attempt.output().map_err(|error| format!("start an attempt: {error}"))?;
        if !output.status.success() {
            return Err(format!("an attempt ended with {}", output.status));
        }
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let sampled = Sampled::parse(line).ok_or_else(|| format!("an attempt said {line:?}"))?;
            match found.iter_mut().find(|known| known.name == sampled.name) {
                Some(known) if known.requests != sampled.requests => {
                    return Err(format!("{}: {} requests, and then {}", known.name, known.requests, sampled.requests));
                }
                Some(known) => known.samples.extend(sampled.samples),
                None => found.push(sampled),
            }
        }
    }
    Ok(found)
}

/// What this machine takes for a change while nothing changes: the fixed work against itself, and every path's first half of
/// samples against its second.
fn noise(found: &[Sampled]) -> String {
    let own = found.iter().find(|sampled| sampled.name == NOISE).map(|sampled| Interval::of(&sampled.samples));
    let own = match own {
        Some(Ok(own)) => format!("{:+.2} to {:+.2} %", 100.0 * (own.low - 1.0), 100.0 * (own.high - 1.0)),
        _ => "not measured".to_owned(),
    };
    let halves = found.iter().filter(|sampled| sampled.requests == 0).filter_map(|sampled| {
        let (first, second) = sampled.samples.split_at(sampled.samples.len() / 2);
        let (first, second) = (Interval::of(first).ok()?, Interval::of(second).ok()?);
        Some((100.0 * (second.mid / first.mid - 1.0)).abs())
    });
    format!("the fixed work against itself {own}; a path's two halves up to {:.1} %", halves.fold(0.0, f64::max))
}

/// The baseline's rows.
fn rows(found: &[Sampled]) -> Result<Vec<(String, Vec<f64>)>, Vec<String>> {
    let measured = found.iter().filter(|sampled| sampled.name != NOISE);
    let row = |sampled: &Sampled| {
        let found = Interval::of(&sampled.samples).map_err(|why| vec![format!("{}: {why}", sampled.name)])?;
        Ok((sampled.name.clone(), vec![found.low, found.mid, found.high, sampled.requests as f64]))
    };
    measured.map(row).collect()
}

fn print(sampled: &Sampled, baseline: &Baseline, verdict: &Result<Interval, Wrong>) {
    let Ok(found) = Interval::of(&sampled.samples) else { return };
    let change = match baseline.of(&sampled.name) {
        Some(&[_, mid, ..]) => {
            format!("{:+.1} to {:+.1} %", 100.0 * (found.low / mid - 1.0), 100.0 * (found.high / mid - 1.0))
        }
        _ => "new".to_owned(),
    };
    let suspect = if verdict.is_err() { "  SUSPECT" } else { "" };
    println!("{:55} {:>10.4} ± {:>4.1} %   {change}{suspect}", sampled.name, found.mid, found.percent());
}
