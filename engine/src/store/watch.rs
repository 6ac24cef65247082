//! The watch: a certified listing, then every change after it, from the same pass.
//!
//! No change falls between the two, and no revision is told that is not newer than the listing's of its key. A watch that can
//! no longer promise every change ends with an error, and is to be opened again; it is never silent, because its consumer's
//! heartbeats are counted while it is looked at, and what came while nobody looked waits or is found missing by its number.
//! Expiry is no change: the broker removes an aged record without a word, and it is seen by reading.

use std::collections::HashMap;
use std::time::Duration;

use coordproto::answer::{Cause, Unknown};
use coordproto::key::{Filter, Key};
use coordproto::listing::{Finished, Version, is_news};
use futures_util::future::try_join;
use tokio::sync::watch;

use super::listing::{about, certify, collect, timeout};
use super::{Bucket, Listing, Pass, Values};
use crate::env::Env;

/// How far ahead the deadline of waiting for a change lies, which has none.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A bucket followed.
pub struct Watch<P> {
    /// What the bucket held when the watch began.
    pub listing: Listing,
    /// What changes from then on.
    pub changes: Changes<P>,
}

/// The changes of a watched bucket, in order.
pub struct Changes<P> {
    pass: P,
    env: Env,
    about: String,
    /// The revisions that the listing tells of, of keys that are gone too: the pass may still have to deliver what was read
    /// elsewhere, and a replica that is behind what came before it.
    known: HashMap<Key, u64>,
    /// How far the stream had come when its leader named the keys.
    index_seq: u64,
    /// The last revision told.
    told: u64,
}

impl<P: Pass> Changes<P> {
    /// The next change: a key and its new version.
    ///
    /// # Errors
    /// When the watch can no longer promise every change. It has then ended, and is to be opened again.
    pub async fn next(&mut self) -> Result<(Key, Version), Unknown> {
        loop {
            let by = self.env.now() + A_DAY;
            let delivery = match self.pass.next(by).await {
                Ok(delivery) => delivery,
                // A day without a change is no end. A consumer that is silent is one, and ends long before.
                Err(unknown) if unknown.cause == Cause::Timeout && self.env.now() >= by => continue,
                Err(unknown) => return Err(unknown.during("watch", self.about.as_str())),
            };
            let (Some(key), revision) = (delivery.key, delivery.version.revision) else { continue };
            if revision > self.told && is_news(revision, self.known.get(&key).copied(), self.index_seq) {
                self.told = revision;
                return Ok((key, delivery.version));
            }
        }
    }
}

pub(super) async fn watch<B: Bucket>(
    bucket: &B,
    filter: &Filter,
    by: crate::env::Mono,
) -> Result<Watch<B::Pass>, Unknown> {
    let opening = Box::pin(async {
        let (named, open) = (watch::Sender::new(None), watch::Sender::new(false));
        let index = async {
            let index = bucket.index(filter, by).await?;
            named.send_replace(Some(()));
            Ok(index)
        };
        let passed = collect(bucket, filter, Values::With, named.subscribe(), &open, by);
        let (index, (collected, pass)) = try_join(index, passed).await?;
        let Finished { live, gone } = certify(bucket, filter, &index, collected, by).await?;
        let mut known: HashMap<Key, u64> = gone.into_iter().collect();
        known.extend(live.iter().map(|(key, version)| (key.clone(), version.revision)));
        let listing = Listing { entries: live, clock: index.clock, last_seq: index.last_seq };
        let (env, about) = (bucket.env().clone(), about(bucket, filter));
        Ok(Watch { listing, changes: Changes { pass, env, about, known, index_seq: index.last_seq, told: 0 } })
    });
    let opened = bucket.env().within(by, opening).await.unwrap_or_else(|_| Err(timeout()));
    opened.map_err(|unknown| unknown.during("watch", about(bucket, filter)))
}
