//! Requests with one answer each, as many at once as a load says: one task a connection, and nothing between it and the socket.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use coordproto::api::{Reply, puback};
use engine::env::Mono;

use super::ground::{Ground, KEY, OF_THE_CLASS, Stream, value};
use super::lean::{Lean, LeanError, Message};
use super::params::{Load, Request};
use crate::recorder::{Op, Outcome, Started};
use crate::stop::Stop;

/// One connection's part of a load.
pub(super) struct Lane {
    pub(super) ground: Ground,
    pub(super) load: Load,
    pub(super) op: Op,
    /// Which of the load's connections it is.
    pub(super) number: usize,
    pub(super) lean: Lean,
}

/// A place of one request at a time.
#[derive(Default)]
struct Slot {
    under_way: Option<(Started, usize)>,
    round: usize,
}

impl Lane {
    /// Asks until `until`, or the run is over, and waits for the answers. What is not answered is unknown.
    pub(super) async fn run(mut self, until: Mono, stop: Stop) -> Result<(), LeanError> {
        let mut slots: Vec<Slot> = std::iter::repeat_with(Slot::default).take(self.load.each()).collect();
        let ended = self.ask(&mut slots, until, &stop).await;
        let now = self.ground.env.now();
        for (started, _) in slots.into_iter().filter_map(|slot| slot.under_way) {
            started.finish(Outcome::Unknown, now, 1);
        }
        ended
    }

    async fn ask(&mut self, slots: &mut [Slot], until: Mono, stop: &Stop) -> Result<(), LeanError> {
        let env = self.ground.env.clone();
        let mut now = env.now();
        (0..slots.len()).for_each(|slot| self.begin(slots, slot, now));
        let mut under_way = slots.len();
        loop {
            let over = stop.is_over(&env);
            while let Some(message) = self.lean.take()? {
                let answered = message.answers().map(|number| number as usize).filter(|slot| *slot < slots.len());
                let Some(slot) = answered else { continue };
                let (outcome, revision) = judge(self.load.request, &message);
                let Some((started, key)) = slots[slot].under_way.take() else { continue };
                now = env.now();
                started.finish(outcome, now, 1);
                under_way -= 1;
                if let Some(revision) = revision {
                    self.ground.revisions[key].store(revision, Ordering::Relaxed);
                }
                if over || now >= until {
                    continue;
                }
                if !self.load.bursts {
                    self.begin(slots, slot, now);
                    under_way += 1;
                } else if under_way == 0 {
                    (0..slots.len()).for_each(|slot| self.begin(slots, slot, now));
                    under_way = slots.len();
                }
            }
            if under_way == 0 {
                return Ok(());
            }
            self.lean.more().await?;
        }
    }

    fn begin(&mut self, slots: &mut [Slot], slot: usize, now: Mono) {
        let Slot { under_way, round } = &mut slots[slot];
        let key = self.load.key(self.number * self.load.each() + slot, *round);
        *round += 1;
        *under_way = Some((self.op.arrival(now).start(now), key));
        self.send(slot as u32, key);
    }

    fn send(&mut self, number: u32, key: usize) {
        let (lean, streams) = (&mut self.lean, &self.ground.streams);
        let stream = streams.about(self.load.request);
        match self.load.request {
            Request::Cas => compare_and_set(lean, number, &stream.subject(KEY, key), self.ground.revision(key)),
            Request::LeaderRead => leader_read(lean, number, stream, &stream.subject(KEY, key)),
            Request::DirectGet => {
                let (stream, subject) = (stream.name(), stream.subject(KEY, key));
                lean.ask(number, format_args!("$JS.API.DIRECT.GET.{stream}.{subject}"), b"");
            }
            Request::Index => index(lean, number, stream),
            Request::Increment => {
                lean.ask_with(Some(number), stream.subject(KEY, key), format_args!("Nats-Incr: +1\r\n"), b"");
            }
            Request::Pass | Request::TwoWrites | Request::Batch | Request::Counters => {
                unreachable!("these take several requests each, one after another")
            }
        }
    }
}

/// Writes a publish of a value that expects its subject at a revision.
pub(super) fn compare_and_set(lean: &mut Lean, number: u32, subject: &str, stands: u64) {
    let over = format_args!("Nats-Expected-Last-Subject-Sequence: {stands}\r\n");
    lean.ask_with(Some(number), subject, over, &value(0));
}

/// Writes a read of the last message of a subject, by the leader.
pub(super) fn leader_read(lean: &mut Lean, number: u32, stream: &Stream, subject: &str) {
    let mut body = String::with_capacity(96);
    write!(body, r#"{{"last_by_subj":"{subject}"}}"#).expect("a string takes what is written");
    lean.ask(number, format_args!("$JS.API.STREAM.MSG.GET.{}", stream.name()), body.as_bytes());
}

/// Writes a read of the leader's index of the class.
pub(super) fn index(lean: &mut Lean, number: u32, stream: &Stream) {
    let body = format!(r#"{{"subjects_filter":"{}"}}"#, stream.filter(OF_THE_CLASS));
    lean.ask(number, format_args!("$JS.API.STREAM.INFO.{}", stream.name()), body.as_bytes());
}

/// What an answer says, and at which revision it leaves its key. No more of it is read than tells a yes from a no.
pub(super) fn judge(request: Request, message: &Message<'_>) -> (Outcome, Option<u64>) {
    let has = |text: &str| memchr::memmem::find(message.payload, text.as_bytes()).is_some();
    let outcome = match (message.status(), request) {
        (Some(404), Request::DirectGet) => Outcome::Refused,
        // Nobody listens, or nobody can say.
        (Some(_), _) => Outcome::Unknown,
        (None, Request::DirectGet) if !message.headers.is_empty() => Outcome::Ok,
        (None, Request::LeaderRead) if has(r#""message":{"#) => Outcome::Ok,
        (None, Request::Index) if has(r#""subjects":{"#) => Outcome::Ok,
        (None, Request::Cas | Request::Increment) => match puback::parse(message.payload) {
            Ok(Reply::Ok(ack)) => return (Outcome::Ok, (request == Request::Cas).then_some(ack.seq)),
            Ok(Reply::Refused(_)) => Outcome::Refused,
            Err(_) => Outcome::Error,
        },
        (None, _) => Outcome::Error,
    };
    (outcome, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart_without_reading_them() {
        let of = |request, headers: &str, payload: &str| {
            let (headers, payload) = (headers.as_bytes(), payload.as_bytes());
            judge(request, &Message { subject: b"a.1", reply: b"", headers, payload })
        };
        let ack = r#"{"stream":"S","seq":7}"#;
        let lost =
            r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 9"},"stream":"S","seq":0}"#;
        assert_eq!(of(Request::Cas, "", ack), (Outcome::Ok, Some(7)));
        assert_eq!(of(Request::Increment, "", r#"{"stream":"S","seq":7,"val":"3"}"#), (Outcome::Ok, None));
        assert_eq!(of(Request::Cas, "", lost), (Outcome::Refused, None));
        assert_eq!(of(Request::Cas, "NATS/1.0 503\r\n\r\n", ""), (Outcome::Unknown, None));
        assert_eq!(of(Request::Cas, "", "{"), (Outcome::Error, None));
        assert_eq!(of(Request::DirectGet, "NATS/1.0\r\nNats-Sequence: 4\r\n\r\n", "v"), (Outcome::Ok, None));
        assert_eq!(of(Request::DirectGet, "NATS/1.0 404 Message Not Found\r\n\r\n", ""), (Outcome::Refused, None));
        assert_eq!(of(Request::LeaderRead, "", r#"{"type":"x","message":{"seq":1}}"#), (Outcome::Ok, None));
        assert_eq!(of(Request::LeaderRead, "", r#"{"type":"x","error":{"code":503}}"#), (Outcome::Error, None));
        assert_eq!(of(Request::Index, "", r#"{"state":{"subjects":{"a":1}}}"#), (Outcome::Ok, None));
        assert_eq!(of(Request::Index, "", r#"{"config":{"subjects":["a"]}}"#), (Outcome::Error, None));
    }
}
