//! What the input asks the offline engine to play: the words after `#offline` at the start of a
//! line, each `key=value`. Several such lines are one; of a key that comes twice the last counts.
//!
//! | key | plays |
//! |---|---|
//! | `events=N` | N pieces of text, each told as an event |
//! | `chars=C` | the length of each piece (24) |
//! | `delay_ms=M` | the delay between pieces (0) |
//! | `tools=T` | T calls of a tool, before the text |
//! | `subagents=K` | K subagents at the same time, before the text, each with a tool and tokens of its own |
//! | `thinking=1` | a thought, before everything else |
//! | `error=MESSAGE` | it fails with this message, after all of the above |
//! | `hang=1` | it never ends, after all of the above, until it is stopped |
//! | `tokens_in=N`, `tokens_out=N` | tokens of the main thread (10 and 20) |
//!
//! Without `events` the text is the short answer in pieces, or nothing if the script fails or
//! hangs: it never gets to answering. A value may stand in double quotes; the message of an error
//! may also go on over words until one has a `=`.
//!
//! What cannot be understood fails nothing: the answer begins with what was wrong.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OfflineScript {
    /// None: as many as the short answer has.
    pub(super) events: Option<usize>,
    pub(super) chars: usize,
    pub(super) delay: Duration,
    pub(super) tools: usize,
    pub(super) subagents: usize,
    pub(super) thinking: bool,
    pub(super) error: Option<String>,
    pub(super) hang: bool,
    pub(super) tokens_in: u64,
    pub(super) tokens_out: u64,
    /// What was not understood.
    pub(super) complaints: Vec<String>,
    /// The start of the input without script lines.
    pub(super) input_start: String,
}

/// Characters of the input that the answer repeats.
const MAX_INPUT_START: usize = 80;
/// Complaints that the answer shows.
const MAX_COMPLAINTS: usize = 5;
/// Characters of text in all, to limit the memory of readers.
const MAX_TEXT: usize = 10_000_000;
const MAX_DELAY_MS: u64 = 3_600_000;
const MAX_TOKENS: u64 = 1_000_000_000_000;
const MAX_ERROR: usize = 1_000;

impl Default for OfflineScript {
    fn default() -> Self {
        Self {
            events: None,
            chars: 24,
            delay: Duration::ZERO,
            tools: 0,
            subagents: 0,
            thinking: false,
            error: None,
            hang: false,
            tokens_in: 10,
            tokens_out: 20,
            complaints: Vec::new(),
            input_start: String::new(),
        }
    }
}

impl OfflineScript {
    pub(super) fn read(input: &str) -> Self {
        let mut script = Self::default();
        let mut rest = Vec::new();
        for line in input.lines() {
            match steering(line) {
                Some(words) => pairs(words).for_each(|(key, value)| script.set(key, &value)),
                None => rest.push(line),
            }
        }
        script.input_start = rest.join("\n").trim().chars().take(MAX_INPUT_START).collect();
        script.fit();
        script
    }

    fn set(&mut self, key: &str, value: &str) {
        match key {
            "events" => self.events = self.count(key, value, 100_000).or(self.events),
            "chars" => self.chars = self.count(key, value, 10_000).unwrap_or(self.chars),
            "tools" => self.tools = self.count(key, value, 1_000).unwrap_or(self.tools),
            "subagents" => self.subagents = self.count(key, value, 100).unwrap_or(self.subagents),
            "delay_ms" => {
                let delay = self.number(key, value, MAX_DELAY_MS).map(Duration::from_millis);
                self.delay = delay.unwrap_or(self.delay);
            }
            "tokens_in" => {
                self.tokens_in = self.number(key, value, MAX_TOKENS).unwrap_or(self.tokens_in);
            }
            "tokens_out" => {
                self.tokens_out = self.number(key, value, MAX_TOKENS).unwrap_or(self.tokens_out);
            }
            "thinking" => self.thinking = self.switch(key, value).unwrap_or(self.thinking),
            "hang" => self.hang = self.switch(key, value).unwrap_or(self.hang),
            "error" => {
                let message: String = value.chars().take(MAX_ERROR).collect();
                let nameless = || "the offline engine was asked to fail".to_owned();
                self.error = Some(Some(message).filter(|m| !m.is_empty()).unwrap_or_else(nameless));
            }
            unknown => self.complain(format!("there is no {:?}", start_of(unknown))),
        }
    }

    /// A number up to `most`; a larger one counts as `most`.
    fn number(&mut self, key: &str, value: &str, most: u64) -> Option<u64> {
        match value.parse::<u64>() {
            Ok(number) if number <= most => Some(number),
            Ok(_) => {
                self.complain(format!("{key} is at most {most}"));
                Some(most)
            }
            Err(_) => {
                self.complain(format!("{key} is a whole number, not {:?}", start_of(value)));
                None
            }
        }
    }

    fn count(&mut self, key: &str, value: &str, most: u64) -> Option<usize> {
        self.number(key, value, most).and_then(|number| usize::try_from(number).ok())
    }

    fn switch(&mut self, key: &str, value: &str) -> Option<bool> {
        match value {
            "1" | "true" => Some(true),
            "0" | "false" => Some(false),
            _ => {
                self.complain(format!("{key} is 0 or 1, not {:?}", start_of(value)));
                None
            }
        }
    }

    fn fit(&mut self) {
        if self.chars == 0 {
            self.complain("chars is at least 1".to_owned());
            self.chars = 1;
        }
        let events = self.events.unwrap_or(0).max(1);
        if events * self.chars > MAX_TEXT {
            self.complain(format!("events × chars is at most {MAX_TEXT}"));
            self.chars = MAX_TEXT / events;
        }
    }

    fn complain(&mut self, complaint: String) {
        if self.complaints.len() < MAX_COMPLAINTS {
            self.complaints.push(complaint);
        }
    }
}

fn start_of(text: &str) -> String {
    text.chars().take(40).collect()
}

/// What follows `#offline` in a line that steers.
fn steering(line: &str) -> Option<&str> {
    let rest = line.trim().strip_prefix("#offline")?;
    (rest.is_empty() || rest.starts_with(char::is_whitespace)).then_some(rest)
}

/// The pairs of a line; a word without `=` is a key without value.
fn pairs(mut rest: &str) -> impl Iterator<Item = (&str, String)> {
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let key_end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let (key, after) = rest.split_at(key_end);
        let Some(value) = after.strip_prefix('=') else {
            rest = after;
            return (!key.is_empty()).then(|| (key, String::new()));
        };
        let quoted = value.strip_prefix('"').and_then(|value| value.split_once('"'));
        let (value, after) = match quoted {
            Some((value, after)) => (value, after),
            None => value.split_at(plain_end(key, value)),
        };
        rest = after;
        Some((key, value.trim_end().to_owned()))
    })
}

/// Where a value without quotes ends.
fn plain_end(key: &str, value: &str) -> usize {
    if key != "error" {
        return value.find(char::is_whitespace).unwrap_or(value.len());
    }
    match value.find('=') {
        // The word before the `=` is the next key.
        Some(equals) => value[..equals].rfind(char::is_whitespace).unwrap_or(value.len()),
        None => value.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_lines_are_read_and_the_rest_is_kept() {
        let input = "旅行の計画を\n  #offline events=3 chars=5 delay_ms=7 tools=2 subagents=4\n\
                     お願い\n#offline thinking=1 hang=true tokens_in=11 tokens_out=0 chars=6\n#offliner";
        let expected = OfflineScript {
            events: Some(3),
            chars: 6,
            delay: Duration::from_millis(7),
            tools: 2,
            subagents: 4,
            thinking: true,
            error: None,
            hang: true,
            tokens_in: 11,
            tokens_out: 0,
            complaints: Vec::new(),
            input_start: "旅行の計画を\nお願い\n#offliner".to_owned(),
        };
        assert_eq!(OfflineScript::read(input), expected);
        assert_eq!(OfflineScript::read(&"長".repeat(100)).input_start.chars().count(), 80);
        assert_eq!(OfflineScript::read(""), OfflineScript::default());
    }

    #[test]
    fn a_message_may_have_spaces_with_or_without_quotes() {
        let read = |line: &str| {
            let script = OfflineScript::read(&format!("#offline {line}"));
            (script.error, script.events, script.complaints.len())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read("error=boom events=2"), (some("boom"), Some(2), 0));
        assert_eq!(read(r#"error="a = b" events=2"#), (some("a = b"), Some(2), 0));
        assert_eq!(read("error=the model broke  events=2"), (some("the model broke"), Some(2), 0));
        assert_eq!(read("events=2 error=the model broke"), (some("the model broke"), Some(2), 0));
        assert_eq!(read("error=a=b"), (some("a=b"), None, 0));
        assert_eq!(read("error="), (some("the offline engine was asked to fail"), None, 0));
        assert_eq!(read(r#"error="half open"#), (some("\"half open"), None, 0));
    }

    #[test]
    fn what_is_wrong_is_told_and_bounded() {
        let read = |line: &str| OfflineScript::read(&format!("#offline {line}"));
        let script = read("evnts=3 events=x tools=5000 hang=maybe alone");
        assert_eq!(
            script.complaints,
            [
                "there is no \"evnts\"",
                "events is a whole number, not \"x\"",
                "tools is at most 1000",
                "hang is 0 or 1, not \"maybe\"",
                "there is no \"alone\"",
            ]
        );
        assert_eq!((script.events, script.tools, script.hang), (None, 1_000, false));

        let large = read("events=100000 chars=10000");
        assert_eq!((large.events, large.chars), (Some(100_000), 100));
        assert_eq!(read("chars=0").chars, 1);
        assert_eq!(read(&"x=1 ".repeat(1_000)).complaints.len(), 5);
    }
}
