//! What must be true of every family, whatever the store says: the load generator's own accounts, made from the answers alone.
//!
//! Each account takes what is about to be sent before it is, and what was answered after. Whoever answered definitely is held
//! to it from then on; what has no answer may or may not have happened, and is counted as neither. So each says only what has
//! to hold: at least what was acknowledged before the question was sent, and nothing that nobody had sent when it was
//! answered.

mod activations;
mod cooling;
mod race;
mod reports;
mod rising;
mod roll;
mod spend;
mod valve;

use std::fmt::Display;

use parking_lot::Mutex;

use crate::fleet::Model;

pub(super) use activations::Activated;
pub(super) use cooling::Cooling;
pub(super) use race::{Said, judged};
pub(super) use reports::Reports;
pub(super) use rising::Rising;
pub(super) use roll::Rolls;
pub(super) use spend::{Before, Spend};
pub(super) use valve::Valve;

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    WinnersDoubled,
    WinnersMissing,
    Record,
    Valve,
    SpendOff,
    ListingShort,
    ListingDouble,
    Unsettled,
}

/// What an account found wrong, or nothing.
pub(super) type Verdict = Result<(), Wrong>;

/// That it is so, or else what is wrong.
pub(super) fn holds(so: bool, otherwise: Wrong) -> Verdict {
    if so { Ok(()) } else { Err(otherwise) }
}

/// What was found so far, of the leases and of everything else.
#[derive(Clone, Default)]
pub(super) struct Found(Model);

impl Found {
    /// Counts what is wrong, and says in the log what it is about.
    pub(super) fn count(&self, verdict: Verdict, about: impl Display) {
        let Err(wrong) = verdict else { return };
        tracing::error!(?wrong, %about, "mix_answer_wrong");
        self.0.found(|found| {
            *match wrong {
                Wrong::WinnersDoubled => &mut found.winners_doubled,
                Wrong::WinnersMissing => &mut found.winners_missing,
                Wrong::Record => &mut found.records_wrong,
                Wrong::Valve => &mut found.valve_wrong,
                Wrong::SpendOff => &mut found.spend_off,
                Wrong::ListingShort => &mut found.listing_short,
                Wrong::ListingDouble => &mut found.listing_double,
                Wrong::Unsettled => &mut found.ops_unsettled,
            } += 1
        });
    }
}

/// Beside what is found of the leases.
impl From<Model> for Found {
    fn from(leases: Model) -> Found {
        Found(leases)
    }
}

/// Every account that several deeds share.
#[derive(Default)]
pub(super) struct Accounts {
    pub(super) found: Found,
    pub(super) activations: Mutex<Activated>,
    pub(super) cooling: Mutex<Cooling>,
    pub(super) reports: Mutex<Reports>,
    pub(super) rolls: Mutex<Rolls>,
    pub(super) spend: Mutex<Spend>,
    pub(super) valve: Mutex<Valve>,
}
