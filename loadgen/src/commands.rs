//! From a command line to a report and an exit code.

use std::convert::Infallible;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use engine::env::{Env, Mono};
use engine::lease::Leases;
use engine::store::nats::Nats;
use engine::tasks;

use crate::cli::{FleetArgs, Output};
use crate::duration;
use crate::environment::{self, Environment};
use crate::exit::Exit;
use crate::fleet::{Fleet, Model, Ops, Parts, Ran};
use crate::histogram::nanos;
use crate::progress::Progress;
use crate::recorder::{Outcome, Recorder};
use crate::report::{
    BringUp, Findings, Measurements, Own, Phase, Report, SchemaVersion, Server, Stalls, command_line,
    write_distributions,
};
use crate::sampler::Sampler;
use crate::signals::Signals;
use crate::table;
use crate::target::{Target, Unavailable};

/// From one partial report to the next, where reports are written at all.
const PARTIAL_EVERY: Duration = Duration::from_secs(10);

/// Runs `loadgen fleet`.
pub async fn fleet(args: FleetArgs, mut signals: Signals) -> Exit {
    let seed = args.common.seed.unwrap_or_else(|| Env::system().random());
    let env = Env::seeded(seed);
    let asked = args.common.asked();
    let target = tokio::select! {
        target = Target::new(&asked, &env) => target,
        exit = signals.first() => return exit,
    };
    let target = match target {
        Ok(target) => target,
        Err(error) => return unavailable(&error),
    };
    let exit = tokio::select! {
        exit = run_fleet(&args, &env, seed, &target, signals.clone()) => exit.unwrap_or_else(|error| unavailable(&error)),
        // At once: dropping the target kills its brokers.
        exit = signals.second() => return exit,
    };
    if let Err(error) = target.stop().await {
        eprintln!("loadgen: {error}");
    }
    exit
}

fn unavailable(error: &Unavailable) -> Exit {
    eprintln!("loadgen: {error}");
    match error {
        Unavailable::BadArgument(_) => Exit::Usage,
        _ => Exit::Unavailable,
    }
}

async fn run_fleet(
    args: &FleetArgs,
    env: &Env,
    seed: u64,
    target: &Target,
    mut signals: Signals,
) -> Result<Exit, Unavailable> {
    let first = target.store("loadgen-n000").await?;
    let origin = env.now();
    let session = Session {
        args,
        seed,
        run_id: format!("{:016x}", Env::system().random()),
        origin,
        started_at: env.wall(),
        target,
        store: target.described(&first),
        sampler: Arc::new(Sampler::new(env.clone(), origin)),
    };
    target.sampled_by(&session.sampler);
    let mut recorder = Recorder::new(origin);
    let ops = Ops::declare(&mut recorder);
    let fleet = Fleet {
        env: env.clone(),
        params: args.params(),
        prefix: format!("loadgen_{}", session.run_id),
        replicas: target.replicas(&first),
        recorder,
        ops,
        model: Model::default(),
        parts: Parts::default(),
    };
    let _stalls = tasks::spawn(fleet.recorder.watch_for_stalls(env.clone()));
    let sampler = session.sampler.clone();
    let _samples = tasks::spawn(async move { sampler.run().await });

    let opening = async {
        let store = async |node: usize| match node {
            0 => Ok(first.clone()),
            _ => target.store(&format!("loadgen-n{node:03}")).await,
        };
        fleet.open(&store).await
    };
    let leases: Vec<Leases<Nats>> = tokio::select! {
        leases = opening => leases?,
        exit = signals.first() => return Ok(exit),
    };
    let mut ended_by = None;
    let ran = tokio::select! {
        ran = fleet.run(&leases, async { ended_by = Some(signals.first().await) }) => ran,
        never = session.show(&fleet) => match never {},
    };
    session.sampler.sample();
    let exit = session.conclude(&fleet, &ran, ended_by);
    if !target.is_embedded() {
        clean_up(&first, &fleet.prefix).await;
    }
    Ok(exit)
}

/// Somebody else's broker is left as it was found.
async fn clean_up(store: &Nats, prefix: &str) {
    for slot in coordproto::slot::SLOTS {
        let bucket = format!("{prefix}_{}", slot.name);
        if let Err(unknown) = store.delete(&bucket).await {
            eprintln!("loadgen: bucket {bucket} was left behind: {unknown}");
        }
    }
}

/// What a run's reports are made from, beside the run itself.
struct Session<'a> {
    args: &'a FleetArgs,
    seed: u64,
    run_id: String,
    origin: Mono,
    started_at: jiff::Timestamp,
    target: &'a Target,
    store: environment::Store,
    sampler: Arc<Sampler>,
}

impl Session<'_> {
    /// Shows progress, and keeps a partial report on disk, until dropped.
    async fn show(&self, fleet: &Fleet) -> Infallible {
        let mut progress = Progress::stderr();
        let mut written = fleet.env.now();
        loop {
            fleet.env.sleep(Duration::from_secs(1)).await;
            let now = fleet.env.now();
            progress.show(now, || self.line(fleet, now));
            if let Some(dir) = &self.args.common.out
                && now.since(written) >= PARTIAL_EVERY
            {
                written = now;
                let partial = Ran { interrupted: true, seats_held: None, claims_settled: 0 };
                if let Err(error) = self.report(fleet, &partial).write(dir) {
                    eprintln!("loadgen: {error}");
                }
            }
        }
    }

    fn line(&self, fleet: &Fleet, now: Mono) -> String {
        let counts = fleet.recorder.totals();
        let anomalies = fleet.model.anomalies().total();
        format!(
            "{:>4} s  {:<8}  ok {}  refused {}  unknown {}  in flight {}  anomalies {anomalies}",
            now.since(self.origin).as_secs(),
            fleet.parts.current(),
            counts.of(Outcome::Ok),
            counts.of(Outcome::Refused),
            counts.of(Outcome::Unknown),
            counts.in_flight(),
        )
    }

    /// Writes and prints what the run came to.
    fn conclude(&self, fleet: &Fleet, ran: &Ran, ended_by: Option<Exit>) -> Exit {
        let report = self.report(fleet, ran);
        if let Some(dir) = &self.args.common.out {
            let written = report.write(dir).and_then(|path| {
                write_distributions(dir, &fleet.recorder.snapshot())?;
                Ok(path)
            });
            match written {
                Ok(path) => eprintln!("report: {}", path.display()),
                Err(error) => {
                    eprintln!("loadgen: {error}");
                    return Exit::Failed;
                }
            }
        }
        let mut out = std::io::stdout().lock();
        let text = match self.args.common.output {
            Output::Text => table::render(&report, std::io::stdout().is_terminal()),
            Output::Json => serde_json::to_string_pretty(&report).expect("a report always serialises") + "\n",
        };
        // Whoever closed stdout does not want to see it.
        let _closed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match (Exit::from(report.findings.verdict()), ended_by) {
            (Exit::Ok, Some(signal)) if ran.interrupted => signal,
            (verdict, _) => verdict,
        }
    }

    fn report(&self, fleet: &Fleet, ran: &Ran) -> Report {
        let now = fleet.env.now();
        let parts = fleet.parts.entered(now);
        let began = |name: &str| parts.iter().find(|(part, ..)| *part == name).map(|(_, began, _)| *began);
        let measured_from = began("quiet").unwrap_or(now);
        let measured_until = began("drain").unwrap_or(now);
        let bring_up = parts.iter().find(|(part, ..)| *part == "bring_up");
        let t_ns = |at: Mono| nanos(at.since(self.origin));
        Report {
            schema_version: SchemaVersion,
            run_id: self.run_id.clone(),
            started_at: self.started_at,
            duration_ns: nanos(measured_until.since(measured_from)),
            interrupted: ran.interrupted,
            command: command_line(std::env::args()),
            seed: self.seed,
            params: self.params(fleet, ran),
            environment: Environment::of(self.store.clone()),
            findings: Findings::from(fleet.model.anomalies()),
            measurements: Measurements::of(&fleet.recorder.snapshot()),
            bring_up: bring_up.map(|(_, began, ended)| BringUp {
                seats: fleet.params.seats as u64,
                duration_ns: nanos(ended.since(*began)),
            }),
            phases: parts
                .iter()
                .map(|(name, from, to)| Phase {
                    name: (*name).to_owned(),
                    start_ns: t_ns(*from),
                    end_ns: t_ns(*to),
                    brokers_cpu_percent: self.sampler.servers_cpu_percent(*from, *to),
                })
                .collect(),
            servers: self
                .sampler
                .servers(measured_from, measured_until)
                .into_iter()
                .map(|(name, usage)| Server { name, usage })
                .collect(),
            own: Own {
                usage: self.sampler.own(measured_from, measured_until),
                stalls: Stalls::from(fleet.recorder.stalls()),
            },
            faults: self.target.faults(self.origin),
        }
    }

    fn params(&self, fleet: &Fleet, ran: &Ran) -> serde_json::Map<String, serde_json::Value> {
        let params = &fleet.params;
        let text = |d: Duration| serde_json::Value::from(duration::format(d));
        let pairs: [(&str, serde_json::Value); 10] = [
            ("scenario", "fleet".into()),
            ("seats", params.seats.into()),
            ("nodes", params.nodes.into()),
            ("heartbeat", text(params.heartbeat)),
            ("claimers", params.claimers.into()),
            ("claims", params.claims.into()),
            ("duration", text(params.duration)),
            ("warmup", text(params.warmup)),
            ("claims_settled", ran.claims_settled.into()),
            ("seats_held_at_end", ran.seats_held.into()),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
