//! Links lead to files and headings that are there, and the summary lists every page.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{markdown_below, project};

/// Pages and folders of pages whose links are checked.
const CHECKED: [&str; 10] = [
    "README.md",
    "README.ja.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "AGENTS.md",
    "SECURITY.md",
    "docs",
    "examples",
    "packaging",
    "plugin",
];

/// The pages among files and folders.
fn pages_of(places: &[&str]) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for place in places {
        let path = project().join(place);
        if path.is_dir() {
            markdown_below(&path, &mut pages);
        } else {
            pages.push(path);
        }
    }
    pages
}

/// The text without blocks and inline code, in which brackets are no links.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let parts = line.split('`').enumerate();
            parts.filter(|(at, _)| at % 2 == 0).for_each(|(_, part)| prose.push_str(part));
            prose.push('\n');
        }
    }
    prose
}

/// The targets of a page's links and pictures that stay inside the project.
pub(super) fn targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let links = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links.filter(|link| !link.contains("://")).map(str::to_owned).collect()
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) else { continue };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
    }
    anchors
}

/// Why a link leads nowhere.
fn fault(page: &Path, link: &str) -> Option<String> {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let place = if file.is_empty() {
        page.to_owned()
    } else {
        page.parent().unwrap_or(Path::new("")).join(file)
    };
    if !place.exists() {
        return Some(format!("there is no {}", place.display()));
    }
    if anchor.is_empty() {
        return None;
    }
    let text = std::fs::read_to_string(&place).unwrap_or_default();
    (!anchors(&text).contains(anchor)).then(|| format!("{} has no #{anchor}", place.display()))
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages_of(&CHECKED) {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in targets(&text) {
            count += 1;
            wrong.extend(fault(&page, &link).map(|why| format!("{}: {why}", page.display())));
        }
    }
    assert!(count > 200, "found only {count} links");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_summary_lists_every_page_once() {
    let docs = project().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut listed = targets(&summary);
    listed.sort();
    let pages = pages_of(&["docs"]).into_iter();
    let pages = pages.map(|page| page.strip_prefix(&docs).unwrap().to_str().unwrap().to_owned());
    let mut pages: Vec<_> = pages.filter(|page| page != "SUMMARY.md").collect();
    pages.sort();
    assert_eq!(listed, pages);
}

#[test]
fn links_and_headings_are_found_as_they_are_shown() {
    let text =
        "# A `--flag`, and: more\n[a](b.md#c) `[no](link)` ![p](p.svg)\n```sh\n# no\n[x](y)\n```\n";
    assert_eq!(targets(text), ["b.md#c", "p.svg"]);
    assert_eq!(anchors(text), BTreeSet::from(["a---flag-and-more".to_owned()]));
    assert!(fault(&project().join("README.md"), "docs/none.md").is_some());
    assert!(fault(&project().join("README.md"), "SECURITY.md#none").is_some());
    assert!(fault(&project().join("README.md"), "SECURITY.md#reporting").is_none());
}
