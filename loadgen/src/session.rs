//! A run as it is shown and reported: the progress line, the partial reports on disk, and the report at the end.

use std::convert::Infallible;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::env::{Env, Mono};
use engine::tasks;
use serde_json::{Map, Value};

use crate::cli::{Common, Output};
use crate::compare::Comparison;
use crate::environment::{Environment, Store};
use crate::exit::Exit;
use crate::floor::beside;
use crate::histogram::nanos;
use crate::progress::Progress;
use crate::recorder::{Outcome, Recorder};
use crate::report::{
    Fault, Findings, Measurements, Own, Phase, Report, SchemaVersion, Server, Stalls, WriteError, command_line,
    write_distributions,
};
use crate::sampler::Sampler;
use crate::scenario::{DRAIN, Ran, Scenario};
use crate::soak::Trend;
use crate::table::{self, Style};
use crate::target::Target;

/// From one partial report to the next, where reports are written at all.
const PARTIAL_EVERY: Duration = Duration::from_secs(5);

/// What was asked of a run, whatever it runs.
pub(crate) struct Order<'a> {
    pub(crate) common: &'a Common,
    pub(crate) seed: u64,
    /// The report that it is compared with.
    pub(crate) baseline: Option<Report>,
}

/// What a run's reports are made from, beside the run itself.
pub(crate) struct Session<'a> {
    order: Order<'a>,
    env: Env,
    run_id: String,
    origin: Mono,
    started_at: jiff::Timestamp,
    target: &'a Target,
    environment: Environment,
    sampler: Arc<Sampler>,
    schedule_digest: Option<u64>,
}

impl<'a> Session<'a> {
    /// A session that begins when `schedule_digest` is answered and the machine has been asked about itself, which takes a
    /// moment.
    pub(crate) async fn new(
        order: Order<'a>,
        env: &Env,
        target: &'a Target,
        store: Store,
        schedule_digest: impl FnOnce() -> Option<u64> + Send + 'static,
    ) -> Session<'a> {
        let found = tasks::blocking(move || (Environment::of(store), schedule_digest()));
        let (environment, schedule_digest) = found.await;
        let origin = env.now();
        let sampler = Arc::new(Sampler::new(env.clone(), origin));
        // The seed decides what a run does and not what it is called: two runs of one seed are two runs.
        let run_id = format!("{:016x}", Env::system().random());
        let started_at = env.wall();
        Session { order, env: env.clone(), run_id, origin, started_at, target, environment, sampler, schedule_digest }
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
    pub(crate) async fn show<S: Scenario, W: Write>(&self, scenario: &S, progress: &mut Progress<W>) -> Infallible {
        let mut written = self.env.now();
        loop {
            self.env.sleep(Duration::from_secs(1)).await;
            let now = self.env.now();
            progress.show(now, || self.line(scenario, now));
            if let Some(dir) = &self.order.common.out
                && now.since(written) >= PARTIAL_EVERY
            {
                written = now;
                let (dir, report) = (dir.clone(), self.report(scenario, &Ran { interrupted: true, ..Ran::default() }));
                // Writing waits for the disk, and no operation should wait with it.
                if let Err(error) = tasks::blocking(move || report.write(&dir)).await {
                    tracing::warn!(%error, "partial_report_not_written");
                }
            }
        }
    }

    fn line<S: Scenario>(&self, scenario: &S, now: Mono) -> String {
        let (part, anomalies) = (scenario.parts().current(), scenario.anomalies().total());
        let so_far = scenario.progress(part).unwrap_or_else(|| {
            let counts = scenario.recorder().totals();
            let of = |outcome| counts.of(outcome);
            let (ok, refused, unknown) = (of(Outcome::Ok), of(Outcome::Refused), of(Outcome::Unknown));
            format!("{ok} ok, {refused} refused, {unknown} unknown, {} in flight", counts.in_flight())
        });
        format!("{:>4} s  {part:<8}  {so_far}, {anomalies} anomalies", now.since(self.origin).as_secs())
    }

    /// Writes and prints what the run came to, beside its baseline and its floor, of which a failure is told by its exit code.
    pub(crate) fn conclude<S: Scenario>(
        &self,
        scenario: &S,
        ran: &Ran<S::CameTo>,
        floor: Result<Option<Map<String, Value>>, Exit>,
        ended_by: Option<Exit>,
    ) -> Exit {
        let mut report = self.report(scenario, ran);
        let (floor, without_floor) = floor.map_or_else(|exit| (None, Some(exit)), |floor| (floor, None));
        report.params.extend(floor.map(|floor| ("floor".to_owned(), floor.into())));
        let mut exit = match (Exit::from(report.findings.verdict()), ended_by) {
            (Exit::Ok, Some(signal)) => signal,
            (Exit::Ok, None) if !ran.brought_up => Exit::Unavailable,
            (Exit::Ok, None) => without_floor.unwrap_or(Exit::Ok),
            (verdict, _) => verdict,
        };
        let compared = self.order.baseline.as_ref().map(|baseline| Comparison::of(baseline, &report));
        if exit == Exit::Ok && (report.slos.iter().any(|slo| !slo.met) || report.trends.iter().any(Trend::fails)) {
            exit = Exit::Missed;
        }
        if exit == Exit::Ok && self.order.common.fail_on_regression {
            exit = compared.as_ref().map_or(exit, Comparison::exit);
        }
        let compared = compared.map(|compared| compared.render());
        if let Some(dir) = &self.order.common.out {
            match self.write(scenario.recorder(), &report, dir) {
                Ok(path) => say(format_args!("report: {}", path.display())),
                Err(error) => {
                    say(format_args!("loadgen: {error}"));
                    exit = Exit::Failed;
                }
            }
        }
        let text = match self.order.common.output {
            Output::Text => {
                let remarks = [S::remarks(&report), beside::remarks(&report)].concat();
                let text = table::render(&report, &remarks, &Style::of_stdout());
                match compared {
                    Some(compared) => format!("{text}\n{compared}"),
                    None => text,
                }
            }
            Output::Json => {
                // What is on stdout is the report and nothing else.
                compared.iter().for_each(|compared| say(format_args!("{compared}")));
                serde_json::to_string_pretty(&report).expect("a report always serialises") + "\n"
            }
        };
        if let Err(failed) = print(&text) {
            exit = failed;
        }
        exit
    }

    fn write(&self, recorder: &Recorder, report: &Report, dir: &Path) -> Result<std::path::PathBuf, WriteError> {
        write_distributions(dir, &recorder.snapshot())?;
        report.write(dir)
    }

    fn report<S: Scenario>(&self, scenario: &S, ran: &Ran<S::CameTo>) -> Report {
        let now = self.env.now();
        let parts = scenario.parts();
        let measured_from = parts.began(S::MEASURED_FROM).unwrap_or(now);
        let measured_until = parts.began(DRAIN).unwrap_or(now);
        let t_ns = |at: Mono| nanos(at.since(self.origin));
        let part = |(name, from, to): &(&'static str, Mono, Mono)| Phase {
            name: (*name).to_owned(),
            start_ns: t_ns(*from),
            end_ns: t_ns(*to),
            brokers_cpu_percent: self.sampler.servers_cpu_percent(*from, *to),
            generator_cpu_percent: self.sampler.own(*from, *to).cpu_percent_mean,
        };
        let measurements = Measurements::of(&scenario.recorder().snapshot());
        let slos = self.order.common.slo.iter().map(|slo| slo.judge(&measurements)).collect();
        let servers = self.sampler.servers(measured_from, measured_until).into_iter();
        let server = |(name, usage): (String, _)| {
            let lag = self.sampler.raft_lag(&name, measured_from, measured_until);
            Server { name, usage, lag }
        };
        Report {
            schema_version: SchemaVersion,
            run_id: self.run_id.clone(),
            started_at: self.started_at,
            duration_ns: nanos(measured_until.since(measured_from)),
            interrupted: ran.interrupted,
            command: command_line(std::env::args()),
            seed: self.order.seed,
            params: self.params(scenario, &ran.came_to),
            environment: self.environment.clone(),
            findings: Findings::from(scenario.anomalies()),
            measurements,
            bring_up: scenario.bring_up(),
            phases: parts.entered(now).iter().map(part).collect(),
            servers: servers.map(server).collect(),
            own: Own {
                usage: self.sampler.own(measured_from, measured_until),
                other_cpu_percent: self.sampler.other_cpu_percent(measured_from, measured_until),
                stalls: Stalls::from(scenario.recorder().stalls()),
            },
            faults: self.faults(),
            slos,
            trends: scenario.trends(measured_from, measured_until),
        }
    }

    /// The members that ended unasked, and those that were suspended, in the order of time.
    fn faults(&self) -> Vec<Fault> {
        let mut faults = self.target.faults(self.origin);
        faults.extend(self.sampler.faults());
        faults.sort_by_key(|fault| fault.t_ns);
        faults
    }

    fn params<S: Scenario>(&self, scenario: &S, came_to: &S::CameTo) -> Map<String, Value> {
        let name = [("scenario", S::NAME.into())];
        let digest = self.schedule_digest.map(|digest| ("schedule_digest", format!("{digest:016x}").into()));
        let pairs = name.into_iter().chain(scenario.params(came_to)).chain(digest);
        pairs.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Prints a text on stdout.
///
/// # Errors
/// The exit code of a failure, which was told. Whoever closed the pipe does not want to see it, and that is none.
pub(crate) fn print(text: &str) -> Result<(), Exit> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(format_args!("loadgen: the report could not be printed: {error}"));
            Err(Exit::Failed)
        }
        _ => Ok(()),
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
