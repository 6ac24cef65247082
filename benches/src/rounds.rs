//! Rounds of attempts: what further ones are for, and what they decide.

use crate::baseline::Baseline;
use crate::judge::{Sight, judge};
use crate::sampling::Sampled;
use crate::verdict::Wrong;

/// Rounds in all that a suspect has to fail.
pub const ROUNDS: usize = 3;

/// Does a round of the benchmarks named: some attempts, each a process of its own.
pub type Round<'a> = &'a mut dyn FnMut(&[String]) -> Result<Vec<Sampled>, String>;

/// Adds what one attempt found of a benchmark.
///
/// # Errors
/// It made other requests than before.
pub fn absorb(found: &mut Vec<Sampled>, sampled: Sampled) -> Result<(), String> {
    match found.iter_mut().find(|known| known.name == sampled.name) {
        Some(known) if known.requests != sampled.requests => {
            Err(format!("{}: {} requests, and then {}", known.name, known.requests, sampled.requests))
        }
        Some(known) => {
            known.samples.extend(sampled.samples);
            Ok(())
        }
        None => {
            found.push(sampled);
            Ok(())
        }
    }
}

/// Adds samples to those benchmarks whose samples are `wanting`, in at most so many rounds.
///
/// # Errors
/// A round failed.
pub fn more(
    found: &mut Vec<Sampled>,
    rounds: usize,
    wanting: impl Fn(&Sampled) -> bool,
    round: Round<'_>,
) -> Result<(), String> {
    for _ in 0..rounds {
        let names: Vec<String> =
            found.iter().filter(|sampled| wanting(sampled)).map(|sampled| sampled.name.clone()).collect();
        if names.is_empty() {
            break;
        }
        println!("gate: samples too far apart, so more of them: {}", names.join(", "));
        for sampled in round(&names)? {
            absorb(found, sampled)?;
        }
    }
    Ok(())
}

/// What further rounds make of suspects.
#[derive(Debug, Default)]
pub struct Tried {
    /// Those that are slower in every one of them too, by how much in the last, and those that cannot be judged any more.
    pub wrong: Vec<Wrong>,
    /// Those let go by samples too far apart to tell: that is no verdict.
    pub blind: Vec<String>,
}

/// Tries suspects in further rounds of their own.
///
/// # Errors
/// A round failed.
pub fn convicted(
    mut suspects: Vec<String>,
    baseline: &Baseline,
    noise: f64,
    round: Round<'_>,
) -> Result<Tried, String> {
    let (mut tried, mut slower) = (Tried::default(), Vec::new());
    for number in 2..=ROUNDS {
        slower.clear();
        if suspects.is_empty() {
            break;
        }
        println!("gate: round {number} of {ROUNDS}: {}", suspects.join(", "));
        let found = round(&suspects)?;
        let mut left = Vec::new();
        for name in suspects {
            let Some(sampled) = found.iter().find(|sampled| sampled.name == name) else {
                tried.wrong.push(Wrong::Broken(format!("{name}: a suspect, and missing from round {number}")));
                continue;
            };
            match judge(sampled, baseline, noise) {
                Ok(Sight::Sharp) => {}
                // Of a suspect there is a row, or it would be none.
                Ok(Sight::Blind | Sight::New) => tried.blind.push(name),
                Err(wrong @ Wrong::Broken(_)) => tried.wrong.push(wrong),
                Err(wrong @ Wrong::Changed(_)) => {
                    slower.push(wrong);
                    left.push(name);
                }
            }
        }
        suspects = left;
    }
    tried.wrong.extend(slower);
    Ok(tried)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::to_write;

    fn sampled(name: &str, mid: f64) -> Sampled {
        Sampled { name: name.to_owned(), requests: 0, samples: vec![mid; 35] }
    }

    /// What is wrong with two suspects, both 2.0 in the baseline, whose further rounds find this.
    fn wrong(rounds: [&[(&str, f64)]; 2]) -> Vec<String> {
        let found = |round: &[(&str, f64)]| round.iter().map(|&(name, mid)| sampled(name, mid)).collect();
        let tried = tried(rounds.map(found));
        assert_eq!(tried.blind, [""; 0]);
        tried.wrong.iter().map(ToString::to_string).collect()
    }

    fn tried(rounds: [Vec<Sampled>; 2]) -> Tried {
        let rows = ["a", "b"].map(|name| (name.to_owned(), to_write(&sampled(name, 2.0)).expect("a row")));
        let baseline = Baseline { rows: rows.to_vec(), ..Baseline::default() };
        let mut rounds = rounds.into_iter();
        let mut round = |asked: &[String]| {
            let found = rounds.next().expect("two further rounds at most").into_iter();
            Ok(found.filter(|sampled| asked.contains(&sampled.name)).collect())
        };
        let suspects = vec!["a".to_owned(), "b".to_owned()];
        convicted(suspects, &baseline, 0.0, &mut round).expect("the rounds are done")
    }

    #[test]
    fn a_suspect_let_go_by_samples_too_far_apart_has_no_verdict() {
        let wide = Sampled { samples: [vec![2.0; 17], vec![2.6; 18]].concat(), ..sampled("b", 2.0) };
        let tried = tried([vec![sampled("a", 2.0), wide], vec![]]);
        assert_eq!((tried.wrong, tried.blind), (vec![], vec!["b".to_owned()]));
    }

    #[test]
    fn a_suspect_is_slower_in_every_round_or_not_at_all() {
        let slower = "a: +10.0 to +10.0 %, and the limit is +5.0 %";
        assert_eq!(wrong([&[("a", 2.2), ("b", 2.0)], &[("a", 2.2), ("b", 2.2)]]), [slower]);
        assert_eq!(wrong([&[("a", 2.2), ("b", 2.0)], &[("a", 2.0)]]), [""; 0]);
        assert_eq!(wrong([&[("a", 2.0), ("b", 2.0)], &[]]), [""; 0]);
    }

    #[test]
    fn a_suspect_that_goes_missing_or_breaks_is_not_let_go() {
        let missing = |round| format!("b: a suspect, and missing from round {round}");
        assert_eq!(wrong([&[("a", 2.0)], &[]]), [missing(2)]);
        assert_eq!(wrong([&[("a", 2.0), ("b", 2.2)], &[]]), [missing(3)]);
        assert_eq!(wrong([&[("a", 2.0), ("b", 0.0)], &[]]), ["b: a sample of 0"]);
    }

    #[test]
    fn what_is_wanting_gets_more_samples_and_no_more_rounds_than_allowed() {
        let mut found = vec![sampled("a", 2.0), sampled("b", 2.0)];
        let mut asked = Vec::new();
        let mut round = |names: &[String]| {
            asked.push(names.to_vec());
            Ok(names.iter().map(|name| sampled(name, 2.0)).collect())
        };
        let wanting = |sampled: &Sampled| sampled.name == "b";
        more(&mut found, 2, wanting, &mut round).unwrap();
        assert_eq!(found.iter().map(|sampled| sampled.samples.len()).collect::<Vec<_>>(), [35, 105]);
        assert_eq!(asked, [["b".to_owned()], ["b".to_owned()]]);
        let other = Sampled { requests: 1, ..sampled("a", 2.0) };
        assert_eq!(absorb(&mut found, other), Err("a: 0 requests, and then 1".to_owned()));
    }
}
