//! Whose turn it is on a record that several processes write.
//!
//! The record keeps its writers in the order in which they landed, and every process reads the same order: whoever landed
//! longest ago has waited longest, and is next. The others wait for about as long as those before them take, and look again.
//! So nobody takes part in a race that somebody else is to win, and without a queue, a message or a lock the processes write
//! one after another, as fast as the store lets them.
//!
//! - A process that met nobody the last time does not wait. It takes part at once, and learns from a lost race that it has to.
//! - Whoever was passed over by somebody behind it does not want to write now, and nobody waits for it. Where nobody lands
//!   at all, those before are idle, and who has waited for all of them goes.
//! - A process that the record does not know yet has no turn. It races, as everybody did before there was an order.
//!
//! Turns are a courtesy: they make races rare, and decide nothing. What is counted rests on the compare-and-set alone, and a
//! record that lies about its order costs time.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::Unknown;
use coordproto::key::Key;
use coordproto::listing::Version;
use parking_lot::Mutex;

use super::landing::record;
use crate::env::{Env, Mono};
use crate::store::Bucket;

/// How long one write takes, before anything is known of it.
const STEP: Duration = Duration::from_millis(2);

/// The shortest and the longest step that is believed.
const STEP_MIN: Duration = Duration::from_micros(250);
const STEP_MAX: Duration = Duration::from_millis(32);

/// With so few before it, a process looks again at once: it is next as soon as they have landed, and a timer is too coarse.
const NEAR: usize = 2;

/// So many looks in a row for each of those before, at which nobody has landed, say that nobody is about to.
const LOOKS: usize = 12;

/// The longest wait from one look to the next.
const WAIT_MAX: Duration = Duration::from_millis(512);

/// How long is remembered that others write a record.
const REMEMBERED: Duration = Duration::from_secs(2);

/// The records that others write too, as this process has met them.
pub(super) struct Turns {
    /// A name that no other process bears.
    writer: String,
    met: Mutex<HashMap<Key, Met>>,
}

/// How others were met on a record.
#[derive(Clone, Copy)]
struct Met {
    at: Mono,
    /// How long one of them took.
    step: Duration,
}

/// What stands at a record when it is this process's turn.
pub(super) struct Turn {
    pub(super) found: Option<Version>,
    /// Whether others landed while it waited.
    pub(super) met: bool,
}

impl Turns {
    pub(super) fn new(writer: String) -> Turns {
        Turns { writer, met: Mutex::default() }
    }

    /// The name of this process.
    pub(super) fn writer(&self) -> &str {
        &self.writer
    }

    /// Whether others were met on a record, the last time and not long ago.
    pub(super) fn are_taken(&self, env: &Env, key: &Key) -> bool {
        let mut met = self.met.lock();
        let taken = met.get(key).is_some_and(|met| env.now().since(met.at) < REMEMBERED);
        if !taken {
            met.remove(key);
        }
        taken
    }

    /// A batch is over: whether others were met with it.
    pub(super) fn over(&self, env: &Env, key: &Key, met: bool) {
        let mut all = self.met.lock();
        if met {
            let step = all.get(key).map_or(STEP, |met| met.step);
            all.insert(key.clone(), Met { at: env.now(), step });
        } else {
            all.remove(key);
        }
    }

    fn step(&self, key: &Key) -> Duration {
        self.met.lock().get(key).map_or(STEP, |met| met.step)
    }

    fn learn(&self, env: &Env, key: &Key, step: Duration) {
        let step = step.clamp(STEP_MIN, STEP_MAX);
        self.met.lock().insert(key.clone(), Met { at: env.now(), step });
    }

    /// Waits for this process's turn on a record, as far as there is one, and not beyond `by`.
    ///
    /// # Errors
    /// Unknown, when what stands there has no answer or cannot be read.
    pub(super) async fn wait<B: Bucket>(
        &self,
        bucket: &B,
        key: &Key,
        mut found: Option<Version>,
        by: Mono,
    ) -> Result<Turn, Unknown> {
        let env = bucket.env();
        let before = |found: &Option<Version>| -> Result<Vec<String>, Unknown> {
            let value: Option<&Bytes> = found.as_ref().and_then(|version| version.value.as_ref());
            let record = record(key, value)?;
            Ok(record.iter().flat_map(|record| record.before(&self.writer)).map(str::to_owned).collect())
        };
        let began = env.now();
        let mut ahead = before(&found)?;
        let (mut landed, mut idle_looks, mut slept) = (0, 0, false);
        while !ahead.is_empty() && env.now() < by {
            let step = self.step(key);
            slept = ahead.len() > NEAR;
            let wait = step * u32::try_from(ahead.len().saturating_sub(NEAR)).unwrap_or(u32::MAX);
            if slept {
                env.sleep(wait.min(WAIT_MAX)).await;
            }
            let seen = bucket.read(key, by).await?;
            let at = |version: &Option<Version>| version.as_ref().map_or(0, |version| version.revision);
            if at(&seen) > at(&found) {
                found = seen;
                let still = before(&found)?;
                // Those up to the last one that landed have landed, or were passed over.
                let next = ahead.iter().rposition(|writer| !still.contains(writer)).map_or(0, |last| last + 1);
                ahead.drain(..next);
                landed += next;
                idle_looks = if next > 0 { 0 } else { idle_looks + 1 };
            } else {
                idle_looks += 1;
            }
            // Who has slept has waited for everybody, and nobody came.
            if idle_looks >= LOOKS * ahead.len() || (slept && idle_looks > 0) {
                break;
            }
        }
        let took = env.now().since(began);
        match u32::try_from(landed) {
            Ok(0) | Err(_) => {}
            // It has come late: nobody was left to wait for.
            Ok(_) if slept && ahead.is_empty() => self.learn(env, key, self.step(key) * 3 / 4),
            Ok(landed) => self.learn(env, key, took / landed),
        }
        Ok(Turn { found, met: landed > 0 })
    }
}
