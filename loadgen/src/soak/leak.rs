//! Leaks planted on purpose, so that a soak is seen to find what it looks for. `--leak` is not shown among a soak's settings.
//!
//! What belongs to a renewal is lost once for each operation that was answered, the rest once a second.

use std::convert::Infallible;
use std::fs::File;
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use coordproto::api::requests::ConsumerConfig;
use engine::env::Env;
use engine::jetstream::Write;
use engine::store::nats::Nats;
use engine::store::{BucketSpec, Store};
use engine::tasks::{self, Task};
use futures_util::future::join_all;

use super::PERIOD;
use crate::recorder::Recorder;
use crate::target::{Target, Unavailable};

/// The bytes of memory that are lost with an operation.
const BYTES: usize = 8_192;

/// Nothing is pulled from a lost consumer.
const ACK_WAIT: Duration = Duration::from_secs(30);

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Leak {
    /// Memory of the generator, with every operation.
    Memory,
    /// An open file of the generator.
    File,
    /// A task of the generator.
    Task,
    /// A subscription at a broker.
    Subscription,
    /// A consumer at a broker.
    Consumer,
    /// A message in a stream, with every operation.
    Message,
}

impl Leak {
    /// Its name in a report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Leak::Memory => "memory",
            Leak::File => "file",
            Leak::Task => "task",
            Leak::Subscription => "subscription",
            Leak::Consumer => "consumer",
            Leak::Message => "message",
        }
    }
}

/// What was lost so far.
pub(super) struct Planted {
    env: Env,
    leaks: Vec<Leak>,
    store: Nats,
    client: async_nats::Client,
    bucket: String,
    memory: Vec<Vec<u8>>,
    files: Vec<File>,
    tasks: Vec<Task<()>>,
    subscriptions: Vec<async_nats::Subscriber>,
}

impl Planted {
    /// Ready to lose `leaks`, with a stream of its own where one is taken.
    ///
    /// # Errors
    /// When the brokers do not give it.
    pub(super) async fn prepare(
        env: &Env,
        leaks: &[Leak],
        target: &Target,
        store: &Nats,
        (prefix, replicas): (&str, u8),
    ) -> Result<Planted, Unavailable> {
        let options = target.access().connect_options().await?;
        let connected = Box::pin(options.name("loadgen-leak").connect(target.access().urls())).await;
        let client = connected.map_err(|error| Unavailable::System(error.to_string()))?;
        let bucket = format!("{prefix}_leak");
        store.open(&BucketSpec { name: bucket.clone(), age: None, raise_age: false, replicas }).await?;
        let (env, leaks, store) = (env.clone(), leaks.to_vec(), store.clone());
        let (memory, files, tasks, subscriptions) = Default::default();
        Ok(Planted { env, leaks, store, client, bucket, memory, files, tasks, subscriptions })
    }

    /// Loses what it is to lose, until dropped.
    pub(super) async fn lose(mut self, recorder: &Recorder) -> Infallible {
        let mut before = recorder.totals().ended();
        loop {
            let now = self.env.now();
            let ended = recorder.totals().ended();
            for leak in self.leaks.clone() {
                self.lose_one(leak, before..ended).await;
            }
            before = ended;
            self.env.sleep_until(now + PERIOD).await;
        }
    }

    /// `operations` are the numbers of those that ended since.
    async fn lose_one(&mut self, leak: Leak, operations: std::ops::Range<u64>) {
        let js = self.store.jetstream();
        match leak {
            Leak::Memory => self.memory.extend(operations.map(|_| vec![1; BYTES])),
            Leak::File => self.files.extend(File::open("/dev/null")),
            Leak::Task => self.tasks.push(tasks::spawn(std::future::pending())),
            Leak::Subscription => self.subscriptions.extend(self.client.subscribe(self.client.new_inbox()).await),
            Leak::Consumer => {
                let name = self.client.new_inbox().replace('.', "_");
                let config = ConsumerConfig::durable_pull(&name, "", ACK_WAIT, 1);
                let made = js.create_consumer(&format!("KV_{}", self.bucket), &config, js.deadline()).await;
                made.map_or_else(|error| tracing::debug!(%error, "leak_not_made"), drop);
            }
            Leak::Message => {
                let subject = |number| format!("$KV.{}.{number}", self.bucket);
                let write = async |number: u64| {
                    let put = js.put(&subject(number), Write::default(), Bytes::new(), js.deadline()).await;
                    put.map_or_else(|error| tracing::debug!(%error, "leak_not_made"), drop);
                };
                join_all(operations.map(write)).await;
            }
        }
    }
}
