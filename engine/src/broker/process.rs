//! Server processes: started so that they die with us, watched so that their end is known, signalled without guessing.
//!
//! A child is killed by the kernel when the thread that started it ends, whatever ended it, so every child is started by one
//! thread that does nothing else and lives as long as the cluster. Only Linux has this; on macOS a child outlives a parent
//! that was killed with SIGKILL, keeps its directory locked, and has to be ended by hand. Everywhere, dropping the owner
//! kills the child and reaps it. Children have process groups of their own: a terminal's Ctrl-C does not reach them.
//!
//! A process is reaped under the same lock that guards its signals, so that no signal ever goes to a process that
//! inherited the number.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::sync::watch;

use super::output::Tail;
use crate::env::{Env, Mono};
use crate::tasks;

/// The end of one run of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The member's name.
    pub member: String,
    /// Which run of that member it was, counted from 1.
    pub run: u32,
    /// The process it was.
    pub pid: u32,
    /// When the end was noticed.
    pub at: Mono,
    /// The exit status or the signal, as the standard library words it: `signal: 9 (SIGKILL)`.
    pub status: String,
    /// Whether this process had asked for it.
    pub expected: bool,
    /// The last lines that the server printed, oldest first.
    pub last_lines: Vec<String>,
}

type Request = (Command, mpsc::SyncSender<io::Result<Child>>);

/// The thread that starts the children.
pub(super) struct Spawner {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Spawner {
    /// Starts the thread. Children inherit `lock` and hold it for as long as they live.
    pub(super) fn start(lock: Arc<File>) -> io::Result<Spawner> {
        let (requests, inbox) = mpsc::channel::<Request>();
        let thread = tasks::thread("broker-spawner", move || {
            for (mut command, reply) in inbox {
                bind_to_this_thread(&mut command, lock.clone());
                let answer = reply.send(command.spawn());
                debug_assert!(answer.is_ok(), "the asker waits for its answer");
            }
        })?;
        Ok(Spawner { requests: Some(requests), thread: Some(thread) })
    }

    /// Starts a process. Takes as long as a fork and an exec do.
    fn spawn(&self, command: Command) -> io::Result<Child> {
        let gone = || io::Error::other("the thread that starts processes is gone");
        let (reply, answer) = mpsc::sync_channel(1);
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        requests.send((command, reply)).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        drop(self.requests.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("broker_spawner_panicked");
        }
    }
}

/// Makes the process that `command` starts die with the calling thread and hold `lock`.
#[expect(unsafe_code, reason = "pre_exec: its closure runs between fork and exec, where only system calls are sound")]
fn bind_to_this_thread(command: &mut Command, lock: Arc<File>) {
    let parent = rustix::process::getpid();
    let in_child = move || {
        #[cfg(target_os = "linux")]
        {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // A parent that died before that call sends no signal any more.
            if rustix::process::getppid() != Some(parent) {
                return Err(rustix::io::Errno::SRCH.into());
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = parent;
        rustix::io::fcntl_setfd(&*lock, rustix::io::FdFlags::empty())?;
        Ok(())
    };
    // SAFETY: the closure makes system calls only. It neither allocates (an `io::Error` of an errno does not) nor locks, and
    // what it captured was allocated before the fork.
    unsafe { command.pre_exec(in_child) };
}

/// The place of one member's process: empty, or a run under watch.
pub(super) struct Slot {
    member: String,
    env: Env,
    running: Mutex<Option<Running>>,
    exits: watch::Sender<Vec<Exit>>,
    launch: Mutex<Launches>,
}

struct Running {
    child: Child,
    run: u32,
    expected: bool,
}

#[derive(Default)]
struct Launches {
    count: u32,
    watcher: Option<JoinHandle<()>>,
}

impl Slot {
    /// An empty slot, which reports the ends of its runs to `exits`.
    pub(super) fn new(member: &str, env: &Env, exits: watch::Sender<Vec<Exit>>) -> Arc<Slot> {
        Arc::new(Slot {
            member: member.to_owned(),
            env: env.clone(),
            running: Mutex::new(None),
            exits,
            launch: Mutex::default(),
        })
    }

    /// Starts a process in an empty slot; `None` when it is taken. The answer is the process's id.
    pub(super) fn launch(self: &Arc<Slot>, spawner: &Spawner, mut command: Command) -> io::Result<Option<u32>> {
        let mut launch = self.launch.lock();
        if self.running.lock().is_some() {
            return Ok(None);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut child = spawner.spawn(command)?;
        let pid = child.id();
        let stderr = child.stderr.take().expect("standard error was asked for as a pipe");
        launch.count += 1;
        *self.running.lock() = Some(Running { child, run: launch.count, expected: false });
        let watched = self.clone();
        match tasks::thread(&format!("broker-{}", self.member), move || watched.watch(stderr)) {
            Ok(watcher) => {
                if let Some(before) = launch.watcher.replace(watcher) {
                    join(before);
                }
                Ok(Some(pid))
            }
            Err(error) => {
                let running = self.running.lock().take();
                if let Some(Running { mut child, .. }) = running {
                    child.kill().and_then(|()| child.wait())?;
                }
                Err(error)
            }
        }
    }

    /// Passes the process's output on until there is no more, then waits for its end and reports it.
    fn watch(&self, stderr: ChildStderr) {
        let mut tail = Tail::default();
        for line in BufReader::new(stderr).split(b'\n') {
            match line {
                Ok(line) => tail.line(&self.member, String::from_utf8_lossy(&line).into_owned()),
                Err(error) => {
                    tracing::warn!(member = self.member, %error, "broker_output_lost");
                    break;
                }
            }
        }
        // Its end is awaited without reaping, so that the number stays its own until the lock is held.
        if let Some(pid) = self.pid().and_then(as_pid) {
            let ended = || rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            while ended().is_err_and(|error| error == rustix::io::Errno::INTR) {}
        }
        let mut running = self.running.lock();
        let Some(Running { mut child, run, expected }) = running.take() else { return };
        let status = match child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => format!("unknown: {error}"),
        };
        drop(running);
        let member = self.member.clone();
        let exit =
            Exit { member, run, pid: child.id(), at: self.env.now(), status, expected, last_lines: tail.into_lines() };
        let Exit { member, pid, status, .. } = &exit;
        if expected {
            tracing::info!(member, pid, status, "broker_member_exit");
        } else {
            let last_lines = exit.last_lines.join("\n");
            tracing::error!(member, pid, status, last_lines, "broker_member_exit_unexpected");
        }
        self.exits.send_modify(|exits| exits.push(exit));
    }

    /// The process's id, while it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.running.lock().as_ref().map(|running| running.child.id())
    }

    /// Sends a signal to the process, or to its whole group for SIGKILL. The answer is the run that got it, `None` when there
    /// is none. An end that follows is `expected` if this says so, or said so before.
    fn signal(&self, signal: Signal, expected: bool) -> io::Result<Option<u32>> {
        let mut running = self.running.lock();
        let Some(Running { child, run, expected: marked }) = &mut *running else { return Ok(None) };
        let pid = as_pid(child.id()).ok_or_else(|| io::Error::other("not a process id"))?;
        *marked |= expected;
        if signal == Signal::KILL {
            rustix::process::kill_process_group(pid, signal)?;
        } else {
            rustix::process::kill_process(pid, signal)?;
        }
        Ok(Some(*run))
    }

    /// Tells the process to stop (SIGSTOP). It goes on until each of its threads has heard of it; see [`stopped`](Self::stopped).
    /// The answer is the run that was told, `None` when there is none.
    pub(super) fn stop(&self) -> io::Result<Option<u32>> {
        self.signal(Signal::STOP, false)
    }

    /// Whether that run does nothing any more: every thread of it is stopped, or it has ended.
    pub(super) fn stopped(&self, run: u32) -> io::Result<bool> {
        let running = self.running.lock();
        let Some(Running { child, .. }) = running.as_ref().filter(|running| running.run == run) else {
            return Ok(true);
        };
        let pid = as_pid(child.id()).ok_or_else(|| io::Error::other("not a process id"))?;
        let told = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        Ok(rustix::process::waitid(WaitId::Pid(pid), told)?.is_some())
    }

    /// Continues the process (SIGCONT). The answer is the run that was told, `None` when there is none.
    pub(super) fn go_on(&self) -> io::Result<Option<u32>> {
        self.signal(Signal::CONT, false)
    }

    /// Asks the process to end (SIGTERM), frozen or not. The answer is the run that was asked, `None` when there is none.
    pub(super) fn terminate(&self) -> io::Result<Option<u32>> {
        let run = self.signal(Signal::TERM, true)?;
        self.signal(Signal::CONT, true)?;
        Ok(run)
    }

    /// Kills the process (SIGKILL). The answer is the run that was killed, `None` when there is none.
    pub(super) fn kill(&self) -> io::Result<Option<u32>> {
        self.signal(Signal::KILL, true)
    }

    /// Every end reported to the cluster of this slot.
    pub(super) fn exits(&self) -> watch::Receiver<Vec<Exit>> {
        self.exits.subscribe()
    }

    /// Waits until the end of that run is reported.
    pub(super) async fn ended(&self, run: u32) {
        let mut exits = self.exits();
        let reported = |exit: &Exit| exit.member == self.member && exit.run == run;
        let seen = exits.wait_for(|exits| exits.iter().any(reported)).await;
        debug_assert!(seen.is_ok(), "the slot keeps a sender");
    }

    /// Kills the process, if any, and waits until it is reaped and its end is reported.
    pub(super) fn clear(&self) {
        if let Err(error) = self.kill() {
            tracing::error!(member = self.member, %error, "broker_member_not_killed");
        }
        if let Some(watcher) = self.launch.lock().watcher.take() {
            join(watcher);
        }
    }
}

fn as_pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}

fn join(watcher: JoinHandle<()>) {
    if watcher.join().is_err() {
        tracing::error!("broker_watcher_panicked");
    }
}
