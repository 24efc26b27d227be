//! An invalid command line: one line that says what to write instead.

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::exit::{Exit, Failure};
use crate::output::complain;

/// Prints help where it was asked for, else the complaint.
pub(super) fn answer(error: &clap::Error) -> ExitCode {
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
            complain(&complaint(&error.render().to_string()));
            ExitCode::from(Exit::Usage as u8)
        }
    }
}

/// The error and the tip of clap's message. The usage is in `--help`.
fn complaint(rendered: &str) -> Failure {
    let text = rendered.strip_prefix("error: ").unwrap_or(rendered);
    let (message, usage) = text.split_once("\n\nUsage:").unwrap_or((text, ""));
    let help = match usage.split_whitespace().take_while(|word| is_command(word)).last() {
        None | Some("shikiri") => "`shikiri --help` shows what there is".to_owned(),
        Some(_) => {
            let words: Vec<&str> =
                usage.split_whitespace().take_while(|word| is_command(word)).collect();
            format!("`{} --help` shows how to write it", words.join(" "))
        }
    };
    let message = message.split("\n\nFor more information").next().unwrap_or(message);
    let message = message.replace("\n\n  tip: ", "; ").replace("\n  tip: ", "; ");
    Failure::usage(message, &help)
}

fn is_command(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    fn line(arguments: &[&str]) -> String {
        let error = super::super::Arguments::try_parse_from(arguments).err().unwrap();
        super::complaint(&error.render().to_string()).to_string()
    }

    #[test]
    fn usage_errors_are_one_line_with_a_way_out() {
        let lines = [
            line(&["shikiri", "serve", "--lisen", "x"]),
            line(&["shikiri", "srve"]),
            line(&["shikiri", "attach"]),
            line(&["shikiri", "keys", "rotate-admin", "--all"]),
            line(&["shikiri", "runs", "list", "--tenant", "a b"]),
            line(&["shikiri", "--log-format", "xml", "doctor"]),
        ];
        insta::assert_snapshot!(lines.join("\n"));
    }
}
