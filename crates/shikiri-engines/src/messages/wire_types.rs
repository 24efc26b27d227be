//! The used parts of the API's requests and responses.

use serde::{Deserialize, Serialize};
use shikiri_model::execution::TokenUsage;

#[derive(Clone, Debug, Serialize)]
pub struct MessagesRequest {
    /// The provider's name of the model.
    pub model: String,
    pub max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    pub messages: Vec<ModelInputMessage>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ModelInputMessage {
    pub role: ModelMessageRole,
    pub content: String,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelMessageRole {
    User,
    Assistant,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MessagesResponse {
    /// The model's name in the response.
    #[serde(default)]
    pub model: Option<String>,
    pub content: Vec<ResponseBlock>,
    #[serde(default)]
    pub stop_reason: Option<String>,
    #[serde(default, deserialize_with = "usage")]
    pub usage: TokenUsage,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResponseBlock {
    Text {
        text: String,
    },
    /// Thinking and other blocks that are not used.
    #[serde(other)]
    Other,
}

impl MessagesResponse {
    /// The text blocks, without thinking.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|block| match block {
            ResponseBlock::Text { text } => Some(text.as_str()),
            ResponseBlock::Other => None,
        });
        texts.collect()
    }
}

/// Tokens as the API counts them. In a stream, later numbers replace earlier ones.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct ApiTokenUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    /// All that was written to the cache.
    cache_creation_input_tokens: Option<u64>,
    /// The same by cache duration; older APIs omit it.
    cache_creation: Option<CacheCreationUsage>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct CacheCreationUsage {
    ephemeral_5m_input_tokens: Option<u64>,
    ephemeral_1h_input_tokens: Option<u64>,
}

impl ApiTokenUsage {
    pub(super) fn update(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.cache_read_input_tokens =
            later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens =
            later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_creation = later.cache_creation.or(self.cache_creation);
    }

    pub(super) fn usage(&self) -> TokenUsage {
        let kept = self.cache_creation.unwrap_or_default();
        let [short, long] = [kept.ephemeral_5m_input_tokens, kept.ephemeral_1h_input_tokens]
            .map(Option::unwrap_or_default);
        // Cache writes are five-minute ones unless the API says otherwise.
        let rest = self.cache_creation_input_tokens.unwrap_or(0).saturating_sub(long);
        TokenUsage {
            input_tokens: self.input_tokens.unwrap_or(0),
            output_tokens: self.output_tokens.unwrap_or(0),
            cache_write_5m_tokens: short.max(rest),
            cache_write_1h_tokens: long,
            cache_read_tokens: self.cache_read_input_tokens.unwrap_or(0),
        }
    }
}

fn usage<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<TokenUsage, D::Error> {
    Ok(Option::<ApiTokenUsage>::deserialize(deserializer)?.unwrap_or_default().usage())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn counted(usage: Value) -> (u64, u64) {
        let response = json!({ "content": [], "usage": usage });
        let usage = serde_json::from_value::<MessagesResponse>(response).unwrap().usage;
        (usage.cache_write_5m_tokens, usage.cache_write_1h_tokens)
    }

    #[test]
    fn cache_writes_are_split_by_how_long_they_are_kept() {
        let kept = json!({ "ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4 });
        let both = json!({ "cache_creation_input_tokens": 7, "cache_creation": kept });
        assert_eq!(counted(both), (3, 4));
        assert_eq!(counted(json!({ "cache_creation": kept })), (3, 4));
        assert_eq!(counted(json!({ "cache_creation_input_tokens": 7 })), (7, 0));
        let nothing = json!({ "cache_creation_input_tokens": null, "cache_creation": null });
        assert_eq!(counted(nothing), (0, 0));
        assert_eq!(counted(json!(null)), (0, 0));
    }

    #[test]
    fn text_is_what_was_said() {
        let response: MessagesResponse = serde_json::from_value(json!({
            "model": "m", "stop_reason": "end_turn",
            "content": [
                { "type": "thinking", "thinking": "hm", "signature": "s" },
                { "type": "text", "text": "a" },
                { "type": "tool_use", "id": "t", "name": "n", "input": {} },
                { "type": "text", "text": "b" },
            ],
            "usage": { "input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3 },
        }))
        .unwrap();
        assert_eq!(response.text(), "ab");
        let usage = (1, 2, 3);
        let found = response.usage;
        assert_eq!((found.input_tokens, found.output_tokens, found.cache_read_tokens), usage);
    }
}
