//! The exact gate: what the operations that a node makes all the time cost, on one broker with nobody else at it. Requests,
//! round trips one after another, bytes both ways, and allocations, the client library's included.
//!
//! Beside it, what a seat takes of a process's memory while it is held.
//!
//! None of it depends on how fast the machine is. The table is `tests/costs.txt`; [`tests::exact`] says how it is read and how
//! exactly it is held. `CREWLET_BASELINE=write cargo test -p tests --test exact` writes it anew, and a change of it is a
//! change of the design, or of the client library's version.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use coordproto::key::Resource;
use coordproto::slot::LEASES;
use coordproto::tally::Ceilings;
use coordproto::window::{Windows, Zone};
use engine::env::Env;
use engine::jetstream::{Jetstream, Meter};
use engine::lease::{Claim, Config, Lease, Leases, Release, Renew, Terms};
use engine::slots::Settings;
use engine::slots::budgets::{Budgets, Caps, Gate};
use engine::store::listing::LIST_WITHIN;
use engine::store::nats::Nats;
use engine::store::{Bucket, BucketSpec, Certified, Expect, Put, Store, Write};
use futures_util::future::join_all;
use tests::exact::{Counts, Row, differences, parse, render};
use tests::{Brokers, Watched, class, held, resource, terms};

/// The table, as it stands.
fn table() -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("costs.txt");
    let text = std::fs::read_to_string(&path).expect("the table is there");
    (path, text)
}

/// How often each operation is done. What one of them does for many after it, such as allocating the next block of a buffer,
/// is in few of them, and the table has what half of them stay within.
const TIMES: usize = 21;

/// How many seats a burst renews and a listing lists.
const SEATS: usize = 100;

/// How many writes a bucket has seen before anything is counted, so that its revisions have four digits throughout.
const WRITTEN: usize = 1000;

/// How many seats are held at once to find out what one takes of the memory.
const HELD: usize = 1000;

/// How many claims, and renewals, are under way at once meanwhile.
const AT_ONCE: usize = 50;

/// What a held seat may take, in bytes, the client library's part of it included.
const SEAT_BYTES: i64 = 1024;

thread_local! {
    /// How often this thread has allocated.
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
    /// The bytes that this thread has allocated and not given back.
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, and a count of what it is asked for by each thread.
struct Counting;

fn live(size: usize) -> i64 {
    i64::try_from(size).expect("no allocation is larger than half the address space")
}

#[expect(unsafe_code, reason = "an allocator is an unsafe trait; this one hands every call on as it came")]
// SAFETY: every call goes to `System` unchanged, which keeps the contract. The counts are plain numbers in thread-locals that
// need neither an allocation nor a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + 1);
        LIVE.set(LIVE.get() + live(layout.size()));
        // SAFETY: the caller keeps the contract of this very function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + 1);
        LIVE.set(LIVE.get() + live(size) - live(layout.size()));
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - live(layout.size()));
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What the counts are read from. The meter sees what the operation's own task asks for; the connection and the store below
/// see what other tasks ask for on its behalf too, and nobody else is at them.
struct Gauge {
    jetstream: Jetstream,
    store: Watched<Nats>,
}

impl Gauge {
    /// Does `work` as one operation, and says what it cost. Everything runs on this thread, the connection included.
    async fn counted<T>(&self, work: impl Future<Output = T>) -> (T, Counts) {
        let (stats, rounds, allocated) = (self.jetstream.stats(), self.store.rounds(), ALLOCATED.get());
        let (output, cost) = Meter::measure(work).await;
        let allocated = ALLOCATED.get() - allocated;
        let (all, rounds) = (self.jetstream.stats().since(&stats), self.store.rounds() - rounds);
        let (bytes_out, bytes_in) = (cost.bytes_out.max(all.bytes_out), cost.bytes_in.max(all.bytes_in));
        (output, [cost.requests.max(all.total()), cost.rounds.max(rounds), bytes_out, bytes_in, allocated])
    }
}

/// What was counted, in the order of the counting.
struct Found {
    rows: Vec<Row>,
    /// What the counting itself allocates.
    counting: u64,
}

impl Found {
    async fn nothing(gauge: &Gauge) -> Found {
        let ((), [.., counting]) = gauge.counted(async {}).await;
        Found { rows: Vec::new(), counting }
    }

    /// Does an operation some times, each told which it is, and takes the median of each count.
    async fn of(&mut self, operation: &str, mut once: impl AsyncFnMut(usize) -> Counts) {
        let mut every = Vec::with_capacity(TIMES);
        for n in 0..TIMES {
            every.push(once(n).await);
        }
        let mut median: Counts = std::array::from_fn(|at| {
            let mut counts: Vec<u64> = every.iter().map(|counts| counts[at]).collect();
            counts.sort_unstable();
            counts[TIMES / 2]
        });
        let [.., allocations] = &mut median;
        *allocations -= self.counting;
        self.rows.push((operation.to_owned(), median));
    }
}

/// Counts every operation of the table over `store`, which asks through `jetstream`.
async fn count(env: &Env, store: Watched<Nats>, jetstream: Jetstream, config: Config) -> Vec<Row> {
    let gauge = &Gauge { jetstream, store };
    let store = &gauge.store;
    let mut found = Found::nothing(gauge).await;
    let leases = Leases::open(env.clone(), store, &config).await.expect("the buckets open");
    let spec = BucketSpec::of(&LEASES, &config.prefix, config.lease_ttl, config.replicas);
    let bucket = store.open(&spec).await.expect("the bucket opens");
    let others: Vec<Resource> = (0..SEATS).map(other).collect();
    for _ in 0..WRITTEN / SEATS {
        join_all(others.iter().map(|seat| stored(&bucket, seat, Expect::Any))).await;
    }
    // First, since what a released seat leaves is looked at by every listing of its class.
    many(&mut found, gauge, &leases).await;
    Box::pin(tenures(&mut found, gauge, &leases)).await;
    records(&mut found, gauge, &bucket).await;
    let settings = Settings { prefix: config.prefix, replicas: config.replicas, retention: Default::default() };
    charges(&mut found, gauge, env, &Budgets::open(store, &settings).await.expect("the bucket opens")).await;
    found.rows
}

/// Number `n` of a class whose records are put and read bare.
fn other(n: usize) -> Resource {
    resource(&format!("other:s{n:02}"))
}

async fn stored<B: Bucket>(bucket: &B, seat: &Resource, expect: Expect) -> u64 {
    match bucket.put(seat.key(), Write::Value(Bytes::from_static(b"a value")), expect).await {
        Ok(Put::Stored(revision)) => revision,
        other => panic!("not stored: {other:?}"),
    }
}

async fn tenures<S: Store>(found: &mut Found, gauge: &Gauge, leases: &Leases<S>) {
    let mut all: Vec<Lease> = Vec::new();
    let of = |n: usize, owner: &str| terms(leases, &format!("seat:c{n:02}"), owner);
    found
        .of("claim a seat, fresh", async |n| {
            let (claim, counts) = gauge.counted(leases.claim(&of(n, "n1:1"))).await;
            let Ok(Claim::Held(lease)) = claim else { panic!("{claim:?}") };
            all.push(lease);
            counts
        })
        .await;
    found
        .of("claim a seat, a peer holds it", async |n| {
            let (claim, counts) = gauge.counted(leases.claim(&of(n, "n2:1"))).await;
            assert!(matches!(claim, Ok(Claim::Refused(_))), "{claim:?}");
            counts
        })
        .await;
    found
        .of("renew a seat", async |n| {
            let (renewed, counts) = gauge.counted(leases.renew(&mut all[n])).await;
            assert_eq!(renewed, Ok(Renew::Extended));
            counts
        })
        .await;
    found
        .of("get a seat", async |n| {
            let (view, counts) = gauge.counted(leases.get(all[n].resource())).await;
            assert!(matches!(view, Ok(Some(_))), "{view:?}");
            counts
        })
        .await;
    found
        .of("release a seat", async |n| {
            let (released, counts) = gauge.counted(leases.release(&all[n])).await;
            assert_eq!(released, Ok(Release::Released));
            counts
        })
        .await;
    found
        .of("claim a seat, released", async |n| {
            let (claim, counts) = gauge.counted(leases.claim(&of(n, "n2:1"))).await;
            let Ok(Claim::Held(lease)) = claim else { panic!("{claim:?}") };
            all[n] = lease;
            counts
        })
        .await;
    for lease in &all {
        assert_eq!(leases.release(lease).await, Ok(Release::Released));
    }
}

async fn many<S: Store>(found: &mut Found, gauge: &Gauge, leases: &Leases<S>) {
    let mut all = Vec::with_capacity(SEATS);
    for n in 0..SEATS {
        let ask = Terms { preferred: Some("n1".to_owned()), ..terms(leases, &format!("seat:s{n:02}"), "n1:1") };
        all.push(held(leases, &ask).await);
    }
    found
        .of("renew 100 seats in a burst", async |_| {
            let (renewals, counts) = gauge.counted(leases.renew_all(&mut all)).await;
            assert!(renewals.iter().all(|renewal| renewal.answer == Ok(Renew::Extended)));
            counts
        })
        .await;
    let seats = class("seat");
    found
        .of("list 100 seats, certified by the leader", async |_| {
            let (listed, counts) = gauge.counted(leases.list(&seats, &Certified::Leader)).await;
            assert_eq!(listed.map(|listed| listed.len()), Ok(SEATS));
            counts
        })
        .await;
    found
        .of("list 100 seats, proved by a renewal", async |_| {
            assert_eq!(leases.renew(&mut all[0]).await, Ok(Renew::Extended));
            let proved = Certified::Quorum(leases.barrier(&all[0]));
            let (listed, counts) = gauge.counted(leases.list(&seats, &proved)).await;
            assert_eq!(listed.map(|listed| listed.len()), Ok(SEATS));
            counts
        })
        .await;
}

async fn records<B: Bucket>(found: &mut Found, gauge: &Gauge, bucket: &B) {
    let (over, plain) = (other(0), other(1));
    let mut revision = stored(bucket, &over, Expect::Any).await;
    found
        .of("put a record, whatever stands there", async |_| gauge.counted(stored(bucket, &plain, Expect::Any)).await.1)
        .await;
    found
        .of("put a record over a revision", async |_| {
            let (stored, counts) = gauge.counted(stored(bucket, &over, Expect::At(revision))).await;
            revision = stored;
            counts
        })
        .await;
    found
        .of("get a record", async |_| {
            let (version, counts) = gauge.counted(bucket.get(over.key())).await;
            assert!(matches!(version, Ok(Some(_))), "{version:?}");
            counts
        })
        .await;
    found
        .of("list 100 records, certified by the leader", async |_| {
            let by = bucket.env().now() + LIST_WITHIN;
            let (listing, counts) = gauge.counted(bucket.list(&class("other").filter(), &Certified::Leader, by)).await;
            assert_eq!(listing.map(|listing| listing.entries.len()), Ok(SEATS));
            counts
        })
        .await;
}

async fn charges<S: Store>(found: &mut Found, gauge: &Gauge, env: &Env, budgets: &Budgets<S>) {
    let zone = Zone::parse("timezone", "Europe/Berlin").expect("a zone");
    let at = env.wall();
    let windows = Windows::at(at, &zone).expect("an instant within the calendar");
    let caps = Caps { org: Ceilings::parse([("month", 9_999_999)]).expect("a ceiling"), seat: Ceilings::default() };
    found
        .of("charge a seat and its company", async |_| {
            let (charge, counts) = gauge.counted(budgets.charge("alpha", 10_000, &windows, &caps, at)).await;
            assert!(matches!(charge, Ok(charge) if charge.gate == Gate::Admitted));
            counts
        })
        .await;
}

async fn brokers() -> (Brokers, Nats, Config) {
    let brokers = Brokers::start(1).await;
    let store = brokers.store().await;
    // A TTL that nothing here outlives.
    let config = brokers.config("exact", Duration::from_secs(3600));
    (brokers, store, config)
}

#[tokio::test]
async fn every_operation_costs_what_the_table_says() {
    let (brokers, store, config) = brokers().await;
    let found = Box::pin(count(&brokers.env, Watched::new(store.clone()), store.jetstream().clone(), config)).await;
    let (path, text) = table();
    if std::env::var_os("CREWLET_BASELINE").is_some_and(|what| what == "write") {
        std::fs::write(path, render(&text, &found)).expect("the table is written");
        return;
    }
    let differences = differences(&found, &parse(&text).expect("a table"));
    assert!(differences.is_empty(), "tests/costs.txt:\n  {}", differences.join("\n  "));
}

/// The gate has to be seen to fail: the same operations over a store that asks once too often.
#[tokio::test]
async fn a_request_too_many_is_caught_and_its_operation_named() {
    let (brokers, store, config) = brokers().await;
    let found =
        Box::pin(count(&brokers.env, Watched::wasteful(store.clone()), store.jetstream().clone(), config)).await;
    let differences = differences(&found, &parse(&table().1).expect("a table"));
    let told = |what: &str| {
        assert!(differences.iter().any(|line| line == what), "{what}: not in\n  {}", differences.join("\n  "));
    };
    told("claim a seat, fresh: requests: 9, and the table says 6");
    told("renew a seat: requests: 2, and the table says 1");
    told("renew a seat: rounds: 2, and the table says 1");
    told("renew 100 seats in a burst: requests: 200, and the table says 100");
    told("release a seat: requests: 2, and the table says 1");
    told("charge a seat and its company: requests: 6, and the table says 4");
    let untouched = ["get a seat", "get a record", "list 100", "claim a seat, a peer holds it"];
    for operation in untouched {
        let named = differences.iter().find(|line| line.starts_with(operation) && line.contains("requests"));
        assert_eq!(named, None, "it writes nothing");
    }
}

/// All of the process runs on this thread, so that what was not given back is the seats'.
#[tokio::test]
async fn a_held_seat_takes_less_than_a_kibibyte() {
    let (brokers, store, config) = brokers().await;
    let leases = &Leases::open(brokers.env.clone(), &store, &config).await.expect("the buckets open");
    let claim = async |class: &str, n: usize| held(leases, &terms(leases, &format!("{class}:s{n:04}"), "n1:1")).await;
    // Whatever grows once and for all with so many claims at once, has done so after these.
    drop(join_all((0..AT_ONCE).map(|n| claim("worker", n))).await);
    let before = LIVE.get();
    let mut all = Vec::with_capacity(HELD);
    for from in (0..HELD).step_by(AT_ONCE) {
        all.extend(join_all((from..from + AT_ONCE).map(|n| claim("seat", n))).await);
    }
    // A burst takes its memory once, for as many as are in flight, however many seats there are.
    for burst in all.chunks_mut(AT_ONCE) {
        assert!(leases.renew_all(burst).await.iter().all(|renewal| renewal.answer == Ok(Renew::Extended)));
    }
    let each = (LIVE.get() - before) / live(HELD);
    println!("a held seat takes {each} bytes");
    assert!(each >= live(size_of::<Lease>()), "{each} bytes: less than a lease is in size");
    assert!(each <= SEAT_BYTES, "a held seat takes {each} bytes");
}
