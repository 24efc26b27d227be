//! `docs/reference/configuration.md`, generated from the table of settings.

use shikiri_testkit::{check_reference_page, table_cell};

use super::Config;
use super::table::{DefaultText, FlagScope, GROUPS, ProjectRule, Setting};
use crate::env_vars;

const HEAD: &str = "\
# Configuration

<!-- Made by `cargo xtask reference` from crates/shikiri/src/config/settings.rs. -->

A flag wins over the environment, the environment over `shikiri.toml` in the project's folder, that
over `$XDG_CONFIG_HOME/shikiri/config.toml`, and that over the default. The keys below are those of
both files. A relative path starts from the folder of its file, or else from the current folder.

A key that is *guarded* counts in `shikiri.toml` only after `shikiri trust`
([why](../decisions/0019-project-trust.md)).
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for (title, settings) in GROUPS {
        page.push_str(&format!(
            "\n## {title}\n\n| key | meaning | value | default | environment |\n"
        ));
        page.push_str("|---|---|---|---|---|\n");
        settings.iter().for_each(|setting| page.push_str(&row(setting)));
    }
    page.push_str("\n## Other variables\n\nThese have no key in a file.\n\n");
    page.push_str("| environment | meaning |\n|---|---|\n");
    for variable in env_vars::others() {
        page.push_str(&format!("| `{}` | {} |\n", variable.name, table_cell(variable.about)));
    }
    page
}

fn row(setting: &Setting) -> String {
    let variables: Vec<_> = setting.variables.iter().map(|name| format!("`{name}`")).collect();
    let (key, value) = (setting.key, (setting.form)());
    let (meaning, default) = (table_cell(&meaning(setting)), default(setting));
    format!("| `{key}` | {meaning} | {value} | {default} | {} |\n", variables.join(", "))
}

fn meaning(setting: &Setting) -> String {
    let mut sentences = vec![format!("{}.", setting.help)];
    sentences.extend(setting.details.iter().map(|line| line.trim().to_owned()));
    if let Some(flag) = &setting.flag {
        sentences.push(format!("Flag: `{}`{}.", flag.usage, commands(flag.scope)));
    }
    match setting.project {
        ProjectRule::Free => {}
        ProjectRule::Guarded(..) => sentences.push("Guarded.".to_owned()),
        ProjectRule::Never => sentences.push("Never counts in `shikiri.toml`.".to_owned()),
    }
    sentences.join(" ")
}

fn commands(scope: FlagScope) -> &'static str {
    match scope {
        FlagScope::Global => "",
        FlagScope::Serve => " of `serve`",
        FlagScope::Browser => " of `serve`, `mcp` and `browser`",
    }
}

fn default(setting: &Setting) -> String {
    match &setting.default_text {
        DefaultText::Value => match (setting.show)(&Config::for_help()) {
            value if value.is_empty() => "none".to_owned(),
            value => format!("`{value}`"),
        },
        DefaultText::Shown(text) => (*text).to_owned(),
        DefaultText::ReferenceOnly(text) => text(),
    }
}

#[test]
fn the_reference_has_every_setting() {
    check_reference_page("configuration.md", &page());
}
