//! Parses a line of the prompt.

/// The parsed command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    Help,
    List,
    Tools(Option<String>),
    Details(Vec<String>),
    /// One call by its id, or all interrupted calls.
    Resume(Option<String>),
    Tokens,
    CleanTokens,
    Cancel,
    Quit,
    /// Anything else names a tool.
    Call {
        words: Vec<String>,
        background: bool,
    },
}

/// The words that are commands, not tools.
pub(super) const COMMANDS: [&str; 9] =
    ["list", "help", "tools", "details", "resume", "tokens", "clean-tokens", "cancel", "quit"];

pub(super) fn read(line: &str) -> Result<Wish, String> {
    let (line, background) = match line.trim().strip_suffix('&') {
        Some(rest) => (rest, true),
        None => (line.trim(), false),
    };
    let mut words = split(line)?;
    let Some(first) = words.first().cloned() else { return Ok(Wish::Nothing) };
    let second = words.get(1).cloned();
    Ok(match (first.as_str(), words.len()) {
        ("help" | "?", 1) => Wish::Help,
        ("list", 1) => Wish::List,
        ("tools", 1 | 2) => Wish::Tools(second),
        ("details", 2..) => Wish::Details(words.split_off(1)),
        ("details", _) => return Err("write: details TOOL".to_owned()),
        ("resume", 1 | 2) => Wish::Resume(second),
        ("tokens", 1) => Wish::Tokens,
        ("clean-tokens", 1) => Wish::CleanTokens,
        ("cancel", 1) => Wish::Cancel,
        ("quit" | "exit", 1) => Wish::Quit,
        _ => Wish::Call { words, background },
    })
}

/// Splits words as a shell does: quotes group them, a backslash escapes the next character.
fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut signs = line.chars();
    while let Some(sign) = signs.next() {
        match (quote, sign) {
            (Some(open), sign) if sign == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(sign);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => match signs.next() {
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err("a backslash at the end takes nothing".to_owned()),
            },
            (None, sign) if sign.is_whitespace() => words.extend(word.take()),
            (_, sign) => word.get_or_insert_default().push(sign),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(words: &[&str], background: bool) -> Result<Wish, String> {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Ok(Wish::Call { words, background })
    }

    #[test]
    fn commands_are_told_from_tools() {
        assert_eq!(read("  "), Ok(Wish::Nothing));
        assert_eq!(read(" exit "), Ok(Wish::Quit));
        assert_eq!(read("tools a"), Ok(Wish::Tools(Some("a".to_owned()))));
        assert_eq!(read("details a b"), Ok(Wish::Details(vec!["a".to_owned(), "b".to_owned()])));
        assert!(read("details").is_err());
        assert_eq!(read("travel n=1 &"), call(&["travel", "n=1"], true));
        assert_eq!(read("travel&"), call(&["travel"], true));
        // A tool with a command's name needs an argument or its server's name.
        assert_eq!(read("list n=1"), call(&["list", "n=1"], false));
    }

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(
            read(r#"t 'a=x y' b="p \"q\"" c=\ z"#),
            call(&["t", "a=x y", r#"b=p "q""#, "c= z"], false)
        );
        assert_eq!(read(r#"t j='{"a": [1]}'"#), call(&["t", r#"j={"a": [1]}"#], false));
        assert_eq!(read("t a=''"), call(&["t", "a="], false));
        assert_eq!(read("t 都市=パリ"), call(&["t", "都市=パリ"], false));
        assert!(read("t 'a").is_err());
        assert!(read("t \\").is_err());
    }
}
