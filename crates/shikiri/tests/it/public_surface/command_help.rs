//! The help of every command and subcommand.

use shikiri_testkit::Cli;
use tempfile::TempDir;

use crate::PROGRAM;

/// The commands that a help text lists, in groups or not.
fn listed(help: &str) -> Vec<String> {
    let before = help.lines().take_while(|line| !line.starts_with("Options"));
    let named = before.filter_map(|line| line.strip_prefix("  "));
    // Arguments begin with a bracket; a line that goes on from the one before is indented further.
    let named = named.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let names = named.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

fn describe(cli: &Cli, command: &[String], texts: &mut String) {
    let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
    arguments.push("--help");
    let help = cli.run(&arguments).done().stdout;
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    texts.push_str(&format!("$ shikiri {}\n{}\n\n", arguments.join(" "), lines.join("\n")));
    for name in listed(&help) {
        describe(cli, &[command, &[name]].concat(), texts);
    }
}

#[test]
fn help_of_every_command() {
    let folder = TempDir::new().unwrap();
    let cli = Cli::new(PROGRAM, folder.path()).env("COLUMNS", "100");
    let mut texts = String::new();
    describe(&cli, &[], &mut texts);
    let variables = cli.run(&["help", "env"]).done().stdout;
    texts.push_str(&format!("$ shikiri help env\n{variables}"));
    insta::assert_snapshot!(texts);
}
