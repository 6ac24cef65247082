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

/// Ends a gate: `elsewhere` is how this machine differs from the baseline's. Advice is printed.
///
/// # Errors
/// What fails the gate on this machine, a line for each benchmark.
pub fn settle(gate: &str, wrong: &[Wrong], elsewhere: &[String]) -> Result<(), Vec<String>> {
    let fails = |wrong: &&Wrong| elsewhere.is_empty() || matches!(wrong, Wrong::Broken(_));
    let (failed, advice): (Vec<&Wrong>, Vec<&Wrong>) = wrong.iter().partition(fails);
    if !advice.is_empty() {
        println!("{gate}: the baseline was made elsewhere, so that a change is advice:\n  {}", elsewhere.join("\n  "));
        println!("{gate}: there it would have failed:");
        advice.iter().for_each(|wrong| println!("  {wrong}"));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.iter().map(ToString::to_string).collect()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elsewhere_a_change_is_advice_and_what_is_broken_fails() {
        let wrong = [Wrong::Changed("slow".to_owned()), Wrong::Broken("gone".to_owned())];
        let both = Err(vec!["slow".to_owned(), "gone".to_owned()]);
        assert_eq!(settle("gate", &wrong, &[]), both);
        assert_eq!(settle("gate", &wrong, &["cores: 4 here, 2".to_owned()]), Err(vec!["gone".to_owned()]));
        assert_eq!(settle("gate", &wrong[..1], &["cores: 4 here, 2".to_owned()]), Ok(()));
        assert_eq!(settle("gate", &[], &[]), Ok(()));
    }
}
