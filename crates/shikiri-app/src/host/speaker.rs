//! Sampling: a server that has a model asked through us. The configured model answers if whoever
//! watches the call agrees; without one the audience answers, and says so.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::{Value, json};
use shikiri_model::host::HostCall;
use shikiri_model::invisible::without_invisible;
use shikiri_model::models::{EngineKind, Model, Status};

use super::Host;
use super::audience::{Audience, Consent};
use crate::error::AppError;

/// What one answer may cost, whatever a server asks for.
const MAX_TOKENS: u64 = 4_096;
const MAX_MESSAGES: usize = 200;

/// Who has models speak.
#[async_trait]
pub trait Speaker: Send + Sync {
    /// Whether the model can be asked with this environment.
    async fn is_ready(&self, model: &Model, env: &BTreeMap<String, String>) -> bool;

    async fn speak(&self, wanted: &Speech) -> Result<Spoken, String>;
}

/// What a model is asked. Its environment may hold secrets: this is not printed.
pub struct Speech {
    pub model: Model,
    pub system: Option<String>,
    /// Whether the assistant said it, and what.
    pub said: Vec<(bool, String)>,
    pub max_tokens: u32,
    pub env: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spoken {
    pub text: String,
    /// As the model calls itself.
    pub model: String,
    /// As the model's API names it, such as `end_turn`.
    pub stop_reason: Option<String>,
}

impl Host {
    /// The result of `sampling/createMessage`, or why there is none.
    pub(super) async fn sample(
        &self,
        call: &HostCall,
        params: &Value,
        audience: &dyn Audience,
    ) -> Result<Value, String> {
        let Some(speaker) = &self.speaker else { return audience.sample(call, params).await };
        let model = self.model().await.map_err(|error| error.to_string())?;
        let ready = model.map(|model| (self.app.engine_environment(&model), model));
        let Some((env, model)) = ready else { return audience.sample(call, params).await };
        if !speaker.is_ready(&model, &env).await {
            return audience.sample(call, params).await;
        }
        let (system, said) = read(params)?;
        let prompt = said.last().map(|(_, text)| text.as_str()).unwrap_or_default();
        match audience.may_ask_model(call, &model.model_name, prompt).await {
            Consent::Given => {}
            Consent::Nobody => return audience.sample(call, params).await,
            Consent::Refused => return Err("the person declined to have a model asked".to_owned()),
        }
        let max_tokens = params["maxTokens"].as_u64().unwrap_or(MAX_TOKENS).clamp(1, MAX_TOKENS);
        let max_tokens = u32::try_from(max_tokens).unwrap_or(u32::MAX);
        let spoken = speaker.speak(&Speech { model, system, said, max_tokens, env }).await?;
        Ok(result_of(&spoken))
    }

    /// The tenant's model, if it is one that can be asked for a few words.
    pub(super) async fn model(&self) -> Result<Option<Model>, AppError> {
        let Some(id) = self.app.tenant(&self.tenant).await?.value.model_id else { return Ok(None) };
        let Ok(id) = id.parse() else { return Ok(None) };
        let model = match self.app.model(&id).await {
            Ok(stored) => stored.value,
            Err(AppError::NotFound { .. }) => return Ok(None),
            Err(other) => return Err(other),
        };
        let can = model.status == Status::Active && model.engine != EngineKind::Offline;
        Ok(can.then_some(model))
    }
}

type Read = (Option<String>, Vec<(bool, String)>);

/// System prompt and messages of a sampling request. Only texts are passed on.
fn read(params: &Value) -> Result<Read, String> {
    let messages = params["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    if messages.is_empty() || messages.len() > MAX_MESSAGES {
        return Err(format!("a model is asked with 1 to {MAX_MESSAGES} messages"));
    }
    let mut said = Vec::new();
    for message in messages {
        let is_assistant = match message["role"].as_str() {
            Some("assistant") => true,
            Some("user") => false,
            _ => return Err("a message is the user's or the assistant's".to_owned()),
        };
        let content = &message["content"];
        let blocks = content.as_array().map_or(std::slice::from_ref(content), Vec::as_slice);
        let texts: Option<Vec<&str>> = blocks.iter().map(|block| block["text"].as_str()).collect();
        let texts = texts.ok_or("only texts are passed on to a model")?;
        // The person who agrees to it sees no more than this.
        said.push((is_assistant, without_invisible(&texts.join("\n"))));
    }
    Ok((params["systemPrompt"].as_str().map(without_invisible), said))
}

fn result_of(spoken: &Spoken) -> Value {
    let stop_reason = match spoken.stop_reason.as_deref() {
        Some("max_tokens") => "maxTokens",
        Some("stop_sequence") => "stopSequence",
        _ => "endTurn",
    };
    json!({
        "role": "assistant",
        "content": { "type": "text", "text": spoken.text },
        "model": spoken.model,
        "stopReason": stop_reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_passed_on_and_nothing_else_is() {
        let params = json!({
            "systemPrompt": "be brief\u{e0041}",
            "messages": [
                { "role": "user", "content": { "type": "text", "text": "a\u{e0041}\u{200b}" } },
                { "role": "assistant", "content": [{ "type": "text", "text": "b" }, { "type": "text", "text": "c" }] },
            ],
        });
        let said = vec![(false, "a".to_owned()), (true, "b\nc".to_owned())];
        assert_eq!(read(&params), Ok((Some("be brief".to_owned()), said)));
        for wrong in [
            json!({}),
            json!({ "messages": [] }),
            json!({ "messages": [{ "role": "system", "content": { "text": "a" } }] }),
            json!({ "messages": [{ "role": "user", "content": { "type": "image", "data": "" } }] }),
        ] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
    }

    /// Row 4.16: the shape of a result, by whatever model.
    #[test]
    fn a_result_names_its_model_and_why_it_stopped() {
        let spoken = |reason: &str| Spoken {
            text: "x".to_owned(),
            model: "m".to_owned(),
            stop_reason: Some(reason.to_owned()),
        };
        let result = json!({
            "role": "assistant", "content": { "type": "text", "text": "x" },
            "model": "m", "stopReason": "endTurn",
        });
        assert_eq!(result_of(&spoken("end_turn")), result);
        assert_eq!(result_of(&spoken("max_tokens"))["stopReason"], "maxTokens");
    }
}
