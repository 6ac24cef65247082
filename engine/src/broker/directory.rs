//! The directory that a cluster keeps its members' configuration and data in, and who may use it.
//!
//! nats-server accepts a second server on a store that is in use and says nothing, so the directory is locked. The lock is
//! inherited by the members: it is free only when the last process that could write here is gone, even if the one that
//! started them was killed.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::BrokerError;
use crate::env::Env;

/// How long a lock is waited for. Members whose parent was killed are killed with it, and hold the lock until they are gone.
const LOCK_WITHIN: Duration = Duration::from_secs(1);
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// What the names of temporary directories begin with.
const TEMPORARY: &str = "crewlet-broker-";

/// A locked directory.
pub(super) struct Directory {
    path: PathBuf,
    lock: Arc<File>,
    /// Removes the directory, when it is a temporary one.
    _temporary: Option<tempfile::TempDir>,
}

impl Directory {
    /// A fresh directory, removed on drop. Those that killed processes left behind are removed first.
    pub(super) async fn temporary(env: &Env) -> Result<Directory, BrokerError> {
        sweep(&std::env::temp_dir());
        let temporary = tempfile::Builder::new()
            .prefix(TEMPORARY)
            .tempdir()
            .map_err(failed("create a directory in", &std::env::temp_dir()))?;
        let path = temporary.path().to_owned();
        let lock = lock(&path, env).await?;
        Ok(Directory { path, lock, _temporary: Some(temporary) })
    }

    /// The caller's directory, created if need be and kept. It belongs to a cluster of one size for good: the number of
    /// members is written down at the first use, and another number is refused.
    pub(super) async fn kept(path: &Path, members: u8, env: &Env) -> Result<Directory, BrokerError> {
        let path = std::path::absolute(path).map_err(failed("find", path))?;
        private(&path)?;
        let lock = lock(&path, env).await?;
        let size = path.join("members");
        match fs::read_to_string(&size) {
            Ok(written) if written.trim() == members.to_string() => {}
            Ok(written) => {
                return Err(BrokerError::OtherSize { path, written: written.trim().to_owned(), asked: members });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Renamed into place whole: a half-written number would lock the owner out.
                let mut fresh = tempfile::NamedTempFile::new_in(&path).map_err(failed("write in", &path))?;
                writeln!(fresh, "{members}").map_err(failed("write", &size))?;
                fresh.persist(&size).map_err(|error| failed("write", &size)(error.error))?;
            }
            Err(error) => return Err(failed("read", &size)(error)),
        }
        Ok(Directory { path, lock, _temporary: None })
    }

    /// Where it is; absolute.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The lock, for members to inherit.
    pub(super) fn lock(&self) -> &Arc<File> {
        &self.lock
    }

    /// A directory inside, open to its owner alone.
    pub(super) fn member(&self, name: &str) -> Result<PathBuf, BrokerError> {
        let path = self.path.join(name);
        private(&path)?;
        Ok(path)
    }
}

fn private(path: &Path) -> Result<(), BrokerError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("create", path))
}

/// Removes the temporary directories in `parent` that nobody uses any more: their process was killed before it could. One is
/// given up when its lock is free and bears a process id; the id is written once the lock is held, so a directory that is
/// just being made is never taken for one. What cannot be looked at or removed belongs to somebody else, and stays.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let ours = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(TEMPORARY));
        if ours && is_given_up(&path.join("lock")) && fs::remove_dir_all(&path).is_ok() {
            tracing::info!(path = %path.display(), "broker_directory_swept");
        }
    }
}

fn is_given_up(lock: &Path) -> bool {
    let Ok(mut file) = File::options().read(true).write(true).open(lock) else { return false };
    let mut holder = String::new();
    file.try_lock().is_ok() && file.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty()
}

async fn lock(dir: &Path, env: &Env) -> Result<Arc<File>, BrokerError> {
    let path = dir.join("lock");
    let mut options = File::options();
    let mut file =
        options.read(true).write(true).create(true).truncate(false).open(&path).map_err(failed("open", &path))?;
    let until = env.now() + LOCK_WITHIN;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if env.now() < until => env.sleep(LOCK_RETRY).await,
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                file.read_to_string(&mut holder).map_err(failed("read", &path))?;
                return Err(BrokerError::InUse { path: dir.to_owned(), holder: holder.trim().to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", &path)(error)),
        }
    }
    // The holder's process id, for whoever finds the directory in use.
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(failed("write", &path))?;
    Ok(Arc::new(file))
}

/// Turns an I/O error into one that says what was attempted on what.
pub(super) fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BrokerError {
    let path = path.to_owned();
    move |source| BrokerError::Directory { attempt, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_what_nobody_uses_any_more_is_swept() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str, holder: Option<&str>| {
            let dir = parent.path().join(name);
            fs::create_dir(&dir).unwrap();
            if let Some(holder) = holder {
                fs::write(dir.join("lock"), holder).unwrap();
            }
            dir
        };
        let used = make("crewlet-broker-used", None);
        let held = lock(&used, &Env::seeded(1)).await.unwrap();
        let given_up = make("crewlet-broker-given-up", Some("4711\n"));
        let others = [
            make("crewlet-broker-being-made", Some("")),
            make("crewlet-broker-unlocked-yet", None),
            make("somebody-elses", Some("4711\n")),
        ];
        sweep(parent.path());
        assert!(used.exists() && others.iter().all(|dir| dir.exists()));
        assert!(!given_up.exists());
        drop(held);
        sweep(parent.path());
        assert!(!used.exists());
    }
}
