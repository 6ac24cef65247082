//! `loadgen listing`: readers list one class of keys in every way there is, while writers rewrite some of them as fast as they
//! can.
//!
//! The ways have their turns within one run, so that their latencies were measured on the same machine under the same load,
//! whatever else it had to do. Readers are a closed loop: each lists again when it was answered. Every listing is held against
//! an [`Account`] of what was live throughout it.
//!
//! A listing that a quorum proves stands on a write of the reader's own. That is an operation of its own and in neither the
//! latency nor the requests of the listing: who lists in this way makes such a write anyway, as a node renews its presence.

mod account;
mod args;
mod params;
mod reader;
mod scenario;
mod tally;
mod writer;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::env::Env;
use engine::store::counting::Counting;
use engine::store::{Bucket, BucketSpec, OpenError, Store};
use engine::tasks;
use futures_util::future::try_join_all;

use crate::recorder::Recorder;
use crate::scenario::{DRAIN, Parts};
use crate::stop::{Over, Stop, drained};

pub use account::{Account, Before, Wrong};
pub use args::ListingArgs;
pub use params::{Churn, Ops, Params, Strategy};
pub use tally::{Listings, Tally};

use params::Turns;
use reader::{Reader, Seat};
use writer::{Pen, Writer};

/// The part in which every key is written.
const LOAD: &str = "load";

/// The part in which listings are made.
const LISTING: &str = "listing";

/// How long whoever asks again at once waits after an unknown: without a connection there is one at once.
const BACK_OFF: Duration = Duration::from_millis(10);

type Ran = crate::scenario::Ran<()>;

/// The connections of a run.
pub struct Clients<S: Store> {
    readers: Vec<Seat<S>>,
    writers: Vec<S::Bucket>,
}

/// A run of listings.
pub struct Listing {
    /// The clock and the randomness.
    pub env: Env,
    /// What it is asked to be.
    pub params: Params,
    /// Its bucket.
    pub bucket: BucketSpec,
    /// Where it records.
    pub recorder: Recorder,
    /// The operations it records.
    pub ops: Ops,
    /// Its account of the keys.
    pub account: Arc<Account>,
    /// What its listings came to.
    pub tally: Tally,
    /// What had not ended when it was waited for long enough.
    unsettled: AtomicU64,
    /// Its parts.
    pub parts: Parts,
}

impl Listing {
    /// Opens the bucket for every client: for the first one alone, so that it is made once.
    ///
    /// # Errors
    /// When a client's store or the bucket cannot be opened.
    pub async fn open<S: Store, F, E>(&self, store: impl Fn(usize) -> F) -> Result<Clients<S>, E>
    where
        F: Future<Output = Result<S, E>>,
        E: From<OpenError>,
    {
        let (store, bucket) = (&store, &self.bucket);
        let reader = async |client: usize| -> Result<Seat<S>, E> {
            let counting = Counting::new(store(client).await?);
            let bucket = counting.open(bucket).await?;
            Ok(Seat { counting, bucket })
        };
        let writer = async |client: usize| -> Result<S::Bucket, E> { Ok(store(client).await?.open(bucket).await?) };
        let (reading, writing) = (self.params.readers, self.params.writing());
        let mut readers = vec![reader(0).await?];
        readers.extend(try_join_all((1..reading).map(&reader)).await?);
        let writers = try_join_all((reading..reading + writing).map(&writer)).await?;
        Ok(Clients { readers, writers })
    }

    /// Writes the keys and lists them, until all is listed, its time is over, or `interrupt` is done.
    pub async fn run<S: Store>(&self, clients: Clients<S>, interrupt: impl Future<Output = ()>) -> Ran {
        let (over, stop) = Over::new();
        let mut work = std::pin::pin!(self.work(clients, stop, &over));
        tokio::select! {
            ran = &mut work => ran,
            () = interrupt => {
                over.at(self.env.now());
                Ran { interrupted: true, ..work.await }
            }
        }
    }

    fn pen<B: Bucket>(&self, bucket: &B) -> Pen<B> {
        let (env, ops, account) = (self.env.clone(), self.ops.clone(), self.account.clone());
        Pen { env, ops, account, bucket: bucket.clone() }
    }

    async fn work<S: Store>(&self, clients: Clients<S>, stop: Stop, over: &Over) -> Ran {
        let Params { churned, churn, count, duration, .. } = self.params;
        let env = &self.env;
        let (ops, account) = (&self.ops, &self.account);
        self.parts.enter(LOAD, env.now());
        if !self.pen(&clients.readers[0].bucket).load(&stop).await {
            tracing::error!(written = account.written(), of = account.keys().len(), "keys_not_written");
            self.parts.enter(DRAIN, env.now());
            return Ran { interrupted: true, ..Ran::default() };
        }

        let first = env.now();
        self.recorder.measure_from(first);
        if count.is_none() {
            over.at(first + duration);
        }
        self.parts.enter(LISTING, first);
        let mut tasks = Vec::new();
        for (key, bucket) in (0..churned).zip(clients.writers.iter().cycle()) {
            let extra = Some(churned + key).filter(|_| key < self.params.extra());
            let writer = Writer::new(self.pen(bucket), key, extra);
            tasks.push(match churn {
                Churn::Tight => tasks::spawn(writer.tight(stop.clone())),
                Churn::Rate(rate) => tasks::spawn(writer.paced(rate, first, key as u64, churned as u64, stop.clone())),
            });
        }
        let turns = Arc::new(Turns::new(&self.params));
        let (reading, mut all_read) = tokio::sync::mpsc::channel::<()>(1);
        for seat in clients.readers {
            let (env, ops, account, tally) = (env.clone(), ops.clone(), account.clone(), self.tally.clone());
            let (reader, turns, stop) = (Reader { env, ops, account, tally, seat }, turns.clone(), stop.clone());
            let reading = reading.clone();
            tasks.push(tasks::spawn(async move {
                reader.run(turns, stop).await;
                drop(reading);
            }));
        }
        drop(reading);
        tokio::select! {
            // Nothing is ever sent: the channel closes when the last reader has dropped its end.
            _closed = all_read.recv() => over.at(env.now()),
            () = stop.over(env) => {}
        }
        self.parts.enter(DRAIN, env.now());
        if !drained(env, tasks).await {
            self.unsettled.fetch_add(self.recorder.totals().in_flight().max(1), Ordering::Relaxed);
        }
        Ran { brought_up: true, ..Ran::default() }
    }
}

#[cfg(test)]
mod tests;
