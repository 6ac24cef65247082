//! One line a second that says a run goes on: rewritten in place on a terminal, appended otherwise.
//!
//! The text is the caller's. It goes to stderr, so a table on stdout stays clean.

use std::io::{self, IsTerminal, Stderr, Write};
use std::time::Duration;

use engine::env::Mono;

const PERIOD: Duration = Duration::from_secs(1);

/// Where progress is shown.
pub struct Progress<W: Write> {
    out: W,
    rewrite: bool,
    shown: Option<Mono>,
}

impl Progress<Stderr> {
    /// Progress on stderr.
    pub fn stderr() -> Progress<Stderr> {
        let out = io::stderr();
        Progress { rewrite: out.is_terminal(), out, shown: None }
    }
}

impl<W: Write> Progress<W> {
    /// Shows `text`, a single line, unless the last was shown less than a second before `now`.
    pub fn show(&mut self, now: Mono, text: impl FnOnce() -> String) {
        if self.shown.is_some_and(|shown| now.since(shown) < PERIOD) {
            return;
        }
        self.shown = Some(now);
        let text = text();
        // Cleared and rewritten with wrapping off, since a wrapped line could not be taken back. Whoever closed stderr does
        // not want to see it, so a failed write is no failure of the run.
        let _ = if self.rewrite {
            write!(self.out, "\r\x1b[2K\x1b[?7l{text}\x1b[?7h").and_then(|()| self.out.flush())
        } else {
            writeln!(self.out, "{text}")
        };
    }

    /// Takes the rewritten line away, so that what follows begins on a clean one.
    pub fn finish(mut self) {
        if self.rewrite && self.shown.is_some() {
            let _ = write!(self.out, "\r\x1b[2K").and_then(|()| self.out.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::env::Env;

    fn shown(rewrite: bool) -> String {
        let start = Env::seeded(1).now();
        let mut out = Vec::new();
        let mut progress = Progress { out: &mut out, rewrite, shown: None };
        for ms in [0, 500, 999, 1000, 1500, 2500] {
            progress.show(start + Duration::from_millis(ms), || format!("{ms} ms"));
        }
        progress.finish();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_a_second() {
        assert_eq!(shown(false), "0 ms\n1000 ms\n2500 ms\n");
    }

    #[test]
    fn a_terminal_has_one_line_that_is_rewritten_and_taken_away() {
        let line = |text: &str| format!("\r\x1b[2K\x1b[?7l{text}\x1b[?7h");
        assert_eq!(shown(true), [line("0 ms"), line("1000 ms"), line("2500 ms"), "\r\x1b[2K".to_owned()].concat());
    }
}
