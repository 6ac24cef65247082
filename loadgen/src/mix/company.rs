//! What happens once for the whole company: dispatches come due, the trim looks at what may be deleted, a backup is taken, a
//! log is resized, late work mints its instant, and people look at it all.

use std::future::Future;
use std::time::Duration;

use coordproto::answer::{Error, Unknown};
use coordproto::key::Class;
use coordproto::record::budget::Scope;
use coordproto::record::objects::CollectionRecord;
use coordproto::record::position::{Admission, Backup, Floor};
use coordproto::tally::Usage;
use coordproto::window::Period;
use engine::env::Mono;
use engine::slots::fires::Fire;
use engine::slots::positions::Forget;
use engine::store::Store;
use futures_util::future::{join, join_all};

use super::account::{Rising, Verdict, Wrong, holds, judged};
use super::context::{Context, instant, number as of_instant, said};
use super::lives::{Life, first_written};
use super::node::Node;
use super::operators;
use super::shelves::{Shelf, Told, changed, of_pins, pins};
use super::streams::Share;
use super::ticks::{DOMAINS, position_key};
use crate::fleet::handle;

/// The store of the company's files.
const BACKEND: &str = "nats";

/// From one step of an operator to the next.
const STEP: Duration = Duration::from_millis(500);

/// The life of a record that two nodes want, in a family whose records are made, changed and removed.
pub(super) async fn life<S: Store>(ctx: &Context<S>, shelf: Shelf, number: u64, due: Mono) {
    // A pause is of a seat that there is; everything else has a name of its own.
    let key = match shelf {
        Shelf::Pauses => handle((number % ctx.seats as u64) as usize),
        _ => format!("{shelf:?}{number}"),
    };
    let nodes = [ctx.node(number), ctx.node(number + 1)];
    Life { ctx, shelf, key, nodes, changes: 2, pause: STEP }.live(due).await;
}

/// A dispatch comes due: the scheduler claims it before it fires, and some are claimed by its successor at the same time.
pub(super) async fn dispatch<S: Store>(ctx: &Context<S>, number: u64, due: Mono) {
    let (fire, at) = (format!("f{number}"), ctx.wall());
    let claimed = |fire: &Fire| *fire == Fire::Claimed;
    let nodes = if number.is_multiple_of(Share::FIRED_TWICE) { 2 } else { 1 };
    let told = join_all((0..nodes).map(async |n| {
        let claim = ctx.node(number + n).fires.claim_fire(&fire, at);
        said(&ctx.ask("fires/claim", due, claimed, claim).await, claimed)
    }));
    ctx.judge(judged(&told.await, false), fire);
}

/// Writes the next number of a record that only grows, over the revision that is known.
pub(super) async fn raise<S: Store, F>(
    ctx: &Context<S>,
    name: &'static str,
    list: &'static str,
    key: &str,
    due: Mono,
    write: impl FnOnce(u64, u64) -> F,
) where
    F: Future<Output = Result<Told, Error>>,
{
    let Some(mut record) = ctx.take(key) else {
        drop(ctx.ops.of(name).arrival(due));
        return;
    };
    let (number, over) = record.next();
    ctx.accounts.rolls.lock().sending(list, key, number);
    let verdict = match ctx.ask(name, due, |told| matches!(told, Told::Done(_)), write(number, over)).await {
        Ok(Told::Done(revision)) => {
            ctx.accounts.rolls.lock().stands(list, key, ctx.env.now());
            record.stored(number, revision)
        }
        Ok(Told::Stands(stands)) => record.refused(number, over, stands),
        Ok(Told::Absent) => holds(over == 0, Wrong::Record),
        Err(_) => Ok(()),
    };
    ctx.judge(verdict, key);
    ctx.give_back(key, record);
}

/// The trim: it reads every position, hold and backup, and publishes a floor for each domain.
pub(super) async fn trim<S: Store>(ctx: &Context<S>, number: u64, due: Mono) {
    let node = ctx.node(number);
    listed(ctx, "positions_node/list", due, async {
        let rows = node.positions.nodes.list().await?.into_iter();
        Ok(rows.map(|row| (position_key(&row.record.node, &row.record.domain), row.record.applied)).collect())
    })
    .await;
    operators::list(ctx, node, Shelf::Holds, ctx.env.now()).await;
    listed(ctx, "positions_backup/list", ctx.env.now(), async {
        let rows = node.positions.backups.list().await?.into_iter();
        Ok(rows.map(|row| (row.record.owner, of_pins(&row.record.covers))).collect())
    })
    .await;
    for domain in DOMAINS {
        let publish = async |floor: u64, over: u64| {
            let (terms, at) = (pins(floor), instant(floor));
            let floor = Floor { domain: domain.into(), floor, trim_to: floor, terms, blocked_by: None, at };
            node.positions.floors.publish(&floor, over).await.map(|told| changed(told, |floor| floor.floor))
        };
        raise(ctx, "positions_floor/publish", "positions_floor/list", domain, ctx.env.now(), publish).await;
        let Some(mut floor) = ctx.take(domain) else { continue };
        let read = ctx.node(number + 1).positions.floors.get(domain);
        if let Ok(row) = ctx.ask("positions_floor/get", ctx.env.now(), Option::is_some, read).await {
            ctx.judge(floor.told(row.map_or((0, 0), |row| (row.record.floor, row.revision))), domain);
        }
        ctx.give_back(domain, floor);
    }
}

/// Lists what rows say by their names, and holds it against who has to be there.
async fn listed<S: Store>(
    ctx: &Context<S>,
    name: &'static str,
    due: Mono,
    list: impl Future<Output = Result<Vec<(String, u64)>, Unknown>>,
) {
    let began = ctx.env.now();
    if let Ok(rows) = ctx.ask(name, due, |_| true, list).await {
        let verdict = ctx.accounts.rolls.lock().listed(name, began, &rows);
        ctx.judge(verdict, name);
    }
}

/// A backup: a hold while it is taken, and the record of what it covers.
pub(super) async fn backup<S: Store>(ctx: &Context<S>, number: u64, due: Mono) {
    life(ctx, Shelf::Holds, number, due).await;
    let (node, owner) = (ctx.node(number), format!("owner{}", number % 2));
    let record = async |covered: u64, over: u64| {
        let (backup, covers, at) = (format!("backup{number}"), pins(covered), instant(covered));
        let backup = Backup { owner: owner.clone(), backup, covers, at };
        node.positions.backups.record(&backup, over).await.map(|told| changed(told, |backup| of_pins(&backup.covers)))
    };
    raise(ctx, "positions_backup/record", "positions_backup/list", &owner, ctx.env.now(), record).await;
}

/// A log is resized: the operation is opened, a node says that it restarted for it and is admitted again as another run.
pub(super) async fn resize<S: Store>(ctx: &Context<S>, number: u64, due: Mono) {
    join(life(ctx, Shelf::Maintenance, number, due), life(ctx, Shelf::Acks, number, due)).await;
    let node = ctx.node(number);
    if let Some(mut admission) = ctx.take(&format!("admission of {}", node.id)) {
        let ended = admission.stands().0.to_string();
        let forget = node.positions.admitted.forget(&node.id, &ended);
        let forgotten = |told: &Forget| *told == Forget::Forgotten;
        let told = ctx.ask("positions_admitted/forget", ctx.env.now(), forgotten, forget).await;
        let verdict = match told {
            Ok(told) => holds(told == Forget::Forgotten, Wrong::Record),
            Err(_) => return,
        };
        ctx.judge(verdict, format_args!("admission of {}", node.id));
        admission.removed();
        admit(ctx, node, admission).await;
    }
    let list = async {
        let rows = node.positions.admitted.list().await?.into_iter();
        Ok(rows.map(|row| (row.record.node, of_instant(row.record.at))).collect())
    };
    listed(ctx, "positions_admitted/list", ctx.env.now(), list).await;
}

/// Admits a node, for the first time or as another run.
async fn admit<S: Store>(ctx: &Context<S>, node: &Node<S>, mut admission: Rising) {
    const LIST: &str = "positions_admitted/list";
    let (run, _) = admission.next();
    ctx.accounts.rolls.lock().sending(LIST, &node.id, run);
    let record = Admission { node: node.id.clone(), incarnation: run.to_string(), at: instant(run) };
    let admitted = node.positions.admitted.admit(&record);
    if ctx.ask("positions_admitted/admit", ctx.env.now(), |()| true, admitted).await.is_ok() {
        ctx.judge(admission.stored(run, run), &node.id);
        ctx.accounts.rolls.lock().stands(LIST, &node.id, ctx.env.now());
        ctx.give_back(&format!("admission of {}", node.id), admission);
    }
}

/// Late work: two attempts at it record an instant, and both go on with the one that was recorded.
pub(super) async fn rebase<S: Store>(ctx: &Context<S>, number: u64, due: Mono) {
    let (seed, nodes) = (format!("w{number}"), [ctx.node(number), ctx.node(number + 1)]);
    let judge = |verdict| ctx.judge(verdict, format_args!("work {seed}"));
    let mut record = Rising::default();
    let read = async |node: &Node<S>, due| {
        let read = ctx.ask("rebases/read", due, Option::is_some, node.rebases.rebase(&seed)).await;
        read.map(|row| row.map_or((0, 0), |row| (of_instant(row.record.at), row.revision)))
    };
    if let Ok(stands) = read(nodes[0], due).await {
        judge(record.told(stands));
    }
    let done = |told: &Told| matches!(told, Told::Done(_));
    let write = async |node: &Node<S>, value: u64, version: u64| {
        let write = node.rebases.record_rebase(&seed, instant(value), version);
        let write = async { write.await.map(|told| changed(told, |record| of_instant(record.at))) };
        ctx.ask("rebases/record", ctx.env.now(), done, write).await
    };
    let values = [record.next().0, record.next().0];
    let (one, other) = join(write(nodes[0], values[0], 0), write(nodes[1], values[1], 0)).await;
    judge(first_written(&mut record, &[(values[0], one), (values[1], other)]));
    if let Ok(stands) = read(nodes[1], ctx.env.now()).await {
        judge(record.told(stands));
    }
}

/// The collector says what it found; every node agrees on where the files are when it boots.
pub(super) async fn collection<S: Store>(ctx: &Context<S>, number: u64, due: Mono) {
    let Some(mut found) = ctx.take("collection") else {
        drop(ctx.ops.of("objects/record").arrival(due));
        return;
    };
    let (value, _) = found.next();
    let node = ctx.node(number);
    let pass = CollectionRecord { node: node.id.clone(), at: instant(value), found: value.into() };
    if ctx.ask("objects/record", due, |()| true, node.objects.record_collection(&pass)).await.is_err() {
        return;
    }
    ctx.judge(found.stored(value, value), "collection");
    let read = ctx.node(number + 1).objects.collection();
    if let Ok(told) = ctx.ask("objects/collection", ctx.env.now(), Option::is_some, read).await {
        let value = told.and_then(|pass| pass.found.as_u64()).unwrap_or_default();
        ctx.judge(found.told((value, value)), "collection");
    }
    ctx.give_back("collection", found);
    agree(ctx, node, if number.is_multiple_of(2) { BACKEND } else { "s3:elsewhere" }).await;
}

/// A node boots, and is told where the company's files are: where the first one said.
pub(super) async fn agree<S: Store>(ctx: &Context<S>, node: &Node<S>, own: &str) {
    let agree = node.objects.agree_backend(own);
    let told = ctx.ask("objects/agree", ctx.env.now(), |told| told == own, agree).await;
    if let Ok(told) = told {
        ctx.judge(holds(told == BACKEND, Wrong::Record), format_args!("backend of {}", node.id));
    }
}

/// What people look at: what has been spent, who is paused, which node a seat would rather run on.
pub(super) async fn views<S: Store>(ctx: &Context<S>, number: u64, due: Mono) {
    let node = ctx.node(number);
    let before = ctx.accounts.spend.lock().acknowledged();
    if let Ok(usage) = ctx.ask("budgets/usage", due, |_| true, node.budgets.usage(&ctx.windows)).await {
        let org = usage.iter().find(|(scope, _)| *scope == Scope::Org);
        let verdict = org.map_or(Ok(()), |(_, usage)| still(ctx, before, usage));
        ctx.judge(verdict, "usage");
    }
    operators::list(ctx, node, Shelf::Pauses, ctx.env.now()).await;
    let hints = ctx.ask("epochs/hints", ctx.env.now(), |_| true, node.leases.hints(&Class::seat())).await;
    if let Ok(hints) = hints {
        ctx.judge(holds(hints.len() >= ctx.seats, Wrong::ListingShort), "hints");
    }
}

fn still<S: Store>(ctx: &Context<S>, before: u64, usage: &Usage) -> Verdict {
    Period::ALL.iter().try_for_each(|period| ctx.accounts.spend.lock().company_told(before, usage[*period].spent))
}

/// Where the company is before anything is measured: a revision, its credentials, every node admitted and agreed, a mailbox for
/// every seat.
pub(super) async fn founded<S: Store>(ctx: &Context<S>) {
    operators::activate(ctx, 0, ctx.env.now()).await;
    for secret in 0..operators::SECRETS {
        operators::secret(ctx, secret, ctx.env.now()).await;
    }
    let booted = ctx.nodes.iter().enumerate().map(async |(index, node)| {
        agree(ctx, node, BACKEND).await;
        if let Some(admission) = ctx.take(&format!("admission of {}", node.id)) {
            admit(ctx, node, admission).await;
        }
        for seat in (index..ctx.seats).step_by(ctx.nodes.len()) {
            mailbox(ctx, node, &handle(seat)).await;
        }
    });
    join_all(booted).await;
}

async fn mailbox<S: Store>(ctx: &Context<S>, node: &Node<S>, handle: &str) {
    let (names, first) = (Shelf::Mailboxes.names(), 1);
    ctx.accounts.rolls.lock().sending(names.list, handle, first);
    let created = Shelf::Mailboxes.create(node, handle, first);
    let told = ctx.ask(names.create, ctx.env.now(), |told| matches!(told, Told::Done(_)), created).await;
    if let Ok(told) = told {
        ctx.judge(holds(matches!(told, Told::Done(_)), Wrong::Record), handle);
        ctx.accounts.rolls.lock().stands(names.list, handle, ctx.env.now());
    }
}
