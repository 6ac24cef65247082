//! The work itself, the same for every peer: one piece of it at a time, and what it came to.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::env::{Env, Mono};
use engine::tasks;
use futures_util::future::join_all;

use super::listed::{Account, Listed, Wrongs, key};
use super::peer::{Charged, Failed, Peer, Renewed};
use super::turns::Renewal;
use super::{Params, pace};
use crate::histogram::Samples;
use crate::recorder::{Op, Outcome};

/// How many keys of a class are rewritten while it is listed under churn.
const CHURNED: usize = 3;

/// How many listings there are in a turn at least, however long they take.
const LISTINGS: u64 = 3;

/// What one piece of work came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Piece {
    /// Operations that were answered yes.
    pub(super) ok: u64,
    /// In what time.
    pub(super) took: Duration,
    /// Of those that were answered, from the first request to the answer.
    pub(super) latency: Samples,
    /// Answers that are wrong.
    pub(super) wrong: u64,
    /// Operations without a definite answer, those that were given up among them.
    pub(super) unknown: u64,
    /// What was wrong with the wrong ones, where they are listings that were read.
    pub(super) listed: Option<Wrongs>,
}

impl Piece {
    /// Adds what others did of the same work. A listing is one reader's, and is not added to.
    pub(super) fn add(&mut self, other: Piece) {
        self.ok += other.ok;
        self.wrong += other.wrong;
        self.unknown += other.unknown;
        self.latency.add(&other.latency);
    }

    /// Adds the answers to renewals that were all there so long after they were due.
    fn renewed(&mut self, Renewed { kept, lost, unknown }: Renewed, latency: Duration) {
        self.ok += kept;
        self.wrong += lost;
        self.unknown += unknown;
        if kept > 0 {
            self.latency.record(latency);
        }
    }

    /// Whether a turn of listings may be over.
    pub(super) fn has_listings(&self) -> bool {
        self.ok + self.unknown >= LISTINGS
    }
}

/// One peer's part of a run, with where its operations are recorded.
#[derive(Clone)]
pub(super) struct Work<P> {
    pub(super) env: Env,
    pub(super) params: Params,
    pub(super) peer: P,
    /// What its listings are held against.
    pub(super) account: Account,
}

/// What one claimer came to: the piece, and for each node what it holds.
type Claimed<H> = (Piece, Vec<(usize, H)>);

impl<P: Peer> Work<P> {
    /// Claimers claim fresh seats by their numbers, each one after another, and read each back or do not. Wrong: a seat that
    /// nobody else wants and that is refused, or that its holder then reads as somebody else's or nobody's.
    pub(super) async fn claims(
        &self,
        op: &Op,
        round: usize,
        seats: Range<usize>,
        read_back: bool,
    ) -> (Piece, Vec<Vec<P::Held>>) {
        let Params { nodes, claimers, .. } = self.params;
        let began = self.env.now();
        let tasks = (0..claimers).map(|claimer| {
            let (env, peer, op, seats) = (self.env.clone(), self.peer.clone(), op.clone(), seats.clone());
            tasks::spawn(async move {
                let (mut piece, mut held) = (Piece::default(), Vec::new());
                for number in seats.skip(claimer).step_by(claimers) {
                    let (node, seat) = (number % nodes, format!("r{round}s{number}"));
                    let sent = env.now();
                    let started = op.arrival(sent).start(sent);
                    let answer = peer.claim(node, &seat).await;
                    let now = env.now();
                    let outcome = match &answer {
                        Ok(Some(_)) => Outcome::Ok,
                        Ok(None) => Outcome::Refused,
                        Err(_) => Outcome::Unknown,
                    };
                    started.finish(outcome, now, 0);
                    match answer {
                        Ok(Some(lease)) => {
                            piece.ok += 1;
                            piece.latency.record(now.since(sent));
                            held.push((node, lease));
                            if read_back {
                                match peer.is_mine(node, &seat).await {
                                    Ok(mine) => piece.wrong += u64::from(!mine),
                                    Err(failed) => piece.unknown += doubt(&failed),
                                }
                            }
                        }
                        Ok(None) => piece.wrong += 1,
                        Err(failed) => piece.unknown += doubt(&failed),
                    }
                }
                (piece, held)
            })
        });
        let tasks: Vec<tasks::Task<Claimed<P::Held>>> = tasks.collect();
        let mut piece = Piece::default();
        let mut all: Vec<Vec<P::Held>> = std::iter::repeat_with(Vec::new).take(nodes).collect();
        for task in tasks {
            let (part, held) = task.join().await;
            piece.add(part);
            held.into_iter().for_each(|(node, lease)| all[node].push(lease));
        }
        piece.took = self.env.now().since(began);
        (piece, all)
    }

    /// Renews everything once, in no figure: what only a first renewal does, such as opening a stream of answers, is in none. A
    /// seat that it is told is lost stays lost, and is counted by the renewals that are measured.
    pub(super) async fn settle(&self, held: &mut [Vec<P::Held>]) {
        for (node, held) in held.iter_mut().enumerate() {
            self.peer.renew(node, held).await;
        }
    }

    /// Every node renews what it holds: once within a heartbeat, or again and again until the time is over. Wrong: a seat that
    /// is said to be lost, since all were renewed in time.
    pub(super) async fn renewals(&self, op: &Op, held: &mut Vec<Vec<P::Held>>, how: Renewal) -> Piece {
        let Params { heartbeat, slice, .. } = self.params;
        let began = self.env.now();
        let tasks = std::mem::take(held).into_iter().enumerate().map(|(node, mut held)| {
            let (work, op) = (self.clone(), op.clone());
            tasks::spawn(async move {
                let mut piece = Piece::default();
                if how == Renewal::FlatOut {
                    while work.env.now() < began + slice {
                        let (renewed, latency) = work.renew(node, &mut held, &op, work.env.now(), how).await;
                        piece.renewed(renewed, latency);
                    }
                } else {
                    work.heartbeat(node, &mut held, &op, began, how, &mut piece).await;
                    work.env.sleep_until(began + heartbeat).await;
                }
                (piece, held)
            })
        });
        let tasks: Vec<tasks::Task<(Piece, Vec<P::Held>)>> = tasks.collect();
        let mut piece = Piece::default();
        for task in tasks {
            let (part, of_node) = task.join().await;
            piece.add(part);
            held.push(of_node);
        }
        piece.took = self.env.now().since(began);
        piece
    }

    /// A node's renewals of one heartbeat: all at its instant, or each at an instant of its own, whatever becomes of the others.
    async fn heartbeat(
        &self,
        node: usize,
        held: &mut [P::Held],
        op: &Op,
        began: Mono,
        how: Renewal,
        piece: &mut Piece,
    ) {
        let Params { heartbeat, nodes, .. } = self.params;
        let of_it = held.len();
        let apart = how == Renewal::Natural && self.peer.renews_apart();
        let due = |place: usize| match apart {
            true => pace::of_seat(heartbeat, (node, nodes), (place, of_it)),
            false => pace::of_node(heartbeat, node, nodes),
        };
        let at_once = if apart { 1 } else { of_it.max(1) };
        let renewals = held.chunks_mut(at_once).enumerate().map(|(place, held)| {
            let due = began + due(place);
            async move {
                self.env.sleep_until(due).await;
                self.renew(node, held, op, due, how).await
            }
        });
        join_all(renewals).await.into_iter().for_each(|(renewed, latency)| piece.renewed(renewed, latency));
    }

    /// One burst, which is done when its last answer is there; answers how long after it was due that was.
    async fn renew(&self, node: usize, held: &mut [P::Held], op: &Op, due: Mono, how: Renewal) -> (Renewed, Duration) {
        let started: Vec<_> = held.iter().map(|_| op.arrival(due).start(self.env.now())).collect();
        let renewed = match how {
            Renewal::Natural => self.peer.renew_naturally(node, held).await,
            Renewal::Bursts | Renewal::FlatOut => self.peer.renew(node, held).await,
        };
        let now = self.env.now();
        let Renewed { kept, lost, unknown } = renewed;
        let outcomes = [(Outcome::Ok, kept), (Outcome::Refused, lost), (Outcome::Unknown, unknown)];
        let outcomes = outcomes.into_iter().flat_map(|(outcome, times)| (0..times).map(move |_| outcome));
        started.into_iter().zip(outcomes).for_each(|(started, outcome)| started.finish(outcome, now, 0));
        (renewed, now.since(due))
    }

    /// Writes the keys of a class.
    pub(super) async fn load(&self, class: &'static str, keys: usize) -> Result<(), String> {
        const AT_ONCE: usize = 64;
        for from in (0..keys).step_by(AT_ONCE) {
            let written = join_all((from..keys.min(from + AT_ONCE)).map(|number| self.write(class, number))).await;
            written.into_iter().collect::<Result<(), _>>()?;
        }
        Ok(())
    }

    async fn write(&self, class: &'static str, number: usize) -> Result<(), Failed> {
        let revision = self.peer.write(class, &key(number)).await?;
        self.account.stored(class, number, revision);
        Ok(())
    }

    /// A reader lists a class again and again, while some of its keys are rewritten in tight loops or none is. What a listing
    /// stands on is made before it, and not in its time. Wrong: a listing that lacks a key, since all of them are there
    /// throughout, that has one twice, or that has one older than was acknowledged before what it stands on.
    pub(super) async fn listings<S>(
        &self,
        op: &Op,
        class: &'static str,
        churn: bool,
        stand: impl AsyncFn() -> Result<S, Failed>,
        list: impl AsyncFn(S) -> Result<Vec<Listed>, Failed>,
    ) -> Piece {
        let keys = self.params.keys(class);
        let over = Arc::new(AtomicBool::new(false));
        let churned = if churn { CHURNED.min(keys) } else { 0 };
        let writers = (0..churned).map(|number| {
            let (over, work) = (over.clone(), self.clone());
            tasks::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    if let Err(failed) = work.write(class, number).await {
                        tracing::debug!(failed, "peer_write_unknown");
                        tokio::task::yield_now().await;
                    }
                }
            })
        });
        let writers: Vec<tasks::Task<()>> = writers.collect();
        let began = self.env.now();
        let (mut piece, mut wrongs) = (Piece::default(), Wrongs::default());
        while !piece.has_listings() || self.env.now() < began + self.params.slice {
            let before = self.account.before(class);
            let stands_on = match stand().await {
                Ok(stands_on) => stands_on,
                Err(failed) => {
                    piece.unknown += doubt(&failed);
                    continue;
                }
            };
            let sent = self.env.now();
            let started = op.arrival(sent).start(sent);
            let answer = list(stands_on).await;
            let now = self.env.now();
            started.finish(if answer.is_ok() { Outcome::Ok } else { Outcome::Unknown }, now, 0);
            match answer {
                Ok(listed) => {
                    piece.ok += 1;
                    piece.latency.record(now.since(sent));
                    piece.wrong += u64::from(wrongs.told(before.check(&listed)));
                }
                Err(failed) => piece.unknown += doubt(&failed),
            }
        }
        (piece.took, piece.listed) = (self.env.now().since(began), Some(wrongs));
        over.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().await;
        }
        piece
    }

    /// Clients charge one company at once, each its own seat, wave after wave. Wrong: by how much the company's counter differs
    /// from what was acknowledged, as far as charges without an answer do not explain it.
    pub(super) async fn charges(&self, op: &Op) -> Result<Piece, String> {
        let (before, began) = (self.peer.charged().await?, self.env.now());
        let mut piece = Piece::default();
        let mut in_doubt = 0;
        while self.env.now() < began + self.params.slice {
            let wave = (0..self.params.charges).map(|client| {
                let (env, peer, op) = (self.env.clone(), self.peer.clone(), op.clone());
                tasks::spawn(async move {
                    let sent = env.now();
                    let started = op.arrival(sent).start(sent);
                    let answer = peer.charge(client).await;
                    let now = env.now();
                    let outcome = match &answer {
                        Ok(Charged::Counted) => Outcome::Ok,
                        Ok(Charged::GaveUp) => Outcome::Refused,
                        Err(_) => Outcome::Unknown,
                    };
                    started.finish(outcome, now, 0);
                    (answer, now.since(sent))
                })
            });
            let wave: Vec<tasks::Task<(Result<Charged, String>, Duration)>> = wave.collect();
            for client in wave {
                match client.join().await {
                    (Ok(Charged::Counted), latency) => {
                        piece.ok += 1;
                        piece.latency.record(latency);
                    }
                    (Ok(Charged::GaveUp), _) => piece.unknown += 1,
                    (Err(failed), _) => {
                        in_doubt += 1;
                        piece.unknown += doubt(&failed);
                    }
                }
            }
        }
        piece.took = self.env.now().since(began);
        let counted = self.peer.charged().await?.saturating_sub(before);
        let explained = piece.ok..=piece.ok + in_doubt;
        piece.wrong = if explained.contains(&counted) { 0 } else { counted.abs_diff(piece.ok) };
        Ok(piece)
    }
}

/// Something has no answer: said in the log, and counted once.
fn doubt(failed: &str) -> u64 {
    tracing::debug!(failed, "peer_unknown");
    1
}

#[cfg(test)]
mod tests;
