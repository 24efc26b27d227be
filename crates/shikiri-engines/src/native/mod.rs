//! Agents on the Messages API, without any other program: `anthropic` and `bedrock`.
//!
//! The loop itself is the model's (`shikiri_model::native`): it says what comes next. Here it is
//! done: `ask` asks the model and tells what it says while it says it, `tools` calls tools and runs
//! subagents, `drive` goes on until the main thread has come to its end. Whatever happens is kept
//! before anything follows from it, so that another process can go on.

mod ask;
mod drive;
mod offered;
mod setting;
mod tools;

use std::collections::BTreeMap;
use std::path::PathBuf;

use async_trait::async_trait;
use shikiri_app::execution::{Engine, EngineError, Order, TitleOrder, Titled, Told};
use shikiri_model::models::{EngineKind, Model};
use tokio_util::sync::CancellationToken;

use crate::messages::http::HttpClients;
use crate::messages::{AwsCredentialSources, Client, Failure, Provider};

type Env = BTreeMap<String, String>;

#[derive(Debug)]
pub struct Native {
    kind: EngineKind,
    clients: HttpClients,
    aws: AwsCredentialSources,
}

impl Native {
    pub fn anthropic() -> Self {
        Self::new(EngineKind::Anthropic)
    }

    pub fn bedrock() -> Self {
        Self::new(EngineKind::Bedrock)
    }

    fn new(kind: EngineKind) -> Self {
        Self { kind, clients: HttpClients::default(), aws: AwsCredentialSources::default() }
    }

    /// With the AWS profiles in this home.
    #[must_use]
    pub fn at_home(self, home: Option<PathBuf>) -> Self {
        Self { aws: AwsCredentialSources::at_home(home), ..self }
    }

    /// A provider with something to prove who calls.
    async fn provider(&self, model: &Model, env: &Env) -> Result<Provider, Failure> {
        let provider = Provider::from_env(model, env, &self.aws).await?;
        provider.ensure_credentials().await?;
        Ok(provider)
    }

    async fn client(&self, model: &Model, env: &Env) -> Result<Client, Failure> {
        let provider = self.provider(model, env).await?;
        Ok(Client::over(self.clients.own(env)?, provider))
    }
}

#[async_trait]
impl Engine for Native {
    fn kind(&self) -> EngineKind {
        self.kind
    }

    /// That there is a key, not that it opens anything: only the API knows that.
    async fn check(&self, model: &Model, env: &Env) -> Result<(), EngineError> {
        let provider = self.provider(model, env).await;
        provider.map(drop).map_err(|failure| EngineError::new(failure.to_string()))
    }

    fn is_native(&self) -> bool {
        true
    }

    async fn run(
        &self,
        order: Order,
        told: Told,
        stop: CancellationToken,
    ) -> Result<(), EngineError> {
        let client = self.client(&order.model, &order.env).await;
        let client = client.map_err(|failure| EngineError::new(failure.to_string()))?;
        drive::run(client, order, told, stop).await
    }

    async fn title(&self, wanted: &TitleOrder) -> Option<Result<Titled, EngineError>> {
        Some(crate::messages::title(wanted, &self.aws).await)
    }
}
