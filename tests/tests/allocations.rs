//! How often the requests that a node makes all the time allocate, counted on one broker with nobody else at it, the client
//! library's own allocations included.
//!
//! A node renews a hundred seats in a burst, so what one renewal allocates counts. The client library forces eight: a map of one
//! header, the same header written out, the buffers of a message sent and of one received. The layers above it add none, and the
//! table keeps it so. It changes with the library's version, and not with the machine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use coordproto::api::Put;
use engine::jetstream::Write;
use engine::lease::Renew;
use tests::{Brokers, held, terms};

/// Operation, allocations. A read's second one is the value.
const ALLOCATIONS: [(&str, u64); 3] = [("renew a seat", 8), ("put without a header", 1), ("read from the leader", 2)];

/// How often each operation is done. What one of them allocates for many after it, such as the next block of a buffer, is in few
/// of them, and the table has what half of them stay within.
const TIMES: usize = 101;

thread_local! {
    /// How often this thread has allocated.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, and a count of what it is asked for by each thread.
struct Counting;

#[expect(unsafe_code, reason = "an allocator is an unsafe trait; this one hands every call on as it came")]
// SAFETY: every call goes to `System` unchanged, which keeps the contract. The count is a plain number in a thread-local that
// needs neither an allocation nor a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller keeps the contract of this very function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Does `work` some times, and answers what the median one allocated. Everything runs on this thread, the connection included.
async fn median(mut work: impl AsyncFnMut()) -> u64 {
    let mut counts = [0; TIMES];
    for count in &mut counts {
        let before = COUNT.get();
        work().await;
        *count = COUNT.get() - before;
    }
    counts.sort_unstable();
    counts[TIMES / 2]
}

#[tokio::test]
async fn every_request_allocates_what_the_table_says() {
    let brokers = Brokers::start(1).await;
    let store = brokers.store().await;
    let leases = brokers.leases(&store, &brokers.config("counted", Duration::from_secs(3600))).await;
    let mut lease = held(&leases, &terms(&leases, "seat:a", "n1:1")).await;
    let (js, stream, subject) = (store.jetstream(), "KV_counted_leases", "$KV.counted_leases.seat.b");
    let value = Bytes::from_static(b"value");

    let renew = median(async || assert_eq!(leases.renew(&mut lease).await, Ok(Renew::Extended))).await;
    let put = median(async || {
        let put = js.put(subject, Write::default(), value.clone(), js.deadline()).await;
        assert!(matches!(put, Ok(Put::Stored { .. })));
    })
    .await;
    let read = median(async || assert!(matches!(js.last(stream, subject, js.deadline()).await, Ok(Some(_))))).await;

    let names = ALLOCATIONS.map(|(operation, _)| operation);
    let found: Vec<(&str, u64)> = names.into_iter().zip([renew, put, read]).collect();
    assert_eq!(found, ALLOCATIONS);
}
