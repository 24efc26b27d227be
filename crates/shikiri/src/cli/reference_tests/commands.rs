//! `docs/reference/cli.md`.

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command};
use shikiri_testkit::{check_reference_page, table_cell};

use super::super::{command_line, examples};

const HEAD: &str = "\
# Command line

<!-- Made by `cargo xtask reference` from the commands in crates/shikiri/src/cli. -->

`shikiri COMMAND --help` shows the same at a terminal. Exit codes: 0 done, 1 failed, 2 usage, 3 refused (locked,
or not allowed), 4 not found, 5 unavailable. Environment variables stand in
[configuration](configuration.md).
";

#[test]
fn the_reference_has_every_command_and_flag() {
    check_reference_page("cli.md", &page_of(command_line()));
}

/// The page has what the help has: short flags and examples, which are added to the parser's own
/// description, and the options that a group of commands shares.
#[test]
fn the_reference_has_short_flags_examples_and_shared_options() {
    let page = page_of(command_line());
    for part in [
        "| `-j, --json` | Print JSON |",
        "| `-t, --tenant ID` | The tenant. Default: `local`. |",
        "\nExamples:\n\n```text\nshikiri demo\nshikiri demo --once --fast\n```\n",
        "| `--url URL` | A server by its address",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let change = |demo: Command| demo.mut_arg("fast", |fast| fast.short('q'));
    let changed = page_of(command_line().mut_subcommand("demo", change));
    assert!(!page.contains("| `-q, --fast` |") && changed.contains("| `-q, --fast` |"));
}

#[test]
fn every_visible_argument_has_a_help_text() {
    fn visit(command: &Command, path: &str, without: &mut Vec<String>) {
        let visible = command.get_arguments().filter(|argument| !argument.is_hide_set());
        let empty = visible.filter(|argument| {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            help.trim().is_empty()
        });
        without.extend(empty.map(|argument| format!("{path} {}", argument.get_id())));
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            visit(sub, &format!("{path} {}", sub.get_name()), without);
        }
    }
    let mut without = Vec::new();
    visit(&command_line(), "shikiri", &mut without);
    assert_eq!(without, Vec::<String>::new());
}

fn page_of(mut program: Command) -> String {
    program.build();
    let mut page = HEAD.to_owned();
    page.push_str("\n## Flags of every command\n");
    page.push_str(&arguments(&program, |argument| argument.is_global_set()));
    let inherited = global_ids(&program);
    for command in program.get_subcommands() {
        describe(command, "", &inherited, &mut page);
    }
    page
}

/// The options that a command's subcommands take over.
fn global_ids(command: &Command) -> Vec<String> {
    let global = command.get_arguments().filter(|argument| argument.is_global_set());
    global.map(|argument| argument.get_id().to_string()).collect()
}

/// Adds a command, whose parents are named by `parents`, and its subcommands to the page.
fn describe(command: &Command, parents: &str, inherited: &[String], page: &mut String) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let path = format!("{parents} {}", command.get_name()).trim().to_owned();
    let (name, level) = (format!("shikiri {path}"), path.split(' ').count() + 1);
    let about = command.get_long_about().or(command.get_about()).map(plain).unwrap_or_default();
    let usage = usage(command);
    page.push_str(&format!("\n{} {name}\n\n{about}\n\n", "#".repeat(level)));
    page.push_str(&format!("`{name}{usage}`\n"));
    let is_own = |argument: &Arg| !inherited.iter().any(|id| argument.get_id() == id.as_str());
    page.push_str(&arguments(command, is_own));
    page.push_str(&examples_of(&path));
    let inherited = [inherited, &global_ids(command)].concat();
    for part in command.get_subcommands() {
        describe(part, &path, &inherited, page);
    }
}

fn examples_of(path: &str) -> String {
    let lines = examples::of(path);
    let title = if lines.len() == 1 { "Example" } else { "Examples" };
    match lines {
        [] => String::new(),
        lines => format!("\n{title}:\n\n```text\n{}\n```\n", lines.join("\n")),
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
