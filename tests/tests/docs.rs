//! The documentation against the tree: what it links to, names or promises is there.
//!
//! What is checked stands between backticks: a path (`engine/src/env.rs`), a flag (`--seats`), a snake_case name such as a log
//! event or a field of the report, an environment variable of ours. Flags are checked in blocks of commands too.

mod house;
mod slots;

use std::collections::BTreeSet;

use house::tree::{self, File};

/// Flags of other programs that the documentation names.
const FOREIGN_FLAGS: [&str; 9] =
    ["--help", "--release", "--workspace", "--features", "--locked", "--version", "--bench", "--test", "--nocapture"];

/// Names of NATS's own that no source here mentions.
const FOREIGN_NAMES: [&str; 1] = ["subject_delete_marker_ttl"];

/// What no file may say. The names of private notes are put together here, so that this file does not say them either.
fn forbidden() -> Vec<String> {
    let words = [
        concat!("iss", "ue #"),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("/wo", "rk/"),
        concat!("/tmp", "/w/"),
    ];
    let notes =
        ["coordination·.txt", "control-plane·.txt", "records·.md", "seats·.md", "surface·.md", "nats·.md", "cases·.md"];
    let whole = |name: &str| name.replace('·', "");
    words.into_iter().map(str::to_owned).chain(notes.into_iter().map(whole)).collect()
}

fn pages() -> Vec<File> {
    tree::files(&[".md"])
}

/// A line with its number.
type Line<'a> = (usize, &'a str);

/// The lines of a page outside its blocks of code, and those inside.
fn lines(page: &File) -> (Vec<Line<'_>>, Vec<Line<'_>>) {
    let mut inside = false;
    let (mut prose, mut blocks) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(page.text.lines()) {
        if line.starts_with("```") {
            inside = !inside;
        } else if inside {
            blocks.push((number, line));
        } else {
            prose.push((number, line));
        }
    }
    assert!(!inside, "{}: a block of code that does not end", page.path);
    (prose, blocks)
}

/// What stands between backticks, with its line.
fn spans(page: &File) -> Vec<Line<'_>> {
    let (prose, _) = lines(page);
    let mut found = Vec::new();
    for (number, line) in prose {
        let parts: Vec<&str> = line.split('`').collect();
        assert!(parts.len() % 2 == 1, "{}:{number}: a backtick without its partner", page.path);
        found.extend(parts.into_iter().skip(1).step_by(2).map(|span| (number, span)));
    }
    found
}

/// The links of a line: what stands in `](…)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn is_snake(name: &str) -> bool {
    name.contains('_')
        && name
            .split('_')
            .all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()))
}

/// Every source as one text.
fn sources() -> String {
    let all = tree::files(&[".rs", "report.schema.json"]);
    all.into_iter().filter(|file| !file.path.starts_with("tests/tests/")).map(|file| file.text).collect()
}

/// The long flags that the sources of a command line declare.
fn declared_flags() -> BTreeSet<String> {
    let mut flags = BTreeSet::new();
    for file in tree::files(&[".rs"]) {
        let mut long = false;
        for line in file.text.lines().map(str::trim) {
            if line.starts_with("#[arg(") {
                long = line.contains("long");
            } else if long && let Some((field, _)) = line.split_once(':') {
                flags.insert(format!("--{}", field.trim_start_matches("pub ").replace('_', "-")));
                long = false;
            }
        }
    }
    flags
}

#[test]
fn every_link_leads_somewhere() {
    for page in pages() {
        let dir = std::path::Path::new(&page.path).parent().expect("a file lies somewhere");
        for (number, line) in lines(&page).0 {
            for link in links(line).filter(|link| !link.starts_with("https://")) {
                let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
                let target =
                    if path.is_empty() { page.path.clone() } else { dir.join(path).to_string_lossy().into_owned() };
                assert!(tree::top().join(&target).is_file(), "{}:{number}: {link} is not there", page.path);
                let text = tree::read(&target);
                let there =
                    |line: &str| line.starts_with('#') && anchor(line.trim_start_matches('#').trim()) == fragment;
                assert!(
                    fragment.is_empty() || text.lines().any(there),
                    "{}:{number}: {link} has no such heading",
                    page.path
                );
            }
        }
    }
}

#[test]
fn every_path_named_is_there() {
    let known = [".rs", ".md", ".toml", ".json", ".html"];
    let mut checked = 0;
    for page in pages() {
        for (number, span) in spans(&page) {
            let is_path = span.contains('/') && !span.contains([' ', '<', '*', '{']);
            if is_path && (known.iter().any(|ending| span.ends_with(ending)) || span.starts_with(".ci/")) {
                assert!(tree::top().join(span).exists(), "{}:{number}: {span} is not there", page.path);
                checked += 1;
            }
        }
    }
    assert!(checked > 5, "only {checked} paths were found: is the convention still the documentation's?");
}

#[test]
fn every_flag_named_is_declared() {
    let declared = declared_flags();
    assert!(declared.contains("--seats") && declared.contains("--store-dir"), "{declared:?}");
    let features = tree::read("engine/Cargo.toml") + &tree::read("loadgen/Cargo.toml");
    for page in pages() {
        let spans = spans(&page);
        let (_, blocks) = lines(&page);
        let commands = blocks.into_iter().filter(|(_, line)| line.trim_start().starts_with("cargo "));
        for (number, text) in spans.into_iter().chain(commands) {
            let words: Vec<&str> = text.split_whitespace().collect();
            for (at, word) in words.iter().enumerate().filter(|(_, word)| word.len() > 2 && word.starts_with("--")) {
                let known = FOREIGN_FLAGS.contains(word) || declared.contains(*word);
                assert!(known, "{}:{number}: no command line declares {word}", page.path);
                if *word == "--features" {
                    let feature = words.get(at + 1).expect("a feature is named");
                    assert!(
                        features.contains(&format!("\n{feature} = ")),
                        "{}:{number}: no feature {feature}",
                        page.path
                    );
                }
            }
        }
    }
}

#[test]
fn every_name_is_in_the_sources() {
    let sources = sources();
    let words: BTreeSet<&str> = sources.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let mut checked = 0;
    for page in pages() {
        for (number, span) in spans(&page) {
            let name = span.split([':', '=', ' ']).next().unwrap_or_default();
            let ours = is_snake(name) || name.starts_with("CREWLET_");
            if ours && !FOREIGN_NAMES.contains(&name) {
                assert!(words.contains(name), "{}:{number}: no source says {name}", page.path);
                checked += 1;
            }
        }
    }
    assert!(checked > 30, "only {checked} names were found");
}

/// An operator who meets an event in the log finds it on the page.
#[test]
fn every_event_is_explained() {
    let page = tree::read("docs/operations.md");
    let mut events = BTreeSet::new();
    for file in tree::files(&[".rs"]).into_iter().filter(|file| file.path.contains("/src/")) {
        for level in ["error", "warn", "info", "debug"] {
            for call in file.text.split(&format!("tracing::{level}!(")).skip(1) {
                let call = call.split(");").next().unwrap_or_default();
                let texts = call.split('"').skip(1).step_by(2);
                let event =
                    texts.map(|text| text.split(':').next().unwrap_or_default()).filter(|text| is_snake(text)).last();
                events.extend(event.filter(|event| *event != "nats_server").map(str::to_owned));
            }
        }
    }
    assert!(events.len() > 30, "{events:?}");
    for event in events {
        assert!(page.contains(&format!("`{event}`")), "docs/operations.md does not explain {event}");
    }
}

#[test]
fn the_index_of_decisions_is_complete() {
    let index = tree::read("docs/decisions/README.md");
    let all = tree::files(&[".md"]);
    let records = all.iter().filter_map(|file| Some((file.path.strip_prefix("docs/decisions/0")?, &file.text)));
    let mut expected = 0;
    for (name, text) in records {
        expected += 1;
        let title = text.lines().next().unwrap_or_default();
        let number = format!("# {expected}. ");
        let title =
            title.strip_prefix(&number).unwrap_or_else(|| panic!("0{name} begins with {title:?}, not {number:?}"));
        assert!(name.starts_with(&format!("{expected:03}-")), "0{name}: a number is missing before it");
        assert!(index.contains(&format!("| [{expected}](0{name}) | {title} |")), "0{name} is not in the index");
        for part in ["**Context.**", "**Decision.**", "**Consequences.**"] {
            assert!(text.contains(part), "0{name} has no {part}");
        }
    }
    assert!(expected >= 12);
}

#[test]
fn the_check_runs_what_the_readme_says() {
    let (readme, check) = (tree::read("README.md"), tree::read(".ci/run"));
    for command in ["cargo test --workspace", "cargo run --release -p loadgen -- fleet"] {
        assert!(readme.lines().any(|line| line == command), "README.md does not say {command}");
        assert!(check.contains(&format!("\nrun {command}")), ".ci/run does not run {command}");
    }
}

#[test]
fn nothing_private_is_named() {
    let forbidden = forbidden();
    for file in tree::files(&[".md", ".rs", ".toml", ".html", ".json", ".ci/run"]) {
        for (number, line) in (1..).zip(file.text.lines()) {
            for word in &forbidden {
                assert!(!line.contains(word), "{}:{number} says {word:?}", file.path);
            }
        }
    }
}
