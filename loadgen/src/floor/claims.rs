//! The bare requests of the layer's fresh claim, and nothing else: the record is read beside an index of few keys, then won
//! beside a read of the counter, the counter is written, and the record once more. Six requests in four round trips.
//!
//! They are not the claim: nothing is decoded, an answer that is no yes ends it, and what it leaves is nobody's lease.

use std::time::Duration;

use engine::broker::Access;
use engine::env::Env;
use engine::store::nats::Nats;
use engine::tasks;
use futures_util::future::try_join_all;

use super::ground::{Ground, SEAT};
use super::lanes::{compare_and_set, index, judge, leader_read};
use super::lean::{Lean, LeanError, Message};
use super::params::{Load, Request};
use super::{Bare, Op};
use crate::recorder::Outcome;
use crate::target::Unavailable;

/// The requests of a claim, by the numbers under which they are answered.
const RECORD: u32 = 0;
const PROTOCOLS: u32 = 1;
const WIN: u32 = 2;
const COUNTER: u32 = 3;
const BUMP: u32 = 4;
const COMMIT: u32 = 5;

/// How many there are.
const REQUESTS: u64 = 6;

/// What a read says of a subject on which nothing stands.
const NOTHING_THERE: &[u8] = br#""err_code":10037"#;

/// The streams that claims are made on. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Claims {
    records: Ground,
    /// The counters, and the few keys of which an index is read.
    counters: Ground,
}

impl Claims {
    /// Makes the stream of the counters beside that of the records, which is there.
    ///
    /// # Errors
    /// As [`Ground::prepare`].
    pub(crate) async fn prepare(
        env: &Env,
        access: &Access,
        store: &Nats,
        (prefix, replicas): (&str, u8),
        records: Ground,
    ) -> Result<Claims, Unavailable> {
        let few = Load::of(Request::Index, 1, 1);
        let counters = Ground::prepare(env, access, store, (&prefix_of(prefix), replicas), 1, &[few]).await?;
        Ok(Claims { records, counters })
    }

    /// The buckets that it makes.
    pub(crate) fn buckets(prefix: &str) -> Vec<String> {
        Ground::buckets(&prefix_of(prefix))
    }

    /// Makes the claims of the seats from number `first` on, on so many lanes at once, each of which has a connection and makes
    /// its claims one after another.
    ///
    /// # Errors
    /// What went wrong first.
    pub(crate) async fn make(&self, first: usize, seats: usize, lanes: usize) -> Result<Bare, LeanError> {
        let env = &self.records.env;
        let connections = try_join_all((0..lanes).map(|number| self.records.to_any(number))).await?;
        Bare::of(env, async |op| {
            let began = env.now();
            let claimers = connections.into_iter().enumerate().map(|(number, lean)| {
                let mut claimer = Claimer { claims: self.clone(), lean, op: op.clone() };
                tasks::spawn(async move {
                    for seat in (number..seats).step_by(lanes) {
                        claimer.claim(first + seat).await?;
                    }
                    Ok(())
                })
            });
            let claimers: Vec<tasks::Task<Result<(), LeanError>>> = claimers.collect();
            let mut ended = Ok(());
            for claimer in claimers {
                ended = ended.and(claimer.join().await);
            }
            let took: Duration = env.now().since(began);
            ended.map(|()| took)
        })
        .await
    }
}

fn prefix_of(prefix: &str) -> String {
    format!("{prefix}_epochs")
}

/// One lane.
struct Claimer {
    claims: Claims,
    lean: Lean,
    op: Op,
}

impl Claimer {
    async fn claim(&mut self, seat: usize) -> Result<(), LeanError> {
        let env = self.claims.records.env.clone();
        let began = env.now();
        let started = self.op.arrival(began).start(began);
        let answer = self.requests(seat).await;
        let outcome = answer.as_ref().map_or(Outcome::Unknown, |outcome| *outcome);
        started.finish(outcome, env.now(), REQUESTS);
        answer.map(drop)
    }

    /// The four round trips; answers what the first of them came to that was no yes, or yes.
    async fn requests(&mut self, seat: usize) -> Result<Outcome, LeanError> {
        let (lean, claims) = (&mut self.lean, &self.claims);
        let (records, counters) = (&claims.records.streams.plain, &claims.counters.streams.plain);
        let (record, counter) = (records.subject(SEAT, seat), counters.subject(SEAT, seat));

        leader_read(lean, RECORD, records, &record);
        index(lean, PROTOCOLS, counters);
        let both = |which: usize, message: &Message<'_>| match which {
            0 => (absent(message), None),
            _ => judge(Request::Index, message),
        };
        let looked = lean.answers::<_, 2>(RECORD, both).await?;
        if let Some(no) = no_yes(&looked) {
            return Ok(no);
        }

        compare_and_set(lean, WIN, &record, 0);
        leader_read(lean, COUNTER, counters, &counter);
        let both = |which: usize, message: &Message<'_>| match which {
            0 => judge(Request::Cas, message),
            _ => (absent(message), None),
        };
        let won = lean.answers::<_, 2>(WIN, both).await?;
        let Some(stands) = won[0].1.filter(|_| no_yes(&won).is_none()) else {
            return Ok(no_yes(&won).unwrap_or(Outcome::Error));
        };

        compare_and_set(lean, BUMP, &counter, 0);
        let bumped = lean.answer(BUMP, |message| judge(Request::Cas, message)).await?;
        if let Some(no) = no_yes(&[bumped]) {
            return Ok(no);
        }

        compare_and_set(lean, COMMIT, &record, stands);
        Ok(lean.answer(COMMIT, |message| judge(Request::Cas, message)).await?.0)
    }
}

/// What a read says of a subject that has to be free.
fn absent(message: &Message<'_>) -> Outcome {
    match message.status() {
        Some(_) => Outcome::Unknown,
        None if memchr::memmem::find(message.payload, NOTHING_THERE).is_some() => Outcome::Ok,
        None => Outcome::Refused,
    }
}

fn no_yes(answers: &[(Outcome, Option<u64>)]) -> Option<Outcome> {
    answers.iter().map(|(outcome, _)| *outcome).find(|outcome| *outcome != Outcome::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_free_where_the_leader_says_so_and_no_claim_goes_on_after_a_no() {
        let of = |headers: &'static str, payload: &'static str| {
            let (headers, payload) = (headers.as_bytes(), payload.as_bytes());
            absent(&Message { subject: b"a.0", reply: b"", headers, payload })
        };
        let free = r#"{"type":"x","error":{"code":404,"err_code":10037,"description":"no message found"}}"#;
        assert_eq!(of("", free), Outcome::Ok);
        assert_eq!(of("", r#"{"message":{"seq":3}}"#), Outcome::Refused);
        assert_eq!(of("NATS/1.0 503\r\n\r\n", ""), Outcome::Unknown);
        let answers = [(Outcome::Ok, Some(7)), (Outcome::Refused, None), (Outcome::Unknown, None)];
        assert_eq!((no_yes(&answers), no_yes(&answers[..1])), (Some(Outcome::Refused), None));
    }
}
