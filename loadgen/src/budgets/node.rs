//! A node as it charges in one way, with a bucket of that way's own, and the loop that the engine's is compared with.

use bytes::Bytes;
use coordproto::answer::{BadArgument, Error, Unknown};
use coordproto::record::budget::{BudgetRecord, Scope};
use coordproto::slot::BUDGETS;
use coordproto::tally::{self, Ceilings, Charged, Verdict};
use coordproto::window::Windows;
use engine::slots::Settings;
use engine::slots::budgets::{Budgets, Caps, Charge, ChargeError, Counters, Gate, Refused};
use engine::store::counting::{Calls, Counting};
use engine::store::modify::{Begin, Step, modify};
use engine::store::{Bucket, OpenError, Store, Write};
use jiff::Timestamp;

use super::Way;

/// One node in one way. Clones are handles to the same.
pub(super) struct Desk<S: Store> {
    way: Way,
    /// Counts what is asked of the bucket.
    counting: Counting<S>,
    budgets: Budgets<Counting<S>>,
    bucket: Counting<S::Bucket>,
}

impl<S: Store> Clone for Desk<S> {
    fn clone(&self) -> Self {
        let (budgets, bucket) = (self.budgets.clone(), self.bucket.clone());
        Desk { way: self.way, counting: self.counting.clone(), budgets, bucket }
    }
}

/// What is charged: the windows, and the instant of judgement.
#[derive(Clone)]
pub(super) struct Day {
    pub(super) windows: Windows,
    pub(super) now: Timestamp,
}

impl<S: Store> Desk<S> {
    /// Opens the bucket of the way's own.
    pub(super) async fn open(store: S, settings: &Settings, way: Way) -> Result<Desk<S>, OpenError> {
        let counting = Counting::new(store);
        let budgets = match way {
            Way::Uncombined => Budgets::open_uncombined(&counting, settings).await?,
            Way::Combined | Way::Plain => Budgets::open(&counting, settings).await?,
        };
        let bucket = settings.open(&counting, &BUDGETS).await?;
        Ok(Desk { way, counting, budgets, bucket })
    }

    /// Charges a seat and the company.
    pub(super) async fn charge(&self, seat: &str, tokens: u64, day: &Day, caps: &Caps) -> Result<Charge, ChargeError> {
        match self.way {
            Way::Combined | Way::Uncombined => self.budgets.charge(seat, tokens, &day.windows, caps, day.now).await,
            Way::Plain => plain(&self.bucket, seat, tokens, day, caps).await,
        }
    }

    /// The counters, at an instant after this began: a member that was deposed and has not heard of it is not believed.
    pub(super) async fn used(&self, seats: &[String], day: &Day) -> Result<Vec<Counters>, Error> {
        // Whatever this connection acknowledged itself, an answer from before it is known to be old.
        self.bucket.barrier(self.bucket.deadline()).await?;
        let mut counters = Vec::with_capacity(seats.len());
        for seat in seats {
            counters.push(self.budgets.used(seat, &day.windows).await?);
        }
        Ok(counters)
    }

    /// What was asked of the bucket since the last time.
    pub(super) fn calls(&self) -> Calls {
        self.counting.take()
    }
}

/// A charge as it is written by who only reads, writes what was read and added to, and waits when that lost.
async fn plain<B: Bucket>(bucket: &B, seat: &str, tokens: u64, day: &Day, caps: &Caps) -> Result<Charge, ChargeError> {
    let scopes = [Scope::Org, Scope::Seat(seat.into())];
    let [company, own] = &scopes;
    let org = count(bucket, company, tokens, day, &caps.org).await?;
    let uncounted = |unknown: Unknown| {
        let (seat, org) = (seat.into(), Box::new(org.usage));
        ChargeError::SeatUncounted { seat, tokens, org, unknown }
    };
    let own = match count(bucket, own, tokens, day, &caps.seat).await {
        Ok(own) => own,
        Err(Error::Unknown(unknown)) => return Err(uncounted(unknown)),
        Err(Error::BadArgument(error)) => return Err(error.into()),
    };
    let refused = scopes.into_iter().zip([org.verdict, own.verdict]).find_map(|(scope, verdict)| match verdict {
        Verdict::Refused(refusal) => Some(Refused { scope, refusal }),
        Verdict::Admitted | Verdict::Unjudged => None,
    });
    let gate = refused.map_or(Gate::Admitted, Gate::Refused);
    Ok(Charge { gate, counters: Counters { org: org.usage, seat: own.usage } })
}

async fn count<B: Bucket>(
    bucket: &B,
    scope: &Scope,
    tokens: u64,
    day: &Day,
    ceilings: &Ceilings,
) -> Result<Charged, Error> {
    let key = scope.key().map_err(|error: BadArgument| Error::from(error))?;
    let add = |value: Option<&Bytes>| {
        let record = value.map(|value| BudgetRecord::decode(value)).transpose()?;
        let (written, charged) = tally::charge(record.as_ref(), &day.windows, ceilings, tokens, day.now);
        Ok(match written {
            Some(written) => Step::Put(Write::Value(written.encode()), charged),
            None => Step::Keep(charged),
        })
    };
    modify(bucket, &key, Begin::Reading, ("charge", &scope.to_string()), add).await
}
