//! A streaming request to the model: instructions, tools, the whole conversation.

use serde::Serialize;
use serde_json::{Value, json};

/// A request whose answer is streamed.
#[derive(Clone, Copy, Debug)]
pub struct StreamingRequest<'a> {
    /// The provider's name of the model.
    pub model: &'a str,
    pub max_tokens: u64,
    pub system: &'a str,
    pub tools: &'a [Value],
    pub messages: &'a [Value],
    /// The budget of thinking tokens; `None` disables thinking.
    pub thinking: Option<u64>,
    /// The subagent that asks.
    pub agent: Option<&'a str>,
}

#[derive(Serialize)]
struct StreamingRequestBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    anthropic_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
    max_tokens: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<&'a Value>,
    messages: Vec<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Value>,
}

impl StreamingRequest<'_> {
    /// The body. On Bedrock, the path holds the model and requests a stream.
    ///
    /// Tools, instructions and the conversation are marked for caching, because the next request of the
    /// turn begins with the same.
    pub(super) fn body(&self, bedrock: Option<&str>) -> Result<Vec<u8>, serde_json::Error> {
        let is_bedrock = bedrock.is_some();
        let last_tool = self.tools.last().map(cached);
        let last_message = self.messages.last().map(cached_message);
        let system = match self.system.trim() {
            "" => Vec::new(),
            text => vec![cached(&json!({ "type": "text", "text": text }))],
        };
        let body = StreamingRequestBody {
            model: (!is_bedrock).then_some(self.model),
            anthropic_version: bedrock,
            stream: (!is_bedrock).then_some(true),
            max_tokens: self.max_tokens,
            system,
            tools: with_last(self.tools, last_tool.as_ref()),
            messages: with_last(self.messages, last_message.as_ref()),
            // The budget must leave room for the answer.
            thinking: self
                .thinking
                .filter(|budget| *budget < self.max_tokens)
                .map(|budget| json!({ "type": "enabled", "budget_tokens": budget })),
        };
        serde_json::to_vec(&body)
    }
}

fn with_last<'a>(all: &'a [Value], last: Option<&'a Value>) -> Vec<&'a Value> {
    let before = all.len().saturating_sub(1);
    all.iter().take(before).chain(last).collect()
}

fn cached(block: &Value) -> Value {
    let mut block = block.clone();
    block["cache_control"] = json!({ "type": "ephemeral" });
    block
}

/// The message, marked for caching at its last block that allows it.
fn cached_message(message: &Value) -> Value {
    let mut message = message.clone();
    if let Some(blocks) = message["content"].as_array_mut() {
        let may_be = |block: &&mut Value| {
            !matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"))
        };
        if let Some(block) = blocks.iter_mut().rev().find(may_be) {
            *block = cached(block);
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stable_prefix_is_marked_for_caching() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        let messages = [
            json!({ "role": "user", "content": [text("一")] }),
            json!({ "role": "assistant", "content": [text("a"), { "type": "thinking" }] }),
        ];
        let tools = [json!({ "name": "f" }), json!({ "name": "g" })];
        let ask = StreamingRequest {
            model: "m",
            max_tokens: 2_000,
            system: "Be terse.",
            tools: &tools,
            messages: &messages,
            thinking: Some(1_024),
            agent: None,
        };
        let read = |body: Vec<u8>| serde_json::from_slice::<Value>(&body).unwrap();
        let mark = json!({ "type": "ephemeral" });
        let body = read(ask.body(None).unwrap());
        assert_eq!(
            body,
            json!({
                "model": "m", "stream": true, "max_tokens": 2_000,
                "system": [{ "type": "text", "text": "Be terse.", "cache_control": mark }],
                "tools": [{ "name": "f" }, { "name": "g", "cache_control": mark }],
                "messages": [
                    { "role": "user", "content": [text("一")] },
                    { "role": "assistant", "content": [
                        { "type": "text", "text": "a", "cache_control": mark },
                        { "type": "thinking" },
                    ] },
                ],
                "thinking": { "type": "enabled", "budget_tokens": 1_024 },
            })
        );
        let small = StreamingRequest { max_tokens: 1_000, system: " ", tools: &[], ..ask };
        let body = read(small.body(Some("bedrock-1")).unwrap());
        let names: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, ["anthropic_version", "max_tokens", "messages"]);
    }
}
