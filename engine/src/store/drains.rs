//! The listing from one member's copy that was read to its end: no index, and no more than a pass over the bucket.
//!
//! It pays only for a large class that is most of its bucket, and that is known from the last listing alone. So every bucket
//! remembers for which filters it was so, and how a drain of them went. One that was not believed, or not answered, is followed
//! by the listing that needs no drain, within the same deadline, and by some more of those: where drains never work, they cost
//! little. What proves a drain is [`Drained`](coordproto::listing::Drained)'s business.

use std::collections::HashMap;
use std::time::Duration;

use coordproto::answer::{Cause, Unknown};
use coordproto::key::Filter;
use coordproto::listing::{KEYS_MAX, Standing, is_drained, live, prove};
use futures_util::future::try_join;
use parking_lot::Mutex;

use super::listing::{doubt, timeout};
use super::{Barrier, Bucket, Listing};
use crate::env::Mono;

/// How many listings of a filter go without a drain after one that came to nothing. Where the next one does too, twice as
/// many: a bucket that is written to all the time has hardly an instant in which a drain can be proved.
const PAUSE: u32 = 16;

/// The most listings that go without one.
const PAUSE_MOST: u32 = 256;

/// How many filters a bucket remembers. There are a few classes to a bucket, and whoever lists more of them goes without.
const FILTERS_MOST: usize = 64;

/// The part of the time there is that a drain may take, for the listing that follows when it comes to nothing has to have as
/// much. Where the last listing took more than half of that, none is tried.
const PART: u32 = 2;

/// For which filters a bucket is drained.
#[derive(Debug, Default)]
pub struct Drains(Mutex<HashMap<Box<str>, Pause>>);

#[derive(Debug)]
struct Pause {
    /// How many listings go without a drain first.
    left: u32,
    /// How many do after the next one that comes to nothing.
    next: u32,
    /// How long the last listing took.
    took: Duration,
}

impl Drains {
    /// Whether this listing of `filter`, for which there is so much time, is to go by a drain.
    fn is_due(&self, filter: &Filter, within: Duration) -> bool {
        match self.0.lock().get_mut(filter.as_str()) {
            Some(Pause { left: 0, took, .. }) => *took * PART <= within / PART,
            Some(pause) => {
                pause.left -= 1;
                false
            }
            None => false,
        }
    }

    /// Learns what a listing saw: so many keys that `filter` selects, in a bucket of so many records, in so much time.
    pub(super) fn learn(&self, filter: &Filter, keys: u64, records: u64, took: Duration) {
        let mut filters = self.0.lock();
        if !is_drained(keys, records) {
            filters.remove(filter.as_str());
        } else if let Some(pause) = filters.get_mut(filter.as_str()) {
            pause.took = took;
        } else if filters.len() < FILTERS_MOST {
            filters.insert(filter.as_str().into(), Pause { left: 0, next: PAUSE, took });
        }
    }

    /// A drain came to nothing.
    fn failed(&self, filter: &Filter) {
        // Of several at once the first tells.
        if let Some(pause) = self.0.lock().get_mut(filter.as_str()).filter(|pause| pause.left == 0) {
            *pause = Pause { left: pause.next, next: (pause.next * 2).min(PAUSE_MOST), ..*pause };
        }
    }

    /// A drain was believed, and had so many keys in a bucket of so many records.
    fn worked(&self, filter: &Filter, keys: u64, records: u64, took: Duration) {
        if let Some(pause) = self.0.lock().get_mut(filter.as_str()) {
            pause.next = PAUSE;
        }
        self.learn(filter, keys, records, took);
    }
}

/// A listing by a drain, certified by the leader or proved by the barrier. `None` is no answer: it was not due, or it came to
/// nothing, and there is time left for the listing that needs none.
pub(super) async fn list<B: Bucket>(
    bucket: &B,
    filter: &Filter,
    barrier: Option<&Barrier>,
    by: Mono,
) -> Option<Listing> {
    let env = bucket.env();
    let within = by.since(env.now());
    if !bucket.drains().is_due(filter, within) {
        return None;
    }
    let until = env.now() + within / PART;
    let listed = env.within(until, drained(bucket, filter, barrier, until)).await;
    match listed.unwrap_or_else(|_| Err(timeout())) {
        Ok(listing) => Some(listing),
        Err(unknown) => {
            tracing::debug!(bucket = bucket.name(), %filter, %unknown, "listing_drain_refused");
            bucket.drains().failed(filter);
            None
        }
    }
}

async fn drained<B: Bucket>(
    bucket: &B,
    filter: &Filter,
    barrier: Option<&Barrier>,
    by: Mono,
) -> Result<Listing, Unknown> {
    let sent = bucket.env().now();
    let (since, drained) = match barrier {
        Some(barrier) => (barrier.revision, bucket.drain(by).await?),
        None => {
            // What the leader has when the listing began is what every key live throughout it is in.
            let (began, drained) = try_join(bucket.standing(by), bucket.drain(by)).await?;
            (began.last_seq, drained)
        }
    };
    let Standing { records, clock, .. } = drained.after;
    let entries = drained.whole(since).map_err(doubt)?;
    if let Some(barrier) = barrier {
        prove(&entries, &barrier.key, barrier.revision).map_err(doubt)?;
    }
    let keys = entries.iter().filter(|(key, _)| filter.selects(key.as_str())).count() as u64;
    if keys > KEYS_MAX {
        return Err(doubt(Cause::TooMany { keys, most: KEYS_MAX }));
    }
    bucket.drains().worked(filter, keys, records, bucket.env().now().since(sent));
    Ok(Listing { entries: live(entries, filter), clock, last_seq: since })
}

#[cfg(test)]
mod tests {
    use coordproto::key::Class;

    use super::*;

    #[test]
    fn a_class_is_drained_from_when_it_is_large_and_not_for_some_time_after_a_failure() {
        let (drains, filter) = (Drains::default(), Class::seat().filter());
        let learn = |records| drains.learn(&filter, 5_000, records, Duration::from_secs(1));
        let is_due = || drains.is_due(&filter, Duration::from_secs(4));
        assert!(!is_due(), "nothing is known");
        learn(5_001);
        assert!(is_due() && is_due());
        assert!(!drains.is_due(&filter, Duration::from_millis(3_999)), "there is no time for two");
        let paused = || {
            drains.failed(&filter);
            learn(5_001);
            (0..1_000).take_while(|_| !is_due()).count()
        };
        assert_eq!([paused(), paused(), paused()], [16, 32, 64]);
        assert_eq!([paused(), paused(), paused()], [128, 256, 256]);
        drains.worked(&filter, 5_000, 5_001, Duration::from_secs(1));
        drains.failed(&filter);
        drains.failed(&filter);
        assert_eq!((0..1_000).take_while(|_| !is_due()).count(), 16, "two at once are one");
        learn(50_000);
        assert!(!is_due(), "a small part of its bucket");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let drains = Drains::default();
        let filters: Vec<Filter> =
            (0..=FILTERS_MOST).map(|i| Class::parse(&format!("c{i}")).expect("a class").filter()).collect();
        filters.iter().for_each(|filter| drains.learn(filter, 5_000, 5_000, Duration::ZERO));
        assert_eq!(filters.iter().filter(|filter| drains.is_due(filter, Duration::ZERO)).count(), FILTERS_MOST);
    }
}
