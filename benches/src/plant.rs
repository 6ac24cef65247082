//! A loss made on purpose, so that a gate is seen to fail: `CREWLET_PLANT` names a path or an operation.
//!
//! Every tenth run of a planted path is done twice, and a planted operation makes one request more. Nothing else is made
//! dearer, and nothing is written down while something is planted. `benches/prove` runs a gate with and without.

use crate::baseline::is_written;
use crate::operations::stands;
use crate::paths::ALL;
use crate::work::Work;

/// Names what is planted.
pub const PLANT: &str = "CREWLET_PLANT";

/// One run of so many is done twice.
const EACH: usize = 10;

/// What is planted in this process, if anything.
///
/// # Errors
/// A name that is no path's and no operation's, a path that is too long to be done ten times over, and a baseline that is to
/// be written from it.
pub fn planted() -> Result<Option<String>, String> {
    let Some(name) = std::env::var_os(PLANT) else { return Ok(None) };
    let name = name.into_string().map_err(|name| format!("{PLANT}: {name:?} is no text"))?;
    if is_written() {
        return Err(format!("{PLANT} is set: what is planted is not written down"));
    }
    checked(name).map(Some)
}

fn checked(name: String) -> Result<String, String> {
    match ALL.iter().find(|path| path.name == name) {
        Some(path) if path.counted < EACH => Err(format!("{PLANT}: {name} is done too seldom to be planted in")),
        None if stands().all(|(_, _, known)| known != name) => Err(format!("{PLANT}: nothing is called {name:?}")),
        _ => Ok(name),
    }
}

/// Work of which every tenth run is done twice.
pub(crate) struct Dearer {
    work: Box<dyn Work>,
    asked: usize,
}

impl Dearer {
    pub(crate) fn of(work: Box<dyn Work>) -> Dearer {
        Dearer { work, asked: 0 }
    }
}

impl Work for Dearer {
    fn prepare(&mut self, times: usize) {
        let before = self.asked / EACH;
        self.asked += times;
        self.work.prepare(times + self.asked / EACH - before);
    }

    fn run(&mut self) {
        self.work.run();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::baseline::Baseline;
    use crate::instructions::judge;
    use crate::verdict::Wrong;
    use crate::work::{Path, on};

    thread_local! {
        static RUNS: Cell<u64> = const { Cell::new(0) };
    }

    /// A path whose runs are counted: what an instruction is to valgrind, a run is here.
    const COUNTED: Path = Path::quick("counted", || on((), |()| RUNS.set(RUNS.get() + 1)));

    /// What the instruction gate counts of a path.
    fn counted(path: Path) -> u64 {
        let mut work = path.ready();
        let before = RUNS.get();
        work.run();
        RUNS.get() - before
    }

    #[test]
    fn a_planted_path_fails_the_instruction_gate_and_the_same_path_without_does_not() {
        let baseline = Baseline { rows: vec![("counted".to_owned(), vec![64.0])], ..Baseline::default() };
        assert_eq!(judge(&[("counted", counted(COUNTED))], &baseline), []);
        let wrong = judge(&[("counted", counted(COUNTED.planted()))], &baseline);
        let why = "counted: 70 instructions, 64 in the baseline: +9.4 %, at most +3 %";
        assert_eq!(wrong, [Wrong::Changed(why.to_owned())]);
    }

    #[test]
    fn every_tenth_run_is_done_twice_however_they_are_asked_for() {
        for step in [1, 3, 7, 50] {
            let (mut work, before) = (COUNTED.planted().warm(), RUNS.get());
            for _ in 0..100 {
                work.prepare(step);
                work.run();
            }
            assert_eq!(RUNS.get() - before, step as u64 * 110, "in steps of {step}");
        }
    }

    #[test]
    fn a_plant_that_no_gate_would_see_is_refused() {
        for good in ["leader read", "one broker: renew a seat", "three brokers: get a record"] {
            assert_eq!(checked(good.to_owned()), Ok(good.to_owned()));
        }
        for bad in ["", "reader lead", "renew a seat", "index: 10,000 keys"] {
            assert!(checked(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
