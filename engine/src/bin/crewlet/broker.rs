//! `crewlet broker`: an embedded cluster for other programs to use.
//!
//! Prints one line when the cluster serves: its URLs with user and password, joined by commas, as a `--url` takes them. The
//! first signal ends it in an orderly way, a second one at once.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use engine::broker::{BrokerError, Cluster, Settings, Store, SyncInterval};
use engine::env::Env;
use engine::hangup::HangUp;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::USAGE;

/// The broker, or too many of its members, ended.
const FAILED: u8 = 1;
const UNAVAILABLE: u8 = 4;

/// What the help says below the flags.
pub(crate) const AFTER_HELP: &str = "\
When it serves, one line on standard output has its URLs, user and password included, as another program's --url takes \
them. The first SIGINT or SIGTERM ends it in order, a second one at once.

Exit codes:
  0    ended as asked
  1    the broker, or too many of its members, ended or could not be started
  2    the command line makes no sense
  4    no nats-server to run, the directory is another broker's or of another size, or not ready in time
  130  interrupted before it was ready, or again before it had stopped (143: terminated)

Examples:
  crewlet broker
  crewlet broker --members 3 --store-dir /var/lib/crewlet-broker";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many servers.
    #[arg(long, value_name = "N", default_value = "1", value_parser = PossibleValuesParser::new(["1", "3", "5"]).try_map(|n| n.parse::<u8>()))]
    members: u8,
    /// Keep the streams in this directory. Without it they go to a temporary one.
    #[arg(long, value_name = "DIR")]
    store_dir: Option<PathBuf>,
    /// Keep the streams in memory.
    #[arg(long, conflicts_with = "store_dir")]
    memory: bool,
    /// When writes go to the disk: `always`, before they are acknowledged; or every so often (`10s`, `2m`, `500ms`), and a
    /// power failure may undo acknowledged ones.
    #[arg(long, value_name = "always|DURATION", default_value = "always", value_parser = sync_interval)]
    sync_interval: SyncInterval,
}

/// Reads `always` or a duration.
fn sync_interval(text: &str) -> Result<SyncInterval, String> {
    if text == "always" {
        return Ok(SyncInterval::Always);
    }
    let rule = |why: String| format!("{why}; give `always` or a duration with its unit, `10s` for instance");
    let parsed = text.parse::<jiff::SignedDuration>().map_err(|error| rule(error.to_string()))?;
    match Duration::try_from(parsed) {
        Ok(interval) if interval >= Duration::from_millis(1) => Ok(SyncInterval::Every(interval)),
        _ => Err(rule("at least 1ms".to_owned())),
    }
}

/// The signals that end the command, received from now on.
struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hang_up: HangUp,
}

impl Interrupts {
    fn listen() -> io::Result<Interrupts> {
        Ok(Interrupts {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: HangUp::listen()?,
        })
    }

    /// Waits for the next one; the answer is the exit status that tells of it.
    async fn next(&mut self) -> u8 {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            () = self.hang_up.recv() => SignalKind::hangup(),
        };
        128 + u8::try_from(kind.as_raw_value()).unwrap_or(0)
    }
}

/// Runs the command; the answer is the exit status.
pub(crate) async fn run(args: Args) -> ExitCode {
    let mut interrupts = match Interrupts::listen() {
        Ok(interrupts) => interrupts,
        Err(error) => {
            tracing::error!(%error, "signals_unavailable");
            return FAILED.into();
        }
    };
    let store = match (args.store_dir, args.memory) {
        (Some(dir), _) => Store::Kept(dir),
        (None, true) => Store::Memory,
        (None, false) => Store::Temporary,
    };
    let settings = Settings { store, sync: args.sync_interval, ..Settings::new(args.members) };

    let started = tokio::select! {
        started = Box::pin(Cluster::start(settings, Env::system())) => started,
        // Dropping the unfinished start kills and reaps what it had started.
        status = interrupts.next() => {
            tracing::info!("broker_start_interrupted");
            return status.into();
        }
    };
    let cluster = match started {
        Ok(cluster) => cluster,
        Err(error) => return failed(&error),
    };
    let printed = writeln!(io::stdout(), "{}", cluster.access().exposed()).and_then(|()| io::stdout().flush());
    if let Err(error) = printed {
        tracing::error!(%error, "broker_address_not_printed");
        return FAILED.into();
    }

    let outcome = tokio::select! {
        _ = interrupts.next() => ExitCode::SUCCESS,
        () = majority_lost(&cluster) => {
            tracing::error!(note = "too few members are left to serve", "broker_majority_lost");
            FAILED.into()
        }
    };
    tokio::select! {
        stopped = cluster.stop() => match stopped {
            Ok(()) => outcome,
            Err(error) => failed(&error),
        },
        // Dropping the unfinished stop kills and reaps what is left.
        status = interrupts.next() => status.into(),
    }
}

/// Waits until so many members have ended that the rest is no majority.
async fn majority_lost(cluster: &Cluster) {
    let mut exits = cluster.exit_feed();
    let members = cluster.members();
    let lost = |_: &Vec<_>| members.iter().filter(|member| member.is_running()).count() <= members.len() / 2;
    if exits.wait_for(lost).await.is_err() {
        // The cluster keeps the sender: there is always more to wait for.
        std::future::pending().await
    }
}

/// Says what went wrong on standard error, whatever the log's level; the answer is the exit status.
fn failed(error: &BrokerError) -> ExitCode {
    eprintln!("crewlet broker: {error}");
    match error {
        BrokerError::Settings(_) => USAGE,
        BrokerError::Binary(_)
        | BrokerError::InUse { .. }
        | BrokerError::OtherSize { .. }
        | BrokerError::NotReady { .. } => UNAVAILABLE,
        _ => FAILED,
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_interval_has_a_unit_and_is_positive() {
        assert_eq!(sync_interval("always"), Ok(SyncInterval::Always));
        assert_eq!(sync_interval("10s"), Ok(SyncInterval::Every(Duration::from_secs(10))));
        assert_eq!(sync_interval("2m"), Ok(SyncInterval::Every(Duration::from_secs(120))));
        assert_eq!(sync_interval("500ms"), Ok(SyncInterval::Every(Duration::from_millis(500))));
        assert_eq!(sync_interval("1m30s"), Ok(SyncInterval::Every(Duration::from_secs(90))));
        for refused in ["30", "0s", "-5s", "1ns", "", "often", "1e3s"] {
            let error = sync_interval(refused).unwrap_err();
            assert!(error.ends_with("`10s` for instance"), "{refused}: {error}");
        }
    }
}
