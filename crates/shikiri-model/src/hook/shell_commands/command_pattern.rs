//! Compares a command with a pattern where the order of flags does not matter.

use crate::hook::glob_pattern::matches_glob;

/// Options of these programs that stand before the subcommand and take a value.
const GLOBAL_OPTIONS: [(&str, &[&str]); 7] = [
    (
        "git",
        &["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix"],
    ),
    ("cargo", &["-C", "-Z", "--config", "--color"]),
    ("docker", &["-H", "-c", "-l", "--host", "--context", "--config", "--log-level"]),
    ("gh", &["-R", "--repo"]),
    ("kubectl", &["-n", "-s", "--namespace", "--context", "--cluster", "--kubeconfig", "--server"]),
    ("npm", &["-C", "-w", "--prefix", "--workspace"]),
    ("pnpm", &["-C", "-F", "--dir", "--filter"]),
];

/// Programs for which `--recursive`, `-r` and `-R` are the same.
const RECURSIVE: &[&str] = &["rm", "cp", "chmod", "chown", "chgrp", "grep"];

/// Long flags that are the same as a letter, by program.
const LONG_FLAGS: [(&str, char, &[&str]); 2] =
    [("--force", 'f', &["git", "rm", "cp", "mv", "ln"]), ("--recursive", 'r', RECURSIVE)];

/// A command, or a pattern, with its flags apart from its other words.
#[derive(Debug)]
pub(super) struct CommandShape {
    program: String,
    words: String,
    flags: Vec<String>,
}

impl CommandShape {
    pub(super) fn of_command(program: &str, arguments: &[&str]) -> Self {
        let (mut words, mut flags) = (program.to_owned(), Vec::new());
        let mut are_operands = false;
        for word in without_global_options(program, arguments) {
            if *word == "--" && !are_operands {
                are_operands = true;
            } else if word.len() > 1 && word.starts_with('-') && !are_operands {
                flags.push((*word).to_owned());
            } else {
                words.push(' ');
                words.push_str(word);
            }
        }
        Self { program: program.to_owned(), words, flags }
    }

    /// Whether the words match, and the command has all flags of the pattern. It may have others if
    /// the pattern ends with a star.
    pub(super) fn is_meant_by(&self, pattern: &str) -> bool {
        let (words, flags) = split_pattern(pattern);
        if !matches_glob(&words, &self.words) {
            return false;
        }
        let own: String = self.flags.iter().flat_map(|flag| self.letters(flag)).collect();
        let named: String = flags.iter().flat_map(|flag| self.letters(flag)).collect();
        let has = |wanted: &&str| {
            let mut letters = self.letters(wanted).peekable();
            self.flags.iter().any(|flag| matches_flag(wanted, flag))
                || (letters.peek().is_some() && letters.all(|letter| own.contains(letter)))
        };
        let is_named = |flag: &String| {
            let mut letters = self.letters(flag).peekable();
            flags.iter().any(|wanted| matches_flag(wanted, flag))
                || (letters.peek().is_some() && letters.all(|letter| named.contains(letter)))
        };
        flags.iter().all(has) && (pattern.ends_with('*') || self.flags.iter().all(is_named))
    }

    /// The letters of a short flag, or of a long flag that is the same as a letter.
    fn letters(&self, flag: &str) -> impl Iterator<Item = char> {
        let is_recursive = RECURSIVE.contains(&self.program.as_str());
        let flag = flag.trim_end_matches('*');
        let long = LONG_FLAGS
            .iter()
            .find(|(long, _, programs)| *long == flag && programs.contains(&self.program.as_str()));
        let short = flag.strip_prefix('-').filter(|rest| !rest.starts_with('-')).unwrap_or("");
        let short = short.chars().take_while(char::is_ascii_alphanumeric);
        let short = short.map(move |c| if c == 'R' && is_recursive { 'r' } else { c });
        let found: Vec<char> =
            long.map(|(_, letter, _)| *letter).into_iter().chain(short).collect();
        found.into_iter()
    }
}

fn matches_flag(wanted: &str, flag: &str) -> bool {
    let name = flag.split_once('=').map_or(flag, |(name, _)| name);
    matches_glob(wanted, flag) || matches_glob(wanted, name)
}

pub(super) fn without_global_options<'a, 'b>(
    program: &str,
    arguments: &'a [&'b str],
) -> &'a [&'b str] {
    let Some((_, with_value)) = GLOBAL_OPTIONS.iter().find(|(name, _)| *name == program) else {
        return arguments;
    };
    let mut at = 0;
    while let Some(word) = arguments.get(at).filter(|word| word.starts_with(['-', '+'])) {
        at += 1 + usize::from(with_value.contains(word));
    }
    arguments.get(at..).unwrap_or_default()
}

/// The words and the flags of a pattern. A flag begins after a space or a star, and ends before a
/// space or with a star, which also stays with the words.
fn split_pattern(pattern: &str) -> (String, Vec<&str>) {
    let (mut words, mut flags) = (String::new(), Vec::new());
    let mut rest = pattern;
    while let Some(next) = rest.chars().next() {
        let is_at_start = words.is_empty() || words.ends_with([' ', '*']);
        let is_flag = next == '-' && rest.len() > 1 && is_at_start;
        if !is_flag {
            words.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        }
        let end = rest.find([' ', '*']).unwrap_or(rest.len());
        let has_star = rest[end..].starts_with('*');
        let flag = &rest[..end + usize::from(has_star)];
        flags.push(flag);
        rest = &rest[flag.len()..];
        words.truncate(words.trim_end().len());
        if has_star {
            words.push('*');
        }
    }
    words.truncate(words.trim_end().len());
    (words, flags)
}
