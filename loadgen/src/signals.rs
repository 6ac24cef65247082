//! Being told to end: the first signal ends a run in order, the second ends it at once.

use std::sync::Arc;

use engine::hangup::HangUp;
use engine::tasks::{self, Task};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::exit::Exit;

/// The signals that this process got. Clones hear the same.
#[derive(Clone)]
pub struct Signals {
    heard: watch::Receiver<Heard>,
    _listening: Arc<Task<()>>,
}

#[derive(Clone, Copy)]
struct Heard {
    count: u32,
    first: Exit,
}

impl Signals {
    /// Listens from now on for SIGINT, SIGTERM and, unless it is ignored, SIGHUP.
    ///
    /// # Errors
    /// When the system does not let it.
    pub fn listen() -> std::io::Result<Signals> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = HangUp::listen()?;
        let (told, heard) = watch::channel(Heard { count: 0, first: Exit::Interrupted });
        let listening = tasks::spawn(async move {
            loop {
                let exit = tokio::select! {
                    Some(()) = interrupt.recv() => Exit::Interrupted,
                    Some(()) = terminate.recv() => Exit::Terminated,
                    () = hang_up.recv() => Exit::Terminated,
                };
                told.send_modify(|heard| {
                    heard.first = if heard.count == 0 { exit } else { heard.first };
                    heard.count += 1;
                });
            }
        });
        Ok(Signals { heard, _listening: Arc::new(listening) })
    }

    /// The first signal's exit code, once there is one.
    pub async fn first(&mut self) -> Exit {
        self.at_least(1).await
    }

    /// The first signal's exit code, once there is a second.
    pub async fn second(&mut self) -> Exit {
        self.at_least(2).await
    }

    async fn at_least(&mut self, count: u32) -> Exit {
        match self.heard.wait_for(|heard| heard.count >= count).await {
            Ok(heard) => heard.first,
            // The listener is gone, so no signal will be heard.
            Err(_) => std::future::pending().await,
        }
    }
}
