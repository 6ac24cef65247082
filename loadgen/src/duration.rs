//! Durations as people write them on a command line: `500ms`, `1m30s`, `1.5h`.
//!
//! A number always carries its unit, so `30` can never be read as thirty nanoseconds by one flag and thirty seconds by
//! another. [`parse`] is a clap value parser; [`format()`] writes the parsed value back, which is how a report repeats it.
//! This is not a calendar: days and months are not durations here.

use std::time::Duration;

/// The units, largest first, with their length in nanoseconds.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Why a text is not a duration: the input, and the rule it breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{input}` is not a duration: {rule}")]
pub struct DurationError {
    input: String,
    /// The rule that the input breaks.
    pub rule: Rule,
}

/// The rules a duration is written by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each is its documentation")]
pub enum Rule {
    #[error("it is empty; write one like `30s` or `1m30s`")]
    Empty,
    #[error("each number needs a unit right behind it: h, m, s, ms, us or ns")]
    Unit,
    #[error("each part is decimal digits and a unit, like `30s`, `1m30s` or `1.5h`; no sign, space or exponent")]
    Shape,
    #[error("units go from large to small, each at most once")]
    Order,
    #[error("only the last part may have a fraction")]
    Fraction,
    #[error("it is finer than a nanosecond")]
    TooFine,
    #[error("it is longer than 500 years")]
    TooLong,
    #[error("it must be longer than zero")]
    Zero,
}

/// Parses a duration longer than zero. Exact: nothing is rounded.
///
/// # Errors
/// The input and the rule it breaks.
pub fn parse(input: &str) -> Result<Duration, DurationError> {
    match nanoseconds(input) {
        Ok(0) => Err(DurationError { input: input.to_owned(), rule: Rule::Zero }),
        Ok(total) => Ok(Duration::from_nanos(total)),
        Err(rule) => Err(DurationError { input: input.to_owned(), rule }),
    }
}

fn nanoseconds(input: &str) -> Result<u64, Rule> {
    /// Sums stay below 2^63 nanoseconds, so that a deadline made of a start and a duration cannot overflow either.
    const LIMIT: u128 = 500 * 365 * 86_400 * 1_000_000_000;
    if input.is_empty() {
        return Err(Rule::Empty);
    }
    let mut rest = input;
    let mut total = 0u128;
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let number = &rest[..rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len())];
        let after = &rest[number.len()..];
        let unit = &after[..after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len())];
        rest = &after[unit.len()..];

        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
            return Err(Rule::Shape);
        }
        let (_, length) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(match rest.is_empty() {
            true => Rule::Unit,
            false => Rule::Shape,
        })?;
        // Looking only among the units that are left finds a unit out of order or written twice.
        units.find(|(name, _)| *name == unit).ok_or(Rule::Order)?;
        if !fraction.is_empty() && !rest.is_empty() {
            return Err(Rule::Fraction);
        }
        total += u128::from(whole.parse::<u64>().map_err(|_| Rule::TooLong)?) * u128::from(*length);
        total += fraction_of(fraction, *length)?;
        if total > LIMIT {
            return Err(Rule::TooLong);
        }
    }
    u64::try_from(total).map_err(|_| Rule::TooLong)
}

/// The nanoseconds of the decimal digits behind the point of a unit `length` nanoseconds long.
fn fraction_of(digits: &str, length: u64) -> Result<u128, Rule> {
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    // An hour has fewer than 14 digits of nanoseconds, so any longer fraction is finer than one of them.
    let exponent = u32::try_from(digits.len()).ok().filter(|digits| *digits <= 14).ok_or(Rule::TooFine)?;
    let scaled = u128::from(digits.parse::<u64>().map_err(|_| Rule::Shape)?) * u128::from(length);
    let scale = 10u128.pow(exponent);
    if scaled.is_multiple_of(scale) { Ok(scaled / scale) } else { Err(Rule::TooFine) }
}

/// Writes a duration so that [`parse`] gives the same value back: `90s` becomes `1m30s`. Zero is `0s`.
pub fn format(duration: Duration) -> String {
    let mut left = duration.as_nanos();
    let mut text = String::new();
    for (unit, length) in UNITS {
        let count = left / u128::from(length);
        left %= u128::from(length);
        if count > 0 {
            text.push_str(&count.to_string());
            text.push_str(unit);
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_duration_and_how_it_is_repeated() {
        for (input, nanos, repeated) in [
            ("30s", 30_000_000_000, "30s"),
            ("1m30s", 90_000_000_000, "1m30s"),
            ("90s", 90_000_000_000, "1m30s"),
            ("500ms", 500_000_000, "500ms"),
            ("1.5h", 5_400_000_000_000, "1h30m"),
            ("90us", 90_000, "90us"),
            ("1.5us", 1_500, "1us500ns"),
            ("1h0.25s", 3_600_250_000_000, "1h250ms"),
            ("0h5s", 5_000_000_000, "5s"),
            ("007s", 7_000_000_000, "7s"),
        ] {
            let parsed = parse(input).unwrap();
            assert_eq!(parsed, Duration::from_nanos(nanos), "{input}");
            assert_eq!(format(parsed), repeated, "{input}");
            assert_eq!(parse(repeated).unwrap(), parsed, "{input}");
        }
    }

    #[test]
    fn what_is_refused_names_the_input_and_the_rule() {
        for (input, rule) in [
            ("", Rule::Empty),
            ("30", Rule::Unit),
            ("0", Rule::Unit),
            ("5000000000", Rule::Unit),
            ("30sec", Rule::Unit),
            ("30S", Rule::Unit),
            ("1d", Rule::Unit),
            ("-5s", Rule::Shape),
            ("+5s", Rule::Shape),
            ("1e3s", Rule::Shape),
            ("90 s", Rule::Shape),
            (" 90s", Rule::Shape),
            ("90s ", Rule::Shape),
            ("s", Rule::Shape),
            (".5s", Rule::Shape),
            ("5.s", Rule::Shape),
            ("1.2.3s", Rule::Shape),
            ("1,5s", Rule::Shape),
            ("٣s", Rule::Shape),
            ("30µs", Rule::Shape),
            ("30s1m", Rule::Order),
            ("1s1s", Rule::Order),
            ("1.5h30m", Rule::Fraction),
            ("0.5ns", Rule::TooFine),
            ("0.0000000000000001h", Rule::TooFine),
            ("99999999999999999999s", Rule::TooLong),
            ("9999999999h", Rule::TooLong),
            ("0s", Rule::Zero),
            ("0.0h", Rule::Zero),
        ] {
            let error = parse(input).unwrap_err();
            assert_eq!(error.rule, rule, "{input}");
            assert_eq!(error.to_string(), format!("`{input}` is not a duration: {rule}"));
        }
    }

    #[test]
    fn it_serves_clap_as_a_value_parser() {
        let command = clap::Command::new("run")
            .arg(clap::Arg::new("duration").long("duration").value_parser(parse).allow_hyphen_values(true));
        let given = |value: &str| command.clone().try_get_matches_from(["run", "--duration", value]);
        assert_eq!(given("1m").unwrap().get_one::<Duration>("duration"), Some(&Duration::from_secs(60)));
        let refused = given("-5s").unwrap_err().to_string();
        assert!(refused.contains("`-5s` is not a duration"), "{refused}");
    }
}
