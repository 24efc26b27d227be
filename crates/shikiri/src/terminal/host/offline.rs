//! What a server is told that asks for a model where none is configured.

use serde_json::{Value, json};
use shikiri_model::host::clean_line;

/// Without a model, and labelled so.
pub(crate) fn offline_sample(params: &Value) -> Value {
    let asked = params["messages"]
        .as_array()
        .and_then(|messages| messages.last())
        .and_then(|message| {
            let content = &message["content"];
            content["text"].as_str().or_else(|| content[0]["text"].as_str())
        })
        .unwrap_or_default();
    let asked: String = clean_line(asked).chars().take(200).collect();
    json!({
        "role": "assistant",
        "content": { "type": "text", "text": format!("[offline, no model was asked] {asked}") },
        "model": "interactive-client",
        "stopReason": "endTurn",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 4.16: without a model, the answer has the same shape and says what it is.
    #[test]
    fn an_answer_without_a_model_says_so() {
        let asked = json!({ "messages": [
            { "role": "user", "content": { "type": "text", "text": "Please summarize\u{1b}[2J" } },
        ] });
        let text = "[offline, no model was asked] Please summarize";
        let answer = json!({
            "role": "assistant",
            "content": { "type": "text", "text": text },
            "model": "interactive-client",
            "stopReason": "endTurn",
        });
        assert_eq!(offline_sample(&asked), answer);
    }
}
