//! The pages about the slots: the one is written from the table, and what the other shows is built, run and quoted.

#[expect(unreachable_pub, reason = "it is written as the packages are that it would stand in")]
mod example;
mod pages;

use std::path::Path;

use coordproto::slot::{SLOTS, Slot};
use engine::env::Env;
use engine::store::memory::Memory;
use tests::Fixture;
use tokio::runtime::Builder;

use crate::house::tree;

/// The one command that writes both pages anew.
const REWRITE: &str = "UPDATE=1 cargo test -p tests --test docs slots::";

/// Files under the folder of the families that hold none.
const NO_FAMILY: [&str; 4] = ["mod", "named", "rows", "shared"];

/// A family of records: its file in the engine, and what that stands on.
struct Family {
    /// The file, from the top.
    path: String,
    /// The file's name without its ending.
    module: String,
    text: String,
}

impl Family {
    /// Every family, the leases among them.
    fn all() -> Vec<Family> {
        let mut families = Vec::new();
        for file in tree::files(&[".rs"]) {
            let module = match file.path.strip_prefix("engine/src/slots/").and_then(|rest| rest.strip_suffix(".rs")) {
                Some(module) if !module.contains('/') && !NO_FAMILY.contains(&module) => module.to_owned(),
                None if file.path == "engine/src/lease/mod.rs" => "lease".to_owned(),
                _ => continue,
            };
            families.push(Family { path: file.path, module, text: file.text });
        }
        families
    }

    /// The names that it imports from below `path`.
    fn imports(&self, path: &str) -> Vec<String> {
        let import = format!("use {path}::");
        let whole = self.text.split(&import).skip(1).filter_map(|rest| rest.split(';').next());
        let words = whole.flat_map(|names| names.split(|c: char| !c.is_alphanumeric() && c != '_'));
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    fn stands_on(&self, slot: &Slot) -> bool {
        self.imports("coordproto::slot").contains(&slot.name.to_uppercase())
    }

    /// The files of its records.
    fn records(&self) -> Vec<String> {
        let there =
            |name: &String| Path::new(&format!("{}/coordproto/src/record/{name}.rs", tree::top().display())).is_file();
        // What several families share is no family's record.
        let mut names: Vec<String> =
            self.imports("coordproto::record").into_iter().filter(|name| name != "keyed").collect();
        names.retain(there);
        names.dedup();
        names.into_iter().map(|name| format!("coordproto/src/record/{name}.rs")).collect()
    }

    /// The files of its cases.
    fn cases(&self) -> Vec<String> {
        let mut uses = vec![format!("engine::slots::{}::", self.module)];
        if self.module == "lease" {
            uses = vec!["engine::lease::".to_owned()];
        }
        let all = tree::files(&[".rs"]).into_iter().filter(|file| file.path.starts_with("tests/src/cases/"));
        let own = all.filter(|file| uses.iter().any(|name| file.text.contains(name.as_str())));
        own.map(|file| file.path).collect()
    }
}

/// Compares a page with what it has to say, or writes it.
fn fresh(path: &str, want: &str) {
    let whole = tree::top().join(path);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&whole, want).unwrap_or_else(|error| panic!("{path}: {error}"));
        return;
    }
    let have = std::fs::read_to_string(&whole).unwrap_or_default();
    let line = (1..).zip(have.lines().zip(want.lines())).find(|(_, (have, want))| have != want);
    assert!(have == want, "{path} is stale, from {line:?} on. To write it anew: {REWRITE}");
}

#[test]
fn the_page_of_the_slots_is_written_from_the_table() {
    fresh("docs/slots.md", &pages::slots(&Family::all()));
}

#[test]
fn the_page_about_a_new_family_shows_what_is_built() {
    fresh("docs/adding-a-family.md", &pages::adding(&tree::read("docs/adding-a-family.md")));
}

/// The places that the page names are those of every family there is.
#[test]
fn every_family_has_its_files_and_its_lines() {
    let families = Family::all();
    for slot in SLOTS {
        assert!(families.iter().any(|family| family.stands_on(slot)), "no family stands on {}", slot.name);
    }
    let (records, slots) = (tree::read("coordproto/src/record/mod.rs"), tree::read("engine/src/slots/mod.rs"));
    let (cases, contract) = (tree::read("tests/src/cases/mod.rs"), tree::read("tests/tests/contract.rs"));
    let stem =
        |path: &str| path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs")).unwrap_or_default().to_owned();
    for family in &families {
        let name = &family.path;
        assert!(SLOTS.iter().any(|slot| family.stands_on(slot)), "{name} stands on no slot of the table");
        assert!(!family.records().is_empty(), "{name} has no record");
        for record in family.records() {
            assert!(records.contains(&format!("pub mod {};", stem(&record))), "{record}");
        }
        assert!(family.module == "lease" || slots.contains(&format!("pub mod {};", family.module)), "{name}");
        assert!(!family.cases().is_empty(), "{name} has no contract");
        for case in family.cases() {
            assert!(cases.contains(&format!("pub mod {};", stem(&case))), "{case}");
            assert!(
                contract.contains(&format!("include_str!(\"../src/cases/{}.rs\")", stem(&case))),
                "{case} is not run"
            );
        }
    }
    assert_eq!(families.len(), 20, "a page that names every family's places has looked at every family");
}

/// The family that the page shows does what it says.
#[test]
fn the_family_of_the_page_keeps_its_contract() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let env = Env::seeded(1);
        let store = Memory::new(env.clone());
        let fixture = Fixture { env, store, prefix: "example".to_owned(), replicas: 1, leaps: true };
        example::cases::a_newcomer_is_greeted_once(fixture).await;
    });
}
