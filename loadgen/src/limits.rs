//! Whether this process may open as many files as a run needs, asked before anything is started.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::target::Asked;

/// Of a client: its connection and its timer.
const OF_A_CLIENT: u64 = 2;

/// Of an embedded broker: its two reserved ports, its output, its log, and connections that see whether it is ready.
const OF_A_BROKER: u64 = 12;

/// Of the process: the runtime, signals, standard streams, the report.
const OF_THE_PROCESS: u64 = 40;

/// The limit on open files is too low.
#[derive(Debug, thiserror::Error)]
#[error(
    "{clients} {of} need about {needed} open files, and this process may open {limit} (`ulimit -Hn`): raise that limit, or ask for fewer --{of}"
)]
pub(crate) struct TooFewFiles {
    clients: usize,
    of: &'static str,
    needed: u64,
    limit: u64,
}

/// Makes sure that a run of so many clients `of` a kind may open its files, raising this process's own limit as far as it may.
///
/// # Errors
/// When it may not go that far. Nothing was started.
pub(crate) fn ensure(clients: usize, of: &'static str, asked: &Asked) -> Result<(), TooFewFiles> {
    let brokers = match asked {
        Asked::Embedded(members) => u64::from(*members),
        Asked::External { .. } => 0,
    };
    let needed = needed(clients, brokers);
    // None is no limit.
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit { current: maximum.map(|maximum| maximum.min(needed)), maximum };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => current,
    };
    match limit {
        Some(limit) if limit < needed => Err(TooFewFiles { clients, of, needed, limit }),
        _ => Ok(()),
    }
}

fn needed(clients: usize, brokers: u64) -> u64 {
    clients as u64 * OF_A_CLIENT + brokers * OF_A_BROKER + OF_THE_PROCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_settings_fit_the_usual_limit() {
        assert!(needed(100, 3) < 1024, "{}", needed(100, 3));
        assert!(needed(1000, 5) > 1024);
    }

    #[test]
    fn the_error_names_both_numbers() {
        let error = TooFewFiles { clients: 100, of: "nodes", needed: 276, limit: 64 }.to_string();
        assert!(
            error.contains("100 nodes")
                && error.contains("fewer --nodes")
                && error.contains("276")
                && error.contains("64 (`ulimit -Hn`)"),
            "{error}"
        );
    }
}
