//! An invalid command line: one line that says what to write instead.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::exit::{Exit, Failure};
use crate::near_name::nearest;
use crate::output::complain;

/// Prints help where it was asked for, else the complaint. `words` are the words of the command line.
pub(super) fn answer(error: &clap::Error, words: &[OsString]) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // The output has no reader any more.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(Exit::Usage as u8)
        }
        _ => {
            complain(&complaint(error, words));
            ExitCode::from(Exit::Usage as u8)
        }
    }
}

/// The error and the tip of clap's message, with the command that shows how to write it.
fn complaint(error: &clap::Error, words: &[OsString]) -> Failure {
    let rendered = error.render().to_string();
    let text = rendered.strip_prefix("error: ").unwrap_or(&rendered);
    let message = text.split("\n\nUsage:").next().unwrap_or(text);
    let message = message.split("\n\nFor more information").next().unwrap_or(message);
    let mut message = message.replace("\n\n  tip: ", "; ").replace("\n  tip: ", "; ");
    let root = super::command_line();
    let (path, command) = command_of(&root, words);
    // `help` and options before a subcommand have no tip of their own.
    if let (Some(word), None) = (unknown_subcommand(error), message.find("; ")) {
        let names = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        if let Some(near) = nearest(&word, names.map(Command::get_name)) {
            message.push_str(&format!("; a similar subcommand exists: '{near}'"));
        }
    }
    let help = match path.as_slice() {
        [] => "`shikiri --help` shows what there is".to_owned(),
        path if command.has_subcommands() => {
            format!("`shikiri {} --help` shows what there is", path.join(" "))
        }
        path => format!("`shikiri {} --help` shows how to write it", path.join(" ")),
    };
    Failure::usage(message, &help)
}

fn unknown_subcommand(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        _ => None,
    }
}

/// The command that these words name, as far as they name one, and its path.
fn command_of<'a>(root: &'a Command, words: &[OsString]) -> (Vec<&'a str>, &'a Command) {
    let (mut path, mut command) = (Vec::new(), root);
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        if word == "--" {
            break;
        }
        if let Some(sub) = command.find_subcommand(word) {
            path.push(sub.get_name());
            command = sub;
        }
    }
    (path, command)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    fn line(words: &[&str]) -> String {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let error = super::super::command_line().try_get_matches_from(&words).err().unwrap();
        super::complaint(&error, &words).to_string()
    }

    #[test]
    fn usage_errors_are_one_line_with_a_way_out() {
        let lines = [
            line(&["shikiri", "serve", "--lisen", "x"]),
            line(&["shikiri", "srve"]),
            line(&["shikiri", "help", "srve"]),
            line(&["shikiri", "runs", "shwo", "run_1"]),
            line(&["shikiri", "runs", "list", "--statsu", "failed"]),
            line(&["shikiri", "run", "hi", "--engine", "ofline"]),
            line(&["shikiri", "ask", "chatgtp", "hi"]),
            line(&["shikiri", "schema", "conventons"]),
            line(&["shikiri", "attach"]),
            line(&["shikiri", "keys", "rotate-admin", "--all"]),
            line(&["shikiri", "runs", "list", "--tenant", "a b"]),
            line(&["shikiri", "--log-format", "xml", "doctor"]),
        ];
        insta::assert_snapshot!(lines.join("\n"));
    }
}
