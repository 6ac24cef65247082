//! Whether a lease is held, whose it is, and what a claim does next.
//!
//! A seat's or a presence lease at the bucket's full age needs no clock: it is held while it is readable, because the
//! broker's age is what ends it. Every other lease ends at its own deadline, the broker's timestamp of its revision plus its
//! recorded TTL, judged on the broker's clock. The node's own clock decides nothing about another node's lease.
//!
//! A new tenure takes three writes, and their order is the fence: win the record (owner and claim id, no epoch), bump the
//! counter, commit the epoch into the record. Only the winner bumps, so a crowd on a fresh resource mints one token; only a
//! bump that was acknowledged is handed out, so no token is given twice.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::answer::BadArgument;
use crate::key::{Class, Resource};
use crate::record::lease::LeaseRecord;
use crate::slot::DUTY_TTL_MAX;

/// The lease protocol that this build speaks.
pub const PROTOCOL: u32 = 3;

/// The class under which the protocols in use are recorded. No resource may bear it.
pub const PROTOCOL_CLASS: &str = "protocol";

/// Whether leases of this class live in the bucket whose age is the lease TTL.
pub fn ends_by_age(class: &str) -> bool {
    matches!(class, "seat" | "node")
}

/// What is claimed, for whom and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// What is claimed.
    pub resource: Resource,
    /// For whom: `{node id}:{random}`, new at every process start.
    pub owner: String,
    /// How long the lease lasts without a renewal.
    pub ttl: Duration,
    /// The node that the resource would rather run on; `None` keeps the hint on record.
    pub preferred: Option<String>,
    /// What the holder says about itself; `None` keeps what is on record.
    pub meta: Option<Value>,
}

impl Terms {
    /// Terms without a hint or a meta.
    pub fn new(resource: Resource, owner: impl Into<String>, ttl: Duration) -> Terms {
        Terms { resource, owner: owner.into(), ttl, preferred: None, meta: None }
    }

    /// Checks the terms against the rules; `lease_ttl` is the age in force of the `leases` bucket.
    ///
    /// # Errors
    /// A reserved class, an empty owner or hint, a TTL that is zero, finer than a millisecond, or above its ceiling.
    pub fn check(&self, lease_ttl: Duration) -> Result<(), BadArgument> {
        if self.resource.class() == PROTOCOL_CLASS {
            return Err(BadArgument::new(
                "resource",
                self.resource.name(),
                "this class is reserved for the protocol gate",
            ));
        }
        if self.owner.is_empty() {
            return Err(BadArgument::new("owner", "", "an owner cannot be empty"));
        }
        if self.preferred.as_deref() == Some("") {
            return Err(BadArgument::new(
                "preferred",
                "",
                "a hint names a node; leave it out to keep the one on record",
            ));
        }
        let bad_ttl =
            |rule: String| Err(BadArgument::new("ttl", format!("{:?} for {}", self.ttl, self.resource), rule));
        if self.ttl.is_zero() {
            return bad_ttl("a lease lasts at least a millisecond".to_owned());
        }
        if !self.ttl.subsec_nanos().is_multiple_of(1_000_000) {
            return bad_ttl("a TTL is a whole number of milliseconds".to_owned());
        }
        if ends_by_age(self.resource.class()) {
            if self.ttl > lease_ttl {
                return bad_ttl(format!("at most {lease_ttl:?}, the age in force of the leases bucket"));
            }
        } else if self.ttl > DUTY_TTL_MAX {
            return bad_ttl(format!(
                "at most 3 h ({} s) for a lease other than a seat's or a presence",
                DUTY_TTL_MAX.as_secs()
            ));
        }
        Ok(())
    }
}

/// How a record comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The bucket's age ends it.
    ByAge(Duration),
    /// Its own deadline ends it; the age only reaps what is left.
    ByDeadline,
}

impl LeaseRecord {
    /// How long the record lasts.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// Whether only the broker's clock can tell if this record has lapsed.
    pub fn needs_clock(&self, expiry: Expiry) -> bool {
        match expiry {
            Expiry::ByDeadline => true,
            Expiry::ByAge(age) => self.ttl() < age,
        }
    }

    /// The instant on the broker's clock at which it ends, when nobody renews it.
    pub fn deadline(&self, written: Timestamp, expiry: Expiry) -> Timestamp {
        let ttl = match expiry {
            Expiry::ByDeadline => self.ttl(),
            Expiry::ByAge(age) => self.ttl().min(age),
        };
        written
            .saturating_add(jiff::SignedDuration::try_from(ttl).unwrap_or(jiff::SignedDuration::MAX))
            .unwrap_or(Timestamp::MAX)
    }

    /// Whether it still stands at `now` on the broker's clock. A released record never does.
    pub fn is_live(&self, written: Timestamp, expiry: Expiry, now: Timestamp) -> bool {
        self.owner.is_some() && (!self.needs_clock(expiry) || now < self.deadline(written, expiry))
    }

    /// Whether this is the tenure of `owner` at `epoch`.
    pub fn is_tenure(&self, owner: &str, epoch: u64) -> bool {
        self.owner.as_deref() == Some(owner) && self.epoch == Some(epoch)
    }

    /// What a release, or the fence of an abandoned claim, leaves behind.
    #[must_use]
    pub fn released(self) -> LeaseRecord {
        LeaseRecord { owner: None, claim: None, acquired_at: None, ..self }
    }
}

/// What a claimer does about the record that it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Nobody holds it: win the record.
    Win,
    /// It is the claimer's own: write it again with a new deadline.
    Extend {
        /// The epoch, which stays.
        epoch: u64,
    },
    /// Another claim of the same owner is under way, or was abandoned: give it a moment, then take its place.
    Sibling,
    /// A peer holds it, or is about to.
    Refuse {
        /// The peer.
        by: &'a str,
        /// Its epoch, once committed.
        epoch: Option<u64>,
    },
}

/// The next step of a claim by `owner`, who found `record` and knows whether it is `live`.
pub fn step<'a>(record: Option<&'a LeaseRecord>, live: bool, owner: &str) -> Step<'a> {
    match record {
        Some(LeaseRecord { owner: Some(by), epoch, .. }) if live => match epoch {
            _ if by != owner => Step::Refuse { by, epoch: *epoch },
            Some(epoch) => Step::Extend { epoch: *epoch },
            None => Step::Sibling,
        },
        _ => Step::Win,
    }
}

/// The classes that the protocol gate is about.
pub fn gated_classes() -> [Class; 2] {
    [Class::node(), Class::seat()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(45);

    fn record(owner: Option<&str>, epoch: Option<u64>) -> LeaseRecord {
        LeaseRecord {
            resource: "seat:a".into(),
            owner: owner.map(str::to_owned),
            epoch,
            claim: None,
            ttl_ms: 45_000,
            protocol: PROTOCOL,
            preferred: Some("n1".into()),
            meta: Some(Value::Bool(true)),
            acquired_at: None,
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn every_step_of_a_claim() {
        let mine = record(Some("me"), Some(4));
        let in_flight = record(Some("me"), None);
        let peers = record(Some("peer"), Some(4));
        let peers_claim = record(Some("peer"), None);
        let released = record(None, Some(4));
        for (found, live, want) in [
            (None, false, Step::Win),
            (Some(&released), false, Step::Win),
            (Some(&mine), true, Step::Extend { epoch: 4 }),
            (Some(&mine), false, Step::Win),
            (Some(&in_flight), true, Step::Sibling),
            (Some(&in_flight), false, Step::Win),
            (Some(&peers), true, Step::Refuse { by: "peer", epoch: Some(4) }),
            (Some(&peers), false, Step::Win),
            (Some(&peers_claim), true, Step::Refuse { by: "peer", epoch: None }),
        ] {
            assert_eq!(step(found, live, "me"), want, "{found:?} live={live}");
        }
    }

    #[test]
    fn a_lease_at_the_full_age_needs_no_clock() {
        let full = record(Some("n"), Some(1));
        assert!(!full.needs_clock(Expiry::ByAge(TTL)));
        assert!(full.is_live(at(0), Expiry::ByAge(TTL), at(1_000_000)), "readable is held");
        assert!(full.needs_clock(Expiry::ByAge(TTL * 2)));
        assert!(full.needs_clock(Expiry::ByDeadline));
    }

    #[test]
    fn a_deadline_is_the_brokers_timestamp_plus_the_ttl() {
        let duty = record(Some("n"), Some(1));
        assert!(duty.is_live(at(100), Expiry::ByDeadline, at(144)));
        assert!(!duty.is_live(at(100), Expiry::ByDeadline, at(145)), "the deadline itself is past");
        assert!(
            !record(None, Some(1)).is_live(at(100), Expiry::ByDeadline, at(100)),
            "a released record is never live"
        );
        let longer = LeaseRecord { ttl_ms: u64::MAX, ..record(Some("n"), Some(1)) };
        assert_eq!(longer.deadline(at(0), Expiry::ByDeadline), Timestamp::MAX);
        assert_eq!(longer.deadline(at(0), Expiry::ByAge(TTL)), at(45), "the age ends it whatever it says");
    }

    #[test]
    fn a_release_keeps_the_counter_and_the_hint() {
        let released = record(Some("n"), Some(9)).released();
        assert_eq!(
            (released.owner.as_deref(), released.epoch, released.preferred.as_deref()),
            (None, Some(9), Some("n1"))
        );
        assert_eq!(released.meta, Some(Value::Bool(true)));
    }

    #[test]
    fn terms_are_checked_before_anything_is_sent() {
        let terms = |name: &str, ttl| Terms::new(Resource::parse(name).unwrap(), "n1:1", ttl);
        assert!(terms("seat:a", TTL).check(TTL).is_ok());
        assert!(terms("worker:a", DUTY_TTL_MAX).check(TTL).is_ok(), "a duty may outlast the lease TTL");
        for (bad, rule) in [
            (terms("seat:a", TTL + Duration::from_secs(1)), "at most 45s, the age in force"),
            (terms("worker:a", DUTY_TTL_MAX + Duration::from_secs(1)), "at most 3 h (10800 s)"),
            (terms("move:a", DUTY_TTL_MAX + Duration::from_secs(1)), "at most 3 h (10800 s)"),
            (terms("worker:a", Duration::ZERO), "at least a millisecond"),
            (terms("worker:a", Duration::from_micros(1_500)), "whole number of milliseconds"),
            (terms("protocol:3", TTL), "reserved"),
            (Terms { owner: String::new(), ..terms("seat:a", TTL) }, "an owner cannot be empty"),
            (Terms { preferred: Some(String::new()), ..terms("seat:a", TTL) }, "a hint names a node"),
        ] {
            let error = bad.check(TTL).unwrap_err();
            assert!(error.rule.contains(rule), "{error}");
        }
    }
}
