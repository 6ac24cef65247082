//! The one table of buckets: what each is called, how long it remembers, and who removes from it.
//!
//! A retention is the age of a bucket, fixed when the bucket is created, never a property of a write; records that want
//! opposite retentions live in different buckets for that reason.

use std::time::Duration;

/// The longest time to live that a lease other than a seat's or a presence may ask for.
pub const DUTY_TTL_MAX: Duration = Duration::from_secs(3 * 60 * 60);

/// One bucket of the coordination store.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name; the bucket is `crewlet_<name>` unless a prefix is configured.
    pub name: &'static str,
    /// How long a record is kept after it was written.
    pub age: Age,
    /// What takes a record out again.
    pub removed_by: Remover,
}

impl Slot {
    /// Whether its removal markers have to be swept. A removal leaves a marker in place of the record; the age takes markers
    /// with everything else, and what is never removed leaves none. Only where both fail does each stay for ever.
    pub fn is_swept(&self) -> bool {
        self.age == Age::None && self.removed_by == Remover::Operations
    }
}

/// How long a bucket keeps a record.
#[derive(Debug, PartialEq, Eq)]
pub enum Age {
    /// The configured lease TTL: the expiry is the mechanism that ends a lease.
    LeaseTtl,
    /// So many configured rate windows.
    RateWindows(u32),
    /// So many configured reconcile intervals.
    ReconcileIntervals(u32),
    /// A fixed age.
    Fixed(Duration),
    /// A fixed age that an existing bucket is raised to and never lowered from.
    AtLeast(Duration),
    /// For ever.
    None,
}

/// The settings of a node that retentions are sized from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The TTL of seats and presence.
    pub lease_ttl: Duration,
    /// The longest window of the notification valve.
    pub rate_window: Duration,
    /// From one look at the activation pointer to the next.
    pub reconcile_interval: Duration,
}

impl Default for Retention {
    fn default() -> Retention {
        let seconds = Duration::from_secs;
        Retention { lease_ttl: seconds(45), rate_window: seconds(1), reconcile_interval: seconds(15) }
    }
}

/// A lease TTL, and the usual rest.
impl From<Duration> for Retention {
    fn from(lease_ttl: Duration) -> Retention {
        Retention { lease_ttl, ..Retention::default() }
    }
}

impl Age {
    /// The age that a bucket is created with.
    pub fn of(&self, retention: &Retention) -> Option<Duration> {
        match *self {
            Age::LeaseTtl => Some(retention.lease_ttl),
            Age::RateWindows(windows) => Some(retention.rate_window.saturating_mul(windows)),
            Age::ReconcileIntervals(intervals) => Some(retention.reconcile_interval.saturating_mul(intervals)),
            Age::Fixed(age) | Age::AtLeast(age) => Some(age),
            Age::None => None,
        }
    }
}

/// What takes a record out of a bucket again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remover {
    /// The bucket's age, and nothing else.
    Age,
    /// The operations on its records, before the age if there is one.
    Operations,
    /// Nothing: a record stays as long as the deployment.
    Nobody,
}

/// Seats and presence.
pub const LEASES: Slot = Slot { name: "leases", age: Age::LeaseTtl, removed_by: Remover::Age };

/// Every other lease. Each record ends at its own deadline; the age only has to outlive the longest.
pub const DUTIES: Slot = Slot { name: "duties", age: Age::AtLeast(DUTY_TTL_MAX), removed_by: Remover::Age };

/// The fencing counters, one record for every resource ever leased. A fence that restarts is not a fence.
pub const EPOCHS: Slot = Slot { name: "epochs", age: Age::None, removed_by: Remover::Nobody };

const fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

const fn hours(n: u64) -> Duration {
    minutes(60 * n)
}

const fn days(n: u64) -> Duration {
    hours(24 * n)
}

/// Which revision of the company is current: the pointer, whose revision is the fence, and the body.
pub const CONFIG: Slot = Slot { name: "config", age: Age::None, removed_by: Remover::Operations };

/// What each node managed to apply. A node that stops reporting is not seen any more.
pub const STATUS: Slot = Slot { name: "status", age: Age::ReconcileIntervals(4), removed_by: Remover::Age };

/// What was worked already. It outlasts every redelivery and the scheduler's catching up.
pub const LEDGER: Slot = Slot { name: "ledger", age: Age::Fixed(days(7)), removed_by: Remover::Age };

/// Which deliveries were seen. Each record ends at its own deadline; the age only has to outlive the longest.
pub const CLAIMS: Slot = Slot { name: "claims", age: Age::Fixed(minutes(30)), removed_by: Remover::Operations };

/// The notification valve, a record per window. A closed one never outlives its successor.
pub const RATE: Slot = Slot { name: "rate", age: Age::RateWindows(3), removed_by: Remover::Age };

/// Which credentials cool down, and until when. It outlives the longest.
pub const COOLDOWNS: Slot = Slot { name: "cooldowns", age: Age::Fixed(hours(24)), removed_by: Remover::Age };

/// What was spent in the current windows. Nothing older than the longest, a month of 31 days and an hour, counts.
pub const BUDGETS: Slot = Slot { name: "budgets", age: Age::Fixed(days(32)), removed_by: Remover::Age };

/// Who asks whom, and whether the ask is open. An age cannot tell an open one from a closed one.
pub const CHANNELS: Slot = Slot { name: "channels", age: Age::None, removed_by: Remover::Operations };

/// Which scheduled dispatches were claimed. It outlasts the scheduler's catching up, or it fires twice.
pub const FIRES: Slot = Slot { name: "fires", age: Age::Fixed(days(7)), removed_by: Remover::Age };

/// The instant that late work is done at, for every attempt at the same work.
pub const REBASES: Slot = Slot { name: "rebases", age: Age::Fixed(days(30)), removed_by: Remover::Age };

/// Every detached coding run. Its record is all that knows of a box that is paid for.
pub const SANDBOX_RUNS: Slot = Slot { name: "sandbox_runs", age: Age::None, removed_by: Remover::Operations };

/// The company's credentials, sealed. One that expired would be an outage on a timer.
pub const SECRETS: Slot = Slot { name: "secrets", age: Age::None, removed_by: Remover::Operations };

/// Where each outside surface's reconcile pass got to.
pub const INTEGRATIONS: Slot = Slot { name: "integrations", age: Age::None, removed_by: Remover::Operations };

/// Which mailboxes may exist, and since when a seat is missing.
pub const MAILBOXES: Slot = Slot { name: "mailboxes", age: Age::None, removed_by: Remover::Operations };

/// Which threads a seat follows. Every activity writes it again.
pub const FOLLOWS: Slot = Slot { name: "follows", age: Age::Fixed(days(90)), removed_by: Remover::Operations };

/// Which data node keeps a batch of events. A day longer than the events are kept.
pub const CUSTODY: Slot = Slot { name: "custody", age: Age::Fixed(days(32)), removed_by: Remover::Age };

/// Which store the company's files are in, and what the collector found last.
pub const OBJECTS: Slot = Slot { name: "objects", age: Age::None, removed_by: Remover::Operations };

/// What has to outlive any clock, by class. An age would end a pause, and that is a resume which nobody chose.
pub const POSITIONS: Slot = Slot { name: "positions", age: Age::None, removed_by: Remover::Operations };

/// Every slot.
pub const SLOTS: [&Slot; 21] = [
    &LEASES,
    &DUTIES,
    &EPOCHS,
    &CONFIG,
    &STATUS,
    &LEDGER,
    &CLAIMS,
    &RATE,
    &COOLDOWNS,
    &BUDGETS,
    &CHANNELS,
    &FIRES,
    &REBASES,
    &SANDBOX_RUNS,
    &SECRETS,
    &INTEGRATIONS,
    &MAILBOXES,
    &FOLLOWS,
    &CUSTODY,
    &OBJECTS,
    &POSITIONS,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The retentions as they are written down elsewhere, in seconds: a change here is a change for every fleet.
    #[test]
    fn every_slot_remembers_as_long_as_it_has_to() {
        let retention = Retention {
            lease_ttl: Duration::from_secs(45),
            rate_window: Duration::from_secs(1),
            reconcile_interval: Duration::from_secs(15),
        };
        let (hour, day) = (3_600, 86_400);
        let want = [
            ("leases", Some(45)),
            ("duties", Some(3 * hour)),
            ("epochs", None),
            ("config", None),
            ("status", Some(60)),
            ("ledger", Some(7 * day)),
            ("claims", Some(1_800)),
            ("rate", Some(3)),
            ("cooldowns", Some(day)),
            ("budgets", Some(32 * day)),
            ("channels", None),
            ("fires", Some(7 * day)),
            ("rebases", Some(30 * day)),
            ("sandbox_runs", None),
            ("secrets", None),
            ("integrations", None),
            ("mailboxes", None),
            ("follows", Some(90 * day)),
            ("custody", Some(32 * day)),
            ("objects", None),
            ("positions", None),
        ];
        let found = SLOTS.map(|slot| (slot.name, slot.age.of(&retention).map(|age| age.as_secs())));
        assert_eq!(found, want);
        let raised: Vec<&str> = SLOTS.iter().filter(|s| matches!(s.age, Age::AtLeast(_))).map(|s| s.name).collect();
        assert_eq!(raised, ["duties"], "any other age is what the first node asked for");
        let swept: Vec<&str> = SLOTS.iter().filter(|slot| slot.is_swept()).map(|slot| slot.name).collect();
        let ageless = want.iter().filter(|(name, age)| age.is_none() && *name != "epochs").map(|(name, _)| *name);
        assert_eq!(swept, ageless.collect::<Vec<_>>());
    }

    #[test]
    fn what_is_swept_follows_from_the_table() {
        for slot in SLOTS {
            let aged = slot.age != Age::None;
            assert!(aged || slot.removed_by != Remover::Age, "{}: an age that is not there removes nothing", slot.name);
            assert!(!(aged && slot.is_swept()), "{}: the age takes its markers", slot.name);
        }
        assert!(!EPOCHS.is_swept(), "a counter is never removed");
        assert!(POSITIONS.is_swept(), "a pause is");
        let removed_by = |removed_by| Slot { name: "local", age: Age::None, removed_by };
        assert!(removed_by(Remover::Operations).is_swept());
        assert!(!removed_by(Remover::Nobody).is_swept());
        assert!(!Slot { age: Age::LeaseTtl, ..removed_by(Remover::Operations) }.is_swept());
    }
}
