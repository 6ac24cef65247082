//! Figures with a unit, at the three digits that a person compares.

/// Nanoseconds in the unit that suits them: `412 us`, `1.02 ms`, `75.0 s`.
pub(crate) fn time(ns: u64) -> String {
    let ns = ns as f64;
    // The border lies where three digits would round up to the next unit.
    let (value, unit) = match ns {
        0.0 => return "0 s".to_owned(),
        _ if ns < 999_500.0 => (ns / 1e3, "us"),
        _ if ns < 999_500_000.0 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// Bytes in decimal units: `67.1 MB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let bytes = bytes as f64;
    let (value, unit) = if bytes < 999_500_000.0 { (bytes / 1e6, "MB") } else { (bytes / 1e9, "GB") };
    format!("{} {unit}", digits(value))
}

fn digits(value: f64) -> String {
    match value {
        _ if value < 9.995 => format!("{value:.2}"),
        _ if value < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A share of one core.
pub(crate) fn percent(value: f64) -> String {
    format!("{value:.1} %")
}

/// `count` in `duration_ns`, per second; zero only when there were none.
pub(crate) fn per_second(count: u64, duration_ns: u64) -> String {
    let rate = count as f64 * 1e9 / duration_ns as f64;
    match rate {
        _ if count == 0 => "0/s".to_owned(),
        _ if !rate.is_finite() => "-/s".to_owned(),
        _ if rate < 0.01 => "<0.01/s".to_owned(),
        _ if rate < 999.5 => format!("{}/s", digits(rate)),
        _ => format!("{}/s", self::count(rate.round() as u64)),
    }
}

/// A whole number with its thousands apart: `10,000`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count and its noun.
pub(crate) fn plural(number: u64, one: &str, more: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        for (ns, text) in [
            (0, "0 s"),
            (1, "0.00 us"),
            (90_000, "90.0 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (1_024_000, "1.02 ms"),
            (9_995_000, "10.0 ms"),
            (999_499_999, "999 ms"),
            (999_500_000, "1.00 s"),
            (75_000_000_000, "75.0 s"),
            (3_600_000_000_000, "3600 s"),
        ] {
            assert_eq!(time(ns), text);
        }
        assert_eq!((bytes(67_123_456).as_str(), bytes(1_500_000_000).as_str()), ("67.1 MB", "1.50 GB"));
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let minute = 60_000_000_000;
        assert_eq!([0, 1, 40_000, 3_000_000].map(|n| per_second(n, minute)), ["0/s", "0.02/s", "667/s", "50,000/s"]);
        assert_eq!((per_second(1, 3600 * minute).as_str(), per_second(1, 0).as_str()), ("<0.01/s", "-/s"));
    }
}
