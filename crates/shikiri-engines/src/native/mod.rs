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
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use shikiri_app::execution::{Engine, EngineError, Order, TitleOrder, Titled, Told};
use shikiri_model::models::{EngineKind, Model};
use tokio_util::sync::CancellationToken;

use crate::messages::{Client, Failure, Provider, http};

type Env = BTreeMap<String, String>;

#[derive(Debug)]
pub struct Native {
    kind: EngineKind,
    /// Where AWS's profiles lie, if variables do not say it.
    home: Option<PathBuf>,
    /// Connections, by the proxies that they go through: runs share them.
    clients: Mutex<BTreeMap<Vec<String>, reqwest::Client>>,
}

impl Native {
    pub fn anthropic() -> Self {
        Self::new(EngineKind::Anthropic)
    }

    pub fn bedrock() -> Self {
        Self::new(EngineKind::Bedrock)
    }

    fn new(kind: EngineKind) -> Self {
        Self { kind, home: None, clients: Mutex::default() }
    }

    /// With the profiles of whoever has this home.
    #[must_use]
    pub fn at_home(self, home: Option<PathBuf>) -> Self {
        Self { home, ..self }
    }

    /// The environment with the places of AWS's files.
    fn completed(&self, env: &Env) -> Env {
        let mut env = env.clone();
        if let Some(home) = &self.home {
            for (name, file) in
                [("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")]
            {
                let path = home.join(".aws").join(file).to_string_lossy().into_owned();
                env.entry(name.to_owned()).or_insert(path);
            }
        }
        env
    }

    fn client(&self, model: &Model, env: &Env) -> Result<Client, Failure> {
        let env = self.completed(env);
        let provider = Provider::from_env(model, &env)?;
        let proxies = env.iter().filter(|(name, _)| name.to_lowercase().ends_with("_proxy"));
        let proxies = proxies.map(|(name, value)| format!("{name}={value}")).collect();
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let http = match clients.get(&proxies) {
            Some(known) => known.clone(),
            None => {
                let new = http::client(&env)?;
                clients.insert(proxies, new.clone());
                new
            }
        };
        Ok(Client::over(http, provider))
    }
}

#[async_trait]
impl Engine for Native {
    fn kind(&self) -> EngineKind {
        self.kind
    }

    /// That there is a key, not that it opens anything: only the API knows that.
    async fn check(&self, model: &Model, env: &Env) -> Result<(), EngineError> {
        let provider = Provider::from_env(model, &self.completed(env));
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
        let client = self.client(&order.model, &order.env);
        let client = client.map_err(|failure| EngineError::new(failure.to_string()))?;
        drive::run(client, order, told, stop).await
    }

    async fn title(&self, wanted: &TitleOrder) -> Option<Result<Titled, EngineError>> {
        let wanted = TitleOrder { env: self.completed(&wanted.env), ..wanted.clone() };
        Some(crate::messages::title(&wanted).await)
    }
}
