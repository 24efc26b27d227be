//! Dialogues as resources: `shikiri://dialogues/{id}`, for those who take part and for keys of the
//! tenant.

use async_trait::async_trait;
use rmcp::model::{Resource, ResourceTemplate};
use serde_json::{Value, json};
use shikiri_app::team::TeamError;
use shikiri_app::{App, AppError};
use shikiri_model::ids::DialogueId;

use super::views::{DIALOGUE_PREFIX, dialogue};
use crate::catalogue::{Listed, ResourceSource};
use crate::client::Caller;
use crate::fault::Fault;
use crate::lists::{bad_cursor, missing};

pub(super) struct Dialogues(pub(super) App);

#[async_trait]
impl ResourceSource for Dialogues {
    async fn list(&self, _: &Caller, cursor: Option<&str>) -> Result<Listed<Resource>, Fault> {
        match cursor {
            None => Ok(Listed { items: Vec::new(), next: None }),
            Some(_) => Err(bad_cursor()),
        }
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        let template = ResourceTemplate::new(format!("{DIALOGUE_PREFIX}{{id}}"), "dialogue")
            .with_title("What was said in a conversation, and how far it is")
            .with_mime_type("application/json");
        vec![template]
    }

    async fn read(&self, caller: &Caller, uri: &str) -> Option<Result<Vec<Value>, Fault>> {
        let id = uri.strip_prefix(DIALOGUE_PREFIX)?;
        Some(match self.text(caller, id).await {
            Ok(Some(text)) => {
                Ok(vec![json!({ "uri": uri, "mimeType": "application/json", "text": text })])
            }
            Ok(None) | Err(TeamError::App(AppError::NotFound { .. })) => Err(missing(uri)),
            Err(TeamError::App(error)) => Err(error.into()),
            Err(TeamError::Refused(refusal)) => Err(Fault::params(refusal.message)),
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

impl Dialogues {
    /// None if there is no such dialogue, or it is none of the caller's business.
    async fn text(&self, caller: &Caller, id: &str) -> Result<Option<String>, TeamError> {
        let Ok(id) = id.parse::<DialogueId>() else { return Ok(None) };
        let tenant = &caller.connection.tenant;
        let found = self.0.find_dialogue(tenant, &id).await?;
        if let Some(own) = &caller.session {
            let place = &own.session.place;
            if place.project != found.value.project || found.value.side_of(&place.agent).is_err() {
                return Ok(None);
            }
        }
        let lines = self.0.transcript(tenant, &id).await?;
        Ok(Some(dialogue(&found, &lines).to_string()))
    }
}
