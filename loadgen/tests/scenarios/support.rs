//! The binary as its users run it: started, listened to, signalled, and never left behind.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use engine::env::Env;
use engine::tasks;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// How long a run may say nothing, or take to end: far longer than any does.
const PATIENCE: Duration = Duration::from_secs(90);

/// One run of `loadgen`. It is killed when the test is over, whichever way.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    heard: Vec<String>,
    dir: TempDir,
}

/// What a run left.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    dir: TempDir,
}

impl Running {
    /// Starts `loadgen` with a scenario and its arguments, and `--out` with a directory of its own.
    pub(crate) fn scenario(name: &str, args: &str) -> Running {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_loadgen"));
        command.arg(name).args(args.split_whitespace()).arg("--out").arg(dir.path().join("report"));
        Running::start(command, dir)
    }

    /// Starts a command.
    pub(crate) fn start(mut command: Command, dir: TempDir) -> Running {
        let stdout = File::create(dir.path().join("stdout")).unwrap();
        command.env_remove("RUST_LOG").stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (said, lines) = mpsc::channel();
        let listen = move || stderr.lines().map_while(Result::ok).try_for_each(|line| said.send(line)).is_ok();
        tasks::thread("stderr", listen).unwrap();
        Running { child, lines, heard: Vec::new(), dir }
    }

    /// Waits until a line on stderr has this in it.
    #[track_caller]
    pub(crate) fn until(&mut self, part: &str) {
        self.until_one(|line| line.contains(part));
    }

    /// Waits until a line on stderr is wanted.
    #[track_caller]
    pub(crate) fn until_one(&mut self, wanted: impl Fn(&str) -> bool) {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    let found = wanted(&line);
                    self.heard.push(line);
                    if found {
                        return;
                    }
                }
                Err(error) => panic!("{error}: no such line:\n{}", self.heard.join("\n")),
            }
        }
    }

    /// The servers that it started.
    pub(crate) fn servers(&self) -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").unwrap();
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid| stat(*pid).is_some_and(|(_, parent)| parent == self.child.id())).collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    /// The report as it is on disk now.
    pub(crate) fn report(&self) -> Option<Value> {
        report(self.dir.path())
    }

    /// Sends it a signal again and again until it ends: two that come at once are heard as one.
    #[track_caller]
    pub(crate) fn insist(mut self, signal: Signal) -> Ended {
        let env = Env::system();
        let until = env.now() + PATIENCE;
        loop {
            self.signal(signal);
            match self.lines.recv_timeout(Duration::from_millis(20)) {
                Ok(line) => self.heard.push(line),
                Err(RecvTimeoutError::Disconnected) => return self.end(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            assert!(env.now() < until, "it does not end:\n{}", self.heard.join("\n"));
        }
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.heard.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end:\n{}", self.heard.join("\n")),
            }
        }
        let status = self.child.wait().unwrap();
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        let stdout = std::fs::read_to_string(dir.path().join("stdout")).unwrap();
        Ended { code: status.code(), status, stdout, stderr: self.heard.join("\n"), dir }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).unwrap();
    }
}

impl Ended {
    /// The report that it wrote.
    #[track_caller]
    pub(crate) fn report(&self) -> Value {
        report(self.dir.path()).unwrap_or_else(|| panic!("no report:\n{}", self.stderr))
    }

    /// Where its report lies.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("report/report.json")
    }

    /// What it said on stderr, without the lines that its servers printed. They warn of a slow disk or a route that is late
    /// as they see fit, and none of that is the run's.
    pub(crate) fn own_stderr(&self) -> String {
        own(&self.stderr)
    }

    /// What stands in the directory of the report.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.dir.path().join("report")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

/// The lines of a log but those under the target of the servers.
pub(crate) fn own(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.contains(" nats_server: ")).collect();
    lines.join("\n")
}

fn report(dir: &Path) -> Option<Value> {
    let text = std::fs::read(dir.join("report/report.json")).ok()?;
    Some(serde_json::from_slice(&text).unwrap())
}

/// Sends a signal to a process that runs.
pub(crate) fn send(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// The state letter and the parent of a process (`proc_pid_stat(5)`).
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Waits until these processes are gone.
pub(crate) async fn until_gone(pids: &[u32]) {
    let env = Env::system();
    let deadline = env.now() + Duration::from_secs(20);
    // An orphan that ended stays a zombie where nobody reaps orphans.
    let alive = |pid: &u32| stat(*pid).is_some_and(|(state, _)| state != 'Z');
    while pids.iter().any(alive) {
        assert!(env.now() < deadline, "left behind: {pids:?}");
        env.sleep(Duration::from_millis(5)).await;
    }
}

/// Interrupts a run once it says this, and answers the report of what was: it ends in order, and leaves no server behind.
pub(crate) async fn interrupted(mut running: Running, once: &str) -> Value {
    running.until(once);
    let servers = running.servers();
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let report = ended.report();
    valid(&report);
    no_anomaly(&report);
    assert_eq!(report["interrupted"], Value::Bool(true));
    assert!(ended.stdout.starts_with("verdict: ok (interrupted after "), "{}", ended.stdout);
    until_gone(&servers).await;
    report
}

/// Holds a report against its published schema.
#[track_caller]
pub(crate) fn valid(report: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/report.schema.json");
    let schema: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(report).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert_eq!(errors, [] as [String; 0]);
}

/// No anomaly of any kind, each of which is named.
#[track_caller]
pub(crate) fn no_anomaly(report: &Value) {
    let kinds = [
        "double_holders",
        "epochs_reused",
        "winners_told_not_held",
        "live_leases_lost",
        "memberships_short",
        "listing_short",
        "listing_double",
        "listing_old",
        "budget_miscounted",
        "budget_misjudged",
        "budget_overspent",
        "seats_not_held",
        "winners_doubled",
        "winners_missing",
        "records_wrong",
        "valve_wrong",
        "spend_off",
        "copies_differ",
        "ops_unsettled",
    ];
    let none: serde_json::Map<String, Value> = kinds.map(|kind| (kind.to_owned(), 0.into())).into_iter().collect();
    assert_eq!((&report["verdict"], &report["anomalies"]), (&"ok".into(), &Value::from(none)));
}
