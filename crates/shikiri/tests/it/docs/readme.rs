//! What holds for the README beyond its blocks, which are played like those of every page.

use super::{page, project};

const MAX_LINES: usize = 150;

fn read(name: &str) -> String {
    std::fs::read_to_string(project().join(name)).expect(name)
}

#[test]
fn the_readme_is_short() {
    for name in ["README.md", "README.ja.md"] {
        let lines = read(name).lines().count();
        assert!(lines <= MAX_LINES, "{name} has {lines} lines");
    }
}

#[test]
fn the_japanese_readme_has_the_same_blocks_and_links() {
    let (english, japanese) = (read("README.md"), read("README.ja.md"));
    assert_eq!(commands(&japanese), commands(&english));
    let same = |text: &str| -> Vec<String> {
        let links = super::links::targets(text).into_iter();
        let mut links: Vec<_> = links.filter(|link| !link.starts_with("README")).collect();
        links.sort();
        links
    };
    assert_eq!(same(&japanese), same(&english));
}

/// The commands of all blocks without their comments, which are translated.
fn commands(text: &str) -> Vec<String> {
    let without_comment =
        |line: &str| line.split("  # ").next().unwrap_or_default().trim_end().to_owned();
    let blocks = page::shell_blocks(text).unwrap();
    blocks.iter().flat_map(|block| block.lines()).map(without_comment).collect()
}

/// `cargo xtask fresh` and people who look at the repository for the first time rely on them.
#[test]
fn the_two_commands_stand_in_both() {
    for name in ["README.md", "README.ja.md"] {
        let text = read(name);
        for command in ["\ncargo run --release -- demo ", "\ncargo xtask test "] {
            assert!(text.contains(command), "{name} has no {command:?}");
        }
    }
}

#[test]
fn the_number_of_requirements_is_right() {
    let requirements = read("docs/requirements.md");
    let is_row = |line: &&str| {
        let number = line.strip_prefix("| ").and_then(|rest| rest.split(' ').next());
        number.is_some_and(|number| number.contains('.') && number.ends_with(char::is_numeric))
    };
    let rows = requirements.lines().filter(is_row).count();
    assert!(read("README.md").contains(&format!(" has {rows} rows")), "it has {rows} rows");
    assert!(read("README.ja.md").contains(&format!(" {rows} ")), "it has {rows} rows");
}
