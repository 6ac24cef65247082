//! How often something is started: `667/s`, `40000/m`, `10000/15s`.
//!
//! Kept as a count and a period, never as a floating-point frequency: each start follows from its number alone, so that what is
//! made of it does not drift.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use crate::duration::{self, DurationError};

/// So many starts in every period, evenly spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: NonZeroU64,
    per: Duration,
}

/// Why a text is not a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// There is no period.
    #[error("`{0}` is not a rate: it needs a period, like `667/s`, `40000/m` or `10000/15s`")]
    Period(String),
    /// The count is no positive whole number.
    #[error("`{0}` is not a rate: the count before the slash is a whole number from 1 in plain digits")]
    Count(String),
    /// The period is no duration.
    #[error("`{input}` is not a rate: {source}")]
    Length {
        /// The whole input.
        input: String,
        /// What is wrong with the part behind the slash.
        source: DurationError,
    },
}

impl Rate {
    /// One in every period.
    pub(crate) fn every(per: Duration) -> Rate {
        Rate { count: NonZeroU64::MIN, per }
    }

    /// What so many come to that keep this rate each.
    pub(crate) fn of_each(self, many: u64) -> Rate {
        Rate { count: self.count.saturating_mul(NonZeroU64::new(many).unwrap_or(NonZeroU64::MIN)), ..self }
    }

    /// How long after the first start the start number `index` is due, rounded down to a nanosecond.
    pub(crate) fn offset(self, index: u64) -> Duration {
        let nanos = u128::from(index) * self.per.as_nanos() / u128::from(self.count.get());
        let second = 1_000_000_000;
        Duration::new(u64::try_from(nanos / second).unwrap_or(u64::MAX), (nanos % second) as u32)
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(input: &str) -> Result<Rate, RateError> {
        let (count, period) = input.split_once('/').ok_or_else(|| RateError::Period(input.to_owned()))?;
        let count = Some(count)
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse::<NonZeroU64>().ok())
            .ok_or_else(|| RateError::Count(input.to_owned()))?;
        // A period that names only its unit is one of it.
        let spelled = if matches!(period, "s" | "m" | "h") { format!("1{period}") } else { period.to_owned() };
        let per = duration::parse(&spelled).map_err(|source| RateError::Length { input: input.to_owned(), source })?;
        Ok(Rate { count, per })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = duration::format(self.per);
        let unit = match per.as_str() {
            "1s" => "s",
            "1m" => "m",
            "1h" => "h",
            other => other,
        };
        write!(f, "{}/{unit}", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_rate_and_how_it_is_repeated() {
        for (input, repeated) in
            [("667/s", "667/s"), ("40000/m", "40000/m"), ("10000/15s", "10000/15s"), ("1/1h", "1/h")]
        {
            assert_eq!(input.parse::<Rate>().unwrap().to_string(), repeated);
        }
    }

    #[test]
    fn what_is_refused_names_the_input() {
        for input in ["0", "-1", "1.5", "1k", "667", ""] {
            assert_eq!(input.parse::<Rate>(), Err(RateError::Period(input.to_owned())));
        }
        for input in ["0/s", "-1/s", "+1/s", "1.5/s", "/s", "99999999999999999999/s"] {
            assert_eq!(input.parse::<Rate>(), Err(RateError::Count(input.to_owned())));
        }
        for input in ["1/", "1/15", "1/0s", "1/ s", "1/s/s"] {
            let error = input.parse::<Rate>().unwrap_err();
            assert!(matches!(error, RateError::Length { .. }), "{input}: {error}");
            assert!(error.to_string().contains(&format!("`{input}`")), "{error}");
        }
    }

    #[test]
    fn nothing_drifts() {
        // A whole second is hit to the nanosecond even though 1/667 s is not a whole number of them.
        let rate: Rate = "667/s".parse().unwrap();
        assert!((0..3600).all(|second| rate.offset(667 * second) == Duration::from_secs(second)));
        let within = (0..667 * 10).map(|start| rate.offset(start));
        assert!(within.is_sorted());
    }
}
