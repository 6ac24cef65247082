//! The timed gate: every pure path and every operation over brokers, held against the checked-in baseline.
//!
//! It starts itself again for each attempt, since a process keeps for its whole life where its code and its memory happen to
//! lie, and that alone makes some paths a few hundredths quicker or slower. A benchmark is a regression where the whole
//! interval of its samples lies beyond the limit, and again in each of two more rounds of attempts of the suspects alone.
//!
//! Arguments choose benchmarks whose names contain one of them. The last line then says that this was a part.

use std::process::{Command, ExitCode, Stdio};

use benches::baseline::{Baseline, Fact, is_written};
use benches::judge::{Interval, Sight, TIMINGS, here, judge, to_write};
use benches::noise::{self, Noise};
use benches::operations::stands;
use benches::paths;
use benches::plant::planted;
use benches::rounds::{absorb, convicted, more};
use benches::sampling::{Sampled, attempt};
use benches::verdict::{Run, Wrong};
use engine::broker::{Lookup, resolve};
use engine::env::Env;
use tokio::runtime::{Builder, Runtime};

/// The first argument of a process that is one attempt: the others are the benchmarks to sample.
const ATTEMPT: &str = "--attempt";

/// Attempts of a round: of paths, which differ from process to process and are soon done, and of operations, which start brokers.
const ATTEMPTS: (usize, usize) = (15, 7);

/// Further rounds of a benchmark whose samples are too far apart: for a verdict, and for the baseline, which all later verdicts
/// rest on.
const MORE: (usize, usize) = (1, 3);

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = if arguments.first().is_some_and(|first| first == ATTEMPT) {
        one_attempt(&arguments[1..]).map_err(|why| vec![why])
    } else {
        // Cargo's own.
        arguments.retain(|argument| argument != "--bench");
        gate(&arguments)
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("gate: FAILED\n  {}", why.join("\n  "));
            ExitCode::FAILURE
        }
    }
}

fn one_attempt(wanted: &[String]) -> Result<(), String> {
    let planted = planted()?;
    let env = Env::seeded(1);
    let named = |name: &str| wanted.iter().any(|wanted| wanted == name);
    let told = |sampled: Sampled| println!("{}", sampled.line());
    runtime()?.block_on(Box::pin(attempt(&env, named, planted.as_deref(), told)));
    Ok(())
}

fn runtime() -> Result<Runtime, String> {
    Builder::new_current_thread().enable_all().build().map_err(|error| format!("a runtime: {error}"))
}

/// Every benchmark, in the order of the table.
fn every() -> Vec<String> {
    paths::ALL.iter().map(|path| path.name.to_owned()).chain(stands().map(|(_, _, name)| name)).collect()
}

fn gate(arguments: &[String]) -> Result<(), Vec<String>> {
    let one = |why: String| vec![why];
    let env = Env::seeded(1);
    let began = env.now();
    let planted = planted().map_err(one)?;
    let baseline = TIMINGS.read().map_err(one)?;
    let server = runtime().map_err(one)?.block_on(Box::pin(resolve(&Lookup::system(), &env)));
    let here = here(server.ok().map(|binary| binary.version));
    let chosen = |name: &str| arguments.is_empty() || arguments.iter().any(|argument| name.contains(argument));
    let every = every();
    let names: Vec<String> = every.iter().filter(|name| chosen(name)).cloned().collect();
    if names.is_empty() {
        return Err(one(format!("no benchmark is called anything like {}", arguments.join(" or "))));
    }
    let noise = Noise::of(&round(&noise::ALL.map(|path| path.name.to_owned())).map_err(one)?).map_err(one)?;
    println!("gate: noise of this machine now: {noise}");
    if is_written() {
        return written(baseline, &every, &names, here, noise);
    }
    if let Some(planted) = planted {
        println!("gate: planted: {planted}");
        if !names.contains(&planted) {
            return Err(one(format!("{planted}: planted, and not among the benchmarks chosen")));
        }
    }
    let wider = noise.widens();
    let mut found = round(&names).map_err(one)?;
    if !noise.is_too_much() {
        let blind = |sampled: &Sampled| judge(sampled, &baseline, wider) == Ok(Sight::Blind);
        more(&mut found, MORE.0, blind, &mut round).map_err(one)?;
    }
    let mut run = Run { gate: "gate", all: every.len(), ran: names.len(), ..Run::default() };
    run.wrong = baseline.missing(found.iter().map(|sampled| sampled.name.as_str()), chosen);
    let mut suspects = Vec::new();
    for sampled in &found {
        let (verdict, name) = (judge(sampled, &baseline, wider), sampled.name.clone());
        print(sampled, &baseline, &verdict);
        match verdict {
            Ok(Sight::Sharp) => {}
            Ok(Sight::Blind) => run.blind.push(name),
            Ok(Sight::New) => run.new.push(name),
            Err(Wrong::Changed(_)) => suspects.push(name),
            Err(broken) => run.wrong.push(broken),
        }
    }
    let tried = convicted(suspects, &baseline, wider, &mut round).map_err(one)?;
    run.wrong.extend(tried.wrong);
    run.blind.extend(tried.blind);
    let end = run.settle(&baseline.elsewhere(&here))?;
    println!("{end}, in {} s", env.now().since(began).as_secs());
    Ok(())
}

/// Writes those benchmarks of the baseline anew.
fn written(
    mut baseline: Baseline,
    every: &[String],
    names: &[String],
    here: Vec<Fact>,
    noise: Noise,
) -> Result<(), Vec<String>> {
    if noise.is_too_much() {
        return Err(vec![format!("this machine is too noisy to write a baseline on: {noise}")]);
    }
    if names.len() == every.len() {
        baseline.made_on = here;
        baseline.made_on.push(("noise".to_owned(), noise.to_string()));
    } else {
        let elsewhere = baseline.elsewhere(&here);
        if !elsewhere.is_empty() {
            return Err([vec!["some rows alone, and the others were made elsewhere".to_owned()], elsewhere].concat());
        }
    }
    let one = |why: String| vec![why];
    let mut found = round(names).map_err(one)?;
    more(&mut found, MORE.1, |sampled| to_write(sampled).is_err(), &mut round).map_err(one)?;
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for name in every {
        let measured = found.iter().find(|sampled| sampled.name == *name);
        match (measured.map(to_write), baseline.of(name)) {
            (Some(Ok(row)), _) => rows.push((name.clone(), row)),
            (Some(Err(why)), _) => failed.push(why),
            (None, _) if names.contains(name) => failed.push(format!("{name}: missing from this run")),
            (None, Some(row)) => rows.push((name.clone(), row.to_vec())),
            (None, None) => {}
        }
    }
    if !failed.is_empty() {
        return Err(failed);
    }
    baseline.rows = rows;
    TIMINGS.write(&baseline).map_err(one)
}

/// A round of attempts, each a process of its own, of the benchmarks named.
fn round(wanted: &[String]) -> Result<Vec<Sampled>, String> {
    let operation = |name: &&String| stands().any(|(_, _, known)| known == **name);
    let (operations, paths): (Vec<&String>, Vec<&String>) = wanted.iter().partition(operation);
    let mut found = Vec::new();
    for (wanted, attempts) in [(paths, ATTEMPTS.0), (operations, ATTEMPTS.1)] {
        if !wanted.is_empty() {
            (0..attempts).try_for_each(|_| tried(&wanted, &mut found))?;
        }
    }
    Ok(found)
}

/// Makes one attempt.
fn tried(wanted: &[&String], found: &mut Vec<Sampled>) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    let mut attempt = Command::new(program);
    attempt.arg(ATTEMPT).args(wanted).stderr(Stdio::inherit());
    let output = attempt.output().map_err(|error| format!("start an attempt: {error}"))?;
    if !output.status.success() {
        return Err(format!("an attempt ended with {}", output.status));
    }
    String::from_utf8_lossy(&output.stdout).lines().try_for_each(|line| {
        let sampled = Sampled::parse(line).ok_or_else(|| format!("an attempt said {line:?}"))?;
        absorb(found, sampled)
    })
}

fn print(sampled: &Sampled, baseline: &Baseline, verdict: &Result<Sight, Wrong>) {
    // What has no interval is broken, and what fails the gate says why.
    let Ok(found) = Interval::of(&sampled.samples) else { return };
    let said = match verdict {
        Ok(Sight::Sharp) => "",
        Ok(Sight::Blind) => "  NO VERDICT",
        Ok(Sight::New) => "  NEW",
        Err(Wrong::Changed(_)) => "  SUSPECT",
        Err(Wrong::Broken(_)) => "  BROKEN",
    };
    let held = match baseline.of(&sampled.name) {
        Some(&[_, mid, ..]) => {
            let change = |now: f64| 100.0 * (now / mid - 1.0);
            format!("{:+.1} to {:+.1} %", change(found.low), change(found.high))
        }
        _ => format!("{:.4} to {:.4}, {} requests", found.low, found.high, sampled.requests),
    };
    println!("{:55} {:>10.4} ± {:>4.1} %   {held}{said}", sampled.name, found.mid, found.percent());
}
