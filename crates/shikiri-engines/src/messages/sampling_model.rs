//! Answers sampling requests of MCP servers with a model.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use shikiri_host::{SamplingModel, SamplingRequest, SamplingResponse};
use shikiri_model::models::Model;

use super::aws::AwsCredentialSources;
use super::messages_client::MessagesClient;
use super::model_api_error::ModelApiError;
use super::model_provider::ModelProvider;
use super::wire_types::{MessagesRequest, ModelInputMessage, ModelMessageRole};

const LIMIT: Duration = Duration::from_secs(120);

/// Samples models over the Messages API.
#[derive(Debug, Default)]
pub struct MessagesSamplingModel {
    aws: AwsCredentialSources,
}

impl MessagesSamplingModel {
    /// With the AWS profiles in this home.
    pub fn at_home(home: Option<PathBuf>) -> Self {
        Self { aws: AwsCredentialSources::at_home(home) }
    }
}

#[async_trait]
impl SamplingModel for MessagesSamplingModel {
    async fn is_ready(&self, model: &Model, env: &BTreeMap<String, String>) -> bool {
        match ModelProvider::from_env(model, env, &self.aws).await {
            Ok(provider) => provider.ensure_credentials().await.is_ok(),
            Err(_) => false,
        }
    }

    async fn create_message(&self, wanted: &SamplingRequest) -> Result<SamplingResponse, String> {
        sample_text(wanted, &self.aws).await.map_err(|failure| failure.to_string())
    }
}

async fn sample_text(
    wanted: &SamplingRequest,
    aws: &AwsCredentialSources,
) -> Result<SamplingResponse, ModelApiError> {
    let provider = ModelProvider::from_env(&wanted.model, &wanted.env, aws).await?;
    let client = MessagesClient::new(provider, &wanted.env)?;
    let message = |(is_assistant, text): &(bool, String)| ModelInputMessage {
        role: if *is_assistant { ModelMessageRole::Assistant } else { ModelMessageRole::User },
        content: text.clone(),
    };
    let request = MessagesRequest {
        model: wanted.model.model_name.clone(),
        max_tokens: wanted.max_tokens,
        system: wanted.system.clone(),
        messages: wanted.said.iter().map(message).collect(),
    };
    let response = client.send(&request, LIMIT).await?;
    Ok(SamplingResponse {
        text: response.text(),
        model: response.model.unwrap_or_else(|| wanted.model.model_name.clone()),
        stop_reason: response.stop_reason,
    })
}
