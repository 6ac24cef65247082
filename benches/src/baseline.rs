//! What is checked in for later runs to be held against: where it was made, and numbers by name.
//!
//! Text, made to be read in a diff. Lines that begin with `#` are for people; `@` begins a fact about the machine or the tools;
//! every other line is a name and its numbers, of which each table has so many:
//!
//! ```text
//! @ rustc | rustc 1.95.0
//! leader read | 1893
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::verdict::Wrong;

/// What a checked-in table says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline {
    /// What stands above it for people.
    pub head: String,
    /// Where it was made: facts by name.
    pub made_on: Vec<Fact>,
    /// Numbers by name, in the order in which they stand.
    pub rows: Vec<(String, Vec<f64>)>,
}

/// A fact about a machine or a tool, by name.
pub type Fact = (String, String);

/// A checked-in table of this package.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its file.
    pub file: &'static str,
    /// How many numbers a row has.
    pub each: usize,
}

impl Table {
    /// Reads it, as [`Baseline::parse`] does.
    ///
    /// # Errors
    /// That it cannot be read, with its path.
    pub fn read(&self) -> Result<Baseline, String> {
        let path = self.path();
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Baseline::parse(&text, self.each).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Writes it anew.
    ///
    /// # Errors
    /// That it cannot be written, with its path.
    pub fn write(&self, baseline: &Baseline) -> Result<(), String> {
        let path = self.path();
        std::fs::write(&path, baseline.render()).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn path(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(self.file)
    }
}

impl Baseline {
    /// Reads a table of rows that have so many numbers each.
    ///
    /// # Errors
    /// A line that is none of the three, a name that stands there twice, a number that is not finite, a row of more numbers or
    /// of fewer, and a table without rows.
    pub fn parse(text: &str, each: usize) -> Result<Baseline, String> {
        let mut baseline = Baseline::default();
        for (number, line) in (1..).zip(text.lines()) {
            if line.is_empty() || line.starts_with('#') {
                baseline.head += line;
                baseline.head.push('\n');
                continue;
            }
            let mut cells = line.split('|').map(str::trim);
            let name = cells.next().unwrap_or_default();
            if let Some(fact) = name.strip_prefix('@') {
                let value = cells.next().ok_or_else(|| format!("line {number}: a fact without a value"))?;
                baseline.made_on.push((fact.trim().to_owned(), value.to_owned()));
                continue;
            }
            let number_of = |cell: &str| {
                let parsed = cell.parse().ok().filter(|parsed: &f64| parsed.is_finite());
                parsed.ok_or_else(|| format!("line {number}: {cell:?} is no number"))
            };
            let numbers = cells.map(number_of).collect::<Result<Vec<f64>, String>>()?;
            if numbers.len() != each {
                return Err(format!("line {number}: {name:?} with {} numbers, not {each}", numbers.len()));
            }
            if baseline.of(name).is_some() {
                return Err(format!("line {number}: {name:?} for the second time"));
            }
            baseline.rows.push((name.to_owned(), numbers));
        }
        if baseline.rows.is_empty() { Err("a table without rows".to_owned()) } else { Ok(baseline) }
    }

    /// What the table has of the `chosen` and no run has: a benchmark that is gone holds nothing any more, on any machine.
    /// One that ran and that the table does not have is no fault, and is not among these.
    pub fn missing<'a>(&self, ran: impl Iterator<Item = &'a str>, chosen: impl Fn(&str) -> bool) -> Vec<Wrong> {
        let ran: Vec<&str> = ran.collect();
        let gone = self.rows.iter().map(|(name, _)| name).filter(|name| chosen(name) && !ran.contains(&name.as_str()));
        gone.map(|name| Wrong::Broken(format!("{name}: in the baseline, and missing from this run"))).collect()
    }

    /// The numbers of a name.
    pub fn of(&self, name: &str) -> Option<&[f64]> {
        self.rows.iter().find(|(known, _)| known == name).map(|(_, numbers)| numbers.as_slice())
    }

    /// The table as text. A number that is whole, which counts are, has no decimals.
    pub fn render(&self) -> String {
        let width = self.rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
        let mut text = self.head.clone();
        for (fact, value) in &self.made_on {
            let _ = writeln!(text, "@ {fact} | {value}");
        }
        for (name, numbers) in &self.rows {
            let cells: String = numbers.iter().map(|number| format!(" | {number:>9.0$}", decimals(*number))).collect();
            let _ = writeln!(text, "{name:width$}{cells}");
        }
        text
    }

    /// How this machine differs from the one where the table was made, a line for each fact. While it differs at all, the
    /// table is advice.
    pub fn elsewhere(&self, here: &[Fact]) -> Vec<String> {
        let told = |(fact, value): &Fact, there: &[Fact]| match there.iter().find(|(known, _)| known == fact) {
            Some((_, same)) if same == value => None,
            Some((_, other)) => Some(format!("{fact}: {value} here, {other} in the baseline")),
            None => Some(format!("{fact}: {value} here, nothing in the baseline")),
        };
        here.iter().filter_map(|fact| told(fact, &self.made_on)).collect()
    }
}

/// Decimals enough to tell a thousandth of it.
fn decimals(number: f64) -> usize {
    if number.fract() == 0.0 {
        0
    } else if number < 0.1 {
        6
    } else {
        4
    }
}

/// Whether a run is to write its baseline instead of being held against it.
pub fn is_written() -> bool {
    std::env::var_os("CREWLET_BASELINE").is_some_and(|what| what == "write")
}

/// The first line that a program prints, or that it cannot be run: a fact too.
pub fn first_line(program: &str, arguments: &[&str]) -> String {
    match Command::new(program).args(arguments).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned(),
        Err(error) => format!("not run: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# For people.\n@ rustc | rustc 1.95.0\nleader read |      1893\nkey         |         7\n";

    fn facts(rustc: &str) -> [Fact; 1] {
        [("rustc".to_owned(), rustc.to_owned())]
    }

    #[test]
    fn what_is_read_is_written_again() {
        let baseline = Baseline::parse(TEXT, 1).unwrap();
        assert_eq!(baseline.of("leader read"), Some(&[1893.0][..]));
        assert_eq!(baseline.of("leader"), None);
        assert_eq!(baseline.render(), TEXT);
    }

    #[test]
    fn a_line_that_says_nothing_is_refused() {
        for text in ["a", "a | b", "a | 1\na | 2", "@ rustc", "a | inf", "a | NaN", "a | 1 | 2", "", "# no rows\n"] {
            assert!(Baseline::parse(text, 1).is_err(), "{text}");
        }
    }

    #[test]
    fn what_went_missing_is_broken_and_what_is_new_is_not() {
        let baseline = Baseline::parse(TEXT, 1).unwrap();
        let missing = |ran: &[&str], chosen: &str| baseline.missing(ran.iter().copied(), |name| name.contains(chosen));
        let gone = [Wrong::Broken("key: in the baseline, and missing from this run".to_owned())];
        assert_eq!(missing(&["leader read", "key"], ""), []);
        assert_eq!(missing(&["leader read"], ""), gone);
        assert_eq!(missing(&["leader read"], "leader"), [], "key was not asked for");
        assert_eq!(missing(&["leader read", "key", "new"], ""), []);
        assert_eq!(missing(&["leader read", "new"], ""), gone, "one that is new stands in for none that is gone");
    }

    #[test]
    fn another_compiler_is_told() {
        let baseline = Baseline::parse(TEXT, 1).unwrap();
        assert_eq!(baseline.elsewhere(&facts("rustc 1.95.0")), Vec::<String>::new());
        assert_eq!(
            baseline.elsewhere(&facts("rustc 1.96.0")),
            ["rustc: rustc 1.96.0 here, rustc 1.95.0 in the baseline"]
        );
        let none = Baseline::default().elsewhere(&facts("rustc 1.95.0"));
        assert_eq!(none, ["rustc: rustc 1.95.0 here, nothing in the baseline"]);
    }
}
