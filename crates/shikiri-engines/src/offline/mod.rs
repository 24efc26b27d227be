//! The offline engine: asks no model. It makes a fresh store usable at once, and plays scripts for tests
//! and trials: see `OfflineScript`.

mod offline_script;
mod script_player;

use std::collections::BTreeMap;

use async_trait::async_trait;
use shikiri_executions::execution::{Engine, EngineError, EngineSender, TurnRequest};
use shikiri_model::models::{EngineKind, Model};
use tokio_util::sync::CancellationToken;

use offline_script::OfflineScript;
use script_player::OfflinePlayer;

/// Needs nothing and keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfflineScriptEngine;

#[async_trait]
impl Engine for OfflineScriptEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Offline
    }

    async fn check(&self, _: &Model, _: &BTreeMap<String, String>) -> Result<(), EngineError> {
        Ok(())
    }

    async fn run(
        &self,
        request: TurnRequest,
        sender: EngineSender,
        stop: CancellationToken,
    ) -> Result<(), EngineError> {
        let script = OfflineScript::read(&request.prompt);
        OfflinePlayer::new(request, script, sender, stop).play_script().await
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
