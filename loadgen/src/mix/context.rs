//! What every deed of a mix works with.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use coordproto::answer::Error;
use coordproto::window::Windows;
use engine::env::{Env, Mono};
use engine::jetstream::Meter;
use engine::store::Store;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use super::account::{Accounts, Rising, Said, Verdict};
use super::alarm::Alarm;
use super::node::Node;
use super::ops::Ops;
use crate::fleet;
use crate::recorder::Outcome;
use crate::stop::Stop;

/// What every deed works with.
pub(super) struct Context<S: Store> {
    pub(super) env: Env,
    pub(super) ops: Ops,
    pub(super) accounts: Accounts,
    /// That of the nodes that hold seats, with the account of the leases.
    pub(super) beat: fleet::Context,
    pub(super) nodes: Vec<Node<S>>,
    /// What each node calls itself when it claims a duty.
    pub(super) owners: Vec<String>,
    /// The epoch that each node has applied.
    pub(super) applied: Vec<AtomicU64>,
    /// The pauses that each node has heard of, by handle; none before it has heard of all.
    pub(super) heard: Vec<Mutex<Option<HashMap<String, u64>>>>,
    pub(super) seats: usize,
    pub(super) seed: u64,
    /// One instant on both clocks.
    pub(super) began: (Mono, Timestamp),
    /// Those of the run's beginning, so that a run over midnight counts in one day.
    pub(super) windows: Windows,
    pub(super) stop: Stop,
    pub(super) alarm: Alarm,
    pub(super) rising: Mutex<HashMap<String, Option<Rising>>>,
}

impl<S: Store> Context<S> {
    /// Asks one thing that was to be asked at `due`, and records it. `yes` says which answers are a definite yes.
    pub(super) async fn ask<T, E>(
        &self,
        name: &'static str,
        due: Mono,
        yes: impl Fn(&T) -> bool,
        question: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E>
    where
        E: Clone + Into<Error>,
    {
        let started = self.ops.of(name).arrival(due).start(self.env.now());
        let (answer, cost) = Meter::measure(question).await;
        let outcome = Outcome::of(&answer, yes);
        started.finish(outcome, self.env.now(), cost.requests);
        if let Err(error) = &answer {
            let error: Error = error.clone().into();
            tracing::debug!(name, %error, "mix_unanswered");
        }
        answer
    }

    /// Waits until `at`; answers whether the run is over by then.
    pub(super) async fn over_by(&self, at: Mono) -> bool {
        tokio::select! {
            biased;
            () = self.stop.over(&self.env) => true,
            () = self.alarm.wait_until(at) => self.stop.is_over(&self.env),
        }
    }

    /// Counts what an account found wrong.
    pub(super) fn judge(&self, verdict: Verdict, about: impl std::fmt::Display) {
        self.accounts.found.count(verdict, about);
    }

    /// The wall clock, as it goes on from the run's beginning: one that is set meanwhile moves no window.
    pub(super) fn wall(&self) -> Timestamp {
        let (mono, wall) = self.began;
        let since = SignedDuration::try_from(self.env.now().since(mono)).unwrap_or(SignedDuration::MAX);
        wall.saturating_add(since).unwrap_or(Timestamp::MAX)
    }

    /// The node that a number falls on.
    pub(super) fn node(&self, number: u64) -> &Node<S> {
        &self.nodes[(number % self.nodes.len() as u64) as usize]
    }

    /// Takes the account of a record, if no other deed has it: one at a time writes it.
    pub(super) fn take(&self, key: &str) -> Option<Rising> {
        self.rising.lock().entry(key.to_owned()).or_insert_with(|| Some(Rising::default())).take()
    }

    /// Gives the account of a record back. One that is never given back is of a record that nobody can be sure of any more:
    /// a write that expects nothing and has no answer may land at any time.
    pub(super) fn give_back(&self, key: &str, account: Rising) {
        self.rising.lock().insert(key.to_owned(), Some(account));
    }

    /// A number that stands for the epoch a node has applied.
    pub(super) fn applied(&self, node: usize) -> u64 {
        self.applied[node].load(Ordering::Relaxed)
    }
}

/// What an answer is in a race.
pub(super) fn said<T, E>(answer: &Result<T, E>, won: impl Fn(&T) -> bool) -> Said {
    match answer {
        Ok(answer) if won(answer) => Said::Won,
        Ok(_) => Said::Lost,
        Err(_) => Said::Unknown,
    }
}

/// A number as an instant, to the second: what a record keeps that has no other field for it.
pub(super) fn instant(number: u64) -> Timestamp {
    Timestamp::from_second(i64::try_from(number).unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX)
}

/// The number that such an instant stands for; none that was ever sent where it stands for none.
pub(super) fn number(at: Timestamp) -> u64 {
    u64::try_from(at.as_second()).unwrap_or(u64::MAX)
}
