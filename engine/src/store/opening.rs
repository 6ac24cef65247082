//! Opening a bucket: what is asked for, and what is made of what is found.
//!
//! A bucket that exists is adopted as it is. Its copies are judged, since too few of them show only when a disk is lost; an
//! age is raised where the table says so; every other difference is told, and what is found is in force. The backends look and
//! change, and nothing of this is decided in them.

use std::time::Duration;

use coordproto::answer::{BadArgument, Unknown};
use coordproto::slot::{Age, Difference, Retention, Slot, broken_rule};

use super::{Bucket, Store};

/// The longest name of a bucket. The broker takes stream names of 255 bytes, and a bucket's is `KV_` and its name.
pub const NAME_BYTES_MAX: usize = 252;

/// A bucket as it is asked for. One that exists is adopted as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSpec {
    /// The bucket's whole name.
    pub name: String,
    /// How long it keeps a record; `None` keeps it for ever.
    pub age: Option<Duration>,
    /// Whether an existing bucket's shorter age is raised to this one. It is never lowered.
    pub raise_age: bool,
    /// The fewest copies it may have.
    pub replicas: u8,
}

impl BucketSpec {
    /// The bucket of `slot`, named `<prefix>_<slot>`.
    pub fn of(slot: &Slot, prefix: &str, retention: impl Into<Retention>, replicas: u8) -> BucketSpec {
        let (name, age) = (format!("{prefix}_{}", slot.name), slot.age.of(&retention.into()));
        BucketSpec { name, age, raise_age: matches!(slot.age, Age::AtLeast(_)), replicas }
    }

    /// Checks what no broker can keep, before one is asked.
    ///
    /// # Errors
    /// A name that is no subject token or longer than [`NAME_BYTES_MAX`], an age below
    /// [`AGE_MIN`](coordproto::slot::AGE_MIN) or above [`AGE_MAX`](coordproto::slot::AGE_MAX), or a replica count that is not
    /// 1, 3 or 5.
    pub fn check(&self) -> Result<(), BadArgument> {
        let token = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if self.name.is_empty() || !self.name.bytes().all(token) {
            return Err(BadArgument::new("bucket", self.name.as_str(), "a bucket's name is made of A-Z a-z 0-9 _ -"));
        }
        if self.name.len() > NAME_BYTES_MAX {
            let rule = format!("{} bytes, at most {NAME_BYTES_MAX}", self.name.len());
            return Err(BadArgument::new("bucket", self.name.as_str(), rule));
        }
        if let Some(age) = self.age
            && let Some(rule) = broken_rule(age)
        {
            return Err(BadArgument::new("retention", format!("{age:?} for bucket {}", self.name), rule));
        }
        if !matches!(self.replicas, 1 | 3 | 5) {
            let given = format!("{} for bucket {}", self.replicas, self.name);
            return Err(BadArgument::new(
                "replicas",
                given,
                "1, 3 or 5: an even count survives no more than the odd one below",
            ));
        }
        Ok(())
    }

    /// Judges a bucket that stands, with so many copies and this age. Answers the age to raise it to, if it is to be raised.
    ///
    /// # Errors
    /// Fewer copies than asked for.
    pub(super) fn judge(&self, copies: usize, age: Option<Duration>) -> Result<Option<Duration>, OpenError> {
        let have = u8::try_from(copies).unwrap_or(u8::MAX);
        if have < self.replicas {
            return Err(OpenError::Replicas { bucket: self.name.clone(), have, want: self.replicas });
        }
        Ok(if self.raise_age && age.is_some() && age < self.age { self.age } else { None })
    }
}

/// Why a bucket cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The specification breaks a rule; nothing was sent.
    #[error(transparent)]
    BadArgument(#[from] BadArgument),
    /// The store could not be asked.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// The bucket has fewer copies than this node is configured for, and would go on losing what it keeps with one disk.
    #[error(
        "bucket {bucket} has {have} replica(s) and this node is configured for {want}: resize the stream KV_{bucket} or lower the setting"
    )]
    Replicas {
        /// The bucket.
        bucket: String,
        /// The copies it has.
        have: u8,
        /// The copies asked for.
        want: u8,
    },
    /// The bucket was made without an age, where the age alone ends what is recorded.
    #[error("bucket {bucket} has no age, so no lease in it would ever end: set max_age of the stream KV_{bucket}")]
    Endless {
        /// The bucket.
        bucket: String,
    },
}

impl OpenError {
    /// Whether the same call may end otherwise with nothing changed but the time: the store could not be asked.
    pub fn is_retriable(&self) -> bool {
        matches!(self, OpenError::Unknown(_))
    }
}

/// Opens the bucket of `slot` and tells how what is in force differs from what was asked for.
pub(super) async fn adopt<S: Store>(store: &S, slot: &Slot, spec: &BucketSpec) -> Result<S::Bucket, OpenError> {
    let bucket = store.open(spec).await?;
    let (name, in_force, configured) = (bucket.name(), bucket.age(), spec.age);
    match slot.judge(configured, in_force) {
        Difference::Nothing => {}
        Difference::Endless => return Err(OpenError::Endless { bucket: name.to_owned() }),
        Difference::Forgets(age) => {
            tracing::error!(bucket = name, in_force = ?age, "coord_kv_bucket_has_an_age");
        }
        Difference::Retention if slot.age == Age::LeaseTtl => {
            tracing::warn!(bucket = name, ?in_force, ?configured, "coord_kv_lease_ttl_differs");
        }
        Difference::Retention => {
            tracing::warn!(bucket = name, ?in_force, ?configured, "coord_kv_retention_differs");
        }
    }
    Ok(bucket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_is_adopted_unless_it_is_short_of_copies() {
        let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(86_400));
        let spec = BucketSpec { name: "b".into(), age: Some(hour), raise_age: false, replicas: 3 };
        for copies in [3, 5, 1000] {
            for age in [None, Some(hour / 2), Some(day)] {
                assert_eq!(spec.judge(copies, age), Ok(None), "{copies} copies, {age:?}");
            }
        }
        let short = spec.judge(1, Some(hour)).unwrap_err();
        assert_eq!(short, OpenError::Replicas { bucket: "b".into(), have: 1, want: 3 });
        assert!(!short.is_retriable());
        let raised = BucketSpec { raise_age: true, ..spec };
        assert_eq!(raised.judge(3, Some(hour / 2)), Ok(Some(hour)));
        for never_lowered in [None, Some(hour), Some(day)] {
            assert_eq!(raised.judge(3, never_lowered), Ok(None), "{never_lowered:?}");
        }
    }
}
