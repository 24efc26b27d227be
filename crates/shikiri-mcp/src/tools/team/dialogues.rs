//! Dialogues as resources: `shikiri://dialogues/{id}`, for those who take part and for keys of the
//! tenant.

use async_trait::async_trait;
use rmcp::model::{Resource, ResourceTemplate};
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::ids::DialogueId;
use shikiri_runtime::AppError;
use shikiri_teams::TeamError;

use super::views::{DIALOGUE_PREFIX, dialogue};
use crate::catalogue::{CataloguePage, ResourceSource};
use crate::list_methods::{bad_cursor, resource_not_found};
use crate::mcp_caller::McpCaller;
use crate::rpc_error::RpcError;

pub(super) struct DialogueResources(pub(super) App);

#[async_trait]
impl ResourceSource for DialogueResources {
    async fn list(
        &self,
        _: &McpCaller,
        cursor: Option<&str>,
    ) -> Result<CataloguePage<Resource>, RpcError> {
        match cursor {
            None => Ok(CataloguePage { items: Vec::new(), next: None }),
            Some(_) => Err(bad_cursor()),
        }
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        let template = ResourceTemplate::new(format!("{DIALOGUE_PREFIX}{{id}}"), "dialogue")
            .with_title("What was said in a conversation, and how far it is")
            .with_mime_type("application/json");
        vec![template]
    }

    async fn read(&self, caller: &McpCaller, uri: &str) -> Option<Result<Vec<Value>, RpcError>> {
        let id = uri.strip_prefix(DIALOGUE_PREFIX)?;
        Some(match self.text(caller, id).await {
            Ok(Some(text)) => {
                Ok(vec![json!({ "uri": uri, "mimeType": "application/json", "text": text })])
            }
            Ok(None) | Err(TeamError::App(AppError::NotFound { .. })) => {
                Err(resource_not_found(uri))
            }
            Err(TeamError::App(error)) => Err(error.into()),
            Err(TeamError::Refused(refusal)) => Err(RpcError::params(refusal.message)),
        })
    }

    /// They are found through the tools, and through a project.
    fn is_listed(&self) -> bool {
        false
    }

    fn is_for_sessions(&self) -> bool {
        true
    }
}

impl DialogueResources {
    /// None if there is no such dialogue, or it is none of the caller's business.
    async fn text(&self, caller: &McpCaller, id: &str) -> Result<Option<String>, TeamError> {
        let Ok(id) = id.parse::<DialogueId>() else { return Ok(None) };
        let tenant = &caller.connection.tenant;
        let found = self.0.teams.find_dialogue(tenant, &id).await?;
        if let Some(own) = &caller.session {
            let place = &own.session.place;
            if place.project != found.value.project || found.value.side_of(&place.agent).is_err() {
                return Ok(None);
            }
        }
        let lines = self.0.teams.transcript(tenant, &id).await?;
        Ok(Some(dialogue(&found, &lines).to_string()))
    }
}
