//! Keeps what must stay secret out of what is told: values of headers, keys and tokens.

use serde_json::Value;
use shikiri_app::execution::Order;
use shikiri_model::execution::EngineMessage;

const INSTEAD: &str = "[REDACTED]";
/// Shorter ones are words that stand anywhere.
const SHORTEST: usize = 6;
/// Headers that say nothing about who calls.
const PLAIN_HEADERS: [&str; 3] = ["accept", "content-type", "user-agent"];
/// Parts of the names of variables that hold secrets.
const SECRET_NAMES: [&str; 4] = ["KEY", "TOKEN", "SECRET", "PASSWORD"];

#[derive(Default)]
pub(super) struct Redactor(Vec<String>);

impl Redactor {
    pub(super) fn new(order: &Order) -> Self {
        let headers = order.servers.iter().flat_map(|server| &server.headers);
        let headers = headers
            .filter(|(name, _)| !PLAIN_HEADERS.contains(&name.to_ascii_lowercase().as_str()))
            .map(|(_, value)| value);
        let is_secret = |name: &str| {
            let name = name.to_ascii_uppercase();
            SECRET_NAMES.iter().any(|part| name.contains(part))
        };
        let variables = order.env.iter().filter(|(name, _)| is_secret(name)).map(|(_, v)| v);
        let mut secrets = Vec::new();
        for value in headers.chain(variables) {
            secrets.push(value.clone());
            // What follows `Bearer` alone is the secret, too.
            secrets.extend(value.split_once(' ').map(|(_, rest)| rest.to_owned()));
        }
        secrets.retain(|secret| secret.len() >= SHORTEST);
        // The longest first: a part of it must not spoil the whole.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets)
    }

    pub(super) fn text(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), INSTEAD))
    }

    fn clean(&self, text: &mut String) {
        if self.0.iter().any(|secret| text.contains(secret.as_str())) {
            *text = self.text(text);
        }
    }

    fn clean_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.clean(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.clean_value(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.clean_value(field)),
            _ => {}
        }
    }

    pub(super) fn message(&self, mut message: EngineMessage) -> EngineMessage {
        if self.0.is_empty() {
            return message;
        }
        match &mut message {
            EngineMessage::TextDelta { text }
            | EngineMessage::Text { text, .. }
            | EngineMessage::Thinking { text, .. } => self.clean(text),
            EngineMessage::ToolUse(tool) => self.clean_value(&mut tool.input),
            EngineMessage::ToolResult { content, .. } | EngineMessage::Note { content, .. } => {
                self.clean_value(content);
            }
            EngineMessage::Warning { message, .. } => self.clean(message),
            EngineMessage::Finished(finish) => {
                self.clean(&mut finish.result);
                finish.errors.iter_mut().for_each(|error| self.clean(error));
            }
            EngineMessage::Started { .. }
            | EngineMessage::SubagentStarted(_)
            | EngineMessage::SubagentEnded { .. }
            | EngineMessage::Spent { .. } => {}
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_secret_leaves_in_whatever_form_it_comes() {
        let redactor = Redactor(vec!["Bearer hunter22".into(), "hunter22".into()]);
        assert_eq!(redactor.text("sent Bearer hunter22!"), "sent [REDACTED]!");
        let told = EngineMessage::ToolResult {
            tool_use_id: "t".into(),
            content: json!([{ "type": "text", "text": "env: hunter22" }]),
            is_error: false,
            parent: None,
        };
        let EngineMessage::ToolResult { content, .. } = redactor.message(told) else { panic!() };
        assert_eq!(content, json!([{ "type": "text", "text": "env: [REDACTED]" }]));
    }
}
