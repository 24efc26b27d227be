//! The events of Claude Code that we hook, and the hook that they call. The plugin's `hooks.json`
//! has the same list; a test compares them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::data_folder::KEY_PREFIX;

/// In seconds; a hook itself gives up after two.
const TIMEOUT: u64 = 5;

/// The server's path for hooks.
pub(super) const HTTP_PATH: &str = "/hooks/claude";

/// An event with its matcher.
pub(in crate::cli) struct Event {
    pub(in crate::cli) name: &'static str,
    pub(in crate::cli) matcher: Option<&'static str>,
    /// What a hook does for it, as the reference page says.
    #[cfg_attr(not(test), expect(dead_code, reason = "the reference page is made by a test"))]
    pub(in crate::cli) does: &'static str,
}

const fn every(name: &'static str, does: &'static str) -> Event {
    Event { name, matcher: None, does }
}

/// Matches only the calls that start subagents or use files, so that other tool calls start one
/// process, not two.
const fn outcome(name: &'static str, does: &'static str) -> Event {
    let matcher = "Agent|Task|Bash|Edit|MultiEdit|NotebookEdit|Read|Write|mcp__.*";
    Event { name, matcher: Some(matcher), does }
}

/// Events that have an effect, and events that a reader of the log needs to see what happened in
/// between: prompts, compactions, idle teammates.
pub(in crate::cli) const EVENTS: [Event; 13] = [
    every(
        "SessionStart",
        "tells the main agent its text, again after a compaction; ends calls of an earlier process",
    ),
    every(
        "UserPromptSubmit",
        "tells the main agent its text if the start did not, and the person of broken conventions",
    ),
    Event {
        name: "PreToolUse",
        matcher: Some("*"),
        does: "says who calls, tells its text if it has not got it, applies the rules, and notes \
               calls that start a subagent",
    },
    outcome(
        "PostToolUse",
        "joins a subagent with the call that started it, and notes which files a call used",
    ),
    outcome("PostToolUseFailure", "notes that no subagent started, or that a call failed"),
    every("SubagentStart", "records the subagent, finds its role and tells its text"),
    every("SubagentStop", "records its end and what it used"),
    every("TeammateIdle", "is logged"),
    every("PreCompact", "is logged"),
    every("PostCompact", "lets the main agent have its text again"),
    every(
        "Stop",
        "ends calls that will start no subagent any more; records what the main agent used",
    ),
    every("StopFailure", "records that a subagent failed"),
    every("SessionEnd", "ends all subagents of the session"),
];

/// A hook as it is written in the settings.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Hook {
    /// With `args` no shell is started, and the command needs no quoting.
    Command {
        command: String,
        args: Vec<String>,
        timeout: u64,
    },
    Http {
        url: String,
        headers: BTreeMap<String, String>,
        timeout: u64,
    },
}

/// One entry of an event.
#[derive(Debug, Serialize)]
pub(super) struct Group<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) matcher: Option<&'a str>,
    pub(super) hooks: [&'a Hook; 1],
}

impl Hook {
    pub(super) fn calling(command: String, args: Vec<String>) -> Self {
        Self::Command { command, args, timeout: TIMEOUT }
    }

    /// Posts to a server instead of starting a program.
    pub(super) fn posting(base: &str, key: &str) -> Self {
        let headers = [("Authorization".to_owned(), format!("Bearer {key}"))].into();
        Self::Http { url: http_url(base), headers, timeout: TIMEOUT }
    }

    /// The events for which this hook can be called.
    pub(super) fn events(&self) -> impl Iterator<Item = &'static Event> + use<> {
        events(self.is_http())
    }

    pub(super) fn is_http(&self) -> bool {
        matches!(self, Self::Http { .. })
    }

    /// What is called, for people.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Command { command, args, .. } => {
                [std::slice::from_ref(command), args].concat().join(" ")
            }
            Self::Http { url, .. } => url.clone(),
        }
    }
}

fn events(is_http: bool) -> impl Iterator<Item = &'static Event> {
    // Claude Code posts nothing before it has started, and `PostCompact` reports a compaction too.
    EVENTS.iter().filter(move |event| !(is_http && event.name == "SessionStart"))
}

pub(super) fn http_url(base: &str) -> String {
    let base = base.trim_end_matches('/');
    format!("{}{HTTP_PATH}", base.strip_suffix(HTTP_PATH).unwrap_or(base))
}

/// What a hook in a settings file calls, if it is one of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ours {
    Program(PathBuf),
    Server { url: String, key: String },
}

impl Ours {
    pub(super) fn of(hook: &Value) -> Option<Self> {
        if hook["type"] == "http" {
            let url = hook["url"].as_str().filter(|url| url.ends_with(HTTP_PATH))?.to_owned();
            // Other servers may use the same path, but only our keys have this form.
            let header = hook["headers"]["Authorization"].as_str();
            let key = header.and_then(|text| text.strip_prefix("Bearer "));
            let key = key.filter(|key| key.starts_with(KEY_PREFIX))?.to_owned();
            return Some(Self::Server { url, key });
        }
        let command = hook["command"].as_str().filter(|_| hook["type"] == "command")?;
        let words = match hook["args"].as_array() {
            Some(args) => {
                let args = args.iter().map(|arg| arg.as_str().unwrap_or_default().to_owned());
                [command.to_owned()].into_iter().chain(args).collect()
            }
            None => words(command),
        };
        let program = PathBuf::from(words.first()?);
        let is_ours = match program.file_name()?.to_str()? {
            "shikiri-hook" => true,
            "shikiri" => words[1..] == ["hook"],
            _ => false,
        };
        is_ours.then_some(Self::Program(program))
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &'static Event> + use<> {
        events(matches!(self, Self::Server { .. }))
    }

    /// What is called, for people.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Program(program) => program.display().to_string(),
            Self::Server { url, .. } => url.clone(),
        }
    }
}

/// Splits a command as a shell would, as far as quotes are concerned.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(chars.next()),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn our_hooks_are_known_however_they_are_written() {
        let ours = |hook: Value| Ours::of(&hook).is_some();
        let command = |command: &str| ours(json!({ "type": "command", "command": command }));
        assert!(command("shikiri hook"));
        assert!(command("\"/opt/my tools/shikiri-hook\""));
        assert!(command(r"'/opt/my tools/shikiri' hook"));
        assert!(command(r"/opt/my\ tools/shikiri-hook"));
        assert!(!command("shikiri hooks log"));
        assert!(!command("shikiri hook --fast"));
        assert!(!command("echo shikiri-hook"));
        assert!(!command(""));
        let exec = |args: &[&str]| {
            ours(json!({ "type": "command", "command": "/a b/shikiri", "args": args }))
        };
        assert!(exec(&["hook"]));
        assert!(!exec(&[]));
        let http = |path: &str, header: &str| {
            ours(json!({ "type": "http", "url": format!("http://h/{path}"),
                         "headers": { "Authorization": header } }))
        };
        assert!(http("hooks/claude", "Bearer shk_1"));
        assert!(!http("hooks/claude", "Bearer another's"));
        assert!(!http("hooks/claude", "shk_1"));
        assert!(!http("hooks/other", "Bearer shk_1"));
        assert!(!ours(json!({ "type": "http", "url": "https://audit.example.com/hooks/claude" })));
        assert!(!ours(json!({ "type": "prompt", "prompt": "shikiri hook" })));
        assert!(!ours(json!("shikiri-hook")));
    }

    #[test]
    fn a_servers_address_is_written_with_or_without_the_path() {
        for base in ["http://h:1", "http://h:1/", "http://h:1/hooks/claude"] {
            assert_eq!(http_url(base), "http://h:1/hooks/claude");
        }
    }
}
