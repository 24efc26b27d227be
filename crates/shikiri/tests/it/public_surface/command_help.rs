//! The help of every command and subcommand.

use shikiri_testkit::Cli;
use tempfile::TempDir;

use crate::PROGRAM;

/// The commands that a help text lists.
fn listed(help: &str) -> Vec<String> {
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    // A line that goes on from the one before is indented further.
    let named = commands.filter(|line| !line.starts_with("   "));
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
    insta::assert_snapshot!(texts);
}
