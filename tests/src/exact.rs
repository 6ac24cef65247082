//! The checked-in table of what operations cost exactly, and what differs from it.
//!
//! The table is text, a line for an operation, made to be read:
//!
//! ```text
//! renew a seat | 1 | 1 | 330 | 98 | 8
//! ```
//!
//! Requests and round trips are exact to the unit. Bytes and allocations may be a hundredth off, rounded down, so below a
//! hundred they are exact too: a large answer is as long as the instants in it have digits, and comes in as many pieces as the
//! system cuts it into.

/// What is counted of an operation, in the order of the table's columns.
pub const COLUMNS: [&str; 5] = ["requests", "rounds", "bytes out", "bytes in", "allocations"];

/// How many of the columns are exact to the unit.
const TO_THE_UNIT: usize = 2;

/// What one operation costs, in the order of [`COLUMNS`].
pub type Counts = [u64; COLUMNS.len()];

/// An operation, and what it costs.
pub type Row = (String, Counts);

/// Reads a table. Lines that begin with `#`, and empty ones, are for people.
///
/// # Errors
/// A line that is no row, or an operation that stands there twice, with its number.
pub fn parse(text: &str) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut cells = line.split('|').map(str::trim);
        let operation = cells.next().unwrap_or_default().to_owned();
        let counts: Vec<u64> = cells
            .map(|cell| cell.parse().map_err(|_| format!("line {number}: {cell:?} is no count")))
            .collect::<Result<_, _>>()?;
        let counts = Counts::try_from(counts)
            .map_err(|counts| format!("line {number}: {} counts, not {}", counts.len(), COLUMNS.len()))?;
        if rows.iter().any(|(known, _)| *known == operation) {
            return Err(format!("line {number}: {operation} stands there twice"));
        }
        rows.push((operation, counts));
    }
    Ok(rows)
}

/// Writes a table: what stands before the first row of `old`, and the rows as they were found.
pub fn render(old: &str, found: &[Row]) -> String {
    let head = old.lines().take_while(|line| line.is_empty() || line.starts_with('#'));
    let width = found.iter().map(|(operation, _)| operation.len()).max().unwrap_or_default();
    let rows = found.iter().map(|(operation, counts)| {
        let cells = counts.iter().zip(COLUMNS).map(|(count, column)| format!(" | {count:>0$}", column.len()));
        format!("{operation:width$}{}", cells.collect::<String>())
    });
    head.map(str::to_owned).chain(rows).map(|line| line + "\n").collect()
}

/// What differs between what was found and the table, a line for each, which names the operation.
pub fn differences(found: &[Row], table: &[Row]) -> Vec<String> {
    let of =
        |rows: &[Row], operation: &str| rows.iter().find(|(known, _)| known == operation).map(|(_, counts)| *counts);
    let mut differences = Vec::new();
    for (operation, counts) in found {
        let Some(wanted) = of(table, operation) else {
            differences.push(format!("{operation}: not in the table"));
            continue;
        };
        for (at, column) in COLUMNS.into_iter().enumerate() {
            let (count, want) = (counts[at], wanted[at]);
            let slack = if at < TO_THE_UNIT { 0 } else { want / 100 };
            if count.abs_diff(want) > slack {
                differences.push(format!("{operation}: {column}: {count}, and the table says {want}"));
            }
        }
    }
    let missing = table.iter().filter(|(operation, _)| of(found, operation).is_none());
    differences.extend(missing.map(|(operation, _)| format!("{operation}: in the table, and not counted")));
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(operation: &str, counts: Counts) -> Row {
        (operation.to_owned(), counts)
    }

    #[test]
    fn what_is_written_is_read_again() {
        let rows = [row("renew a seat", [1, 1, 330, 98, 8]), row("list", [3, 2, 500, 40_000, 700])];
        let text = render("# For people.\n\n# operation | ...\nold | 1 | 1 | 1 | 1 | 1\n", &rows);
        assert!(text.starts_with("# For people.\n\n# operation | ...\nrenew a seat |"), "{text}");
        assert_eq!(parse(&text), Ok(rows.to_vec()));
    }

    #[test]
    fn a_line_that_is_no_row_is_named() {
        for (text, why) in [
            ("a | 1 | 1 | 1 | 1", "line 1: 4 counts, not 5"),
            ("# head\na | 1 | 1 | 1 | 1 | -", "line 2: \"-\" is no count"),
            ("a | 1 | 1 | 1 | 1 | 1\na | 1 | 1 | 1 | 1 | 1", "line 2: a stands there twice"),
        ] {
            assert_eq!(parse(text), Err(why.to_owned()));
        }
    }

    #[test]
    fn a_request_more_or_less_is_a_difference_and_names_its_operation() {
        let table = [row("burst", [100, 1, 33_000, 9_800, 800]), row("get", [1, 1, 150, 400, 12])];
        assert_eq!(differences(&table, &table), Vec::<String>::new());
        let more = [row("burst", [101, 1, 33_000, 9_800, 800]), table[1].clone()];
        assert_eq!(differences(&more, &table), ["burst: requests: 101, and the table says 100"]);
        let later = [table[0].clone(), row("get", [1, 2, 150, 400, 12])];
        assert_eq!(differences(&later, &table), ["get: rounds: 2, and the table says 1"]);
        let fewer = [row("burst", [99, 1, 33_000, 9_800, 800]), table[1].clone()];
        assert_eq!(differences(&fewer, &table).len(), 1, "better is a difference too: the table is what holds");
    }

    #[test]
    fn bytes_and_allocations_have_a_hundredth() {
        let table = [row("get", [1, 1, 150, 400, 12])];
        assert_eq!(differences(&[row("get", [1, 1, 151, 396, 12])], &table), Vec::<String>::new());
        assert_eq!(differences(&[row("get", [1, 1, 152, 395, 13])], &table).len(), 3);
    }

    #[test]
    fn an_operation_on_one_side_alone_is_a_difference() {
        let (a, b) = (row("a", [1, 1, 1, 1, 1]), row("b", [1, 1, 1, 1, 1]));
        assert_eq!(differences(&[a], &[b]), ["a: not in the table", "b: in the table, and not counted"]);
    }
}
