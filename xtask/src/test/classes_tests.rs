use std::fs;
use std::path::Path;

use super::*;
use crate::cargo::workspace_root;
use crate::rows::test_names;

/// An integration test, with its name in the test harness.
struct Found {
    package: String,
    name: String,
    /// Its file starts third-party programs.
    speaks_with_peers: bool,
}

fn integration_tests() -> Vec<Found> {
    let mut found = Vec::new();
    for package in fs::read_dir(workspace_root().join("crates")).unwrap() {
        let package = package.unwrap();
        let tests = package.path().join("tests/it");
        if tests.is_dir() {
            collect(&package.file_name().into_string().unwrap(), "", &tests, &mut found);
        }
    }
    found
}

fn collect(package: &str, module: &str, folder: &Path, found: &mut Vec<Found>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let below = match stem {
            "main" | "mod" => module.to_owned(),
            _ => format!("{module}{stem}::"),
        };
        if path.is_dir() {
            collect(package, &below, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            let speaks_with_peers = [" peer(", "claude_programs()"].iter().any(|call| {
                source.lines().any(|line| line.contains(call) && !line.contains("fn "))
            });
            found.extend(test_names(&source).into_iter().map(|name| Found {
                package: package.to_owned(),
                name: format!("{below}{name}"),
                speaks_with_peers,
            }));
        }
    }
}

fn listed() -> impl Iterator<Item = (&'static str, &'static str)> {
    let classed = CLASSES.iter().map(|(_, package, names)| (*package, *names));
    let lists = classed.chain(QUICK.iter().copied()).chain([QUICK_SKIPS]);
    lists.flat_map(|(package, names)| names.iter().map(move |name| (package, *name)))
}

#[test]
fn every_listed_name_selects_tests_of_its_package() {
    let tests = integration_tests();
    assert!(tests.len() > 700, "found only {} tests", tests.len());
    for (package, listed) in listed() {
        let is_selected = |test: &&Found| test.package == package && test.name.starts_with(listed);
        assert!(tests.iter().any(|test| is_selected(&test)), "{package} has no test {listed}…");
    }
}

#[test]
fn no_other_test_is_left_out_with_a_class() {
    for test in integration_tests() {
        for (_, package, names) in CLASSES.iter().filter(|(_, package, _)| test.package == *package)
        {
            let of_class = names.iter().any(|name| test.name.starts_with(name));
            let left_out = names.iter().find(|name| test.name.contains(**name));
            assert_eq!(left_out.is_some(), of_class, "{package}: {} and {left_out:?}", test.name);
        }
    }
}

#[test]
fn what_speaks_with_other_programs_is_in_the_class_of_peers() {
    let tests = integration_tests();
    let in_peers = |test: &Found| {
        let peers = CLASSES.iter().filter(|(class, ..)| *class == "peers");
        peers.filter(|(_, package, _)| test.package == *package).any(|(_, _, names)| {
            // One test of a file is enough: the others need no such program.
            let file = |name: &str| name.rsplit_once("::").map(|(file, _)| format!("{file}::"));
            names.iter().any(|name| test.name.starts_with(name) || file(&test.name) == file(name))
        })
    };
    let forgotten: Vec<_> = tests
        .iter()
        .filter(|test| test.speaks_with_peers && !in_peers(test))
        .map(|test| test.name.as_str())
        .collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
}

#[test]
fn a_level_includes_the_ones_before_it() {
    let of = |level, package| Selection::of_integration_tests(level, package);
    assert_eq!(of(Level::All, "shikiri-browser"), Some(Selection::default()));
    assert_eq!(of(Level::Usual, "shikiri-browser"), None);
    assert_eq!(of(Level::Quick, "shikiri-app"), None);
    let store = of(Level::Quick, "shikiri-store").unwrap();
    assert_eq!(store.arguments(), ["--skip", "postgres_"]);
    let web = of(Level::Quick, "shikiri-web").unwrap();
    assert_eq!(web.arguments(), ["openapi::"]);
    assert_eq!(of(Level::Usual, "shikiri-web"), Some(Selection::default()));
    let program = of(Level::Usual, "shikiri").unwrap().arguments();
    assert!(program.chunks(2).any(|pair| pair == ["--skip", "chaos::"]), "{program:?}");
}
