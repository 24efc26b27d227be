//! Texts by the configured model: a plan for a goal, or a synthesis of a plan's results.

use shikiri_model::models::Model;

use super::sampling_model::SamplingRequest;
use super::{Host, HostError};

const MAX_TOKENS: u32 = 8_000;

/// Why no text was generated, with the next step for the user.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TextGenerationError {
    #[error(
        "no model can be asked, only the offline one: create one with `shikiri models create ID \
         --engine anthropic --model-name NAME`, and choose it with `shikiri tenants set local \
         --model ID`"
    )]
    NoModel,
    #[error("the model {model} gave no text: {why}")]
    Failed { model: String, why: String },
}

impl Host {
    /// The model that writes texts, if there is one.
    pub async fn writing_model(&self) -> Result<Option<Model>, HostError> {
        Ok(self.model().await?)
    }

    /// Has the model write a text from instructions and material.
    pub async fn generate_text(
        &self,
        instructions: &str,
        material: &str,
    ) -> Result<String, TextGenerationError> {
        let model = self.model().await.map_err(|error| TextGenerationError::Failed {
            model: "of this project".to_owned(),
            why: error.to_string(),
        })?;
        let (Some(model), Some(sampling_model)) = (model, &self.sampling_model) else {
            return Err(TextGenerationError::NoModel);
        };
        let name = model.id.to_string();
        let request = SamplingRequest {
            system: Some(instructions.to_owned()),
            said: vec![(false, material.to_owned())],
            max_tokens: MAX_TOKENS,
            env: self.executions.engine_environment(&model),
            model,
        };
        let failed = |why: String| TextGenerationError::Failed { model: name, why };
        match sampling_model.create_message(&request).await {
            Ok(response) if response.text.trim().is_empty() => {
                Err(failed("it said nothing".to_owned()))
            }
            Ok(response) => Ok(response.text),
            Err(why) => Err(failed(why)),
        }
    }
}
