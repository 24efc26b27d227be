//! Texts by the configured model: a plan for a goal, or what a plan's results come to.

use shikiri_model::models::Model;

use super::speaker::Speech;
use super::{Host, HostError};

const MAX_TOKENS: u32 = 8_000;

/// Why there is no text, with the next step.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoText {
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
    /// The model that writes, if there is one.
    pub async fn writing_model(&self) -> Result<Option<Model>, HostError> {
        Ok(self.model().await?)
    }

    /// What the model writes, told what to do and given the material.
    pub async fn write(&self, instructions: &str, material: &str) -> Result<String, NoText> {
        let model = self.model().await.map_err(|error| NoText::Failed {
            model: "of this project".to_owned(),
            why: error.to_string(),
        })?;
        let (Some(model), Some(speaker)) = (model, &self.speaker) else {
            return Err(NoText::NoModel);
        };
        let name = model.id.to_string();
        let speech = Speech {
            system: Some(instructions.to_owned()),
            said: vec![(false, material.to_owned())],
            max_tokens: MAX_TOKENS,
            env: self.app.engine_environment(&model),
            model,
        };
        let failed = |why: String| NoText::Failed { model: name, why };
        match speaker.speak(&speech).await {
            Ok(spoken) if spoken.text.trim().is_empty() => {
                Err(failed("it said nothing".to_owned()))
            }
            Ok(spoken) => Ok(spoken.text),
            Err(why) => Err(failed(why)),
        }
    }
}
