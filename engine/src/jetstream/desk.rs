//! Where replies meet those who wait for them: the waiters of one connection, and the two tasks that serve them.

use std::fmt::Write as _;
use std::future::poll_fn;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_nats::{Message, Subject};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::counters::{Counters, add};
use super::waiters::{Delivery, Event, Key, NEVER, Room, Tick, Waiters};
use crate::env::{Env, Mono};

/// The wheel's resolution. A deadline is kept to within it, never early.
const TICK_MS: u64 = 5;
/// Subjects and small bodies are carved from blocks of this size.
const BLOCK: usize = 64 * 1024;

/// Whether the connection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// It stands, as far as was heard.
    pub up: bool,
    /// How often it was lost. Whoever depends on an unbroken connection compares this, since a short break is easy to miss.
    pub losses: u64,
}

/// The waiters of one connection.
pub(super) struct Desk {
    env: Env,
    start: Mono,
    /// Reply subjects are this, a slot, a dot, and a generation.
    prefix: Box<str>,
    board: Mutex<Board>,
    /// Something is due before the wheel's task meant to look.
    sooner: Notify,
    pub(super) link: watch::Sender<Link>,
    pub(super) counters: Counters,
}

struct Board {
    waiters: Waiters<Message>,
    /// When the wheel's task will look next.
    looks_at: Tick,
    block: BytesMut,
}

impl Desk {
    /// `prefix` ends in a dot; `capacity` is how many may wait without growing.
    pub(super) fn new(env: Env, prefix: &str, capacity: usize) -> Desk {
        let board =
            Board { waiters: Waiters::with_capacity(capacity), looks_at: NEVER, block: BytesMut::with_capacity(BLOCK) };
        Desk {
            start: env.now(),
            env,
            prefix: prefix.into(),
            board: Mutex::new(board),
            sooner: Notify::new(),
            link: watch::Sender::new(Link::default()),
            counters: Counters::default(),
        }
    }

    /// Writes a subject or a small body without an allocation of its own.
    pub(super) fn carve(&self, write: impl FnOnce(&mut BytesMut)) -> Bytes {
        carve(&mut self.board.lock().block, write)
    }

    /// Starts waiting: the waiter, and the subject that replies to it carry.
    pub(super) fn wait(&self, deadline: Mono, resend: Option<Mono>, room: Room) -> (Waiting<'_>, Subject) {
        let deadline = self.tick_after(deadline);
        let resend = resend.map_or(NEVER, |at| self.tick_after(at));
        let mut board = self.board.lock();
        let key = board.waiters.insert(deadline, resend, room);
        let reply = carve(&mut board.block, |block| {
            block.put_slice(self.prefix.as_bytes());
            // Writing into a buffer that grows does not fail.
            let _ = write!(block, "{}.{}", key.slot, key.generation);
        });
        self.look_by(board, deadline.min(resend));
        (Waiting { desk: self, key }, Subject::try_from(reply).expect("a str and digits are UTF-8"))
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.board.lock().waiters.len()
    }

    /// Hands a reply over; wakes outside the lock.
    fn deliver(&self, message: Message) {
        add(&self.counters.bytes_in, message.length);
        // A record of a batch has no status, and its end is one.
        let ends = message.status.is_some();
        let delivery = match self.key(&message.subject) {
            Some(key) => self.board.lock().waiters.deliver(key, message, ends),
            None => Delivery::Late,
        };
        match delivery {
            Delivery::Taken(Some(waker)) => waker.wake(),
            Delivery::Taken(None) => {}
            Delivery::Late => add(&self.counters.late, 1),
        }
    }

    fn key(&self, subject: &str) -> Option<Key> {
        let (slot, generation) = subject.strip_prefix(&*self.prefix)?.split_once('.')?;
        Some(Key { slot: slot.parse().ok()?, generation: generation.parse().ok()? })
    }

    /// Drains the reply subscription. It does nothing else, so that the subscription's buffer, which drops what does not fit,
    /// never fills.
    pub(super) async fn take_replies(&self, mut replies: async_nats::Subscriber) {
        while let Some(message) = replies.next().await {
            self.deliver(message);
        }
    }

    /// Turns the wheel. Sleeps as long as nobody's time comes, and without a timer while nobody waits.
    pub(super) async fn turn_wheel(&self) {
        let mut wake = Vec::new();
        loop {
            let next = {
                let mut board = self.board.lock();
                let now = self.tick_before(self.env.now());
                board.waiters.advance(now, &mut wake);
                let next = board.waiters.next_due();
                board.looks_at = next.unwrap_or(NEVER);
                next
            };
            wake.drain(..).for_each(Waker::wake);
            match next {
                None => self.sooner.notified().await,
                Some(tick) => {
                    let at = self.start + Duration::from_millis(tick * TICK_MS);
                    tokio::select! {
                        () = self.env.sleep_until(at) => {}
                        () = self.sooner.notified() => {}
                    }
                }
            }
        }
    }

    /// The connection stands, unless it was lost already.
    pub(super) fn first_connected(&self) {
        self.link.send_modify(|link| link.up |= link.losses == 0);
    }

    /// The connection stands.
    pub(super) fn connected(&self) {
        self.link.send_modify(|link| link.up = true);
    }

    /// The connection went away: nobody who waits will get an answer over it.
    pub(super) fn lost(&self) {
        self.counters.disconnects.fetch_add(1, Relaxed);
        let mut wake = Vec::new();
        self.board.lock().waiters.fail_all(&mut wake);
        self.link.send_modify(|link| *link = Link { up: false, losses: link.losses + 1 });
        wake.into_iter().for_each(Waker::wake);
    }

    fn look_by(&self, mut board: parking_lot::MutexGuard<'_, Board>, tick: Tick) {
        if tick < board.looks_at {
            board.looks_at = tick;
            drop(board);
            self.sooner.notify_one();
        }
    }

    fn tick_before(&self, at: Mono) -> Tick {
        at.since(self.start).as_millis() as Tick / TICK_MS
    }

    fn tick_after(&self, at: Mono) -> Tick {
        (at.since(self.start).as_nanos() as Tick).div_ceil(TICK_MS * 1_000_000)
    }
}

fn carve(block: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) -> Bytes {
    if block.capacity() < 512 {
        *block = BytesMut::with_capacity(BLOCK);
    }
    write(block);
    block.split().freeze()
}

/// One who waits. Dropping it ends the wait.
pub(super) struct Waiting<'a> {
    desk: &'a Desk,
    key: Key,
}

impl Waiting<'_> {
    /// What happens next.
    pub(super) async fn next(&self) -> Event<Message> {
        poll_fn(|context| self.poll(context)).await
    }

    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Event<Message>> {
        self.desk.board.lock().waiters.poll(self.key, context)
    }

    /// Lets the task go on before the answer is looked at, however soon it comes: what the task asks at once is then asked
    /// before anything is answered, and one round trip is counted as one on any machine.
    pub(super) async fn turn(&self) {
        let mut turned = false;
        poll_fn(|context| {
            if std::mem::replace(&mut turned, true) {
                return Poll::Ready(());
            }
            self.desk.board.lock().waiters.wake_for(self.key, context.waker());
            Poll::Pending
        })
        .await;
    }

    /// Asks again at `at`.
    pub(super) fn resend_at(&self, at: Mono) {
        let tick = self.desk.tick_after(at);
        let mut board = self.desk.board.lock();
        board.waiters.resend_at(self.key, tick);
        self.desk.look_by(board, tick);
    }

    /// Waits no longer than until `at`.
    pub(super) fn end_by(&self, at: Mono) {
        let tick = self.desk.tick_after(at);
        let mut board = self.desk.board.lock();
        board.waiters.end_by(self.key, tick);
        self.desk.look_by(board, tick);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.desk.board.lock().waiters.remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::tasks::{self, Task};

    fn desk() -> (Arc<Desk>, Task<()>) {
        let desk = Arc::new(Desk::new(Env::seeded(1), "_INBOX.x.", 8));
        let wheel = desk.clone();
        (desk, tasks::spawn(async move { wheel.turn_wheel().await }))
    }

    fn message(subject: Subject) -> Message {
        Message {
            subject,
            reply: None,
            payload: Bytes::new(),
            headers: None,
            status: None,
            description: None,
            length: 0,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_is_kept_to_the_tick_and_never_early() {
        let (desk, _wheel) = desk();
        for wait_ms in [0, 1, 5, 999, 7001] {
            let (start, wait) = (desk.env.now(), Duration::from_millis(wait_ms));
            let (waiting, _) = desk.wait(start + wait, None, Room::Answer);
            assert!(matches!(waiting.next().await, Event::Expired));
            let waited = desk.env.now().since(start);
            assert!(waited >= wait && waited <= wait + Duration::from_millis(2 * TICK_MS), "{wait:?} {waited:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_nearer_deadline_is_kept_while_the_wheel_sleeps_for_a_farther_one() {
        let (desk, _wheel) = desk();
        let start = desk.env.now();
        let (far, _) = desk.wait(start + Duration::from_secs(3), None, Room::Answer);
        desk.env.sleep(Duration::from_millis(100)).await;
        let (near, _) = desk.wait(start + Duration::from_millis(200), None, Room::Answer);
        assert!(matches!(near.next().await, Event::Expired));
        assert!(desk.env.now().since(start) < Duration::from_millis(220));
        far.end_by(start + Duration::from_millis(300));
        assert!(matches!(far.next().await, Event::Expired));
        assert!(desk.env.now().since(start) < Duration::from_millis(320));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waiting_arms_no_timer() {
        let (desk, wheel) = desk();
        let (waiting, _) = desk.wait(desk.env.now() + Duration::from_secs(1), None, Room::Answer);
        drop(waiting);
        desk.env.sleep(Duration::from_secs(3600)).await;
        assert_eq!(desk.board.lock().looks_at, NEVER);
        assert_eq!(desk.waiting(), 0);
        assert!(!wheel.is_finished());
    }

    #[tokio::test]
    async fn a_reply_finds_its_waiter_by_its_subject_alone() {
        let (desk, _wheel) = desk();
        let far = desk.env.now() + Duration::from_secs(3600);
        let (first, to_first) = desk.wait(far, None, Room::Answer);
        let (second, to_second) = desk.wait(far, None, Room::Answer);
        assert_eq!((&*to_first, &*to_second), ("_INBOX.x.0.0", "_INBOX.x.1.0"));
        drop(first);
        desk.deliver(message(to_first));
        for nonsense in ["_INBOX.x.1", "_INBOX.x.1.", "_INBOX.x.1.0.0", "_INBOX.y.1.0", "_INBOX.x.-1.0", "_INBOX.x.9.0"]
        {
            desk.deliver(message(Subject::from_static(nonsense)));
        }
        assert_eq!(desk.counters.late.load(Relaxed), 7);
        desk.deliver(message(to_second));
        assert!(matches!(second.next().await, Event::Reply(_)));
        let (_third, to_third) = desk.wait(far, None, Room::Answer);
        assert_eq!(&*to_third, "_INBOX.x.0.1");
    }

    #[tokio::test]
    async fn losing_the_connection_tells_everybody() {
        let (desk, _wheel) = desk();
        let mut link = desk.link.subscribe();
        desk.first_connected();
        assert_eq!(*link.borrow_and_update(), Link { up: true, losses: 0 });
        let (waiting, _) = desk.wait(desk.env.now() + Duration::from_secs(3600), None, Room::Answer);
        desk.lost();
        assert!(matches!(waiting.next().await, Event::Failed));
        desk.first_connected();
        assert_eq!(*link.borrow_and_update(), Link { up: false, losses: 1 });
        desk.connected();
        assert_eq!(*link.borrow_and_update(), Link { up: true, losses: 1 });
    }
}
