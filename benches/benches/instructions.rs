//! The instruction gate: every pure path counted under callgrind, by gungraun, and held to the checked-in counts.
//!
//! It needs valgrind and the program `gungraun-runner` of the library's version. Run by cargo, it starts itself once more, as
//! gungraun has it, and judges what that says: see [`benches::instructions`].

use std::process::{Command, ExitCode, Stdio};

use benches::baseline::{Baseline, file, is_written};
use benches::instructions::{PERCENT, here, judge, read};
use benches::paths::ALL;

/// Set for the process that is gungraun's, and for the one that it starts under valgrind.
const COUNTING: &str = "CREWLET_COUNTING";

mod counting {
    use benches::paths::ALL;
    use benches::work::Work;
    use gungraun::{Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group};

    /// A path made ready. What it does the first time is done before the counting.
    fn ready(number: usize) -> Box<dyn Work> {
        let path = ALL[number];
        let mut work = path.warm();
        work.prepare(path.counted);
        work
    }

    #[library_benchmark]
    #[benches::path(iter = 0..ALL.len(), setup = ready)]
    fn counted(mut work: Box<dyn Work>) -> Box<dyn Work> {
        work.run();
        work
    }

    library_benchmark_group!(name = pure, benchmarks = counted);

    gungraun::main!(
        config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"]));
        library_benchmark_groups = pure
    );

    pub(super) fn run() {
        main();
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if std::env::var_os(COUNTING).is_some() || arguments.any(|argument| argument == "--gungraun-run") {
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
    let counted = count().map_err(|why| vec![why])?;
    let path = file("instructions.txt");
    let text = std::fs::read_to_string(&path).map_err(|error| vec![format!("{}: {error}", path.display())])?;
    let mut baseline = Baseline::parse(&text).map_err(|why| vec![format!("{}: {why}", path.display())])?;
    let here = here();
    if is_written() {
        baseline.made_on = here;
        baseline.rows = counted.iter().map(|&(name, count)| (name.to_owned(), vec![count as f64])).collect();
        return std::fs::write(&path, baseline.render()).map_err(|error| vec![format!("{}: {error}", path.display())]);
    }
    for (name, count) in &counted {
        let change = baseline
            .of(name)
            .map_or_else(|| "new".to_owned(), |was| format!("{:+.2} %", 100.0 * (*count as f64 / was[0] - 1.0)));
        println!("{name:40} {count:>12} {change:>10}");
    }
    let wrong = judge(&counted, &baseline);
    let elsewhere = baseline.elsewhere(&here);
    if wrong.is_empty() {
        println!("instructions: ok: {} paths, each at most +{PERCENT} %", counted.len());
        return Ok(());
    }
    if elsewhere.is_empty() {
        return Err(wrong);
    }
    println!("instructions: advice only, as the baseline was made elsewhere:\n  {}", elsewhere.join("\n  "));
    println!("instructions: it would have failed:\n  {}", wrong.join("\n  "));
    Ok(())
}

/// Has gungraun count every path.
fn count() -> Result<Vec<(&'static str, u64)>, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    let mut counting = Command::new(program);
    counting.arg("--bench").env(COUNTING, "1").env("GUNGRAUN_OUTPUT_FORMAT", "json").stderr(Stdio::inherit());
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
