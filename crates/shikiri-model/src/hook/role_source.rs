//! Where a subagent's role comes from, and how certain it is. `role_resolution.rs` decides both.

use crate::macros::text_enum;

text_enum! {
    /// How the role of a subagent was found. The documentation of `resolve_role` in `role_resolution.rs` has
    /// the order.
    pub enum RoleSource {
        /// A person set it.
        Manual = "manual",
        /// The agent type is a role.
        AgentType = "agent_type",
        /// `[ROLE:x]` in the prompt of the call that spawned the subagent. The stored word is a historical
        /// one.
        TaskMatch = "task_match",
        /// `[ROLE:x]` in the first prompt of the subagent's own transcript.
        TranscriptParse = "transcript_parse",
        /// Any of these, but the calls of the agents were only told apart by their order: an older Claude
        /// Code does not name the caller.
        Fifo = "fifo",
    }
}

text_enum! {
    /// How certain it is which call spawned a subagent, and with it the role.
    #[derive(Default)]
    pub enum RoleConfidence {
        /// An id says so.
        Exact = "exact",
        /// All possible calls give the same role, or only one subagent was waiting.
        Unique = "unique",
        /// The oldest of several waiting subagents.
        Fifo = "fifo",
        #[default]
        None = "none",
    }
}

/// The longest name of a role.
const LONGEST: usize = 64;

/// The first role that a prompt names as `[ROLE:x]`.
pub fn parse_role_tag(prompt: &str) -> Option<&str> {
    prompt.split("[ROLE:").skip(1).find_map(|rest| {
        let (name, _) = rest.split_once(']')?;
        let name = name.trim();
        let is_name = !name.is_empty()
            && name.len() <= LONGEST
            && !name.chars().any(|c| c.is_control() || c.is_whitespace() || c == '[');
        is_name.then_some(name)
    })
}

/// The name without a number at its end: `coder-2` becomes `coder`.
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
        assert_eq!(parse_role_tag("[ROLE:tester] test it, [ROLE:coder]"), Some("tester"));
        assert_eq!(parse_role_tag("まず [ROLE: 試験者 ] です"), Some("試験者"));
        for none in ["", "[ROLE:]", "[ROLE:a b]", "[role:x]", "[ROLE:x", "[ROLE:[ROLE:"] {
            assert_eq!(parse_role_tag(none), None, "{none}");
        }
        assert_eq!(parse_role_tag("[ROLE:a b] [ROLE:coder]"), Some("coder"));
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
    fn role_texts_are_parsed_back() {
        for source in ["manual", "agent_type", "task_match", "transcript_parse", "fifo"] {
            assert_eq!(RoleSource::parse(source).map(RoleSource::as_str), Some(source));
        }
        for confidence in ["exact", "unique", "fifo", "none"] {
            assert_eq!(
                RoleConfidence::parse(confidence).map(RoleConfidence::as_str),
                Some(confidence)
            );
        }
        assert_eq!(RoleConfidence::parse("sure"), None);
    }
}
