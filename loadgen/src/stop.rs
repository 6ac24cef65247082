//! How the parts of a run hear when it is over, what they let go of then, and how what is under way comes to its end.
//!
//! The end is an instant, known ahead of time unless somebody interrupts. What is due before it is done, what is due at it or
//! later never begins, whichever task happens to look first.

use std::time::Duration;

use engine::env::{Env, Mono};
use engine::tasks::Task;
use futures_util::future::join_all;
use tokio::sync::watch;

use crate::recorder::Op;
use crate::timer::Timer;

/// How long operations under way at the end may take to be answered; each has a deadline of its own.
const DRAIN: Duration = Duration::from_secs(30);

/// Waits until what is under way is answered, or has run into its own deadline. Answers whether all of these tasks ended.
pub(crate) async fn drained(env: &Env, tasks: Vec<Task<()>>) -> bool {
    env.within(env.now() + DRAIN, join_all(tasks.into_iter().map(Task::join))).await.is_ok()
}

/// Says when a run is over.
pub(crate) struct Over(watch::Sender<Option<Mono>>);

impl Over {
    pub(crate) fn new() -> (Over, Stop) {
        let (over, stop) = watch::channel(None);
        (Over(over), Stop(stop))
    }

    /// The run is over at `at`, unless it is over sooner.
    pub(crate) fn at(&self, at: Mono) {
        self.0.send_if_modified(|end| {
            let sooner = end.is_none_or(|end| at < end);
            if sooner {
                *end = Some(at);
            }
            sooner
        });
    }

    /// When it is over, as far as is known.
    pub(crate) fn end(&self) -> Option<Mono> {
        *self.0.borrow()
    }
}

/// Tells a part of a run when it is over.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<Option<Mono>>);

impl Stop {
    pub(crate) fn is_over(&self, env: &Env) -> bool {
        self.0.borrow().is_some_and(|end| end <= env.now())
    }

    /// Waits until the run is over.
    pub(crate) async fn over(&self, env: &Env) {
        let mut end = self.0.clone();
        loop {
            let known = *end.borrow_and_update();
            let changed = match known {
                None => end.changed().await,
                Some(at) => match env.within(at, end.changed()).await {
                    Ok(changed) => changed,
                    Err(_) => return,
                },
            };
            // Nobody is left who could say more.
            if changed.is_err() {
                return;
            }
        }
    }

    /// Waits until `at`; answers `true`, at once, when the run is over by then or already.
    pub(crate) async fn before(&self, env: &Env, timer: &mut Timer, at: Mono) -> bool {
        let mut end = self.0.clone();
        tokio::select! {
            biased;
            _ = end.wait_for(|end| end.is_some_and(|end| end <= at.max(env.now()))) => true,
            () = timer.wait_until(env, at) => false,
        }
    }

    /// Counts as dropped what was due before the end and was not started: at each of these instants, in order.
    pub(crate) fn let_go(&self, op: &Op, due: impl Iterator<Item = Mono>) {
        let Some(end) = *self.0.borrow() else { return };
        due.take_while(|at| *at < end).for_each(|at| drop(op.arrival(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Recorder;

    const S: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn what_is_due_at_the_end_does_not_begin() {
        let (env, mut timer) = (Env::seeded(1), Timer::default());
        let start = env.now();
        let (over, stop) = Over::new();
        assert!(!stop.before(&env, &mut timer, start + S).await);
        over.at(start + S * 10);
        over.at(start + S * 11);
        assert!(!stop.before(&env, &mut timer, start + S * 9).await);
        assert_eq!(env.now(), start + S * 9);
        assert!(stop.before(&env, &mut timer, start + S * 10).await && !stop.is_over(&env));
        stop.over(&env).await;
        assert!(env.now() == start + S * 10 && stop.is_over(&env));
        assert!(stop.before(&env, &mut timer, start + S * 9).await, "too late for what was missed");
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_ends_is_waited_for_no_longer_than_a_drain() {
        let env = Env::seeded(1);
        let start = env.now();
        let after = |wait: Duration| {
            let env = env.clone();
            engine::tasks::spawn(async move { env.sleep(wait).await })
        };
        assert!(drained(&env, vec![after(S), after(S * 3)]).await);
        assert_eq!(env.now(), start + S * 3);
        assert!(!drained(&env, vec![after(S), after(DRAIN * 2)]).await);
        assert_eq!(env.now(), start + S * 3 + DRAIN);
    }

    #[tokio::test(start_paused = true)]
    async fn an_interruption_wakes_who_waits_and_the_missed_are_dropped() {
        let (env, mut timer) = (Env::seeded(1), Timer::default());
        let start = env.now();
        let (over, stop) = Over::new();
        over.at(start + S * 10);
        let interrupted = async {
            env.sleep(S * 3).await;
            over.at(env.now());
        };
        let (stopped, ()) = tokio::join!(stop.before(&env, &mut timer, start + S * 5), interrupted);
        assert!(stopped && env.now() == start + S * 3);
        let mut recorder = Recorder::new(start);
        recorder.measure_from(start);
        let op = recorder.declare("claim");
        stop.let_go(&op, (0..).map(|i| start + S * i));
        assert_eq!((recorder.totals().scheduled, recorder.totals().dropped()), (3, 3), "at 0, 1 and 2 s");
    }
}
