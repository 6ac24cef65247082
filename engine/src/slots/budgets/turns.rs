//! Whose turn it is on a record that several processes write.
//!
//! The record keeps its writers in the order in which they landed, and every process reads the same order: whoever landed
//! longest ago has waited longest, and is next. The others wait for about as long as those before them take, and look again.
//! So few take part at a time, and without a queue, a message or a lock the processes write one after another, as fast as the
//! store lets them.
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

/// How long it takes from one landing to the next, before this process has seen any.
const STEP: Duration = Duration::from_millis(2);

/// No store is faster, and whoever waits for less only asks more often.
const STEP_MIN: Duration = Duration::from_micros(100);

/// Who is next looks so many times in a step: a look is cheap beside a store that stands idle from one landing until the next in
/// turn has seen it.
const LOOKS: u32 = 4;

/// For so many steps without a landing a process waits until it takes those before it for idle.
const PATIENCE: u32 = 6;

/// Others that land so many steps apart, or farther, are met by chance and not in a race.
const APART: u32 = 8;

/// Whoever has many before it looks after so many steps whether they write at all.
const AHEAD_MAX: usize = 16;

/// The longest wait from one look to the next.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// How long is remembered that others race for a record.
const REMEMBERED: Duration = Duration::from_secs(10);

/// The records that others write too, as this process has met them.
pub(super) struct Turns {
    /// A name that no other process bears.
    writer: String,
    /// When others were last met on a record.
    met: Mutex<HashMap<Key, Mono>>,
    pace: Mutex<Pace>,
}

/// How fast writes of one record land one after another.
struct Pace {
    /// How long a write of this process takes.
    write: Duration,
    /// How long it was from one landing of the others to the next. It is longer than a write where nobody has anything to
    /// count for a while, and shorter where several take part at once.
    between: Duration,
}

/// What stands at a record when it is this process's turn.
pub(super) struct Turn {
    pub(super) found: Option<Version>,
    /// Whether others raced for the record while it waited.
    pub(super) met: bool,
}

impl Turns {
    pub(super) fn new(writer: String) -> Turns {
        Turns { writer, met: Mutex::default(), pace: Mutex::new(Pace { write: STEP, between: STEP }) }
    }

    /// The name of this process.
    pub(super) fn writer(&self) -> &str {
        &self.writer
    }

    /// Whether others were met on a record, the last time and not long ago.
    pub(super) fn are_taken(&self, env: &Env, key: &Key) -> bool {
        let mut met = self.met.lock();
        let taken = met.get(key).is_some_and(|at| env.now().since(*at) < REMEMBERED);
        if !taken {
            met.remove(key);
        }
        taken
    }

    /// A batch is over: whether others raced with it.
    pub(super) fn over(&self, env: &Env, key: &Key, met: bool) {
        let mut all = self.met.lock();
        if met {
            all.insert(key.clone(), env.now());
        } else {
            all.remove(key);
        }
    }

    /// A write has landed, and this is how long it took.
    pub(super) fn landed(&self, took: Duration) {
        let write = &mut self.pace.lock().write;
        // One write is no measure of the next.
        *write = (*write * 3 + took) / 4;
    }

    /// So many writes of others landed within this time.
    fn saw(&self, landed: u32, within: Duration) {
        let between = &mut self.pace.lock().between;
        *between = (*between * 3 + within / landed) / 4;
    }

    /// How long the next landing is to be waited for.
    pub(super) fn step(&self) -> Duration {
        let Pace { write, between } = *self.pace.lock();
        // The read before a write takes its time too.
        between.min(write * 5 / 4).max(STEP_MIN)
    }

    /// Waits for this process's turn on a record, as far as there is one, until `until` at most. That is a courtesy and no
    /// deadline: past it the turn is as good as come.
    ///
    /// # Errors
    /// Unknown, when what stands there has no answer or cannot be read.
    pub(super) async fn wait<B: Bucket>(
        &self,
        bucket: &B,
        key: &Key,
        mut found: Option<Version>,
        until: Mono,
    ) -> Result<Turn, Unknown> {
        let env = bucket.env();
        let before = |found: &Option<Version>| -> Result<Vec<String>, Unknown> {
            let value: Option<&Bytes> = found.as_ref().and_then(|version| version.value.as_ref());
            let record = record(key, value)?;
            Ok(record.iter().flat_map(|record| record.before(&self.writer, env.wall())).map(str::to_owned).collect())
        };
        let at = |version: &Option<Version>| version.as_ref().map_or(0, |version| version.revision);
        let began = env.now();
        let mut ahead = before(&found)?;
        let (mut landed, mut last, mut looks) = (0, began, 0);
        while !ahead.is_empty() && env.now() < until {
            let step = self.step();
            let wait = if ahead.len() == 1 { step / LOOKS } else { step * (ahead.len() - 1).min(AHEAD_MAX) as u32 };
            env.sleep(wait.min(WAIT_MAX).min(until.since(env.now()))).await;
            let seen = bucket.read(key, bucket.deadline()).await?;
            looks += 1;
            if at(&seen) > at(&found) {
                found = seen;
                let still = before(&found)?;
                // Those up to the last one that landed have landed, or were passed over.
                let has_landed = |writer: &String| !still.contains(writer);
                if let Some(latest) = ahead.iter().rposition(has_landed) {
                    let real = ahead.drain(..=latest).filter(has_landed).count() as u32;
                    self.saw(real, env.now().since(last));
                    landed += real;
                    (last, looks) = (env.now(), 0);
                }
            }
            let (idle, waited) = (env.now().since(last), env.now().since(began));
            // Where others land now and then, or not at all, nobody is kept waiting.
            if looks > 1 && idle >= step * PATIENCE || waited >= step * APART * (landed + 1) {
                break;
            }
        }
        let met = landed > 0 && env.now().since(began) < self.step() * APART * landed;
        Ok(Turn { found, met })
    }
}

#[cfg(test)]
mod tests {
    use std::iter::once;

    use coordproto::record::budget::{BudgetRecord, Spend};
    use coordproto::window::{ByPeriod, Windows, Zone};

    use super::*;
    use crate::store::memory::Memory;
    use crate::store::{BucketSpec, Expect, Put, Store, Write};

    const MS: Duration = Duration::from_millis(1);

    /// A record that a hundred others wrote a moment ago, one after another, and then the writer `own`.
    fn written_by_many(env: &Env) -> BudgetRecord {
        let windows = Windows::at(env.wall(), &Zone::parse("timezone", "UTC").unwrap()).unwrap();
        let slots = ByPeriod::from_fn(|period| Spend::none(windows[period].label));
        let mut record = BudgetRecord { slots, writes: Vec::new(), forgotten: None, newer: Default::default() };
        for (writer, over) in (0..100).map(|n| format!("w{n}")).chain(once("own".into())).zip(0..) {
            record.sign(&writer, 1, over, env.wall());
        }
        record
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_kept_waiting_where_others_land_now_and_then_or_not_at_all() {
        for every in [Some(MS * 80), None] {
            let env = Env::seeded(1);
            let spec = BucketSpec { name: "b".into(), age: None, raise_age: false, replicas: 1 };
            let (bucket, key) = (Memory::new(env.clone()).open(&spec).await.unwrap(), Key::parse("org").unwrap());
            let mut record = written_by_many(&env);
            let put = async |record: &BudgetRecord| {
                let put = bucket.put(&key, Write::Value(record.encode()), Expect::Any).await.unwrap();
                assert!(matches!(put, Put::Stored(_)));
            };
            put(&record).await;
            let trickle = async {
                for n in 0..100 {
                    let Some(every) = every else { break };
                    env.sleep(every).await;
                    record.sign(&format!("w{n}"), 2, 1_000 + n, env.wall());
                    put(&record).await;
                }
                std::future::pending::<()>().await;
            };
            let (turns, began) = (Turns::new("own".into()), env.now());
            let found = bucket.read(&key, bucket.deadline()).await.unwrap();
            let turn = tokio::select! {
                turn = turns.wait(&bucket, &key, found, began + Duration::from_secs(5)) => turn.unwrap(),
                () = trickle => unreachable!("it never ends"),
            };
            let waited = env.now().since(began);
            assert!(waited <= STEP * AHEAD_MAX as u32 + MS, "one look tells: {every:?}: {waited:?}");
            assert!(!turn.met, "{every:?}: those are met by chance");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_waited_for_as_long_as_its_caller_allows_and_no_longer() {
        let env = Env::seeded(1);
        let spec = BucketSpec { name: "b".into(), age: None, raise_age: false, replicas: 1 };
        let (bucket, key) = (Memory::new(env.clone()).open(&spec).await.unwrap(), Key::parse("org").unwrap());
        let record = written_by_many(&env);
        let put = bucket.put(&key, Write::Value(record.encode()), Expect::Any).await.unwrap();
        assert!(matches!(put, Put::Stored(_)));
        let found = bucket.read(&key, bucket.deadline()).await.unwrap();
        let (turns, began) = (Turns::new("own".into()), env.now());
        for wait in [Duration::ZERO, MS * 5] {
            turns.wait(&bucket, &key, found.clone(), began + wait).await.unwrap();
            assert!(env.now().since(began) <= wait + MS, "{wait:?}");
        }
    }
}
