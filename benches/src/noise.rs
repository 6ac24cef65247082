//! How noisy a machine is, found before anything is judged or written.
//!
//! Two works that never change are sampled like every path: the fixed work, held against itself, and work on memory, held against
//! the fixed work as every path is. What they seem to change by is the machine's doing. Above a limit of the first nothing can
//! be told here. The second shares a core's caches with whoever else is on it, and each benchmark does so as much as it is like
//! that: it is said, and what it does to a benchmark that one's own interval tells.

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

    /// Whether it is too much to write a baseline, or to judge without wider limits.
    pub fn is_too_much(&self) -> bool {
        self.itself > MOST
    }

    /// By how many hundredths limits are wider.
    pub fn widens(&self) -> f64 {
        if self.is_too_much() { self.itself } else { 0.0 }
    }
}

impl fmt::Display for Noise {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Noise { itself, memory } = self;
        write!(out, "fixed work {itself:.2} %, at most {MOST} %; memory {memory:.2} %")
    }
}

/// Work of a fixed size: about a microsecond of what the paths are made of, multiplications, branches on bytes, an allocation and a
/// copy. A chain in which every step needs the one before would not do: it leaves most of a core idle, so that whoever uses the
/// rest (another thread of the same core, on a machine that is shared) slows the paths by a half and the chain not at all.
pub(crate) fn fixed() -> Box<dyn Work> {
    let bytes: [u8; 512] = std::array::from_fn(|n| (n * 37 % 251) as u8);
    on(bytes, |bytes| {
        let mut lanes = [0xcbf2_9ce4_8422_2325_u64; 4];
        for four in bytes.chunks_exact(lanes.len()) {
            for (lane, byte) in lanes.iter_mut().zip(four) {
                *lane = (*lane ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        let text: Vec<u8> = bytes.iter().filter(|byte| byte.is_ascii_graphic()).copied().collect();
        std::hint::black_box((lanes, text));
    })
}

/// Work on memory as the paths do it: a record's worth of allocations, written and read again. What it copies comes from no
/// block of its own, since where such a block happened to lie was worth a fifth.
fn memory() -> Box<dyn Work> {
    let mut first = 0_u8;
    on((), move |()| {
        first = first.wrapping_add(1);
        let pieces: [Vec<u8>; 6] = std::array::from_fn(|n| vec![first; 24 + 31 * n]);
        std::hint::black_box(pieces.iter().map(|piece| u64::from(piece[piece.len() / 2])).sum::<u64>());
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
    fn a_noise_widens_the_limits_only_where_it_is_too_much() {
        for quiet in [found(0.999, [2.0, 2.02]), found(0.999, [2.0, 2.5])] {
            let quiet = Noise::of(&quiet).unwrap();
            assert_eq!((quiet.is_too_much(), quiet.widens()), (false, 0.0), "{quiet}");
        }
        let loud = Noise::of(&found(0.96, [2.0, 2.16])).unwrap();
        assert!(loud.is_too_much() && (3.8..4.2).contains(&loud.widens()), "{loud}");
        assert!((3.8..4.2).contains(&loud.memory), "{loud}");
    }

    #[test]
    fn a_noise_that_was_not_measured_is_no_quiet() {
        let [itself, memory] = found(1.0, [2.0, 2.0]);
        assert!(Noise::of(std::slice::from_ref(&itself)).is_err());
        assert!(Noise::of(&[itself, Sampled { samples: vec![f64::NAN], ..memory }]).is_err());
    }
}
