//! Sampling: a server asks for a model's answer. The configured model answers if the user agrees.
//! Without a model, the `UserInteraction` answers.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::{Value, json};
use shikiri_model::host::HostCall;
use shikiri_model::invisible_chars::without_invisible;
use shikiri_model::models::{ActiveStatus, EngineKind, Model};
use shikiri_runtime::AppError;

use super::Host;
use super::user_interaction::{SamplingConsent, UserInteraction};

/// The token limit of one answer, whatever a server asks for.
const MAX_TOKENS: u64 = 4_096;
const MAX_MESSAGES: usize = 200;

/// Calls models for sampling requests.
#[async_trait]
pub trait SamplingModel: Send + Sync {
    /// Whether the model can be called with this environment.
    async fn is_ready(&self, model: &Model, env: &BTreeMap<String, String>) -> bool;

    async fn create_message(&self, wanted: &SamplingRequest) -> Result<SamplingResponse, String>;
}

/// A request to a model. The environment may hold secrets, so the type has no `Debug`.
pub struct SamplingRequest {
    pub model: Model,
    pub system: Option<String>,
    /// The messages: whether it is the assistant's, and the text.
    pub said: Vec<(bool, String)>,
    pub max_tokens: u32,
    pub env: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplingResponse {
    pub text: String,
    /// The model's name for itself.
    pub model: String,
    /// The stop reason in the model's API, such as `end_turn`.
    pub stop_reason: Option<String>,
}

impl Host {
    /// Answers `sampling/createMessage`: the result, or why there is none.
    pub(super) async fn sample(
        &self,
        call: &HostCall,
        params: &Value,
        user: &dyn UserInteraction,
    ) -> Result<Value, String> {
        let Some(sampling_model) = &self.sampling_model else {
            return user.sample(call, params).await;
        };
        let model = self.model().await.map_err(|error| error.to_string())?;
        let ready = model.map(|model| (self.executions.engine_environment(&model), model));
        let Some((env, model)) = ready else { return user.sample(call, params).await };
        if !sampling_model.is_ready(&model, &env).await {
            return user.sample(call, params).await;
        }
        let (system, said) = read(params)?;
        let prompt = said.last().map(|(_, text)| text.as_str()).unwrap_or_default();
        match user.may_ask_model(call, &model.model_name, prompt).await {
            SamplingConsent::Given => {}
            SamplingConsent::NoUser => return user.sample(call, params).await,
            SamplingConsent::Refused => {
                return Err("the person declined to have a model asked".to_owned());
            }
        }
        let max_tokens = params["maxTokens"].as_u64().unwrap_or(MAX_TOKENS).clamp(1, MAX_TOKENS);
        let max_tokens = u32::try_from(max_tokens).unwrap_or(u32::MAX);
        let response = sampling_model
            .create_message(&SamplingRequest { model, system, said, max_tokens, env })
            .await?;
        Ok(result_of(&response))
    }

    /// The tenant's model, if it is active and can generate text.
    pub(super) async fn model(&self) -> Result<Option<Model>, AppError> {
        let Some(id) = self.runtime.tenant(&self.tenant).await?.value.model_id else {
            return Ok(None);
        };
        let Ok(id) = id.parse() else { return Ok(None) };
        let model = match self.tenancy.model(&id).await {
            Ok(stored) => stored.value,
            Err(AppError::NotFound { .. }) => return Ok(None),
            Err(other) => return Err(other),
        };
        let can = model.status == ActiveStatus::Active && model.engine != EngineKind::Offline;
        Ok(can.then_some(model))
    }
}

type SamplingPrompt = (Option<String>, Vec<(bool, String)>);

/// Reads the system prompt and the messages of a sampling request. Only texts are passed on.
fn read(params: &Value) -> Result<SamplingPrompt, String> {
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
        // The user who consents sees only visible characters.
        said.push((is_assistant, without_invisible(&texts.join("\n"))));
    }
    Ok((params["systemPrompt"].as_str().map(without_invisible), said))
}

fn result_of(response: &SamplingResponse) -> Value {
    let stop_reason = match response.stop_reason.as_deref() {
        Some("max_tokens") => "maxTokens",
        Some("stop_sequence") => "stopSequence",
        _ => "endTurn",
    };
    json!({
        "role": "assistant",
        "content": { "type": "text", "text": response.text },
        "model": response.model,
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

    /// Row 4.16: the shape of a result, for any model.
    #[test]
    fn a_result_names_its_model_and_why_it_stopped() {
        let response = |reason: &str| SamplingResponse {
            text: "x".to_owned(),
            model: "m".to_owned(),
            stop_reason: Some(reason.to_owned()),
        };
        let result = json!({
            "role": "assistant", "content": { "type": "text", "text": "x" },
            "model": "m", "stopReason": "endTurn",
        });
        assert_eq!(result_of(&response("end_turn")), result);
        assert_eq!(result_of(&response("max_tokens"))["stopReason"], "maxTokens");
    }
}
