//! What the contract runs on. The brokers are started once for the whole binary, on a runtime of their own that outlives
//! every test; each case has buckets of its own, named after it, and they are deleted after it.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::time::Duration;

use coordproto::api::requests::Storage;
use engine::broker::{Cluster, Settings};
use engine::env::Env;
use engine::jetstream::{Jetstream, Options};
use engine::store::memory::Memory;
use engine::store::nats::Nats;
use tests::{Fixture, eventually};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;

/// How long the brokers may take until they serve and are connected to.
const WITHIN: Duration = Duration::from_secs(60);

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
static ONE: OnceCell<Arm> = OnceCell::const_new();
static THREE: OnceCell<Arm> = OnceCell::const_new();

type Case<S> = fn(Fixture<S>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// A cluster and a connection to it. It is never dropped; the members end with the process.
struct Arm {
    _cluster: Cluster,
    admin: async_nats::Client,
    jetstream: Jetstream,
}

impl Arm {
    async fn start(members: u8) -> Arm {
        let env = Env::system();
        let settings = Settings { ready_within: WITHIN, ..Settings::new(members) };
        let cluster = Cluster::start(settings, env.clone()).await.expect("the brokers start");
        let access = cluster.access();
        let base = async || access.connect_options().await.expect("credentials");
        let options = Options { connect_within: WITHIN, ..Options::named("contract") };
        let jetstream = Jetstream::connect(env.clone(), access.urls(), base().await, options).await.expect("connected");
        let admin =
            eventually(&env, "the arm's own connection", || async { base().await.connect(access.urls()).await.ok() })
                .await;
        Arm { _cluster: cluster, admin, jetstream }
    }

    /// The buckets that there are; none when nobody says.
    async fn buckets(&self) -> Option<Vec<String>> {
        let reply = self.admin.request("$JS.API.STREAM.NAMES", "".into()).await.ok()?;
        let names: serde_json::Value = serde_json::from_slice(&reply.payload).expect("JSON");
        let names = names.get("error").is_none().then(|| names["streams"].as_array().into_iter().flatten())?;
        let names = names.filter_map(|name| name.as_str()?.strip_prefix("KV_"));
        Some(names.map(str::to_owned).collect())
    }
}

/// The memory twin, a fresh one for each case, on a clock that leaps to the next instant that anybody waits for: what takes
/// brokers their time takes none here, and takes exactly that on the clock.
pub(crate) fn memory(case: &str, run: Case<Memory>) {
    let env = Env::system();
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let store = Memory::new(env.clone());
        run(Fixture { env, store, prefix: case.to_owned(), replicas: 3, leaps: true }).await;
    });
}

/// One broker.
pub(crate) fn one_broker(case: &str, run: Case<Nats>) {
    on(&ONE, 1, case, run);
}

/// Three brokers, every bucket on all of them.
pub(crate) fn three_brokers(case: &str, run: Case<Nats>) {
    on(&THREE, 3, case, run);
}

fn on(arm: &'static OnceCell<Arm>, members: u8, case: &str, run: Case<Nats>) {
    RUNTIME.block_on(async {
        let arm = arm.get_or_init(|| Arm::start(members)).await;
        let store = Nats::new(arm.jetstream.clone(), Storage::File);
        let env = arm.jetstream.env().clone();
        run(Fixture { env, store: store.clone(), prefix: case.to_owned(), replicas: members, leaps: false }).await;
        eventually(arm.jetstream.env(), "the case's buckets are deleted", || async {
            for bucket in arm.buckets().await?.iter().filter(|bucket| bucket.starts_with(&format!("{case}_"))) {
                store.delete(bucket).await.ok()?;
            }
            Some(())
        })
        .await;
    });
}
