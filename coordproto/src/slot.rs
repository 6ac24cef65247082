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
    /// Who removes a record, where the age does not.
    pub removed_by: &'static str,
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

/// Seats and presence.
pub const LEASES: Slot = Slot { name: "leases", age: Age::LeaseTtl, removed_by: "the age" };

/// Every other lease. Each record ends at its own deadline; the age only has to outlive the longest.
pub const DUTIES: Slot = Slot { name: "duties", age: Age::AtLeast(DUTY_TTL_MAX), removed_by: "the age" };

/// The fencing counters, one record for every resource ever leased. A fence that restarts is not a fence.
pub const EPOCHS: Slot = Slot { name: "epochs", age: Age::None, removed_by: "nobody" };

/// What has to outlive any clock, by class. An age would end a pause, and that is a resume which nobody chose.
pub const POSITIONS: Slot = Slot { name: "positions", age: Age::None, removed_by: "whoever resumes the seat" };

/// Every slot.
pub const SLOTS: [&Slot; 4] = [&LEASES, &DUTIES, &EPOCHS, &POSITIONS];
