//! Waiting for many instants at once as finely as for one: a single kernel timer serves every turn that waits for its next
//! round, since a timer of its own for each would take as many open files.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use engine::env::{Env, Mono};
use tokio::sync::{mpsc, oneshot};

use crate::timer::Timer;

/// Wakes whoever asks it to.
#[derive(Clone)]
pub(super) struct Alarm(mpsc::UnboundedSender<(Mono, oneshot::Sender<()>)>);

/// The other end of an [`Alarm`].
pub(super) struct Bell(mpsc::UnboundedReceiver<(Mono, oneshot::Sender<()>)>);

impl Alarm {
    pub(super) fn new() -> (Alarm, Bell) {
        let (asks, asked) = mpsc::unbounded_channel();
        (Alarm(asks), Bell(asked))
    }

    /// Waits until `at`; for ever where nobody [rings](Bell::ring) any more.
    pub(super) async fn wait_until(&self, at: Mono) {
        let (wake, woken) = oneshot::channel();
        if self.0.send((at, wake)).is_err() || woken.await.is_err() {
            std::future::pending().await
        }
    }
}

impl Bell {
    /// Wakes whoever asks, each at its instant, until nobody can ask any more.
    pub(super) async fn ring(mut self, env: Env) {
        let (mut timer, mut number) = (Timer::default(), 0_u64);
        let mut due: BinaryHeap<Reverse<(Mono, u64)>> = BinaryHeap::new();
        let mut waiting = std::collections::HashMap::new();
        loop {
            let next = due.peek().map(|Reverse((at, _))| *at);
            let until_next = async {
                match next {
                    Some(at) => timer.wait_until(&env, at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                asked = self.0.recv() => {
                    let Some((at, wake)) = asked else { return };
                    number += 1;
                    due.push(Reverse((at, number)));
                    waiting.insert(number, wake);
                }
                () = until_next => {
                    if let Some(Reverse((_, number))) = due.pop()
                        && let Some(wake) = waiting.remove(&number)
                    {
                        // Whoever went away meanwhile does not hear it.
                        let _unheard = wake.send(());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::tasks;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn everybody_is_woken_at_the_instant_asked_for() {
        let env = Env::seeded(1);
        let (alarm, bell) = Alarm::new();
        let _ringing = tasks::spawn(bell.ring(env.clone()));
        let start = env.now();
        let wait = async |seconds: u64| {
            alarm.wait_until(start + Duration::from_secs(seconds)).await;
            env.now().since(start).as_secs()
        };
        assert_eq!(tokio::join!(wait(5), wait(0), wait(9), wait(5)), (5, 0, 9, 5));
    }
}
