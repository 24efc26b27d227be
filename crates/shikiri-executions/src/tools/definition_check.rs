//! Compares, before a turn, the tool definitions of a tenant's servers with their pins. A changed
//! tool is withheld until a user accepts it. A new tool is offered, with a warning.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use shikiri_client::ServerToolList;
use shikiri_model::ids::TenantId;
use shikiri_model::run::WarningCode;
use shikiri_model::server::McpServerTransport;
use shikiri_model::tool::{ToolChange, ToolChangeKind, ToolDefinition};
use shikiri_tenancy::tool_pins::PinOwner;

use super::mcp_link::McpLink;
use super::tool_names::is_allowed;
use crate::Executions;
use crate::execution::ResolvedServer;

/// Timeout for listing tools when the engine lists them again itself. A slower server is not
/// compared in this turn.
const LISTING: Duration = Duration::from_secs(3);
/// The number of tools that one warning names.
const MAX_NAMED: usize = 20;

/// Warnings about tools for a server's owner, as the data of `warning` events.
pub(crate) type ToolWarnings = Vec<Value>;

pub(crate) struct DefinitionCheck<'a> {
    executions: &'a Executions,
    tenant: &'a TenantId,
    pub(crate) warnings: ToolWarnings,
}

impl<'a> DefinitionCheck<'a> {
    pub(crate) fn new(executions: &'a Executions, tenant: &'a TenantId) -> Self {
        Self { executions, tenant, warnings: Vec::new() }
    }

    /// Returns the tools to withhold. New tools are pinned.
    pub(super) async fn find_withheld_tools(
        &mut self,
        server: &ResolvedServer,
        listed: &[ToolDefinition],
    ) -> BTreeSet<String> {
        let Some(id) = &server.id else { return BTreeSet::new() };
        let judged = match PinOwner::of_server(self.tenant, id, &server.transport) {
            Ok(owner) => self.executions.tenancy.pin_tools(&owner, listed).await,
            Err(error) => Err(error),
        };
        let mut changes = match judged {
            Ok(changes) => changes,
            Err(error) => {
                // The store is unavailable, so the turn will not get far. A tool that cannot be
                // compared is not offered.
                tracing::warn!("the tools of {} cannot be compared: {error}", server.name);
                return listed.iter().map(|tool| tool.name.clone()).collect();
            }
        };
        let allowed = server.allowed_tools.as_deref();
        changes.retain(|change| {
            change.kind != ToolChangeKind::Removed
                && is_allowed(allowed, &server.name, &change.tool)
        });
        if !changes.is_empty() {
            self.warnings.push(changed_warning(self.tenant, server, &changes));
        }
        let changed = changes.into_iter().filter(|change| change.kind == ToolChangeKind::Changed);
        changed.map(|change| change.tool).collect()
    }

    /// The same for the tool list of an MCP server, with a warning for tools that cannot be called.
    pub(super) async fn find_withheld_in_offer(
        &mut self,
        server: &ResolvedServer,
        offer: &ServerToolList,
    ) -> BTreeSet<String> {
        if let Some(first) = offer.remarks.first() {
            let more = offer.remarks.len() - 1;
            let message = match more {
                0 => first.clone(),
                _ => format!("{first}; and {more} more of the kind"),
            };
            let code = WarningCode::ToolLeftOut.as_str();
            self.warnings.push(json!({ "code": code, "message": message, "server": server.name }));
        }
        let listed: Vec<_> =
            offer.tools.iter().map(shikiri_client::ServerTool::definition).collect();
        self.find_withheld_tools(server, &listed).await
    }

    /// For an engine that lists tools itself: lists them too, and removes changed tools from the
    /// allowed ones. A program is not asked, because it would have to be started twice.
    pub(crate) async fn restrict_allowed_tools(
        &mut self,
        servers: &mut [ResolvedServer],
        folder: &Path,
    ) {
        let asked = servers.iter().map(|server| list(server, folder));
        let offers = join_all(asked).await;
        for (server, offer) in servers.iter_mut().zip(offers) {
            let Some(offer) = offer else { continue };
            let withheld = self.find_withheld_in_offer(server, &offer).await;
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

/// None if the server does not answer in time: the engine will report that.
async fn list(server: &ResolvedServer, folder: &Path) -> Option<ServerToolList> {
    server.id.as_ref()?;
    match &server.transport {
        McpServerTransport::Http { .. } | McpServerTransport::Sse { .. } => {
            let (link, offer) = McpLink::connect(server, folder, LISTING).await.ok()?;
            // Ending the session must not delay the turn.
            tokio::spawn(async move { link.close().await });
            Some(offer)
        }
        McpServerTransport::Stdio { .. } | McpServerTransport::Openapi { .. } => None,
    }
}

fn changed_warning(tenant: &TenantId, server: &ResolvedServer, changes: &[ToolChange]) -> Value {
    let named = changes.iter().take(MAX_NAMED);
    let mut short: Vec<String> = named.clone().map(ToolChange::in_short).collect();
    if changes.len() > MAX_NAMED {
        short.push(format!("and {} more", changes.len() - MAX_NAMED));
    }
    let tool = |change: &ToolChange| {
        let mut entry = json!({ "tool": change.tool, "kind": change.kind.as_str() });
        if change.kind == ToolChangeKind::Changed {
            entry["parts"] = json!(change.parts());
        }
        entry
    };
    let tools: Vec<Value> = named.map(tool).collect();
    let id = server.id.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut message =
        format!("{} says something else of its tools: {}", server.name, short.join(", "));
    if changes.iter().any(|change| change.kind == ToolChangeKind::Changed) {
        message.push_str(&format!(
            ". Changed tools are withheld until you accept them: look with `shikiri servers check \
             {id} --tenant {tenant}`, then add --accept-changes"
        ));
    }
    json!({
        "code": WarningCode::ToolDefinitionChanged.as_str(),
        "message": message,
        "server": server.name,
        "tools": tools,
    })
}
