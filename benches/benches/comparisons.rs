//! What was chosen, beside what it was chosen over: serde_json and the layer's own scanner against simd-json. The figures and
//! the reasons stand in the decisions 13 and 20.

use std::hint::black_box;
use std::time::Duration;

use benches::{budget, index_reply, record};
use bytes::Bytes;
use coordproto::api::info;
use coordproto::record::budget::BudgetRecord;
use coordproto::record::lease::LeaseRecord;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

/// simd-json parses in place, so it needs a copy of its own; the copy is not counted.
fn records(c: &mut Criterion) {
    let mut group = c.benchmark_group("records");
    let (lease, spend) = (record(), budget(100));
    let (lease_wire, spend_wire) = (lease.encode(), spend.encode());
    group.bench_function("lease: decode, serde_json", |b| b.iter(|| LeaseRecord::decode(black_box(&lease_wire))));
    group.bench_function("lease: decode, simd-json", |b| {
        let copy = || lease_wire.to_vec();
        b.iter_batched_ref(copy, |wire| simd_json::serde::from_slice::<LeaseRecord>(wire), BatchSize::SmallInput);
    });
    group.bench_function("lease: encode, serde_json", |b| b.iter(|| black_box(&lease).encode()));
    group.bench_function("lease: encode, simd-json", |b| b.iter(|| simd_json::serde::to_vec(black_box(&lease))));
    group.bench_function("budget, 100 writers: decode, serde_json", |b| {
        b.iter(|| BudgetRecord::decode(black_box(&spend_wire)));
    });
    group.bench_function("budget, 100 writers: decode, simd-json", |b| {
        let copy = || spend_wire.to_vec();
        b.iter_batched_ref(copy, |wire| simd_json::serde::from_slice::<BudgetRecord>(wire), BatchSize::SmallInput);
    });
    group.bench_function("budget, 100 writers: encode, serde_json", |b| b.iter(|| black_box(&spend).encode()));
    group.bench_function("budget, 100 writers: encode, simd-json", |b| {
        b.iter(|| simd_json::serde::to_vec(black_box(&spend)))
    });
    group.finish();
}

fn indexes(c: &mut Criterion) {
    let mut group = c.benchmark_group("index");
    for keys in [100, 10_000, 100_000] {
        let reply = Bytes::from(index_reply(keys));
        group.throughput(Throughput::Elements(keys as u64));
        group.bench_function(format!("scanner/{keys}"), |b| b.iter(|| info::parse(black_box(&reply))));
        // What it is chosen over: no more than the tape, from which the subjects would still have to be taken.
        group.bench_function(format!("simd-json/{keys}"), |b| {
            b.iter_batched_ref(
                || reply.to_vec(),
                |reply| simd_json::to_tape(reply).map(|tape| tape.0.len()),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

/// Short, since a difference that needs longer to be seen decides nothing.
fn quick() -> Criterion {
    Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1))
}

criterion_group!(name = comparisons; config = quick(); targets = records, indexes);
criterion_main!(comparisons);
