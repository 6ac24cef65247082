//! From a command line to a report and an exit code.

use std::sync::Arc;

use engine::env::Env;
use engine::store::nats::Nats;
use engine::tasks;

use crate::budgets::Charging;
use crate::cli::{Command, Common};
use crate::compare::{self, CompareArgs, Comparison};
use crate::exit::Exit;
use crate::fleet::Fleet;
use crate::floor::Floor;
use crate::floor::beside::{self, Beside};
use crate::limits;
use crate::listing::Listing;
use crate::members::Members;
use crate::mix::Mix;
use crate::progress::Progress;
use crate::report::{Report, ensure_writable};
use crate::sampler::Sampler;
use crate::scenario::{Scenario, Start};
use crate::session::{Order, Session, print, say};
use crate::signals::Signals;
use crate::soak::Soak;
use crate::target::{Target, Unavailable};

/// Runs what was asked for. The first signal ends it in order, a second at once.
pub async fn run(command: Command, mut signals: Signals) -> Exit {
    let first = signals.clone();
    let in_order = async {
        match command {
            Command::Fleet(args) => in_order::<Fleet>(&args.common, |seed| args.params(seed), first).await,
            Command::Listing(args) => in_order::<Listing>(&args.common, |_| args.params(), first).await,
            Command::Mix(args) => in_order::<Mix>(&args.common, |seed| args.params(seed), first).await,
            Command::Budgets(args) => in_order::<Charging>(&args.common, |_| args.params(), first).await,
            Command::Floor(args) => in_order::<Floor>(&args.common, |_| args.params(), first).await,
            #[cfg(feature = "peers")]
            Command::Peers(args) => in_order::<crate::peers::Peers>(&args.common, |_| args.params(), first).await,
            Command::Soak(args) => in_order::<Soak>(&args.common, |seed| args.params(seed), first).await,
            Command::Compare(args) => tasks::blocking(move || compared(&args)).await,
        }
    };
    tokio::select! {
        exit = Box::pin(in_order) => exit,
        // What is dropped here kills its brokers.
        exit = signals.second() => exit,
    }
}

async fn in_order<S: Scenario>(common: &Common, params: impl FnOnce(u64) -> S::Params, mut signals: Signals) -> Exit {
    let asked = common.asked();
    let baseline = match common.baseline.as_deref().map(compare::load).transpose() {
        Ok(baseline) => baseline,
        Err(error) => {
            say(format_args!("loadgen: --baseline: {error}"));
            return Exit::Usage;
        }
    };
    // Two runs that are to be compared do the same. A seed that is drawn is a whole number to every reader of JSON, those that
    // know only doubles included.
    let seed = common.seed.or_else(|| baseline.as_ref().map(|baseline| baseline.seed));
    let seed = seed.unwrap_or_else(|| Env::system().below(1 << 53));
    let params = params(seed);
    if common.floor && S::floor(&params).ops.is_empty() {
        say(format_args!("loadgen: --floor: {}: {}", S::NAME, S::NO_FLOOR));
        return Exit::Usage;
    }
    if let Err(error) = limits::ensure(S::clients(&params), S::CLIENTS, &asked) {
        say(format_args!("loadgen: {error}"));
        return Exit::Failed;
    }
    if let Some(dir) = common.out.clone()
        && let Err(error) = tasks::blocking(move || ensure_writable(&dir)).await
    {
        say(format_args!("loadgen: --out: {error}"));
        return Exit::Failed;
    }
    let env = Env::seeded(seed);
    let reached = async {
        let target = Target::new(&asked, &env).await?;
        let first = target.store(0).await?;
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
    let order = Order { common, seed, baseline };
    let ran = run_scenario::<S>(order, params, &env, &target, first, signals).await;
    let exit = ran.unwrap_or_else(|error| unavailable(&error));
    if let Err(error) = target.stop().await {
        say(format_args!("loadgen: {error}"));
    }
    exit
}

fn compared(args: &CompareArgs) -> Exit {
    let load = |path| -> Result<Report, Exit> {
        compare::load(path).map_err(|error| {
            say(format_args!("loadgen: {error}"));
            Exit::Usage
        })
    };
    let both = load(&args.before).and_then(|before| Ok((before, load(&args.after)?)));
    match both {
        Ok((before, after)) => {
            let found = Comparison::of(&before, &after);
            print(&found.render()).err().unwrap_or_else(|| found.exit())
        }
        Err(exit) => exit,
    }
}

fn unavailable(error: &Unavailable) -> Exit {
    say(format_args!("loadgen: {error}"));
    error.exit()
}

async fn run_scenario<S: Scenario>(
    order: Order<'_>,
    params: S::Params,
    env: &Env,
    target: &Target,
    first: Nats,
    mut signals: Signals,
) -> Result<Exit, Unavailable> {
    let (planned, against) = (params.clone(), if order.common.floor { S::floor(&params) } else { Beside::default() });
    let slos = order.common.slo.clone();
    let session = Session::new(order, env, target, target.described(&first), move || S::schedule_digest(&planned));
    let session = session.await;
    target.sampled_by(session.sampler());
    let prefix = format!("loadgen_{}", session.run_id());
    let (origin, replicas) = (session.origin(), target.replicas(&first));
    let start = Start { env: env.clone(), origin, prefix: prefix.clone(), replicas };
    let scenario = S::new(params, start);
    let known: Vec<_> = scenario.recorder().snapshot().into_iter().map(|op| op.name).collect();
    if let Some(slo) = slos.iter().find(|slo| !known.contains(&slo.operation())) {
        let (unknown, name) = (slo.operation(), S::NAME);
        say(format_args!("loadgen: --slo: `{unknown}` is no operation of {name}, which has {}", known.join(", ")));
        return Ok(Exit::Usage);
    }
    let _stalls = tasks::spawn(scenario.recorder().watch_for_stalls(env.clone()));
    let sampler = session.sampler().clone();
    let _samples = tasks::spawn(async move { sampler.run().await });
    scenario.parts().sampled_by(session.sampler().clone());
    let _lag = watch_lag(env, target, session.sampler()).await;

    let mut progress = Progress::stderr();
    let mut ended_by = None;
    let ran = tokio::select! {
        ran = scenario.open_and_run(target, &first, async { ended_by = Some(signals.first().await) }) => ran,
        never = session.show(&scenario, &mut progress) => match never {},
    };
    progress.finish();
    session.sampler().sample();
    let whole = ran.as_ref().is_ok_and(|ran| !ran.interrupted);
    let (mut ended_by, mut floor) = (ended_by.filter(|_| !whole), Ok(None));
    if whole && !against.ops.is_empty() {
        tokio::select! {
            measured = beside::measure(&against, env, target, &first, &prefix) => {
                floor = measured.map(Some).map_err(|error| {
                    say(format_args!("loadgen: --floor: {error}"));
                    error.exit()
                });
            }
            // The scenario is over: its report is whole, and lacks only what was being measured.
            exit = signals.first() => ended_by = Some(exit),
        }
    }
    let exit = ran.map(|ran| session.conclude(&scenario, &ran, floor, ended_by));
    if !target.is_embedded() {
        let mut buckets = scenario.buckets();
        buckets.extend(if against.ops.is_empty() { Vec::new() } else { beside::buckets(&prefix) });
        clean_up(&first, &buckets).await;
    }
    exit
}

/// Keeps asking brokers that were started here how far each is behind the others; a single one is behind nobody.
async fn watch_lag(env: &Env, target: &Target, sampler: &Arc<Sampler>) -> Option<tasks::Task<()>> {
    let (members, system) = target.members().filter(|(members, _)| members.len() > 1)?;
    let (of, sampler) = (members.len(), sampler.clone());
    match Members::connect(env, system).await {
        Ok(asked) => Some(tasks::spawn(async move { match asked.watch_lag(of, &sampler).await {} })),
        Err(error) => {
            // The report says null, and is whole otherwise.
            tracing::warn!(%error, "raft_lag_not_watched");
            None
        }
    }
}

/// Somebody else's broker is left as it was found.
async fn clean_up(store: &Nats, buckets: &[String]) {
    for bucket in buckets {
        if let Err(unknown) = store.delete(bucket).await {
            say(format_args!("loadgen: bucket {bucket} was left behind: {unknown}"));
        }
    }
}
