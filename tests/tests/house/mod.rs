//! Rules of the house that a compiler does not know.

pub(crate) mod tree;

/// The longest file.
const LINES_MAX: usize = 600;

/// Everything at the top.
const TOP: [&str; 16] = [
    ".ci",
    ".gitignore",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "benches",
    "clippy.toml",
    "coordproto",
    "dashboards",
    "deny.toml",
    "docs",
    "engine",
    "loadgen",
    "rustfmt.toml",
    "tests",
];

/// What turns an answer of three values into one of two.
const COLLAPSES: [&str; 4] = ["unwrap_or(false)", "unwrap_or(true)", ".is_ok()", ".ok()"];

/// Where one of them stands all the same: the file, the line, and why no answer is lost by it.
const ALLOWED: [(&str, &str, &str); 8] = [
    ("engine/src/lease/gate.rs", ".parse().ok()", "a number read from a key: a name that is none names no protocol"),
    ("engine/src/lease/mod.rs", "Resource::from_key(&key).ok()", "a key that names no resource is nobody's lease"),
    ("engine/src/store/nats.rs", "Key::parse(", "a key that does not decode is nobody's record"),
    ("coordproto/src/listing.rs", "Key::parse(", "the same"),
    ("engine/src/slots/cooldowns.rs", "CooldownRecord::decode(", "a row that cannot be read benches nobody, by rule"),
    ("engine/src/slots/secrets.rs", "secret::key(", "whether a name is one that a secret can have"),
    (
        "engine/src/slots/budgets.rs",
        "heard.await.ok()",
        "a task that ended unheard is unknown and in flight to its caller",
    ),
    ("engine/src/slots/budgets/landing.rs", "BudgetRecord::decode(", "a record that cannot be read proves nothing"),
];

/// A file that one cannot read in a sitting is two files.
#[test]
fn no_file_is_too_long() {
    for file in tree::files(&[".rs"]) {
        let lines = file.text.lines().count();
        assert!(lines <= LINES_MAX, "{}: {lines} lines, at most {LINES_MAX}", file.path);
    }
}

/// A new entry at the top is a decision.
#[test]
fn the_top_is_as_it_was_decided() {
    assert_eq!(tree::entries(), TOP);
}

/// The store's and the leases' answers have three values, and nothing there makes two of them.
#[test]
fn no_unknown_is_collapsed() {
    let judged = |path: &str| {
        path.starts_with("engine/src/lease/")
            || path.starts_with("engine/src/store/")
            || path.starts_with("engine/src/slots/")
            || path == "coordproto/src/lease.rs"
            || path == "coordproto/src/listing.rs"
    };
    let mut used = [false; ALLOWED.len()];
    let tested = |path: &str| path.ends_with("/tests.rs");
    for file in tree::files(&[".rs"]).into_iter().filter(|file| judged(&file.path) && !tested(&file.path)) {
        let code = file.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            if !COLLAPSES.iter().any(|collapse| line.contains(collapse)) || line.trim_start().starts_with("//") {
                continue;
            }
            let allowed = ALLOWED.iter().position(|(path, part, _)| file.path == *path && line.contains(part));
            match allowed {
                Some(entry) => used[entry] = true,
                None => panic!("{}:{}: an answer may be lost here: {}", file.path, number + 1, line.trim()),
            }
        }
    }
    for ((path, part, _), used) in ALLOWED.into_iter().zip(used) {
        assert!(used, "nothing in {path} needs the exception for {part:?} any more");
    }
}
