//! Tools whose definition changed since this host last saw them. Changes are reported, and the user
//! is asked before a changed tool is called.

use shikiri_client::{ServerConnection, ServerTool};
use shikiri_model::host::plan::HostPlan;
use shikiri_model::tool::{ToolChange, ToolChangeKind, ToolDefinition};
use shikiri_runtime::AppError;
use shikiri_tenancy::tool_pins::{AcceptedTools, PinOwner};

use super::user_interaction::UserInteraction;
use super::{Host, HostError, ServerListing};

/// A listed tool whose definition changed.
pub struct ChangedTool {
    pub server: String,
    pub change: ToolChange,
    listed: ToolDefinition,
}

impl ServerListing {
    /// The tools whose definition changed.
    pub fn changed_tools(&self) -> impl Iterator<Item = ChangedTool> {
        let changed = self.changes.iter().filter(|change| change.kind == ToolChangeKind::Changed);
        changed.filter_map(|change| {
            let (_, offer) = self.offer.as_ref().ok()?;
            let tool = offer.tools.iter().find(|tool| tool.name == change.tool)?;
            let (server, listed) = (self.server.clone(), tool.definition());
            Some(ChangedTool { server, change: change.clone(), listed })
        })
    }

    pub fn is_changed(&self, tool: &str) -> bool {
        let mut changes = self.changes.iter();
        changes.any(|change| change.kind == ToolChangeKind::Changed && change.tool == tool)
    }
}

impl Host {
    /// How a server's tools differ from their pins. New tools are pinned.
    pub async fn changes(
        &self,
        server: &str,
        tools: &[ServerTool],
    ) -> Result<Vec<ToolChange>, HostError> {
        let owner = PinOwner::of_host(&self.tenant, self.spec(server)?);
        let listed: Vec<_> = tools.iter().map(ServerTool::definition).collect();
        Ok(self.tenancy.pin_tools(&owner, &listed).await?)
    }

    /// Pins all tools as the server lists them now.
    pub async fn accept_all(&self, server: &str, tools: &[ServerTool]) -> Result<(), HostError> {
        let owner = PinOwner::of_host(&self.tenant, self.spec(server)?);
        let listed: Vec<_> = tools.iter().map(ServerTool::definition).collect();
        self.tenancy.accept_tools(&owner, &listed, AcceptedTools::All).await?;
        Ok(())
    }

    async fn accept(&self, server: &str, tool: ToolDefinition) -> Result<(), AppError> {
        let Ok(spec) = self.spec(server) else { return Ok(()) };
        let owner = PinOwner::of_host(&self.tenant, spec);
        let name = tool.name.clone();
        self.tenancy.accept_tools(&owner, &[tool], AcceptedTools::One(&name)).await?;
        Ok(())
    }

    /// Asks the user whether a changed tool may be called, and pins the accepted definition.
    async fn confirm_tool_change(
        &self,
        changed: ChangedTool,
        user: &dyn UserInteraction,
    ) -> Result<(), HostError> {
        let ChangedTool { server, change, listed } = changed;
        if !user.accepts_change(&server, &change).await {
            let tool = change.in_short();
            return Err(HostError::Changed { server, tool });
        }
        Ok(self.accept(&server, listed).await?)
    }

    /// The tool to call, as the server describes it now. If its definition changed, the user
    /// decides; changes of other tools are reported.
    pub(super) async fn approved_tool(
        &self,
        server: &ServerConnection,
        name: &str,
        user: &dyn UserInteraction,
    ) -> Result<ServerTool, HostError> {
        let offer =
            server.tools().await.map_err(|error| self.server_error(server.name(), error))?;
        let mut changes = self.changes(server.name(), &offer.tools).await?;
        let tool = self.find_tool(server.name(), offer, name)?;
        let own =
            changes.iter().position(|it| it.tool == name && it.kind == ToolChangeKind::Changed);
        let own = own.map(|at| changes.remove(at));
        changes.retain(|change| change.kind != ToolChangeKind::Removed);
        if !changes.is_empty() {
            user.tell_changes(server.name(), &changes);
        }
        if let Some(change) = own {
            let (server, listed) = (server.name().to_owned(), tool.definition());
            self.confirm_tool_change(ChangedTool { server, change, listed }, user).await?;
        }
        Ok(tool)
    }

    /// Asks about every changed tool that a plan may call, before the plan starts.
    pub async fn approve_plan_tools(
        &self,
        plan: &HostPlan,
        changed: Vec<ChangedTool>,
        user: &dyn UserInteraction,
    ) -> Result<(), HostError> {
        for changed in changed {
            let is_used = plan.tasks.iter().any(|task| {
                let servers = &task.servers.0;
                task.tool == changed.change.tool
                    && (servers.is_empty() || servers.contains(&changed.server))
            });
            if is_used {
                self.confirm_tool_change(changed, user).await?;
            }
        }
        Ok(())
    }
}
