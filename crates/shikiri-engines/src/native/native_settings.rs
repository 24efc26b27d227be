//! What the environment says about how the model is asked.

use std::collections::BTreeMap;

/// Tokens that one reply may have.
const MAX_OUTPUT: u64 = 16_000;
const MAX_RETRIES: u32 = 6;
/// Less is not accepted by the API.
const LEAST_THINKING: u64 = 1_024;

/// By the variables that Claude Code has for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NativeSettings {
    /// `CLAUDE_CODE_MAX_OUTPUT_TOKENS`
    pub(super) max_output: u64,
    /// `MAX_THINKING_TOKENS`; without it the model does not think.
    pub(super) thinking: Option<u64>,
    /// `CLAUDE_CODE_MAX_RETRIES`
    pub(super) max_retries: u32,
}

impl NativeSettings {
    pub(super) fn from_env(env: &BTreeMap<String, String>) -> Self {
        let number = |name: &str| env.get(name).and_then(|text| text.trim().parse::<u64>().ok());
        let output = number("CLAUDE_CODE_MAX_OUTPUT_TOKENS").filter(|most| *most > 0);
        let retries = number("CLAUDE_CODE_MAX_RETRIES").and_then(|most| u32::try_from(most).ok());
        Self {
            max_output: output.unwrap_or(MAX_OUTPUT),
            thinking: number("MAX_THINKING_TOKENS").filter(|most| *most >= LEAST_THINKING),
            max_retries: retries.unwrap_or(MAX_RETRIES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_say_how_and_nonsense_says_nothing() {
        let of = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            NativeSettings::from_env(&pairs.collect())
        };
        let usual =
            NativeSettings { max_output: MAX_OUTPUT, thinking: None, max_retries: MAX_RETRIES };
        assert_eq!(of(&[]), usual);
        let names =
            ["CLAUDE_CODE_MAX_OUTPUT_TOKENS", "MAX_THINKING_TOKENS", "CLAUDE_CODE_MAX_RETRIES"];
        assert_eq!(of(&names.map(|name| (name, "many"))), usual);
        let own = of(&[(names[0], "900"), (names[1], " 2000 "), (names[2], "0")]);
        assert_eq!(own, NativeSettings { max_output: 900, thinking: Some(2_000), max_retries: 0 });
        assert_eq!(of(&[(names[1], "5")]).thinking, None);
    }
}
