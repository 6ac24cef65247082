//! Buckets that were made a moment ago.

use bytes::Bytes;
use engine::store::{Bucket, BucketSpec, Expect, Put, Store, Write};
use futures_util::future::join_all;
use tests::resource;

use crate::beside_others;

/// Nodes at every member open a fresh bucket at once, and write with the next request: the members that do not lead it have
/// heard of it by then.
#[test]
fn a_bucket_takes_writes_as_soon_as_it_is_open() {
    beside_others(async |brokers| {
        let stores = join_all(brokers.members().iter().map(|member| brokers.store_at(member))).await;
        for round in 0..8 {
            let spec = BucketSpec { name: format!("fresh{round}"), age: None, raise_age: false, replicas: 3 };
            let nodes = stores.iter().enumerate().map(async |(n, store)| {
                let bucket = store.open(&spec).await.expect("the bucket opens");
                let key = resource(&format!("seat:n{n}")).key().clone();
                let put = bucket.put(&key, Write::Value(Bytes::from_static(b"1")), Expect::At(0)).await;
                assert!(matches!(put.expect("a definite answer"), Put::Stored(_)));
            });
            join_all(nodes).await;
            assert!(stores[0].delete(&spec.name).await.expect("nothing is failing"));
        }
    });
}
