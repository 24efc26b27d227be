//! The tools of one turn, for engines that call tools themselves: those of the tenant's servers,
//! the files of the workspace, and the skills. For engines that are separate programs,
//! `loopback_server` offers the APIs among the servers as MCP servers, and forwards to those that need
//! headers.
//!
//! # A call of an API
//!
//! 1. A turn begins (`execution/turn_options.rs`). `shikiri-openapi` makes a tool from each operation
//!    in a tenant's document. Its input schema keeps references beside it (`schema_converter.rs`), so a
//!    document that refers to itself has an end.
//! 2. A native engine gets these tools in its toolbox (`api_tools`), with those of MCP servers
//!    (`mcp_link`), files and skills. Claude Code gets the address of a `loopback_server` with a token
//!    for this run; it is closed when the run ends. `definition_check` compares all tools with their
//!    pins and withholds changed ones (`docs/decisions/0022-tool-definitions.md`).
//! 3. The model calls. `ApiOperation::build_request` checks the arguments and builds the request. The
//!    finished address is parsed again and must lie where the document says.
//! 4. `servers/openapi_client.rs` resolves the host, checks its addresses and connects to just
//!    those. A redirect to another host is not followed. It reads at most 10 MiB within 30 s, of
//!    which the model gets the first 100 KiB.

mod api_tools;
mod definition_check;
mod endpoint_event;
mod file_tools;
mod forwarded_server;
mod loopback_server;
mod mcp_link;
mod skill_tool;
mod tool_names;
mod tool_results;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::{Map, Value};
use shikiri_client::ServerToolList;
use shikiri_model::ids::{ConversationId, TenantId};
use shikiri_model::server::McpServerTransport;
use shikiri_model::skill::Skill;

use self::api_tools::ApiTools;
pub(crate) use self::api_tools::definitions as definitions_of_api;
pub(crate) use self::definition_check::{DefinitionCheck, ToolWarnings};
use self::file_tools::{FileTool, WorkspaceFileTools};
pub(crate) use self::loopback_server::LoopbackMcpServer;
use self::mcp_link::McpLink;
use self::tool_names::{ToolNames, fit_schema, is_allowed, restore};
use self::tool_results::strip_invisible_text;
use crate::Executions;
use crate::execution::{ResolvedServer, ToolBox, ToolCallResult, ToolSpec};

/// Models cannot handle more tools than this.
const MAX_TOOLS: usize = 500;
const MAX_DESCRIPTION: usize = 4_000;
/// Names of the engines' own tools.
const RESERVED: [&str; 1] = ["Task"];

/// The sources of a turn's tools.
pub(crate) struct ToolSources<'a> {
    pub(crate) executions: &'a Executions,
    pub(crate) tenant: &'a TenantId,
    pub(crate) conversation: &'a ConversationId,
    /// Whether the workspace's files can be used.
    pub(crate) has_workspace: bool,
    pub(crate) servers: &'a [ResolvedServer],
    pub(crate) skills: &'a [Skill],
    /// The working folder of programs.
    pub(crate) folder: &'a Path,
    /// The time limit of one call at a server.
    pub(crate) limit: Duration,
}

/// Servers that are left out, with the reason.
pub(crate) type SkippedServers = Vec<(String, String)>;

/// The toolbox of one turn. Dropping it ends its connections.
pub(crate) struct TurnTools {
    tools: Vec<ToolSpec>,
    routes: BTreeMap<String, ToolRoute>,
    files: Option<WorkspaceFileTools>,
    skills: Vec<Skill>,
    links: Vec<Arc<McpLink>>,
}

/// How a tool is called.
enum ToolRoute {
    Mcp {
        link: Arc<McpLink>,
        tool: Box<shikiri_client::ServerTool>,
        renamed: BTreeMap<String, String>,
    },
    Api {
        tools: Arc<ApiTools>,
        name: String,
    },
    File(FileTool),
    Skill,
}

/// A connected server.
enum ConnectedServer {
    Mcp(Arc<McpLink>, ServerToolList),
    Api(Arc<ApiTools>),
}

impl ConnectedServer {
    /// The tools of this server to withhold.
    async fn withheld_tools(
        &self,
        server: &ResolvedServer,
        check: &mut DefinitionCheck<'_>,
    ) -> BTreeSet<String> {
        match self {
            Self::Mcp(_, offer) => check.find_withheld_in_offer(server, offer).await,
            Self::Api(tools) => check.find_withheld_tools(server, tools.definitions()).await,
        }
    }
}

impl TurnTools {
    /// Connects to all servers in parallel. An unreachable server is left out, and the turn runs
    /// without it. A tool with a changed definition is left out until a user accepts it.
    pub(crate) async fn connect_all(
        sources: &ToolSources<'_>,
        check: &mut DefinitionCheck<'_>,
    ) -> (Self, SkippedServers) {
        let mut made = Self {
            tools: Vec::new(),
            routes: BTreeMap::new(),
            files: None,
            skills: sources.skills.to_vec(),
            links: Vec::new(),
        };
        let mut taken = ToolNames::default();
        RESERVED.iter().for_each(|name| taken.insert(name));
        made.add_own(sources, &mut taken);
        let mut left_out = Vec::new();
        let connected =
            join_all(sources.servers.iter().map(|server| connect_server(server, sources))).await;
        for (server, connected) in sources.servers.iter().zip(connected) {
            let added = match connected {
                Ok(connected) => {
                    let withheld = connected.withheld_tools(server, check).await;
                    made.add_server(server, connected, &withheld, &mut taken)
                }
                Err(why) => Err(why),
            };
            if let Err(why) = added {
                left_out.push((server.name.clone(), why));
            }
        }
        (made, left_out)
    }

    fn add_own(&mut self, sources: &ToolSources<'_>, taken: &mut ToolNames) {
        if sources.has_workspace {
            let (tenant, conversation) = (sources.tenant.clone(), sources.conversation.clone());
            self.files =
                Some(WorkspaceFileTools::new(sources.executions.clone(), tenant, conversation));
            for (kind, tool) in file_tools::tools() {
                taken.insert(&tool.name);
                self.add(tool, ToolRoute::File(kind));
            }
        }
        if let Some(tool) = skill_tool::tool(&self.skills) {
            taken.insert(&tool.name);
            self.add(tool, ToolRoute::Skill);
        }
    }

    /// Fails if not all of its tools fit.
    fn add_server(
        &mut self,
        server: &ResolvedServer,
        connected: ConnectedServer,
        withheld: &BTreeSet<String>,
        taken: &mut ToolNames,
    ) -> Result<(), String> {
        let allowed = server.allowed_tools.as_deref();
        let is_allowed =
            |name: &str| is_allowed(allowed, &server.name, name) && !withheld.contains(name);
        let mut offered: Vec<(ToolSpec, ToolRoute)> = Vec::new();
        match connected {
            ConnectedServer::Mcp(link, offer) => {
                self.links.push(link.clone());
                for tool in offer.tools.into_iter().filter(|tool| is_allowed(&tool.name)) {
                    let (input_schema, renamed) = fit_schema(&tool.input_schema);
                    let shown = ToolSpec {
                        name: tool.name.clone(),
                        description: described(&tool),
                        input_schema,
                        is_repeatable: tool.is_repeatable,
                    };
                    let link = link.clone();
                    offered.push((shown, ToolRoute::Mcp { link, tool: Box::new(tool), renamed }));
                }
            }
            ConnectedServer::Api(tools) => {
                for tool in tools.tools().iter().filter(|tool| is_allowed(&tool.name)) {
                    let route =
                        ToolRoute::Api { tools: Arc::clone(&tools), name: tool.name.clone() };
                    offered.push((tool.clone(), route));
                }
            }
        }
        let room = MAX_TOOLS.saturating_sub(self.tools.len());
        let count = offered.len();
        for (tool, route) in offered.into_iter().take(room) {
            let name = taken.claim_name(&server.name, &tool.name);
            self.add(ToolSpec { name, ..tool }, route);
        }
        match count <= room {
            true => Ok(()),
            false => Err(format!(
                "only {room} of its {count} tools are offered: name some in allowed_tools"
            )),
        }
    }

    fn add(&mut self, tool: ToolSpec, route: ToolRoute) {
        self.routes.insert(tool.name.clone(), route);
        self.tools.push(tool);
    }
}

async fn connect_server(
    server: &ResolvedServer,
    sources: &ToolSources<'_>,
) -> Result<ConnectedServer, String> {
    match &server.transport {
        McpServerTransport::Openapi { .. } => {
            Ok(ConnectedServer::Api(Arc::new(ApiTools::open(server).await?)))
        }
        McpServerTransport::Http { .. }
        | McpServerTransport::Sse { .. }
        | McpServerTransport::Stdio { .. } => {
            let (link, offer) = McpLink::connect(server, sources.folder, sources.limit).await?;
            Ok(ConnectedServer::Mcp(Arc::new(link), offer))
        }
    }
}

fn described(tool: &shikiri_client::ServerTool) -> String {
    let text = match (tool.description.trim(), &tool.title) {
        ("", Some(title)) => title,
        ("", None) => &tool.name,
        (text, _) => text,
    };
    text.chars().take(MAX_DESCRIPTION).collect()
}

#[async_trait]
impl ToolBox for TurnTools {
    fn tools(&self) -> &[ToolSpec] {
        &self.tools
    }

    async fn call(&self, name: &str, input: &Value) -> ToolCallResult {
        let Some(route) = self.routes.get(name) else {
            return ToolCallResult::error(format!("there is no tool {name}"));
        };
        let empty = Map::new();
        let input = match input {
            Value::Object(input) => input,
            Value::Null => &empty,
            _ => return ToolCallResult::error("the arguments must be an object"),
        };
        match route {
            ToolRoute::Mcp { link, tool, renamed } => {
                strip_invisible_text(link.call(tool, restore(input, renamed)).await)
            }
            ToolRoute::Api { tools, name } => tools.call(name, &Value::Object(input.clone())).await,
            ToolRoute::File(kind) => match &self.files {
                Some(files) => files.call(*kind, input).await,
                None => ToolCallResult::error("there is no workspace"),
            },
            ToolRoute::Skill => skill_tool::call(&self.skills, input),
        }
    }
}

impl Drop for TurnTools {
    /// Ends the servers' sessions. Programs end with their connection.
    fn drop(&mut self) {
        let links = std::mem::take(&mut self.links);
        if let (false, Ok(runtime)) = (links.is_empty(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                join_all(links.iter().map(|link| link.close())).await;
            });
        }
    }
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
