//! `crewlet broker` as its users see it: what it prints, how it ends, and that its servers end with it.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use engine::broker::{Access, Tls};
use engine::env::Env;
use rustix::process::{Pid, Signal, kill_process};

/// A command that is killed when the test is over, whichever way.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(args: &[&str], server: Option<&Path>) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crewlet"));
        command.arg("broker").args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some(server) = server {
            command.env("CREWLET_NATS_SERVER", server);
        }
        let mut child = command.spawn().expect("the command starts");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Running { child, stdout }
    }

    /// The line that is printed when the broker is ready.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    /// The processes that it started.
    fn children(&self) -> Vec<u32> {
        let own = self.child.id();
        let pids = std::fs::read_dir("/proc")
            .expect("/proc")
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid| parent(*pid) == Some(own)).collect()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process id");
        kill_process(pid, signal).expect("the command runs");
    }

    /// Waits for its end; the rest of what it printed is the second answer.
    fn end(&mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("the rest");
        (self.child.wait().expect("it ends"), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it is ours to kill");
    }
}

/// The state letter and the parent of a process (`proc_pid_stat(5)`).
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid).map(|(_, parent)| parent)
}

async fn until_gone(pids: &[u32]) {
    let env = Env::system();
    let deadline = env.now() + Duration::from_secs(20);
    // An orphan that ended stays a zombie where nobody reaps orphans.
    let alive = |pid: &u32| stat(*pid).is_some_and(|(state, _)| state != 'Z');
    while pids.iter().any(alive) {
        assert!(env.now() < deadline, "left behind: {pids:?}");
        env.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn it_prints_urls_that_work_and_ends_with_0_on_a_signal() {
    let mut broker = Running::start(&["--members", "3", "--memory"], None);
    let access = Access::external(&broker.line(), None, Tls::default()).unwrap();
    assert_eq!(access.urls().len(), 3);
    let env = Env::system();
    let deadline = env.now() + Duration::from_secs(60);
    // A server ends a connection whose client is slow to say who it is.
    while let Err(error) = access.connect_options().await.unwrap().connect(access.urls()).await {
        assert!(env.now() < deadline, "{error}");
    }
    let servers = broker.children();
    assert_eq!(servers.len(), 3);
    broker.signal(Signal::TERM);
    let (status, rest) = broker.end();
    assert_eq!((status.code(), rest.as_str()), (Some(0), ""));
    until_gone(&servers).await;
}

#[tokio::test]
async fn killed_with_sigkill_it_leaves_no_server_and_the_directory_can_be_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--store-dir", dir.path().to_str().unwrap(), "--sync-interval", "2m"];
    let mut broker = Running::start(&args, None);
    broker.line();
    let servers = broker.children();
    assert_eq!(servers.len(), 1);

    let mut second = Running::start(&args, None);
    assert_eq!(second.end().0.code(), Some(4), "the directory is in use");

    broker.signal(Signal::KILL);
    broker.end();
    until_gone(&servers).await;
    let mut third = Running::start(&args, None);
    assert!(third.line().starts_with("nats://"));

    // A server that somebody else ends: the command fails, since nothing is left to serve.
    let server = Pid::from_raw(third.children()[0].cast_signed()).unwrap();
    kill_process(server, Signal::KILL).unwrap();
    assert_eq!(third.end().0.code(), Some(1));
}

#[tokio::test]
async fn interrupted_before_it_is_ready_it_ends_with_130() {
    let dir = tempfile::tempdir().unwrap();
    let server = dir.path().join("nats-server");
    let (up, script) = (dir.path().join("up"), "[ \"$1\" = --version ] && { echo nats-server: v2.15.1; exit 0; }");
    let script = format!("#!/bin/sh\n{script}\n: >'{}'; exec sleep 600\n", up.display());
    // Written by another process: see `script` in the tests of the binary.
    let mut writer = Command::new("/bin/sh");
    writer.args(["-c", "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\""]).arg(&server).arg(script);
    assert!(writer.status().unwrap().success());

    let env = Env::system();
    let mut broker = Running::start(&[], Some(&server));
    let deadline = env.now() + Duration::from_secs(20);
    while !up.exists() {
        assert!(env.now() < deadline, "the server was never started");
        env.sleep(Duration::from_millis(5)).await;
    }
    let servers = broker.children();
    broker.signal(Signal::INT);
    let (status, printed) = broker.end();
    assert_eq!((status.code(), printed.as_str()), (Some(130), ""));
    until_gone(&servers).await;
}

#[test]
fn without_a_server_to_run_it_ends_with_4() {
    assert_eq!(Running::start(&[], Some(Path::new("/nowhere"))).end().0.code(), Some(4));
}

#[test]
fn wrong_usage_ends_with_2() {
    for args in [
        &["--members", "2"][..],
        &["--sync-interval", "30"],
        &["--sync-interval", "-5s"],
        &["--memory", "--store-dir", "x"],
    ] {
        assert_eq!(Running::start(args, None).end().0.code(), Some(2), "{args:?}");
    }
}
