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
    /// A fixed age that an existing bucket is raised to and never lowered from.
    AtLeast(Duration),
    /// For ever.
    None,
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

/// What has to outlive any clock, by class. An age would end a pause, and that is a resume which nobody chose.
pub const POSITIONS: Slot = Slot { name: "positions", age: Age::None, removed_by: Remover::Operations };

/// Every slot.
pub const SLOTS: [&Slot; 4] = [&LEASES, &DUTIES, &EPOCHS, &POSITIONS];

#[cfg(test)]
mod tests {
    use super::*;

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
