//! What a charge does to the budget record of one scope, and whether the scope admits it.
//!
//! One write does everything: it moves the slots onto the current windows, judges, counts and stamps. The record is the only
//! state, and every function here gives back the record to write instead of writing it.
//!
//! - Judged before counted: a charge is admitted while every capped window has room for all of it. Refused or not, it is
//!   counted in every window, capped or not, because whoever asks has been billed already.
//! - A refusal stamps every window without room, and names the one that ends last: no call is admitted before its end.
//! - An admitted charge clears the stamps that it saw and no newer one: a stamp later than its own instant stays, of a
//!   refusal that a peer made since.
//! - A slot goes to a later window or stays. Whoever is behind it, by a clock that trails or a zone that moved west, is
//!   judged against the later window, counts in it and reads it.
//!
//! Sums stop at 2^64 − 1 and never wrap. A charge is a fact and cannot be turned down, so the counter keeps the largest
//! number there is, at which every capped window refuses: the error is on the side of the money.
//!
//! A scope here is the company or a seat. That both have to admit a charge, and in what order they are written, is for
//! whoever writes them.

use std::num::NonZeroU64;

use jiff::Timestamp;
use serde_json::Map;

use crate::answer::BadArgument;
use crate::record::budget::{BudgetRecord, Spend};
use crate::window::{ByPeriod, Period, Window, Windows};

/// A scope's ceilings in tokens. A period without one is uncapped; what is spent in it is counted all the same.
///
/// A ceiling is at least one token. One of 0 would have to refuse every token, and has been taken for "no ceiling" by
/// readers of such settings: it is refused where it is set, so that nothing below has to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceilings(ByPeriod<Option<NonZeroU64>>);

impl Ceilings {
    /// Ceilings as a setting lists them: the name of a period, and tokens.
    ///
    /// # Errors
    /// A period that is none or is listed twice, and a ceiling below one token.
    pub fn parse<'a>(listed: impl IntoIterator<Item = (&'a str, u64)>) -> Result<Ceilings, BadArgument> {
        let mut ceilings = Ceilings::default();
        for (name, tokens) in listed {
            let period: Period = name.parse()?;
            let refuse = |rule: &str| Err(BadArgument::new("ceiling", format!("{period}: {tokens}"), rule));
            let Some(limit) = NonZeroU64::new(tokens) else {
                return refuse("at least 1 token; leave the period out to have no ceiling");
            };
            if ceilings.0[period].replace(limit).is_some() {
                return refuse("the period has a ceiling already");
            }
        }
        Ok(ceilings)
    }

    /// The ceiling of a period.
    pub fn of(&self, period: Period) -> Option<NonZeroU64> {
        self.0[period]
    }
}

/// Tokens to be counted.
#[derive(Clone, Copy, Debug)]
pub enum Charge<'a> {
    /// To be judged.
    Judged {
        /// How many; 0 writes nothing.
        tokens: u64,
        /// The windows that the charge is about.
        windows: &'a Windows,
        /// What they may hold.
        ceilings: &'a Ceilings,
        /// When it is judged, on the clock of the node that asks.
        now: Timestamp,
    },
    /// A post-charge: spend recorded after the fact. It is never refused and touches no stamp.
    Post {
        /// How many; 0 writes nothing.
        tokens: u64,
        /// The windows that the charge is about.
        windows: &'a Windows,
    },
}

/// The answer to a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// What the gate says.
    pub verdict: Verdict,
    /// The counters after the charge.
    pub usage: Usage,
}

/// What the gate says of a charge. All of its tokens are counted in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every capped window had room.
    Admitted,
    /// A window had not.
    Refused(Refusal),
    /// Nobody asked: it was a post-charge.
    Unjudged,
}

/// Why a call was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The window without room; of several the one that ends last, and of those that end together the longest.
    pub window: Window,
    /// Tokens spent in it, the refused charge included, as every later read says.
    pub used: u64,
    /// Its ceiling in tokens.
    pub limit: NonZeroU64,
}

/// The counters of a scope.
pub type Usage = ByPeriod<Used>;

/// One counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The window that is counted: the one asked about, or a later one that the record has reached.
    pub window: Window,
    /// Tokens spent in it.
    pub spent: u64,
    /// When the gate last turned a call away in it.
    pub refused_at: Option<Timestamp>,
}

/// Charges a scope: the record to write, where anything is, and the answer that stands once it is written.
pub fn charge(
    record: Option<&BudgetRecord>,
    windows: &Windows,
    ceilings: &Ceilings,
    tokens: u64,
    now: Timestamp,
) -> (Option<BudgetRecord>, Charged) {
    one(record, Charge::Judged { tokens, windows, ceilings, now })
}

/// Counts what has been spent with nobody asked: the record to write, where anything is, and the counters after it.
pub fn post_charge(record: Option<&BudgetRecord>, windows: &Windows, tokens: u64) -> (Option<BudgetRecord>, Usage) {
    let (record, charged) = one(record, Charge::Post { tokens, windows });
    (record, charged.usage)
}

/// Several charges in one write, judged one after another in their order: the record to write, where anything is, and an
/// answer for each. The verdicts and the record are those of as many single writes.
pub fn charge_all(record: Option<&BudgetRecord>, charges: &[Charge<'_>]) -> (Option<BudgetRecord>, Vec<Charged>) {
    let mut tally = Tally { record: record.cloned(), counted: false };
    let answers = charges.iter().map(|charge| tally.take(charge)).collect();
    (tally.into_written(), answers)
}

/// Turns a call away that has not been made: the record to write, where anything is, and why; nothing and nothing where every
/// capped window has room for a token.
///
/// Every window without room is stamped and nothing is counted. There is nothing to write where all of them bear a stamp as
/// late as `now` already.
pub fn refuse(
    record: Option<&BudgetRecord>,
    windows: &Windows,
    ceilings: &Ceilings,
    now: Timestamp,
) -> (Option<BudgetRecord>, Option<Refusal>) {
    // Nothing is spent where nothing is recorded, and a ceiling is never 0.
    let Some(record) = record else { return (None, None) };
    let full = ByPeriod::from_fn(|period| {
        let spent = view(Some(record), windows, period).spent;
        ceilings.of(period).filter(|limit| spent >= limit.get())
    });
    let Some(refusal) = named(record, windows, &full) else { return (None, None) };
    let mut stamped = record.clone();
    stamp(&mut stamped, &full, now);
    ((stamped != *record).then_some(stamped), Some(refusal))
}

/// The counters as the next charge would be judged against them.
pub fn used(record: Option<&BudgetRecord>, windows: &Windows) -> Usage {
    ByPeriod::from_fn(|period| view(record, windows, period))
}

fn one(record: Option<&BudgetRecord>, charge: Charge<'_>) -> (Option<BudgetRecord>, Charged) {
    let mut tally = Tally { record: record.cloned(), counted: false };
    let charged = tally.take(&charge);
    (tally.into_written(), charged)
}

/// A record while charges are counted in it.
struct Tally {
    record: Option<BudgetRecord>,
    counted: bool,
}

impl Tally {
    fn take(&mut self, charge: &Charge<'_>) -> Charged {
        match *charge {
            Charge::Judged { tokens, windows, ceilings, now } => {
                let verdict = if tokens == 0 {
                    Verdict::Admitted
                } else {
                    judge(self.rolled(windows), windows, ceilings, tokens, now)
                };
                Charged { verdict, usage: used(self.record.as_ref(), windows) }
            }
            Charge::Post { tokens, windows } => {
                if tokens > 0 {
                    count(self.rolled(windows), tokens);
                }
                Charged { verdict: Verdict::Unjudged, usage: used(self.record.as_ref(), windows) }
            }
        }
    }

    /// The record with every slot moved onto its current window, which is how every charge begins.
    fn rolled(&mut self, windows: &Windows) -> &mut BudgetRecord {
        self.counted = true;
        let record = self.record.get_or_insert_with(|| BudgetRecord {
            slots: ByPeriod::from_fn(|period| Spend::none(windows[period].label)),
            writes: Vec::new(),
            forgotten: None,
            newer: Map::new(),
        });
        record.slots = ByPeriod::from_fn(|period| current(&record.slots[period], &windows[period]));
        record
    }

    fn into_written(self) -> Option<BudgetRecord> {
        self.record.filter(|_| self.counted)
    }
}

fn judge(record: &mut BudgetRecord, windows: &Windows, ceilings: &Ceilings, tokens: u64, now: Timestamp) -> Verdict {
    let full = ByPeriod::from_fn(|period| {
        let total = record.slots[period].spent.checked_add(tokens);
        ceilings.of(period).filter(|limit| total.is_none_or(|total| total > limit.get()))
    });
    count(record, tokens);
    stamp(record, &full, now);
    if let Some(refusal) = named(record, windows, &full) {
        return Verdict::Refused(refusal);
    }
    for period in Period::ALL {
        let slot = &mut record.slots[period];
        slot.refused_at = slot.refused_at.filter(|refused| *refused > now);
    }
    Verdict::Admitted
}

fn count(record: &mut BudgetRecord, tokens: u64) {
    for period in Period::ALL {
        let slot = &mut record.slots[period];
        slot.spent = slot.spent.saturating_add(tokens);
    }
}

/// Stamps every window whose ceiling is named in `full`. Of two refusals the later is the last.
fn stamp(record: &mut BudgetRecord, full: &ByPeriod<Option<NonZeroU64>>, now: Timestamp) {
    for period in Period::ALL {
        if full[period].is_some() {
            let slot = &mut record.slots[period];
            slot.refused_at = slot.refused_at.max(Some(now));
        }
    }
}

/// The refusal to name, of the windows whose ceiling is named in `full`.
fn named(record: &BudgetRecord, windows: &Windows, full: &ByPeriod<Option<NonZeroU64>>) -> Option<Refusal> {
    let refusal = |period: Period| {
        let used = view(Some(record), windows, period);
        full[period].map(|limit| Refusal { window: used.window, used: used.spent, limit })
    };
    let end = |refusal: &Refusal| (refusal.window.end, refusal.window.label.period());
    Period::ALL.into_iter().filter_map(refusal).max_by_key(end)
}

/// What a slot says of the window current to whoever asks: itself, unless it is of an earlier one.
fn current(slot: &Spend, window: &Window) -> Spend {
    if slot.label < window.label { Spend::none(window.label) } else { *slot }
}

fn view(record: Option<&BudgetRecord>, windows: &Windows, period: Period) -> Used {
    let asked = windows[period];
    let slot = record.map_or_else(|| Spend::none(asked.label), |record| current(&record.slots[period], &asked));
    let window = if slot.label == asked.label { asked } else { windows.zone().window(slot.label) };
    Used { window, spent: slot.spent, refused_at: slot.refused_at }
}

#[cfg(test)]
mod tests;
