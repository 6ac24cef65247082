//! One batch of charges, until it is known whether it was counted.
//!
//! A batch is written by compare-and-set. A write that lost is judged again on what won. A write without an answer is in
//! doubt, and the record decides it: still at the revision that the write was made over, the same bytes are sent again, and of
//! all the copies one lands at most; at a later one, the record tells whose write landed. Whatever it costs to find out, the
//! answers are those of the attempt that landed.

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Landing, Unknown};
use coordproto::key::Key;
use coordproto::listing::Version;
use coordproto::record::budget::{BudgetRecord, Trace};
use coordproto::tally::{Charge, Charged, charge_all};

use super::turns::Turns;
use crate::env::Mono;
use crate::store::create::back_off;
use crate::store::{Bucket, Expect, Put, Race, Write};

/// How often a batch takes part before the answer is unknown. With the waits between them that is a third of a second, and
/// more where it waits for its turn.
const ATTEMPTS: u32 = 16;

const OP: &str = "charge";

/// A batch: the same charges under the same number over all its attempts.
pub(super) struct Batch<'a, B> {
    pub(super) bucket: &'a B,
    pub(super) key: &'a Key,
    /// Who writes, and whose turn it is.
    pub(super) turns: &'a Turns,
    /// Which of the writer's batches this is.
    pub(super) number: u64,
    /// What it counts, in order; at least one charge of at least one token.
    pub(super) charges: &'a [Charge<'a>],
}

/// A batch that is counted.
pub(super) struct Landed {
    /// What each charge is answered.
    pub(super) answers: Vec<Charged>,
    /// Whether others wrote the record meanwhile.
    pub(super) met: bool,
}

/// What is written over one revision, and what it answers if it lands.
struct Attempt {
    over: u64,
    value: Bytes,
    answers: Vec<Charged>,
}

/// A write whose answer was lost: what was said instead, and until when it is followed.
type Doubt = (Unknown, Mono);

/// What the next attempt is made of.
enum Next {
    /// The record is where it was. The same bytes go over the same revision.
    Same,
    /// The attempt did not land and never will; this one may.
    Judged(Attempt),
    /// It landed.
    Landed,
    /// Whoever answered is behind, and there is nothing to go by.
    Past,
}

impl<B: Bucket> Batch<'_, B> {
    /// Counts the batch once, beginning with what was `found` at its key, and answers every charge in order.
    ///
    /// # Errors
    /// Unknown for the whole batch; it says whether the batch may have been counted, or may be.
    pub(super) async fn land(&self, found: Option<Version>) -> Result<Landed, Unknown> {
        let (env, by) = (self.bucket.env(), self.bucket.deadline());
        let mut attempt = self.judge(found)?;
        let (mut known, mut doubt) = (attempt.over, None::<Doubt>);
        let (mut send, mut attempts, mut first, mut busy) = (true, 0, true, false);
        while attempts < ATTEMPTS {
            if !first {
                if busy {
                    // The other write is over in about as long as a write takes.
                    env.sleep(env.jitter(self.turns.step())).await;
                } else {
                    back_off(env, attempts - 1).await;
                }
                if let Some((unknown, until)) = &doubt
                    && env.now() >= *until
                {
                    return Err(unknown.clone());
                }
                send = true;
                match self.next(&attempt, known, doubt.as_ref(), by).await {
                    Ok(Next::Same) => {}
                    Ok(Next::Landed) => return Ok(Landed { answers: attempt.answers, met: true }),
                    Ok(Next::Judged(next)) => (known, attempt, doubt) = (known.max(next.over), next, None),
                    Ok(Next::Past) => send = false,
                    Err(unknown) if doubt.is_none() || unknown.landing == Landing::InFlight => return Err(unknown),
                    Err(_) => send = false,
                }
            }
            let met = !first;
            (first, busy) = (false, false);
            attempts += 1;
            if !send {
                continue;
            }
            let (write, sent) = (Write::Value(attempt.value.clone()), env.now());
            match self.bucket.put(self.key, write, Expect::At(attempt.over)).await {
                Ok(Put::Stored(_)) => {
                    self.turns.landed(env.now().since(sent));
                    return Ok(Landed { answers: attempt.answers, met });
                }
                // This copy is refused. An earlier one may be what it lost to.
                Ok(Put::Lost(Race::Newer(revision))) => known = known.max(revision),
                // It has taken no part: nobody looked at what it expects while another write was under way.
                Ok(Put::Lost(Race::InProcess)) if doubt.is_none() && env.now() < by => {
                    (attempts, busy) = (attempts - 1, true);
                }
                Ok(Put::Lost(Race::Vanished | Race::InProcess)) => {}
                // A broker that takes so little does not take this record any more, and what is in doubt stays so.
                Err(Error::BadArgument(error)) => {
                    let large = Unknown::settled(OP, self.key.as_str(), Cause::TooLarge(error.to_string().into()));
                    return Err(doubt.map_or(large, |(unknown, _)| unknown));
                }
                Err(Error::Unknown(unknown)) => match (unknown.landing, &doubt) {
                    (Landing::InFlight, None) => doubt = Some((unknown, self.bucket.deadline())),
                    (Landing::Settled, None) => return Err(unknown),
                    (_, Some(_)) => {}
                },
            }
        }
        let contended = Unknown::settled(OP, self.key.as_str(), Cause::Contended { rounds: attempts });
        Err(doubt.map_or(contended, |(unknown, _)| unknown))
    }

    /// What the record says of the last attempt. Turns are waited for until `courtesy`, over all attempts.
    async fn next(
        &self,
        attempt: &Attempt,
        known: u64,
        doubt: Option<&Doubt>,
        courtesy: Mono,
    ) -> Result<Next, Unknown> {
        let by = doubt.map_or_else(|| self.bucket.deadline(), |(_, until)| *until);
        let found = self.bucket.read(self.key, by).await?;
        let revision = found.as_ref().map_or(0, |version| version.revision);
        if doubt.is_none() && revision >= known {
            // Lost for good. Where nothing was found, only a write that expects nothing decides whether it is gone.
            let turn = self.turns.wait(self.bucket, self.key, found, courtesy).await?;
            return self.judge(turn.found).map(Next::Judged);
        }
        if revision == attempt.over && revision >= known {
            return Ok(Next::Same);
        }
        if revision < known && found.is_some() {
            return Ok(Next::Past);
        }
        let Some((unknown, _)) = doubt else {
            // Nothing was found where a revision is known: only a write that expects nothing decides whether it is gone.
            return self.judge(found).map(Next::Judged);
        };
        let Some(version) = found else {
            return Ok(Next::Past);
        };
        let record = version.value.as_ref().and_then(|value| BudgetRecord::decode(value).ok());
        // What cannot be read, or is a marker, tells nothing any more.
        let trace =
            record.map_or(Trace::Forgotten, |record| record.trace(self.turns.writer(), self.number, attempt.over));
        match trace {
            Trace::Landed => Ok(Next::Landed),
            Trace::Never => self.judge(Some(version)).map(Next::Judged),
            Trace::Forgotten => Err(unknown.clone()),
        }
    }

    /// The attempt over what was found.
    fn judge(&self, found: Option<Version>) -> Result<Attempt, Unknown> {
        let over = found.as_ref().map_or(0, |version| version.revision);
        let record = record(self.key, found.and_then(|version| version.value).as_ref())?;
        let (written, answers) = charge_all(record.as_ref(), self.charges);
        let mut written = written.expect("a charge of a token or more is always written");
        written.sign(self.turns.writer(), self.number, over, self.bucket.env().wall());
        Ok(Attempt { over, value: written.encode(), answers })
    }
}

/// The record of a value; none where nothing was spent.
pub(super) fn record(key: &Key, value: Option<&Bytes>) -> Result<Option<BudgetRecord>, Unknown> {
    let record = value.map(|value| BudgetRecord::decode(value)).transpose();
    record.map_err(|cause| Unknown::settled(OP, key.as_str(), cause))
}
