//! How often something is started: `667/s`, `40000/m`, `10000/15s`.
//!
//! Kept as a count and a period, never as a floating-point frequency, so a schedule made of it does not drift.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use crate::duration::{self, DurationError};

/// `count` starts in every `per`, evenly spread.
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
    /// `count` starts in every `per`; `None` when `per` is zero.
    pub fn new(count: NonZeroU64, per: Duration) -> Option<Rate> {
        (!per.is_zero()).then_some(Rate { count, per })
    }

    /// One start in every `interval`; `None` when it is zero.
    pub fn every(interval: Duration) -> Option<Rate> {
        Rate::new(NonZeroU64::MIN, interval)
    }

    /// How long after the first start the start number `index` is due, rounded down to a nanosecond.
    ///
    /// Computed from the index alone, so rounding never adds up.
    pub(crate) fn offset(self, index: u64) -> Duration {
        let nanos = u128::from(index) * self.per.as_nanos() / u128::from(self.count.get());
        let second = 1_000_000_000;
        Duration::new(u64::try_from(nanos / second).unwrap_or(u64::MAX), (nanos % second) as u32)
    }

    /// How many starts are due before `length` has passed.
    pub(crate) fn starts_within(self, length: Duration) -> u64 {
        let starts = (length.as_nanos() * u128::from(self.count.get())).div_ceil(self.per.as_nanos());
        u64::try_from(starts).unwrap_or(u64::MAX)
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
        // `667/s` means one second: a period that names only its unit is one of it.
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
        for (input, count, seconds, repeated) in
            [("667/s", 667, 1, "667/s"), ("40000/m", 40_000, 60, "40000/m"), ("10000/15s", 10_000, 15, "10000/15s")]
        {
            let rate: Rate = input.parse().unwrap();
            assert_eq!(Some(rate), Rate::new(NonZeroU64::new(count).unwrap(), Duration::from_secs(seconds)));
            assert_eq!(rate.to_string(), repeated);
        }
    }

    #[test]
    fn what_is_refused_names_the_input() {
        for input in ["0", "-1", "1.5", "1k", "667", ""] {
            assert_eq!(input.parse::<Rate>(), Err(RateError::Period(input.to_owned())));
        }
        for input in ["0/s", "-1/s", "+1/s", "1.5/s", "1k/s", "/s", " 1/s", "99999999999999999999/s"] {
            assert_eq!(input.parse::<Rate>(), Err(RateError::Count(input.to_owned())));
        }
        for input in ["1/", "1/15", "1/0s", "1/ s", "1/s/s", "1/-1s"] {
            let error = input.parse::<Rate>().unwrap_err();
            assert!(matches!(error, RateError::Length { .. }), "{input}: {error}");
            assert!(error.to_string().contains(&format!("`{input}`")), "{error}");
        }
        assert_eq!(Rate::every(Duration::ZERO), None);
    }
}
