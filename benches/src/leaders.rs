//! Where the streams of a stand are led: all by the member that its connections are made to.
//!
//! Left to themselves, members lead whichever streams they happen to, and an operation takes a hop more in one process than in
//! the next. That would be the largest part of what is measured.

use std::time::Duration;

use async_nats::Client;
use bytes::Bytes;
use engine::env::{Env, Mono};
use serde_json::{Value, json};

/// How long it may take until all are moved.
const WITHIN: Duration = Duration::from_secs(60);

/// How long until what was moved is looked at again.
const AGAIN: Duration = Duration::from_millis(50);

/// Has every stream led by the member that `client` is connected to, and waits until it is so.
///
/// # Panics
/// When it is not so in time, or a broker has no answer: there is nothing to measure then.
pub(crate) async fn gather(env: &Env, client: &Client) {
    let (here, by) = (client.server_info().server_name, env.now() + WITHIN);
    let names = asked(env, client, by, "STREAM.NAMES".to_owned(), json!({})).await;
    for stream in names["streams"].as_array().expect("the streams' names").iter().filter_map(Value::as_str) {
        loop {
            let info = asked(env, client, by, format!("STREAM.INFO.{stream}"), json!({})).await;
            if info["cluster"]["leader"] == here {
                break;
            }
            // Refused while an election is under way: then it is asked for again.
            let placement = json!({"placement": {"preferred": here}});
            asked(env, client, by, format!("STREAM.LEADER.STEPDOWN.{stream}"), placement).await;
            env.sleep(AGAIN).await;
        }
    }
}

async fn asked(env: &Env, client: &Client, by: Mono, what: String, body: Value) -> Value {
    let request = client.request(format!("$JS.API.{what}"), Bytes::from(body.to_string()));
    let reply = env.within(by, request).await;
    let reply = reply.unwrap_or_else(|error| panic!("{what}: the streams are not led by one member: {error}"));
    let reply = reply.unwrap_or_else(|error| panic!("{what}: {error}"));
    serde_json::from_slice(&reply.payload).unwrap_or_else(|error| panic!("{what}: {error}"))
}
