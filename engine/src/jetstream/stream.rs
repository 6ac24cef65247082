//! Changes to streams: made, changed, emptied, removed. Each is sent once.

use async_nats::Message;
use bytes::Bytes;
use coordproto::answer::Unknown;
use coordproto::api::Judged;
use coordproto::api::requests::{self, StreamConfig, Verb};
use coordproto::api::verdict::{self, Created};

use super::connection::Jetstream;
use super::counters::Kind;
use super::exchange::{Call, status};
use crate::env::Mono;

impl Jetstream {
    /// Removes what `filter` matches, up to and including revision `through`; all of it without a bound. Answers how many
    /// messages went. In a cluster this is a quorum's decision even when there is nothing to remove.
    ///
    /// # Errors
    /// Unknown when there is no answer, or not a leader's.
    pub async fn purge(&self, stream: &str, filter: &str, through: Option<u64>, by: Mono) -> Result<u64, Unknown> {
        let body = self.desk().carve(|into| requests::purge(into, filter, through));
        self.change((Kind::Purge, Verb::Purge, "purge"), stream, body, by, |message| {
            verdict::purge(status(message), &message.payload)
        })
        .await
    }

    /// Creates a stream. One that stands with the same configuration is as good as created; one that differs is not changed.
    ///
    /// # Errors
    /// Unknown when there is no answer, or the broker cannot do it; the log has the broker's words.
    pub async fn create_stream(&self, config: &StreamConfig, by: Mono) -> Result<Created, Unknown> {
        let body = requests::stream_config(config).into();
        self.change((Kind::StreamCreate, Verb::Create, "create stream"), &config.name, body, by, |message| {
            verdict::create(status(message), &message.payload)
        })
        .await
    }

    /// Changes a stream's configuration to this one; take it from [`coordproto::api::Info::config`] and change what is to be
    /// changed.
    ///
    /// # Errors
    /// As [`Jetstream::create_stream`].
    pub async fn update_stream(&self, config: &StreamConfig, by: Mono) -> Result<(), Unknown> {
        let body = requests::stream_config(config).into();
        self.change((Kind::StreamUpdate, Verb::Update, "update stream"), &config.name, body, by, |message| {
            verdict::update(status(message), &message.payload)
        })
        .await
    }

    /// Deletes a stream with all it holds. Answers whether there was one.
    ///
    /// # Errors
    /// As [`Jetstream::purge`].
    pub async fn delete_stream(&self, stream: &str, by: Mono) -> Result<bool, Unknown> {
        let deleted = self
            .change((Kind::StreamDelete, Verb::Delete, "delete stream"), stream, Bytes::new(), by, |message| {
                verdict::delete_stream(status(message), &message.payload)
            })
            .await?;
        self.forget(stream);
        Ok(deleted)
    }

    async fn change<T>(
        &self,
        (kind, verb, op): (Kind, Verb, &'static str),
        stream: &str,
        payload: Bytes,
        by: Mono,
        judge: impl Fn(&Message) -> Judged<T>,
    ) -> Result<T, Unknown> {
        let subject = self.subject(op, stream, |into| requests::stream_subject(into, verb, stream))?;
        let call = Call { kind, op, resource: stream, subject, headers: None, payload, by };
        self.exchange(call, judge).await
    }
}
