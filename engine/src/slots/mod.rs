//! The records that are no leases: a file for each family, over [`store`](crate::store).

pub mod pauses;
