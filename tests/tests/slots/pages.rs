//! What the two pages say.

use std::fmt::Write as _;

use coordproto::slot::{Age, OnUnknown, Remover, Retention, SLOTS, Slot, spoken};

use super::Family;
use super::example::GREETINGS;
use crate::house::tree;

const HEAD: &str = "# The slots

<!-- Written from the table in coordproto/src/slot.rs by a test. Not by hand. -->

Every bucket that a fleet shares, from the one table that the code works by, `coordproto/src/slot.rs`. A bucket is
`crewlet_<slot>` unless a prefix is configured, and the stream `KV_crewlet_<slot>`. To write this page anew after a change
of the table:

```
";

const AGES: &str = "```

A node opens all of them at boot, side by side, and starts only with all of them (`engine/src/slots/shared.rs`). One that
stands is adopted as it is: its age is in force, whatever this node is configured with, and the log tells of every
difference; with too few copies it is refused. How a new one comes in: [adding a family](adding-a-family.md).

## What they hold, and for how long

The age is the bucket's, fixed when the first node makes it. In brackets what it is with the shipped settings.

| slot | what it answers | age | why |
| --- | --- | --- | --- |
";

const REMOVAL: &str = "
## Who removes, and what is safe without an answer

A removal leaves a marker. An age takes the markers with everything else; where there is none and records are removed, the
sweep takes them. The last column is what a caller does when the answer is unknown: *closed*, what the answer would allow
does not happen; *open*, what it would prevent happens; *holds*, it stays as it was; *unknown*, whoever asks has no answer
either, and asks again. The first three are steps with names, `fails_closed`, `fails_open` and `holds`, in the family's
file.

| slot | removed by | markers | where there is no answer |
| --- | --- | --- | --- |
";

const FILES: &str = "
## Where they are in the code

| slot | record | family |
| --- | --- | --- |
";

fn age(slot: &Slot) -> String {
    match (&slot.age, slot.age.of(&Retention::default())) {
        (Age::LeaseTtl | Age::RateWindows(_) | Age::ReconcileIntervals(_), Some(age)) => {
            format!("{} ({})", slot.age, spoken(age))
        }
        _ => slot.age.to_string(),
    }
}

fn removed_by(slot: &Slot) -> String {
    match (slot.removed_by, &slot.age) {
        (Remover::Age, _) => "its age".to_owned(),
        (Remover::Nobody, _) => "nobody".to_owned(),
        (Remover::Operations(who), Age::None) => who.to_owned(),
        (Remover::Operations(who), _) => format!("{who}; else its age"),
    }
}

fn markers(slot: &Slot) -> &'static str {
    match (slot.is_swept(), &slot.removed_by) {
        (true, _) => "swept",
        (false, Remover::Operations(_)) => "go with the age",
        (false, _) => "none",
    }
}

fn on_unknown(slot: &Slot) -> String {
    match slot.on_unknown {
        OnUnknown::Closed(then) => format!("*closed*: {then}"),
        OnUnknown::Open(then) => format!("*open*: {then}"),
        OnUnknown::Holds(then) => format!("*holds*: {then}"),
        OnUnknown::Unknown(then) => format!("*unknown*: {then}"),
    }
}

fn code(paths: impl IntoIterator<Item = String>) -> String {
    let mut paths: Vec<String> = paths.into_iter().map(|path| format!("`{path}`")).collect();
    paths.sort();
    paths.dedup();
    paths.join(", ")
}

/// The page of the slots.
pub(super) fn slots(families: &[Family]) -> String {
    let mut page = format!("{HEAD}{}\n{AGES}", super::REWRITE);
    let mut row = |row: String| writeln!(page, "{row}").expect("a string takes everything");
    for slot in SLOTS {
        row(format!("| `{}` | {} | {} | {} |", slot.name, slot.about, age(slot), slot.because));
    }
    row(REMOVAL.trim_end().to_owned());
    for slot in SLOTS {
        row(format!("| `{}` | {} | {} | {} |", slot.name, removed_by(slot), markers(slot), on_unknown(slot)));
    }
    row(FILES.trim_end().to_owned());
    for slot in SLOTS {
        let own: Vec<&Family> = families.iter().filter(|family| family.stands_on(slot)).collect();
        let records = code(own.iter().flat_map(|family| family.records()));
        row(format!("| `{}` | {records} | {} |", slot.name, code(own.iter().map(|family| family.path.clone()))));
    }
    page
}

/// The page about a new family, every block of Rust in it replaced by what is built.
pub(super) fn adding(page: &str) -> String {
    let mut shown = [record(), row(), family(), case()].into_iter();
    let mut out = String::new();
    let mut inside = false;
    for line in page.lines() {
        if line == "```rust" {
            inside = true;
            let code = shown.next().expect("the page shows four pieces");
            write!(out, "```rust\n{code}").expect("a string takes everything");
        } else if line == "```" && inside {
            inside = false;
            out.push_str("```\n");
        } else if !inside {
            out.push_str(line);
            out.push('\n');
        }
    }
    assert!(shown.next().is_none(), "the page shows four pieces");
    out
}

/// A file of the example as it would stand in a package, of which the names are told in `moved`.
fn example(name: &str, moved: &[(&str, &str)]) -> String {
    let mut text = tree::read(&format!("tests/tests/slots/example/{name}.rs"));
    for (from, to) in moved {
        text = text.replace(from, to);
    }
    // The imports are in the order of the house: the standard library, other packages, this one.
    let (imports, rest): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("use "));
    let mut groups: [Vec<&str>; 3] = Default::default();
    for import in imports {
        let group =
            if import.starts_with("use std::") { 0 } else { 1 + usize::from(import.starts_with("use crate::")) };
        groups[group].push(import);
    }
    let blocks = groups.into_iter().filter(|group| !group.is_empty()).map(|mut group| {
        group.sort_unstable();
        group.join("\n")
    });
    let imports = blocks.collect::<Vec<String>>().join("\n\n");
    let (head, body) = (rest.iter().take_while(|line| line.starts_with("//!")), rest.iter());
    let body: Vec<&str> = body.copied().skip_while(|line| line.starts_with("//!") || line.is_empty()).collect();
    let head: Vec<&str> = head.copied().collect();
    format!("{}\n\n{imports}\n\n{}\n", head.join("\n"), body.join("\n"))
}

fn record() -> String {
    example("greeting", &[("use coordproto::", "use crate::")])
}

fn family() -> String {
    let moved = [
        ("use super::greeting::", "use coordproto::record::greeting::"),
        ("use super::GREETINGS", "use coordproto::slot::GREETINGS"),
        ("use engine::", "use crate::"),
    ];
    example("greetings", &moved)
}

fn case() -> String {
    example("cases", &[("use super::greetings::", "use engine::slots::greetings::"), ("use tests::", "use crate::")])
}

/// The row as the table has it. The constant of the example says the same in the same order.
fn row() -> String {
    let text = tree::read("tests/tests/slots/example/row.rs");
    let fields = text.split("Slot {\n").nth(1).and_then(|rest| rest.split("};").next()).expect("the constant");
    let mut lines = fields.lines();
    let about =
        lines.next().and_then(|line| line.trim().strip_prefix("about: ")).expect("it says what it is about first");
    let about = about.trim_end_matches(',');
    assert_eq!(about.trim_matches('"'), GREETINGS.about);
    let fields: String = lines.map(|line| format!("    {line}\n")).collect();
    format!("    GREETINGS: {about} {{\n{fields}    }}\n")
}
