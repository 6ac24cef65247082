//! The protocol gate: a node claims no seat while a live seat or presence lease was written by an older protocol.
//!
//! Asking costs one index read however many leases are held. Every build records the protocol it speaks as a key of its own
//! in the `epochs` bucket (`protocol.3`), which cannot age away; the index names those keys, and as long as none is below
//! the asker's there is nothing to look for. Where one is, a witness, a live lease of that protocol, closes the gate; it is
//! remembered, so that asking again costs one read more. Only when the witness is gone are the leases listed for another,
//! and when there is none, the key is retired.
//!
//! Why no lease is missed. Before it commits a claim, a handle either wrote its key less than one lease TTL ago, or saw less
//! than a TTL ago that its key is there and no newer build's is; else it writes its key. A key is retired only at a revision
//! older than two TTLs by the broker's clock, by a handle whose own key has been there for two TTLs, both when the listing
//! began that found no lease of that protocol. A lease live throughout that listing is in it. Take one committed after the
//! listing began. If its handle wrote the key, that was less than a TTL before, so the key's revision is later than the one
//! retired, and stays. If it saw no newer build, the one that retires came after that, and lists only two TTLs later.

use std::sync::OnceLock;

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::{Class, Filter, Key, Resource};
use coordproto::lease::{PROTOCOL_CLASS, gated_classes};
use coordproto::listing::Index;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use super::{Inner, Leases};
use crate::env::Mono;
use crate::store::{Bucket, Certified, Expect, Put, Store, Write};

/// A live lease of an older protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Older {
    /// The lease.
    pub resource: Resource,
    /// The protocol that it was written by.
    pub protocol: u32,
}

/// What a handle knows of the protocols in use.
pub(super) struct Gate {
    /// What this build speaks.
    pub(super) protocol: u32,
    /// The keys of all protocols.
    keys: Filter,
    /// When the key of this build's protocol was last written, or seen as the newest one, by the sending of the request.
    declared: Mutex<Option<Mono>>,
    /// Since when every handle sees the key of this build's protocol.
    since: OnceLock<Mono>,
    witness: Mutex<Option<Older>>,
}

impl Gate {
    pub(super) fn new(protocol: u32) -> Gate {
        let keys = Class::parse(PROTOCOL_CLASS).expect("a literal class").filter();
        Gate { protocol, keys, declared: Mutex::new(None), since: OnceLock::new(), witness: Mutex::new(None) }
    }
}

impl<S: Store> Leases<S> {
    /// The lowest protocol below this build's that a live seat or presence lease was written by, with one such lease; none
    /// when every live one is at this build's protocol or above. It sees every lease written before it was asked.
    ///
    /// # Errors
    /// Unknown.
    pub async fn older_protocol(&self) -> Result<Option<Older>, Unknown> {
        let told = |unknown: Unknown| unknown.during("ask for an older protocol", PROTOCOL_CLASS);
        let names = self.inner.protocols().await.map_err(told)?;
        self.inner.older_than_mine(&names).await.map_err(told)
    }
}

fn key_of(protocol: u32) -> Key {
    let name = protocol.to_string();
    Key::from_segments("protocol", &name, [PROTOCOL_CLASS, &name].into_iter()).expect("a class and a number make a key")
}

/// The protocols that these keys record.
fn recorded(names: &Index) -> impl Iterator<Item = u32> {
    names.names().filter_map(|name| name.strip_prefix(PROTOCOL_CLASS)?.strip_prefix('.')?.parse().ok())
}

impl<B: Bucket> Inner<B> {
    /// The protocols on record, and the broker's clock.
    pub(super) async fn protocols(&self) -> Result<Index, Unknown> {
        let asked = self.env.now();
        let names = self.epochs.index(&self.gate.keys, self.epochs.deadline()).await?;
        if recorded(&names).max() == Some(self.gate.protocol) {
            let mut declared = self.gate.declared.lock();
            *declared = (*declared).max(Some(asked));
        }
        Ok(names)
    }

    /// Records that this build's protocol is in use, if that was neither done nor found needless for a lease TTL.
    pub(super) async fn declare_protocol(&self) -> Result<(), Unknown> {
        let now = self.env.now();
        let due = self.gate.declared.lock().is_none_or(|last| now.since(last) >= self.lease_ttl);
        if !due {
            return Ok(());
        }
        let key = key_of(self.gate.protocol);
        match self.epochs.put(&key, Write::Value(Bytes::from_static(b"{}")), Expect::Any).await {
            Ok(Put::Stored(_)) => {
                let mut declared = self.gate.declared.lock();
                *declared = (*declared).max(Some(now));
                self.gate.since.get_or_init(|| self.env.now());
                Ok(())
            }
            // Nothing was expected, so there was nothing to lose.
            Ok(Put::Lost(_)) => {
                let cause = Cause::Garbage("a write without an expectation was told that it lost".into());
                Err(Unknown::settled("declare protocol", key.as_str(), cause))
            }
            Err(Error::Unknown(unknown)) => Err(unknown.during("declare protocol", key.as_str())),
            // A broker that takes so little takes no lease either.
            Err(Error::BadArgument(error)) => {
                let cause = Cause::TooLarge(error.to_string().into());
                Err(Unknown::settled("declare protocol", key.as_str(), cause))
            }
        }
    }

    /// A live lease of a protocol below this build's, given the protocols on record.
    pub(super) async fn older_than_mine(&self, names: &Index) -> Result<Option<Older>, Unknown> {
        let mut below: Vec<u32> = recorded(names).filter(|protocol| *protocol < self.gate.protocol).collect();
        if below.is_empty() {
            return Ok(None);
        }
        let known = self.gate.witness.lock().clone();
        if let Some(known) = known
            && self.still_stands(&known).await?
        {
            return Ok(Some(known));
        }
        below.sort_unstable();
        self.search(&below, names.clock).await
    }

    async fn still_stands(&self, witness: &Older) -> Result<bool, Unknown> {
        let found = self.look(&witness.resource).await?;
        Ok(found.is_some_and(|found| found.live && found.record.is_some_and(|r| r.protocol == witness.protocol)))
    }

    /// Lists the leases for the lowest protocol below this build's, and retires the keys of those without one.
    async fn search(&self, below: &[u32], clock: Timestamp) -> Result<Option<Older>, Unknown> {
        let two_ttls = self.lease_ttl.saturating_mul(2);
        let may_retire = self.gate.since.get().is_some_and(|since| self.env.now().since(*since) >= two_ttls);
        let mut keys = Vec::with_capacity(below.len());
        for protocol in below {
            let key = key_of(*protocol);
            let version = self.epochs.get(&key).await?;
            keys.push((*protocol, key, version));
        }
        let mut lowest: Option<Older> = None;
        let mut in_use = Vec::new();
        for class in gated_classes() {
            for listed in self.list(&class, &Certified::Leader).await? {
                let Some(record) = listed.found.record else { continue };
                in_use.push(record.protocol);
                if record.protocol < lowest.as_ref().map_or(self.gate.protocol, |l| l.protocol) {
                    lowest = Some(Older { resource: listed.resource, protocol: record.protocol });
                }
            }
        }
        self.gate.witness.lock().clone_from(&lowest);
        let grace = SignedDuration::try_from(two_ttls).unwrap_or(SignedDuration::MAX);
        let retire_before = clock.saturating_sub(grace).unwrap_or(Timestamp::MIN);
        for (protocol, key, version) in keys {
            if may_retire
                && let Some(version) = version
                && version.written < retire_before
                && !in_use.contains(&protocol)
            {
                // The answer stands without it; whoever asks next tries again.
                match self.epochs.purge(&key, version.revision).await {
                    Ok(gone) => tracing::info!(protocol, gone, "lease_protocol_retired"),
                    Err(unknown) => tracing::debug!(protocol, %unknown, "lease_protocol_not_retired"),
                }
            }
        }
        Ok(lowest)
    }
}
