//! When a fleet does what, as far as that is settled before it starts: the beats of its nodes, and who claims which seat in
//! which wave. It follows from the parameters and the seed alone; [`Plan::digest`] tells two plans apart.

use std::time::Duration;

use engine::env::Env;

use super::Params;
use crate::histogram::nanos;

/// How many claimers want each seat, at least, unless there are fewer.
const RIVALS: usize = 4;

/// The plan that all nodes and claimers follow.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    params: Params,
    /// From one wave of claims to the next.
    interval: Duration,
}

impl Plan {
    pub(super) fn new(params: &Params) -> Plan {
        let waves = params.claims.div_ceil(params.claimers as u64);
        let interval = share(params.contest_lasts(), 1, waves);
        Plan { params: params.clone(), interval }
    }

    /// How many waves of claims there are.
    pub(super) fn waves(&self) -> u64 {
        self.params.claims.div_ceil(self.params.claimers as u64)
    }

    /// When a wave begins, counted from the first.
    pub(super) fn at(&self, wave: u64) -> Duration {
        let nanos = self.interval.as_nanos() * u128::from(wave);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How many claims a wave has: one of each claimer, except for the last, which has the rest.
    fn claims(&self, wave: u64) -> usize {
        let before = wave * self.params.claimers as u64;
        self.params.claimers.min(usize::try_from(self.params.claims.saturating_sub(before)).unwrap_or(usize::MAX))
    }

    /// Which of a wave's seats each claimer wants; none when it sits this one out. Neighbours want the same, and where one
    /// neighbourhood ends and the next begins is drawn for every wave.
    pub(super) fn seat(&self, wave: u64, claimer: usize) -> Option<usize> {
        let claims = self.claims(wave);
        if claimer >= claims {
            return None;
        }
        let turn = self.turn(wave) as usize;
        Some(((claimer + turn) % claims / RIVALS).min(seats(claims) - 1))
    }

    /// By how many claimers a wave's neighbourhoods are shifted.
    fn turn(&self, wave: u64) -> u64 {
        Env::seeded(self.params.seed.wrapping_add(wave)).below(self.claims(wave) as u64)
    }

    /// How many claimers want this seat of this wave.
    pub(super) fn rivals(&self, wave: u64, seat: usize) -> usize {
        let claims = self.claims(wave);
        if seat + 1 == seats(claims) { claims - seat * RIVALS } else { RIVALS }
    }

    /// A number that two plans share only when they are the same, as far as 64 bits can tell.
    pub(super) fn digest(&self) -> u64 {
        let Params { seats, nodes, heartbeat, .. } = self.params;
        let mut digest = Digest::default();
        digest.add(seats as u64);
        digest.add(nanos(heartbeat));
        (0..nodes).for_each(|node| digest.add(nanos(beat(heartbeat, node, nodes))));
        for wave in 0..self.waves() {
            digest.add(nanos(self.at(wave)));
            digest.add(self.claims(wave) as u64);
            digest.add(self.turn(wave));
        }
        digest.0
    }
}

/// What numbers come to, in their order (FNV-1a).
pub(crate) struct Digest(pub(crate) u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Goes on with another number.
    pub(crate) fn add(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x0100_0000_01b3);
    }
}

/// How long after the beginning of the interval a node beats: nodes are spread over it.
pub(super) fn beat(heartbeat: Duration, node: usize, nodes: usize) -> Duration {
    share(heartbeat, node as u64, nodes as u64)
}

/// The seats that so many claims are after.
fn seats(claims: usize) -> usize {
    (claims / RIVALS).max(1)
}

/// `part` of `parts` of a length, rounded down to a nanosecond.
fn share(length: Duration, part: u64, parts: u64) -> Duration {
    let nanos = length.as_nanos() * u128::from(part) / u128::from(parts.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(claimers: usize, claims: u64, seed: u64) -> Params {
        let s = Duration::from_secs;
        let (heartbeat, duration, warmup) = (s(15), s(60), s(15));
        Params { seats: 100, nodes: 7, heartbeat, claimers, claims, duration, warmup, steady: false, seed }
    }

    #[test]
    fn every_claim_is_planned_once_and_every_seat_is_wanted_by_several() {
        for (claimers, claims) in [(100, 10_000), (8, 60), (7, 7), (9, 100), (3, 3), (1, 5), (100, 13)] {
            let plan = Plan::new(&params(claimers, claims, 42));
            let mut planned = 0;
            for wave in 0..plan.waves() {
                let mut wanted = std::collections::BTreeMap::<usize, usize>::new();
                for seat in (0..claimers).filter_map(|claimer| plan.seat(wave, claimer)) {
                    *wanted.entry(seat).or_default() += 1;
                }
                planned += wanted.values().sum::<usize>();
                for (seat, rivals) in &wanted {
                    assert_eq!(*rivals, plan.rivals(wave, *seat), "{claimers} {claims}: seat {seat} of wave {wave}");
                    assert!(*rivals >= RIVALS.min(plan.claims(wave)), "{claimers} {claims}: {wanted:?}");
                }
                assert!(plan.at(wave) < Duration::from_secs(40), "the contest takes two thirds of the measured time");
            }
            assert_eq!(planned as u64, claims);
        }
    }

    #[test]
    fn steady_claims_take_the_whole_time() {
        let plan = Plan::new(&Params { steady: true, ..params(10, 750, 42) });
        assert_eq!((plan.waves(), plan.at(74)), (75, Duration::from_secs(74)), "warm-up and duration are 75 s");
    }

    #[test]
    fn nodes_beat_all_over_the_interval() {
        let beats: Vec<_> = (0..7).map(|node| beat(Duration::from_secs(15), node, 7).as_millis()).collect();
        assert_eq!(beats, [0, 2142, 4285, 6428, 8571, 10714, 12857]);
    }

    #[test]
    fn the_same_seed_gives_the_same_plan_and_another_seed_another() {
        let digest = |claims, seed| Plan::new(&params(100, claims, seed)).digest();
        assert_eq!(digest(1000, 42), digest(1000, 42));
        assert_ne!(digest(1000, 42), digest(1000, 43));
        assert_ne!(digest(1000, 42), digest(1001, 42));
    }
}
