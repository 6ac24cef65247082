//! `loadgen`: load against the coordination store, and whether its answers were right.

use std::process::ExitCode;

use clap::Parser;
use loadgen::cli::{Cli, Scenario};
use loadgen::commands;
use loadgen::exit::Exit;
use loadgen::signals::Signals;
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("loadgen: cannot start: {error}");
            return Exit::Failed.into();
        }
    };
    let exit = runtime.block_on(async {
        let signals = match Signals::listen() {
            Ok(signals) => signals,
            Err(error) => {
                eprintln!("loadgen: cannot listen for signals: {error}");
                return Exit::Failed;
            }
        };
        match cli.scenario {
            Scenario::Fleet(args) => commands::fleet(args, signals).await,
        }
    });
    // Whatever is still under way belongs to a run that is over.
    runtime.shutdown_background();
    exit.into()
}
