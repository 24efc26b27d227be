//! Rules about the code itself: which crate may depend on which, how large files may grow, that both
//! databases have the same migrations, that every failpoint is killed at, that one public type
//! name has one meaning, and that the pages about the code name what exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Asked of the cargo that runs us: a build folder shared by two clones may hand one of them the
/// tests built in the other.
fn workspace() -> PathBuf {
    let built_in = || env!("CARGO_MANIFEST_DIR").into();
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(built_in);
    Path::new(&manifest).join("../..").canonicalize().unwrap()
}

/// What each crate may use of the others, outside of tests.
const EDGES: &[(&str, &[&str])] = &[
    ("shikiri-model", &[]),
    ("shikiri-sqlite", &["shikiri-model"]),
    ("shikiri-hook", &["shikiri-files", "shikiri-model", "shikiri-sqlite"]),
    ("shikiri-store", &["shikiri-model", "shikiri-sqlite"]),
    ("shikiri-client", &["shikiri-model"]),
    ("shikiri-files", &[]),
    ("shikiri-openapi", &[]),
    ("shikiri-sandbox", &["shikiri-model"]),
    ("shikiri-runtime", &["shikiri-files", "shikiri-model", "shikiri-store"]),
    ("shikiri-tenancy", &["shikiri-model", "shikiri-store", "shikiri-runtime"]),
    (
        "shikiri-executions",
        &[
            "shikiri-client",
            "shikiri-files",
            "shikiri-model",
            "shikiri-openapi",
            "shikiri-store",
            "shikiri-runtime",
            "shikiri-tenancy",
        ],
    ),
    (
        "shikiri-teams",
        &[
            "shikiri-model",
            "shikiri-store",
            "shikiri-runtime",
            "shikiri-tenancy",
            "shikiri-executions",
        ],
    ),
    ("shikiri-lanes", &["shikiri-model", "shikiri-store", "shikiri-runtime"]),
    (
        "shikiri-host",
        &[
            "shikiri-client",
            "shikiri-model",
            "shikiri-store",
            "shikiri-runtime",
            "shikiri-tenancy",
            "shikiri-executions",
        ],
    ),
    ("shikiri-agents", &["shikiri-model", "shikiri-runtime"]),
    (
        "shikiri-subagents",
        &["shikiri-model", "shikiri-store", "shikiri-runtime", "shikiri-tenancy"],
    ),
    (
        "shikiri-app",
        &[
            "shikiri-model",
            "shikiri-store",
            "shikiri-runtime",
            "shikiri-tenancy",
            "shikiri-executions",
            "shikiri-teams",
            "shikiri-lanes",
            "shikiri-subagents",
        ],
    ),
    (
        "shikiri-web",
        &[
            "shikiri-model",
            "shikiri-runtime",
            "shikiri-tenancy",
            "shikiri-executions",
            "shikiri-teams",
            "shikiri-lanes",
            "shikiri-subagents",
            "shikiri-app",
        ],
    ),
    (
        "shikiri-mcp",
        &[
            "shikiri-model",
            "shikiri-runtime",
            "shikiri-tenancy",
            "shikiri-executions",
            "shikiri-teams",
            "shikiri-app",
        ],
    ),
    (
        "shikiri-engines",
        &[
            "shikiri-model",
            "shikiri-client",
            "shikiri-files",
            "shikiri-executions",
            "shikiri-host",
            "shikiri-sandbox",
        ],
    ),
    ("shikiri-browser", &["shikiri-model", "shikiri-lanes"]),
    (
        "shikiri",
        &[
            "shikiri-model",
            "shikiri-sqlite",
            "shikiri-store",
            "shikiri-client",
            "shikiri-runtime",
            "shikiri-tenancy",
            "shikiri-executions",
            "shikiri-teams",
            "shikiri-lanes",
            "shikiri-host",
            "shikiri-agents",
            "shikiri-subagents",
            "shikiri-app",
            "shikiri-web",
            "shikiri-mcp",
            "shikiri-engines",
            "shikiri-sandbox",
            "shikiri-browser",
            "shikiri-hook",
            "shikiri-openapi",
        ],
    ),
];

/// Crates that only serve development: no product crate may use them outside of tests.
const DEVELOPMENT: &[&str] = &["shikiri-testkit", "shikiri-testpg", "shikiri-bench", "xtask"];

/// Libraries that would break a crate's promise.
const BANNED: &[(&str, &[&str])] = &[
    ("shikiri-model", &["tokio", "async-trait", "rusqlite", "sqlx", "axum", "tracing"]),
    ("shikiri-sqlite", &["tokio", "async-trait", "sqlx", "axum"]),
    ("shikiri-hook", &["tokio", "async-trait", "sqlx", "axum"]),
    ("shikiri-client", &["rusqlite", "sqlx", "axum"]),
    ("shikiri-files", &["tokio", "async-trait"]),
    ("shikiri-sandbox", &["tokio", "async-trait"]),
    ("shikiri-openapi", &["tokio", "async-trait", "reqwest", "hyper"]),
    ("shikiri-runtime", &["rusqlite", "sqlx", "axum"]),
    ("shikiri-tenancy", &["rusqlite", "sqlx", "axum"]),
    ("shikiri-executions", &["rusqlite", "sqlx", "axum"]),
    ("shikiri-teams", &["rusqlite", "sqlx", "axum"]),
    ("shikiri-lanes", &["rusqlite", "sqlx", "axum"]),
    ("shikiri-host", &["rusqlite", "sqlx", "axum"]),
    ("shikiri-agents", &["rusqlite", "sqlx", "axum"]),
    ("shikiri-subagents", &["rusqlite", "sqlx", "axum"]),
    ("shikiri-app", &["rusqlite", "sqlx", "axum"]),
    ("shikiri-web", &["rusqlite", "sqlx"]),
    ("shikiri-mcp", &["rusqlite", "sqlx"]),
    ("shikiri-engines", &["rusqlite", "sqlx", "axum"]),
    ("shikiri-browser", &["rusqlite", "sqlx", "axum"]),
];

/// Names under `[dependencies]` of a manifest.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(manifest).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let section = table.get("dependencies").and_then(|value| value.as_table());
    section.map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

#[test]
fn crates_depend_downwards_only() {
    let crates: BTreeMap<String, BTreeSet<String>> = std::fs::read_dir(workspace().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, dependencies(&path.join("Cargo.toml")))
        })
        .collect();
    for (name, dependencies) in &crates {
        if DEVELOPMENT.contains(&name.as_str()) {
            continue;
        }
        let Some((_, allowed)) = EDGES.iter().find(|(known, _)| known == name) else {
            panic!("{name} is new: say in EDGES what it may depend on")
        };
        let ours = dependencies.iter().filter(|dep| dep.starts_with("shikiri"));
        for dependency in ours {
            assert!(allowed.contains(&dependency.as_str()), "{name} must not use {dependency}");
        }
    }
    for (name, banned) in BANNED {
        for library in *banned {
            assert!(!crates[*name].contains(*library), "{name} must not use {library}");
        }
    }
}

/// Row 4.20: the calling side, the called side and the event store do not know one another.
#[test]
fn server_client_and_event_store_are_separate_parts() {
    let parts = ["shikiri-mcp", "shikiri-client", "shikiri-store"];
    for part in parts {
        let manifest = workspace().join("crates").join(part).join("Cargo.toml");
        let uses = dependencies(&manifest);
        let others = parts.iter().filter(|other| **other != part);
        let shared: Vec<_> = others.filter(|other| uses.contains(**other)).collect();
        assert!(shared.is_empty(), "{part} uses {shared:?}");
    }
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

/// Aim at 300 lines; nothing may pass 500.
#[test]
fn no_file_outgrows_its_budget() {
    let mut files = Vec::new();
    for folder in ["crates", "xtask"] {
        rust_files(&workspace().join(folder), &mut files);
    }
    assert!(files.len() > 50, "found only {} files", files.len());
    let long: Vec<_> = files
        .iter()
        .map(|path| (path, std::fs::read_to_string(path).unwrap().lines().count()))
        .filter(|(_, lines)| *lines > 500)
        .collect();
    assert!(long.is_empty(), "split by noun or command: {long:?}");
}

fn migrations(folder: &str) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(workspace().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn both_databases_have_the_same_migrations() {
    let sqlite = migrations("crates/shikiri-sqlite/migrations");
    assert_eq!(sqlite, migrations("crates/shikiri-store/migrations/postgres"));
    for (number, name) in (1..).zip(&sqlite) {
        assert!(name.starts_with(&format!("{number:04}_")), "{name} is out of order");
    }
}

/// The text in the quotes with which `rest` begins, after white space.
fn quoted(rest: &str) -> Option<&str> {
    rest.trim_start().strip_prefix('"')?.split('"').next()
}

/// `journal_kill`, `execution_kill` and the lanes' `chaos` kill at every failpoint that they list, so
/// they have to list them all.
#[test]
fn every_failpoint_is_killed_at() {
    let mut files = Vec::new();
    rust_files(&workspace().join("crates"), &mut files);
    files.retain(|path| path.components().any(|part| part.as_os_str() == "src"));
    let mut hit = BTreeSet::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        for call in text.split("failpoint::hit(").skip(1) {
            let Some(name) = quoted(call) else { panic!("{path:?}: a failpoint without a name") };
            hit.insert(name.to_owned());
        }
    }
    assert!(!hit.is_empty(), "there are no failpoints");

    let mut listed = Vec::new();
    for (killer, name) in [
        ("chaos/journal_kill.rs", "const POINTS: "),
        ("chaos/journal_kill.rs", "const SWEEP_POINTS: "),
        ("chaos/execution_kill.rs", "const EXECUTION_POINTS: "),
        ("host/chaos/points.rs", "const HOST_POINTS: "),
        ("lanes/chaos.rs", "const LANE_POINTS: "),
    ] {
        let killer = workspace().join("crates/shikiri/tests/it").join(killer);
        let text = std::fs::read_to_string(killer).unwrap();
        let (_, list) = text.split_once(name).expect("the list");
        let (_, list) = list.split_once("= [").expect("the list");
        let (list, _) = list.split_once("];").expect("the end of the list");
        listed.extend(list.split(',').filter_map(quoted).map(str::to_owned));
    }
    assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), hit);
    assert_eq!(listed.len(), hit.len(), "a point is listed twice");
}

/// The name that a line defines as a public type.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    // `pub(super)` serves one module alone and is left out.
    let definition = rest.strip_prefix("(crate) ").or_else(|| rest.strip_prefix(' '))?;
    let (keyword, rest) = definition.split_once(' ')?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    // A macro names its types by a variable.
    let is_type =
        ["struct", "enum", "union", "trait", "type"].contains(&keyword) && !name.is_empty();
    is_type.then_some(name)
}

#[test]
fn one_public_type_name_has_one_meaning() {
    let mut files_of = BTreeMap::<String, Vec<PathBuf>>::new();
    for (name, _) in EDGES {
        let mut files = Vec::new();
        rust_files(&workspace().join("crates").join(name).join("src"), &mut files);
        // `other.rs` is for other systems and defines the same again, without Linux.
        let of_linux = |path: &&PathBuf| !path.ends_with("other.rs");
        for path in files.iter().filter(|path| !is_test(path)).filter(of_linux) {
            let text = std::fs::read_to_string(path).unwrap();
            for defined in text.lines().filter_map(public_type) {
                files_of.entry(defined.to_owned()).or_default().push(path.clone());
            }
        }
    }
    assert!(files_of.len() > 300, "found only {} public types", files_of.len());
    let twice: Vec<_> = files_of.iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(twice.is_empty(), "say in each name whose type it is: {twice:?}");
}

/// The tests of `thing.rs` are in `thing_tests.rs` or, about one side of it, in `thing_SIDE_tests.rs`.
#[test]
fn a_file_of_tests_is_named_after_what_it_tests() {
    let mut files = Vec::new();
    rust_files(&workspace().join("crates"), &mut files);
    let mut named = 0;
    for path in files {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let marks = text.lines().filter_map(|line| line.strip_prefix("#[path = \""));
        for other in marks.filter_map(|rest| rest.split('"').next()) {
            named += 1;
            let fits = other.starts_with(&format!("{stem}_")) || stem == "mod" || stem == "lib";
            assert!(fits, "{} has its tests in {other}", path.display());
        }
    }
    assert!(named > 30, "found only {named} files of tests");
}

/// Whether a source file holds only tests.
fn is_test(path: &Path) -> bool {
    let in_folder = path.components().any(|part| part.as_os_str() == "tests");
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    in_folder || stem == "tests" || stem.ends_with("_tests")
}

/// What the pages name and is not in this workspace: examples, and names of others.
const NAMED_ELSEWHERE: &[&str] = &[
    "count_messages.rs",
    "crates/shikiri-engines/src/echo/mod.rs",
    "thing_tests.rs",
    "tools/list",
    "Default",
    "Option",
];

fn paths_below(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        found.push(format!("/{}", path.display()));
        if path.is_dir() {
            paths_below(&path, found);
        }
    }
}

/// The texts between backticks, outside of code blocks.
fn quoted_words(page: &str) -> Vec<&str> {
    let prose = page.split("```").step_by(2);
    prose.flat_map(|text| text.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn pages_about_the_code_name_files_and_types_that_exist() {
    let top = workspace();
    let (mut paths, mut sources) = (Vec::new(), Vec::new());
    for folder in [".ci", "crates", "docs", "xtask"] {
        paths.push(format!("/{folder}"));
        paths_below(&top.join(folder), &mut paths);
        rust_files(&top.join(folder), &mut sources);
    }
    for entry in std::fs::read_dir(&top).unwrap() {
        paths.push(format!("/{}", entry.unwrap().file_name().display()));
    }
    let code: String = sources.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    // A definition, or a variant at the start of a line.
    let types: BTreeSet<&str> = code
        .lines()
        .map(str::trim_start)
        .filter_map(|line| {
            let keywords = ["struct ", "enum ", "trait ", "type "];
            let defined = keywords.iter().find_map(|keyword| line.split_once(keyword));
            let name = defined.map_or(line, |(_, name)| name);
            name.split(|c| !is_part(c)).next()
        })
        .collect();

    let (mut checked, mut missing) = (0, Vec::new());
    for page in ["AGENTS.md", "ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(top.join(page)).unwrap();
        for word in quoted_words(&text) {
            let is_plain = word.chars().all(|c| is_part(c) || "./-".contains(c));
            let is_file = [".rs", ".md", ".toml"].iter().any(|end| word.ends_with(end));
            let exists = if !is_plain || NAMED_ELSEWHERE.contains(&word) || word.starts_with('/') {
                continue;
            } else if is_file || word.contains('/') {
                let end = format!("/{}", word.trim_end_matches('/'));
                paths.iter().any(|path| path.ends_with(&end))
            } else if word.starts_with(|c: char| c.is_ascii_uppercase())
                && word.contains(|c: char| c.is_ascii_lowercase())
                && word.chars().all(is_part)
            {
                types.contains(word)
            } else {
                continue;
            };
            checked += 1;
            if !exists {
                missing.push(format!("{page}: {word}"));
            }
        }
    }
    assert!(missing.is_empty(), "not there: {missing:#?}");
    assert!(checked > 100, "only {checked} names were found");
}
