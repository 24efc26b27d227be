//! `docs/reference/cli.md`.

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command, CommandFactory as _};
use shikiri_testkit::{check_reference_page, table_cell};

const HEAD: &str = "\
# Command line

<!-- Made by `cargo xtask reference` from the commands in crates/shikiri/src/cli. -->

`shikiri COMMAND --help` shows the same at a terminal. Exit codes: 0 done, 1 failed, 2 usage, 3 refused (locked,
or not allowed), 4 not found, 5 unavailable. Environment variables stand in
[configuration](configuration.md).
";

#[test]
fn the_reference_has_every_command_and_flag() {
    let mut program = super::super::Arguments::command();
    program.build();
    let mut page = HEAD.to_owned();
    page.push_str("\n## Flags of every command\n");
    page.push_str(&arguments(&program, |argument| argument.is_global_set()));
    for command in program.get_subcommands() {
        describe(command, "shikiri", 2, &mut page);
    }
    check_reference_page("cli.md", &page);
}

fn describe(command: &Command, parent: &str, level: usize, page: &mut String) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_long_about().or(command.get_about()).map(plain).unwrap_or_default();
    let usage = usage(command);
    page.push_str(&format!("\n{} {name}\n\n{about}\n\n", "#".repeat(level)));
    page.push_str(&format!("`{name}{usage}`\n"));
    page.push_str(&arguments(command, |argument| !argument.is_global_set()));
    for part in command.get_subcommands() {
        describe(part, &name, level + 1, page);
    }
}

/// What follows the command's name: its places, and whether there are flags or parts.
fn usage(command: &Command) -> String {
    let mut words = String::new();
    for place in command.get_positionals() {
        let name = value(place);
        let many = matches!(place.get_action(), ArgAction::Append);
        let dots = if many { "…" } else { "" };
        let shown = if place.is_required_set() { name } else { format!("[{name}]") };
        words.push_str(&format!(" {shown}{dots}"));
    }
    if command.get_subcommands().any(|part| part.get_name() != "help") {
        words.push_str(" COMMAND");
    }
    words
}

fn arguments(command: &Command, is_wanted: impl Fn(&Arg) -> bool) -> String {
    let is_shown = |argument: &&Arg| {
        let is_help = matches!(argument.get_id().as_str(), "help" | "version");
        !argument.is_hide_set() && !is_help && is_wanted(argument)
    };
    let rows: String = command.get_arguments().filter(is_shown).map(row).collect();
    if rows.is_empty() { rows } else { format!("\n| argument | meaning |\n|---|---|\n{rows}") }
}

fn row(argument: &Arg) -> String {
    let mut names: Vec<String> =
        argument.get_short().map(|c| format!("-{c}")).into_iter().collect();
    names.extend(argument.get_long().map(|long| format!("--{long}")));
    let mut shown = names.join(", ");
    if argument.is_positional() {
        shown = value(argument);
    } else if argument.get_action().takes_values() {
        shown.push_str(&format!(" {}", value(argument)));
    }
    let help = argument.get_long_help().or(argument.get_help()).map(plain).unwrap_or_default();
    let mut notes = Vec::new();
    let values = argument.get_possible_values();
    let values: Vec<_> =
        values.iter().filter(|v| !v.is_hide_set()).map(|v| format!("`{}`", v.get_name())).collect();
    if argument.get_action().takes_values() && !values.is_empty() {
        notes.push(format!("One of {}.", values.join(", ")));
    }
    let defaults = argument.get_default_values().iter();
    let defaults: Vec<_> = defaults.map(|text| format!("`{}`", text.to_string_lossy())).collect();
    if argument.get_action().takes_values() && !defaults.is_empty() {
        notes.push(format!("Default: {}.", defaults.join(", ")));
    }
    if argument.is_required_set() && !argument.is_positional() {
        notes.push("Required.".to_owned());
    }
    let mut meaning = table_cell(&help);
    if !notes.is_empty() && !meaning.is_empty() && !meaning.ends_with(['.', '?', '!']) {
        meaning.push('.');
    }
    let cell = [meaning, table_cell(&notes.join(" "))].join(" ");
    format!("| `{}` | {} |\n", table_cell(&shown), cell.trim())
}

fn value(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    match names {
        [] => argument.get_id().as_str().to_uppercase(),
        names => names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ").to_uppercase(),
    }
}

fn plain(text: &StyledStr) -> String {
    text.to_string()
}
