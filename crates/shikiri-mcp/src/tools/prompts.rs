//! A prompt per agent: what a person would say to have it called.

use std::sync::Arc;

use async_trait::async_trait;
use rmcp::model::{JsonObject, Prompt, PromptArgument};
use serde_json::{Value, json};
use shikiri_runtime::run::DurableAgent;

use crate::catalogue::PromptSource;
use crate::mcp_caller::McpCaller;
use crate::rpc_error::RpcError;

pub(super) struct AgentPrompt(pub(super) Arc<dyn DurableAgent>);

#[async_trait]
impl PromptSource for AgentPrompt {
    fn definition(&self) -> Prompt {
        let schema = self.0.input_schema();
        let required = |name: &str| {
            schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)))
        };
        let properties = schema["properties"].as_object().into_iter().flatten();
        let arguments = properties.map(|(name, property)| {
            let argument = PromptArgument::new(name).with_required(required(name));
            match property["description"].as_str() {
                Some(text) => argument.with_description(text),
                None => argument,
            }
        });
        let prompt =
            Prompt::new(self.0.name(), Some(self.0.description()), Some(arguments.collect()));
        prompt.with_title(self.0.title())
    }

    async fn get(&self, _: &McpCaller, arguments: &JsonObject) -> Result<Value, RpcError> {
        let schema = self.0.input_schema();
        let mut input = JsonObject::new();
        for (name, value) in arguments {
            let property = schema["properties"].get(name);
            let property = property.ok_or_else(|| {
                RpcError::params(format!("the prompt {} has no argument {name:?}", self.0.name()))
            })?;
            input.insert(name.clone(), typed(property, value));
        }
        let input = Value::Object(input);
        self.0.check(&input).map_err(RpcError::params)?;
        let text = format!(
            "{}: call the tool `{}` with the arguments {input} and tell me what came out.",
            self.0.description(),
            self.0.name()
        );
        Ok(json!({
            "description": self.0.description(),
            "messages": [{ "role": "user", "content": { "type": "text", "text": text } }],
        }))
    }

    async fn complete(&self, _: &McpCaller, argument: &str, start: &str) -> Vec<String> {
        let schema = self.0.input_schema();
        let property = &schema["properties"][argument];
        let known = property["enum"].as_array().cloned().unwrap_or_default();
        let known = known.into_iter().chain(property.get("default").cloned());
        let texts = known.map(|value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        });
        texts.filter(|text| text.starts_with(start)).collect()
    }
}

/// A prompt's arguments are all strings; the agent's are not.
fn typed(property: &Value, value: &Value) -> Value {
    let wants_text = property["type"] == json!("string");
    match value.as_str() {
        Some(text) if !wants_text => serde_json::from_str(text).unwrap_or_else(|_| value.clone()),
        _ => value.clone(),
    }
}
