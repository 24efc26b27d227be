//! `cargo xtask rows`: checks `docs/requirements.md`. Every required row is in its part exactly
//! once, every named test exists, and a finished part has a test for each of its rows. All problems
//! are reported together, each with its line.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::cargo::workspace_root;

const DOCUMENT: &str = "docs/requirements.md";
const SOURCES: [&str; 2] = ["crates", "xtask"];

type Rows = &'static [(&'static str, RangeInclusive<u32>)];

/// The complete set of parts and rows. A new row is added here and in the document.
const PARTS: [(&str, Rows); 8] = [
    ("ground", &[("G", 1..=38)]),
    ("lanes", &[("0", 1..=20)]),
    ("executions", &[("1", 1..=7), ("1", 9..=35)]),
    ("native-engines", &[("1", 8..=8), ("N", 1..=10)]),
    ("teams", &[("2", 1..=20)]),
    ("hooks", &[("3", 1..=34), ("3", 41..=47)]),
    ("agents-over-mcp", &[("4", 1..=13), ("4", 17..=17), ("4", 22..=22)]),
    ("host", &[("4", 14..=16), ("4", 18..=21)]),
];

#[expect(clippy::print_stdout, reason = "the summary is what this command is run for")]
pub(crate) fn run() -> anyhow::Result<()> {
    for line in check_repository()? {
        println!("{line}");
    }
    Ok(())
}

fn check_repository() -> anyhow::Result<Vec<String>> {
    let root = workspace_root();
    let document = root.join(DOCUMENT);
    let text = std::fs::read_to_string(&document)
        .with_context(|| format!("read {}", document.display()))?;
    let mut tests = BTreeSet::new();
    for folder in SOURCES {
        collect_tests(&root.join(folder), &mut tests)?;
    }
    check(&text, &tests).or_else(|problems| {
        let lines: Vec<_> = problems.iter().map(|p| format!("{DOCUMENT}:{p}")).collect();
        bail!("{} problems\n{}", lines.len(), lines.join("\n"))
    })
}

/// A problem on a line of the document.
fn problem(line: usize, text: impl std::fmt::Display) -> String {
    format!("{line}: {text}")
}

struct Part<'a> {
    line: usize,
    name: &'a str,
    finished: Option<bool>,
    rows: Vec<Row<'a>>,
}

struct Row<'a> {
    line: usize,
    number: &'a str,
    tests: Vec<&'a str>,
}

/// The summary, one line per part, or every problem of the document.
fn check(text: &str, tests: &BTreeSet<String>) -> Result<Vec<String>, Vec<String>> {
    let mut problems = Vec::new();
    let parts = parse(text, &mut problems);
    check_parts(&parts, text.lines().count().max(1), &mut problems);
    check_rows(&parts, &mut problems);
    check_tests(&parts, tests, &mut problems);
    if problems.is_empty() { Ok(parts.iter().map(summary).collect()) } else { Err(problems) }
}

fn summary(part: &Part<'_>) -> String {
    let status = if part.finished == Some(true) { "finished" } else { "open" };
    let tested = part.rows.iter().filter(|row| !row.tests.is_empty()).count();
    format!("{:<15}  {status:<8}  {} rows, {tested} with tests", part.name, part.rows.len())
}

fn parse<'a>(text: &'a str, problems: &mut Vec<String>) -> Vec<Part<'a>> {
    let mut parts: Vec<Part<'a>> = Vec::new();
    let mut status_expected = false;
    for (line, content) in text.lines().enumerate().map(|(i, l)| (i + 1, l.trim())) {
        if let Some(name) = content.strip_prefix("## ") {
            parts.push(Part { line, name: name.trim(), finished: None, rows: Vec::new() });
            status_expected = true;
            continue;
        }
        let Some(part) = parts.last_mut().filter(|_| !content.is_empty()) else { continue };
        if std::mem::take(&mut status_expected) {
            part.finished = match content {
                "Status: finished" => Some(true),
                "Status: open" => Some(false),
                _ => None,
            };
            if part.finished.is_none() {
                let text = format!("part {} starts without a status, finished or open", part.name);
                problems.push(problem(line, text));
            }
        }
        if content.starts_with('|') {
            match parse_row(line, content) {
                Ok(row) => part.rows.extend(row),
                Err(text) => problems.push(problem(line, text)),
            }
        }
    }
    parts
}

/// None for the header of a table and the line below it.
fn parse_row(line: usize, content: &str) -> Result<Option<Row<'_>>, String> {
    let inner = content.strip_prefix('|').and_then(|c| c.strip_suffix('|')).unwrap_or_default();
    let cells: Vec<_> = inner.split('|').map(str::trim).collect();
    let [number, requirement, names] = cells[..] else {
        return Err("a row has three cells between `|`: row, requirement, tests".to_owned());
    };
    if number == "row" || (!number.is_empty() && number.chars().all(|c| c == '-' || c == ':')) {
        return Ok(None);
    }
    if requirement.is_empty() {
        return Err(format!("row {number} says nothing"));
    }
    let tests = match names {
        "–" => Vec::new(),
        _ => names.split(',').map(|name| backticked(number, name)).collect::<Result<_, _>>()?,
    };
    Ok(Some(Row { line, number, tests }))
}

fn backticked<'a>(number: &str, name: &'a str) -> Result<&'a str, String> {
    let inner = name.trim().strip_prefix('`').and_then(|n| n.strip_suffix('`'));
    inner.filter(|n| !n.is_empty() && n.chars().all(is_word)).ok_or_else(|| {
        format!("row {number}: `–` or test names in backticks, parted by commas; not {name:?}")
    })
}

fn check_parts(parts: &[Part<'_>], last_line: usize, problems: &mut Vec<String>) {
    for (name, _) in PARTS {
        if !parts.iter().any(|part| part.name == name) {
            problems.push(problem(last_line, format!("part {name} is missing")));
        }
    }
    let mut seen = BTreeMap::new();
    for part in parts {
        if !PARTS.iter().any(|(name, _)| *name == part.name) {
            problems.push(problem(part.line, format!("{} is no part", part.name)));
        }
        if let Some(first) = seen.insert(part.name, part.line) {
            let text = format!("part {} stands twice, first on line {first}", part.name);
            problems.push(problem(part.line, text));
        }
    }
}

fn check_rows(parts: &[Part<'_>], problems: &mut Vec<String>) {
    let mut seen = BTreeMap::new();
    for part in parts {
        let expected = expected_rows(part.name);
        for row in &part.rows {
            if let Some(first) = seen.get(row.number) {
                let text = format!("row {} stands twice, first on line {first}", row.number);
                problems.push(problem(row.line, text));
                continue;
            }
            seen.insert(row.number, row.line);
            if !expected.iter().any(|number| number == row.number) {
                let text = format!("row {} does not belong to part {}", row.number, part.name);
                problems.push(problem(row.line, text));
            }
        }
        for number in expected {
            if !part.rows.iter().any(|row| row.number == number) {
                let text = format!("row {number} is missing from part {}", part.name);
                problems.push(problem(part.line, text));
            }
        }
    }
}

fn expected_rows(part: &str) -> Vec<String> {
    let ranges = PARTS.iter().filter(|(name, _)| *name == part).flat_map(|(_, rows)| *rows);
    ranges.flat_map(|(area, range)| range.clone().map(move |n| format!("{area}.{n}"))).collect()
}

fn check_tests(parts: &[Part<'_>], tests: &BTreeSet<String>, problems: &mut Vec<String>) {
    for part in parts {
        for row in &part.rows {
            for name in row.tests.iter().filter(|name| !tests.contains(**name)) {
                let text = format!("row {}: there is no test `{name}`", row.number);
                problems.push(problem(row.line, text));
            }
            if part.finished == Some(true) && row.tests.is_empty() {
                let text = format!("row {} of finished part {} has no test", row.number, part.name);
                problems.push(problem(row.line, text));
            }
        }
    }
}

fn collect_tests(folder: &Path, tests: &mut BTreeSet<String>) -> anyhow::Result<()> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect_tests(&path, tests)?;
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let source = std::fs::read_to_string(&path)
                .with_context(|| format!("read {}", path.display()))?;
            tests.extend(test_names(&source));
        }
    }
    Ok(())
}

/// Names of the functions that are tests, including those for every engine. Tests in `proptest!`
/// have the same attribute: without it they do not run, and so do not count.
pub(crate) fn test_names(source: &str) -> Vec<String> {
    let code = code_only(source);
    let marks = ["#[test]", "#[tokio::test]", "#[tokio::test("];
    let starts = marks.iter().flat_map(|mark| code.match_indices(mark)).map(|(at, _)| at);
    let marked = starts.filter_map(|at| function_name(&code[at..]));
    marked.chain(scenarios(&code)).map(str::to_owned).collect()
}

/// What `each_engine! { first; second, only …; }` lists.
fn scenarios(code: &str) -> impl Iterator<Item = &str> {
    let lists = code.split("each_engine!").skip(1);
    let lists = lists.filter_map(|rest| Some(rest.split_once('{')?.1.split_once('}')?.0));
    let entries = lists.flat_map(|list| list.split(';'));
    let names = entries.filter_map(|entry| entry.split(|c| !is_word(c)).find(|w| !w.is_empty()));
    // `only native: …;` may stand before all of them.
    names.filter(|name| *name != "only")
}

/// The name of the function below the attributes that `code` starts with.
fn function_name(mut code: &str) -> Option<&str> {
    while code.starts_with("#[") {
        let mut depth = 0;
        let end = code.find(|c| {
            depth += i32::from(c == '[') - i32::from(c == ']');
            c == ']' && depth == 0
        })?;
        code = code[end + 1..].trim_start();
    }
    // `$` counts as part of a word, so that `fn $name` in a macro gives no test called `name`.
    let mut words = code.split(|c| !is_word(c) && c != '$').filter(|word| !word.is_empty());
    let keyword = words.find(|word| !matches!(*word, "pub" | "crate" | "async"))?;
    if keyword == "fn" { words.next() } else { None }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The source without comments and literals, so that a test written in one does not count.
fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let skipped = comment_or_literal(rest);
        code.push(if skipped == 0 { c } else { ' ' });
        rest = &rest[if skipped == 0 { c.len_utf8() } else { skipped }..];
    }
    code
}

/// The length of the comment or literal at the start of `rest`, or 0.
fn comment_or_literal(rest: &str) -> usize {
    let past = |from: usize, mark: &str| {
        rest[from..].find(mark).map_or(rest.len(), |at| from + at + mark.len())
    };
    let hashes = rest.chars().skip(1).take_while(|c| *c == '#').count();
    let mut chars = rest.chars();
    match (chars.next(), chars.next()) {
        (Some('/'), Some('/')) => past(2, "\n"),
        (Some('/'), Some('*')) => past(2, "*/"),
        (Some('r'), _) if rest[1 + hashes..].starts_with('"') => {
            past(2 + hashes, &format!("\"{}", "#".repeat(hashes)))
        }
        (Some('"'), _) => quoted(rest, '"'),
        (Some('\''), Some('\\')) => quoted(rest, '\''),
        // Any other quote starts a lifetime.
        (Some('\''), Some(c)) if chars.next() == Some('\'') => c.len_utf8() + 2,
        _ => 0,
    }
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    let end = rest[1..].find(|c| {
        let ends = c == quote && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or(rest.len(), |at| at + 2)
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
