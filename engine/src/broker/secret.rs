//! Passwords: where they come from, and that they are not printed by accident.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

/// Text that `Debug` does not show; it has no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// 128 bits from the system, in hex.
    ///
    /// This does not come from [`Env`](crate::env::Env): a run prints its seed so that it can be replayed, and a password must
    /// not follow from what a run prints.
    ///
    /// # Errors
    /// When the system's source of randomness cannot be read.
    pub(super) fn random() -> io::Result<Secret> {
        let mut bytes = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Secret(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Takes a text as a secret.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
