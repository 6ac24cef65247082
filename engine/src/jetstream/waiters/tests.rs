use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;

fn look<T>(waiters: &mut Waiters<T>, key: Key) -> Poll<Event<T>> {
    waiters.poll(key, &mut Context::from_waker(Waker::noop()))
}

fn tick<T>(waiters: &mut Waiters<T>, now: Tick) -> usize {
    let mut wake = Vec::new();
    waiters.advance(now, &mut wake);
    wake.len()
}

#[test]
fn a_reply_reaches_its_waiter_and_a_late_one_nobody() {
    let mut waiters = Waiters::with_capacity(4);
    let first = waiters.insert(10, NEVER, Room::Answer);
    waiters.remove(first);
    let second = waiters.insert(10, NEVER, Room::Answer);
    assert_eq!(first.slot, second.slot);
    assert!(matches!(waiters.deliver(first, "late", true), Delivery::Late));
    assert!(matches!(waiters.deliver(second, "good", true), Delivery::Taken(_)));
    assert_eq!(look(&mut waiters, second), Poll::Ready(Event::Reply("good")));
    assert_eq!(look(&mut waiters, second), Poll::Pending);
    assert!(matches!(waiters.deliver(Key { slot: 9, generation: 0 }, "nobody", true), Delivery::Late));
}

#[test]
fn whoever_looks_later_is_woken_for_what_came_before_and_what_comes_after() {
    struct Woken(AtomicUsize);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let woken = Arc::new(Woken(AtomicUsize::new(0)));
    let waker = Waker::from(woken.clone());
    let mut waiters = Waiters::with_capacity(2);
    let (early, late) = (waiters.insert(10, NEVER, Room::Answer), waiters.insert(10, NEVER, Room::Answer));
    waiters.deliver(early, "early", true);
    waiters.wake_for(early, &waker);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1, "it is there already");
    assert_eq!(look(&mut waiters, early), Poll::Ready(Event::Reply("early")), "and still is");
    waiters.wake_for(late, &waker);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    let Delivery::Taken(Some(waker)) = waiters.deliver(late, "late", true) else { panic!("it waits") };
    waker.wake();
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    assert_eq!(look(&mut waiters, late), Poll::Ready(Event::Reply("late")));
}

#[test]
fn every_reply_to_one_question_is_seen_until_the_end() {
    let mut waiters = Waiters::with_capacity(1);
    let key = waiters.insert(10, NEVER, Room::Answer);
    for n in 0..MOST_REPLIES + 2 {
        let taken = matches!(waiters.deliver(key, n, true), Delivery::Taken(_));
        assert_eq!(taken, n < MOST_REPLIES);
    }
    tick(&mut waiters, 10);
    for n in 0..MOST_REPLIES {
        assert_eq!(look(&mut waiters, key), Poll::Ready(Event::Reply(n)));
    }
    assert_eq!(look(&mut waiters, key), Poll::Ready(Event::Expired));
}

#[test]
fn a_batch_finds_room_for_all_of_it_and_leaves_none_behind() {
    let mut waiters = Waiters::with_capacity(1);
    let key = waiters.insert(10, NEVER, Room::Batch);
    for n in 0..MOST_RECORDS + 2 {
        let taken = matches!(waiters.deliver(key, n, true), Delivery::Taken(_));
        assert_eq!(taken, n <= MOST_RECORDS, "{n}");
    }
    for n in 0..=MOST_RECORDS {
        assert_eq!(look(&mut waiters, key), Poll::Ready(Event::Reply(n)));
    }
    assert_eq!(look(&mut waiters, key), Poll::Pending);
    waiters.deliver(key, 0, true);
    waiters.remove(key);
    assert_eq!(waiters.slots[0].replies.capacity(), 0);
    // The slot is as narrow as ever for the next one.
    let next = waiters.insert(10, NEVER, Room::Answer);
    let taken = (0..MOST_RECORDS).filter(|n| matches!(waiters.deliver(next, *n, true), Delivery::Taken(_)));
    assert_eq!((next.slot, taken.count()), (key.slot, MOST_REPLIES));
}

#[test]
fn a_batch_wakes_at_its_end_and_when_its_time_comes() {
    let mut waiters = Waiters::with_capacity(2);
    let (batch, answer) = (waiters.insert(50, 20, Room::Batch), waiters.insert(50, 20, Room::Answer));
    assert_eq!((look(&mut waiters, batch), look(&mut waiters, answer)), (Poll::Pending, Poll::Pending));
    assert!(matches!(waiters.deliver(batch, 1, false), Delivery::Taken(None)));
    assert!(matches!(waiters.deliver(answer, 1, false), Delivery::Taken(Some(_))));
    assert_eq!(tick(&mut waiters, 20), 1, "the batch's; the other was woken already");
    assert_eq!(look(&mut waiters, batch), Poll::Ready(Event::Reply(1)));
    assert_eq!(look(&mut waiters, batch), Poll::Ready(Event::Resend));
    assert_eq!(look(&mut waiters, batch), Poll::Pending);
    assert!(matches!(waiters.deliver(batch, 2, false), Delivery::Taken(None)));
    assert!(matches!(waiters.deliver(batch, 3, true), Delivery::Taken(Some(_))));
    for n in [2, 3] {
        assert_eq!(look(&mut waiters, batch), Poll::Ready(Event::Reply(n)));
    }
}

#[test]
fn a_waiter_asks_again_until_its_deadline() {
    let mut waiters = Waiters::<()>::with_capacity(1);
    let key = waiters.insert(50, 20, Room::Answer);
    assert_eq!(waiters.next_due(), Some(20));
    assert_eq!(look(&mut waiters, key), Poll::Pending);
    tick(&mut waiters, 19);
    assert_eq!(look(&mut waiters, key), Poll::Pending);
    assert_eq!(tick(&mut waiters, 20), 1);
    assert_eq!(look(&mut waiters, key), Poll::Ready(Event::Resend));
    assert_eq!(look(&mut waiters, key), Poll::Pending);
    waiters.resend_at(key, 40);
    assert_eq!(waiters.next_due(), Some(40));
    tick(&mut waiters, 60);
    assert_eq!(look(&mut waiters, key), Poll::Ready(Event::Expired));
}

#[test]
fn a_shortened_deadline_is_kept_and_a_lengthened_one_is_not() {
    let mut waiters = Waiters::<()>::with_capacity(1);
    let key = waiters.insert(1000, 20, Room::Answer);
    waiters.end_by(key, 30);
    waiters.end_by(key, 500);
    assert_eq!(tick(&mut waiters, 29), 0);
    assert_eq!(look(&mut waiters, key), Poll::Pending);
    tick(&mut waiters, 30);
    assert_eq!(look(&mut waiters, key), Poll::Ready(Event::Expired));
}

#[test]
fn a_deadline_laps_away_is_kept_to_the_tick() {
    for deadline in [1, 511, 512, 513, 1024, 5000] {
        let mut waiters = Waiters::<()>::with_capacity(1);
        let key = waiters.insert(deadline, NEVER, Room::Answer);
        let mut now = 0;
        while let Some(next) = waiters.next_due() {
            assert!(next > now && next <= deadline, "{deadline}");
            now = next;
            tick(&mut waiters, now);
        }
        assert_eq!(now, deadline);
        assert_eq!(look(&mut waiters, key), Poll::Ready(Event::Expired));
    }
}

#[test]
fn a_jump_over_many_laps_expires_everything_due() {
    let mut waiters = Waiters::<()>::with_capacity(2000);
    let keys: Vec<Key> = (1..2000).map(|deadline| waiters.insert(deadline, NEVER, Room::Answer)).collect();
    tick(&mut waiters, 1500);
    for (key, deadline) in keys.into_iter().zip(1..) {
        let expired = look(&mut waiters, key) == Poll::Ready(Event::Expired);
        assert_eq!(expired, deadline <= 1500, "{deadline}");
    }
}

#[test]
fn a_lost_connection_ends_everybody_at_once() {
    let mut waiters = Waiters::with_capacity(3);
    let keys: Vec<Key> = (0..3).map(|_| waiters.insert(10, 5, Room::Answer)).collect();
    for key in &keys {
        assert_eq!(look(&mut waiters, *key), Poll::Pending);
    }
    waiters.deliver(keys[1], 7, true);
    let mut wake = Vec::new();
    waiters.fail_all(&mut wake);
    assert_eq!(wake.len(), 2);
    assert_eq!(look(&mut waiters, keys[0]), Poll::Ready(Event::Failed));
    assert_eq!(look(&mut waiters, keys[1]), Poll::Ready(Event::Reply(7)));
    assert_eq!(look(&mut waiters, keys[1]), Poll::Ready(Event::Failed));
    assert_eq!(waiters.next_due(), None);
    let later = waiters.insert(20, NEVER, Room::Answer);
    assert_eq!(look(&mut waiters, later), Poll::Pending);
}

/// 100,000 requests that nobody ever answers, 1,000 at a time, leave the same room behind that they found.
#[test]
fn timed_out_requests_leave_nothing_behind() {
    let mut waiters = Waiters::<u64>::with_capacity(1000);
    let room = waiters.slots.capacity();
    let mut now = 0;
    for _ in 0..100 {
        let keys: Vec<Key> =
            (0..1000).map(|n| waiters.insert(now + 1 + n % 700, now + 1 + n % 50, Room::Answer)).collect();
        now += 700;
        tick(&mut waiters, now);
        for key in keys {
            assert_eq!(look(&mut waiters, key), Poll::Ready(Event::Expired));
            waiters.remove(key);
        }
    }
    assert_eq!((waiters.len(), waiters.slots.capacity(), waiters.slots.len()), (0, room, 1000));
    assert!(waiters.occupied.iter().all(|word| *word == 0) && waiters.heads.iter().all(|head| *head == NONE));
    assert!(waiters.slots.iter().all(|waiter| waiter.replies.capacity() == 0 && waiter.waker.is_none()));
    assert_eq!(waiters.next_due(), None);
}

#[test]
fn the_task_that_looked_last_is_the_one_woken() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (first, second) = (Arc::new(Count(AtomicUsize::new(0))), Arc::new(Count(AtomicUsize::new(0))));
    let mut waiters = Waiters::with_capacity(1);
    let key = waiters.insert(10, NEVER, Room::Answer);
    for count in [&first, &second] {
        let waker = Waker::from(count.clone());
        assert_eq!(waiters.poll(key, &mut Context::from_waker(&waker)), Poll::Pending);
    }
    match waiters.deliver(key, 1, true) {
        Delivery::Taken(Some(waker)) => waker.wake(),
        other => panic!("{other:?}"),
    }
    assert_eq!((first.0.load(Ordering::Relaxed), second.0.load(Ordering::Relaxed)), (0, 1));
}

#[derive(Clone, Debug)]
enum Step {
    Insert { lasts: Tick, resend: Tick, room: Room },
    Deliver(usize),
    Remove(usize),
    Look(usize),
    Resend(usize, Tick),
    EndBy(usize, Tick),
    Advance(Tick),
    Fail,
}

fn step() -> impl Strategy<Value = Step> {
    let any = 0usize..64;
    let room = prop_oneof![3 => Just(Room::Answer), 1 => Just(Room::Batch)];
    prop_oneof![
        4 => (0u64..1500, prop_oneof![Just(NEVER), 0u64..300], room)
            .prop_map(|(lasts, resend, room)| Step::Insert { lasts, resend, room }),
        4 => any.clone().prop_map(Step::Deliver),
        3 => any.clone().prop_map(Step::Remove),
        3 => any.clone().prop_map(Step::Look),
        1 => (any.clone(), 0u64..300).prop_map(|(n, t)| Step::Resend(n, t)),
        1 => (any, 0u64..300).prop_map(|(n, t)| Step::EndBy(n, t)),
        2 => (1u64..600).prop_map(Step::Advance),
        1 => Just(Step::Fail),
    ]
}

proptest! {
    /// A plain model beside the slab: what was sent to a key comes out at that key alone, ends come when they are due, no
    /// key is given twice, and nothing is left at the end.
    #[test]
    fn any_interleaving_keeps_every_waiter_to_itself(steps in proptest::collection::vec(step(), 1..300)) {
        struct Model { deadline: Tick, room: Room, sent: VecDeque<u64>, failed: bool }
        let mut waiters = Waiters::with_capacity(8);
        let (mut issued, mut seen) = (Vec::new(), HashSet::new());
        let mut model: HashMap<Key, Model> = HashMap::new();
        let (mut now, mut serial) = (0, 0);
        for step in steps {
            let pick = |n: usize| issued.get(n % issued.len().max(1)).copied();
            match step {
                Step::Insert { lasts, resend, room } => {
                    let key = waiters.insert(now + lasts, now.saturating_add(resend), room);
                    prop_assert!(seen.insert(key), "a key was given twice");
                    issued.push(key);
                    model.insert(key, Model { deadline: now + lasts, room, sent: VecDeque::new(), failed: false });
                }
                Step::Deliver(n) => if let Some(key) = pick(n) {
                    serial += 1;
                    let taken = matches!(waiters.deliver(key, serial, true), Delivery::Taken(_));
                    match model.get_mut(&key) {
                        Some(m) if m.sent.len() < m.room.replies() => { prop_assert!(taken); m.sent.push_back(serial); }
                        _ => prop_assert!(!taken),
                    }
                },
                Step::Remove(n) => if let Some(key) = pick(n) {
                    waiters.remove(key);
                    model.remove(&key);
                },
                Step::Look(n) => if let Some(key) = pick(n) && let Some(m) = model.get_mut(&key) {
                    match look(&mut waiters, key) {
                        Poll::Ready(Event::Reply(got)) => prop_assert_eq!(Some(got), m.sent.pop_front()),
                        Poll::Ready(Event::Failed) => prop_assert!(m.failed && m.sent.is_empty()),
                        Poll::Ready(Event::Expired) => prop_assert!(m.deadline <= now && m.sent.is_empty()),
                        Poll::Ready(Event::Resend) => prop_assert!(m.sent.is_empty() && !m.failed),
                        // A waiter that is due when it is inserted or moved ends with the next tick.
                        Poll::Pending => prop_assert!(m.sent.is_empty() && !m.failed && m.deadline + 1 > now),
                    }
                },
                Step::Resend(n, t) => if let Some(key) = pick(n) { waiters.resend_at(key, now + t); },
                Step::EndBy(n, t) => if let Some(key) = pick(n) {
                    waiters.end_by(key, now + t);
                    if let Some(m) = model.get_mut(&key) { m.deadline = m.deadline.min(now + t); }
                },
                Step::Advance(by) => { now += by; tick(&mut waiters, now); }
                Step::Fail => {
                    waiters.fail_all(&mut Vec::new());
                    model.values_mut().for_each(|m| m.failed = true);
                }
            }
            prop_assert_eq!(waiters.len(), model.len());
        }
        for key in issued {
            waiters.remove(key);
        }
        prop_assert_eq!(waiters.len(), 0);
        prop_assert_eq!(waiters.next_due(), None);
        prop_assert!(waiters.heads.iter().all(|head| *head == NONE));
        let mut free = 0;
        let mut slot = waiters.free;
        while slot != NONE { free += 1; slot = waiters.slots[slot as usize].next; }
        prop_assert_eq!(free, waiters.slots.len());
    }
}
