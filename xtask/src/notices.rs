//! The licence texts of everything that is linked into the users' programs, as one file of their
//! archive.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::cargo::{cargo, workspace_root};

/// Prefixes of names of licence files, in lower case.
const NAMES: [&str; 6] = ["license", "licence", "unlicense", "copying", "copyright", "notice"];

/// Of the viewer that the API page contains, in the same form.
const VIEWER: &str = "crates/shikiri-web/viewer/LICENSES";

/// A linked crate of another author.
struct LinkedCrate {
    name: String,
    licence: String,
    folder: PathBuf,
}

/// The text of the file: each licence once, with its crates.
pub(crate) fn third_party_notices(target: &str) -> Result<String> {
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for linked in linked_crates(target)? {
        for text in licence_texts(&linked)? {
            texts.entry(text).or_default().insert(format!("{} ({})", linked.name, linked.licence));
        }
    }
    let mut notices =
        "Shikiri contains these works of others, under the licences below.\n".to_owned();
    for (text, crates) in &texts {
        let crates = crates.iter().cloned().collect::<Vec<_>>().join("\n");
        write!(notices, "\n{}\n{crates}\n\n{}\n", "=".repeat(80), text.trim_end())?;
    }
    let viewer = fs::read_to_string(workspace_root().join(VIEWER));
    write!(
        notices,
        "\n{}\n{}",
        "=".repeat(80),
        viewer.context("cannot read the viewer's licences")?
    )?;
    Ok(notices)
}

fn linked_crates(target: &str) -> Result<Vec<LinkedCrate>> {
    let packages = ["--package", "shikiri", "--package", "shikiri-hook"];
    let mut tree =
        cargo(["tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "none"]);
    tree.args(packages).args(["--format", "{p}", "--target", target]);
    let listed = output(tree)?;
    // `serde v1.0.0 (*)`; only our own crates have a path after the version.
    let words = |line: &str| line.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>();
    let listed: BTreeSet<_> = listed.lines().map(words).collect();

    let metadata = cargo(["metadata", "--locked", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&output(metadata)?)?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let found: Vec<_> = packages
        .iter()
        .filter(|package| !package["source"].is_null())
        .filter_map(|package| {
            let text = |field: &str| package[field].as_str().map(str::to_owned);
            let (name, version) = (text("name")?, format!("v{}", text("version")?));
            let folder = PathBuf::from(text("manifest_path")?).parent()?.to_owned();
            let is_linked = listed.contains(&vec![name.clone(), version.clone()]);
            let name = format!("{name} {version}");
            let licence = text("license").unwrap_or_default();
            is_linked.then_some(LinkedCrate { name, licence, folder })
        })
        .collect();
    ensure!(!found.is_empty(), "cargo names no crate that is linked");
    Ok(found)
}

fn output(mut command: std::process::Command) -> Result<String> {
    let output = command.output().context("cannot run cargo")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// The crate's own licence texts, including those of code that it contains. A crate that names a
/// licence and has no text gets the licence's standard text.
fn licence_texts(linked: &LinkedCrate) -> Result<BTreeSet<String>> {
    let mut texts = BTreeSet::new();
    collect_texts(&linked.folder, &mut texts)?;
    if texts.is_empty() {
        texts.insert(usual_text(linked)?);
    }
    Ok(texts)
}

fn collect_texts(folder: &Path, texts: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().to_lowercase());
        let is_code = [".rs", ".yml", ".c", ".h"].iter().any(|end| name.ends_with(end));
        if entry.file_type()?.is_dir() {
            collect_texts(&path, texts)?;
        } else if NAMES.iter().any(|start| name.starts_with(start)) && !is_code {
            let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            // Copies differ in their line endings.
            texts.insert(String::from_utf8_lossy(&bytes).replace("\r\n", "\n"));
        }
    }
    Ok(())
}

fn usual_text(linked: &LinkedCrate) -> Result<String> {
    if !linked.licence.split(' ').any(|word| word == "MIT") {
        bail!("{} has no licence text, and {:?} is none we know", linked.name, linked.licence);
    }
    let ours = fs::read_to_string(workspace_root().join("LICENSE-MIT"))?;
    let start = ours.find("Permission is hereby granted").context("LICENSE-MIT has no terms")?;
    Ok(format!("MIT License\n\nCopyright (c) its authors\n\n{}", &ours[start..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_linked_crate_has_its_licence_in_the_notices() {
        let target = "x86_64-unknown-linux-musl";
        let notices = third_party_notices(target).unwrap();
        let linked = linked_crates(target).unwrap();
        assert!(linked.len() > 100, "only {} crates", linked.len());
        for linked in linked {
            let line = format!("\n{} ({})\n", linked.name, linked.licence);
            assert!(notices.contains(&line), "{line}");
        }
        // Of code that crates contain: mimalloc, and Chromium's code in ring.
        // And of the viewer: its authors, and those of what it contains.
        for holder in
            ["Microsoft Corporation", "The Chromium Authors", "present Scalar", "Yuxi (Evan) You"]
        {
            assert!(notices.contains(holder), "{holder}");
        }
        assert!(!notices.contains("\nshikiri"), "our own work is not another's");
    }

    #[test]
    fn an_unknown_licence_without_a_text_stops_the_archive() {
        let linked = |licence: &str| LinkedCrate {
            name: "some v1.0.0".to_owned(),
            licence: licence.to_owned(),
            folder: PathBuf::new(),
        };
        assert!(usual_text(&linked("MIT OR Apache-2.0")).unwrap().contains("WITHOUT WARRANTY"));
        let error = usual_text(&linked("MIT-0")).unwrap_err().to_string();
        assert!(error.starts_with("some v1.0.0 has no licence text"), "{error}");
    }
}
