//! The reply to a server that asks for a model where none is configured.

use serde_json::{Value, json};
use shikiri_model::host::sanitize_line;

/// A reply without a model, labelled as such.
pub(crate) fn offline_sample(params: &Value) -> Value {
    let asked = params["messages"]
        .as_array()
        .and_then(|messages| messages.last())
        .and_then(|message| {
            let content = &message["content"];
            content["text"].as_str().or_else(|| content[0]["text"].as_str())
        })
        .unwrap_or_default();
    let asked: String = sanitize_line(asked).chars().take(200).collect();
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

    /// Row 4.16: without a model, the reply has the same form and says so.
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
