//! The nodes that follow the paused seats, as every node does for as long as it lives, and whether in the end each has heard of
//! what is so.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use coordproto::record::seat_pause;
use engine::env::Mono;
use engine::store::Store;
use engine::store::follow::News;

use super::account::{Wrong, holds};
use super::context::Context;

/// How long what is so may take to reach every node.
const HEARD_WITHIN: Duration = Duration::from_secs(30);

/// From one look to the next.
const LOOK: Duration = Duration::from_millis(100);

/// Follows the pauses for a node, until dropped.
pub(super) async fn follow<S: Store>(ctx: Arc<Context<S>>, index: usize) {
    let mut pauses = ctx.nodes[index].pauses.follow();
    loop {
        let news = pauses.next().await;
        let mut heard = ctx.heard[index].lock();
        match news {
            News::All { entries, .. } => {
                let all = entries.into_iter().map(|(_, paused)| (paused.handle, paused.revision));
                *heard = Some(all.collect());
            }
            News::Changed(key, paused) => {
                // A change before the first answer would be one of nothing.
                let Some(heard) = heard.as_mut() else {
                    ctx.judge(Err(Wrong::Record), format_args!("a change before all at {}", ctx.nodes[index].id));
                    continue;
                };
                match (seat_pause::handle(&key), paused) {
                    (Ok(handle), None) => drop(heard.remove(&handle)),
                    (_, Some(paused)) => drop(heard.insert(paused.handle, paused.revision)),
                    (Err(_), None) => {}
                }
            }
            News::Ended(unknown) => {
                tracing::debug!(%unknown, "mix_unanswered");
                *heard = None;
            }
        }
    }
}

/// Waits until every node has heard of what is paused, by the leader's word, and of nothing else. One that has not after a
/// while is told something wrong; where the leader says nothing, nothing can be settled.
pub(super) async fn settled<S: Store>(ctx: &Context<S>) {
    let by = ctx.env.now() + HEARD_WITHIN;
    let Some(paused) = paused(ctx, by).await else {
        ctx.judge(Err(Wrong::Unsettled), "pauses");
        return;
    };
    let behind = || (0..ctx.nodes.len()).filter(|index| ctx.heard[*index].lock().as_ref() != Some(&paused));
    while ctx.env.now() < by && behind().next().is_some() {
        ctx.env.sleep(LOOK).await;
    }
    for index in behind() {
        ctx.judge(holds(false, Wrong::Record), format_args!("pauses that {} heard of", ctx.nodes[index].id));
    }
}

async fn paused<S: Store>(ctx: &Context<S>, by: Mono) -> Option<HashMap<String, u64>> {
    loop {
        match ctx.nodes[0].pauses.list().await {
            Ok(paused) => return Some(paused.into_iter().map(|paused| (paused.handle, paused.revision)).collect()),
            Err(unknown) => tracing::debug!(%unknown, "mix_unanswered"),
        }
        if ctx.env.now() >= by {
            return None;
        }
        ctx.env.sleep(LOOK).await;
    }
}
