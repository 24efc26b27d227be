//! A client's request to the model, and what scripts read from it.

use serde_json::Value;

/// One request as received, on any path.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    pub method: String,
    /// Without the query.
    pub path: String,
    pub headers: Vec<(String, String)>,
    /// Null if there was none or it was not JSON.
    pub body: Value,
}

/// A tool's result, as the model sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    pub tool_use_id: String,
    /// All text parts, joined by newlines.
    pub text: String,
    pub is_error: bool,
}

impl ModelRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Whether this requests an assistant message, from Anthropic or Bedrock.
    pub fn is_message(&self) -> bool {
        self.method == "POST" && (self.path == "/v1/messages" || self.bedrock().is_some())
    }

    /// The model in Bedrock's path, and whether a stream is requested.
    pub(super) fn bedrock(&self) -> Option<(&str, bool)> {
        match self.path.strip_prefix("/model/")?.split_once('/')? {
            (model, "invoke") => Some((model, false)),
            (model, "invoke-with-response-stream") => Some((model, true)),
            _ => None,
        }
    }

    /// Claude Code's session.
    pub fn session_id(&self) -> Option<&str> {
        self.header("x-claude-code-session-id")
    }

    /// Claude Code's subagent, or a native engine's; None on the main thread.
    pub fn agent_id(&self) -> Option<&str> {
        self.header("x-claude-code-agent-id").or_else(|| self.header("x-shikiri-agent-id"))
    }

    /// As written: in a path of Bedrock, a slash is `%2F`.
    pub fn model(&self) -> &str {
        let named = self.bedrock().map(|(model, _)| model);
        named.or(self.body["model"].as_str()).unwrap_or("fake-model")
    }

    pub fn wants_stream(&self) -> bool {
        self.bedrock().map_or(self.body["stream"] == true, |(_, stream)| stream)
    }

    /// Names of the available tools.
    pub fn tools(&self) -> Vec<&str> {
        items(&self.body["tools"]).iter().filter_map(|tool| tool["name"].as_str()).collect()
    }

    /// The newest tool results: those that no assistant message follows yet.
    pub fn tool_results(&self) -> Vec<ToolResult> {
        let messages = items(&self.body["messages"]);
        let answered = messages.iter().rposition(|message| message["role"] == "assistant");
        let fresh = messages.iter().skip(answered.map_or(0, |at| at + 1));
        let blocks = fresh.flat_map(|message| items(&message["content"]));
        blocks.filter(|block| block["type"] == "tool_result").map(tool_result).collect()
    }

    /// Whether the user has said this anywhere in the conversation.
    pub fn says(&self, words: &str) -> bool {
        self.said_at(words).is_some()
    }

    /// The position of the last user message with `words`.
    pub(super) fn said_at(&self, words: &str) -> Option<usize> {
        let said = |message: &Value| {
            message["role"] == "user"
                && texts(&message["content"]).any(|text| without_reminders(text).contains(words))
        };
        items(&self.body["messages"]).iter().rposition(said)
    }

    /// The number of assistant messages since that position.
    pub(super) fn turns_since(&self, position: usize) -> usize {
        let later = items(&self.body["messages"]).iter().skip(position + 1);
        later.filter(|message| message["role"] == "assistant").count()
    }
}

fn tool_result(block: &Value) -> ToolResult {
    ToolResult {
        tool_use_id: block["tool_use_id"].as_str().unwrap_or_default().to_owned(),
        text: texts(&block["content"]).collect::<Vec<_>>().join("\n"),
        is_error: block["is_error"] == true,
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Content is a text or a list of blocks, some of which are texts.
fn texts(content: &Value) -> impl Iterator<Item = &str> {
    let blocks = items(content).iter().filter(|block| block["type"] == "text");
    content.as_str().into_iter().chain(blocks.filter_map(|block| block["text"].as_str()))
}

/// The text without Claude Code's own additions: words in them (a project's notes, a hook's
/// context) are not the user's.
fn without_reminders(text: &str) -> String {
    let (open, close) = ("<system-reminder>", "</system-reminder>");
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, inside)) = rest.split_once(open) {
        kept.push_str(before);
        rest = inside.split_once(close).map_or("", |(_, after)| after);
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(messages: Value) -> ModelRequest {
        let body = json!({ "messages": messages });
        let (method, path) = ("POST".to_owned(), "/v1/messages".to_owned());
        ModelRequest { method, path, headers: Vec::new(), body }
    }

    #[test]
    fn words_are_looked_for_in_what_the_user_said_last() {
        let asked = request(json!([
            { "role": "user", "content": "go" },
            { "role": "assistant", "content": [{ "type": "text", "text": "stop" }] },
            { "role": "user", "content": [
                { "type": "text", "text": "<system-reminder>stop</system-reminder>go on" },
            ] },
            { "role": "system", "content": "stop" },
        ]));
        assert_eq!(asked.said_at("go"), Some(2));
        assert_eq!(asked.said_at("stop"), None);
        assert_eq!((asked.turns_since(0), asked.turns_since(2)), (1, 0));
    }

    #[test]
    fn only_unanswered_tool_results_are_new() {
        let result = |id: &str, content: Value| {
            json!({ "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": id, "content": content, "is_error": true },
            ] })
        };
        let asked = request(json!([
            result("old", json!("x")),
            { "role": "assistant", "content": "y" },
            result("a", json!("plain")),
            result("b", json!([{ "type": "text", "text": "1" }, { "type": "text", "text": "2" }])),
        ]));
        let new = |id: &str, text: &str| ToolResult {
            tool_use_id: id.to_owned(),
            text: text.to_owned(),
            is_error: true,
        };
        assert_eq!(asked.tool_results(), [new("a", "plain"), new("b", "1\n2")]);
    }
}
