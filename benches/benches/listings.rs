//! The certification of a listing: what a pass delivered, held against the leader's index.

use std::hint::black_box;

use coordproto::key::Key;
use coordproto::listing::{Collected, Index, Version};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

/// One key in this many was lost by the pass and read from the leader.
const LOST: usize = 100;

fn certification(c: &mut Criterion) {
    let mut group = c.benchmark_group("certify");
    for keys in [100, 10_000] {
        let names: Vec<Key> = (0..keys).map(|n| benches::seat(n).key().clone()).collect();
        let clock = "2026-01-02T03:04:05Z".parse().expect("an instant");
        let version =
            |n: usize| Version { revision: n as u64 + 1, written: clock, value: Some(benches::record().encode()) };
        let index = Index::of_keys(names.clone(), keys as u64, clock);
        let delivered = || {
            let mut collected = Collected::default();
            for (n, name) in names.iter().enumerate().filter(|(n, _)| n % LOST != 0) {
                collected.take(name.clone(), version(n));
            }
            collected
        };
        group.throughput(Throughput::Elements(keys as u64));
        group.bench_function(keys.to_string(), |b| {
            b.iter_batched(
                delivered,
                |mut collected| {
                    for (n, name) in collected.to_read(&index).into_iter().enumerate() {
                        let settled = collected.settle(&name, Some(version(n * LOST)), &index);
                        assert_eq!(settled, Ok(true), "live, and newer than what was delivered");
                    }
                    black_box(collected.finish(&index))
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(listings, certification);
criterion_main!(listings);
