//! What is written: every key once before anything is listed, and then by one writer each those that are rewritten all the
//! while, which stay live. At times a writer removes or makes again another key instead, one that comes and goes.
//!
//! What it writes needs no revision, so that no write waits for a read. A removal requires the revision that it removes: one
//! that was given up and lands late finds a later one, and takes nothing away that was counted as live.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::Error;
use engine::env::{Env, Mono};
use engine::jetstream::Meter;
use engine::store::{Bucket, Expect, Put, Write};
use futures_util::future::ready;
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use tokio::sync::Mutex;

use super::{Account, BACK_OFF, Ops};
use crate::rate::Rate;
use crate::recorder::{Op, Outcome};
use crate::stop::Stop;
use crate::timer::Timer;

/// What a value holds: as much as a lease with its status.
static VALUE: [u8; 200] = [b'v'; 200];

/// Of so many writes in a row of one writer, the last but one removes the key that comes and goes, and the last one makes it
/// again: it is away for a short while only, since a key that was removed costs some ways of listing a read.
const COMING_AND_GOING: u64 = 100;

/// Keys written at once before anything is listed.
const LOADED_AT_ONCE: usize = 256;

/// How long a key may go without an answer then.
const LOAD_PATIENCE: Duration = Duration::from_secs(60);

/// What every write goes through.
#[derive(Clone)]
pub(super) struct Pen<B> {
    pub(super) env: Env,
    pub(super) ops: Ops,
    pub(super) account: Arc<Account>,
    pub(super) bucket: B,
}

impl<B: Bucket> Pen<B> {
    /// Writes every key for the first time, and each again while it is unknown whether it was. Answers whether all are there:
    /// not when the run is over first, or one has no answer for too long.
    pub(super) async fn load(&self, stop: &Stop) -> bool {
        let one = async |number: usize| {
            let (began, mut timer) = (self.env.now(), Timer::default());
            loop {
                match self.store(&self.ops.create, number, self.env.now()).await {
                    Ok(Some(_)) => return true,
                    Ok(None) => {}
                    Err(error) => tracing::debug!(%error, "key_write_unknown"),
                }
                let next = self.env.now() + BACK_OFF;
                if next.since(began) > LOAD_PATIENCE || stop.before(&self.env, &mut timer, next).await {
                    return false;
                }
            }
        };
        let all = stream::iter(0..self.account.keys().len()).map(one).buffer_unordered(LOADED_AT_ONCE);
        all.all(|loaded| ready(loaded && !stop.is_over(&self.env))).await
    }

    /// Writes a value, whatever stands there; answers its revision.
    async fn store(&self, op: &Op, number: usize, intended: Mono) -> Result<Option<u64>, Error> {
        let value = Write::Value(Bytes::from_static(&VALUE));
        let stored = self.put(op, number, value, Expect::Any, intended).await?;
        if let Some(revision) = stored {
            self.account.stored(number, revision);
        }
        Ok(stored)
    }

    /// Removes what stands at this revision; answers the removal's.
    async fn remove(&self, number: usize, revision: u64, intended: Mono) -> Result<Option<u64>, Error> {
        self.account.removing(number);
        let removed = self.put(&self.ops.remove, number, Write::Removal, Expect::At(revision), intended).await?;
        if let Some(revision) = removed {
            self.account.removed(number, revision);
        }
        Ok(removed)
    }

    /// Writes, and records it; answers the revision, or none for a race that was lost.
    async fn put(
        &self,
        op: &Op,
        number: usize,
        write: Write,
        expect: Expect,
        intended: Mono,
    ) -> Result<Option<u64>, Error> {
        let op = op.arrival(intended).start(self.env.now());
        let (answer, cost) = Meter::measure(self.bucket.put(&self.account.keys()[number], write, expect)).await;
        let stored = |put: &Put| matches!(put, Put::Stored(_));
        op.finish(Outcome::of(&answer, stored), self.env.now(), cost.requests);
        Ok(match answer? {
            Put::Stored(revision) => Some(revision),
            Put::Lost(_) => None,
        })
    }
}

/// One writer.
pub(super) struct Writer<B> {
    pen: Pen<B>,
    /// The number of the key that it rewrites.
    key: usize,
    /// The number of the one that comes and goes, where it has one.
    extra: Option<usize>,
    /// The revision at which that one is there; none when it is not, or perhaps not. Held while it is written.
    there: Mutex<Option<u64>>,
}

impl<B: Bucket> Writer<B> {
    /// A writer of these keys. The one that comes and goes is made again first.
    pub(super) fn new(pen: Pen<B>, key: usize, extra: Option<usize>) -> Writer<B> {
        Writer { pen, key, extra, there: Mutex::new(None) }
    }

    /// Writes again whenever it was answered, until the run is over.
    pub(super) async fn tight(self, stop: Stop) {
        let (env, mut timer) = (&self.pen.env, Timer::default());
        for number in 0.. {
            let answered = self.told(self.write(number, env.now()).await);
            let pause = if answered { Duration::ZERO } else { BACK_OFF };
            if stop.before(env, &mut timer, env.now() + pause).await {
                return;
            }
        }
    }

    /// Makes every `lanes`-th write from `lane` on of those that are due at `rate` from `first` on, whether or not earlier
    /// ones were answered, until the run is over.
    pub(super) async fn paced(self, rate: Rate, first: Mono, lane: u64, lanes: u64, stop: Stop) {
        let (env, mut timer, mut number) = (&self.pen.env, Timer::default(), 0);
        let mut under_way = FuturesUnordered::new();
        let due = |number: u64| first + rate.offset(number * lanes + lane);
        loop {
            tokio::select! {
                biased;
                // Asking for answers is also what sends.
                Some(answer) = under_way.next() => {
                    self.told(answer);
                }
                over = stop.before(env, &mut timer, due(number)) => {
                    if over {
                        break;
                    }
                    under_way.push(self.write(number, due(number)));
                    number += 1;
                }
            }
        }
        stop.let_go(&self.pen.ops.write, (number..).map(due));
        while let Some(answer) = under_way.next().await {
            self.told(answer);
        }
    }

    /// Whether there was an answer.
    fn told(&self, answer: Result<(), Error>) -> bool {
        match answer {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, "key_write_unknown");
                false
            }
        }
    }

    async fn write(&self, number: u64, intended: Mono) -> Result<(), Error> {
        let (pen, left) = (&self.pen, COMING_AND_GOING - 1 - number % COMING_AND_GOING);
        // While a write of the one that comes and goes is under way, it is left alone.
        if let Some(extra) = self.extra.filter(|_| left < 2)
            && let Ok(mut there) = self.there.try_lock()
        {
            match (left, *there) {
                (1, Some(revision)) => {
                    *there = None;
                    pen.remove(extra, revision, intended).await?;
                    return Ok(());
                }
                (0, None) => {
                    *there = pen.store(&pen.ops.create, extra, intended).await?;
                    return Ok(());
                }
                _ => {}
            }
        }
        pen.store(&pen.ops.write, self.key, intended).await?;
        Ok(())
    }
}
