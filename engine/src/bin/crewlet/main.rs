//! The command `crewlet`.
//!
//! Results go to standard output, the log to standard error (`RUST_LOG` says how much of it). Exit statuses: 0 done, 1 failed,
//! 2 wrong usage, 4 the store is not available, 128 + N ended by signal N before there was a result.

mod broker;

/// The command line, or the environment, makes no sense.
const USAGE: u8 = 2;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Crewlet: a crew of agents, coordinated over NATS JetStream.
#[derive(Parser)]
#[command(name = "crewlet", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a NATS broker, or a cluster of them, on loopback until SIGINT or SIGTERM.
    #[command(after_help = broker::AFTER_HELP)]
    Broker(broker::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = match std::env::var("RUST_LOG") {
        Ok(given) if !given.is_empty() => match EnvFilter::builder().parse(given) {
            Ok(filter) => filter,
            Err(error) => {
                eprintln!("crewlet: RUST_LOG: {error}");
                return USAGE.into();
            }
        },
        _ => EnvFilter::new("info,async_nats=warn"),
    };
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(std::io::stderr).init();
    match cli.command {
        Command::Broker(args) => broker::run(args).await,
    }
}
