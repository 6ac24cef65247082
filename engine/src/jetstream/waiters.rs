//! Who waits for which reply, and until when.
//!
//! A waiter has a slot and a generation; a reply names both, so a late reply meets a changed generation and reaches nobody. A
//! waiter stays until it is removed and takes every reply that comes meanwhile, because the first need not be the best: a
//! member without a leader answers before the leader does.
//!
//! Deadlines stand in one hashed wheel whose lists run through the slots. Arming, moving and removing cost the same whatever
//! the number of waiters, and a waiter that is gone leaves nothing behind. Time comes in as ticks; nothing here reads a clock,
//! and nothing blocks.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use coordproto::api::direct::MOST_RECORDS;

/// Buckets of the wheel: one per tick, and a waiter whose time is laps away shares a bucket with nearer ones.
const BUCKETS: usize = 512;
/// Replies kept for a waiter of one answer that has not come to look yet; more would only repeat.
const MOST_REPLIES: usize = 4;
const NONE: u32 = u32::MAX;

/// Instants as the wheel counts them.
pub type Tick = u64;

/// A tick that never comes.
pub const NEVER: Tick = Tick::MAX;

/// One waiter among those that used its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The slot; used again once its waiter is gone.
    pub slot: u32,
    /// How many waiters used the slot before this one, modulo 2^32.
    pub generation: u32,
}

/// How many replies are kept for a waiter that has not come to look yet. What comes beyond is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// One answer, and what may come beside it.
    Answer,
    /// All records of a batch and its end.
    Batch,
}

impl Room {
    fn replies(self) -> usize {
        match self {
            Room::Answer => MOST_REPLIES,
            Room::Batch => MOST_RECORDS + 1,
        }
    }
}

/// What a waiter is told.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// A reply came.
    Reply(T),
    /// It is time to ask again.
    Resend,
    /// The deadline passed.
    Expired,
    /// The connection went away.
    Failed,
}

/// What became of a reply.
#[derive(Debug)]
pub enum Delivery {
    /// Its waiter has it; the task to wake, if it was asleep.
    Taken(Option<Waker>),
    /// Nobody waits for it any more.
    Late,
}

struct Waiter<T> {
    generation: u32,
    live: bool,
    room: Room,
    replies: VecDeque<T>,
    waker: Option<Waker>,
    deadline: Tick,
    resend: Tick,
    resend_due: bool,
    expired: bool,
    failed: bool,
    /// The bucket whose list this waiter is in.
    bucket: u32,
    /// Neighbours in the bucket's list; for a free slot, `next` is the next free one.
    previous: u32,
    next: u32,
}

impl<T> Waiter<T> {
    fn due(&self) -> Tick {
        self.deadline.min(self.resend)
    }
}

/// The waiters of one connection.
pub struct Waiters<T> {
    slots: Vec<Waiter<T>>,
    free: u32,
    live: usize,
    heads: [u32; BUCKETS],
    /// One bit per bucket that has waiters.
    occupied: [u64; BUCKETS / 64],
    /// Every bucket up to this tick has been looked through.
    now: Tick,
}

impl<T> Waiters<T> {
    /// Room for `capacity` waiters; more are made room for when they come.
    pub fn with_capacity(capacity: usize) -> Waiters<T> {
        Waiters {
            slots: Vec::with_capacity(capacity),
            free: NONE,
            live: 0,
            heads: [NONE; BUCKETS],
            occupied: [0; BUCKETS / 64],
            now: 0,
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// A new waiter that expires at `deadline` and is told at `resend`, if that comes first, to ask again.
    pub fn insert(&mut self, deadline: Tick, resend: Tick, room: Room) -> Key {
        let slot = if self.free == NONE {
            let slot = u32::try_from(self.slots.len()).expect("memory ends long before 2^32 waiters");
            self.slots.push(Waiter {
                generation: 0,
                live: false,
                room,
                replies: VecDeque::new(),
                waker: None,
                deadline,
                resend,
                resend_due: false,
                expired: false,
                failed: false,
                bucket: NONE,
                previous: NONE,
                next: NONE,
            });
            slot
        } else {
            let slot = self.free;
            self.free = self.slots[slot as usize].next;
            slot
        };
        let waiter = &mut self.slots[slot as usize];
        waiter.live = true;
        waiter.room = room;
        (waiter.deadline, waiter.resend) = (deadline, resend);
        (waiter.resend_due, waiter.expired, waiter.failed) = (false, false, false);
        let key = Key { slot, generation: waiter.generation };
        self.live += 1;
        self.link(slot);
        key
    }

    /// Forgets a waiter, and what it has not looked at.
    pub fn remove(&mut self, key: Key) {
        if self.find(key).is_none() {
            return;
        }
        self.unlink(key.slot);
        let free = self.free;
        let waiter = &mut self.slots[key.slot as usize];
        waiter.live = false;
        waiter.generation = waiter.generation.wrapping_add(1);
        match waiter.room {
            Room::Answer => waiter.replies.clear(),
            // The next one in the slot most likely waits for one answer.
            Room::Batch => waiter.replies = VecDeque::new(),
        }
        waiter.waker = None;
        waiter.next = free;
        self.free = key.slot;
        self.live -= 1;
    }

    /// Hands a reply to the waiter it names. One that waits for a batch sleeps until the reply that `ends` it, or until its
    /// time comes: to be woken for every record would cost more than to take them.
    pub fn deliver(&mut self, key: Key, reply: T, ends: bool) -> Delivery {
        match self.find(key) {
            Some(waiter) if waiter.replies.len() < waiter.room.replies() => {
                waiter.replies.push_back(reply);
                let wakes = ends || waiter.room == Room::Answer;
                Delivery::Taken(if wakes { waiter.waker.take() } else { None })
            }
            _ => Delivery::Late,
        }
    }

    /// What `key` is to be told next. Replies come before the end, so that an answer that made it is not lost to a deadline
    /// that passed while its task slept.
    ///
    /// # Panics
    /// When the waiter was removed.
    pub fn poll(&mut self, key: Key, context: &mut Context<'_>) -> Poll<Event<T>> {
        let waiter = self.find(key).expect("a waiter is polled only by its owner, who removes it");
        if let Some(reply) = waiter.replies.pop_front() {
            return Poll::Ready(Event::Reply(reply));
        }
        if waiter.failed {
            return Poll::Ready(Event::Failed);
        }
        if waiter.expired {
            return Poll::Ready(Event::Expired);
        }
        if std::mem::take(&mut waiter.resend_due) {
            return Poll::Ready(Event::Resend);
        }
        match &mut waiter.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Wakes `waker` when there is something to be told; now, if there is.
    ///
    /// # Panics
    /// When the waiter was removed.
    pub fn wake_for(&mut self, key: Key, waker: &Waker) {
        let waiter = self.find(key).expect("a waiter is asked only by its owner, who removes it");
        if waiter.replies.is_empty() && !waiter.failed && !waiter.expired && !waiter.resend_due {
            waiter.waker = Some(waker.clone());
        } else {
            waker.wake_by_ref();
        }
    }

    /// Sets when the waiter is next told to ask again.
    pub fn resend_at(&mut self, key: Key, resend: Tick) {
        self.retime(key, |waiter| waiter.resend = resend);
    }

    /// Ends the waiter no later than `deadline`, without asking again before.
    pub fn end_by(&mut self, key: Key, deadline: Tick) {
        self.retime(key, |waiter| {
            waiter.deadline = waiter.deadline.min(deadline);
            waiter.resend = NEVER;
        });
    }

    fn retime(&mut self, key: Key, change: impl FnOnce(&mut Waiter<T>)) {
        if let Some(waiter) = self.find(key) {
            change(waiter);
            let over = waiter.expired || waiter.failed;
            self.unlink(key.slot);
            if !over {
                self.link(key.slot);
            }
        }
    }

    /// Brings the wheel to `now`: tasks to wake, because their time has come, are added to `wake`.
    pub fn advance(&mut self, now: Tick, wake: &mut Vec<Waker>) {
        if now <= self.now {
            return;
        }
        // After a full turn every bucket has been seen.
        let first = (self.now + 1).max(now.saturating_sub(BUCKETS as Tick - 1));
        self.now = now;
        for tick in first..=now {
            let bucket = bucket(tick);
            if self.occupied[bucket / 64] & (1 << (bucket % 64)) == 0 {
                continue;
            }
            let mut slot = self.heads[bucket];
            while slot != NONE {
                let waiter = &mut self.slots[slot as usize];
                let next = waiter.next;
                if waiter.due() <= now {
                    if waiter.deadline <= now {
                        waiter.expired = true;
                    } else {
                        waiter.resend_due = true;
                        waiter.resend = NEVER;
                    }
                    wake.extend(waiter.waker.take());
                    let expired = waiter.expired;
                    self.unlink(slot);
                    if !expired {
                        self.link(slot);
                    }
                }
                slot = next;
            }
        }
    }

    /// The next tick at which [`Waiters::advance`] may have something to do; `None` while nobody waits for time to pass.
    pub fn next_due(&self) -> Option<Tick> {
        (1..=BUCKETS as Tick).map(|ahead| self.now + ahead).find(|&tick| {
            let bucket = bucket(tick);
            self.occupied[bucket / 64] & (1 << (bucket % 64)) != 0
        })
    }

    /// Tells every waiter that the connection is gone.
    pub fn fail_all(&mut self, wake: &mut Vec<Waker>) {
        for slot in 0..self.slots.len() as u32 {
            if self.slots[slot as usize].live {
                self.unlink(slot);
                let waiter = &mut self.slots[slot as usize];
                waiter.failed = true;
                wake.extend(waiter.waker.take());
            }
        }
    }

    fn find(&mut self, key: Key) -> Option<&mut Waiter<T>> {
        self.slots.get_mut(key.slot as usize).filter(|waiter| waiter.live && waiter.generation == key.generation)
    }

    fn link(&mut self, slot: u32) {
        // What is due already goes into the next bucket to be looked through.
        let due = self.slots[slot as usize].due();
        if due == NEVER {
            return;
        }
        let bucket = bucket(due.max(self.now + 1));
        let head = std::mem::replace(&mut self.heads[bucket], slot);
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
        if head != NONE {
            self.slots[head as usize].previous = slot;
        }
        let waiter = &mut self.slots[slot as usize];
        (waiter.bucket, waiter.previous, waiter.next) = (bucket as u32, NONE, head);
    }

    fn unlink(&mut self, slot: u32) {
        let waiter = &mut self.slots[slot as usize];
        let bucket = std::mem::replace(&mut waiter.bucket, NONE);
        if bucket == NONE {
            return;
        }
        let (previous, next) = (waiter.previous, waiter.next);
        (waiter.previous, waiter.next) = (NONE, NONE);
        if next != NONE {
            self.slots[next as usize].previous = previous;
        }
        if previous != NONE {
            self.slots[previous as usize].next = next;
        } else {
            self.heads[bucket as usize] = next;
            if next == NONE {
                self.occupied[bucket as usize / 64] &= !(1 << (bucket % 64));
            }
        }
    }
}

fn bucket(tick: Tick) -> usize {
    (tick % BUCKETS as Tick) as usize
}

#[cfg(test)]
mod tests;
