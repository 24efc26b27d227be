//! Agents on the Messages API, without any other program: `anthropic` and `bedrock`.
//!
//! `shikiri_model::native` decides the next step, and this module performs it. `ask_model` asks the
//! model and streams its answer, `tool_calls` calls tools and runs subagents, `turn_driver` repeats
//! this until the main thread ends. Each step is stored before it has consequences, so that another
//! process can resume the turn.
//!
//! # One turn
//!
//! 1. The `TurnRequest` holds the session as the store remembers it (`execution/turn_journal.rs` of
//!    `shikiri-executions`), the tools and the limits. `turn_driver` makes a `NativeTurn` of it, which
//!    says what comes next.
//! 2. `ask_model` reserves what the request may spend, sends it (`messages/streaming_request.rs`) and
//!    passes the answer on while it arrives (`messages/message_stream.rs`).
//! 3. A complete answer is a `TurnEntry`. `EngineSender::persist_step` returns once the entry and the
//!    events that readers see of it are committed together.
//! 4. `tool_calls` makes the calls of an answer at the same time. A call of `Task` is a thread of its
//!    own. Each result is an entry too. Then it goes on at 2, until the model calls no more tools.
//! 5. After `kill -9` the run is queued again. The process that claims it applies the entries
//!    (`execution/resume_execution.rs`) and goes on; calls that were answered are not made again.
//!
//! `docs/decisions/0012-native-engines.md` explains why.

mod ask_model;
mod native_settings;
mod tool_calls;
mod tool_catalog;
mod turn_driver;

use std::collections::BTreeMap;
use std::path::PathBuf;

use async_trait::async_trait;
use shikiri_executions::execution::{
    Engine, EngineError, EngineSender, GeneratedTitle, TitleRequest, TurnRequest,
};
use shikiri_model::models::{EngineKind, Model};
use tokio_util::sync::CancellationToken;

use crate::messages::http_clients::HttpClients;
use crate::messages::{AwsCredentialSources, MessagesClient, ModelApiError, ModelProvider};

type Env = BTreeMap<String, String>;

#[derive(Debug)]
pub struct NativeEngine {
    kind: EngineKind,
    clients: HttpClients,
    aws: AwsCredentialSources,
}

impl NativeEngine {
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

    /// The provider, with credentials.
    async fn provider(&self, model: &Model, env: &Env) -> Result<ModelProvider, ModelApiError> {
        let provider = ModelProvider::from_env(model, env, &self.aws).await?;
        provider.ensure_credentials().await?;
        Ok(provider)
    }

    async fn client(&self, model: &Model, env: &Env) -> Result<MessagesClient, ModelApiError> {
        let provider = self.provider(model, env).await?;
        Ok(MessagesClient::over(self.clients.own(env)?, provider))
    }
}

#[async_trait]
impl Engine for NativeEngine {
    fn kind(&self) -> EngineKind {
        self.kind
    }

    /// Checks that there are credentials, not that the API accepts them.
    async fn check(&self, model: &Model, env: &Env) -> Result<(), EngineError> {
        let provider = self.provider(model, env).await;
        provider.map(drop).map_err(|failure| EngineError::new(failure.to_string()))
    }

    fn is_native(&self) -> bool {
        true
    }

    async fn run(
        &self,
        request: TurnRequest,
        sender: EngineSender,
        stop: CancellationToken,
    ) -> Result<(), EngineError> {
        let client = self.client(&request.model, &request.env).await;
        let client = client.map_err(|failure| EngineError::new(failure.to_string()))?;
        turn_driver::run(client, request, sender, stop).await
    }

    async fn generate_title(
        &self,
        request: &TitleRequest,
    ) -> Option<Result<GeneratedTitle, EngineError>> {
        Some(crate::messages::generate_title(request, &self.aws).await)
    }
}
