//! Figures that a run has taken several times over: the median of them, and how far they lie apart.

/// The median, the least and the most of some values; none of none.
pub(crate) fn spread(values: &[f64]) -> Option<(f64, f64, f64)> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let (least, most) = (*values.first()?, *values.last()?);
    // Of an even number it lies between the two in the middle.
    let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
    Some((median, least, most))
}

/// Ratios as a person reads them: the median, and in brackets the least and the most, where there are several.
pub(crate) fn shown(ratios: &[f64]) -> Option<String> {
    let (median, least, most) = spread(ratios)?;
    Some(match ratios {
        [_] => format!("{median:.2}"),
        _ => format!("{median:.2} ({least:.2} to {most:.2})"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_lies_in_the_middle() {
        assert_eq!(spread(&[4.0, 1.0]), Some((2.5, 1.0, 4.0)));
        assert_eq!((spread(&[7.0]), spread(&[])), (Some((7.0, 7.0, 7.0)), None));
    }

    #[test]
    fn what_was_taken_once_has_no_spread() {
        assert_eq!(shown(&[1.5, 1.0, 2.0]).as_deref(), Some("1.50 (1.00 to 2.00)"));
        assert_eq!((shown(&[1.5]).as_deref(), shown(&[])), (Some("1.50"), None));
    }
}
