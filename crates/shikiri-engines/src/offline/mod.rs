//! The offline engine: asks no model and says so. It makes everything else work at once on a fresh
//! store, and plays whatever part a test or a trial wants: see `Script`.

mod play;
mod script;

use std::collections::BTreeMap;

use async_trait::async_trait;
use shikiri_app::execution::{Engine, EngineError, Order, Told};
use shikiri_model::models::{EngineKind, Model};
use tokio_util::sync::CancellationToken;

use play::Play;
use script::Script;

/// Needs nothing and keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offline;

#[async_trait]
impl Engine for Offline {
    fn kind(&self) -> EngineKind {
        EngineKind::Offline
    }

    async fn check(&self, _: &Model, _: &BTreeMap<String, String>) -> Result<(), EngineError> {
        Ok(())
    }

    async fn run(
        &self,
        order: Order,
        told: Told,
        stop: CancellationToken,
    ) -> Result<(), EngineError> {
        let script = Script::read(&order.prompt);
        Play::new(order, script, told, stop).perform().await
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
