//! Removes secrets from messages: values of headers, keys and tokens.

use serde_json::Value;
use shikiri_executions::execution::{ResolvedServer, TurnRequest, with_bare_secret};
use shikiri_model::execution::EngineMessage;
use shikiri_model::key::SecretToken;
use shikiri_model::known_secrets::KnownSecrets;

/// Parts of the names of variables that hold secrets.
const SECRET_NAMES: [&str; 4] = ["KEY", "TOKEN", "SECRET", "PASSWORD"];

#[derive(Default)]
pub(crate) struct SecretRedactor {
    secrets: KnownSecrets,
    /// The end of a streamed text that may be the start of a secret.
    held: String,
}

impl SecretRedactor {
    pub(crate) fn new(request: &TurnRequest) -> Self {
        let headers = request.servers.iter().flat_map(ResolvedServer::secret_values);
        let is_secret = |name: &str| {
            let name = name.to_ascii_uppercase();
            SECRET_NAMES.iter().any(|part| name.contains(part))
        };
        let variables = request.env.iter().filter(|(name, _)| is_secret(name)).map(|(_, v)| v);
        let variables = variables.flat_map(|value| with_bare_secret(value));
        Self::of(request.secrets.iter().cloned().chain(headers).chain(variables))
    }

    /// Adds secrets, such as credentials that were fetched during the run.
    pub(crate) fn add_secrets(&mut self, secrets: Vec<SecretToken>) {
        if secrets.iter().any(|secret| !self.secrets.contains(secret.reveal())) {
            let more = secrets.iter().map(|secret| secret.reveal().to_owned());
            self.secrets = std::mem::take(&mut self.secrets).with(more);
        }
    }

    fn of(secrets: impl IntoIterator<Item = String>) -> Self {
        Self { secrets: KnownSecrets::new(secrets), held: String::new() }
    }

    pub(crate) fn text(&self, text: &str) -> String {
        self.secrets.redact(text)
    }

    fn clean(&self, text: &mut String) {
        *text = self.text(text);
    }

    pub(crate) fn clean_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.clean(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.clean_value(item)),
            Value::Object(fields) => {
                let cleaned = std::mem::take(fields).into_iter().map(|(name, mut field)| {
                    self.clean_value(&mut field);
                    (self.text(&name), field)
                });
                *fields = cleaned.collect();
            }
            _ => {}
        }
    }

    /// The messages to send: none or several while text is streamed.
    pub(crate) fn message(&mut self, mut message: EngineMessage) -> Vec<EngineMessage> {
        if self.secrets.is_empty() {
            return vec![message];
        }
        let mut told = Vec::new();
        match &mut message {
            EngineMessage::TextDelta { text } => return self.piece(text).into_iter().collect(),
            EngineMessage::Text { text, parent, .. } | EngineMessage::Thinking { text, parent } => {
                // Messages of subagents may come between two pieces.
                told.extend(parent.is_none().then(|| self.flush()).flatten());
                self.clean(text);
            }
            EngineMessage::ToolUse(tool) => {
                told.extend(tool.parent.is_none().then(|| self.flush()).flatten());
                self.clean(&mut tool.name);
                self.clean_value(&mut tool.input);
            }
            // The model chooses these texts.
            EngineMessage::SubagentStarted(start) => {
                self.clean(&mut start.subagent_type);
                start.model.iter_mut().for_each(|model| self.clean(model));
            }
            EngineMessage::ToolResult { content, .. } | EngineMessage::Note { content, .. } => {
                self.clean_value(content);
            }
            EngineMessage::Warning { message, server, .. } => {
                self.clean(message);
                server.iter_mut().for_each(|server| self.clean(server));
            }
            EngineMessage::Finished(finish) => {
                told.extend(self.flush());
                self.clean(&mut finish.result);
                finish.errors.iter_mut().for_each(|error| self.clean(error));
            }
            EngineMessage::Started { .. }
            | EngineMessage::SubagentEnded { .. }
            | EngineMessage::Spent { .. } => {}
        }
        told.push(message);
        told
    }

    fn piece(&mut self, text: &str) -> Option<EngineMessage> {
        self.held.push_str(text);
        let (clean, taken) = self.secrets.redact_piece(self.held.as_bytes(), false);
        self.held.drain(..taken);
        let text = String::from_utf8_lossy(&clean).into_owned();
        (!text.is_empty()).then_some(EngineMessage::TextDelta { text })
    }

    /// The rest of a text that has ended.
    pub(crate) fn flush(&mut self) -> Option<EngineMessage> {
        let held = std::mem::take(&mut self.held);
        let text = self.text(&held);
        (!text.is_empty()).then_some(EngineMessage::TextDelta { text })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shikiri_model::execution::{SubagentStart, ToolUse};
    use shikiri_model::run::WarningCode;

    use super::*;

    fn redactor() -> SecretRedactor {
        SecretRedactor::of(
            ["hunter22", "Bearer hunter22", "hunter22-木-long", "", "short"]
                .map(Into::into)
                .to_vec(),
        )
    }

    #[test]
    fn secrets_are_removed_from_texts_names_and_values() {
        let mut redactor = redactor();
        assert_eq!(redactor.text("sent Bearer hunter22!"), "sent [REDACTED]!");
        assert_eq!(redactor.text("Token token=hunter22"), "Token token=[REDACTED]");
        let told = EngineMessage::ToolResult {
            tool_use_id: "t".into(),
            content: json!([{ "type": "text", "env: hunter22": { "hunter22": "a hunter22" } }]),
            is_error: false,
            parent: None,
        };
        let told = redactor.message(told);
        let [EngineMessage::ToolResult { content, .. }] = &told[..] else { panic!("{told:?}") };
        let inner = json!({ "[REDACTED]": "a [REDACTED]" });
        assert_eq!(content, &json!([{ "type": "text", "env: [REDACTED]": inner }]));
    }

    #[test]
    fn names_that_a_model_or_a_cli_chooses_are_cleaned_too() {
        let mut redactor = redactor();
        let named = |name: &str| {
            let name = name.to_owned();
            let start = SubagentStart {
                tool_use_id: "t".into(),
                agent_id: None,
                subagent_type: name.clone(),
                model: Some(name.clone()),
            };
            let (input, server) = (json!({}), Some(name.clone()));
            [
                EngineMessage::ToolUse(ToolUse { id: "t".into(), name, input, parent: None }),
                EngineMessage::SubagentStarted(start),
                EngineMessage::Warning {
                    code: WarningCode::PriceUnknown,
                    message: "m".into(),
                    server,
                },
            ]
        };
        for (told, clean) in named("a hunter22").into_iter().zip(named("a [REDACTED]")) {
            assert_eq!(redactor.message(told), [clean]);
        }
    }

    /// The pieces that are told of a text that comes in these, and of its end.
    fn streamed(redactor: &mut SecretRedactor, pieces: &[&str]) -> Vec<String> {
        let delta = |text: &str| EngineMessage::TextDelta { text: text.to_owned() };
        let whole = EngineMessage::Text { text: pieces.concat(), parent: None, streamed: true };
        // A subagent talks in between.
        let other =
            EngineMessage::Text { text: "-".into(), parent: Some("t".into()), streamed: false };
        let mut told = Vec::new();
        for piece in pieces {
            told.extend(redactor.message(delta(piece)));
            assert_eq!(redactor.message(other.clone()), std::slice::from_ref(&other));
        }
        told.extend(redactor.message(whole));
        let end = told.pop();
        let told: Vec<_> = told
            .into_iter()
            .map(|told| match told {
                EngineMessage::TextDelta { text } => text,
                told => panic!("{told:?}"),
            })
            .collect();
        let Some(EngineMessage::Text { text, .. }) = end else { panic!("{end:?}") };
        assert_eq!(told.concat(), text);
        assert!(!text.contains("hunter22"), "{text}");
        told
    }

    #[test]
    fn a_secret_in_pieces_is_found_and_other_text_is_not_held_back() {
        let mut redactor = redactor();
        let told = streamed(&mut redactor, &["it is hun", "te", "r22", " indeed"]);
        assert_eq!(told, ["it is ", "[REDACTED] indeed"]);
        assert_eq!(streamed(&mut redactor, &["a hunt", "ed fox"]), ["a ", "hunted fox"]);
        // The start of one at the very end is told, too, and does not leak into what follows.
        assert_eq!(streamed(&mut redactor, &["the hunt"]), ["the ", "hunt"]);
        assert_eq!(streamed(&mut redactor, &["er22"]), ["er22"]);
    }

    #[test]
    fn however_a_text_is_cut_its_pieces_make_the_whole() {
        let text = "Bearer Bearer hunter22-木-lon hunter22-木-long, hunhunter22 木hunter22";
        let places: Vec<_> = text.char_indices().map(|(place, _)| place).collect();
        for &first in &places {
            for &second in places.iter().filter(|&&second| second >= first) {
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                streamed(&mut redactor(), &pieces);
            }
        }
    }
}
