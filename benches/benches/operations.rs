//! The operations of a node over one broker and over three, from end to end: in order, one at a time, every write synced.

use std::time::Duration;

use benches::operations::{Operation, Stand};
use criterion::{Criterion, SamplingMode, criterion_group, criterion_main};
use tokio::runtime::Runtime;

fn operations(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    for (members, brokers) in [(1, "one broker"), (3, "three brokers")] {
        let mut stand = runtime.block_on(Box::pin(Stand::open(members)));
        let mut group = c.benchmark_group(brokers);
        group.sampling_mode(SamplingMode::Flat);
        for operation in [Operation::Floor, Operation::Floors, Operation::Read].into_iter().chain(Operation::ALL) {
            group.bench_function(operation.name(), |b| b.iter(|| runtime.block_on(stand.once(operation))));
        }
        group.finish();
    }
}

fn quick() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
}

criterion_group!(name = every; config = quick(); targets = operations);
criterion_main!(every);
