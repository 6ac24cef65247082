//! The family of `docs/adding-a-family.md`: what that page shows is written from these files, which are built and run.

pub(super) mod cases;
mod greeting;
mod greetings;
mod row;

pub(super) use row::GREETINGS;
