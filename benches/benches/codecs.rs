//! Keys and records: escaping, parsing, encoding, decoding.

use std::hint::black_box;

use coordproto::key::{Key, Resource};
use coordproto::record::lease::LeaseRecord;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

fn keys(c: &mut Criterion) {
    let mut group = c.benchmark_group("key");
    for (what, name) in [("plain", "seat:s00042"), ("escaped", "seat:Équipe de nuit/α.1")] {
        group.bench_function(format!("encode/{what}"), |b| b.iter(|| Resource::parse(black_box(name))));
        let key = Resource::parse(name).expect("a good name").key().as_str().to_owned();
        group.bench_function(format!("decode/{what}"), |b| b.iter(|| Key::parse(black_box(&key))));
    }
    group.finish();
}

fn records(c: &mut Criterion) {
    let record = benches::record();
    let wire = record.encode();
    let mut group = c.benchmark_group("lease record");
    group.bench_function("encode", |b| b.iter(|| black_box(&record).encode()));
    group.bench_function("decode", |b| b.iter(|| LeaseRecord::decode(black_box(&wire))));
    // For comparison: it parses in place, so it needs a copy of its own; the copy is not counted.
    group.bench_function("decode/simd-json", |b| {
        b.iter_batched_ref(
            || wire.to_vec(),
            |wire| simd_json::serde::from_slice::<LeaseRecord>(wire.as_mut_slice()),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(codecs, keys, records);
criterion_main!(codecs);
