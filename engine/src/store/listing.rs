//! The listing that cannot lie: every key live throughout it, or unknown.
//!
//! Certified by the leader, it is one ordered pass beside the leader's subject index, started together; what the index names
//! and the pass did not deliver live is read from the leader, in a pipeline. Without a consumer to be had (they need the meta
//! group's leader, which is gone for seconds when it dies) the values come from batched direct gets instead, and are certified
//! by the same index.
//!
//! Proved by a quorum, it is one batched direct get that holds the barrier at its revision or later, whichever member
//! answers, beside the leader's index at the barrier or later; of a class too large for one answer, as many batched direct
//! gets of the index's keys as it takes, each with the barrier in it. Every one is a copy from one instant, and every instant
//! is after the barrier, so that the listing as a whole is not old, though not of one instant; and what the index names and no
//! copy brought is asked for until one does, or a later index does not name it either, so that it is not short.
//!
//! That a copy lacks a key is never taken for an answer: a member that is catching up lacks what is live.
//!
//! A class that the last listing found large, and to be most of its bucket, goes by neither: [`Drains`](super::Drains).
//!
//! The decisions are [`coordproto::listing`]'s; here is what asks the questions.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::{Collected, Finished, Index, Version, live, prove};
use futures_util::future::{join, try_join};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::watch;

use super::{Barrier, Bucket, Certified, Copy, Expect, Held, Listing, Pass, Put, Values, Write, drains};
use crate::env::Mono;

/// How long a listing may take whose caller has no deadline of its own.
pub const LIST_WITHIN: Duration = Duration::from_secs(10);

/// Once the index has answered, a pass without a delivery for this long is over: the broker's own idle interval.
pub(super) const QUIET: Duration = Duration::from_secs(5);

/// How long a listing whose index has answered waits for its consumer before it takes copies instead.
const CONSUMER_WITHIN: Duration = Duration::from_millis(500);

/// How long a listing waits to hear that its consumer is gone. The broker forgets an orphan by itself.
pub(super) const END_WITHIN: Duration = Duration::from_secs(1);

/// Leader reads of one listing under way at once.
const READS_AT_ONCE: usize = 64;

/// Keys in one batched direct get. The broker answers for 1,024, the barrier among them.
const COPY_KEYS: usize = 1000;

/// Batched direct gets of one listing under way at once.
const COPIES_AT_ONCE: usize = 4;

/// A request ends at its deadline to within a few milliseconds, and tells more than that it is late.
const LAST_WORD: Duration = Duration::from_millis(20);

/// How long a barrier's write waits for its acknowledgement before it is written again.
const BARRIER_WITHIN: Duration = Duration::from_millis(500);

/// A member that is behind is milliseconds behind, or seconds when it has just been started or thawed.
const CATCH_UP: Duration = Duration::from_millis(2);

/// How many copies in a row may be from members that are behind, or lack what an index names. Whoever answers is drawn anew for each, so one member that
/// stays behind is not met every time. The waits between them double, and come to a quarter to half a second.
const COPY_TRIES: u32 = 8;

pub(super) async fn list<B: Bucket>(
    bucket: &B,
    filter: &Filter,
    certified: &Certified,
    by: Mono,
) -> Result<Listing, Unknown> {
    // Boxed: whoever lists is asked to carry a pointer, and not all that a listing needs.
    let listing = Box::pin(async {
        match certified {
            Certified::Leader => {
                if let Some(listing) = drains::list(bucket, filter, None, by).await {
                    return Ok(listing);
                }
                let sent = bucket.env().now();
                let (index, collected) = survey(bucket, filter, by).await?;
                let took = bucket.env().now().since(sent);
                bucket.drains().learn(filter, index.len() as u64, index.records, took);
                let entries = certify(bucket, filter, &index, collected, by).await?.live;
                Ok(Listing { entries, clock: index.clock, last_seq: index.last_seq })
            }
            Certified::Quorum(barrier) => quorum(bucket, filter, barrier, by).await,
        }
    });
    // One budget for all of it, whatever each request makes of it; and a moment for the last one to say why it has no answer.
    let listed = bucket.env().within(by + LAST_WORD, listing).await.unwrap_or_else(|_| Err(timeout()));
    listed.map_err(|unknown| unknown.during("list", about(bucket, filter)))
}

pub(super) async fn barrier<B: Bucket>(bucket: &B, by: Mono) -> Result<Barrier, Unknown> {
    let env = bucket.env();
    let told = |cause| Unknown::settled("barrier", bucket.name(), cause);
    loop {
        let (key, sent) = (Key::barrier(), env.now());
        let put = bucket.put(&key, Write::Value(Bytes::new()), Expect::Any);
        let doubt = match env.within(by.min(sent + BARRIER_WITHIN), put).await {
            Ok(Ok(Put::Stored(revision))) => return Ok(Barrier { bucket: bucket.name().into(), key, revision, sent }),
            Ok(Ok(Put::Lost(_))) => Cause::Garbage("a write without an expectation was told that it lost".into()),
            Ok(Err(Error::Unknown(unknown))) => unknown.cause,
            // Its headers alone are more than the broker takes, and will be.
            Ok(Err(Error::BadArgument(error))) => return Err(told(Cause::TooLarge(error.to_string().into()))),
            Err(_) => Cause::Timeout,
        };
        // Written again or landing late, a barrier does nothing to anybody, so it is asked for like a read.
        let wait = CATCH_UP * 10 + env.jitter(CATCH_UP * 10);
        if env.now() + wait >= by {
            return Err(told(doubt));
        }
        env.sleep(wait).await;
    }
}

/// What a listing or a watch is about, as its errors name it.
pub(super) fn about<B: Bucket>(bucket: &B, filter: &Filter) -> String {
    format!("{} {filter}", bucket.name())
}

pub(super) fn timeout() -> Unknown {
    doubt(Cause::Timeout)
}

/// An unknown whose operation and resource are told by whoever asked.
pub(super) fn doubt(cause: Cause) -> Unknown {
    Unknown::settled("list", "", cause)
}

/// The values, from one pass or from copies, beside the leader's index.
async fn survey<B: Bucket>(bucket: &B, filter: &Filter, by: Mono) -> Result<(Arc<Index>, Collected), Unknown> {
    let named = watch::Sender::new(None::<Arc<Index>>);
    let open = watch::Sender::new(false);
    let index = async {
        let index = Arc::new(bucket.index(filter, by).await?);
        named.send_replace(Some(index.clone()));
        Ok(index)
    };
    let passed = async {
        let (mut collected, pass) = collect(bucket, filter, Values::With, named.subscribe(), &open, by).await?;
        // Putting them in order costs nobody's time while the broker takes its consumer down.
        join(end(bucket, pass, by), async { collected.arrange() }).await;
        Ok(collected)
    };
    let copied = async {
        let index = answered(&named).await;
        bucket.env().sleep(CONSUMER_WITHIN).await;
        if *open.borrow() {
            // There is a consumer, and it is its pass that tells.
            std::future::pending::<()>().await;
        }
        tracing::debug!(bucket = bucket.name(), %filter, "listing_without_consumer");
        copy(bucket, &index, by).await
    };
    let values = async {
        let (mut passed, mut copied) = (pin!(passed), pin!(copied));
        tokio::select! {
            biased;
            passed = &mut passed => match passed {
                Ok(collected) => Ok(collected),
                // Whatever became of the consumer, copies are as good, and they do not need one.
                Err(unknown) => {
                    tracing::debug!(bucket = bucket.name(), %filter, %unknown, "listing_pass_lost");
                    copy(bucket, &*answered(&named).await, by).await
                }
            },
            copied = &mut copied => match copied {
                Ok(collected) => Ok(collected),
                Err(_) => passed.await,
            },
        }
    };
    try_join(index, values).await
}

/// Waits for the index. One that fails ends the listing, and this wait with it.
async fn answered(named: &watch::Sender<Option<Arc<Index>>>) -> Arc<Index> {
    loop {
        let mut named = named.subscribe();
        if let Ok(index) = named.wait_for(Option::is_some).await
            && let Some(index) = &*index
        {
            return index.clone();
        }
    }
}

/// What one pass delivers, until it says that nothing is pending or falls quiet, and the pass, which has not ended.
pub(super) async fn collect<B: Bucket, I>(
    bucket: &B,
    filter: &Filter,
    values: Values,
    mut named: watch::Receiver<Option<I>>,
    open: &watch::Sender<bool>,
    by: Mono,
) -> Result<(Collected, B::Pass), Unknown> {
    let env = bucket.env();
    let mut pass = bucket.pass(filter, values, by).await?;
    open.send_replace(true);
    let mut collected = Collected::default();
    let mut pending = pass.to_deliver();
    let mut index_answered = named.borrow().is_some();
    let mut heard = env.now();
    while pending > 0 {
        let delivery = if index_answered {
            let quiet = heard + QUIET;
            match pass.next(by.min(quiet)).await {
                Err(unknown) if unknown.cause == Cause::Timeout && quiet < by && env.now() >= quiet => break,
                delivery => delivery?,
            }
        } else {
            tokio::select! {
                biased;
                // The quiet is counted from the index's answer on. One that fails ends the listing, and this pass with it.
                Ok(()) = named.changed() => {
                    index_answered = true;
                    heard = env.now();
                    continue;
                }
                delivery = pass.next(by) => delivery?,
            }
        };
        heard = env.now();
        pending = delivery.pending;
        if let Some(key) = delivery.key {
            collected.take(key, delivery.version);
        }
    }
    Ok((collected, pass))
}

/// Ends a pass, and waits a moment to hear that its consumer is gone.
pub(super) async fn end<B: Bucket>(bucket: &B, pass: B::Pass, by: Mono) {
    let by = by.min(bucket.env().now() + END_WITHIN);
    if let Err(unknown) = pass.end(by).await {
        // What it delivered stands; the broker forgets the consumer by itself.
        tracing::debug!(%unknown, "pass_consumer_left_to_its_timeout");
    }
}

/// Settles what the index names and was not delivered live: with the leader, key by key, and where the leader's answer is that
/// a key is gone, with a copy that is as late as the index. A leader that was cut off or frozen goes on saying what was.
pub(super) async fn certify<B: Bucket>(
    bucket: &B,
    filter: &Filter,
    index: &Index,
    mut collected: Collected,
    by: Mono,
) -> Result<Finished, Unknown> {
    let answers: Vec<(Key, Option<Version>)> = stream::iter(collected.to_read(index))
        .map(async |key| {
            let version = bucket.read(&key, by).await?;
            Ok::<_, Unknown>((key, version))
        })
        .buffer_unordered(READS_AT_ONCE)
        .try_collect()
        .await?;
    let mut gone = Vec::new();
    for (key, version) in answers {
        if !collected.settle(&key, version, index).map_err(doubt)? {
            gone.push(key);
        }
    }
    if !gone.is_empty() {
        let proof = Proof::Sequence(index.last_seq);
        let (held, seq) = stand(bucket, filter, gone.clone(), proof, by).await?;
        let mut held: HashMap<Key, Version> = held.into_iter().collect();
        for key in gone {
            let version = held.remove(&key);
            collected.prove(key, version, seq);
        }
    }
    Ok(collected.finish(index))
}

pub(super) async fn since<B: Bucket>(
    bucket: &B,
    filter: &Filter,
    keys: &[Key],
    seq: u64,
    by: Mono,
) -> Result<Vec<(Key, Version)>, Unknown> {
    let held = Box::pin(stand(bucket, filter, keys.to_vec(), Proof::Sequence(seq), by));
    let held = bucket.env().within(by + LAST_WORD, held).await.unwrap_or_else(|_| Err(timeout()));
    held.map(|(held, _)| held).map_err(|unknown| unknown.during("list", about(bucket, filter)))
}

/// What stands under `keys`, late enough for `proof`, and the sequence up to which it is known of every other that nothing stands
/// there: that of the earliest index which did not name one.
async fn stand<B: Bucket>(
    bucket: &B,
    filter: &Filter,
    mut keys: Vec<Key>,
    proof: Proof<'_>,
    by: Mono,
) -> Result<(Vec<(Key, Version)>, u64), Unknown> {
    let (mut found, mut gone_at) = (Vec::with_capacity(keys.len()), None::<u64>);
    for try_ in 0..COPY_TRIES {
        catch_up(bucket, try_).await;
        let names: Vec<&str> = keys.iter().map(Key::as_str).collect();
        let copied = copies(bucket, &names, proof, by).await?;
        let held: HashSet<&Key> = copied.iter().map(|(key, _)| key).collect();
        keys.retain(|key| !held.contains(key));
        found.extend(copied);
        if !keys.is_empty() {
            let (index, lacking) = (index_since(bucket, filter, proof.sequence(), by).await?, keys.len());
            keys = index.named_of(keys);
            if keys.len() < lacking {
                gone_at = Some(gone_at.map_or(index.last_seq, |before| before.min(index.last_seq)));
            }
        }
        if keys.is_empty() {
            return Ok((found, gone_at.unwrap_or_else(|| proof.sequence())));
        }
    }
    Err(doubt(Cause::Garbage(format!("{} keys that an index names and no copy holds", keys.len()).into())))
}

/// What some members hold of the keys of an index, none of it from before the index.
async fn copy<B: Bucket>(bucket: &B, index: &Index, by: Mono) -> Result<Collected, Unknown> {
    let names: Vec<&str> = index.names().collect();
    let mut collected = Collected::default();
    for (key, version) in copies(bucket, &names, Proof::Sequence(index.last_seq), by).await? {
        collected.take(key, version);
    }
    Ok(collected)
}

/// A listing that a barrier proves.
async fn quorum<B: Bucket>(bucket: &B, filter: &Filter, barrier: &Barrier, by: Mono) -> Result<Listing, Unknown> {
    if *barrier.bucket != *bucket.name() {
        // It proves nothing here, and its caller pays for one that does.
        let own = self::barrier(bucket, by).await?;
        return Box::pin(quorum(bucket, filter, &own, by)).await;
    }
    if let Some(listing) = drains::list(bucket, filter, Some(barrier), by).await {
        return Ok(listing);
    }
    let (proof, mut names) = (Proof::Barrier(barrier), vec![filter.as_str()]);
    if !filter.selects(barrier.key.as_str()) {
        names.push(barrier.key.as_str());
    }
    let sent = bucket.env().now();
    let index = index_since(bucket, filter, barrier.revision, by);
    let (index, copied) = try_join(index, held(bucket, &names, proof, by)).await?;
    let mut entries = match copied {
        Copy::Whole(held) => held.entries,
        Copy::TooMuch => {
            let names: Vec<&str> = index.names().collect();
            let entries = copies(bucket, &names, proof, by).await?;
            let took = bucket.env().now().since(sent);
            bucket.drains().learn(filter, index.len() as u64, index.records, took);
            entries
        }
    };
    let missing = index.missing_from(&entries);
    if !missing.is_empty() {
        entries.extend(stand(bucket, filter, missing, proof, by).await?.0);
    }
    Ok(Listing { entries: live(entries, filter), clock: index.clock, last_seq: barrier.revision })
}

/// The leader's index from `revision` or later. Whoever answers and is behind is asked again, when it may have caught up, or
/// another leads.
async fn index_since<B: Bucket>(bucket: &B, filter: &Filter, revision: u64, by: Mono) -> Result<Index, Unknown> {
    let mut stale = None;
    for try_ in 0..COPY_TRIES {
        catch_up(bucket, try_).await;
        let index = bucket.index(filter, by).await?;
        match index.covers(revision) {
            Ok(()) => return Ok(index),
            Err(cause) => stale = Some(cause),
        }
    }
    Err(doubt(stale.unwrap_or(Cause::Timeout)))
}

/// What makes a copy late enough to be believed.
#[derive(Clone, Copy)]
enum Proof<'a> {
    /// The barrier is in it, at its revision or later.
    Barrier(&'a Barrier),
    /// Its member had come to this sequence.
    Sequence(u64),
}

impl Proof<'_> {
    /// What was written before this is not told.
    fn sequence(self) -> u64 {
        match self {
            Proof::Barrier(barrier) => barrier.revision,
            Proof::Sequence(sequence) => sequence,
        }
    }

    /// Whether `held` is late enough. One that holds nothing does not say how late it is, and has nothing that is too early.
    fn of(self, held: &Held) -> Result<(), Cause> {
        match (self, held.last_seq) {
            (Proof::Barrier(barrier), _) => prove(&held.entries, &barrier.key, barrier.revision),
            (Proof::Sequence(known), Some(answered)) if answered < known => Err(Cause::Stale { answered, known }),
            (Proof::Sequence(_), _) => Ok(()),
        }
    }
}

/// Waits for members to catch up, before the try of this number, from 0.
async fn catch_up<B: Bucket>(bucket: &B, try_: u32) {
    if let Some(again) = try_.checked_sub(1) {
        let wait = CATCH_UP * (1 << again);
        bucket.env().sleep(wait + bucket.env().jitter(wait)).await;
    }
}

/// What a member that is not behind holds of `names`.
async fn held<B: Bucket>(bucket: &B, names: &[&str], proof: Proof<'_>, by: Mono) -> Result<Copy, Unknown> {
    let mut stale = None;
    for try_ in 0..COPY_TRIES {
        catch_up(bucket, try_).await;
        let answer = bucket.copy(names, by).await?;
        let Copy::Whole(held) = &answer else { return Ok(answer) };
        match proof.of(held) {
            Ok(()) => return Ok(answer),
            Err(cause) => stale = Some(cause),
        }
    }
    Err(doubt(stale.unwrap_or(Cause::Timeout)))
}

/// What members that are not behind hold of `names`, in as many copies as it takes.
async fn copies<B: Bucket>(
    bucket: &B,
    names: &[&str],
    proof: Proof<'_>,
    by: Mono,
) -> Result<Vec<(Key, Version)>, Unknown> {
    let chunks: Vec<_> = names.chunks(COPY_KEYS).map(|chunk| chunk_of(bucket, chunk, proof, by)).collect();
    let chunks: Vec<Vec<_>> = stream::iter(chunks).buffer_unordered(COPIES_AT_ONCE).try_collect().await?;
    Ok(chunks.into_iter().flatten().collect())
}

/// What members hold of as many keys as one answer carries, unless their values are large.
async fn chunk_of<B: Bucket>(
    bucket: &B,
    chunk: &[&str],
    proof: Proof<'_>,
    by: Mono,
) -> Result<Vec<(Key, Version)>, Unknown> {
    let (mut parts, mut all) = (vec![chunk], Vec::new());
    while let Some(part) = parts.pop() {
        let mut names = part.to_vec();
        if let Proof::Barrier(barrier) = proof {
            names.push(barrier.key.as_str());
        }
        match held(bucket, &names, proof, by).await? {
            Copy::Whole(held) => all.extend(held.entries),
            Copy::TooMuch if part.len() > 1 => {
                let (one, other) = part.split_at(part.len() / 2);
                parts.extend([one, other]);
            }
            Copy::TooMuch => return Err(doubt(Cause::Garbage("a record larger than an answer".into()))),
        }
    }
    Ok(all)
}
