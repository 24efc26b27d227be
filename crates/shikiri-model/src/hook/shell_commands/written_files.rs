//! The files that well-known programs write, by their arguments.

/// Options that take a value, of the programs below.
const WITH_VALUE: [(&str, &[&str]); 5] = [
    ("touch", &["-d", "-r", "-t"]),
    ("truncate", &["-s", "-r"]),
    ("install", &["-m", "-o", "-g", "-S"]),
    ("sed", &["-e", "-f", "-l"]),
    ("perl", &["-e", "-E", "-I", "-M"]),
];

/// Each file that the command writes or removes, and whether it removes it.
pub(super) fn written_files(program: &str, arguments: &[&str]) -> Vec<(String, bool)> {
    let operands = || operands(program, arguments);
    let all = |removes: bool| operands().into_iter().map(|it| (it.to_owned(), removes)).collect();
    match program {
        "tee" | "touch" | "truncate" | "patch" => all(false),
        "rm" | "unlink" | "rmdir" | "shred" => all(true),
        "cp" | "install" | "ln" | "mv" | "rsync" => copied(program, arguments),
        "sed" if has_in_place(arguments) => {
            let has_script = arguments.iter().any(|word| {
                is_short(word, 'e') || is_short(word, 'f') || word.starts_with("--expression")
            });
            let files = operands().into_iter().skip(usize::from(!has_script));
            files.map(|file| (file.to_owned(), false)).collect()
        }
        "perl" | "ruby" if has_in_place(arguments) => all(false),
        "dd" => {
            let files = arguments.iter().filter_map(|word| word.strip_prefix("of="));
            files.map(|file| (file.to_owned(), false)).collect()
        }
        "curl" | "wget" => {
            let names: &[&str] =
                if program == "curl" { &["-o", "--output"] } else { &["-O", "--output-document"] };
            value_of(arguments, names).map(|file| (file.to_owned(), false)).into_iter().collect()
        }
        "git" => written_by_git(arguments),
        _ => Vec::new(),
    }
}

/// The arguments that are no options, with those after `--`.
fn operands<'a>(program: &str, arguments: &[&'a str]) -> Vec<&'a str> {
    let with_value = WITH_VALUE.iter().find(|(name, _)| *name == program);
    let takes = |word: &str| {
        // In `-pi -e` and `-pie`, the last letter takes the value.
        let last = word.chars().last().map(|letter| format!("-{letter}")).unwrap_or_default();
        with_value.is_some_and(|(_, options)| {
            options.contains(&word) || (!word.starts_with("--") && options.contains(&last.as_str()))
        })
    };
    let (mut found, mut at, mut are_operands) = (Vec::new(), 0, false);
    while let Some(word) = arguments.get(at) {
        at += 1;
        if *word == "--" && !are_operands {
            are_operands = true;
        } else if are_operands || !word.starts_with('-') || *word == "-" {
            found.push(*word);
        } else if takes(word) {
            at += 1;
        }
    }
    found
}

/// The target of a copy, and the files in it if the target is plainly a folder. A move also removes
/// its sources.
fn copied(program: &str, arguments: &[&str]) -> Vec<(String, bool)> {
    let folder = value_of(arguments, &["-t", "--target-directory"]);
    let mut sources = operands(program, arguments);
    sources.retain(|word| Some(*word) != folder);
    let Some(target) = folder.or_else(|| sources.pop()) else { return Vec::new() };
    let is_folder = folder.is_some() || target.ends_with('/') || sources.len() > 1;
    let is_folder = is_folder || matches!(target, "." | "..");
    let moved = sources.iter().filter(|_| program == "mv").map(|it| ((*it).to_owned(), true));
    let mut found: Vec<_> = moved.collect();
    found.push((target.to_owned(), false));
    if is_folder {
        let name =
            |source: &&str| source.trim_end_matches('/').rsplit('/').next().map(str::to_owned);
        let inside = sources.iter().filter_map(name);
        let target = target.trim_end_matches('/');
        found.extend(inside.map(|name| (format!("{target}/{name}"), false)));
    }
    found
}

fn written_by_git(arguments: &[&str]) -> Vec<(String, bool)> {
    let mut arguments = super::command_pattern::without_global_options("git", arguments).iter();
    let Some(subcommand) = arguments.next() else { return Vec::new() };
    let rest: Vec<&str> = arguments.copied().collect();
    match *subcommand {
        "rm" => operands("git", &rest).into_iter().map(|it| (it.to_owned(), true)).collect(),
        "mv" => copied("mv", &rest),
        "restore" => {
            let staged = rest.contains(&"--staged") && !rest.contains(&"--worktree");
            let files = operands("git", &rest).into_iter().filter(|_| !staged);
            files.map(|file| (file.to_owned(), false)).collect()
        }
        // Without `--`, the words may be a branch.
        "checkout" => {
            let files = rest.iter().skip_while(|word| **word != "--").skip(1);
            files.map(|file| ((*file).to_owned(), false)).collect()
        }
        _ => Vec::new(),
    }
}

/// `-i`, `-ni`, `-i.bak` or `--in-place`.
fn has_in_place(arguments: &[&str]) -> bool {
    let flags = arguments.iter().take_while(|word| **word != "--");
    flags.into_iter().any(|word| is_short(word, 'i') || word.starts_with("--in-place"))
}

fn is_short(word: &str, letter: char) -> bool {
    word.strip_prefix('-').is_some_and(|letters| {
        letters.chars().take_while(char::is_ascii_alphabetic).any(|c| c == letter)
    })
}

/// The value of an option: the next word, or the rest of its own.
fn value_of<'a>(arguments: &[&'a str], names: &[&str]) -> Option<&'a str> {
    arguments.iter().enumerate().find_map(|(at, word)| {
        if names.contains(word) {
            return arguments.get(at + 1).copied();
        }
        let (name, value) = word.split_once('=')?;
        (names.contains(&name) && name.starts_with("--")).then_some(value)
    })
}
