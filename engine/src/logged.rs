//! For tests: what this thread writes to the log.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::subscriber::{DefaultGuard, set_default};

/// The log of one thread, from its making to the end of the guard that comes with it.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn begin() -> (Log, DefaultGuard) {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, set_default(subscriber))
    }

    /// The lines since the last call in which `event` stands.
    pub(crate) fn take(&self, event: &str) -> Vec<String> {
        let written = String::from_utf8(std::mem::take(&mut *self.0.lock())).unwrap();
        written.lines().filter(|line| line.contains(event)).map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
