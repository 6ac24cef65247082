//! A run as it is shown and reported: the progress line, the partial reports on disk, and the report at the end.

use std::convert::Infallible;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::env::{Env, Mono};
use engine::tasks;

use crate::cli::{FleetArgs, Output};
use crate::duration;
use crate::environment::{Environment, Store};
use crate::exit::Exit;
use crate::fleet::{Fleet, Ran};
use crate::histogram::nanos;
use crate::progress::Progress;
use crate::recorder::Outcome;
use crate::report::{
    BringUp, Fault, Findings, Measurements, Own, Phase, Report, SchemaVersion, Server, Stalls, WriteError,
    command_line, write_distributions,
};
use crate::sampler::Sampler;
use crate::table::{self, Style};
use crate::target::Target;

/// From one partial report to the next, where reports are written at all.
const PARTIAL_EVERY: Duration = Duration::from_secs(5);

/// What a run's reports are made from, beside the run itself.
pub(crate) struct Session<'a> {
    args: &'a FleetArgs,
    seed: u64,
    run_id: String,
    origin: Mono,
    started_at: jiff::Timestamp,
    target: &'a Target,
    environment: Environment,
    sampler: Arc<Sampler>,
    schedule_digest: u64,
}

impl<'a> Session<'a> {
    /// A session that begins now. It asks the machine about itself, which takes a moment.
    pub(crate) async fn new(
        args: &'a FleetArgs,
        env: &Env,
        seed: u64,
        target: &'a Target,
        store: Store,
    ) -> Session<'a> {
        let params = args.params(seed);
        let found = tasks::blocking(move || (Environment::of(store), params.schedule_digest()));
        let (environment, schedule_digest) = found.await;
        let origin = env.now();
        let sampler = Arc::new(Sampler::new(env.clone(), origin));
        // The seed decides what a run does and not what it is called: two runs of one seed are two runs.
        let run_id = format!("{:016x}", Env::system().random());
        let started_at = env.wall();
        Session { args, seed, run_id, origin, started_at, target, environment, sampler, schedule_digest }
    }

    /// Names this run among others.
    pub(crate) fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Where the time axis begins.
    pub(crate) fn origin(&self) -> Mono {
        self.origin
    }

    /// What samples the processes of the run.
    pub(crate) fn sampler(&self) -> &Arc<Sampler> {
        &self.sampler
    }

    /// Shows progress, and keeps a partial report on disk, until dropped.
    pub(crate) async fn show<W: Write>(&self, fleet: &Fleet, progress: &mut Progress<W>) -> Infallible {
        let mut written = fleet.env.now();
        loop {
            fleet.env.sleep(Duration::from_secs(1)).await;
            let now = fleet.env.now();
            progress.show(now, || self.line(fleet, now));
            if let Some(dir) = &self.args.common.out
                && now.since(written) >= PARTIAL_EVERY
            {
                written = now;
                let (dir, report) = (dir.clone(), self.report(fleet, &Ran { interrupted: true, ..Ran::default() }));
                // Writing waits for the disk, and no operation should wait with it.
                if let Err(error) = tasks::blocking(move || report.write(&dir)).await {
                    tracing::warn!(%error, "partial_report_not_written");
                }
            }
        }
    }

    fn line(&self, fleet: &Fleet, now: Mono) -> String {
        let (part, anomalies) = (fleet.parts.current(), fleet.model.anomalies().total());
        let so_far = match part {
            "opening" => format!("connecting {} nodes", fleet.params.nodes),
            "bring_up" | "warm_up" => format!("{} of {} seats held", fleet.seats_held(), fleet.params.seats),
            _ => {
                let counts = fleet.recorder.totals();
                let of = |outcome| counts.of(outcome);
                let (ok, refused, unknown) = (of(Outcome::Ok), of(Outcome::Refused), of(Outcome::Unknown));
                format!("{ok} ok, {refused} refused, {unknown} unknown, {} in flight", counts.in_flight())
            }
        };
        format!("{:>4} s  {part:<8}  {so_far}, {anomalies} anomalies", now.since(self.origin).as_secs())
    }

    /// Writes and prints what the run came to.
    pub(crate) fn conclude(&self, fleet: &Fleet, ran: &Ran, ended_by: Option<Exit>) -> Exit {
        let report = self.report(fleet, ran);
        let mut exit = match (Exit::from(report.findings.verdict()), ended_by) {
            (Exit::Ok, Some(signal)) => signal,
            (Exit::Ok, None) if !ran.brought_up => Exit::Unavailable,
            (verdict, _) => verdict,
        };
        if let Some(dir) = &self.args.common.out {
            match self.write(fleet, &report, dir) {
                Ok(path) => say(format_args!("report: {}", path.display())),
                Err(error) => {
                    say(format_args!("loadgen: {error}"));
                    exit = Exit::Failed;
                }
            }
        }
        let mut out = io::stdout().lock();
        let text = match self.args.common.output {
            Output::Text => table::render(&report, &Style::of_stdout()),
            Output::Json => serde_json::to_string_pretty(&report).expect("a report always serialises") + "\n",
        };
        // Whoever closed stdout does not want to see it.
        let _closed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        exit
    }

    fn write(&self, fleet: &Fleet, report: &Report, dir: &Path) -> Result<std::path::PathBuf, WriteError> {
        write_distributions(dir, &fleet.recorder.snapshot())?;
        report.write(dir)
    }

    fn report(&self, fleet: &Fleet, ran: &Ran) -> Report {
        let now = fleet.env.now();
        let parts = fleet.parts.entered(now);
        let began = |name: &str| parts.iter().find(|(part, ..)| *part == name).map(|(_, began, _)| *began);
        let measured_from = began("quiet").unwrap_or(now);
        let measured_until = began("drain").unwrap_or(now);
        let t_ns = |at: Mono| nanos(at.since(self.origin));
        let part = |(name, from, to): &(&'static str, Mono, Mono)| Phase {
            name: (*name).to_owned(),
            start_ns: t_ns(*from),
            end_ns: t_ns(*to),
            brokers_cpu_percent: self.sampler.servers_cpu_percent(*from, *to),
        };
        let servers = self.sampler.servers(measured_from, measured_until).into_iter();
        let bring_up = began("bring_up").zip(began("warm_up"));
        Report {
            schema_version: SchemaVersion,
            run_id: self.run_id.clone(),
            started_at: self.started_at,
            duration_ns: nanos(measured_until.since(measured_from)),
            interrupted: ran.interrupted,
            command: command_line(std::env::args()),
            seed: self.seed,
            params: self.params(fleet, ran),
            environment: self.environment.clone(),
            findings: Findings::from(fleet.model.anomalies()),
            measurements: Measurements::of(&fleet.recorder.snapshot()),
            bring_up: bring_up
                .map(|(from, to)| BringUp { seats: fleet.params.seats as u64, duration_ns: nanos(to.since(from)) }),
            phases: parts.iter().map(part).collect(),
            servers: servers.map(|(name, usage)| Server { name, usage }).collect(),
            own: Own {
                usage: self.sampler.own(measured_from, measured_until),
                stalls: Stalls::from(fleet.recorder.stalls()),
            },
            faults: self.faults(),
        }
    }

    /// The members that ended unasked, and those that were suspended, in the order of time.
    fn faults(&self) -> Vec<Fault> {
        let mut faults = self.target.faults(self.origin);
        faults.extend(self.sampler.faults());
        faults.sort_by_key(|fault| fault.t_ns);
        faults
    }

    fn params(&self, fleet: &Fleet, ran: &Ran) -> serde_json::Map<String, serde_json::Value> {
        let params = &fleet.params;
        let text = |d: Duration| serde_json::Value::from(duration::format(d));
        let pairs: [(&str, serde_json::Value); 11] = [
            ("scenario", "fleet".into()),
            ("seats", params.seats.into()),
            ("nodes", params.nodes.into()),
            ("heartbeat", text(params.heartbeat)),
            ("claimers", params.claimers.into()),
            ("claims", params.claims.into()),
            ("duration", text(params.duration)),
            ("warmup", text(params.warmup)),
            ("schedule_digest", format!("{:016x}", self.schedule_digest).into()),
            ("claims_settled", ran.claims_settled.into()),
            ("seats_held_at_end", ran.seats_held.into()),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Says something on stderr. Whoever closed it does not want to hear it.
pub(crate) fn say(text: std::fmt::Arguments<'_>) {
    let _closed = writeln!(io::stderr(), "{text}");
}

/// Whether a stream may have colour: on a terminal, unless `NO_COLOR` is set (no-color.org).
pub fn may_colour(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}
