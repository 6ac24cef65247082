//! Token budgets: what the company and each seat have spent in the day, the week and the month, and whether a charge still
//! fits.
//!
//! A record of the `budgets` bucket for each scope, written by compare-and-set. The calendar is the caller's: every call
//! brings the windows that it is about, and nothing here reads a clock to judge. What a charge does to a record is said in
//! [`coordproto::tally`]; here is who writes it, in what order, and what is answered when a write has no answer.
//!
//! - **The company first, then the seat.** Both count every charge, whoever refuses it, since it has been billed already. Each
//!   scope judges for itself: one that has room admits, and clears the stamps that it saw.
//! - **Never half, unless it cannot be helped.** A caller who goes away before the company's write is made has charged
//!   nothing, or all of it. Once the company has counted, the seat's write is made whatever the caller does. If that one
//!   fails, the company's record is true and stays, the seat's is short of the charge until its windows turn over, and
//!   [`ChargeError::SeatUncounted`] says by how much.
//! - **Never twice.** A write whose answer was lost is followed until the record tells whether it landed, see
//!   [`coordproto::record::budget`]. What nobody can tell any more is unknown, and not written again.
//! - **Charges that wait are counted together.** While one write of a scope is under way from this process, later charges
//!   wait, and the next write judges all of them in their order, each with a verdict of its own. Where such a write is
//!   unknown, it is unknown for each. On a record that other processes write too, a process waits for its turn, so that
//!   nobody runs out of attempts against those who write more often.
//!
//! The safe direction of what is unknown is closed, as an outage and never as a budget that is spent: see
//! [`FailsClosed::fails_closed`].

mod counter;
mod landing;
mod turns;

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use coordproto::answer::{BadArgument, Cause, Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::record::budget::{BudgetRecord, Scope};
use coordproto::slot::BUDGETS;
use coordproto::tally::{self, Ceilings, Charged, Refusal, Usage, Verdict};
use coordproto::window::Windows;
use futures_util::future::try_join;
use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::slots::Settings;
use crate::slots::budgets::counter::{Caller, Counter, Share};
use crate::store::listing::LIST_WITHIN;
use crate::store::modify::{Begin, Step, modify};
use crate::store::{Bucket, Certified, OpenError, Store, Write};
use crate::tasks;

/// The budgets of a company. Clones are handles to the same, and their charges are counted together.
pub struct Budgets<S: Store> {
    counter: Arc<Counter<S::Bucket>>,
}

impl<S: Store> Clone for Budgets<S> {
    fn clone(&self) -> Self {
        Budgets { counter: self.counter.clone() }
    }
}

/// The ceilings that a charge is judged by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// The company's.
    pub org: Ceilings,
    /// The seat's.
    pub seat: Ceilings,
}

/// The counters of the company and of a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// The company's.
    pub org: Usage,
    /// The seat's.
    pub seat: Usage,
}

/// The definite answer to a charge. Its tokens are counted on both scopes, whatever it says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the charge may have been refused"]
pub struct Charge {
    /// Whether there was room.
    pub gate: Gate,
    /// The counters after it.
    pub counters: Counters,
}

/// What both scopes say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Every capped window of both had room.
    Admitted,
    /// A window had not.
    Refused(Refused),
}

/// Who turned a call away, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Whose window had no room.
    pub scope: Scope,
    /// Which window, what has been spent in it, and its ceiling. Of several the one that ends last, of those that end together
    /// the longest, and of the same window of both scopes the company's: no call is admitted before its end.
    pub refusal: Refusal,
}

/// Why a charge has no answer. None of these is a refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChargeError {
    /// The caller's mistake; nothing was sent.
    #[error(transparent)]
    BadArgument(#[from] BadArgument),
    /// The company's write has no answer, and the seat's was not made. Whether the company may have counted the charge it
    /// says itself.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// The company has counted the charge and the seat has not, or nobody knows: offered again, it is the seat's share alone
    /// that is missing.
    #[error("{tokens} tokens are counted on the company and missing on seat {seat}: {unknown}")]
    SeatUncounted {
        /// The seat's handle.
        seat: Box<str>,
        /// What its record is short of.
        tokens: u64,
        /// The company's counters after the charge.
        org: Box<Usage>,
        /// What became of the seat's write, and whether it may still land.
        unknown: Unknown,
    },
}

impl From<Error> for ChargeError {
    fn from(error: Error) -> ChargeError {
        match error {
            Error::BadArgument(error) => error.into(),
            Error::Unknown(unknown) => unknown.into(),
        }
    }
}

/// What a round does after its charge.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the round may have to stop"]
pub enum Round {
    /// It goes on, and this is what has been spent.
    GoesOn(Box<Counters>),
    /// It stops, and its agent is told that the budget is spent.
    OutOfBudget(Refused),
    /// It stops as in an outage. Nobody is told that a budget is spent.
    Outage(ChargeError),
}

/// The safe direction of a charge without an answer.
pub trait FailsClosed {
    /// The round stops where it is unknown, which the log says: money leaves for every token, and a counter that cannot be
    /// reached does not un-cap a company. That is an outage and no refusal.
    ///
    /// # Errors
    /// A bad argument stays one.
    fn fails_closed(self) -> Result<Round, BadArgument>;
}

impl FailsClosed for Result<Charge, ChargeError> {
    fn fails_closed(self) -> Result<Round, BadArgument> {
        match self {
            Ok(Charge { gate: Gate::Admitted, counters }) => Ok(Round::GoesOn(Box::new(counters))),
            Ok(Charge { gate: Gate::Refused(refused), .. }) => Ok(Round::OutOfBudget(refused)),
            Err(ChargeError::BadArgument(error)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "budget_charge_unanswered");
                Ok(Round::Outage(error))
            }
        }
    }
}

/// A scope, and where its record stands.
#[derive(Clone)]
struct Place {
    scope: Scope,
    key: Key,
}

impl Place {
    fn org() -> Place {
        Place { scope: Scope::Org, key: Scope::Org.key().expect("it is made of literal bytes") }
    }

    fn seat(handle: &str) -> Result<Place, BadArgument> {
        let scope = Scope::Seat(handle.into());
        let key = scope.key()?;
        Ok(Place { scope, key })
    }

    fn told(&self, op: &'static str, unknown: Unknown) -> Unknown {
        unknown.during(op, self.scope.to_string())
    }
}

impl<S: Store> Budgets<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<Budgets<S>, OpenError> {
        Budgets::open_with(store, settings, usize::MAX).await
    }

    /// The same, but every charge has a write of its own: for measuring what counting them together is worth.
    ///
    /// # Errors
    /// As [`Budgets::open`].
    pub async fn open_uncombined(store: &S, settings: &Settings) -> Result<Budgets<S>, OpenError> {
        Budgets::open_with(store, settings, 1).await
    }

    async fn open_with(store: &S, settings: &Settings, most: usize) -> Result<Budgets<S>, OpenError> {
        let bucket = settings.open(store, &BUDGETS).await?;
        Ok(Budgets { counter: Arc::new(Counter::new(bucket, most)) })
    }

    /// Charges a seat, and the company with it, in the windows given; judged at `now` on the caller's clock. A charge of no
    /// tokens writes nothing.
    ///
    /// Dropped before it is answered, it has charged both or neither, unless the seat's write fails, which the log says then.
    ///
    /// # Errors
    /// A handle that no seat can have, before anything is sent; unknown; or a seat that is short of what the company counted.
    pub async fn charge(
        &self,
        seat: &str,
        tokens: u64,
        windows: &Windows,
        caps: &Caps,
        now: Timestamp,
    ) -> Result<Charge, ChargeError> {
        let seat = Place::seat(seat)?;
        let share = |ceilings| Share { tokens, windows: windows.clone(), judged: Some((ceilings, now)) };
        let (org, own) = self.both("charge", &seat, share(caps.org), share(caps.seat)).await?;
        let refused = [(Scope::Org, org), (seat.scope, own)].into_iter().filter_map(|(scope, charged)| {
            let Verdict::Refused(refusal) = charged.verdict else { return None };
            Some(Refused { scope, refusal })
        });
        // The first of two that are the same, which is the company's.
        let named = refused.reduce(|first, next| if end(&next) > end(&first) { next } else { first });
        let gate = named.map_or(Gate::Admitted, Gate::Refused);
        Ok(Charge { gate, counters: Counters { org: org.usage, seat: own.usage } })
    }

    /// Records spend after the fact on the seat and the company, with no verdict.
    ///
    /// # Errors
    /// As [`Budgets::charge`].
    pub async fn post_charge(&self, seat: &str, tokens: u64, windows: &Windows) -> Result<Counters, ChargeError> {
        let seat = Place::seat(seat)?;
        let share = || Share { tokens, windows: windows.clone(), judged: None };
        let (org, own) = self.both("post charge", &seat, share(), share()).await?;
        Ok(Counters { org: org.usage, seat: own.usage })
    }

    /// Records spend after the fact on the seat alone: what [`ChargeError::SeatUncounted`] says is missing there.
    ///
    /// # Errors
    /// A handle that no seat can have, before anything is sent; or unknown, which says whether it may be counted.
    pub async fn post_charge_seat(&self, seat: &str, tokens: u64, windows: &Windows) -> Result<Usage, Error> {
        Ok(self.post_one(Place::seat(seat)?, tokens, windows).await?)
    }

    /// Records spend after the fact on the company alone: what no seat has spent.
    ///
    /// # Errors
    /// Unknown, which says whether it may be counted.
    pub async fn post_charge_org(&self, tokens: u64, windows: &Windows) -> Result<Usage, Unknown> {
        self.post_one(Place::org(), tokens, windows).await
    }

    /// Records that a call was turned away which has not been made: on the company where it has no room left for a token, else
    /// on the seat. Counts nothing, and answers who would refuse a token; none where both have room, and nothing is written
    /// then.
    ///
    /// # Errors
    /// A handle that no seat can have, before anything is sent; or unknown. The call is not made then either: a stamp is for
    /// people, and what the counter cannot tell is an outage.
    pub async fn refuse(
        &self,
        seat: &str,
        windows: &Windows,
        caps: &Caps,
        now: Timestamp,
    ) -> Result<Option<Refused>, Error> {
        let seat = Place::seat(seat)?;
        for (place, ceilings) in [(Place::org(), &caps.org), (seat, &caps.seat)] {
            let about = place.scope.to_string();
            let stamped = modify(&self.counter.bucket, &place.key, Begin::Reading, ("refuse", &about), |value| {
                let record = value.map(|value| BudgetRecord::decode(value)).transpose()?;
                let (written, refusal) = tally::refuse(record.as_ref(), windows, ceilings, now);
                Ok(match written {
                    Some(written) => Step::Put(Write::Value(written.encode()), refusal),
                    None => Step::Keep(refusal),
                })
            });
            if let Some(refusal) = stamped.await? {
                return Ok(Some(Refused { scope: place.scope, refusal }));
            }
        }
        Ok(None)
    }

    /// The counters of a seat and of the company, as the next charge would be judged against them.
    ///
    /// # Errors
    /// A handle that no seat can have, before anything is sent; or unknown, also for a record that cannot be read.
    pub async fn used(&self, seat: &str, windows: &Windows) -> Result<Counters, Error> {
        let seat = Place::seat(seat)?;
        let org = Place::org();
        let (org, seat) = try_join(self.read("used", &org, windows), self.read("used", &seat, windows)).await?;
        Ok(Counters { org, seat })
    }

    /// The counters of every scope that has a record, by key, each at least as late as the listing's beginning.
    ///
    /// # Errors
    /// Unknown, also for one record that cannot be read, which the error names; never a shorter list.
    pub async fn usage(&self, windows: &Windows) -> Result<Vec<(Scope, Usage)>, Unknown> {
        const OP: &str = "usage";
        let bucket = &self.counter.bucket;
        let told = |unknown: Unknown| unknown.during(OP, bucket.name());
        let (every, by) = (Filter::every(), bucket.env().now() + LIST_WITHIN);
        let listing = bucket.list(&every, &Certified::Leader, by).await.map_err(told)?;
        // A member that is behind may have given an older value, and an older counter has room that is spent.
        let keys: Vec<Key> = listing.entries.into_iter().map(|(key, _)| key).collect();
        let mut found = bucket.since(&every, &keys, listing.last_seq, by).await.map_err(told)?;
        found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let mut usage = Vec::with_capacity(found.len());
        for (key, version) in found {
            // A key that names no scope was written by nobody who speaks of budgets.
            let (Some(scope), Some(value)) = (Scope::of(&key), version.value) else { continue };
            let place = Place { scope, key };
            let record = landing::record(&place.key, Some(&value)).map_err(|unknown| place.told(OP, unknown))?;
            usage.push((place.scope, tally::used(record.as_ref(), windows)));
        }
        Ok(usage)
    }

    /// Counts a charge on the company and then on the seat.
    async fn both(
        &self,
        op: &'static str,
        seat: &Place,
        org_share: Share,
        seat_share: Share,
    ) -> Result<(Charged, Charged), ChargeError> {
        let org = Place::org();
        if seat_share.tokens == 0 {
            let nothing = try_join(self.nothing(op, &org, &org_share), self.nothing(op, seat, &seat_share));
            return Ok(nothing.await?);
        }
        let (counter, seat) = (self.counter.clone(), seat.clone());
        let counted = outliving(|caller| async move {
            let company = counter.count(&org.key, org_share, Some(caller)).await;
            let company = company.map_err(|unknown| org.told(op, unknown))?;
            let tokens = seat_share.tokens;
            match counter.count(&seat.key, seat_share, None).await {
                Ok(own) => Ok((company, own)),
                Err(unknown) => {
                    let unknown = seat.told(op, unknown);
                    // The caller may have gone away, and then nobody else says it.
                    tracing::error!(scope = %seat.scope, tokens, %unknown, "coord_kv_budget_spend_uncounted");
                    let Scope::Seat(seat) = seat.scope else { unreachable!("it is a seat's") };
                    Err(ChargeError::SeatUncounted { seat, tokens, org: Box::new(company.usage), unknown })
                }
            }
        });
        counted.await.unwrap_or_else(|| Err(ended(op, &Scope::Org).into()))
    }

    async fn post_one(&self, place: Place, tokens: u64, windows: &Windows) -> Result<Usage, Unknown> {
        const OP: &str = "post charge";
        let share = Share { tokens, windows: windows.clone(), judged: None };
        if tokens == 0 {
            return Ok(self.nothing(OP, &place, &share).await?.usage);
        }
        let (counter, at) = (self.counter.clone(), place.key.clone());
        let counted = outliving(|caller| async move { counter.count(&at, share, Some(caller)).await });
        let counted = counted.await.unwrap_or_else(|| Err(ended(OP, &place.scope)));
        Ok(counted.map_err(|unknown| place.told(OP, unknown))?.usage)
    }

    /// What a charge of no tokens answers.
    async fn nothing(&self, op: &'static str, place: &Place, share: &Share) -> Result<Charged, Unknown> {
        let usage = self.read(op, place, &share.windows).await?;
        let verdict = if share.judged.is_some() { Verdict::Admitted } else { Verdict::Unjudged };
        Ok(Charged { verdict, usage })
    }

    async fn read(&self, op: &'static str, place: &Place, windows: &Windows) -> Result<Usage, Unknown> {
        let version = self.counter.bucket.get(&place.key).await.map_err(|unknown| place.told(op, unknown))?;
        let value: Option<Bytes> = version.and_then(|version| version.value);
        let record = landing::record(&place.key, value.as_ref()).map_err(|unknown| place.told(op, unknown))?;
        Ok(tally::used(record.as_ref(), windows))
    }
}

/// When a refusal ends, and of those that end together which is the longer.
fn end(refused: &Refused) -> impl Ord + use<> {
    (refused.refusal.window.end, refused.refusal.window.label.period())
}

/// Runs `work` to its end, whatever its caller does; it is told how to see whether they still wait. None where the process is
/// going down.
async fn outliving<T, F>(work: impl FnOnce(Caller) -> F) -> Option<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let waits = Arc::new(());
    let work = work(Arc::downgrade(&waits));
    let (answer, heard) = oneshot::channel();
    // What has been written has to be finished: the tokens are spent whatever the caller does next.
    tasks::detach(async move {
        let _unheard = answer.send(work.await);
    });
    let told = heard.await.ok();
    drop(waits);
    told
}

fn ended(op: &'static str, scope: &Scope) -> Unknown {
    Unknown::in_flight(op, scope.to_string(), Cause::Disconnected)
}

#[cfg(test)]
mod tests;
