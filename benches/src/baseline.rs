//! What is checked in for later runs to be held against: where it was made, and numbers by name.
//!
//! Text, made to be read in a diff. Lines that begin with `#` are for people; `@` begins a fact about the machine or the tools;
//! every other line is a name and its numbers:
//!
//! ```text
//! @ rustc | rustc 1.95.0
//! leader read | 1893
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A checked-in table.
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

impl Baseline {
    /// Reads a table.
    ///
    /// # Errors
    /// A line that is none of the three, and a name that stands there twice.
    pub fn parse(text: &str) -> Result<Baseline, String> {
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
            let numbers = cells.map(|cell| cell.parse().map_err(|_| format!("line {number}: {cell:?} is no number")));
            let numbers = numbers.collect::<Result<Vec<f64>, String>>()?;
            if numbers.is_empty() || baseline.of(name).is_some() {
                return Err(format!("line {number}: {name:?} without numbers, or for the second time"));
            }
            baseline.rows.push((name.to_owned(), numbers));
        }
        Ok(baseline)
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

fn decimals(number: f64) -> usize {
    if number.fract() == 0.0 { 0 } else { 4 }
}

/// Whether a run is to write its baseline instead of being held against it.
pub fn is_written() -> bool {
    std::env::var_os("CREWLET_BASELINE").is_some_and(|what| what == "write")
}

/// Where a file of this package lies.
pub fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
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
        let baseline = Baseline::parse(TEXT).unwrap();
        assert_eq!(baseline.of("leader read"), Some(&[1893.0][..]));
        assert_eq!(baseline.of("leader"), None);
        assert_eq!(baseline.render(), TEXT);
    }

    #[test]
    fn a_line_that_says_nothing_is_refused() {
        for text in ["a", "a | b", "a | 1\na | 2", "@ rustc"] {
            assert!(Baseline::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn another_compiler_is_told() {
        let baseline = Baseline::parse(TEXT).unwrap();
        assert_eq!(baseline.elsewhere(&facts("rustc 1.95.0")), Vec::<String>::new());
        assert_eq!(
            baseline.elsewhere(&facts("rustc 1.96.0")),
            ["rustc: rustc 1.96.0 here, rustc 1.95.0 in the baseline"]
        );
        let none = Baseline::default().elsewhere(&facts("rustc 1.95.0"));
        assert_eq!(none, ["rustc: rustc 1.95.0 here, nothing in the baseline"]);
    }
}
