//! Tools that are not what they were when this host last saw them: told, and asked about before one
//! is called.

use shikiri_client::{Server, Tool};
use shikiri_model::host::plan::Plan;
use shikiri_model::tool::{ChangeKind, ToolChange, ToolDefinition};

use super::audience::Audience;
use super::{Host, HostError, Listed};
use crate::error::AppError;
use crate::tool_pins::{Accepted, PinOwner};

/// A tool that is listed, and changed.
pub struct ChangedTool {
    pub server: String,
    pub change: ToolChange,
    listed: ToolDefinition,
}

impl Listed {
    /// Tools that changed since they were known.
    pub fn changed_tools(&self) -> impl Iterator<Item = ChangedTool> {
        let changed = self.changes.iter().filter(|change| change.kind == ChangeKind::Changed);
        changed.filter_map(|change| {
            let (_, offer) = self.offer.as_ref().ok()?;
            let tool = offer.tools.iter().find(|tool| tool.name == change.tool)?;
            let (server, listed) = (self.server.clone(), tool.definition());
            Some(ChangedTool { server, change: change.clone(), listed })
        })
    }

    pub fn is_changed(&self, tool: &str) -> bool {
        let mut changes = self.changes.iter();
        changes.any(|change| change.kind == ChangeKind::Changed && change.tool == tool)
    }
}

impl Host {
    /// How a server's tools differ from what is known of them. New ones are known from now on.
    pub async fn changes(
        &self,
        server: &str,
        tools: &[Tool],
    ) -> Result<Vec<ToolChange>, HostError> {
        let owner = PinOwner::of_host(&self.tenant, self.spec(server)?);
        let listed: Vec<_> = tools.iter().map(Tool::definition).collect();
        Ok(self.app.pin_tools(&owner, &listed).await?)
    }

    /// Everything that a server lists is what is known of it from now on.
    pub async fn accept_all(&self, server: &str, tools: &[Tool]) -> Result<(), HostError> {
        let owner = PinOwner::of_host(&self.tenant, self.spec(server)?);
        let listed: Vec<_> = tools.iter().map(Tool::definition).collect();
        self.app.accept_tools(&owner, &listed, Accepted::All).await?;
        Ok(())
    }

    async fn accept(&self, server: &str, tool: ToolDefinition) -> Result<(), AppError> {
        let Ok(spec) = self.spec(server) else { return Ok(()) };
        let owner = PinOwner::of_host(&self.tenant, spec);
        let name = tool.name.clone();
        self.app.accept_tools(&owner, &[tool], Accepted::One(&name)).await?;
        Ok(())
    }

    /// Asks whether a changed tool may be called. What was shown is what is known from then on.
    async fn ask_about(
        &self,
        changed: ChangedTool,
        audience: &dyn Audience,
    ) -> Result<(), HostError> {
        let ChangedTool { server, change, listed } = changed;
        if !audience.accepts_change(&server, &change).await {
            let tool = change.in_short();
            return Err(HostError::Changed { server, tool });
        }
        Ok(self.accept(&server, listed).await?)
    }

    /// The tool that is about to be called, as the server describes it now. If that has changed, the
    /// audience decides; changes of others are told.
    pub(super) async fn agreed_tool(
        &self,
        server: &Server,
        name: &str,
        audience: &dyn Audience,
    ) -> Result<Tool, HostError> {
        let offer = server.tools().await.map_err(|error| self.told(server.name(), error))?;
        let mut changes = self.changes(server.name(), &offer.tools).await?;
        let tool = self.find_tool(server.name(), offer, name)?;
        let own = changes.iter().position(|it| it.tool == name && it.kind == ChangeKind::Changed);
        let own = own.map(|at| changes.remove(at));
        changes.retain(|change| change.kind != ChangeKind::Removed);
        if !changes.is_empty() {
            audience.tell_changes(server.name(), &changes);
        }
        if let Some(change) = own {
            let (server, listed) = (server.name().to_owned(), tool.definition());
            self.ask_about(ChangedTool { server, change, listed }, audience).await?;
        }
        Ok(tool)
    }

    /// Asks about every changed tool that a plan may call, before any of it is carried out.
    pub async fn agree_to_plan(
        &self,
        plan: &Plan,
        changed: Vec<ChangedTool>,
        audience: &dyn Audience,
    ) -> Result<(), HostError> {
        for changed in changed {
            let is_used = plan.tasks.iter().any(|task| {
                let servers = &task.servers.0;
                task.tool == changed.change.tool
                    && (servers.is_empty() || servers.contains(&changed.server))
            });
            if is_used {
                self.ask_about(changed, audience).await?;
            }
        }
        Ok(())
    }
}
