//! Patterns with `*`, `**` and `?` for files, commands and tools.

/// Whether the whole text matches; `*` and `?` stand for any characters.
pub(super) fn matches_glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<_>, Vec<_>) = (pattern.chars().collect(), text.chars().collect());
    matches(&pattern, &text, |p| *p == '*', |p, t| *p == '?' || p == t)
}

/// Whether a path matches: `*` and `?` stop at a slash, and `**` stands for any number of folders.
/// A pattern without a slash is matched against the file's name.
pub(super) fn matches_path_glob(pattern: &str, path: &str) -> bool {
    let path: Vec<_> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let mut pattern: Vec<_> =
        pattern.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if pattern.len() == 1 {
        pattern.insert(0, "**");
    }
    matches(&pattern, &path, |p| *p == "**", |p, t| matches_glob(p, t))
}

/// Walks along both. After a mismatch, the last star takes one more item. The cost is at most the
/// product of the lengths.
fn matches<P, T>(
    pattern: &[P],
    text: &[T],
    is_star: impl Fn(&P) -> bool,
    fits: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(item) if is_star(item) => {
                star = Some((p, t));
                p += 1;
            }
            Some(item) if fits(item, &text[t]) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                t = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(is_star)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_characters() {
        let yes = [
            ("git push*", "git push --force"),
            ("mcp__*__delete_?", "mcp__github__delete_a"),
            ("*", ""),
            ("**", "x/y"),
            ("試*", "試験"),
            ("a*b*c", "axxbyyc"),
        ];
        for (pattern, text) in yes {
            assert!(matches_glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("git push", "git push x"), ("a?", "a"), ("", "x"), ("a*b", "acd")]
        {
            assert!(!matches_glob(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_star_in_a_path_stops_at_a_slash_and_two_do_not() {
        let yes = [
            ("src/**", "src/a/b.rs"),
            ("src/**", "src/a"),
            ("**/tests/*.rs", "tests/a.rs"),
            ("**/tests/*.rs", "x/y/tests/a.rs"),
            ("src/*.rs", "./src/a.rs"),
            ("*.md", "docs/深い/a.md"),
            ("Cargo.toml", "Cargo.toml"),
        ];
        for (pattern, path) in yes {
            assert!(matches_path_glob(pattern, path), "{pattern} {path}");
        }
        let no = [("src/*.rs", "src/a/b.rs"), ("src/**", "lib/src/a"), ("*.md", "a.mdx")];
        for (pattern, path) in no {
            assert!(!matches_path_glob(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn no_pattern_takes_for_ever() {
        let text = "a".repeat(5_000);
        assert!(!matches_glob(&"*a".repeat(200).replace("aa", "a"), &format!("{text}b")));
        assert!(!matches_path_glob(&"**/a/".repeat(50), &"a/".repeat(2_000).replace("a/a", "a/b")));
    }
}
