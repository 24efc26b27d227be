//! Finds the commands of a shell line: a rule about `git push` also applies to `cd x && git push`,
//! but not to a text that mentions it.

mod shell_parser;

use shell_parser::{ShellParser, ShellWord};

/// Nested lines are followed to this depth.
const DEEPEST: usize = 8;

/// Keywords that may stand before a command.
const BEFORE: [&str; 10] = ["{", "!", "if", "then", "else", "elif", "do", "while", "until", "time"];

/// Programs that run the command in their arguments: the options that take a value, and the number
/// of operands before the command.
const RUNNERS: [(&str, &str, usize); 13] = [
    ("sudo", "ughpCDRTUrt", 0),
    ("doas", "uC", 0),
    ("env", "uC", 0),
    ("command", "", 0),
    ("builtin", "", 0),
    ("exec", "a", 0),
    ("nohup", "", 0),
    ("nice", "n", 0),
    ("ionice", "cn", 0),
    ("setsid", "", 0),
    ("stdbuf", "ioe", 0),
    ("timeout", "ks", 1),
    ("xargs", "IinPLdEsa", 0),
];

const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];

/// Each command as written and, where that differs, as the shell reads it: without quotes, and with
/// the program's bare name.
pub(super) fn commands(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    read(line, 0, &mut found);
    found
}

fn read(line: &str, depth: usize, found: &mut Vec<String>) {
    let mut commands = Vec::new();
    ShellParser::new(line, &mut commands).read();
    for words in commands {
        take(&words, depth, found);
    }
}

fn take(words: &[ShellWord<'_>], depth: usize, found: &mut Vec<String>) {
    let is_before = |word: &ShellWord<'_>| {
        BEFORE.contains(&word.raw) || is_assignment(word.raw) || word.raw.ends_with("()")
    };
    let start = words.iter().position(|word| !is_before(word)).unwrap_or(words.len());
    let Some((first, rest)) = words[start..].split_first() else { return };
    let name = first.plain.rsplit('/').next().unwrap_or(&first.plain);
    let text = |name: &str, word: for<'a> fn(&'a ShellWord<'_>) -> &'a str| {
        rest.iter().fold(name.to_owned(), |text, next| text + " " + word(next))
    };
    let before = found.len();
    for form in [
        text(first.raw, |word| word.raw),
        text(&first.plain, |word| &word.plain),
        text(name, |word| &word.plain),
    ] {
        if !found[before..].contains(&form) {
            found.push(form);
        }
    }
    if depth == DEEPEST {
        return;
    }
    if let Some((_, options, operands)) = RUNNERS.iter().find(|(runner, ..)| *runner == name) {
        take(run_by(rest, options, *operands), depth + 1, found);
    } else if name == "eval" {
        let line: Vec<_> = rest.iter().map(|word| word.plain.as_str()).collect();
        read(&line.join(" "), depth + 1, found);
    } else if SHELLS.contains(&name)
        && let Some(at) = rest.iter().position(|word| is_option(&word.plain, 'c'))
        && let Some(line) = rest.get(at + 1)
    {
        read(&line.plain, depth + 1, found);
    }
}

/// The command after a runner's own options and operands.
fn run_by<'a, 'b>(
    words: &'a [ShellWord<'b>],
    options: &str,
    operands: usize,
) -> &'a [ShellWord<'b>] {
    let mut at = 0;
    while let Some(option) = words.get(at).filter(|word| word.plain.starts_with('-')) {
        let takes = |c: char| options.contains(c) && !option.plain.starts_with("--");
        at += 1 + usize::from(option.plain.len() > 1 && option.plain.ends_with(takes));
    }
    // `env A=1 git …` sets variables after its options; other runners take them before the command.
    words.get(at + operands..).unwrap_or_default()
}

fn is_option(word: &str, letter: char) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.contains(letter)
}

fn is_assignment(word: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    word.split_once('=').is_some_and(|(name, _)| is_name(name.strip_suffix('+').unwrap_or(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::glob_pattern::matches_glob;

    fn forces(line: &str) -> bool {
        commands(line).iter().any(|command| matches_glob("git push*--force*", command))
    }

    #[test]
    fn a_line_is_taken_apart() {
        let line = "cd src && git push --force; ls | wc\necho ok & who || true 2>&1 |& cat &>x";
        let expected =
            ["cd src", "git push --force", "ls", "wc", "echo ok", "who", "true 2>&1", "cat &>x"];
        assert_eq!(commands(line), expected);
        assert_eq!(commands("  \n;;&& A=1 { } \n"), ["}"]);
        assert_eq!(commands("'試'  験 \\\n 者"), ["'試' 験 者", "試 験 者"]);
    }

    #[test]
    fn a_command_is_found_wherever_a_shell_would_run_it() {
        for line in [
            "git push --force",
            "git  push\t--force",
            "cd x && git push origin --force",
            "(git push --force)",
            "( cd x; git push --force ) > out",
            "{ git push --force; }",
            "! git push --force",
            "if true; then git push --force; fi",
            "for x in a b; do git push --force; done",
            "case x in a) git push --force;; esac",
            "f() { git push --force; }",
            "A=1 B='x y' git push --force",
            "sudo git push --force",
            "sudo -E -u me git push --force",
            "env -u X A=1 git push --force",
            "timeout -k 5 30 git push --force",
            "nohup nice -n 5 git push --force &",
            "echo $(git push --force)",
            "echo \"so: $(git push --force)\"",
            "echo `git push --force`",
            "echo \"`git push --force`\"",
            "diff <(git push --force) x",
            "x=$(git push --force)",
            "/usr/bin/git push --force",
            "\"git\" 'push' --force",
            "git push \\\n  --force",
            "bash -c 'git push --force'",
            "sudo sh -ec \"cd x; git push --force\"",
            "eval 'git push --force'",
            "cat <<EOF\n$(git push --force)\nEOF",
            "cat <<'EOF'\ntext\nEOF\ngit push --force",
            "cat <<-A <<B\nx\n\tA\ny\nB\ngit push --force",
            "echo 'it''s'; git push --force",
            "echo $'it\\'s'; git push --force",
            "echo ${x:-'}'}; git push --force",
            "echo a#b; git push --force",
            "cat <<< x; git push --force",
        ] {
            assert!(forces(line), "{line}: {:?}", commands(line));
        }
    }

    #[test]
    fn text_that_mentions_a_command_is_none() {
        for line in [
            "git commit -m \"docs; git push --force is refused\"",
            "git commit -m 'docs; git push --force is refused'",
            "git commit -m docs\\;\\ git\\ push\\ --force",
            "git commit -F - <<'EOF'\nRules\n\ngit push --force is refused now\nEOF",
            "git commit -m \"$(cat <<'EOF'\nRules\n\ngit push --force is no more\nEOF\n)\"",
            "git commit -F - <<EOF\ngit push --force\nEOF",
            "git commit -m '$(git push --force)'",
            "cat <<'EOF'\n$(git push --force)\nEOF",
            "echo git push --force",
            "sudo echo git push --force",
            "sudo -n echo git push --force",
            "ls # ; git push --force",
            "words=(git push --force)",
            "echo \"a\\\"; git push --force\"",
            "echo ${x:-;git push --force}",
            "for x in git push --force; do echo $x; done",
            "grep -c 'git push --force' x",
            "git push # --force",
            "git pushed",
        ] {
            assert!(!forces(line), "{line}: {:?}", commands(line));
        }
    }

    #[test]
    fn no_line_takes_for_ever() {
        let broken = ["$(", "\"$(", "`", "(", "<<a\n", "'", "\"", "${", "$((", "sh -c '", "\\"];
        for part in broken {
            assert!(commands(&part.repeat(20_000)).len() < 100_000, "{part}");
        }
        assert!(commands(&"sudo ".repeat(2_000)).len() < 100);
        assert_eq!(commands(&"a;".repeat(30_000)).len(), 30_000);
    }
}
