//! The files of the project, as the tests about them read them.

use std::path::{Path, PathBuf};

/// What stands at the top beside the project itself: version control, what cargo builds, what runs leave.
const NOT_OURS: [&str; 3] = [".git", "target", "reports"];

/// A file: its path from the top, with `/`, and its text.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The project's top directory.
pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_owned()
}

/// What stands at the top, sorted.
pub(crate) fn entries() -> Vec<String> {
    let mut names: Vec<String> = names(&top()).into_iter().filter(|name| !NOT_OURS.contains(&name.as_str())).collect();
    names.sort();
    names
}

/// Every file whose name ends in one of `endings`, sorted by path.
pub(crate) fn files(endings: &[&str]) -> Vec<File> {
    let mut found = Vec::new();
    let mut left = entries();
    while let Some(path) = left.pop() {
        let whole = top().join(&path);
        if whole.is_dir() {
            left.extend(names(&whole).into_iter().map(|name| format!("{path}/{name}")));
        } else if endings.iter().any(|ending| path.ends_with(ending)) {
            let text = std::fs::read_to_string(&whole).unwrap_or_else(|error| panic!("{path}: {error}"));
            found.push(File { path, text });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The text of one file.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("names are UTF-8")).collect()
}
