//! Charges of a company and a seat, in each way that a broker offers: two compare-and-sets one after the other, one atomic
//! batch of both, or counters. What is compared is what the broker does, so the records only count charges.
//!
//! Both records are read first, at once, since a charge is judged on what they hold. A charge that lost takes part again up to
//! sixteen times, after a wait that doubles from 1 ms to 32 ms, jittered: as the layer's own does. Counters are not read and
//! cannot lose; their answers say what they have come to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coordproto::api::{Reply, message, puback};
use engine::env::Mono;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::ground::{COMPANY, Ground, SEAT, Stream, value};
use super::lean::{Lean, LeanError, Message};
use super::params::{Load, Request};
use crate::recorder::{Op, Outcome};
use crate::stop::Stop;

/// How often a charge takes part.
const ATTEMPTS: u32 = 16;

/// The windows of a scope that counters count.
const WINDOWS: usize = 3;

/// What the charges of a cell came to, beside how long they took. Clones are handles to the same.
#[derive(Clone, Default)]
pub(super) struct Account(Arc<Mutex<Charges>>);

/// The counts of an [`Account`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Charges {
    /// Charges that were acknowledged.
    landed: u64,
    /// Writes that were refused, by the error's code.
    lost: BTreeMap<u16, u64>,
    /// Charges that the company counted and the seat did not.
    partial: u64,
    /// By how much the records differ from what was acknowledged.
    miscounted: u64,
}

impl Account {
    /// Holds against the account how much the companies and the seats have grown since it began.
    pub(super) fn settle(&self, companies: u64, seats: u64) {
        let charges = &mut *self.0.lock();
        let expected = [(companies, charges.landed + charges.partial), (seats, charges.landed)];
        charges.miscounted = expected.iter().map(|(found, expected)| found.abs_diff(*expected)).sum();
        if charges.miscounted > 0 {
            tracing::error!(
                companies,
                seats,
                landed = charges.landed,
                partial = charges.partial,
                "floor_charges_miscounted"
            );
        }
    }

    /// As a report has it; none where there were none.
    pub(super) fn reported(&self) -> Option<Value> {
        let charges = self.0.lock();
        let lost = charges.lost.iter().map(|(code, times)| (code.to_string(), (*times).into())).collect();
        (*charges != Charges::default()).then(|| {
            json!({
                "landed": charges.landed,
                "lost": Value::Object(lost),
                "partial": charges.partial,
                "miscounted": charges.miscounted,
            })
        })
    }
}

/// One client's charges, one after another.
pub(super) struct Charger {
    pub(super) ground: Ground,
    pub(super) load: Load,
    pub(super) op: Op,
    /// Which client it is, which is its seat.
    pub(super) number: usize,
    pub(super) lean: Lean,
    pub(super) account: Account,
    /// Requests that were sent.
    sent: u32,
}

/// A record that was read.
#[derive(Clone, Copy)]
struct Record {
    revision: u64,
    count: u64,
}

/// What became of a write.
enum Written {
    Landed,
    Lost,
}

impl Charger {
    pub(super) fn new(ground: Ground, load: Load, op: Op, number: usize, lean: Lean, account: Account) -> Charger {
        Charger { ground, load, op, number, lean, account, sent: 0 }
    }

    /// Charges until `until`, or the run is over.
    pub(super) async fn run(mut self, until: Mono, stop: Stop) -> Result<(), LeanError> {
        let env = self.ground.env.clone();
        while env.now() < until && !stop.is_over(&env) {
            let (began, before) = (env.now(), self.sent);
            let started = self.op.arrival(began).start(began);
            let answer = match self.load.request {
                Request::Counters => self.increments().await,
                _ => self.charge().await,
            };
            let outcome = match &answer {
                Ok(Some(Written::Landed)) => Outcome::Ok,
                Ok(Some(Written::Lost)) => Outcome::Refused,
                Ok(None) => Outcome::Error,
                Err(_) => Outcome::Unknown,
            };
            started.finish(outcome, env.now(), u64::from(self.sent - before));
            if outcome == Outcome::Ok {
                self.account.0.lock().landed += 1;
            }
            answer?;
        }
        Ok(())
    }

    fn company(&self) -> usize {
        if self.load.shared { 0 } else { self.number }
    }

    /// One charge; nothing when an answer could not be read.
    async fn charge(&mut self) -> Result<Option<Written>, LeanError> {
        let ground = self.ground.clone();
        let stream = ground.streams.about(self.load.request);
        let (company, seat) = (stream.subject(COMPANY, self.company()), stream.subject(SEAT, self.number));
        let (first, _second) = (self.read(stream, &company), self.read(stream, &seat));
        let subjects = [&company, &seat];
        let found = self.lean.answers(first, |which, answer| stored(answer, subjects[which])).await?;
        let [Some(mut of_company), Some(of_seat)] = found else { return Ok(None) };
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                self.back_off(attempt - 1).await;
                let asked = self.read(stream, &company);
                let Some(found) = self.record(asked, &company).await? else { return Ok(None) };
                of_company = found;
            }
            let written = match self.load.request {
                Request::Batch => self.both(&company, of_company, &seat, of_seat).await?,
                _ => self.one(&company, of_company).await?,
            };
            match written {
                Written::Lost => {}
                Written::Landed if self.load.request == Request::Batch => return Ok(Some(Written::Landed)),
                Written::Landed => return self.then(stream, &seat, of_seat).await,
            }
        }
        Ok(Some(Written::Lost))
    }

    /// The seat's write, after the company's has landed.
    async fn then(&mut self, stream: &Stream, seat: &str, found: Record) -> Result<Option<Written>, LeanError> {
        let mut of_seat = found;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                self.back_off(attempt - 1).await;
                let asked = self.read(stream, seat);
                let Some(found) = self.record(asked, seat).await? else { return Ok(None) };
                of_seat = found;
            }
            if let Written::Landed = self.one(seat, of_seat).await? {
                return Ok(Some(Written::Landed));
            }
        }
        self.account.0.lock().partial += 1;
        Ok(Some(Written::Lost))
    }

    async fn back_off(&self, round: u32) {
        let (env, most) = (&self.ground.env, Duration::from_millis(1 << round.min(5)));
        env.sleep(most / 2 + env.jitter(most)).await;
    }

    fn next(&mut self) -> u32 {
        self.sent += 1;
        self.sent
    }

    /// Writes a leader read; answers its number.
    fn read(&mut self, stream: &Stream, subject: &str) -> u32 {
        let number = self.next();
        let body = format!(r#"{{"last_by_subj":"{subject}"}}"#);
        self.lean.ask(number, format_args!("$JS.API.STREAM.MSG.GET.{}", stream.name()), body.as_bytes());
        number
    }

    async fn record(&mut self, number: u32, subject: &str) -> Result<Option<Record>, LeanError> {
        self.lean.answer(number, |answer| stored(answer, subject)).await
    }

    /// A compare-and-set that counts one more.
    async fn one(&mut self, subject: &str, found: Record) -> Result<Written, LeanError> {
        let number = self.next();
        self.lean.ask_with(
            Some(number),
            subject,
            format_args!("Nats-Expected-Last-Subject-Sequence: {}\r\n", found.revision),
            &value(found.count + 1),
        );
        self.written(number).await
    }

    /// Two of them in one batch, which is sent whole: its first message is answered with its last.
    async fn both(
        &mut self,
        company: &str,
        of_company: Record,
        seat: &str,
        of_seat: Record,
    ) -> Result<Written, LeanError> {
        let (batch, _first, number) = (self.ground.env.random(), self.next(), self.next());
        for (at, subject, found) in [(1, company, of_company), (2, seat, of_seat)] {
            let commit = if at == 2 { "Nats-Batch-Commit: 1\r\n" } else { "" };
            let headers = format_args!(
                "Nats-Expected-Last-Subject-Sequence: {}\r\nNats-Batch-Id: {batch:016x}\r\nNats-Batch-Sequence: {at}\r\n{commit}",
                found.revision
            );
            self.lean.ask_with((at == 2).then_some(number), subject, headers, &value(found.count + 1));
        }
        self.written(number).await
    }

    async fn written(&mut self, number: u32) -> Result<Written, LeanError> {
        let refused = self.lean.answer(number, refused).await?;
        Ok(self.judged(refused))
    }

    fn judged(&self, refused: Option<u16>) -> Written {
        match refused {
            None => Written::Landed,
            Some(code) => {
                *self.account.0.lock().lost.entry(code).or_default() += 1;
                Written::Lost
            }
        }
    }

    /// A charge on counters: every window of both scopes, each increment with an id of its own, since one that is sent twice
    /// must not count twice.
    async fn increments(&mut self) -> Result<Option<Written>, LeanError> {
        let ground = self.ground.clone();
        let stream = &ground.streams.counters;
        let id = ground.env.random();
        let first = self.sent + 1;
        for (family, scope) in [(COMPANY, self.company()), (SEAT, self.number)] {
            for window in 0..WINDOWS {
                let number = self.next();
                let headers = format_args!("Nats-Incr: +1\r\nNats-Msg-Id: {id:016x}{family}{window}\r\n");
                self.lean.ask_with(Some(number), stream.subject(family, scope * WINDOWS + window), headers, b"");
            }
        }
        let refused: [_; 2 * WINDOWS] = self.lean.answers(first, |_, answer| refused(answer)).await?;
        let lost = refused.into_iter().filter(|refused| matches!(self.judged(*refused), Written::Lost)).count();
        Ok(Some(if lost == 0 { Written::Landed } else { Written::Lost }))
    }
}

/// The code of the error that a write was answered with; 0 for an answer that is none, nothing where it landed.
fn refused(answer: &Message<'_>) -> Option<u16> {
    match puback::parse(answer.payload) {
        Ok(Reply::Ok(_)) => None,
        Ok(Reply::Refused(error)) => Some(error.err_code),
        Err(_) => Some(answer.status().unwrap_or(0)),
    }
}

fn stored(answer: &Message<'_>, subject: &str) -> Option<Record> {
    let Ok(Reply::Ok(stored)) = message::parse(answer.payload, subject) else { return None };
    let digits = stored.value.split(|byte| *byte == b' ').next()?;
    let count = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(Record { revision: stored.revision, count })
}

/// What all companies and all seats of these charges have counted so far.
pub(super) async fn counted(ground: &Ground, load: &Load) -> Result<(u64, u64), LeanError> {
    let mut lean = ground.connections(&Load::of(load.request, 1, 1)).await?.remove(0);
    let stream = ground.streams.about(load.request);
    let mut sums = [0, 0];
    for (sum, family) in sums.iter_mut().zip([COMPANY, SEAT]) {
        for scope in 0..load.connections {
            let subject = stream.subject(family, scope);
            let body = format!(r#"{{"last_by_subj":"{subject}"}}"#);
            lean.ask(scope as u32, format_args!("$JS.API.STREAM.MSG.GET.{}", stream.name()), body.as_bytes());
            *sum +=
                lean.answer(scope as u32, |answer| stored(answer, &subject)).await?.map_or(0, |record| record.count);
        }
    }
    Ok((sums[0], sums[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(payload: &str) -> Message<'_> {
        Message { subject: b"a.1", reply: b"", headers: b"", payload: payload.as_bytes() }
    }

    #[test]
    fn a_refusal_is_counted_by_its_code() {
        let lost =
            |code| format!(r#"{{"error":{{"code":400,"err_code":{code},"description":"x"}},"stream":"S","seq":0}}"#);
        assert_eq!(refused(&message(&lost(10071))), Some(10071));
        assert_eq!(refused(&message(r#"{"stream":"S","seq":9,"batch":"b","count":2}"#)), None);
        assert_eq!(refused(&message("")), Some(0));
    }

    #[test]
    fn a_record_is_read_with_what_it_counts() {
        let data = "MTcgICAg";
        let text = format!(
            r#"{{"type":"x","message":{{"subject":"o.1","seq":8,"data":"{data}","time":"2026-01-01T00:00:00Z"}}}}"#
        );
        let record = stored(&message(&text), "o.1").unwrap();
        assert_eq!((record.revision, record.count), (8, 17));
        assert!(stored(&message(&text), "o.2").is_none());
    }

    #[test]
    fn what_the_records_hold_is_held_against_what_was_acknowledged() {
        let account = Account::default();
        *account.0.lock() = Charges { landed: 7, partial: 1, ..Charges::default() };
        account.settle(8, 7);
        assert_eq!(account.reported().unwrap()["miscounted"], 0);
        account.settle(9, 5);
        assert_eq!(account.reported().unwrap()["miscounted"], 3);
        assert!(Account::default().reported().is_none());
    }
}
