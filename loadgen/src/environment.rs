//! Where a run took place: what another run must share before the two may be compared.
//!
//! The host's name and addresses are deliberately not in it: reports are passed around.

use std::fs;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// The environment block of a report. Null is what could not be found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// The processor's name for itself.
    pub cpu_model: Option<String>,
    /// Cores that this process may use.
    pub cores: Option<usize>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The commit checked out where the generator was run, which is what it was built from only if it was run there.
    pub git_commit: Option<String>,
    /// `release` or `debug`.
    pub profile: String,
    /// What was measured.
    #[serde(flatten)]
    pub store: Store,
}

/// The store a run asked. Known to whoever started or reached it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Store {
    /// As the server names its version.
    pub nats_server_version: Option<String>,
    /// Replicas of each stream.
    pub replicas: Option<usize>,
    /// `file` or `memory`.
    pub storage: Option<String>,
    /// As configured: a duration, or `always`.
    pub sync_interval: Option<String>,
}

impl Environment {
    /// Looks at this machine. Blocking: reads two files and asks git for a commit.
    pub fn of(store: Store) -> Environment {
        Environment {
            cpu_model: fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| cpu_model(&text)),
            cores: std::thread::available_parallelism().ok().map(usize::from),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
            git_commit: git_commit(),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            store,
        }
    }
}

/// The first processor's model in the text of `/proc/cpuinfo`.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == "model name")
        .map(|(_, model)| model.trim().to_owned())
}

fn git_commit() -> Option<String> {
    let output = Command::new("git").args(["rev-parse", "HEAD"]).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let commit = text.trim();
    // Outside a checkout git says so on stderr; in one without commits it repeats `HEAD`.
    (output.status.success() && commit.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| commit.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_the_name_and_not_the_number() {
        let text = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9R14 : dual\nmodel name\t: other\n";
        assert_eq!(cpu_model(text).as_deref(), Some("AMD EPYC 9R14 : dual"));
        assert_eq!(cpu_model("BogoMIPS\t: 100\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_is_described_without_its_name() {
        let environment = Environment::of(Store::default());
        assert!(environment.cores >= Some(1));
        assert!(environment.kernel.as_ref().is_some_and(|kernel| !kernel.is_empty() && !kernel.contains('\n')));
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert!(!serde_json::to_string(&environment).unwrap().contains(&format!("\"{}\"", host.trim())));
    }
}
