//! A few words of a model, for an MCP server that asks for them through its host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use shikiri_app::host::{Speaker, Speech, Spoken};
use shikiri_model::models::Model;

use super::aws::AwsCredentialSources;
use super::client::Client;
use super::failure::Failure;
use super::provider::Provider;
use super::wire::{Message, Request, Role};

const LIMIT: Duration = Duration::from_secs(120);

/// Models by the Messages API.
#[derive(Debug, Default)]
pub struct Messages {
    aws: AwsCredentialSources,
}

impl Messages {
    /// With the AWS profiles in this home.
    pub fn at_home(home: Option<PathBuf>) -> Self {
        Self { aws: AwsCredentialSources::at_home(home) }
    }
}

#[async_trait]
impl Speaker for Messages {
    async fn is_ready(&self, model: &Model, env: &BTreeMap<String, String>) -> bool {
        match Provider::from_env(model, env, &self.aws).await {
            Ok(provider) => provider.ensure_credentials().await.is_ok(),
            Err(_) => false,
        }
    }

    async fn speak(&self, wanted: &Speech) -> Result<Spoken, String> {
        spoken(wanted, &self.aws).await.map_err(|failure| failure.to_string())
    }
}

async fn spoken(wanted: &Speech, aws: &AwsCredentialSources) -> Result<Spoken, Failure> {
    let provider = Provider::from_env(&wanted.model, &wanted.env, aws).await?;
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
