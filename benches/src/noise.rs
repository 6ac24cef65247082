//! How noisy a machine is, found before anything is judged or written.
//!
//! Two works that never change are sampled like every path: arithmetic, held against itself, and work on memory, held against
//! arithmetic as every path is. What they seem to change by is the machine's doing.

use std::fmt;

use crate::judge::Interval;
use crate::sampling::Sampled;
use crate::work::{Path, Work, on};

/// Above so many hundredths, no baseline is written, and the limits are wider by as many as there are.
pub const MOST: f64 = 1.5;

const ITSELF: &str = "noise: the fixed work against itself";

const MEMORY: &str = "noise: memory against the fixed work";

/// What the noise is found by.
pub const ALL: [Path; 2] = [Path::quick(ITSELF, fixed), Path::quick(MEMORY, memory)];

/// What this machine takes for a change while nothing changes, in hundredths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// How far the fixed work seems to lie from itself at most.
    pub itself: f64,
    /// Half the width of the interval in which the work on memory lies.
    pub memory: f64,
}

impl Noise {
    /// The noise, from a round of [`ALL`].
    ///
    /// # Errors
    /// It was not measured.
    pub fn of(found: &[Sampled]) -> Result<Noise, String> {
        let interval = |name: &str| {
            let sampled = found.iter().find(|sampled| sampled.name == name);
            let sampled = sampled.ok_or_else(|| format!("{name}: missing from this run"))?;
            Interval::of(&sampled.samples).map_err(|why| format!("{name}: {why}"))
        };
        let (itself, memory) = (interval(ITSELF)?, interval(MEMORY)?);
        let itself = 100.0 * (itself.low - 1.0).abs().max((itself.high - 1.0).abs());
        Ok(Noise { itself, memory: memory.percent() })
    }

    /// The larger of the two, in hundredths.
    pub fn percent(&self) -> f64 {
        self.itself.max(self.memory)
    }

    /// Whether it is too much to write a baseline, or to judge without wider limits.
    pub fn is_too_much(&self) -> bool {
        self.percent() > MOST
    }

    /// By how many hundredths limits are wider.
    pub fn widens(&self) -> f64 {
        if self.is_too_much() { self.percent() } else { 0.0 }
    }
}

impl fmt::Display for Noise {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Noise { itself, memory } = self;
        write!(out, "{:.2} %: arithmetic {itself:.2} %, memory {memory:.2} %, at most {MOST} %", self.percent())
    }
}

/// Work of a fixed size: about a microsecond of arithmetic, each step of which needs the one before.
pub(crate) fn fixed() -> Box<dyn Work> {
    on([7_u8; 512], |bytes| {
        let hash = bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        std::hint::black_box(hash);
    })
}

/// Work on memory: pieces of a block larger than the first caches, copied into allocations of sizes as records have.
fn memory() -> Box<dyn Work> {
    const BLOCK: usize = 1 << 20;
    let mut from = 0;
    on(vec![7_u8; BLOCK], move |block| {
        let pieces: [Vec<u8>; 32] = std::array::from_fn(|n| {
            // A stride that no power of two divides visits every part of the block.
            from = (from + 40_961) % (BLOCK - 1_024);
            block[from..from + 24 + 31 * n].to_vec()
        });
        std::hint::black_box(pieces);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(itself: f64, memory: [f64; 2]) -> [Sampled; 2] {
        let sampled = |name: &str, samples| Sampled { name: name.to_owned(), requests: 0, samples };
        [sampled(ITSELF, vec![itself; 35]), sampled(MEMORY, [vec![memory[0]; 18], vec![memory[1]; 17]].concat())]
    }

    #[test]
    fn the_larger_noise_counts_and_widens_the_limits_only_where_it_is_too_much() {
        let quiet = Noise::of(&found(0.999, [2.0, 2.02])).unwrap();
        assert_eq!((quiet.is_too_much(), quiet.widens()), (false, 0.0), "{quiet}");
        for loud in [found(0.96, [2.0, 2.0]), found(1.0, [2.0, 2.16])] {
            let loud = Noise::of(&loud).unwrap();
            assert!(loud.is_too_much() && (3.8..4.2).contains(&loud.widens()), "{loud}");
        }
    }

    #[test]
    fn a_noise_that_was_not_measured_is_no_quiet() {
        let [itself, memory] = found(1.0, [2.0, 2.0]);
        assert!(Noise::of(std::slice::from_ref(&itself)).is_err());
        assert!(Noise::of(&[itself, Sampled { samples: vec![f64::NAN], ..memory }]).is_err());
    }
}
