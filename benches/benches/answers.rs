//! Reading JetStream's answers: an acknowledgement, a leader's record, a stream's index.

use std::hint::black_box;

use bytes::Bytes;
use coordproto::api::{info, message, puback};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

fn acknowledgements(c: &mut Criterion) {
    let mut group = c.benchmark_group("puback");
    let stored = br#"{"stream":"KV_crewlet_leases","seq":1234567}"#;
    let lost = br#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 1234567"},"stream":"KV_crewlet_leases","seq":0}"#;
    group.bench_function("stored", |b| b.iter(|| puback::parse(black_box(stored))));
    group.bench_function("lost", |b| b.iter(|| puback::parse(black_box(lost))));
    group.finish();
}

fn leader_reads(c: &mut Criterion) {
    let subject = benches::subject(42);
    let headers =
        base64_simd::STANDARD.encode_to_string("NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 1234566\r\n\r\n");
    let data = base64_simd::STANDARD.encode_to_string(benches::record().encode());
    let reply = format!(
        r#"{{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","message":{{"subject":"{subject}","seq":1234567,"hdrs":"{headers}","data":"{data}","time":"2026-01-02T03:04:05.148754874Z"}}}}"#
    );
    c.bench_function("leader read", |b| b.iter(|| message::parse(black_box(reply.as_bytes()), &subject)));
}

fn indexes(c: &mut Criterion) {
    let mut group = c.benchmark_group("index");
    for keys in [100, 10_000, 100_000] {
        let reply = Bytes::from(benches::index_reply(keys));
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

criterion_group!(answers, acknowledgements, leader_reads, indexes);
criterion_main!(answers);
