//! What the contract runs on.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;

use engine::env::Env;
use engine::store::memory::Memory;
use tests::Fixture;
use tokio::runtime::Runtime;

/// One runtime for the whole binary: the brokers outlive every test.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

type Case<S> = fn(Fixture<S>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// The memory twin, a fresh one for each case.
pub(crate) fn memory(case: &str, run: Case<Memory>) {
    let env = Env::system();
    RUNTIME.block_on(async {
        let store = Memory::new(env.clone());
        run(Fixture { env, store, prefix: case.to_owned(), replicas: 3 }).await;
    });
}
pub(crate) fn one_broker(case: &str, run: Case<Memory>) {
    memory(case, run)
}
pub(crate) fn three_brokers(case: &str, run: Case<Memory>) {
    memory(case, run)
}
