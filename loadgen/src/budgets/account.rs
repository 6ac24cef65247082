//! What must be true of the counters, whatever the store says: the load generator's own account of one turn's charges.
//!
//! It is told every answer, and in the end what the counters stand at. What was acknowledged is counted, to the token; what is
//! unknown is counted whole or not at all, and only where it may be: a charge that the company may not have counted is on no
//! seat. And every answer came with the counters after it, so where a charge was counted is known: no two at one place, and
//! each judged by what its place says.

use engine::slots::budgets::{Caps, Charge, ChargeError, Gate};

use coordproto::answer::Landing;
use coordproto::tally::{Ceilings, Usage};
use coordproto::window::Period;

use crate::report::Anomalies;

/// The account of one turn, in a day of its own.
pub struct Account {
    caps: Vec<Caps>,
    org: Counted,
    seats: Vec<Counted>,
    misjudged: u64,
}

/// What is known of one scope.
#[derive(Clone, Debug, Default)]
struct Counted {
    acknowledged: u64,
    /// Charges of which nobody knows whether they are counted.
    unknown: Vec<u64>,
    admitted: u64,
    /// Where charges were counted: up to what sum, and how many tokens below it.
    places: Vec<(u64, u64)>,
}

impl Counted {
    fn count(&mut self, after: &Usage, tokens: u64) {
        self.acknowledged += tokens;
        self.places.push((after.day.spent, tokens));
    }

    /// Whether the counter may stand here.
    fn may_stand_at(&self, spent: u64) -> bool {
        spent.checked_sub(self.acknowledged).is_some_and(|rest| is_a_sum(&self.unknown, rest))
    }

    /// Charges that were counted where another one was, or beyond where the counter stands.
    fn misplaced(&mut self, spent: u64) -> u64 {
        self.places.sort_unstable();
        let mut below = 0;
        let mut misplaced = 0;
        for (after, tokens) in &self.places {
            let free = after.checked_sub(*tokens).is_some_and(|before| before >= below);
            misplaced += u64::from(!free || *after > spent);
            below = *after;
        }
        misplaced
    }
}

impl Account {
    /// The account of charges to a company and so many seats, each with these caps; nothing is charged yet.
    pub fn new(caps: Vec<Caps>) -> Account {
        let seats = vec![Counted::default(); caps.len()];
        Account { caps, org: Counted::default(), seats, misjudged: 0 }
    }

    /// What a charge to a seat was answered.
    pub fn told(&mut self, seat: usize, tokens: u64, answer: &Result<Charge, ChargeError>) {
        let (org, own, caps) = (&mut self.org, &mut self.seats[seat], &self.caps[seat]);
        match answer {
            Ok(Charge { gate, counters }) => {
                org.count(&counters.org, tokens);
                own.count(&counters.seat, tokens);
                let fits = has_room(&caps.org, &counters.org) && has_room(&caps.seat, &counters.seat);
                let admitted = *gate == Gate::Admitted;
                self.misjudged += u64::from(admitted != fits);
                if admitted {
                    org.admitted += tokens;
                    own.admitted += tokens;
                }
            }
            Err(ChargeError::SeatUncounted { org: after, unknown, .. }) => {
                org.count(after, tokens);
                if unknown.landing == Landing::InFlight {
                    own.unknown.push(tokens);
                }
            }
            Err(ChargeError::Unknown(unknown)) if unknown.landing == Landing::InFlight => org.unknown.push(tokens),
            Err(ChargeError::Unknown(_) | ChargeError::BadArgument(_)) => {}
        }
    }

    /// What must not be, now that the counters stand here.
    pub fn settle(mut self, org: u64, seats: &[u64]) -> Anomalies {
        let company = self.caps.first().map(|caps| caps.org);
        let ceilings = company.into_iter().chain(self.caps.iter().map(|caps| caps.seat));
        let scopes = std::iter::once(&mut self.org).chain(&mut self.seats);
        let mut found = Anomalies { budget_misjudged: self.misjudged, ..Anomalies::default() };
        for ((scope, spent), ceilings) in scopes.zip(std::iter::once(&org).chain(seats)).zip(ceilings) {
            found.budget_miscounted += u64::from(!scope.may_stand_at(*spent));
            found.budget_misjudged += scope.misplaced(*spent);
            found.budget_overspent += u64::from(limit(&ceilings).is_some_and(|limit| scope.admitted > limit));
        }
        found
    }
}

fn limit(ceilings: &Ceilings) -> Option<u64> {
    ceilings.of(Period::Day).map(std::num::NonZeroU64::get)
}

fn has_room(ceilings: &Ceilings, after: &Usage) -> bool {
    limit(ceilings).is_none_or(|limit| after.day.spent <= limit)
}

/// Whether some of these, none or all of them, make this sum.
fn is_a_sum(of: &[u64], sum: u64) -> bool {
    let total: u64 = of.iter().sum();
    if sum == 0 || sum == total {
        return true;
    }
    if sum > total {
        return false;
    }
    // A bit for each sum that can be made so far.
    let mut made = vec![0_u64; (total / 64) as usize + 1];
    made[0] = 1;
    for more in of {
        let (words, bits) = ((more / 64) as usize, more % 64);
        for at in (words..made.len()).rev() {
            let low = made[at - words] << bits;
            let high = if bits > 0 && at > words { made[at - words - 1] >> (64 - bits) } else { 0 };
            made[at] |= low | high;
        }
    }
    made[(sum / 64) as usize] >> (sum % 64) & 1 == 1
}

#[cfg(test)]
mod tests {
    use coordproto::answer::{Cause, Unknown};
    use coordproto::record::budget::Scope;
    use coordproto::tally::{Refusal, Used};
    use coordproto::window::{ByPeriod, Windows, Zone};
    use engine::slots::budgets::{Counters, Refused};

    use super::*;

    fn usage(spent: u64) -> Usage {
        let zone = Zone::parse("timezone", "UTC").unwrap();
        let windows = Windows::at("2026-09-23T12:00:00Z".parse().unwrap(), &zone).unwrap();
        ByPeriod::from_fn(|period| Used { window: windows[period], spent, refused_at: None })
    }

    fn answered(org: u64, own: u64, admitted: bool) -> Result<Charge, ChargeError> {
        let counters = Counters { org: usage(org), seat: usage(own) };
        let refusal = Refusal { window: counters.org.day.window, used: org, limit: 1.try_into().unwrap() };
        let refused = Gate::Refused(Refused { scope: Scope::Org, refusal });
        Ok(Charge { gate: if admitted { Gate::Admitted } else { refused }, counters })
    }

    fn unknown(landing: Landing) -> Unknown {
        match landing {
            Landing::Settled => Unknown::settled("charge", "org", Cause::Timeout),
            Landing::InFlight => Unknown::in_flight("charge", "org", Cause::Timeout),
        }
    }

    fn uncounted(org: u64, tokens: u64, landing: Landing) -> Result<Charge, ChargeError> {
        let (seat, unknown) = ("a".into(), unknown(landing));
        Err(ChargeError::SeatUncounted { seat, tokens, org: Box::new(usage(org)), unknown })
    }

    /// Two seats with 60 tokens each, of a company with 100.
    fn account(told: &[(usize, u64, Result<Charge, ChargeError>)]) -> Account {
        let day = |tokens| Ceilings::parse([("day", tokens)]).unwrap();
        let mut account = Account::new(vec![Caps { org: day(100), seat: day(60) }; 2]);
        told.iter().for_each(|(seat, tokens, answer)| account.told(*seat, *tokens, answer));
        account
    }

    fn found(miscounted: u64, misjudged: u64, overspent: u64) -> Anomalies {
        let (budget_miscounted, budget_misjudged, budget_overspent) = (miscounted, misjudged, overspent);
        Anomalies { budget_miscounted, budget_misjudged, budget_overspent, ..Anomalies::default() }
    }

    #[test]
    fn what_was_acknowledged_is_counted_to_the_token() {
        let told = [
            (0, 50, answered(50, 50, true)),
            (1, 40, answered(90, 40, true)),
            (0, 11, answered(101, 61, false)),
            (1, 1, answered(102, 41, false)),
        ];
        assert_eq!(account(&told).settle(102, &[61, 41]), found(0, 0, 0));
        assert_eq!(account(&told).settle(103, &[61, 41]), found(1, 0, 0), "one too many");
        assert_eq!(account(&told).settle(102, &[122, 41]), found(1, 0, 0), "a charge twice");
        assert_eq!(account(&told).settle(101, &[61, 0]), found(2, 3, 0), "lost, and answered beyond it");
    }

    #[test]
    fn what_is_unknown_is_counted_whole_or_not_and_only_where_it_may_be() {
        let told = [
            (0, 5, Err(unknown(Landing::InFlight).into())),
            (0, 7, Err(unknown(Landing::Settled).into())),
            (1, 20, uncounted(20, 20, Landing::InFlight)),
            (1, 30, uncounted(50, 30, Landing::Settled)),
        ];
        for (org, own) in [(50, 0), (50, 20), (55, 0), (55, 20)] {
            assert_eq!(account(&told).settle(org, &[0, own]), found(0, 0, 0), "{org}, {own}");
        }
        for (org, seats) in [(54, [0, 0]), (57, [0, 0]), (55, [5, 0]), (50, [0, 30]), (50, [0, 19])] {
            assert_eq!(account(&told).settle(org, &seats), found(1, 0, 0), "{org}, {seats:?}");
        }
        assert_eq!(account(&told).settle(30, &[0, 0]), found(1, 1, 0), "the company has counted both");
    }

    #[test]
    fn a_verdict_is_what_its_place_says() {
        assert_eq!(account(&[(0, 60, answered(60, 60, false))]).settle(60, &[60, 0]), found(0, 1, 0));
        assert_eq!(account(&[(0, 61, answered(61, 61, true))]).settle(61, &[61, 0]), found(0, 1, 1));
        // Both judged on the same nothing.
        let told = [(0, 60, answered(60, 60, true)), (1, 60, answered(60, 60, true))];
        assert_eq!(account(&told).settle(120, &[60, 60]), found(0, 1, 1));
    }

    #[test]
    fn sums_are_found_to_the_token() {
        let of = [3, 64, 130, 9_999, 64];
        for sum in [0, 3, 64, 67, 128, 131, 133, 194, 197, 9_999, 10_002, 10_260] {
            assert!(is_a_sum(&of, sum), "{sum}");
        }
        for sum in [1, 65, 129, 132, 9_998, 10_000, 10_259, 10_261] {
            assert!(!is_a_sum(&of, sum), "{sum}");
        }
    }
}
