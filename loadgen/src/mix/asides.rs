//! What a turn does on the side: a colleague is asked, a refused credential cools for everybody, a write of the state log looks
//! at the floors.

use std::time::Duration;

use coordproto::record::cooldown::Credential;
use engine::env::Mono;
use engine::slots::channels::{Close, Count, Open};
use engine::slots::cooldowns::Cool;
use engine::store::Store;
use futures_util::future::join;
use jiff::SignedDuration;

use super::account::{Wrong, holds, judged};
use super::context::{Context, said};
use super::node::Node;

/// Credentials of the company, under one provider entry.
const CREDENTIALS: u64 = 8;

/// The shortest and the longest cooldown, in minutes.
const COOLS_MINUTES: (u64, u64) = (10, 60);

/// From a question to a colleague to its end.
const CONVERSATION: Duration = Duration::from_secs(4);

/// The family of the rolls that channels are in.
pub(super) const CHANNELS: &str = "channels/all";

/// A provider refused a call: the credential cools, for a while that the vendor said.
pub(super) async fn cool<S: Store>(ctx: &Context<S>, node: &Node<S>, number: u64) {
    let secret = format!("key {}", number % CREDENTIALS);
    let credential = Credential::new("fast", secret.as_bytes()).expect("an entry with a name");
    let (least, most) = COOLS_MINUTES;
    let minutes = least + ctx.env.below(most - least);
    let wait = SignedDuration::from_mins(i64::try_from(minutes).unwrap_or(i64::MAX));
    let until = ctx.wall().saturating_add(wait).unwrap_or(jiff::Timestamp::MAX);
    let name = credential.to_string();
    let before = ctx.accounts.cooling.lock().saying(&name, until);
    let cooled = node.cooldowns.cool(&credential, until);
    let stands = match ctx.ask("cooldowns/cool", ctx.env.now(), |cool| *cool == Cool::Cooled, cooled).await {
        Ok(Cool::Cooled) => until,
        Ok(Cool::Already(stands)) => stands,
        Err(_) => return,
    };
    let verdict = ctx.accounts.cooling.lock().told(&name, (before, until), stands, ctx.env.now());
    ctx.judge(verdict, name);
}

/// What a write of the state log asks before it is made: every floor that is published.
pub(super) async fn floors<S: Store>(ctx: &Context<S>, node: &Node<S>) {
    let began = ctx.env.now();
    let Ok(floors) = ctx.ask("positions_floor/list", began, |_| true, node.positions.floors.list()).await else {
        return;
    };
    let rows: Vec<_> = floors.into_iter().map(|row| (row.record.domain, row.record.floor)).collect();
    let verdict = ctx.accounts.rolls.lock().listed("positions_floor/list", began, &rows);
    ctx.judge(verdict, "floors");
}

/// A seat asks another: the channel is opened, read where the other seat runs, talked in from both sides at once, closed by
/// both, and silent from then on.
pub(super) async fn channel<S: Store>(ctx: &Context<S>, number: u64, [asker, asked]: [&Node<S>; 2], due: Mono) {
    let id = format!("c{number}");
    let judge = |verdict| ctx.judge(verdict, format_args!("channel {id}"));
    (0..=2).for_each(|messages| ctx.accounts.rolls.lock().sending(CHANNELS, &id, messages));
    let (opened, at) = (|open: &Open| matches!(open, Open::Opened(_)), ctx.wall());
    // The message that opens it is delivered twice.
    let (first, second) = join(
        ctx.ask("channels/open", due, opened, asker.channels.open(&id, "asker", "asked", at)),
        ctx.ask("channels/open", due, opened, asked.channels.open(&id, "asker", "asked", at)),
    )
    .await;
    judge(judged(&[said(&first, opened), said(&second, opened)], false));
    if first.is_err() || second.is_err() {
        return;
    }
    ctx.accounts.rolls.lock().stands(CHANNELS, &id, ctx.env.now());
    if let Ok(found) = ctx.ask("channels/get", ctx.env.now(), Option::is_some, asked.channels.get(&id)).await {
        let is_open = found.is_some_and(|channel| channel.record.is_open() && channel.record.messages == 0);
        judge(holds(is_open, Wrong::Record));
    }
    if ctx.over_by(due + CONVERSATION / 2).await {
        return;
    }
    let (counted, now) = (|count: &Count| matches!(count, Count::Counted(_)), ctx.env.now());
    let (one, other) = join(
        ctx.ask("channels/count", now, counted, asker.channels.count_message(&id)),
        ctx.ask("channels/count", now, counted, asked.channels.count_message(&id)),
    )
    .await;
    let certainly = u64::from(one.is_ok()) + u64::from(other.is_ok());
    for told in [one, other].into_iter().flatten() {
        let counted = matches!(&told, Count::Counted(channel) if (1..=2).contains(&channel.record.messages));
        judge(holds(counted, Wrong::Record));
    }
    if ctx.over_by(due + CONVERSATION).await {
        return;
    }
    close(ctx, &id, [asker, asked], certainly).await;
}

async fn close<S: Store>(ctx: &Context<S>, id: &str, [asker, asked]: [&Node<S>; 2], messages: u64) {
    let judge = |verdict| ctx.judge(verdict, format_args!("channel {id}"));
    ctx.accounts.rolls.lock().leaving(CHANNELS, id);
    let (closed, now, at) = (|close: &Close| matches!(close, Close::Closed(_)), ctx.env.now(), ctx.wall());
    let later = at.saturating_add(SignedDuration::from_secs(1)).unwrap_or(at);
    let (one, other) = join(
        ctx.ask("channels/close", now, closed, asker.channels.close(id, at)),
        ctx.ask("channels/close", now, closed, asked.channels.close(id, later)),
    )
    .await;
    judge(judged(&[said(&one, closed), said(&other, closed)], false));
    if let (Ok(one), Ok(other)) = (one, other) {
        // Both are told the instant of the first, and the messages that were counted.
        let told = |close| match close {
            Close::Closed(channel) | Close::AlreadyClosed(channel) => Some(channel.record),
            Close::Absent => None,
        };
        let (one, other) = (told(one), told(other));
        let counted = one.as_ref().is_some_and(|record| (messages..=2).contains(&record.messages));
        judge(holds(one == other && counted, Wrong::Record));
        let late = asked.channels.count_message(id);
        let late = ctx.ask("channels/count", ctx.env.now(), |told| matches!(told, Count::Counted(_)), late).await;
        judge(holds(!matches!(late, Ok(Count::Counted(_))), Wrong::Record));
    }
}
