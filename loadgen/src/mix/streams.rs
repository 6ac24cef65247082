//! The proportions: what is done how often for each seat, for each node and for the whole company. `docs/mix.md` has the same
//! table with where each number comes from, and a test holds the two together.

use std::sync::Arc;
use std::time::Duration;

use engine::env::Mono;
use engine::store::Store;
use engine::tasks;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::context::Context;
use super::shelves::Shelf;
use super::ticks::Duty;
use super::turn::Turn;
use super::{company, operators, ticks};
use crate::rate::Rate;
use crate::timer::Timer;

/// Rounds of a turn.
pub(super) const ROUNDS: u32 = 4;

/// From one round of a turn to the next.
pub(super) const ROUND: Duration = Duration::from_secs(2);

/// Streams of the company that come seldom begin no later than this, so that a short run has each.
const BEGIN_WITHIN: Duration = Duration::from_secs(5);

/// Which part of the turns, and of what else there is many of, does something beside: one in so many.
pub(super) struct Share;

impl Share {
    /// Turns of a seat that is spoken to in a chat.
    pub(super) const CHAT: u64 = 2;
    /// Turns that write the state log.
    pub(super) const LOGGED: u64 = 2;
    /// Turns with an auxiliary call, whose spend is recorded after the fact.
    pub(super) const AUXILIARY: u64 = 4;
    /// Turns that ask another seat.
    pub(super) const ASKING: u64 = 10;
    /// Turns that launch a coding run.
    pub(super) const RUN: u64 = 20;
    /// Deliveries that come in at two nodes at once, and again after the turn.
    pub(super) const REDELIVERED: u64 = 20;
    /// Notifications that come in a burst beyond the limit.
    pub(super) const BURST: u64 = 50;
    /// Turns in which a provider refuses a credential.
    pub(super) const COOLED: u64 = 100;
    /// Turns after which the seat leaves its thread.
    pub(super) const LEAVING: u64 = 20;
    /// Deliveries whose claim is given back.
    pub(super) const UNHANDLED: u64 = 50;
    /// Seats with a ceiling below what a turn spends.
    pub(super) const CAPPED: u64 = 100;
    /// Dispatches that two schedulers claim.
    pub(super) const FIRED_TWICE: u64 = 10;
    /// Batches of events that two nodes wrote.
    pub(super) const BATCH_TWICE: u64 = 20;
    /// Writes of a node's positions before which it reads them back.
    pub(super) const READ_BACK: u64 = 4;
}

/// Of whom there is one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Each {
    Seat,
    Node,
    Company,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Turn,
    Dispatch,
    Reconcile,
    Pull,
    Positions,
    Duty(Duty),
    Custody,
    Runs,
    Views,
    Trim,
    Life(Shelf),
    Activate,
    Secret,
    Surface,
    Backup,
    Resize,
    Rebase,
    Collection,
    Upkeep,
}

/// Something that is done again and again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// What it is called.
    pub(super) name: &'static str,
    /// For whom.
    pub(super) each: Each,
    /// How often for each of them.
    pub(super) rate: Rate,
    /// The first operation of each time, as which one counts that was due and not begun.
    first: &'static str,
    deed: Deed,
}

/// Every stream but the heartbeats of the nodes that hold seats.
pub(super) fn streams(turns: Rate) -> Vec<Stream> {
    use Each::{Company, Node, Seat};
    let every = |seconds| Rate::every(Duration::from_secs(seconds));
    let stream = |name, each, rate, first, deed| Stream { name, each, rate, first, deed };
    let duty = |name, seconds, duty| stream(name, Node, every(seconds), "duties/claim", Deed::Duty(duty));
    vec![
        stream("turn", Seat, turns, "claims/claim", Deed::Turn),
        stream("dispatch", Seat, every(60 * 60), "fires/claim", Deed::Dispatch),
        stream("reconcile", Node, every(15), "config/target", Deed::Reconcile),
        stream("cooldowns", Node, every(15), "cooldowns/since", Deed::Pull),
        stream("positions", Node, every(15), "positions_node/record", Deed::Positions),
        duty("scheduler duty", 10, Duty::Scheduler),
        duty("integrations duty", 90, Duty::Integrations),
        duty("maintenance duty", 15 * 60, Duty::Maintenance),
        duty("learning duty", 60 * 60, Duty::Learning),
        stream("custody", Node, every(50), "custody/claim", Deed::Custody),
        stream("runs", Company, every(15), "sandbox_runs/list", Deed::Runs),
        stream("views", Company, every(15), "budgets/usage", Deed::Views),
        stream("trim", Company, every(60), "positions_node/list", Deed::Trim),
        stream("late work", Company, every(15), "rebases/read", Deed::Rebase),
        stream("pause", Company, every(20), "pauses/pause", Deed::Life(Shelf::Pauses)),
        stream("mailbox", Company, every(20), "mailboxes/create", Deed::Life(Shelf::Mailboxes)),
        stream("activation", Company, every(30), "config/target", Deed::Activate),
        stream("secret", Company, every(10), "secrets/put", Deed::Secret),
        stream("surface", Company, every(30), "integrations/put", Deed::Surface),
        stream("backup", Company, every(30), "positions_hold/take", Deed::Backup),
        stream("resize", Company, every(30), "positions_maintenance/open", Deed::Resize),
        stream("collection", Company, every(30), "objects/record", Deed::Collection),
        stream("upkeep", Company, every(30), "channels/open_list", Deed::Upkeep),
    ]
}

impl Stream {
    /// How often it is done in all, by so many seats and nodes.
    pub(super) fn in_all(&self, seats: usize, nodes: usize) -> Rate {
        match self.each {
            Each::Seat => self.rate.of_each(seats as u64),
            Each::Node => self.rate.of_each(nodes as u64),
            Each::Company => self.rate,
        }
    }

    /// Does it whenever it is due from `from` on, whether or not the times before are over, until the run is. The streams'
    /// first times are spread a little, `turn` being this one's among so many.
    pub(super) async fn flow<S: Store>(self, ctx: Arc<Context<S>>, from: Mono, (turn, of): (usize, usize)) {
        let rate = self.in_all(ctx.seats, ctx.nodes.len());
        let spread = rate.offset(1).min(BEGIN_WITHIN) * turn as u32 / of as u32;
        let due = |number: u64| from + spread + rate.offset(number);
        let (mut timer, mut number) = (Timer::default(), 0);
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(()) = under_way.next() => {}
                over = ctx.stop.before(&ctx.env, &mut timer, due(number)) => {
                    if over {
                        break;
                    }
                    // On a task of its own, so that a thousand turns have both cores.
                    under_way.push(tasks::spawn(self.done(ctx.clone(), number, due(number))).join());
                    number += 1;
                }
            }
        }
        ctx.stop.let_go(ctx.ops.of(self.first), (number..).map(due));
        while under_way.next().await.is_some() {}
    }

    async fn done<S: Store>(self, ctx: Arc<Context<S>>, number: u64, due: Mono) {
        let ctx = &*ctx;
        match self.deed {
            Deed::Turn => Box::pin(Turn::new(ctx, number, due).take()).await,
            Deed::Dispatch => company::dispatch(ctx, number, due).await,
            Deed::Reconcile => ticks::reconcile(ctx, number, due).await,
            Deed::Pull => ticks::pull(ctx, number, due).await,
            Deed::Positions => ticks::positions(ctx, number, due).await,
            Deed::Duty(duty) => ticks::duty(ctx, duty, number, due).await,
            Deed::Custody => ticks::custody(ctx, number, due).await,
            Deed::Runs => operators::list(ctx, ctx.node(number), Shelf::Runs, due).await,
            Deed::Views => company::views(ctx, number, due).await,
            Deed::Trim => company::trim(ctx, number, due).await,
            Deed::Life(shelf) => Box::pin(company::life(ctx, shelf, number, due)).await,
            Deed::Activate => operators::activate(ctx, number + 1, due).await,
            Deed::Secret => operators::secret(ctx, number, due).await,
            Deed::Surface => operators::surface(ctx, number, due).await,
            Deed::Backup => Box::pin(company::backup(ctx, number, due)).await,
            Deed::Resize => Box::pin(company::resize(ctx, number, due)).await,
            Deed::Rebase => company::rebase(ctx, number, due).await,
            Deed::Collection => company::collection(ctx, number, due).await,
            Deed::Upkeep => operators::upkeep(ctx, ctx.node(number), due).await,
        }
    }
}
