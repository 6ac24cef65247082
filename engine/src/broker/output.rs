//! What a server prints, passed on to this process's log line by line.

use std::collections::VecDeque;

/// How many lines are kept for the report of an unexpected exit.
const KEPT: usize = 20;

/// How lines begin that belong to every start or stop and ask nothing of anyone: they are not warnings here. The file with
/// the passwords is ours, for its owner alone; members that are not up yet, or a leader that is not elected yet, are what
/// readiness waits for and tells of, and a route that stays down is reported again.
const ROUTINE: [&str; 5] = [
    "Plaintext passwords detected",
    "Error trying to connect to route (attempt 1)",
    "Waiting for routing to be established",
    "JetStream has not established contact with a meta leader",
    "Metalayer blocking snapshot",
];

/// The last lines of one run of a server.
#[derive(Default)]
pub(super) struct Tail(VecDeque<String>);

impl Tail {
    /// Logs a line under the target `nats_server` and keeps it.
    pub(super) fn line(&mut self, member: &str, line: String) {
        let (level, text) = parse(&line);
        match level {
            Level::Error => tracing::error!(target: "nats_server", member, "{text}"),
            Level::Warn => tracing::warn!(target: "nats_server", member, "{text}"),
            Level::Debug => tracing::debug!(target: "nats_server", member, "{text}"),
            Level::Trace => tracing::trace!(target: "nats_server", member, "{text}"),
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }

    /// The lines kept, oldest first.
    pub(super) fn into_lines(self) -> Vec<String> {
        self.0.into()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Level {
    Error,
    Warn,
    Debug,
    Trace,
}

/// The level and the text of a line. A line without the server's level tag comes from before its logger exists, when it
/// refuses a configuration, or from a crash: both are errors.
fn parse(line: &str) -> (Level, &str) {
    let Some((tag, text)) = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] ["))
        .filter(|(pid, _)| pid.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|(_, rest)| rest.split_once(']'))
    else {
        return (Level::Error, line);
    };
    let level = match tag {
        "INF" | "DBG" => Level::Debug,
        "TRC" => Level::Trace,
        _ if ROUTINE.iter().any(|start| text.trim_start().starts_with(start)) || is_end_of_route(text) => Level::Debug,
        "WRN" => Level::Warn,
        _ => Level::Error,
    };
    (level, text.trim())
}

/// Whether a line says that a route (`rid`) ended with something still to be sent: members do that to each other when both
/// dialled, and at every stop. A member that ends unasked is told of by this process, and a route that stays down as above.
fn is_end_of_route(text: &str) -> bool {
    text.contains(" - rid:") && text.contains(" - Error flushing: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_follow_the_tag() {
        assert_eq!(parse("[12] [INF] Server is ready"), (Level::Debug, "Server is ready"));
        assert_eq!(parse("[12] [WRN] slow"), (Level::Warn, "slow"));
        assert_eq!(parse("[12] [ERR] [x] y"), (Level::Error, "[x] y"));
        assert_eq!(parse("[12] [FTL] gone"), (Level::Error, "gone"));
        assert_eq!(parse("[12] [WRN] Plaintext passwords detected, use nkeys or bcrypt").0, Level::Debug);
        let route = "[12] [ERR] Error trying to connect to route (attempt";
        assert_eq!(parse(&format!("{route} 1): dial tcp")).0, Level::Debug);
        assert_eq!(parse(&format!("{route} 3600): dial tcp")).0, Level::Error);
        let flush = |what| format!("[12] [ERR] 127.0.0.1:1 - {what}:11 - Error flushing: writev tcp: broken pipe");
        assert_eq!((parse(&flush("rid")).0, parse(&flush("cid")).0), (Level::Debug, Level::Error));
        let refused = "nats-server: nats.conf:3:1: unknown field";
        assert_eq!(parse(refused), (Level::Error, refused));
        assert_eq!(parse("panic: [1] [INF] x").0, Level::Error);
    }

    #[test]
    fn the_last_lines_are_kept() {
        let mut tail = Tail::default();
        (0..50).for_each(|n| tail.line("n1", format!("[1] [INF] {n}")));
        let lines = tail.into_lines();
        assert_eq!((lines.len(), lines[0].as_str(), lines[19].as_str()), (20, "[1] [INF] 30", "[1] [INF] 49"));
    }
}
