//! The instruction gate: every pure path counted under callgrind, by gungraun, and held to the checked-in counts.
//!
//! It needs valgrind and the program `gungraun-runner` of the library's version. Run by cargo, it starts itself once more, as
//! gungraun has it, and judges what that says: see [`benches::instructions`].

use std::process::{Command, ExitCode, Stdio};

use benches::baseline::is_written;
use benches::instructions::{INSTRUCTIONS, PERCENT, here, judge, read};
use benches::paths::ALL;
use benches::plant::planted;
use benches::verdict::Run;

/// Tells the process that is gungraun's, by the id of the one that started it: whatever else sets it makes no gate pass.
const COUNTING: &str = "CREWLET_COUNTING";

mod counting {
    use benches::paths::ALL;
    use benches::plant::{PLANT, planted};
    use benches::work::Work;
    use gungraun::{Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group};

    /// A path made ready. What it does the first time is done before the counting.
    fn ready(number: usize) -> Box<dyn Work> {
        let (path, planted) = (ALL[number], planted().expect("the gate has looked at it"));
        if planted.is_some_and(|planted| planted == path.name) { path.planted().ready() } else { path.ready() }
    }

    #[library_benchmark]
    #[benches::path(iter = 0..ALL.len(), setup = ready)]
    fn counted(mut work: Box<dyn Work>) -> Box<dyn Work> {
        work.run();
        work
    }

    library_benchmark_group!(name = pure, benchmarks = counted);

    gungraun::main!(
        config = LibraryBenchmarkConfig::default()
            .pass_through_env(PLANT)
            .tool(Callgrind::with_args(["--cache-sim=no"]));
        library_benchmark_groups = pure
    );

    pub(super) fn run() {
        main();
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let parent = std::os::unix::process::parent_id().to_string();
    if std::env::var(COUNTING).is_ok_and(|by| by == parent) || arguments.any(|argument| argument == "--gungraun-run") {
        counting::run();
        return ExitCode::SUCCESS;
    }
    match gate() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("instructions: FAILED\n  {}", why.join("\n  "));
            ExitCode::FAILURE
        }
    }
}

fn gate() -> Result<(), Vec<String>> {
    let one = |why: String| vec![why];
    if let Some(planted) = planted().map_err(one)? {
        println!("instructions: planted: {planted}");
        if ALL.iter().all(|path| path.name != planted) {
            return Err(one(format!("{planted}: planted, and no path whose instructions are counted")));
        }
    }
    let mut baseline = INSTRUCTIONS.read().map_err(one)?;
    let counted = count().map_err(one)?;
    let here = here();
    if is_written() {
        baseline.made_on = here;
        baseline.rows = counted.iter().map(|&(name, count)| (name.to_owned(), vec![count as f64])).collect();
        return INSTRUCTIONS.write(&baseline).map_err(one);
    }
    for (name, count) in &counted {
        let was = baseline.of(name).and_then(|numbers| numbers.first());
        let change =
            was.map_or_else(|| "NEW".to_owned(), |was| format!("{:+.2} %", 100.0 * (*count as f64 / was - 1.0)));
        println!("{name:40} {count:>12} {change:>10}");
    }
    let new = counted.iter().filter(|(name, _)| baseline.of(name).is_none()).map(|(name, _)| (*name).to_owned());
    let run = Run {
        gate: "instructions",
        all: ALL.len(),
        ran: ALL.len(),
        wrong: judge(&counted, &baseline),
        new: new.collect(),
        ..Run::default()
    };
    let end = run.settle(&baseline.elsewhere(&here))?;
    println!("{end}; off by {PERCENT} % passes");
    Ok(())
}

/// Has gungraun count every path.
fn count() -> Result<Vec<(&'static str, u64)>, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    let mut counting = Command::new(program);
    counting
        .arg("--bench")
        .env(COUNTING, std::process::id().to_string())
        .env("GUNGRAUN_OUTPUT_FORMAT", "json")
        .stderr(Stdio::inherit());
    let output = counting.output().map_err(|error| format!("start the counting: {error}"))?;
    if !output.status.success() {
        return Err(format!("the counting ended with {}", output.status));
    }
    let counts = read(&String::from_utf8_lossy(&output.stdout))?;
    let of = |number: usize| {
        let found = counts.iter().find(|(counted, _)| *counted == number);
        found.map(|(_, count)| *count).ok_or_else(|| format!("{}: nothing was counted", ALL[number].name))
    };
    (0..ALL.len()).map(|number| Ok((ALL[number].name, of(number)?))).collect()
}
