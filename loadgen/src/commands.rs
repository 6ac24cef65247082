//! From a command line to a report and an exit code.

use engine::env::Env;
use engine::lease::Leases;
use engine::store::nats::Nats;
use engine::tasks;

use crate::cli::FleetArgs;
use crate::exit::Exit;
use crate::fleet::{Fleet, Ran};
use crate::limits;
use crate::progress::Progress;
use crate::report::ensure_writable;
use crate::session::{Session, say};
use crate::signals::Signals;
use crate::target::{Target, Unavailable};

/// Runs `loadgen fleet`. The first signal ends it in order, a second at once.
pub async fn fleet(args: FleetArgs, mut signals: Signals) -> Exit {
    let first = signals.clone();
    tokio::select! {
        exit = Box::pin(in_order(&args, first)) => exit,
        // What is dropped here kills its brokers.
        exit = signals.second() => exit,
    }
}

async fn in_order(args: &FleetArgs, mut signals: Signals) -> Exit {
    let asked = args.common.asked();
    if let Err(error) = limits::ensure(args.nodes, &asked) {
        say(format_args!("loadgen: {error}"));
        return Exit::Failed;
    }
    if let Some(dir) = args.common.out.clone()
        && let Err(error) = tasks::blocking(move || ensure_writable(&dir)).await
    {
        say(format_args!("loadgen: --out: {error}"));
        return Exit::Failed;
    }
    // A seed that is drawn is a whole number to every reader of JSON, those that know only doubles included.
    let seed = args.common.seed.unwrap_or_else(|| Env::system().below(1 << 53));
    let env = Env::seeded(seed);
    let reached = async {
        let target = Target::new(&asked, &env).await?;
        let first = target.store(&node_name(0)).await?;
        Ok((target, first))
    };
    let reached = tokio::select! {
        reached = reached => reached,
        exit = signals.first() => {
            say(format_args!("loadgen: interrupted before the brokers served: there is nothing to report"));
            return exit;
        }
    };
    let (target, first) = match reached {
        Ok(reached) => reached,
        Err(error) => return unavailable(&error),
    };
    let ran = run_fleet(args, &env, seed, &target, first, signals).await;
    let exit = ran.unwrap_or_else(|error| unavailable(&error));
    if let Err(error) = target.stop().await {
        say(format_args!("loadgen: {error}"));
    }
    exit
}

fn unavailable(error: &Unavailable) -> Exit {
    say(format_args!("loadgen: {error}"));
    error.exit()
}

async fn run_fleet(
    args: &FleetArgs,
    env: &Env,
    seed: u64,
    target: &Target,
    first: Nats,
    mut signals: Signals,
) -> Result<Exit, Unavailable> {
    let session = Session::new(args, env, seed, target, target.described(&first)).await;
    target.sampled_by(session.sampler());
    let prefix = format!("loadgen_{}", session.run_id());
    let fleet = Fleet::new(env.clone(), session.origin(), args.params(seed), prefix, target.replicas(&first));
    let _stalls = tasks::spawn(fleet.recorder.watch_for_stalls(env.clone()));
    let sampler = session.sampler().clone();
    let _samples = tasks::spawn(async move { sampler.run().await });

    let mut progress = Progress::stderr();
    let mut ended_by = None;
    let ran = tokio::select! {
        ran = open_and_run(&fleet, target, &first, async { ended_by = Some(signals.first().await) }) => ran,
        never = session.show(&fleet, &mut progress) => match never {},
    };
    progress.finish();
    session.sampler().sample();
    let exit = ran.map(|ran| session.conclude(&fleet, &ran, ended_by.filter(|_| ran.interrupted)));
    if !target.is_embedded() {
        clean_up(&first, &fleet.prefix).await;
    }
    exit
}

/// Opens every node's leases and runs the fleet on them.
async fn open_and_run(
    fleet: &Fleet,
    target: &Target,
    first: &Nats,
    interrupt: impl Future<Output = ()>,
) -> Result<Ran, Unavailable> {
    let store = async |node: usize| match node {
        0 => Ok(first.clone()),
        _ => target.store(&node_name(node)).await,
    };
    let mut interrupt = std::pin::pin!(interrupt);
    let leases: Vec<Leases<Nats>> = tokio::select! {
        leases = fleet.open(&store) => leases?,
        () = &mut interrupt => return Ok(Ran { interrupted: true, ..Ran::default() }),
    };
    tracing::info!(nodes = leases.len(), buckets = fleet.prefix, replicas = fleet.replicas, "fleet_connected");
    Ok(fleet.run(&leases, interrupt).await)
}

/// A node's name in the broker's monitoring.
fn node_name(node: usize) -> String {
    format!("loadgen-n{node:03}")
}

/// Somebody else's broker is left as it was found.
async fn clean_up(store: &Nats, prefix: &str) {
    for slot in coordproto::slot::SLOTS {
        let bucket = format!("{prefix}_{}", slot.name);
        if let Err(unknown) = store.delete(&bucket).await {
            say(format_args!("loadgen: bucket {bucket} was left behind: {unknown}"));
        }
    }
}
