//! Finds the commands of a shell line, and the files that they plainly write: a rule about `git push`
//! also applies to `cd x && git -C . push`, but not to a text that mentions it.

mod command_pattern;
mod shell_parser;
mod written_files;

use command_pattern::CommandShape;
use shell_parser::{ShellParser, ShellWord};
use written_files::written_files;

use super::glob_pattern::matches_glob;

/// Nested lines are followed to this depth.
const DEEPEST: usize = 8;

/// Keywords that may stand before a command.
const BEFORE: [&str; 9] = ["{", "!", "if", "then", "else", "elif", "do", "while", "until"];

/// Programs that run the command in their arguments: the options that take a value, and the number
/// of operands before the command.
const RUNNERS: [(&str, &str, usize); 14] = [
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
    ("time", "fo", 0),
    ("timeout", "ks", 1),
    ("xargs", "IinPLdEsa", 0),
];

const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "su"];

/// What a shell line runs and writes.
#[derive(Debug, Default)]
pub(super) struct ShellLine {
    pub(super) commands: Vec<ShellCommand>,
    pub(super) writes: Vec<ShellWrite>,
    /// The folder that an earlier `cd` of the line names.
    folder: Option<String>,
}

#[derive(Debug)]
pub(super) struct ShellCommand {
    /// As written and, where that differs, as the shell reads it: without quotes, with the program's
    /// bare name, and without redirections.
    forms: Vec<String>,
    shape: CommandShape,
}

/// A file that a command plainly writes or removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShellWrite {
    pub(super) path: String,
    /// The folder that an earlier `cd` of the line names. The path may be relative to it.
    pub(super) folder: Option<String>,
    /// It is removed or moved, with all that is in it.
    pub(super) removes: bool,
}

impl ShellCommand {
    /// Whether a pattern of a rule is about this command. Flags may be in any order and written
    /// together, as in `rm -fr`.
    pub(super) fn is_meant_by(&self, pattern: &str) -> bool {
        self.forms.iter().any(|form| matches_glob(pattern, form)) || self.shape.is_meant_by(pattern)
    }
}

impl ShellLine {
    pub(super) fn parse(line: &str) -> Self {
        let mut parsed = Self::default();
        parsed.read(line, 0);
        parsed
    }

    fn read(&mut self, line: &str, depth: usize) {
        let mut commands = Vec::new();
        ShellParser::new(line, &mut commands).read();
        for words in commands {
            self.take(&words, depth);
        }
    }

    fn take(&mut self, words: &[ShellWord<'_>], depth: usize) {
        let is_test = words.first().is_some_and(|word| word.raw == "[[");
        let targets = if is_test { Vec::new() } else { redirected_files(words) };
        targets.into_iter().for_each(|path| self.add_write(path, false));
        let Some((first, rest)) = words[command_start(words)..].split_first() else { return };
        let name = first.plain.rsplit('/').next().unwrap_or(&first.plain);
        let bare = without_redirections(rest);
        let arguments: Vec<&str> = bare.iter().map(|word| word.plain.as_str()).collect();
        self.commands.push(ShellCommand {
            forms: forms(first, name, rest, &bare),
            shape: CommandShape::of_command(name, &arguments),
        });
        for (path, removes) in written_files(name, &arguments) {
            self.add_write(&path, removes);
        }
        if matches!(name, "cd" | "pushd")
            && let Some(folder) = arguments.iter().find(|word| !word.starts_with('-'))
        {
            let before = self.folder.take().filter(|_| !folder.starts_with('/'));
            self.folder = Some(before.map_or((*folder).to_owned(), |it| format!("{it}/{folder}")));
        }
        if depth < DEEPEST {
            self.follow(name, rest, &bare, depth + 1);
        }
    }

    /// Reads the command that a program runs for its caller.
    fn follow(
        &mut self,
        name: &str,
        rest: &[ShellWord<'_>],
        bare: &[&ShellWord<'_>],
        depth: usize,
    ) {
        let option = |letter| bare.iter().position(|word| is_option(&word.plain, letter));
        if name == "env"
            && let Some(line) = option('S').and_then(|at| bare.get(at + 1))
        {
            self.read(&line.plain, depth);
        } else if let Some((_, options, operands)) =
            RUNNERS.iter().find(|(runner, ..)| *runner == name)
        {
            self.take(run_by(rest, options, *operands), depth);
        } else if name == "eval" {
            let line: Vec<_> = bare.iter().map(|word| word.plain.as_str()).collect();
            self.read(&line.join(" "), depth);
        } else if SHELLS.contains(&name)
            && let Some(line) = option('c').and_then(|at| bare.get(at + 1))
        {
            self.read(&line.plain, depth);
        } else if name == "find" {
            let is_start = |word: &ShellWord<'_>| {
                matches!(word.plain.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir")
            };
            for part in rest.split(is_start).skip(1) {
                let is_end = |word: &ShellWord<'_>| matches!(word.plain.as_str(), ";" | "+");
                let end = part.iter().position(is_end).unwrap_or(part.len());
                self.take(&part[..end], depth);
            }
        }
    }

    fn add_write(&mut self, path: &str, removes: bool) {
        let folder = self.folder.clone().filter(|_| !path.starts_with('/'));
        let write = ShellWrite { path: path.to_owned(), folder, removes };
        if !path.is_empty() && self.writes.last() != Some(&write) {
            self.writes.push(write);
        }
    }
}

/// Where the command begins, after keywords, variables and redirections.
fn command_start(words: &[ShellWord<'_>]) -> usize {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let is_before =
            BEFORE.contains(&word.raw) || is_assignment(word.raw) || word.raw.ends_with("()");
        at += match (word.operator.is_empty(), is_before) {
            (false, _) => redirection_length(word),
            (true, true) => 1,
            (true, false) => return at,
        };
    }
    words.len()
}

/// A redirection is one word, or two with its file in the second.
fn redirection_length(word: &ShellWord<'_>) -> usize {
    1 + usize::from(word.target().is_empty())
}

fn without_redirections<'a, 'b>(words: &'a [ShellWord<'b>]) -> Vec<&'a ShellWord<'b>> {
    let (mut bare, mut at) = (Vec::with_capacity(words.len()), 0);
    while let Some(word) = words.get(at) {
        at += if word.operator.is_empty() {
            bare.push(word);
            1
        } else {
            redirection_length(word)
        };
    }
    bare
}

/// The files that redirections write.
fn redirected_files<'a>(words: &'a [ShellWord<'_>]) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let next = || words.get(at + 1).map(|next| next.plain.as_str());
        let target = Some(word.target()).filter(|target| !target.is_empty()).or_else(next);
        let is_write = word.operator.contains('>');
        // `2>&1` and `>&-` name no file.
        let is_file = |target: &&str| {
            !word.operator.ends_with(">&")
                || !target.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        };
        found.extend(target.filter(|_| is_write).filter(is_file));
    }
    found
}

fn forms(
    first: &ShellWord<'_>,
    name: &str,
    rest: &[ShellWord<'_>],
    bare: &[&ShellWord<'_>],
) -> Vec<String> {
    let text = |name: &str, words: &mut dyn Iterator<Item = &str>| {
        words.fold(name.to_owned(), |text, next| text + " " + next)
    };
    let mut found = Vec::with_capacity(1);
    for form in [
        text(first.raw, &mut rest.iter().map(|word| word.raw)),
        text(&first.plain, &mut rest.iter().map(|word| word.plain.as_str())),
        text(name, &mut rest.iter().map(|word| word.plain.as_str())),
        text(name, &mut bare.iter().map(|word| word.plain.as_str())),
    ] {
        if !found.contains(&form) {
            found.push(form);
        }
    }
    found
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

    fn commands(line: &str) -> Vec<String> {
        let commands = ShellLine::parse(line).commands;
        commands.into_iter().flat_map(|command| command.forms).collect()
    }

    fn is_meant(pattern: &str, line: &str) -> bool {
        ShellLine::parse(line).commands.iter().any(|command| command.is_meant_by(pattern))
    }

    fn forces(line: &str) -> bool {
        is_meant("git push*--force*", line)
    }

    fn writes(line: &str) -> Vec<String> {
        let writes = ShellLine::parse(line).writes;
        let text = |write: ShellWrite| {
            let folder = write.folder.map(|folder| format!("{folder}: ")).unwrap_or_default();
            format!("{folder}{}{}", write.path, if write.removes { " (removed)" } else { "" })
        };
        writes.into_iter().map(text).collect()
    }

    #[test]
    fn a_line_is_taken_apart() {
        let line = "cd src && git push --force; ls | wc\necho ok & who || true 2>&1 |& cat &>x";
        let expected = [
            "cd src",
            "git push --force",
            "ls",
            "wc",
            "echo ok",
            "who",
            "true 2>&1",
            "true",
            "cat &>x",
            "cat",
        ];
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
            "git -C . push --force",
            "git --no-pager push --force",
            "git -c a.b=c --git-dir=x push origin --force",
            "git push -f",
            "git push origin main -uf",
            "> out git push --force",
            "2>&1 git push --force",
            "git push --force>out",
            "git>out push --force",
            "echo $((1<<2))\ngit push --force",
            "find . -name x -exec git push --force \\;",
            "env -S 'git push --force'",
            "time -p git push --force",
            "su me -c 'git push --force'",
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
            "git push -u origin main",
            "echo -f git push",
            "cat < git; echo push --force",
        ] {
            assert!(!forces(line), "{line}: {:?}", commands(line));
        }
    }

    #[test]
    fn flags_have_no_order() {
        for line in [
            "rm -rf src",
            "rm -fr src",
            "rm -r -f src",
            "rm src -rf",
            "rm -f -R src",
            "rm --recursive --force src",
            "rm -rfv src",
            "rm -rf -- src",
        ] {
            assert!(is_meant("rm -rf *", line), "{line}");
        }
        for line in ["rm -r src", "rm -f src", "rm src", "ls -rf src", "rm -- -rf src"] {
            assert!(!is_meant("rm -rf *", line), "{line}");
        }
        assert!(is_meant("rm -rf /", "rm -fr /") && !is_meant("rm -rf /", "rm -fr /tmp"));
        // Without a star at its end, a pattern names the whole command.
        assert!(is_meant("git push", "git -C . push"));
        assert!(!is_meant("git push", "git push --tags"));
        assert!(is_meant("npm publish*", "npm --prefix app publish --tag x"));
        assert!(is_meant("find * -delete", "find . -name x -delete"));
        assert!(!is_meant("find * -delete", "find . -name x"));
    }

    #[test]
    fn files_that_are_plainly_written_are_found() {
        for (line, expected) in [
            ("echo x > src/a; cat b >> src/c 2>/dev/null", &["src/a", "src/c", "/dev/null"][..]),
            ("x >|a &>b 2>&1 <in >&c 3<>d", &["a", "b", "c", "d"]),
            ("cat > '日 本' <<EOF\n> no\nEOF", &["日 本"]),
            ("tee -a a b <<< x", &["a", "b"]),
            ("rm -rf a b; touch c", &["a (removed)", "b (removed)", "c"]),
            ("mv a b", &["a (removed)", "b"]),
            ("cp x/y.toml z/", &["z/", "z/y.toml"]),
            ("cp -t z x y", &["z", "z/x", "z/y"]),
            ("sed -i s/a/b/ f g; sed s/a/b/ h; sed -n -i.bak -e p k", &["f", "g", "k"]),
            ("perl -pi -e 's/a/b/' f", &["f"]),
            ("dd if=/dev/zero of=f bs=1", &["f"]),
            ("git rm a; git -C x mv a b; git checkout -- c", &["a (removed)", "b", "c"]),
            ("curl -o f https://x", &["f"]),
            ("sudo sh -c 'echo x > f'", &["f"]),
            ("cd src && echo > a", &["src: a"]),
            ("cd a; cd b; echo > /c; rm d", &["/c", "a/b: d (removed)"]),
            ("[[ a > b ]]; echo $((1 > 2)) \"> c\" '> d' # > e", &[]),
            ("cat a | grep b; ls; git checkout main", &[]),
        ] {
            assert_eq!(writes(line), expected, "{line}");
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
