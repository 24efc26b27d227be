//! Team tools: agents that work on tasks, delegate and talk. What they do is decided by the use
//! cases; here are their definitions (data), the calls and the answers' forms.

mod calls;
mod definitions;
mod dialogues;
mod fields;
mod views;

use std::sync::Arc;

use async_trait::async_trait;
use rmcp::model::{JsonObject, Tool};
use serde_json::Value;
use shikiri_app::team::TeamError;
use shikiri_app::{App, AppError};

use crate::catalogue::{ResourceSource, ShortTool};
use crate::client::Caller;
use crate::fault::Fault;
use crate::run_view::tool_error;
use definitions::{DEFINITIONS, Definition};

pub(super) fn tools(app: &App) -> impl Iterator<Item = Arc<dyn ShortTool>> {
    DEFINITIONS
        .iter()
        .map(|definition| Arc::new(TeamTool { app: app.clone(), definition }) as Arc<dyn ShortTool>)
}

pub(super) fn resources(app: &App) -> Arc<dyn ResourceSource> {
    Arc::new(dialogues::Dialogues(app.clone()))
}

struct TeamTool {
    app: App,
    definition: &'static Definition,
}

#[async_trait]
impl ShortTool for TeamTool {
    fn definition(&self) -> Tool {
        self.definition.tool()
    }

    async fn call(&self, caller: &Caller, arguments: &JsonObject) -> Result<Value, Fault> {
        match calls::call(&self.app, caller, self.definition, arguments).await {
            Ok(answer) => Ok(answer),
            Err(error) => refused(error),
        }
    }
}

/// What the calling model may mend is the tool's answer; what it cannot is the protocol's.
fn refused(error: TeamError) -> Result<Value, Fault> {
    match error {
        TeamError::Refused(refusal) => Ok(tool_error(refusal.code.as_str(), &refusal.message)),
        TeamError::App(error @ AppError::Invalid { .. }) => {
            Ok(tool_error("invalid_argument", &error.to_string()))
        }
        TeamError::App(error) => Err(error.into()),
    }
}
