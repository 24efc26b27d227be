//! What a subagent is there for, and how surely that is known.

use serde::{Deserialize, Serialize};

/// Where a role comes from. In the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleSource {
    /// Somebody said so by hand.
    Manual,
    /// The agent type is a role.
    AgentType,
    /// `[ROLE:x]` in the prompt of the call that spawned it.
    TaskMatch,
    /// `[ROLE:x]` in what is written in a transcript.
    TranscriptParse,
    /// The oldest that waits, of a Claude Code that does not say who calls.
    Fifo,
}

/// How surely it is known which call spawned a subagent, and with it the role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// By an id.
    Exact,
    /// There was only one that it could be.
    Unique,
    /// The oldest of several.
    Fifo,
    #[default]
    None,
}

macro_rules! words {
    ($type:ty { $($variant:ident = $word:literal),* $(,)? }) => {
        impl $type {
            /// As it is stored and shown.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }
    };
}
pub(super) use words;

words!(RoleSource {
    Manual = "manual",
    AgentType = "agent_type",
    TaskMatch = "task_match",
    TranscriptParse = "transcript_parse",
    Fifo = "fifo",
});
words!(Confidence { Exact = "exact", Unique = "unique", Fifo = "fifo", None = "none" });

/// The longest name of a role.
const LONGEST: usize = 64;

/// The role that a prompt names as `[ROLE:x]`: the first one.
pub fn role_in(prompt: &str) -> Option<&str> {
    prompt.split("[ROLE:").skip(1).find_map(|rest| {
        let (name, _) = rest.split_once(']')?;
        let name = name.trim();
        let is_name = !name.is_empty()
            && name.len() <= LONGEST
            && !name.chars().any(|c| c.is_control() || c.is_whitespace() || c == '[');
        is_name.then_some(name)
    })
}

/// A name without the number that tells several of a kind apart: `coder-2` is a `coder`.
pub(super) fn without_number(name: &str) -> &str {
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let base = base.strip_suffix(['-', '_']).unwrap_or(base);
    if base.is_empty() { name } else { base }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_the_first_name_in_brackets() {
        assert_eq!(role_in("[ROLE:tester] test it, [ROLE:coder]"), Some("tester"));
        assert_eq!(role_in("まず [ROLE: 試験者 ] です"), Some("試験者"));
        for none in ["", "[ROLE:]", "[ROLE:a b]", "[role:x]", "[ROLE:x", "[ROLE:[ROLE:"] {
            assert_eq!(role_in(none), None, "{none}");
        }
        assert_eq!(role_in("[ROLE:a b] [ROLE:coder]"), Some("coder"));
    }

    #[test]
    fn numbers_tell_several_of_a_kind_apart() {
        let cases = [("coder-2", "coder"), ("coder_12", "coder"), ("tester3", "tester")];
        for (name, base) in cases {
            assert_eq!(without_number(name), base);
        }
        assert_eq!(without_number("42"), "42");
    }

    #[test]
    fn words_are_read_back() {
        for source in ["manual", "agent_type", "task_match", "transcript_parse", "fifo"] {
            assert_eq!(RoleSource::parse(source).map(RoleSource::as_str), Some(source));
        }
        for confidence in ["exact", "unique", "fifo", "none"] {
            assert_eq!(Confidence::parse(confidence).map(Confidence::as_str), Some(confidence));
        }
        assert_eq!(Confidence::parse("sure"), None);
    }
}
