//! `loadgen budgets`: chargers charge one company at once, over and over, in several ways.
//!
//! A round is one charge of every charger, all at once, and is over when all are answered. The ways have their turns within
//! one run, so that their throughputs were measured on the same machine, whatever else it had to do. Chargers are spread over
//! nodes, each with a connection and a seat of its own, so that the company's record is everybody's and a seat's is a node's.
//!
//! Every turn is in a day of its own, with ceilings that are reached on the way, and is held against an [`Account`]: what the
//! counters stand at in the end, and where each answer says that it was counted.

mod account;
mod args;
mod node;
mod params;
mod scenario;
mod tally;

use std::future::Future;
use std::time::Duration;

use coordproto::answer::Error;
use coordproto::slot::Retention;
use coordproto::tally::Ceilings;
use coordproto::window::{Windows, Zone};
use engine::env::{Env, Mono};
use engine::slots::Settings;
use engine::slots::budgets::{Caps, Charge, ChargeError, Gate};
use engine::store::counting::Calls;
use engine::store::{OpenError, Store};
use engine::tasks;
use futures_util::future::{join_all, try_join_all};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::recorder::{Outcome, Recorder};
use crate::report::Anomalies;
use crate::scenario::{DRAIN, Parts};
use crate::stop::{Over, Stop};
use crate::timer::Timer;

pub use account::Account;
pub use args::{BudgetsArgs, Combine};
pub use params::{Ops, Params, Way};
pub use tally::{Charges, Tally};

use node::{Day, Desk};

/// The part in which charges are made.
const CHARGING: &str = "charging";

/// The most tokens of one charge. A charge has any number up to it, so that sums tell charges apart.
const TOKENS_MAX: u64 = 10_000;

/// How long everybody waits after a round with an unknown in it: without a connection there is one at once.
const BACK_OFF: Duration = Duration::from_millis(50);

/// How long the counters are asked for at the end of a turn until they are unknown.
const PATIENCE: Duration = Duration::from_secs(60);

/// Noon of the first turn's day.
const FIRST_DAY: &str = "2000-01-01T12:00:00Z";

type Ran = crate::scenario::Ran<()>;

/// The desks of a run, by node and by way as its parameters have them.
pub struct Clients<S: Store>(Vec<Vec<Desk<S>>>);

/// A run of charges.
pub struct Charging {
    /// The clock and the randomness.
    pub env: Env,
    /// What it is asked to be.
    pub params: Params,
    /// What its buckets' names begin with.
    pub prefix: String,
    /// How many copies they have.
    pub replicas: u8,
    /// Where it records.
    pub recorder: Recorder,
    /// The operations it records.
    pub ops: Ops,
    /// What its charges came to.
    pub tally: Tally,
    /// What was found in the turns that are over.
    found: Mutex<Anomalies>,
    /// Its parts.
    pub parts: Parts,
}

/// One turn: so many rounds of one way, in a day of its own.
struct Turn {
    way: Way,
    chargers: usize,
    day: Day,
    /// The names of the nodes' seats.
    seats: Vec<String>,
    /// What each seat's charges are judged by.
    caps: Vec<Caps>,
    /// The tokens of every charge, round by round.
    rounds: Vec<Vec<u64>>,
}

/// What became of one charge.
struct Told {
    charger: usize,
    tokens: u64,
    answer: Result<Charge, ChargeError>,
    began: Mono,
    ended: Mono,
}

impl Charging {
    fn settings(&self, way: Way) -> Settings {
        let prefix = format!("{}_{}", self.prefix, way.name());
        Settings { prefix, replicas: self.replicas, retention: Retention::default() }
    }

    /// Opens the buckets for every node: for the first one alone, so that they are made once.
    ///
    /// # Errors
    /// When a node's store or a bucket cannot be opened.
    pub async fn open<S: Store, F, E>(&self, store: impl Fn(usize) -> F) -> Result<Clients<S>, E>
    where
        F: Future<Output = Result<S, E>>,
        E: From<OpenError>,
    {
        let store = &store;
        let node = async |node: usize| -> Result<Vec<Desk<S>>, E> {
            let store = store(node).await?;
            let mut desks = Vec::new();
            for way in &self.params.ways {
                desks.push(Desk::open(store.clone(), &self.settings(*way), *way).await?);
            }
            Ok(desks)
        };
        let mut nodes = vec![node(0).await?];
        nodes.extend(try_join_all((1..self.params.most_nodes()).map(&node)).await?);
        Ok(Clients(nodes))
    }

    /// Charges, until every way had its rounds, its time is over, or `interrupt` is done.
    pub async fn run<S: Store>(&self, clients: Clients<S>, interrupt: impl Future<Output = ()>) -> Ran {
        let (over, stop) = Over::new();
        let mut work = std::pin::pin!(self.work(clients, stop));
        tokio::select! {
            ran = &mut work => ran,
            () = interrupt => {
                over.at(self.env.now());
                Ran { interrupted: true, ..work.await }
            }
        }
    }

    async fn work<S: Store>(&self, clients: Clients<S>, stop: Stop) -> Ran {
        let first = self.env.now();
        self.recorder.measure_from(first);
        self.parts.enter(CHARGING, first);
        let (numbers, mut day) = (self.params.chargers.len() as u32, 0);
        'all: for (number, chargers) in (1..).zip(&self.params.chargers) {
            let end = self.params.rounds.is_none().then(|| first + self.params.duration * number / numbers);
            let mut left = self.params.rounds.unwrap_or(u64::MAX);
            while left > 0 && end.is_none_or(|end| self.env.now() < end) {
                let rounds = Params::turn(*chargers).min(left);
                for (at, way) in self.params.ways.iter().enumerate() {
                    let desks: Vec<Desk<S>> = clients.0.iter().map(|desks| desks[at].clone()).collect();
                    let Some(turn) = self.turn(*way, *chargers, rounds, day) else { break 'all };
                    self.take(&turn, &desks, &stop).await;
                    day += 1;
                    if stop.is_over(&self.env) {
                        break 'all;
                    }
                }
                left -= rounds;
            }
        }
        self.parts.enter(DRAIN, self.env.now());
        Ran { brought_up: true, ..Ran::default() }
    }

    /// A turn on a day of its own; none where the calendar has no more.
    fn turn(&self, way: Way, chargers: usize, rounds: u64, day: i64) -> Option<Turn> {
        let noon: Timestamp = FIRST_DAY.parse().expect("an instant");
        let now = noon.checked_add(SignedDuration::from_hours(24 * day)).ok()?;
        let zone = Zone::parse("timezone", "UTC").expect("a zone");
        let day = Day { windows: Windows::at(now, &zone).ok()?, now };
        let drawn = |_| (0..chargers).map(|_| 1 + self.env.below(TOKENS_MAX)).collect();
        let rounds: Vec<Vec<u64>> = (0..rounds).map(drawn).collect();
        let nodes = self.params.nodes_of(chargers);
        // Half of what is charged has room with the company, and some more than that with each seat.
        let seat_total = |seat: usize| rounds.iter().flat_map(|round| round.iter().skip(seat).step_by(nodes)).sum();
        let totals: Vec<u64> = (0..nodes).map(seat_total).collect();
        let ceiling = |tokens: u64| Ceilings::parse([("day", tokens.max(1))]).expect("a ceiling of a day");
        let org = ceiling(totals.iter().sum::<u64>() / 2);
        let caps = totals.iter().map(|total| Caps { org, seat: ceiling(total * 3 / 5) }).collect();
        let seats = (0..nodes).map(|node| format!("s{node:04}")).collect();
        Some(Turn { way, chargers, day, seats, caps, rounds })
    }

    /// Charges for a turn, as far as the run goes on, and holds what the counters say then against the account.
    async fn take<S: Store>(&self, turn: &Turn, desks: &[Desk<S>], stop: &Stop) {
        let mut account = Account::new(turn.caps.clone());
        let mut timer = Timer::default();
        // What was asked between the turns is no charge's.
        for desk in desks {
            desk.calls();
        }
        for tokens in &turn.rounds {
            if stop.is_over(&self.env) {
                break;
            }
            let unknown = self.round(turn, tokens, desks, &mut account).await;
            if unknown && stop.before(&self.env, &mut timer, self.env.now() + BACK_OFF).await {
                break;
            }
        }
        self.tally.with(turn.chargers, turn.way, Charges::turned);
        let counters = self.counters(turn, &desks[0]).await;
        let found = match counters {
            Ok((org, seats)) => account.settle(org, &seats),
            Err(error) => {
                tracing::error!(%error, "budget_counters_unknown");
                Anomalies { ops_unsettled: 1, ..Anomalies::default() }
            }
        };
        if found.total() > 0 {
            let (way, chargers, day) = (turn.way.name(), turn.chargers, &turn.day.now);
            tracing::error!(way, chargers, %day, ?found, "budget_wrong");
        }
        let mut all = self.found.lock();
        all.budget_miscounted += found.budget_miscounted;
        all.budget_misjudged += found.budget_misjudged;
        all.budget_overspent += found.budget_overspent;
        all.ops_unsettled += found.ops_unsettled;
    }

    /// Every charger charges once, all at once. Answers whether any charge had no answer.
    async fn round<S: Store>(&self, turn: &Turn, tokens: &[u64], desks: &[Desk<S>], account: &mut Account) -> bool {
        let (nodes, op) = (turn.seats.len(), self.ops.charge(turn.way));
        let due = self.env.now();
        let charges = (0..).zip(tokens).map(|(charger, tokens)| {
            let (node, tokens, env) = (charger % nodes, *tokens, self.env.clone());
            let (desk, seat, day, caps) =
                (desks[node].clone(), turn.seats[node].clone(), turn.day.clone(), turn.caps[node]);
            let arrival = op.arrival(due);
            tasks::spawn(async move {
                let began = env.now();
                let started = arrival.start(began);
                let answer = desk.charge(&seat, tokens, &day, &caps).await;
                (started, Told { charger, tokens, answer, began, ended: env.now() })
            })
        });
        let charges: Vec<_> = charges.collect();
        let told = join_all(charges.into_iter().map(tasks::Task::join)).await;
        let took = self.env.now().since(due);
        let mut calls = Calls::default();
        for of in desks.iter().map(Desk::calls) {
            calls.read += of.read;
            calls.put += of.put;
        }
        // One request may be many charges': each has its share, and the shares make all of them.
        let (all, count) = (calls.total(), told.len() as u64);
        let mut unknown = false;
        self.tally.with(turn.chargers, turn.way, |charges| {
            charges.round(took, calls);
            for (at, (started, told)) in (0..).zip(told) {
                let outcome = outcome(&told.answer);
                started.finish(outcome, told.ended, all * (at + 1) / count - all * at / count);
                charges.told(&told.answer, told.ended.since(told.began));
                account.told(told.charger % nodes, told.tokens, &told.answer);
                if let Err(error) = &told.answer {
                    unknown = true;
                    tracing::debug!(%error, way = turn.way.name(), "budget_charge_unknown");
                }
            }
        });
        unknown
    }

    /// What the company's counter stands at, and each seat's, asked until there is an answer.
    async fn counters<S: Store>(&self, turn: &Turn, desk: &Desk<S>) -> Result<(u64, Vec<u64>), Error> {
        let until = self.env.now() + PATIENCE;
        loop {
            let counters = match desk.used(&turn.seats, &turn.day).await {
                Ok(counters) => counters,
                Err(error) if self.env.now() >= until => return Err(error),
                Err(_) => {
                    self.env.sleep(BACK_OFF).await;
                    continue;
                }
            };
            let org = counters.first().map_or(0, |counters| counters.org.day.spent);
            return Ok((org, counters.iter().map(|counters| counters.seat.day.spent).collect()));
        }
    }
}

fn outcome(answer: &Result<Charge, ChargeError>) -> Outcome {
    match answer {
        Ok(Charge { gate: Gate::Admitted, .. }) => Outcome::Ok,
        Ok(_) => Outcome::Refused,
        Err(ChargeError::Unknown(_) | ChargeError::SeatUncounted { .. }) => Outcome::Unknown,
        // A mistake of the generator's own.
        Err(ChargeError::BadArgument(_)) => Outcome::Error,
    }
}

#[cfg(test)]
mod tests;
