//! Where the streams of a stand are led: all by the member that its connections are made to.
//!
//! Left to themselves, members lead whichever streams they happen to, and an operation takes a hop more in one process than in
//! the next. That would be the largest part of what is measured.

use std::time::Duration;

use async_nats::Client;
use bytes::Bytes;
use engine::env::Env;
use serde_json::{Value, json};

/// How long it may take until all are moved.
const WITHIN: Duration = Duration::from_secs(60);

/// How long until what was moved is looked at again.
const AGAIN: Duration = Duration::from_millis(50);

/// How long one answer may take. While a leader changes there may be none, and it is asked for again.
const ANSWER: Duration = Duration::from_secs(2);

/// Has every stream led by the member that `client` is connected to, and waits until it is so.
///
/// # Panics
/// When it is not so in time: there is nothing to measure then.
pub(crate) async fn gather(env: &Env, client: &Client) {
    let (here, by) = (client.server_info().server_name, env.now() + WITHIN);
    let moved = async {
        while !is_gathered(env, client, &here).await {
            env.sleep(AGAIN).await;
        }
    };
    let moved = env.within(by, moved).await;
    assert!(moved.is_ok(), "the streams are not led by {here} after {WITHIN:?}");
}

/// Whether every stream is led by that member. It is asked for those that are not.
async fn is_gathered(env: &Env, client: &Client, here: &str) -> bool {
    let names = asked(env, client, "STREAM.NAMES", json!({})).await;
    let Some(streams) = names["streams"].as_array().filter(|streams| !streams.is_empty()) else { return false };
    let mut gathered = true;
    for stream in streams.iter().filter_map(Value::as_str) {
        let info = asked(env, client, &format!("STREAM.INFO.{stream}"), json!({})).await;
        if info["cluster"]["leader"] != here {
            gathered = false;
            let placement = json!({"placement": {"preferred": here}});
            // Whatever the answer, the next look at the stream says what came of it.
            asked(env, client, &format!("STREAM.LEADER.STEPDOWN.{stream}"), placement).await;
        }
    }
    gathered
}

/// The answer of the brokers; nothing where there was none.
async fn asked(env: &Env, client: &Client, what: &str, body: Value) -> Value {
    let request = client.request(format!("$JS.API.{what}"), Bytes::from(body.to_string()));
    match env.within(env.now() + ANSWER, request).await {
        Ok(Ok(reply)) => serde_json::from_slice(&reply.payload).unwrap_or_default(),
        Ok(Err(_)) | Err(_) => Value::Null,
    }
}
