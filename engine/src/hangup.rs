//! SIGHUP, as far as it is meant for this process.
//!
//! A terminal that goes away ends what runs in it, and a program that has children to end wants to hear of that. Under `nohup`
//! the signal arrives ignored, and to listen for it all the same would undo what the user asked for.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The hang-ups that this process is to end by.
#[derive(Debug)]
pub struct HangUp(Option<Signal>);

impl HangUp {
    /// Listens from now on, unless this process was started with the signal ignored. That is known where there is a `/proc`;
    /// elsewhere it listens.
    ///
    /// # Errors
    /// When the system does not let it.
    pub fn listen() -> io::Result<HangUp> {
        let ignored = std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hang_up(&status));
        Ok(HangUp(if ignored { None } else { Some(signal(SignalKind::hangup())?) }))
    }

    /// Waits for the next one. Without one, it waits for ever.
    pub async fn recv(&mut self) {
        if let Some(signal) = &mut self.0
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending().await
    }
}

/// Whether the mask of ignored signals (`proc_pid_status(5)`) has the first one, SIGHUP, in it.
fn ignores_hang_up(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bit_is_the_hang_up() {
        assert!(ignores_hang_up("Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hang_up("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hang_up("SigIgn:\tnothing\n"));
        assert!(!ignores_hang_up(""));
    }
}
