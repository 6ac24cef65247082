//! The pure paths by criterion, and leases and budgets over the memory twin: what the engine itself takes, without a broker.

use std::hint::black_box;
use std::time::Duration;

use benches::{paths, seat};
use coordproto::key::Class;
use coordproto::lease::Terms;
use coordproto::slot::Retention;
use criterion::{Criterion, criterion_group, criterion_main};
use engine::env::Env;
use engine::lease::{Claim, Config, Lease, Leases};
use engine::slots::Settings;
use engine::slots::budgets::{Budgets, Caps};
use engine::store::Certified;
use engine::store::memory::Memory;
use tokio::runtime::{Builder, Runtime};

/// Seats held beside the one that is claimed.
const HELD: usize = 100;

/// A TTL that outlasts the bench.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

fn pure(c: &mut Criterion) {
    let env = Env::seeded(1);
    for path in paths::ALL {
        let mut work = path.warm();
        c.bench_function(path.name, |b| {
            b.iter_custom(|times| {
                work.prepare(usize::try_from(times).expect("a machine that counts so far"));
                let began = env.now();
                work.run();
                env.now().since(began)
            });
        });
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn held(leases: &Leases<Memory>, n: usize) -> Lease {
    let terms = Terms::new(seat(n), "n007:9f86d081884c7d65", TTL);
    match leases.claim(&terms).await {
        Ok(Claim::Held(lease)) => lease,
        other => panic!("seat {n} was not granted: {other:?}"),
    }
}

async fn open() -> (Leases<Memory>, Budgets<Memory>) {
    let env = Env::seeded(1);
    let store = Memory::new(env.clone());
    let config = Config { lease_ttl: TTL, ..Config::default() };
    let leases = Leases::open(env, &store, &config).await.expect("the buckets open");
    for n in 0..HELD {
        held(&leases, n).await;
    }
    let settings = Settings { prefix: config.prefix, replicas: config.replicas, retention: Retention::default() };
    (leases, Budgets::open(&store, &settings).await.expect("the bucket opens"))
}

fn twin(c: &mut Criterion) {
    let runtime = runtime();
    let (leases, budgets) = runtime.block_on(open());
    let mut group = c.benchmark_group("memory twin");
    group.bench_function("claim a free seat and release it", |b| {
        b.iter(|| {
            runtime.block_on(async {
                let lease = held(&leases, HELD).await;
                black_box(leases.release(&lease).await)
            })
        });
    });
    let mut lease = runtime.block_on(held(&leases, HELD));
    group.bench_function("renew", |b| b.iter(|| runtime.block_on(async { black_box(leases.renew(&mut lease).await) })));
    let mut all: Vec<Lease> = runtime.block_on(async {
        let mut all = Vec::with_capacity(HELD);
        for n in 0..HELD {
            all.push(held(&leases, n).await);
        }
        all
    });
    group.bench_function("renew 100 in a burst", |b| {
        b.iter(|| runtime.block_on(async { black_box(leases.renew_all(&mut all).await) }));
    });
    let seats = Class::seat();
    group.bench_function("list the seats, certified by the leader", |b| {
        b.iter(|| runtime.block_on(async { black_box(leases.list(&seats, &Certified::Leader).await) }));
    });
    let (windows, now, caps) = (paths::windows(), paths::instant(), Caps::default());
    group.bench_function("charge a seat and its company", |b| {
        b.iter(|| runtime.block_on(async { black_box(budgets.charge("alpha", 1_234, &windows, &caps, now).await) }));
    });
    group.finish();
}

/// Short, since what decides is the gate.
fn quick() -> Criterion {
    Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1))
}

criterion_group!(name = every; config = quick(); targets = pure, twin);
criterion_main!(every);
