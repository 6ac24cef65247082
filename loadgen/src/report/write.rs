//! Putting a report on disk so that a reader finds a whole one, whenever the writer dies.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Report;
use crate::hgrm;
use crate::recorder::{Outcome, Snapshot};

/// A file of a report was not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct WriteError {
    path: PathBuf,
    source: io::Error,
}

impl Report {
    /// Writes `DIR/report.json`, making `dir` if need be, and returns its path.
    ///
    /// The file appears whole or not at all, and replaces one that is there: a run writes partial reports on its way, each
    /// over the last, and a run into a used directory is the newer truth. Other files of the directory stay.
    ///
    /// # Errors
    /// When the file system refuses; what was there before is then still there.
    pub fn write(&self, dir: &Path) -> Result<PathBuf, WriteError> {
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|source| WriteError { path: dir.join("report.json"), source: source.into() })?;
        text.push(b'\n');
        whole(dir, "report.json", &text)
    }
}

/// Makes `dir` if need be and sees whether a file can be made in it: a run that could not be kept is better not begun.
///
/// # Errors
/// When the file system refuses.
pub fn ensure_writable(dir: &Path) -> Result<(), WriteError> {
    let path = dir.join(format!(".loadgen.{}", std::process::id()));
    let attempt = || {
        fs::create_dir_all(dir)?;
        File::create(&path)?;
        fs::remove_file(&path)
    };
    attempt().map_err(|source| WriteError { path: dir.to_owned(), source })
}

/// Writes the latency distributions of each operation's definite answers in the same way: `DIR/<operation>.hgrm` from the
/// intended start, `DIR/<operation>.service.hgrm` from the actual send, with a hyphen for the slash in an operation's name. See
/// [`hgrm`].
///
/// # Errors
/// As for [`Report::write`].
pub fn write_distributions(dir: &Path, snapshot: &[Snapshot]) -> Result<(), WriteError> {
    for op in snapshot {
        let latency = op.measured.latency(&[Outcome::Ok, Outcome::Refused]);
        // No two share a file: names have no hyphens.
        let name = op.name.replace('/', "-");
        whole(dir, &format!("{name}.hgrm"), hgrm::text(&latency.corrected).as_bytes())?;
        whole(dir, &format!("{name}.service.hgrm"), hgrm::text(&latency.service).as_bytes())?;
    }
    Ok(())
}

fn whole(dir: &Path, name: &str, contents: &[u8]) -> Result<PathBuf, WriteError> {
    let path = dir.join(name);
    // A name of its own per process: two runs into one directory overwrite each other's reports, never each other's halves.
    let unfinished = dir.join(format!(".{name}.{}", std::process::id()));
    let write = || {
        fs::create_dir_all(dir)?;
        let mut file = File::create(&unfinished)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)
    };
    write().map(|()| path.clone()).map_err(|source| {
        // It may not exist, and the first error is the one to tell.
        let _ = fs::remove_file(&unfinished);
        WriteError { path, source }
    })
}
