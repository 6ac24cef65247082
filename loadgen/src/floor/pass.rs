//! A bare pass: a consumer is made, delivers a class until nothing is pending, and is removed.

use coordproto::api::Reply;
use coordproto::api::reply;
use coordproto::api::requests::{self, ConsumerConfig};
use engine::env::Mono;
use std::time::Duration;

use super::ground::{Ground, OF_THE_CLASS};
use super::lean::{Lean, LeanError, last_number};
use crate::recorder::{Op, Outcome};
use crate::stop::Stop;

/// How long the broker keeps the consumer of a pass that was cut short.
const ORPHAN: Duration = Duration::from_secs(5);

/// The answers that a pass waits for.
const MADE: u32 = 0;
const REMOVED: u32 = 1;

/// One connection's passes, one after another.
pub(super) struct Passes {
    pub(super) ground: Ground,
    pub(super) op: Op,
    pub(super) lean: Lean,
}

impl Passes {
    /// Lists until `until`, or the run is over.
    pub(super) async fn run(mut self, until: Mono, stop: Stop) -> Result<(), LeanError> {
        let env = self.ground.env.clone();
        while env.now() < until && !stop.is_over(&env) {
            let began = env.now();
            let started = self.op.arrival(began).start(began);
            let answer = self.list().await;
            let outcome = match &answer {
                // A class that is at rest is whole.
                Ok(Some(listed)) if *listed == self.ground.keys => Outcome::Ok,
                Ok(Some(_)) => Outcome::Refused,
                Ok(None) => Outcome::Error,
                Err(_) => Outcome::Unknown,
            };
            started.finish(outcome, env.now(), 2);
            answer?;
        }
        Ok(())
    }

    /// One pass; answers how many it was delivered, or nothing when the broker did not make or remove a consumer.
    async fn list(&mut self) -> Result<Option<usize>, LeanError> {
        let (lean, stream) = (&mut self.lean, self.ground.streams.plain.name());
        let name = format!("p{:016x}", self.ground.env.random());
        let (to, filter) = (format!("_D.{name}"), self.ground.streams.plain.filter(OF_THE_CLASS));
        // Interest has to be in exactly this subject, and there before the consumer is.
        let subscription = lean.subscribe(&to);
        let config = ConsumerConfig::pass(name.clone(), to.clone(), &filter, ORPHAN);
        let subject = format!("$JS.API.CONSUMER.CREATE.{stream}.{name}.{filter}");
        lean.ask(MADE, subject, &requests::consumer_create(&stream, &config));
        let (mut listed, mut made, mut pending) = (0, false, None);
        while !made || pending != Some(0) {
            let mut asked = None;
            match lean.take()? {
                None => lean.more().await?,
                // A delivery comes under the subject of its record; what is about the consumer, under that of the deliveries.
                Some(message) if message.reply.starts_with(b"$JS.ACK.") => {
                    listed += 1;
                    pending = last_number(message.reply);
                }
                // A stalled consumer, or one that is not to overrun its client, asks to be let go on.
                Some(message) if message.subject == to.as_bytes() => asked = flow(message.reply, message.headers),
                Some(message) if message.answers() == Some(MADE) => {
                    let Ok(Reply::Ok(to_deliver)) = reply::consumer(message.payload) else { return Ok(None) };
                    made = true;
                    pending = pending.or(Some(to_deliver));
                }
                Some(_) => {}
            }
            if let Some(subject) = asked {
                lean.signal(&subject);
            }
        }
        lean.unsubscribe(subscription);
        lean.ask(REMOVED, format_args!("$JS.API.CONSUMER.DELETE.{stream}.{name}"), b"");
        let removed =
            lean.answer(REMOVED, |message| matches!(reply::deleted(message.payload), Ok(Reply::Ok(())))).await?;
        Ok(removed.then_some(listed))
    }
}

/// The subject on which a consumer waits to hear that it may go on; none of a mere sign of life.
fn flow(reply: &[u8], headers: &[u8]) -> Option<String> {
    if !reply.is_empty() {
        return Some(String::from_utf8_lossy(reply).into_owned());
    }
    let stalled = b"Nats-Consumer-Stalled: ";
    let rest = &headers[memchr::memmem::find(headers, stalled)? + stalled.len()..];
    let end = memchr::memchr(b'\r', rest)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_that_waits_is_told_apart_from_one_that_lives() {
        let stalled =
            b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 3\r\nNats-Consumer-Stalled: $JS.FC.x\r\n\r\n";
        assert_eq!(flow(b"", stalled).as_deref(), Some("$JS.FC.x"));
        assert_eq!(flow(b"$JS.FC.y", b"NATS/1.0 100 FlowControl Request\r\n\r\n").as_deref(), Some("$JS.FC.y"));
        assert_eq!(flow(b"", b"NATS/1.0 100 Idle Heartbeat\r\n\r\n"), None);
    }
}
