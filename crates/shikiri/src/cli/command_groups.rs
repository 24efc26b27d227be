//! How the help shows the commands: `shikiri --help` in groups, the help of each command with
//! examples at its end and with the same short flags everywhere.

use clap::builder::styling::Style;
use clap::{Arg, Command};

use super::complete_values::with_completions;
use super::examples;
use super::unused_options::always_unused;

/// The commands, grouped as a newcomer looks for them. A test keeps every visible one in one group.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Start", &["demo", "serve", "status", "doctor", "trust", "schema", "completions"]),
    ("Claude Code", &["hooks", "hook", "subagents", "who", "mcp"]),
    ("Agents and runs", &["runs", "attach", "cancel", "host"]),
    (
        "Conversations",
        &["run", "conversations", "executions", "models", "servers", "skills", "usage"],
    ),
    ("Teams", &["projects", "agents", "tasks", "messages", "delegations", "dialogues"]),
    ("Browser chats", &["ask", "lanes", "history", "browser"]),
    ("Administration", &["tenants", "keys", "audit", "db", "openapi"]),
];

/// Short flags, the same in every command that has the option.
const SHORT_FLAGS: [(&str, char); 13] = [
    ("agent", 'a'),
    ("conversation", 'c'),
    ("engine", 'e'),
    ("follow", 'f'),
    ("input", 'i'),
    ("json", 'j'),
    ("limit", 'n'),
    ("model", 'm'),
    ("output", 'o'),
    ("project", 'p'),
    ("status", 's'),
    ("tenant", 't'),
    ("yes", 'y'),
];

const POINTERS: &str = "`shikiri COMMAND --help` explains a command, with examples.
`shikiri help env` lists the environment variables.";

/// The command line as it is parsed and shown.
pub(super) fn arrange(command: Command) -> Command {
    let style = *command.get_styles().get_header();
    let inherited: Vec<Arg> =
        command.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    let command = command.mut_subcommands(|sub| {
        let path = sub.get_name().to_owned();
        complete(sub, &path, &inherited, style)
    });
    let template = overview(&command);
    command.help_template(template).after_help(POINTERS)
}

/// Adds short flags and examples to a command and its subcommands, and hides the inherited options
/// that it has no use for.
fn complete(command: Command, path: &str, inherited: &[Arg], style: Style) -> Command {
    let unused = always_unused(path);
    let hidden: Vec<Arg> = inherited
        .iter()
        .filter(|arg| unused.contains(&arg.get_id().as_str()))
        .map(|arg| arg.clone().hide(true))
        .collect();
    let mut known = inherited.to_vec();
    known.extend(command.get_arguments().filter(|arg| arg.is_global_set()).cloned());
    let command = command.args(hidden).mut_args(|arg| with_completions(path, with_short_flag(arg)));
    let command = command.mut_subcommands(|sub| {
        let path = format!("{path} {}", sub.get_name());
        complete(sub, &path, &known, style)
    });
    match examples::of(path) {
        [] => command,
        lines => command.after_help(examples_section(lines, style)),
    }
}

fn with_short_flag(arg: Arg) -> Arg {
    let flag = SHORT_FLAGS.iter().find(|(long, _)| arg.get_long() == Some(long));
    match flag {
        Some((_, short)) => arg.short(*short),
        None => arg,
    }
}

fn examples_section(lines: &[&str], style: Style) -> String {
    let title = if lines.len() == 1 { "Example" } else { "Examples" };
    format!("{style}{title}:{style:#}\n  {}", lines.join("\n  "))
}

/// The template of `shikiri --help`.
fn overview(command: &Command) -> String {
    let styles = command.get_styles();
    let (heading, name_style) = (styles.get_header(), styles.get_literal());
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    let widths = command.get_subcommands().map(|sub| sub.get_name().len());
    let width = widths.max().unwrap_or(0);
    for (title, names) in GROUPS {
        text.push_str(&format!("{heading}{title}:{heading:#}\n"));
        for sub in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            let name = format!("{:width$}", sub.get_name());
            text.push_str(&format!("  {name_style}{name}{name_style:#}  {about}\n"));
        }
        text.push('\n');
    }
    text.push_str(&format!("{heading}Options:{heading:#}\n{{options}}{{after-help}}"));
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::Command;

    use super::*;
    use crate::cli::command_line;

    #[test]
    fn every_visible_command_stands_in_one_group() {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for name in GROUPS.iter().flat_map(|(_, names)| names.iter()) {
            *places.entry((*name).to_owned()).or_default() += 1;
        }
        let command = command_line();
        let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        let expected: BTreeMap<String, usize> =
            visible.map(|sub| (sub.get_name().to_owned(), 1)).collect();
        assert_eq!(places, expected);
    }

    #[test]
    fn the_overview_fits_a_terminal_of_80_columns() {
        let help = command_line().term_width(80).render_help().to_string();
        let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert_eq!(long, Vec::<&str>::new());
    }

    /// The visible commands that do something themselves, by their paths.
    fn visit(command: &Command, path: &str, check: &mut impl FnMut(&str, &Command)) {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let path = format!("{path} {}", sub.get_name()).trim().to_owned();
            check(&path, sub);
            visit(sub, &path, check);
        }
    }

    #[test]
    fn every_command_ends_its_help_with_examples_that_parse() {
        let command = command_line();
        let mut wrong = Vec::new();
        visit(&command, "", &mut |path, _| {
            let lines = examples::of(path);
            if lines.is_empty() {
                wrong.push(format!("{path} has no example"));
            }
            for line in lines {
                if let Err(error) = parses_as(&command, path, line) {
                    wrong.push(format!("{line}: {error}"));
                }
            }
        });
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    fn parses_as(command: &Command, path: &str, line: &str) -> Result<(), String> {
        if line.chars().count() > 76 {
            return Err("is too long".to_owned());
        }
        let words = words_of(line);
        let matches = command.clone().try_get_matches_from(words).map_err(|e| e.to_string())?;
        let (mut at, mut found) = (&matches, Vec::new());
        while let Some((name, sub)) = at.subcommand() {
            found.push(name);
            at = sub;
        }
        let found = found.join(" ");
        match found == path || found.starts_with(&format!("{path} ")) {
            true => Ok(()),
            false => Err(format!("is an example of {found}")),
        }
    }

    /// The words of the program's call in a line of shell.
    fn words_of(line: &str) -> Vec<String> {
        let line = line.strip_prefix("claude mcp add shikiri -- ").unwrap_or(line);
        let line = line.split(" < ").next().unwrap_or(line);
        let line = line.split(" | ").last().unwrap_or(line);
        let line = match line.split_once("=$(") {
            Some((_, call)) => call.trim_end_matches(')'),
            None => line,
        };
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        for c in line.chars() {
            match (quote, c) {
                (Some(open), _) if open == c => quote = None,
                (None, '\'' | '"') => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (None, ' ') => words.extend(word.take()),
                _ => word.get_or_insert_default().push(c),
            }
        }
        words.extend(word);
        // An id that an earlier command printed.
        words.iter().map(|word| word.replace('$', "id_")).collect()
    }
}
