//! How sure a ratio of two runs is: a bootstrap over blocks of time.
//!
//! A run is redrawn from its own blocks a thousand times, each part of it from blocks of that part, and its figure taken again;
//! how far those figures lie apart is how sure it is. Blocks rather than operations, since operations of one moment are slow
//! together. Where blocks that follow one another are still alike, there are fewer of them than it seems, and the spread is
//! widened by as much as for a first-order autoregression, a factor of (1 + r) / (1 - r) in variance. What no single run can show is in
//! none of this: how far two runs of one build lie apart. That is what the thresholds are for.

use engine::env::Env;

/// So many times a run is redrawn.
const REDRAWN: u64 = 1000;

/// One block of a run as a figure needs it.
pub(super) struct Draw {
    /// The part of the run that it belongs to: blocks are redrawn from their own part.
    pub(super) part: usize,
    /// What the figure is made of.
    pub(super) weights: Vec<f64>,
}

/// A figure of one run on a logarithmic scale, and how sure it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sure {
    log: f64,
    variance: f64,
    blocks: usize,
}

/// A figure of so many blocks together, each by its weights; none of nothing.
pub(super) type Figure<'a> = &'a dyn Fn(&[&[f64]]) -> Option<f64>;

impl Sure {
    /// What a run's blocks say of a figure; none where it is not positive, or of a single block.
    pub(super) fn of(draws: &[Draw], figure: Figure<'_>) -> Option<Sure> {
        let log_of = |blocks: &[&[f64]]| figure(blocks).filter(|value| *value > 0.0 && value.is_finite()).map(f64::ln);
        let log = log_of(&draws.iter().map(|draw| &draw.weights[..]).collect::<Vec<_>>())?;
        let n = draws.len();
        if n < 2 {
            return None;
        }
        let parts: Vec<&[Draw]> = draws.chunk_by(|a, b| a.part == b.part).collect();
        // The same two files are always judged the same.
        let env = Env::seeded(1);
        let (mut sum, mut squares, mut redrawn) = (0.0, 0.0, 0.0);
        let mut chosen: Vec<&[f64]> = Vec::with_capacity(n);
        for _ in 0..REDRAWN {
            chosen.clear();
            for part in &parts {
                let one = |_: &Draw| &part[env.below(part.len() as u64) as usize].weights[..];
                chosen.extend(part.iter().map(one));
            }
            if let Some(log) = log_of(&chosen) {
                sum += log;
                squares += log * log;
                redrawn += 1.0;
            }
        }
        let spread = (squares / redrawn - (sum / redrawn) * (sum / redrawn)).max(0.0);
        let each: Vec<(usize, f64)> =
            draws.iter().filter_map(|draw| Some((draw.part, log_of(&[&draw.weights])?))).collect();
        let alike = alike(&each);
        let variance = spread * n as f64 / (n - 1) as f64 * (1.0 + alike) / (1.0 - alike);
        variance.is_finite().then_some(Sure { log, variance, blocks: n })
    }

    /// The ratio of `other` to this, and the bounds that it lies between with so little doubt.
    pub(super) fn ratio(self, other: Sure, doubt: f64) -> [f64; 3] {
        let log = other.log - self.log;
        let freedom = self.blocks.min(other.blocks) as f64 - 1.0;
        let reach = student(1.0 - doubt / 2.0, freedom) * (self.variance + other.variance).sqrt();
        [log, log - reach, log + reach].map(f64::exp)
    }
}

/// How much blocks that follow one another are alike beyond what their part has in common, from 0 for not at all: the first
/// autocorrelation, kept below 0.9.
fn alike(each: &[(usize, f64)]) -> f64 {
    let mut rest = Vec::new();
    for part in each.chunk_by(|a, b| a.0 == b.0) {
        let mean = part.iter().map(|(_, value)| value).sum::<f64>() / part.len() as f64;
        rest.extend(part.iter().map(|(_, value)| value - mean));
    }
    autocorrelation(&rest)
}

/// The first autocorrelation of what is left of a series beside its trend, from 0 to 0.9.
pub(crate) fn autocorrelation(rest: &[f64]) -> f64 {
    let squares: f64 = rest.iter().map(|value| value * value).sum();
    let products: f64 = rest.windows(2).map(|two| two[0] * two[1]).sum();
    if squares > 0.0 { (products / squares).clamp(0.0, 0.9) } else { 0.0 }
}

/// The quantile of the normal distribution, to 4.5e-4 (Abramowitz and Stegun 26.2.23).
pub(crate) fn normal(quantile: f64) -> f64 {
    if quantile < 0.5 {
        return -normal(1.0 - quantile);
    }
    let t = (-2.0 * (1.0 - quantile).ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    t - above / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}

/// The quantile of Student's distribution of so much freedom, for 5 and more (Abramowitz and Stegun 26.7.5).
fn student(quantile: f64, freedom: f64) -> f64 {
    let x = normal(quantile);
    let (x3, x5, x7, x9) = (x.powi(3), x.powi(5), x.powi(7), x.powi(9));
    x + (x3 + x) / (4.0 * freedom)
        + (5.0 * x5 + 16.0 * x3 + 3.0 * x) / (96.0 * freedom.powi(2))
        + (3.0 * x7 + 19.0 * x5 + 17.0 * x3 - 15.0 * x) / (384.0 * freedom.powi(3))
        + (79.0 * x9 + 776.0 * x7 + 1482.0 * x5 - 1920.0 * x3 - 945.0 * x) / (92_160.0 * freedom.powi(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (quantile, freedom, value) in [
            (0.975, 7.0, 2.365),
            (0.975, 30.0, 2.042),
            (0.995, 9.0, 3.250),
            (0.9995, 23.0, 3.768),
            (0.9995, 10.0, 4.587),
        ] {
            let found = student(quantile, freedom);
            assert!((found - value).abs() < 0.01 * value, "{quantile} {freedom}: {found}");
        }
        assert!((normal(0.975) - 1.96).abs() < 1e-3 && (normal(0.025) + 1.96).abs() < 1e-3);
        assert!(normal(0.5).abs() < 1e-3);
    }

    #[test]
    fn what_goes_up_and_down_slowly_is_alike_and_noise_is_not() {
        let slow: Vec<f64> = (0..48).map(|i| (f64::from(i) / 6.0).sin()).collect();
        assert!(autocorrelation(&slow) > 0.8, "{}", autocorrelation(&slow));
        let env = Env::seeded(3);
        let noise: Vec<f64> = (0..48).map(|_| env.below(1000) as f64 - 500.0).collect();
        assert!(autocorrelation(&noise) < 0.3, "{}", autocorrelation(&noise));
        assert_eq!((autocorrelation(&[]), autocorrelation(&[0.0; 9])), (0.0, 0.0));
        let parts: Vec<(usize, f64)> = (0..20).map(|i| (i / 10, (i / 10) as f64)).collect();
        assert_eq!(alike(&parts), 0.0, "a part's own level is not likeness");
    }
}
