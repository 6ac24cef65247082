//! `loadgen`: load against the coordination store, and whether its answers were right.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use loadgen::cli::Cli;
use loadgen::exit::Exit;
use loadgen::signals::Signals;
use loadgen::{commands, may_colour};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = log_to_stderr() {
        // Whoever closed stderr does not want to hear it.
        let _closed = writeln!(std::io::stderr(), "loadgen: RUST_LOG: {error}");
        return Exit::Usage.into();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "runtime_not_started");
            return Exit::Failed.into();
        }
    };
    let exit = runtime.block_on(async {
        let signals = match Signals::listen() {
            Ok(signals) => signals,
            Err(error) => {
                tracing::error!(%error, "signals_not_heard");
                return Exit::Failed;
            }
        };
        commands::run(cli.command, signals).await
    });
    // Whatever is still under way belongs to a run that is over.
    runtime.shutdown_background();
    exit.into()
}

/// Sends the log to stderr, as far as `RUST_LOG` says: by default what a person watching a run wants to know.
fn log_to_stderr() -> Result<(), ParseError> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(given) if !given.is_empty() => EnvFilter::builder().parse(given)?,
        _ => EnvFilter::new("warn,loadgen=info,engine=info"),
    };
    let terminal = std::io::stderr().is_terminal();
    let writer = move || {
        let mut stderr = std::io::stderr();
        if terminal {
            // A line of progress may stand there, and comes again.
            let _closed = stderr.write_all(b"\r\x1b[2K");
        }
        stderr
    };
    let colour = may_colour(&std::io::stderr());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colour);
    // A log that nobody reads any more is not worth a word, which would go to the same place.
    log.log_internal_errors(false).init();
    Ok(())
}
