//! One server of a cluster: what can be done to it, and what it is asked for.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::access::Access;
use super::ports::Port;
use super::process::{Slot, Spawner};
use super::ready::Prober;
use super::{BrokerError, Exit};
use crate::env::Env;

/// How long a server may take to end after SIGTERM before it is killed.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// How often a server that was told to freeze is looked at until it has.
const FREEZE_LOOK: Duration = Duration::from_millis(1);

/// One server of a cluster. Its ports and its data stay its own over any number of stops and starts; nothing starts it again
/// by itself.
pub struct Member {
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) binary: PathBuf,
    pub(super) config: PathBuf,
    /// The working directory; the data lies below it.
    pub(super) directory: PathBuf,
    pub(super) client: Port,
    pub(super) _route: Option<Port>,
    /// The account of the streams, through this member alone.
    pub(super) user: Access,
    /// The account that readiness is tried out in, through this member alone.
    pub(super) trial: Access,
    /// The system account, through this member alone.
    pub(super) system: Access,
    pub(super) slot: Arc<Slot>,
    pub(super) spawner: Arc<Spawner>,
    pub(super) ready_within: Duration,
    pub(super) env: Env,
}

impl Member {
    /// Its place among the members, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its server name: `n1` for the first.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where clients connect, without user and password.
    pub fn client_url(&self) -> String {
        url(self.client.address())
    }

    /// The process's id; `None` while it does not run.
    pub fn pid(&self) -> Option<u32> {
        self.slot.pid()
    }

    /// Whether the process runs, frozen or not.
    pub fn is_running(&self) -> bool {
        self.pid().is_some()
    }

    /// Kills it (SIGKILL) and waits until it is gone. Nothing happens if it does not run.
    ///
    /// # Errors
    /// When the system refuses the signal.
    pub async fn kill(&self) -> Result<(), BrokerError> {
        if let Some(run) = self.slot.kill().map_err(self.refused("kill"))? {
            self.slot.ended(run).await;
        }
        Ok(())
    }

    /// Asks it to end (SIGTERM) and waits until it is gone; kills it if that takes longer than 10 s. A frozen server is
    /// continued for it. Nothing happens if it does not run.
    ///
    /// # Errors
    /// When the system refuses the signal.
    pub async fn terminate(&self) -> Result<(), BrokerError> {
        let Some(run) = self.slot.terminate().map_err(self.refused("terminate"))? else { return Ok(()) };
        if self.env.within(self.env.now() + STOP_WITHIN, self.slot.ended(run)).await.is_err() {
            tracing::warn!(member = self.name, within_s = STOP_WITHIN.as_secs(), "broker_member_killed_at_stop");
            self.kill().await?;
        }
        Ok(())
    }

    /// Freezes it (SIGSTOP) and waits until it is frozen: it keeps its connections and answers nothing. A server that computes or
    /// writes to a disk goes on for a moment after the signal, and answers what comes in it.
    ///
    /// # Errors
    /// When it does not run, or the system refuses the signal.
    pub async fn pause(&self) -> Result<(), BrokerError> {
        let run = self.slot.stop().map_err(self.refused("pause"))?.ok_or_else(|| self.not_running())?;
        while !self.slot.stopped(run).map_err(self.refused("pause"))? {
            self.env.sleep(FREEZE_LOOK).await;
        }
        Ok(())
    }

    /// Continues it (SIGCONT).
    ///
    /// # Errors
    /// When it does not run, or the system refuses the signal.
    pub fn resume(&self) -> Result<(), BrokerError> {
        self.slot.go_on().map_err(self.refused("resume"))?.map(|_| ()).ok_or_else(|| self.not_running())
    }

    fn not_running(&self) -> BrokerError {
        BrokerError::Running { member: self.name.clone(), running: false }
    }

    /// Starts it with its data and its ports, and waits until it answers. It may take longer until it has caught up with the
    /// others: [`Cluster::ready`](super::Cluster::ready) waits for that.
    ///
    /// # Errors
    /// When it runs already, cannot be started, ends at once, or does not answer in the time given for readiness.
    pub async fn start(&self) -> Result<(), BrokerError> {
        let since = self.exits().borrow().len();
        self.launch()?;
        let mut prober = Prober::new(std::slice::from_ref(self), &self.env, since);
        prober.until_answering(self.ready_within).await
    }

    /// [`terminate`](Member::terminate), then [`start`](Member::start).
    ///
    /// # Errors
    /// Those of the two.
    pub async fn restart(&self) -> Result<(), BrokerError> {
        self.terminate().await?;
        self.start().await
    }

    /// Starts the process and does not wait for anything.
    pub(super) fn launch(&self) -> Result<(), BrokerError> {
        let mut command = Command::new(&self.binary);
        command.arg("-c").arg(&self.config).current_dir(&self.directory);
        let launched = self.slot.launch(&self.spawner, command).map_err(|source| BrokerError::Spawn {
            member: self.name.clone(),
            binary: self.binary.clone(),
            source,
        })?;
        let Some(pid) = launched else {
            return Err(BrokerError::Running { member: self.name.clone(), running: true });
        };
        tracing::info!(member = self.name, pid, url = self.client_url(), "broker_member_start");
        Ok(())
    }

    /// What there is to hear about ends.
    pub(super) fn exits(&self) -> tokio::sync::watch::Receiver<Vec<Exit>> {
        self.slot.exits()
    }

    fn refused(&self, attempt: &'static str) -> impl FnOnce(std::io::Error) -> BrokerError {
        let member = self.name.clone();
        move |source| BrokerError::Signal { attempt, member, source }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.slot.clear();
    }
}

/// The client URL of a loopback port.
pub(super) fn url(address: SocketAddr) -> String {
    format!("nats://{address}")
}
