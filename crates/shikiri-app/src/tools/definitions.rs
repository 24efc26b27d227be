//! Looks, before a turn, whether a tenant's servers still say of their tools what they said before.
//! A tool that was changed is withheld until a person accepts it; one that is new is offered, and
//! told of.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use shikiri_client::Offer;
use shikiri_model::ids::TenantId;
use shikiri_model::server::Transport;
use shikiri_model::tool::{ChangeKind, ToolChange, ToolDefinition};

use super::mcp::McpLink;
use super::names::is_allowed;
use super::sse::SseLink;
use crate::app::App;
use crate::execution::Server;
use crate::tool_pins::PinOwner;

/// For a server to list its tools to us, where the engine lists them again for itself. One that
/// takes longer is not compared in this turn.
const LISTING: Duration = Duration::from_secs(3);
/// Tools that one warning names.
const MAX_NAMED: usize = 20;

/// What a server's owner should know of its tools, as the data of `warning` events.
pub(crate) type ToolNews = Vec<Value>;

pub(crate) struct DefinitionCheck<'a> {
    app: &'a App,
    tenant: &'a TenantId,
    pub(crate) news: ToolNews,
}

impl<'a> DefinitionCheck<'a> {
    pub(crate) fn new(app: &'a App, tenant: &'a TenantId) -> Self {
        Self { app, tenant, news: Vec::new() }
    }

    /// The tools that are withheld. What a server lists is pinned if it is new.
    pub(super) async fn judge(
        &mut self,
        server: &Server,
        listed: &[ToolDefinition],
    ) -> BTreeSet<String> {
        let Some(id) = &server.id else { return BTreeSet::new() };
        let judged = match PinOwner::of_server(self.tenant, id, &server.transport) {
            Ok(owner) => self.app.pin_tools(&owner, listed).await,
            Err(error) => Err(error),
        };
        let mut changes = match judged {
            Ok(changes) => changes,
            Err(error) => {
                // The store is away, and the turn will not get far. What is not known to be the same
                // is not offered.
                tracing::warn!("the tools of {} cannot be compared: {error}", server.name);
                return listed.iter().map(|tool| tool.name.clone()).collect();
            }
        };
        let allowed = server.allowed_tools.as_deref();
        changes.retain(|change| {
            change.kind != ChangeKind::Removed && is_allowed(allowed, &server.name, &change.tool)
        });
        if !changes.is_empty() {
            self.news.push(changed_warning(self.tenant, server, &changes));
        }
        let changed = changes.into_iter().filter(|change| change.kind == ChangeKind::Changed);
        changed.map(|change| change.tool).collect()
    }

    /// The same for what an MCP server offers, with what of it cannot be called.
    pub(super) async fn judge_offer(&mut self, server: &Server, offer: &Offer) -> BTreeSet<String> {
        if let Some(first) = offer.remarks.first() {
            let more = offer.remarks.len() - 1;
            let message = match more {
                0 => first.clone(),
                _ => format!("{first}; and {more} more of the kind"),
            };
            let code = "TOOL_LEFT_OUT";
            self.news.push(json!({ "code": code, "message": message, "server": server.name }));
        }
        let listed: Vec<_> = offer.tools.iter().map(shikiri_client::Tool::definition).collect();
        self.judge(server, &listed).await
    }

    /// For an engine that lists tools itself: asks the servers as well, and takes the changed ones
    /// out of what may be called. A program is not asked, because it would have to be started twice.
    pub(crate) async fn narrow(&mut self, servers: &mut [Server], folder: &Path) {
        let asked = servers.iter().map(|server| list(server, folder));
        let offers = join_all(asked).await;
        for (server, offer) in servers.iter_mut().zip(offers) {
            let Some(offer) = offer else { continue };
            let withheld = self.judge_offer(server, &offer).await;
            if withheld.is_empty() {
                continue;
            }
            let allowed = server.allowed_tools.as_deref();
            let names = offer.tools.iter().map(|tool| &tool.name);
            let callable = names.filter(|name| {
                is_allowed(allowed, &server.name, name) && !withheld.contains(*name)
            });
            server.allowed_tools = Some(callable.cloned().collect());
        }
    }
}

/// None if the server does not tell in time: its engine will say so.
async fn list(server: &Server, folder: &Path) -> Option<Offer> {
    server.id.as_ref()?;
    match &server.transport {
        Transport::Http { .. } => {
            let (link, offer) = McpLink::meet(server, folder, LISTING).await.ok()?;
            // The server is told in its own time that this session is over.
            tokio::spawn(async move { link.close().await });
            Some(offer)
        }
        Transport::Sse { .. } => Some(SseLink::meet(server, LISTING).await.ok()?.1),
        Transport::Stdio { .. } | Transport::Openapi { .. } => None,
    }
}

fn changed_warning(tenant: &TenantId, server: &Server, changes: &[ToolChange]) -> Value {
    let named = changes.iter().take(MAX_NAMED);
    let mut short: Vec<String> = named.clone().map(ToolChange::in_short).collect();
    if changes.len() > MAX_NAMED {
        short.push(format!("and {} more", changes.len() - MAX_NAMED));
    }
    let tool = |change: &ToolChange| {
        let mut told = json!({ "tool": change.tool, "kind": change.kind.as_str() });
        if change.kind == ChangeKind::Changed {
            told["parts"] = json!(change.parts());
        }
        told
    };
    let tools: Vec<Value> = named.map(tool).collect();
    let id = server.id.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut message =
        format!("{} says something else of its tools: {}", server.name, short.join(", "));
    if changes.iter().any(|change| change.kind == ChangeKind::Changed) {
        message.push_str(&format!(
            ". Changed tools are withheld until you accept them: look with `shikiri servers check \
             {id} --tenant {tenant}`, then add --accept-changes"
        ));
    }
    json!({
        "code": "TOOL_DEFINITION_CHANGED", "message": message, "server": server.name, "tools": tools,
    })
}
