//! The counters of this process: what waits to be counted on each record, and who counts it.
//!
//! One write at a time is under way for a record. What comes meanwhile waits, and the next write judges all of it, one after
//! another in the order in which it came. The charges of one node so never race each other, and a record that every round of
//! every seat is counted on is written as often as it can be written, not as often as it is charged.
//!
//! Between processes there is no queue, and they write in [`turns`](super::turns) where they meet. What comes while this one
//! waits for its turn is counted together, and where nobody else writes there is no such wait.
//!
//! The work of a record runs in a task of its own while anything waits, so that a write is never left half way by whoever
//! asked for it.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use coordproto::answer::{Cause, Unknown};
use coordproto::key::Key;
use coordproto::tally::{Ceilings, Charge, Charged};
use coordproto::window::Windows;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::landing::Batch;
use super::turns::{Turn, Turns};
use crate::store::Bucket;
use crate::tasks;

/// What one scope is charged: at least one token.
pub(super) struct Share {
    pub(super) tokens: u64,
    pub(super) windows: Windows,
    /// What the windows may hold, and the instant of judgement; nothing for a post-charge.
    pub(super) judged: Option<(Ceilings, Timestamp)>,
}

impl Share {
    fn charge(&self) -> Charge<'_> {
        let Share { tokens, windows, judged } = self;
        match judged {
            Some((ceilings, now)) => Charge::Judged { tokens: *tokens, windows, ceilings, now: *now },
            None => Charge::Post { tokens: *tokens, windows },
        }
    }
}

/// Whoever asked, for as long as they wait for the answer.
pub(super) type Caller = Weak<()>;

/// A share that waits for its write.
struct Waiting {
    share: Share,
    /// Without them it is not counted; nobody, where it is counted whatever they do.
    caller: Option<Caller>,
    told: oneshot::Sender<Result<Charged, Unknown>>,
}

impl Waiting {
    fn is_wanted(&self) -> bool {
        self.caller.as_ref().is_none_or(|caller| caller.strong_count() > 0)
    }
}

/// The counters of a bucket, as one process writes them.
pub(super) struct Counter<B> {
    pub(super) bucket: B,
    /// How many shares one write counts at most.
    most: usize,
    /// Bears a name that no other process does, nor this one after a restart.
    turns: Turns,
    batches: AtomicU64,
    /// What waits, by record. One that is here has somebody who counts it.
    queues: Mutex<HashMap<Key, VecDeque<Waiting>>>,
}

impl<B: Bucket> Counter<B> {
    /// Counts at most so many shares with one write.
    pub(super) fn new(bucket: B, most: usize) -> Counter<B> {
        let env = bucket.env();
        // A process whose randomness replays is another one all the same.
        let started = env.wall().as_nanosecond() as u64;
        let writer = format!("{:016x}", env.random() ^ started);
        Counter { bucket, most, turns: Turns::new(writer), batches: AtomicU64::new(1), queues: Mutex::default() }
    }

    /// Counts a share once, unless its caller goes away before its write is made.
    ///
    /// # Errors
    /// Unknown, which says whether it may be counted.
    pub(super) async fn count(
        self: &Arc<Self>,
        key: &Key,
        share: Share,
        caller: Option<Caller>,
    ) -> Result<Charged, Unknown> {
        let (told, answer) = oneshot::channel();
        let waiting = Waiting { share, caller, told };
        let begins = match self.queues.lock().entry(key.clone()) {
            Entry::Occupied(mut queue) => {
                queue.get_mut().push_back(waiting);
                false
            }
            Entry::Vacant(vacant) => {
                vacant.insert(VecDeque::from([waiting]));
                true
            }
        };
        if begins {
            // It outlives its caller, who is one of many by the time of the write. The attempts bound it.
            tasks::detach(Work { counter: self.clone(), key: key.clone(), over: false }.run());
        }
        // Nobody answers where the process is going down.
        let gone = |_| Err(Unknown::in_flight("charge", key.as_str(), Cause::Disconnected));
        answer.await.unwrap_or_else(gone)
    }

    /// Whether nothing waits and nobody works.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.queues.lock().is_empty()
    }
}

/// The work of one record, for as long as anything waits.
struct Work<B: Bucket> {
    counter: Arc<Counter<B>>,
    key: Key,
    over: bool,
}

impl<B: Bucket> Work<B> {
    async fn run(mut self) {
        while self.waits() {
            let found = self.turn().await;
            // Whoever came by now is judged on it too.
            let set = self.take();
            let answers = match found {
                Ok(turn) if !set.is_empty() => {
                    let charges: Vec<Charge<'_>> = set.iter().map(|waiting| waiting.share.charge()).collect();
                    let number = self.counter.batches.fetch_add(1, Ordering::Relaxed);
                    let Counter { bucket, turns, .. } = &*self.counter;
                    let batch = Batch { bucket, key: &self.key, turns, number, charges: &charges };
                    let landed = batch.land(turn.found).await;
                    // Without an answer it has met a store that has none.
                    let met = turn.met || landed.as_ref().map_or(true, |landed| landed.met);
                    turns.over(bucket.env(), &self.key, met);
                    landed.map(|landed| landed.answers)
                }
                Ok(_) => continue,
                Err(unknown) => Err(unknown),
            };
            let told = match answers {
                Ok(answers) => answers.into_iter().map(Ok).collect(),
                Err(unknown) => vec![Err(unknown); set.len()],
            };
            for (waiting, told) in set.into_iter().zip(told) {
                // Unheard by a caller who has gone away since: it is counted, or unknown, all the same.
                let _unheard = waiting.told.send(told);
            }
        }
    }

    /// Reads the record, and waits for this process's turn where others were met on it.
    async fn turn(&self) -> Result<Turn, Unknown> {
        let Counter { bucket, turns, .. } = &*self.counter;
        let by = bucket.deadline();
        let found = bucket.read(&self.key, by).await?;
        if turns.are_taken(bucket.env(), &self.key) {
            turns.wait(bucket, &self.key, found, by).await
        } else {
            Ok(Turn { found, met: false })
        }
    }

    /// Whether anything waits; if not, the work is over, and whoever comes next begins it anew.
    fn waits(&mut self) -> bool {
        let mut queues = self.counter.queues.lock();
        let queue = queues.get_mut(&self.key);
        let waits = queue.is_some_and(|queue| {
            queue.retain(Waiting::is_wanted);
            !queue.is_empty()
        });
        if !waits {
            queues.remove(&self.key);
            self.over = true;
        }
        waits
    }

    /// What the next write counts. What is not taken by then and has lost its caller is left out.
    fn take(&self) -> Vec<Waiting> {
        let mut queues = self.counter.queues.lock();
        let Some(queue) = queues.get_mut(&self.key) else { return Vec::new() };
        queue.retain(Waiting::is_wanted);
        let most = queue.len().min(self.counter.most);
        queue.drain(..most).collect()
    }
}

impl<B: Bucket> Drop for Work<B> {
    fn drop(&mut self) {
        if !self.over {
            // Cut short, with the process. Whoever waits is told that nobody knows.
            self.counter.queues.lock().remove(&self.key);
        }
    }
}
