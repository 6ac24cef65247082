//! `loadgen floor`: bare requests over a bare socket, on the brokers that everything else is measured on.
//!
//! What the layer does costs what its requests cost the brokers, and something on top. The floor is the first part: the same
//! requests from a client that does nothing but write bytes and read them (`lean`). Each of the [`CELLS`] makes one
//! request again and again, so many at once over so many connections, for its share of the time; it is a closed loop, so both
//! latencies of an operation are the same, and what is found is a ceiling and not how a load would fare.
//!
//! The charges among the cells compare ways of counting a charge on two records. They are the figures behind a decision, and
//! not what the layer does.
//!
//! Any other scenario can be held against the floor in its own run: see `beside`.

mod args;
pub(crate) mod beside;
mod charge;
#[cfg(feature = "peers")]
pub(crate) mod claims;
mod ground;
mod lanes;
mod lean;
mod params;
mod pass;
mod scenario;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::env::Env;
use engine::tasks;
use parking_lot::Mutex;

use crate::recorder::{self, Op, Recorder};
use crate::scenario::{DRAIN, Parts};
use crate::stop::{Over, Stop};

pub use args::FloorArgs;
pub use lean::LeanError;
pub use params::{CELLS, Cell, Load, Params, Request};

use charge::{Account, Charger, counted};
pub(crate) use ground::Ground;
use lanes::Lane;
use pass::Passes;

/// The part with which the measurement begins. Every cell is a part of its own name.
const CELLS_BEGIN: &str = "cells";

/// A run of bare requests.
pub struct Floor {
    env: Env,
    params: Params,
    prefix: String,
    replicas: u8,
    recorder: Recorder,
    cells: Vec<Measured>,
    /// Cells that were cut short.
    unsettled: AtomicU64,
    parts: Parts,
}

/// A cell and what came of it, beside what the recorder has.
struct Measured {
    cell: &'static Cell,
    op: Op,
    /// How long it really was; nothing before it was over.
    took: Mutex<Option<Duration>>,
    account: Account,
}

impl Floor {
    /// Goes through the cells, until the last, or `interrupt` is done. Answers whether it was interrupted.
    async fn work(&self, ground: &Ground, interrupt: impl Future<Output = ()>) -> bool {
        let (over, stop) = Over::new();
        let (env, each) = (&self.env, self.params.each());
        self.recorder.measure_from(env.now());
        self.parts.enter(CELLS_BEGIN, env.now());
        let all = async {
            for Measured { cell, op, took, account } in &self.cells {
                if stop.is_over(env) {
                    return;
                }
                self.parts.enter(cell.name, env.now());
                match ground.measure(&cell.load, op, each, &stop, account).await {
                    Ok(length) => *took.lock() = Some(length),
                    Err(error) => {
                        self.unsettled.fetch_add(1, Ordering::Relaxed);
                        tracing::error!(cell = cell.name, %error, "floor_cell_cut_short");
                    }
                }
            }
        };
        let mut all = std::pin::pin!(all);
        let interrupted = tokio::select! {
            () = &mut all => false,
            () = interrupt => {
                over.at(env.now());
                all.await;
                true
            }
        };
        self.parts.enter(DRAIN, env.now());
        interrupted
    }
}

/// What bare requests came to that were recorded apart from everything else.
pub(crate) struct Bare {
    /// How long they really were made.
    pub(crate) took: Duration,
    /// Their answers and latencies.
    pub(crate) measured: recorder::Measured,
}

impl Bare {
    /// Records what `work` does, which answers how long it was, in a recorder of its own.
    async fn of(env: &Env, work: impl AsyncFnOnce(&Op) -> Result<Duration, LeanError>) -> Result<Bare, LeanError> {
        let mut recorder = Recorder::new(env.now());
        recorder.measure_from(env.now());
        let op = recorder.declare("floor");
        let took = work(&op).await?;
        Ok(Bare { took, measured: recorder.snapshot().remove(0).measured })
    }
}

impl Ground {
    /// Makes a load's requests for so long, recorded apart from everything else.
    ///
    /// # Errors
    /// What went wrong first.
    pub(crate) async fn alone(&self, load: &Load, length: Duration) -> Result<Bare, LeanError> {
        let (_over, stop) = Over::new();
        let account = Account::default();
        Bare::of(&self.env, async |op| self.measure(load, op, length, &stop, &account).await).await
    }

    /// Makes a load's requests for so long, or until the run is over; answers how long it was in the end.
    ///
    /// # Errors
    /// What went wrong first. What has no answer by then is recorded as unknown.
    async fn measure(
        &self,
        load: &Load,
        op: &Op,
        length: Duration,
        stop: &Stop,
        account: &Account,
    ) -> Result<Duration, LeanError> {
        let checked = matches!(load.request, Request::TwoWrites | Request::Batch);
        let before = if checked { counted(self, load).await? } else { (0, 0) };
        let connections = self.connections(load).await?;
        let began = self.env.now();
        let until = began + length;
        let lanes = connections.into_iter().enumerate().map(|(number, lean)| {
            let (ground, load, op, stop, account) = (self.clone(), *load, op.clone(), stop.clone(), account.clone());
            tasks::spawn(async move {
                match load.request {
                    Request::Pass => Passes { ground, op, lean }.run(until, stop).await,
                    Request::TwoWrites | Request::Batch | Request::Counters => {
                        Charger::new(ground, load, op, number, lean, account).run(until, stop).await
                    }
                    _ => Lane { ground, load, op, number, lean }.run(until, stop).await,
                }
            })
        });
        let lanes: Vec<_> = lanes.collect();
        let mut ended = Ok(());
        for lane in lanes {
            ended = ended.and(lane.join().await);
        }
        let took = self.env.now().since(began);
        ended?;
        if checked {
            let (companies, seats) = counted(self, load).await?;
            account.settle(companies - before.0, seats - before.1);
        }
        Ok(took)
    }
}
