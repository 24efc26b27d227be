//! Patterns of addresses. A pattern matches a whole address, so nothing can precede the host or follow
//! the last part.

/// A web address in which `*` stands for letters, digits, `-` and `_`, at least one; a last `/**`
/// stands for nothing or anything below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UrlPattern {
    /// The text between the stars.
    parts: Vec<String>,
    is_open: bool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum UrlPatternError {
    #[error("{0:?} does not begin with https:// and a host")]
    NoHost(String),
    #[error("{0:?} has ** elsewhere than at its end")]
    MisplacedStars(String),
    #[error("{0:?} has one of ? # @ or a space, which do not count")]
    IgnoredPart(String),
}

impl UrlPattern {
    pub(super) fn parse(text: &str) -> Result<Self, UrlPatternError> {
        let (closed, is_open) = match text.strip_suffix("/**") {
            Some(closed) => (closed, true),
            None => (text, false),
        };
        let rest = closed.strip_prefix("https://").or_else(|| closed.strip_prefix("http://"));
        let host = rest.unwrap_or_default().split('/').next().unwrap_or_default();
        if host.is_empty() || host.contains('*') {
            return Err(UrlPatternError::NoHost(text.to_owned()));
        }
        if closed.contains("**") {
            return Err(UrlPatternError::MisplacedStars(text.to_owned()));
        }
        if closed.contains(['?', '#', '@', ' ']) {
            return Err(UrlPatternError::IgnoredPart(text.to_owned()));
        }
        Ok(Self { parts: closed.split('*').map(str::to_owned).collect(), is_open })
    }

    pub(super) fn matches(&self, address: &str) -> bool {
        let Some((first, rest)) = self.parts.split_first() else { return false };
        address.strip_prefix(first.as_str()).is_some_and(|tail| self.ends(tail, rest))
    }

    /// Whether `tail` matches a star followed by `parts`.
    fn ends(&self, tail: &str, parts: &[String]) -> bool {
        let Some((next, rest)) = parts.split_first() else {
            return tail.is_empty() || (self.is_open && tail.starts_with('/'));
        };
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let longest = tail.find(|c| !is_word(c)).unwrap_or(tail.len());
        (1..=longest).any(|taken| {
            tail[taken..].strip_prefix(next.as_str()).is_some_and(|tail| self.ends(tail, rest))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_part_of_a_path_and_two_are_the_rest() {
        let cases = [
            ("https://a.example/c/*", "https://a.example/c/x-1_Y", true),
            ("https://a.example/c/*", "https://a.example/c/", false),
            ("https://a.example/c/*", "https://a.example/c/x/y", false),
            ("https://a.example/c/*", "https://a.example/c/x%2e", false),
            ("https://a.example/g/*/c/*", "https://a.example/g/1/c/2", true),
            ("https://a.example/c-*-end", "https://a.example/c-1-end-end", true),
            ("https://a.example/**", "https://a.example", true),
            ("https://a.example/**", "https://a.example/x/y", true),
            ("https://a.example/**", "https://a.example.evil.example/", false),
            ("http://127.0.0.1:80/c/*", "http://127.0.0.1:80/c/7", true),
        ];
        for (pattern, address, expected) in cases {
            let parsed = UrlPattern::parse(pattern).unwrap();
            assert_eq!(parsed.matches(address), expected, "{pattern} {address}");
        }
        for wrong in
            ["", "*", "https://", "https://*/c", "file:///x", "https://a/**/b", "https://a/?x"]
        {
            assert!(UrlPattern::parse(wrong).is_err(), "{wrong}");
        }
    }
}
