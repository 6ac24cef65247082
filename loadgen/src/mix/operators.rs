//! What people do, and the passes that follow from it: revisions, credentials, integrations, and what the maintenance duty
//! tidies up behind them.

use std::time::Duration;

use bytes::Bytes;
use coordproto::record::config::{Origin, Proposal};
use coordproto::record::secret::{Sealed, SecretRecord};
use engine::env::Mono;
use engine::slots::config::Activation;
use engine::slots::{integrations, secrets};
use engine::store::Store;
use futures_util::future::join;

use super::account::{Rising, Said, judged};
use super::asides::CHANNELS;
use super::context::{Context, instant, said};
use super::node::Node;
use super::shelves::{Shelf, bytes, of_bytes};

/// The company's credentials.
pub(super) const SECRETS: u64 = 40;

/// Its outside surfaces.
const SURFACES: u64 = 8;

/// How long a channel is closed before it is taken away: short, so that a run of a minute has some.
const CLOSED_FOR: Duration = Duration::from_secs(10);

const SECRET_LIST: &str = "secrets/list";
const SURFACE_LIST: &str = "integrations/list";

/// Two operators activate two revisions over the same one, of whom one does. Every third time, one activates what is current
/// again, as is done to pick up a credential.
pub(super) async fn activate<S: Store>(ctx: &Context<S>, number: u64, due: Mono) {
    // One change of the company at a time: what is expected has to be what stands.
    let Some(account) = ctx.take("activation") else {
        drop(ctx.ops.of("config/activate").arrival(due));
        return;
    };
    let current = ctx.node(number).config.target();
    let before = ctx.accounts.activations.lock().newest();
    let current = ctx.ask("config/target", due, Option::is_some, current).await;
    if let Ok(current) = current {
        let verdict = ctx.accounts.activations.lock().told(before, current.as_ref());
        ctx.judge(verdict, "pointer");
        let current = current.map(|target| target.revision);
        match current.clone().filter(|_| number % 3 == 2) {
            Some(again) => {
                attempt(ctx, ctx.node(number), &again, None, number).await;
            }
            None => {
                let (one, other) = (format!("r{number}"), format!("r{number}-other"));
                let (one, other) = join(
                    attempt(ctx, ctx.node(number), &one, current.as_deref(), number),
                    attempt(ctx, ctx.node(number + 1), &other, current.as_deref(), number),
                )
                .await;
                // Without a pointer there is nothing to lose against: both are activated, one after the other.
                if current.is_some() {
                    ctx.judge(judged(&[one, other], false), format_args!("activation {number}"));
                }
            }
        }
    }
    ctx.give_back("activation", account);
}

async fn attempt<S: Store>(
    ctx: &Context<S>,
    node: &Node<S>,
    revision: &str,
    expect: Option<&str>,
    number: u64,
) -> Said {
    let body = Bytes::from(format!("{revision} as {} sealed it for activation {number}", node.id));
    let now = ctx.wall();
    let (author, author_kind, source) = ("somebody".into(), "operator".into(), "api".into());
    let origin = Origin { author, author_kind, source, created_at: now };
    let proposal = Proposal { expect: expect.map(str::to_owned), ..Proposal::new(revision, origin) };
    let before = {
        let mut account = ctx.accounts.activations.lock();
        account.sending(revision, &body);
        account.newest()
    };
    let activated = |told: &Activation| matches!(told, Activation::Activated(_));
    let activate = node.config.activate(&proposal, body.clone(), now);
    let told = ctx.ask("config/activate", ctx.env.now(), activated, activate).await;
    let verdict = match &told {
        Ok(Activation::Activated(target)) => ctx.accounts.activations.lock().activated(before, revision, target),
        Ok(Activation::Lost(target)) => ctx.accounts.activations.lock().lost(before, &body, target),
        Err(_) => Ok(()),
    };
    ctx.judge(verdict, revision);
    said(&told, activated)
}

/// A credential is set and read back; every fourth time it is deleted first, by two at once.
pub(super) async fn secret<S: Store>(ctx: &Context<S>, number: u64, due: Mono) {
    let name = format!("SECRET_{}", number % SECRETS);
    let Some(mut secret) = ctx.take(&name) else {
        drop(ctx.ops.of("secrets/put").arrival(due));
        return;
    };
    let (node, other) = (ctx.node(number), ctx.node(number + 1));
    let (mut due, removed) = (due, |told: &secrets::Delete| *told == secrets::Delete::Deleted);
    if number % 4 == 3 && secret.stands().1 > 0 {
        ctx.accounts.rolls.lock().leaving(SECRET_LIST, &name);
        let (first, second) = join(
            ctx.ask("secrets/delete", due, removed, node.secrets.delete(&name)),
            ctx.ask("secrets/delete", due, removed, other.secrets.delete(&name)),
        )
        .await;
        ctx.judge(judged(&[said(&first, removed), said(&second, removed)], false), &name);
        if first.is_err() || second.is_err() {
            return;
        }
        secret.removed();
        read_secret(ctx, other, &name, &mut secret).await;
        due = ctx.env.now();
    }
    // It has no revision that anybody is told of: its number is one.
    let (value, _) = secret.next();
    ctx.accounts.rolls.lock().sending(SECRET_LIST, &name, value);
    let sealed = Sealed::new(bytes(value)).expect("a number is not empty");
    let record = SecretRecord { sealed, by: "somebody".into(), at: instant(value) };
    if ctx.ask("secrets/put", due, |()| true, node.secrets.put(&name, &record)).await.is_err() {
        return;
    }
    ctx.judge(secret.stored(value, value), &name);
    ctx.accounts.rolls.lock().stands(SECRET_LIST, &name, ctx.env.now());
    read_secret(ctx, other, &name, &mut secret).await;
    ctx.give_back(&name, secret);
}

async fn read_secret<S: Store>(ctx: &Context<S>, node: &Node<S>, name: &str, secret: &mut Rising) {
    if let Ok(found) = ctx.ask("secrets/get", ctx.env.now(), Option::is_some, node.secrets.get(name)).await {
        let value = found.map_or(0, |found| of_bytes(found.record.sealed.bytes()));
        ctx.judge(secret.told((value, value)), name);
    }
}

/// A node reads every credential, as it does whenever it applies a revision.
pub(super) async fn list_secrets<S: Store>(ctx: &Context<S>, node: &Node<S>) {
    let began = ctx.env.now();
    if let Ok(all) = ctx.ask(SECRET_LIST, began, |_| true, node.secrets.list()).await {
        let rows: Vec<_> = all.iter().map(|row| (row.name.clone(), of_bytes(row.record.sealed.bytes()))).collect();
        let verdict = ctx.accounts.rolls.lock().listed(SECRET_LIST, began, &rows);
        ctx.judge(verdict, "secrets");
    }
}

/// A pass of the integration reconcile: every surface's state is read, and each is written anew.
pub(super) async fn reconcile<S: Store>(ctx: &Context<S>, node: &Node<S>) {
    list_surfaces(ctx, node).await;
    for surface in 0..SURFACES {
        let name = format!("surface{surface}");
        // Whoever held the duty before may still be at it.
        let Some(mut state) = ctx.take(&name) else { continue };
        if put_surface(ctx, node, &name, &mut state).await {
            ctx.give_back(&name, state);
        }
    }
}

async fn put_surface<S: Store>(ctx: &Context<S>, node: &Node<S>, name: &str, state: &mut Rising) -> bool {
    let (value, _) = state.next();
    ctx.accounts.rolls.lock().sending(SURFACE_LIST, name, value);
    let put = node.integrations.put(name, bytes(value));
    if ctx.ask("integrations/put", ctx.env.now(), |()| true, put).await.is_err() {
        return false;
    }
    ctx.judge(state.stored(value, value), name);
    ctx.accounts.rolls.lock().stands(SURFACE_LIST, name, ctx.env.now());
    true
}

async fn list_surfaces<S: Store>(ctx: &Context<S>, node: &Node<S>) {
    let began = ctx.env.now();
    if let Ok(all) = ctx.ask(SURFACE_LIST, began, |_| true, node.integrations.list()).await {
        let rows: Vec<_> = all.iter().map(|row| (row.surface.clone(), of_bytes(&row.record))).collect();
        let verdict = ctx.accounts.rolls.lock().listed(SURFACE_LIST, began, &rows);
        ctx.judge(verdict, "integrations");
    }
}

/// A surface is connected, and disconnected by two at once.
pub(super) async fn surface<S: Store>(ctx: &Context<S>, number: u64, _due: Mono) {
    let (name, node, other) = (format!("connected{number}"), ctx.node(number), ctx.node(number + 1));
    let mut state = Rising::default();
    if !put_surface(ctx, node, &name, &mut state).await {
        return;
    }
    list_surfaces(ctx, other).await;
    ctx.accounts.rolls.lock().leaving(SURFACE_LIST, &name);
    let (removed, now) = (|told: &integrations::Delete| *told == integrations::Delete::Deleted, ctx.env.now());
    let (first, second) = join(
        ctx.ask("integrations/delete", now, removed, node.integrations.delete(&name)),
        ctx.ask("integrations/delete", now, removed, other.integrations.delete(&name)),
    )
    .await;
    ctx.judge(judged(&[said(&first, removed), said(&second, removed)], false), &name);
}

/// The maintenance duty's work: channels that are idle or closed, and mailboxes of seats that left.
pub(super) async fn upkeep<S: Store>(ctx: &Context<S>, node: &Node<S>, due: Mono) {
    for (name, open) in [("channels/open_list", true), (CHANNELS, false)] {
        let began = if open { due } else { ctx.env.now() };
        let listed =
            async { if open { node.channels.open_channels().await } else { node.channels.all_channels().await } };
        if let Ok(all) = ctx.ask(name, began, |_| true, listed).await {
            let row =
                |listed: engine::slots::channels::ListedChannel| (listed.channel.id, listed.channel.record.messages);
            let rows: Vec<_> = all.into_iter().map(row).collect();
            let verdict = ctx.accounts.rolls.lock().listed(CHANNELS, began, &rows);
            ctx.judge(verdict, name);
        }
    }
    // What it takes is closed: an open one that it took would be missed by whoever talks in it.
    let _counted = ctx.ask("channels/purge", ctx.env.now(), |_| true, node.channels.purge(CLOSED_FOR)).await;
    for shelf in [Shelf::Mailboxes, Shelf::Maintenance, Shelf::Acks] {
        list(ctx, node, shelf, ctx.env.now()).await;
    }
}

/// Lists a family, and holds the listing against who has to be in it.
pub(super) async fn list<S: Store>(ctx: &Context<S>, node: &Node<S>, shelf: Shelf, due: Mono) {
    let (name, began) = (shelf.names().list, ctx.env.now());
    if let Ok(rows) = ctx.ask(name, due, |_| true, shelf.list(node)).await {
        let verdict = ctx.accounts.rolls.lock().listed(name, began, &rows);
        ctx.judge(verdict, name);
    }
}
