//! What every node does on a clock of its own, whether or not there is work: it looks at the activation pointer and says what
//! it applied, pulls the cooling credentials, publishes its positions, asks for the duties, and gives its batches of events to
//! a keeper.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use coordproto::key::Resource;
use coordproto::lease::Terms;
use coordproto::record::position::NodePosition;
use coordproto::record::status::{ApplyStatus, StatusRecord};
use coordproto::slot::{Retention, STATUS};
use engine::env::Mono;
use engine::lease::Claim;
use engine::slots::config::{Payload, Target};
use engine::store::Store;
use futures_util::future::{join, join_all};

use super::account::{Wrong, holds};
use super::context::{Context, instant};
use super::shelves::changed;
use super::streams::Share;
use super::{company, operators};
use crate::fleet;

/// The logs that a node applies, and the trim trims.
pub(super) const DOMAINS: [&str; 3] = ["tracker", "knowledge", "memory"];

/// A duty: its name, how long its claim lasts, and what whoever holds it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    Scheduler,
    Integrations,
    Maintenance,
    Learning,
}

impl Duty {
    fn terms(self, owner: &str) -> Terms {
        let (name, ttl) = match self {
            Duty::Scheduler => ("scheduler", 30),
            Duty::Integrations => ("integrations", 270),
            Duty::Maintenance => ("maintenance", 45 * 60),
            Duty::Learning => ("learning", 3 * 60 * 60),
        };
        let resource = Resource::parse(&format!("worker:{name}")).expect("a duty has a name");
        Terms::new(resource, owner, Duration::from_secs(ttl))
    }
}

/// A node's tick of a duty: it claims it, and whoever has it does what is to be done.
pub(super) async fn duty<S: Store>(ctx: &Context<S>, duty: Duty, number: u64, due: Mono) {
    let index = (number % ctx.nodes.len() as u64) as usize;
    let (node, terms) = (&ctx.nodes[index], duty.terms(&ctx.owners[index]));
    let claimed = fleet::attempt(&ctx.beat, &node.leases, ctx.ops.of("duties/claim"), due, &terms).await;
    match (duty, claimed) {
        (Duty::Integrations, Ok(Claim::Held(_))) => operators::reconcile(ctx, node).await,
        (Duty::Maintenance, Ok(Claim::Held(_))) => operators::upkeep(ctx, node, ctx.env.now()).await,
        // The scheduler's fires come by themselves, and learning is no business of the coordination store's.
        _ => {}
    }
}

/// A node looks at the pointer, applies what is new, says what it applied, and reads what the others did.
pub(super) async fn reconcile<S: Store>(ctx: &Context<S>, number: u64, due: Mono) {
    let index = (number % ctx.nodes.len() as u64) as usize;
    let node = &ctx.nodes[index];
    let before = ctx.accounts.activations.lock().newest();
    if let Ok(target) = ctx.ask("config/target", due, Option::is_some, node.config.target()).await {
        let verdict = ctx.accounts.activations.lock().told(before, target.as_ref());
        ctx.judge(verdict, format_args!("pointer read by {}", node.id));
        if let Some(target) = target.filter(|target| target.epoch > ctx.applied(index)) {
            apply(ctx, index, &target).await;
        }
    }
    let (epoch, sent) = (ctx.applied(index), ctx.env.now());
    let report = StatusRecord { epoch, revision: "r".into(), status: ApplyStatus::Ok, error: String::new() };
    ctx.accounts.reports.lock().sending(&node.id, epoch);
    if ctx.ask("status/record", sent, |()| true, node.status.record_apply(&node.id, &report)).await.is_ok() {
        ctx.accounts.reports.lock().acknowledged(&node.id, sent, ctx.env.now());
    }
    let began = ctx.env.now();
    if let Ok(fleet) = ctx.ask("status/fleet", began, |_| true, node.status.fleet()).await {
        let rows: Vec<_> = fleet.nodes.iter().map(|node| (node.node.as_str(), node.report.epoch)).collect();
        let age = STATUS.age.of(&Retention::default()).unwrap_or(Duration::MAX);
        let verdict = ctx.accounts.reports.lock().read((began, ctx.env.now()), age, &rows);
        ctx.judge(verdict, format_args!("statuses read by {}", node.id));
    }
}

async fn apply<S: Store>(ctx: &Context<S>, index: usize, target: &Target) {
    let node = &ctx.nodes[index];
    let before = ctx.accounts.activations.lock().newest();
    let payload = node.config.payload(&target.revision);
    match ctx.ask("config/payload", ctx.env.now(), |told| matches!(told, Payload::Body(_)), payload).await {
        Ok(Payload::Body(body)) => {
            let verdict = ctx.accounts.activations.lock().body(&target.revision, &body);
            ctx.judge(verdict, format_args!("body of {}", target.revision));
        }
        Ok(Payload::NotCurrent(current)) => {
            let verdict = ctx.accounts.activations.lock().told(before, current.as_ref());
            ctx.judge(verdict, format_args!("pointer beside {}", target.revision));
        }
        Err(_) => return,
    }
    operators::list_secrets(ctx, node).await;
    ctx.applied[index].fetch_max(target.epoch, Ordering::Relaxed);
}

/// A node pulls what cools.
pub(super) async fn pull<S: Store>(ctx: &Context<S>, number: u64, due: Mono) {
    let (node, began, at) = (ctx.node(number), ctx.env.now(), ctx.wall());
    if let Ok(cooling) = ctx.ask("cooldowns/since", due, |_| true, node.cooldowns.since(at)).await {
        let rows: Vec<_> = cooling.iter().map(|cooling| (cooling.credential.to_string(), cooling.until)).collect();
        let verdict = ctx.accounts.cooling.lock().read(began, at, &rows);
        ctx.judge(verdict, format_args!("cooldowns read by {}", node.id));
    }
}

/// A node publishes where it stands in every log, and every fourth time reads it back first, as one that comes back does.
pub(super) async fn positions<S: Store>(ctx: &Context<S>, number: u64, due: Mono) {
    let node = ctx.node(number);
    let again = (number / ctx.nodes.len() as u64).is_multiple_of(Share::READ_BACK);
    let all = DOMAINS.map(async |domain| {
        let key = position_key(&node.id, domain);
        if again && let Some(mut position) = ctx.take(&key) {
            let read = node.positions.nodes.get(&node.id, domain);
            if let Ok(row) = ctx.ask("positions_node/get", due, Option::is_some, read).await {
                ctx.judge(position.told(row.map_or((0, 0), |row| (row.record.applied, row.revision))), &key);
            }
            ctx.give_back(&key, position);
        }
        let due = if again { ctx.env.now() } else { due };
        let record = async |applied: u64, over: u64| {
            let (node_id, domain, at) = (node.id.clone(), domain.to_owned(), instant(applied));
            let position = NodePosition { node: node_id, domain, applied, at };
            node.positions.nodes.record(&position, over).await.map(|told| changed(told, |position| position.applied))
        };
        company::raise(ctx, "positions_node/record", "positions_node/list", &key, due, record).await;
    });
    join_all(all).await;
}

/// What the position of a node in a domain is called in the accounts.
pub(super) fn position_key(node: &str, domain: &str) -> String {
    format!("{node} {domain}")
}

/// A batch of events is claimed by whoever wrote it; of some batches two nodes did, and the second asks again later.
pub(super) async fn custody<S: Store>(ctx: &Context<S>, number: u64, due: Mono) {
    let batch = format!("b{number}");
    let claim = async |node: u64, due| {
        let node = ctx.node(node);
        let claim = node.custody.claim_custody(&batch, &node.id);
        ctx.ask("custody/claim", due, |keeper| *keeper == node.id, claim).await
    };
    let mut told = vec![];
    if number.is_multiple_of(Share::BATCH_TWICE) {
        let (one, other) = join(claim(number, due), claim(number + 1, due)).await;
        told.extend([one, other, claim(number + 1, ctx.env.now()).await]);
    } else {
        told.push(claim(number, due).await);
    }
    let keepers: BTreeSet<_> = told.into_iter().flatten().collect();
    let claimed = keepers.iter().all(|keeper| [number, number + 1].iter().any(|n| ctx.node(*n).id == *keeper));
    ctx.judge(holds(keepers.len() <= 1, Wrong::WinnersDoubled), &batch);
    ctx.judge(holds(claimed, Wrong::Record), &batch);
}
