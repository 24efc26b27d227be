//! The model that writes for plans: the project's default one, asked over its provider's API.

use std::time::Duration;

use async_trait::async_trait;
use shikiri_app::App;
use shikiri_app::host::Writer;
use shikiri_engines::messages::{Client, Message, Provider, Request, Role};
use shikiri_model::ids::{ModelId, TenantId};
use shikiri_model::models::{EngineKind, Model, Status};

use crate::exit::{Exit, Failure};

const LIMIT: Duration = Duration::from_secs(180);
const MAX_TOKENS: u32 = 8_000;
const NEXT: &str = "create one with `shikiri models create ID --engine anthropic --model-name \
                    NAME`, and choose it with `shikiri tenants set local --model ID`";

pub(super) struct ModelWriter {
    app: App,
}

impl ModelWriter {
    pub(super) fn new(app: &App) -> Self {
        Self { app: app.clone() }
    }

    /// The model that would be asked; a failure if there is none but the offline one.
    pub(super) async fn model(&self) -> Result<Model, Failure> {
        let tenant = self.app.tenant(&TenantId::local()).await?.value;
        let unavailable = |what: String| Failure::new(Exit::Unavailable, what, NEXT);
        let id: ModelId = match tenant.model_id.as_deref().map(str::parse) {
            Some(Ok(id)) => id,
            _ => return Err(unavailable("no model is configured".to_owned())),
        };
        let model = self.app.model(&id).await?.value;
        if model.engine == EngineKind::Offline {
            let what = format!("the model {id} is of the offline engine, which cannot write this");
            return Err(unavailable(what));
        }
        if model.status != Status::Active {
            return Err(unavailable(format!("the model {id} is inactive")));
        }
        Ok(model)
    }
}

#[async_trait]
impl Writer for ModelWriter {
    async fn write(&self, instructions: &str, material: &str) -> Result<String, String> {
        let model = self.model().await.map_err(|failure| failure.to_string())?;
        let mut env = self.app.options().engine_env.0.clone();
        env.extend(model.env.clone());
        let asking = async {
            let client = Client::new(Provider::from_env(&model, &env)?, &env)?;
            let request = Request {
                model: model.model_name.clone(),
                max_tokens: MAX_TOKENS,
                system: Some(instructions.to_owned()),
                messages: vec![Message { role: Role::User, content: material.to_owned() }],
            };
            client.send(&request, LIMIT).await
        };
        let response = asking.await.map_err(|failure| format!("model {}: {failure}", model.id))?;
        match response.text() {
            text if text.trim().is_empty() => Err(format!("model {}: it said nothing", model.id)),
            text => Ok(text),
        }
    }
}
