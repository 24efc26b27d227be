//! A few words of a model, for an MCP server that asks for them through its host.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use shikiri_app::host::{Speaker, Speech, Spoken};
use shikiri_model::models::Model;

use super::client::Client;
use super::failure::Failure;
use super::provider::Provider;
use super::wire::{Message, Request, Role};

const LIMIT: Duration = Duration::from_secs(120);

/// Models by the Messages API.
#[derive(Clone, Copy, Debug, Default)]
pub struct Messages;

#[async_trait]
impl Speaker for Messages {
    fn is_ready(&self, model: &Model, env: &BTreeMap<String, String>) -> bool {
        Provider::from_env(model, env).is_ok()
    }

    async fn speak(&self, wanted: &Speech) -> Result<Spoken, String> {
        spoken(wanted).await.map_err(|failure| failure.to_string())
    }
}

async fn spoken(wanted: &Speech) -> Result<Spoken, Failure> {
    let provider = Provider::from_env(&wanted.model, &wanted.env)?;
    let client = Client::new(provider, &wanted.env)?;
    let message = |(is_assistant, text): &(bool, String)| Message {
        role: if *is_assistant { Role::Assistant } else { Role::User },
        content: text.clone(),
    };
    let request = Request {
        model: wanted.model.model_name.clone(),
        max_tokens: wanted.max_tokens,
        system: wanted.system.clone(),
        messages: wanted.said.iter().map(message).collect(),
    };
    let response = client.send(&request, LIMIT).await?;
    Ok(Spoken {
        text: response.text(),
        model: response.model.unwrap_or_else(|| wanted.model.model_name.clone()),
        stop_reason: response.stop_reason,
    })
}
