//! The certification of a listing: what a pass delivered, held against the leader's index.

use std::hint::black_box;

use coordproto::listing::{Pass, Version};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

/// One key in this many was lost by the pass and read from the leader.
const LOST: usize = 100;

fn certification(c: &mut Criterion) {
    let mut group = c.benchmark_group("certify");
    for keys in [100, 10_000] {
        let names: Vec<String> = (0..keys).map(|n| benches::seat(n).key().as_str().to_owned()).collect();
        let version = |n: usize| Version {
            revision: n as u64 + 1,
            written: "2026-01-02T03:04:05Z".parse().expect("an instant"),
            value: Some(benches::record().encode()),
        };
        let delivered = || {
            let mut pass = Pass::new();
            for (n, name) in names.iter().enumerate().filter(|(n, _)| n % LOST != 0) {
                pass.take(name, version(n));
            }
            pass
        };
        group.throughput(Throughput::Elements(keys as u64));
        group.bench_function(keys.to_string(), |b| {
            b.iter_batched(
                delivered,
                |mut pass| {
                    let asked: Vec<String> =
                        pass.to_read(names.iter().map(String::as_str)).into_iter().map(str::to_owned).collect();
                    for (n, name) in asked.iter().enumerate() {
                        pass.settle(name, Some(version(n * LOST))).expect("newer than what was delivered");
                    }
                    black_box(pass.finish())
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(listings, certification);
criterion_main!(listings);
