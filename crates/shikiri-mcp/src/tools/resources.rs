//! Runs as resources: `shikiri://runs/{id}` and `shikiri://runs/{id}/events`.

use async_trait::async_trait;
use rmcp::model::{Resource, ResourceTemplate};
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::ids::{RunId, TenantId};
use shikiri_model::record::RecordPosition;
use shikiri_model::run::run_stream;
use shikiri_runtime::AppError;

use crate::catalogue::{CataloguePage, ResourceSource};
use crate::list_methods::{bad_cursor, resource_not_found};
use crate::mcp_caller::McpCaller;
use crate::rpc_error::RpcError;
use crate::run_view::{RUN_PREFIX, run_uri, status};

pub(super) struct RunResources(pub(super) App);

/// Runs listed at a time, newest first.
const PAGE: u32 = 50;
/// Of the events of one run; a longer one is read further over REST.
const MAX_BYTES: usize = 1024 * 1024;

#[async_trait]
impl ResourceSource for RunResources {
    async fn list(
        &self,
        caller: &McpCaller,
        cursor: Option<&str>,
    ) -> Result<CataloguePage<Resource>, RpcError> {
        let after = match cursor {
            None => None,
            Some(cursor) => Some(RecordPosition::decode(cursor).ok_or_else(bad_cursor)?),
        };
        let tenant = &caller.connection.tenant;
        let (runs, next) = self.0.runtime.list_runs(tenant, None, after, PAGE).await?;
        let items = runs.into_iter().map(|stored| {
            let run = stored.value;
            Resource::new(run_uri(&run.id), run.id.to_string())
                .with_title(format!("Run of {} ({})", run.agent, run.status.as_str()))
                .with_mime_type("application/json")
        });
        Ok(CataloguePage { items: items.collect(), next: next.map(|next| next.encode()) })
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        let template = |path: &str, name: &str, title: &str| {
            ResourceTemplate::new(format!("{RUN_PREFIX}{path}"), name)
                .with_title(title)
                .with_mime_type("application/json")
        };
        vec![
            template("{id}", "run", "A run's status, progress, questions and result"),
            template("{id}/events", "run_events", "Everything that happened in a run"),
        ]
    }

    async fn read(&self, caller: &McpCaller, uri: &str) -> Option<Result<Vec<Value>, RpcError>> {
        let (run, wants_events) = parse(uri)?;
        let tenant = &caller.connection.tenant;
        let text = match &run {
            Some(run) if wants_events => self.events(tenant, run).await,
            Some(run) => {
                self.0.runtime.run(tenant, run).await.map(|view| status(&view).to_string())
            }
            None => Err(AppError::not_found("run", uri)),
        };
        Some(match text {
            Ok(text) => {
                Ok(vec![json!({ "uri": uri, "mimeType": "application/json", "text": text })])
            }
            Err(AppError::NotFound { .. }) => Err(resource_not_found(uri)),
            Err(error) => Err(error.into()),
        })
    }

    fn run_of(&self, uri: &str) -> Option<RunId> {
        parse(uri).and_then(|(run, _)| run)
    }

    async fn complete(&self, caller: &McpCaller, argument: &str, start: &str) -> Vec<String> {
        if argument != "id" {
            return Vec::new();
        }
        let listed = self.0.runtime.list_runs(&caller.connection.tenant, None, None, 200).await;
        let runs = listed.map(|(runs, _)| runs).unwrap_or_default();
        let ids = runs.into_iter().map(|stored| stored.value.id.to_string());
        ids.filter(|id| id.starts_with(start)).collect()
    }
}

impl RunResources {
    async fn events(&self, tenant: &TenantId, run: &RunId) -> Result<String, AppError> {
        let page = self.0.runtime.store().read(tenant, &run_stream(run), 0, MAX_BYTES).await?;
        let events = page.chunks.iter().flat_map(|chunk| chunk.events()).map(|event| {
            let data: Value = serde_json::from_str(event.data).unwrap_or_default();
            json!({ "seq": event.seq, "at": event.at, "event": event.kind, "data": data })
        });
        let events: Vec<_> = events.collect();
        let last = events.last().and_then(|event| event["seq"].as_u64()).unwrap_or(0);
        let more = last < page.extent.head;
        Ok(json!({ "run_id": run, "events": events, "more": more }).to_string())
    }
}

/// The run (none if its id is none), and whether its events are wanted; None if the address is
/// of another kind.
fn parse(uri: &str) -> Option<(Option<RunId>, bool)> {
    let rest = uri.strip_prefix(RUN_PREFIX)?;
    let (id, wants_events) = match rest.strip_suffix("/events") {
        Some(id) => (id, true),
        None => (rest, false),
    };
    Some((id.parse().ok(), wants_events))
}
