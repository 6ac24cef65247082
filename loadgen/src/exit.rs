//! The exit codes of the load generator: one table.

use std::process::ExitCode;

use crate::report::Verdict;

/// Why the generator ends, and the code that says so. An anomaly outranks an interruption: a run that found one failed,
/// however it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The run is over and found no anomaly.
    Ok = 0,
    /// The run found an anomaly, or the generator itself failed.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// What was asked of the figures does not hold: a service level missed, a run slower than the one before.
    Missed = 3,
    /// The store cannot be reached or does not answer, or two reports cannot be compared: nothing can be said.
    Unavailable = 4,
    /// Ended by SIGINT before its time; the report is partial.
    Interrupted = 130,
    /// Ended by SIGTERM before its time; the report is partial.
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

impl From<Verdict> for Exit {
    fn from(verdict: Verdict) -> Exit {
        match verdict {
            Verdict::Ok => Exit::Ok,
            Verdict::Failed => Exit::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_part_of_the_interface() {
        let all =
            [Exit::Ok, Exit::Failed, Exit::Usage, Exit::Missed, Exit::Unavailable, Exit::Interrupted, Exit::Terminated];
        assert_eq!(all.map(|exit| exit as u8), [0, 1, 2, 3, 4, 130, 143]);
        assert_eq!((Exit::from(Verdict::Ok), Exit::from(Verdict::Failed)), (Exit::Ok, Exit::Failed));
    }
}
