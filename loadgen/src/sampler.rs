//! What the brokers and the generator itself use: CPU, memory and disk writes of processes, once a second. A broker
//! that is found suspended is noted beside them.
//!
//! Read from `/proc`, so on Linux alone; elsewhere, and for a server whose process is not here, there are no figures, and a
//! report says null. CPU is kept as the time a server has used so far, summed over its processes when it restarts, so the
//! mean of any window is a difference between its two edges and not a mean of samples. Call [`Sampler::sample`] at an
//! edge and it is exact; between two samples it is interpolated.
//!
//! CPU counts in clock ticks, 10 ms on every Linux met so far; what a process used between its last sample and its end is
//! lost.

use std::fs;
use std::time::Duration;

use engine::env::{Env, Mono};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::histogram::nanos;
use crate::report::Fault;

const PERIOD: Duration = Duration::from_secs(1);
/// The most samples kept of a process; beyond them, every second one is forgotten and the period doubles.
const MOST: usize = 4096;

/// What a report says of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The process, the last one after a restart; null when there is none on this machine.
    pub pid: Option<u32>,
    /// Mean CPU over the measured time, 100 for one core busy throughout; null when not sampled.
    pub cpu_percent_mean: Option<f64>,
    /// The most resident memory seen, in bytes; null when not sampled.
    pub rss_bytes_max: Option<u64>,
    /// The process over time.
    pub series: Vec<UsagePoint>,
}

/// A process at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsagePoint {
    /// Since the run's origin.
    pub t_ns: u64,
    /// CPU since the point before; null for the first.
    pub cpu_percent: Option<f64>,
    /// Resident memory in bytes.
    pub rss_bytes: u64,
    /// Bytes that it had written to the disk by then, since it started; null where the system does not tell.
    pub disk_written_bytes: Option<u64>,
}

/// How far a broker's copies of streams were behind, by the account of each stream's leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaftLag {
    /// The most log entries that it lacked of any stream in the measured time; null when nobody told.
    pub raft_lag_max: Option<u64>,
    /// The same over time, from the run's beginning on.
    pub raft_lag: Vec<LagPoint>,
}

/// How far a broker was behind at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LagPoint {
    /// Since the run's origin.
    pub t_ns: u64,
    /// The most log entries that it lacked of any stream.
    pub entries: u64,
}

/// One reading of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// User and system time so far, in clock ticks.
    pub cpu_ticks: u64,
    /// Resident memory in pages.
    pub rss_pages: u64,
    /// Bytes that were written to the disk for it so far.
    pub disk_written: Option<u64>,
    /// Whether it was suspended: stopped by a signal or by a debugger.
    pub suspended: bool,
}

impl Reading {
    /// Reads the texts of `/proc/PID/stat` and `/proc/PID/statm`; `None` for a process that has ended, reaped or not, and
    /// for texts of another shape. See proc(5).
    pub fn parse(stat: &str, statm: &str) -> Option<Reading> {
        // The command stands in parentheses and may itself hold spaces and parentheses.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        if matches!(state, "Z" | "X" | "x") {
            return None;
        }
        let mut times = fields.skip(10).map(str::parse::<u64>);
        let (user, system) = (times.next()?.ok()?, times.next()?.ok()?);
        let rss_pages = statm.split_whitespace().nth(1)?.parse().ok()?;
        let suspended = matches!(state, "T" | "t");
        Some(Reading { cpu_ticks: user + system, rss_pages, disk_written: None, suspended })
    }

    pub(crate) fn of(pid: u32) -> Option<Reading> {
        let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
        let reading = Reading::parse(&read("stat")?, &read("statm")?)?;
        Some(Reading { disk_written: read("io").and_then(|io| disk_written(&io)), ..reading })
    }
}

/// Samples processes against the time axis of a run.
pub struct Sampler {
    env: Env,
    origin: Mono,
    state: Mutex<State>,
}

struct State {
    period: Duration,
    /// All processes of the machine together, of which only the CPU time is known.
    machine: Process,
    own: Process,
    servers: Vec<(String, Process)>,
    /// How far each server was behind, by its name.
    lags: Vec<(String, Vec<(Duration, u64)>)>,
    faults: Vec<Fault>,
}

impl Sampler {
    /// A sampler of this process, whose time axis begins at `origin`.
    pub fn new(env: Env, origin: Mono) -> Sampler {
        let mut own = Process::default();
        own.set_pid(Some(std::process::id()), Duration::ZERO);
        Sampler {
            env,
            origin,
            state: Mutex::new(State {
                period: PERIOD,
                machine: Process::default(),
                own,
                servers: Vec::new(),
                lags: Vec::new(),
                faults: Vec::new(),
            }),
        }
    }

    /// From now on `server` is the process `pid`; `None` when it has none, or none on this machine. A new process of a known
    /// server goes on under its name.
    pub fn set_pid(&self, server: &str, pid: Option<u32>) {
        let at = self.now();
        let servers = &mut self.state.lock().servers;
        let index = servers.iter().position(|(name, _)| name == server).unwrap_or_else(|| {
            servers.push((server.to_owned(), Process::default()));
            servers.len() - 1
        });
        servers[index].1.set_pid(pid, at);
    }

    /// Takes a sample of every process now.
    pub fn sample(&self) {
        let at = self.now();
        let state = &mut *self.state.lock();
        if let Some(busy) = fs::read_to_string("/proc/stat").ok().and_then(|stat| busy_ticks(&stat)) {
            state.machine.samples.push(Sample { at, cpu: cpu_time(busy), rss_bytes: None, disk_written: None });
        }
        state.own.sample(at);
        let mut full = state.own.samples.len() > MOST;
        for (name, process) in &mut state.servers {
            let before = process.suspended;
            process.sample(at);
            if process.pid.is_some() && process.suspended != before {
                let (kind, detail) = if before { ("resume", "resumed") } else { ("suspend", "suspended") };
                let (kind, server, detail) = (kind.to_owned(), name.clone(), detail.to_owned());
                state.faults.push(Fault { t_ns: nanos(at), kind, server, detail });
            }
            full |= process.samples.len() > MOST;
        }
        if full {
            state.period *= 2;
            state.machine.thin();
            state.own.thin();
            state.servers.iter_mut().for_each(|(_, process)| process.thin());
        }
    }

    /// `server` lacked so many log entries at most of any stream, `at` that moment.
    pub fn lag(&self, server: &str, at: Mono, entries: u64) {
        let point = (at.since(self.origin), entries);
        let lags = &mut self.state.lock().lags;
        let Some((_, points)) = lags.iter_mut().find(|(name, _)| name == server) else {
            return lags.push((server.to_owned(), vec![point]));
        };
        points.push(point);
        if points.len() > MOST {
            // Of two neighbours the further behind is the one to keep.
            *points =
                points.chunks(2).filter_map(|two| two.iter().max_by_key(|(_, entries)| *entries).copied()).collect();
        }
    }

    /// How far `server` was behind, at most from `from` to `to`.
    pub fn raft_lag(&self, server: &str, from: Mono, to: Mono) -> RaftLag {
        let within = from.since(self.origin)..=to.since(self.origin);
        let state = self.state.lock();
        let points = state.lags.iter().find(|(name, _)| name == server).map_or(&[][..], |(_, points)| points);
        let measured = points.iter().filter(|(at, _)| within.contains(at));
        RaftLag {
            raft_lag_max: measured.map(|(_, entries)| *entries).max(),
            raft_lag: points.iter().map(|(at, entries)| LagPoint { t_ns: nanos(*at), entries: *entries }).collect(),
        }
    }

    /// Samples once a second until dropped.
    pub async fn run(&self) {
        loop {
            self.sample();
            let period = self.state.lock().period;
            self.env.sleep(period).await;
        }
    }

    /// The generator's own use, its mean over the time from `from` to `to`.
    pub fn own(&self, from: Mono, to: Mono) -> Usage {
        self.state.lock().own.usage(from.since(self.origin), to.since(self.origin))
    }

    /// The use of every server by name, in the order in which they were named.
    pub fn servers(&self, from: Mono, to: Mono) -> Vec<(String, Usage)> {
        let (from, to) = (from.since(self.origin), to.since(self.origin));
        self.state.lock().servers.iter().map(|(name, process)| (name.clone(), process.usage(from, to))).collect()
    }

    /// The servers that were found suspended, and those that were found to go on, each at the sample that showed it.
    pub fn faults(&self) -> Vec<Fault> {
        self.state.lock().faults.clone()
    }

    /// The mean CPU of all servers together over the time from `from` to `to`, 100 for one core busy throughout; `None`
    /// unless every one of them was sampled, since a sum without one would be too small.
    pub fn servers_cpu_percent(&self, from: Mono, to: Mono) -> Option<f64> {
        let (from, to) = (from.since(self.origin), to.since(self.origin));
        let state = self.state.lock();
        let means = state.servers.iter().map(|(_, process)| process.cpu_percent(from, to));
        means.sum::<Option<f64>>().filter(|_| !state.servers.is_empty()).map(tenths)
    }

    /// The mean CPU over the time from `from` to `to` of all that is neither this process nor a server, 100 for one core busy
    /// throughout.
    pub fn other_cpu_percent(&self, from: Mono, to: Mono) -> Option<f64> {
        let (from, to) = (from.since(self.origin), to.since(self.origin));
        let state = self.state.lock();
        let ours = state.servers.iter().map(|(_, process)| process).chain([&state.own]);
        // Of a server that is no process here nothing is in the machine's time.
        let ours: f64 = ours.filter_map(|process| process.cpu_percent(from, to)).sum();
        state.machine.cpu_percent(from, to).map(|all| tenths((all - ours).max(0.0)))
    }

    fn now(&self) -> Duration {
        self.env.now().since(self.origin)
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    /// The CPU time used so far by all processes the server has been.
    cpu: Duration,
    /// `None` where it was found not to run.
    rss_bytes: Option<u64>,
    disk_written: Option<u64>,
}

#[derive(Default)]
struct Process {
    pid: Option<u32>,
    last_pid: Option<u32>,
    /// The CPU time of the processes before this one.
    before: Duration,
    suspended: bool,
    samples: Vec<Sample>,
    rss_bytes_max: Option<u64>,
}

impl Process {
    fn set_pid(&mut self, pid: Option<u32>, at: Duration) {
        if pid == self.pid {
            return;
        }
        if let Some(last) = self.samples.last().copied() {
            // The new process counts from zero, and uses nothing before it is there.
            self.before = last.cpu;
            self.samples.push(Sample { at, rss_bytes: None, ..last });
        }
        self.suspended = false;
        self.pid = pid;
        self.last_pid = pid.or(self.last_pid);
    }

    fn sample(&mut self, at: Duration) {
        if let Some(pid) = self.pid {
            self.push(at, Reading::of(pid));
        }
    }

    fn push(&mut self, at: Duration, reading: Option<Reading>) {
        let Some(Reading { cpu_ticks, rss_pages, disk_written, suspended }) = reading else {
            self.set_pid(None, at);
            return;
        };
        let cpu = self.before + cpu_time(cpu_ticks);
        let rss = rss_pages * rustix::param::page_size() as u64;
        self.suspended = suspended;
        self.rss_bytes_max = self.rss_bytes_max.max(Some(rss));
        self.samples.push(Sample { at, cpu, rss_bytes: Some(rss), disk_written });
    }

    fn thin(&mut self) {
        let mut index = 0;
        self.samples.retain(|_| {
            index += 1;
            index % 2 == 1
        });
    }

    /// The CPU time used up to `at`, which lies within the samples.
    fn cpu_at(&self, at: Duration) -> Option<Duration> {
        let after = self.samples.partition_point(|sample| sample.at < at);
        let next = self.samples.get(after).or_else(|| self.samples.last())?;
        let last = self.samples[..after].last().unwrap_or(next);
        let width = next.at.saturating_sub(last.at).as_secs_f64();
        if width == 0.0 {
            return Some(next.cpu);
        }
        let share = (at.saturating_sub(last.at).as_secs_f64() / width).clamp(0.0, 1.0);
        Some(last.cpu + next.cpu.saturating_sub(last.cpu).mul_f64(share))
    }

    fn cpu_percent(&self, from: Duration, to: Duration) -> Option<f64> {
        let from = from.max(self.samples.first()?.at);
        // A server that is down uses nothing; of one that runs, nothing is known past its last sample.
        let to = if self.pid.is_some() { to.min(self.samples.last()?.at) } else { to };
        let width = to.checked_sub(from).filter(|width| !width.is_zero())?;
        let used = self.cpu_at(to)?.saturating_sub(self.cpu_at(from)?);
        Some(used.as_secs_f64() / width.as_secs_f64() * 100.0)
    }

    fn usage(&self, from: Duration, to: Duration) -> Usage {
        let mut before: Option<Sample> = None;
        let mut series = Vec::new();
        for sample in &self.samples {
            let since = before.replace(*sample).filter(|before| before.at < sample.at);
            let Some(rss_bytes) = sample.rss_bytes else { continue };
            let cpu_percent = since.map(|before| {
                let used = sample.cpu.saturating_sub(before.cpu).as_secs_f64();
                tenths(used / (sample.at - before.at).as_secs_f64() * 100.0)
            });
            let (t_ns, disk_written_bytes) = (nanos(sample.at), sample.disk_written);
            series.push(UsagePoint { t_ns, cpu_percent, rss_bytes, disk_written_bytes });
        }
        Usage {
            pid: self.last_pid,
            cpu_percent_mean: self.cpu_percent(from, to).map(tenths),
            rss_bytes_max: self.rss_bytes_max,
            series,
        }
    }
}

/// So many clock ticks.
fn cpu_time(ticks: u64) -> Duration {
    let a_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_secs(ticks / a_second) + Duration::from_secs(ticks % a_second) / a_second as u32
}

/// The bytes written in the text of `/proc/PID/io`. See proc(5).
fn disk_written(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.trim().parse().ok()
}

/// The ticks in which some core was not idle, in the text of `/proc/stat`: those that a hypervisor took are among them. See
/// proc(5).
fn busy_ticks(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(str::parse::<u64>);
    let fields: Vec<u64> = fields.collect::<Result<_, _>>().ok()?;
    // User, nice, system, idle, iowait, irq, softirq, steal; what guests used is in user and nice already.
    let idle = fields.get(3)? + fields.get(4)?;
    Some(fields.iter().take(8).sum::<u64>() - idle)
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// As read from a process named `tmux: server (1) Z`, with 17 and 4 ticks.
    const STAT: &str = "371 (tmux: server (1) Z) S 1 371 371 0 -1 4194304 4053 0 3 0 17 4 0 0 20 0 1 0 86568 3133440 380 \
                        18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0";

    #[test]
    fn the_command_may_hold_anything() {
        let statm = "765 380 312 5 0 98 0\n";
        let reading = Reading { cpu_ticks: 21, rss_pages: 380, disk_written: None, suspended: false };
        assert_eq!(Reading::parse(STAT, statm), Some(reading));
        let plain = STAT.replace("(tmux: server (1) Z)", "(nats-server)");
        assert_eq!(Reading::parse(&plain, statm), Some(reading));
        let stopped = STAT.replace(") S 1", ") T 1");
        assert_eq!(Reading::parse(&stopped, statm), Some(Reading { suspended: true, ..reading }));
    }

    #[test]
    fn an_ended_process_and_a_broken_text_have_no_reading() {
        let statm = "765 380 312 5 0 98 0\n";
        for (stat, statm) in [
            (STAT.replace(") S 1", ") Z 1"), statm),
            (STAT.replace(") S 1", ") X 1"), statm),
            (STAT[..60].to_owned(), statm),
            (STAT.to_owned(), ""),
            (String::new(), statm),
            (STAT.replace(" 17 4 ", " -1 4 "), statm),
        ] {
            assert_eq!(Reading::parse(&stat, statm), None, "{stat}");
        }
    }

    fn read(process: &mut Process, second: u32, cpu_ticks: u64) {
        let (rss_pages, disk_written) = (100 + cpu_ticks, Some(cpu_ticks * 4096));
        process.push(S * second, Some(Reading { cpu_ticks, rss_pages, disk_written, suspended: false }));
    }

    #[test]
    fn a_mean_is_the_difference_between_its_edges() {
        let mut process = Process::default();
        process.set_pid(Some(10), S);
        // Uneven samples: the mean of their percentages would be 60 %, (100 + 100 + 10 + 30) / 4.
        for (second, ticks) in [(1, 500), (2, 600), (3, 700), (13, 800), (23, 1100)] {
            read(&mut process, second, ticks);
        }
        assert_eq!(process.cpu_percent(S, S * 23).map(tenths), Some(27.3));
        assert_eq!(process.cpu_percent(S * 3, S * 13), Some(10.0));
        assert_eq!(process.cpu_percent(S * 8, S * 13), Some(10.0), "interpolated");
        assert_eq!(process.cpu_percent(S * 13, S * 99), Some(30.0), "only what was sampled counts");
        assert_eq!(process.cpu_percent(S * 30, S * 40), None);
        let usage = process.usage(S, S * 23);
        assert_eq!(usage.series[0].cpu_percent, None);
        assert_eq!(usage.series[1].cpu_percent, Some(100.0));
        assert_eq!(
            usage.series[4],
            UsagePoint {
                t_ns: 23_000_000_000,
                cpu_percent: Some(30.0),
                rss_bytes: 1200 * rustix::param::page_size() as u64,
                disk_written_bytes: Some(1100 * 4096)
            }
        );
        assert_eq!(usage.rss_bytes_max, Some(1200 * rustix::param::page_size() as u64));
    }

    #[test]
    fn a_restarted_server_goes_on_under_its_name() {
        let mut process = Process::default();
        process.set_pid(Some(10), Duration::ZERO);
        read(&mut process, 0, 0);
        read(&mut process, 10, 500);
        process.push(S * 11, None);
        assert_eq!(process.cpu_percent(Duration::ZERO, S * 20), Some(25.0), "a server that is down uses nothing");
        process.set_pid(Some(11), S * 20);
        read(&mut process, 21, 100);
        read(&mut process, 30, 200);
        assert_eq!(process.cpu_percent(S * 11, S * 20), Some(0.0));
        assert_eq!(process.cpu_percent(S * 20, S * 30), Some(20.0));
        let usage = process.usage(Duration::ZERO, S * 30);
        assert_eq!(usage.pid, Some(11));
        assert_eq!(usage.series.iter().map(|point| point.t_ns / 1_000_000_000).collect::<Vec<_>>(), [0, 10, 21, 30]);
        assert_eq!(usage.series[2].cpu_percent, Some(100.0));
    }

    #[test]
    fn a_long_run_keeps_its_edges_and_its_mean() {
        let mut process = Process::default();
        process.set_pid(Some(10), Duration::ZERO);
        (0..1000).for_each(|second| read(&mut process, second, u64::from(second) * 50));
        process.thin();
        process.thin();
        assert_eq!(process.samples.len(), 250);
        assert_eq!(process.cpu_percent(S * 7, S * 903), Some(50.0));
    }

    #[test]
    fn what_is_busy_is_all_but_idle_and_waiting_for_a_disk() {
        let stat = "cpu  100 20 30 4000 500 6 7 8 90 10\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy_ticks(stat), Some(100 + 20 + 30 + 6 + 7 + 8));
        let io = "rchar: 9\nwchar: 8\nsyscr: 7\nread_bytes: 5\nwrite_bytes: 40960\ncancelled_write_bytes: 3\n";
        assert_eq!((disk_written(io), disk_written("wchar: 8\n")), (Some(40_960), None));
        assert_eq!((busy_ticks("cpu  1 2 3\n"), busy_ticks("intr 5\n"), busy_ticks("")), (None, None, None));
        assert_eq!(cpu_time(250), Duration::from_millis(250_000 / rustix::param::clock_ticks_per_second()));
    }

    #[test]
    fn the_most_that_a_server_was_behind_is_of_the_measured_time() {
        let env = Env::seeded(1);
        let start = env.now();
        let sampler = Sampler::new(env, start);
        for second in 0..10_000 {
            sampler.lag("n1", start + S * second, if second == 5_001 { 7 } else { u64::from(second == 0) * 900 });
        }
        let lag = sampler.raft_lag("n1", start + S, start + S * 10_000);
        assert_eq!((lag.raft_lag_max, lag.raft_lag[0].entries), (Some(7), 900), "the warm-up is in the series alone");
        assert!(lag.raft_lag.len() <= MOST, "{}", lag.raft_lag.len());
        assert_eq!(sampler.raft_lag("n1", start + S * 20_000, start + S * 30_000).raft_lag_max, None);
        assert_eq!(sampler.raft_lag("n2", start, start + S), RaftLag::default());
    }

    #[tokio::test(start_paused = true)]
    #[cfg(target_os = "linux")]
    async fn this_process_is_sampled_and_an_absent_one_is_not() {
        let env = Env::seeded(1);
        let start = env.now();
        let sampler = Sampler::new(env.clone(), start);
        sampler.set_pid("external", None);
        env.within(start + S * 10 + S / 2, sampler.run()).await.unwrap_err();
        let own = sampler.own(start, start + S * 10);
        assert_eq!(own.pid, Some(std::process::id()));
        assert_eq!(own.series.len(), 11);
        assert!(own.cpu_percent_mean.is_some() && own.rss_bytes_max > Some(100_000), "{own:?}");
        assert_eq!(sampler.servers(start, start + S * 10), [("external".to_owned(), Usage::default())]);
        assert_eq!(sampler.servers_cpu_percent(start, start + S), None);
        assert!(sampler.other_cpu_percent(start, start + S * 10).is_some());
        let gone = u32::MAX >> 1;
        sampler.set_pid("gone", Some(gone));
        sampler.sample();
        assert_eq!(sampler.servers(start, env.now())[1].1.series, []);
    }
}
