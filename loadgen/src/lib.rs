//! What is asked: open-loop load that checks correctness while it measures.
//!
//! Measuring: [`recorder`] keeps what became of each operation, from the instant at which it was meant to start, [`sampler`]
//! what the processes used meanwhile. Reporting: [`report`] is the file that stays, [`table`] what a person reads, [`hgrm`]
//! what a plotter does; [`compare`] holds one against another, and [`slo`] against what was asked. Around them: [`duration`]
//! on the command line, [`progress`] on the terminal, [`exit`] at the end.
//! What is run: a [`scenario`], [`fleet`], [`listing`], [`budgets`], [`mix`], [`floor`] or [`soak`], on the brokers of
//! [`target`], from the command line in [`cli`] to a report by [`commands`].

pub mod blocks;
pub mod budgets;
pub mod cli;
pub mod commands;
pub mod compare;
pub mod duration;
pub mod environment;
pub mod exit;
pub mod fleet;
pub mod floor;
pub mod hgrm;
pub mod histogram;
mod limits;
pub mod listing;
mod members;
pub mod mix;
#[cfg(feature = "peers")]
pub mod peers;
pub mod progress;
pub mod rate;
pub mod recorder;
pub mod report;
mod rounds;
pub mod sampler;
pub mod scenario;
pub mod series;
mod session;
pub mod signals;
pub mod slo;
pub mod soak;
pub mod stall;
mod stop;
pub mod table;
pub mod target;
mod timer;

pub use session::may_colour;
