//! The tools of one turn, for engines that call tools themselves: those of the tenant's servers,
//! the files of the workspace, and the skills. For engines that are programs of their own, `door`
//! offers the APIs among the servers as MCP servers.

mod answer;
mod api;
mod definitions;
mod door;
mod files;
mod mcp;
mod names;
mod skills;
mod sse;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::{Map, Value};
use shikiri_client::Offer;
use shikiri_model::ids::{ConversationId, TenantId};
use shikiri_model::server::Transport;
use shikiri_model::skill::Skill;

use self::answer::of_stranger;
use self::api::ApiTools;
pub(crate) use self::api::definitions as definitions_of_api;
pub(crate) use self::definitions::{DefinitionCheck, ToolNews};
pub(crate) use self::door::Door;
use self::files::{FileTool, Files};
use self::mcp::McpLink;
use self::names::{Taken, fit_schema, is_allowed, restore};
use self::sse::SseLink;
use crate::app::App;
use crate::execution::{Answer, Server, Tool, ToolBox};

/// More than this, and no model finds its way.
const MAX_TOOLS: usize = 500;
const MAX_DESCRIPTION: usize = 4_000;
/// Names that an engine has for tools of its own.
const RESERVED: [&str; 1] = ["Task"];

/// What the tools of a turn are made from.
pub(crate) struct Supplies<'a> {
    pub(crate) app: &'a App,
    pub(crate) tenant: &'a TenantId,
    pub(crate) conversation: &'a ConversationId,
    /// Whether the workspace's files can be used.
    pub(crate) has_workspace: bool,
    pub(crate) servers: &'a [Server],
    pub(crate) skills: &'a [Skill],
    /// Where programs work.
    pub(crate) folder: &'a Path,
    /// For one call of a server.
    pub(crate) limit: Duration,
}

/// Servers that are left out, with the reason.
pub(crate) type LeftOut = Vec<(String, String)>;

/// The box of one turn. Connections end with it.
pub(crate) struct TurnTools {
    tools: Vec<Tool>,
    ways: BTreeMap<String, Way>,
    files: Option<Files>,
    skills: Vec<Skill>,
    links: Vec<Link>,
}

/// How a tool is called.
enum Way {
    Mcp { link: Link, tool: Box<shikiri_client::Tool>, renamed: BTreeMap<String, String> },
    Api { tools: Arc<ApiTools>, name: String },
    File(FileTool),
    Skill,
}

/// A connection to an MCP server, by the transport that it speaks.
#[derive(Clone)]
enum Link {
    Client(Arc<McpLink>),
    Sse(Arc<SseLink>),
}

impl Link {
    async fn call(&self, tool: &shikiri_client::Tool, arguments: Map<String, Value>) -> Answer {
        match self {
            Self::Client(link) => link.call(tool, arguments).await,
            Self::Sse(link) => link.call(tool, arguments).await,
        }
    }

    /// A stream ends when nobody holds it any more.
    async fn close(&self) {
        if let Self::Client(link) = self {
            link.close().await;
        }
    }
}

/// A server that is there.
enum Met {
    Mcp(Link, Offer),
    Api(Arc<ApiTools>),
}

impl Met {
    /// Which of its tools are withheld.
    async fn judge(&self, server: &Server, check: &mut DefinitionCheck<'_>) -> BTreeSet<String> {
        match self {
            Self::Mcp(_, offer) => check.judge_offer(server, offer).await,
            Self::Api(tools) => check.judge(server, tools.definitions()).await,
        }
    }
}

impl TurnTools {
    /// Meets all servers at once. One that is away is left out; the turn goes on without it. So is a
    /// tool whose definition changed, until a person accepts it.
    pub(crate) async fn gather(
        supplies: &Supplies<'_>,
        check: &mut DefinitionCheck<'_>,
    ) -> (Self, LeftOut) {
        let mut made = Self {
            tools: Vec::new(),
            ways: BTreeMap::new(),
            files: None,
            skills: supplies.skills.to_vec(),
            links: Vec::new(),
        };
        let mut taken = Taken::default();
        RESERVED.iter().for_each(|name| taken.insert(name));
        made.add_own(supplies, &mut taken);
        let mut left_out = Vec::new();
        let met = join_all(supplies.servers.iter().map(|server| meet(server, supplies))).await;
        for (server, met) in supplies.servers.iter().zip(met) {
            let added = match met {
                Ok(met) => {
                    let withheld = met.judge(server, check).await;
                    made.add_server(server, met, &withheld, &mut taken)
                }
                Err(why) => Err(why),
            };
            if let Err(why) = added {
                left_out.push((server.name.clone(), why));
            }
        }
        (made, left_out)
    }

    fn add_own(&mut self, supplies: &Supplies<'_>, taken: &mut Taken) {
        if supplies.has_workspace {
            let (tenant, conversation) = (supplies.tenant.clone(), supplies.conversation.clone());
            self.files = Some(Files::new(supplies.app.clone(), tenant, conversation));
            for (kind, tool) in files::tools() {
                taken.insert(&tool.name);
                self.add(tool, Way::File(kind));
            }
        }
        if let Some(tool) = skills::tool(&self.skills) {
            taken.insert(&tool.name);
            self.add(tool, Way::Skill);
        }
    }

    /// Err if not all of its tools find room.
    fn add_server(
        &mut self,
        server: &Server,
        met: Met,
        withheld: &BTreeSet<String>,
        taken: &mut Taken,
    ) -> Result<(), String> {
        let allowed = server.allowed_tools.as_deref();
        let is_allowed =
            |name: &str| is_allowed(allowed, &server.name, name) && !withheld.contains(name);
        let mut offered: Vec<(Tool, Way)> = Vec::new();
        match met {
            Met::Mcp(link, offer) => {
                self.links.push(link.clone());
                for tool in offer.tools.into_iter().filter(|tool| is_allowed(&tool.name)) {
                    let (input_schema, renamed) = fit_schema(&tool.input_schema);
                    let shown = Tool {
                        name: tool.name.clone(),
                        description: described(&tool),
                        input_schema,
                        is_repeatable: tool.is_repeatable,
                    };
                    let link = link.clone();
                    offered.push((shown, Way::Mcp { link, tool: Box::new(tool), renamed }));
                }
            }
            Met::Api(tools) => {
                for tool in tools.tools().iter().filter(|tool| is_allowed(&tool.name)) {
                    let way = Way::Api { tools: Arc::clone(&tools), name: tool.name.clone() };
                    offered.push((tool.clone(), way));
                }
            }
        }
        let room = MAX_TOOLS.saturating_sub(self.tools.len());
        let count = offered.len();
        for (tool, way) in offered.into_iter().take(room) {
            let name = taken.of_server(&server.name, &tool.name);
            self.add(Tool { name, ..tool }, way);
        }
        match count <= room {
            true => Ok(()),
            false => Err(format!(
                "only {room} of its {count} tools are offered: name some in allowed_tools"
            )),
        }
    }

    fn add(&mut self, tool: Tool, way: Way) {
        self.ways.insert(tool.name.clone(), way);
        self.tools.push(tool);
    }
}

async fn meet(server: &Server, supplies: &Supplies<'_>) -> Result<Met, String> {
    match &server.transport {
        Transport::Openapi { .. } => Ok(Met::Api(Arc::new(ApiTools::open(server).await?))),
        Transport::Sse { .. } => {
            let (link, offer) = SseLink::meet(server, supplies.limit).await?;
            Ok(Met::Mcp(Link::Sse(Arc::new(link)), offer))
        }
        Transport::Http { .. } | Transport::Stdio { .. } => {
            let (link, offer) = McpLink::meet(server, supplies.folder, supplies.limit).await?;
            Ok(Met::Mcp(Link::Client(Arc::new(link)), offer))
        }
    }
}

fn described(tool: &shikiri_client::Tool) -> String {
    let text = match (tool.description.trim(), &tool.title) {
        ("", Some(title)) => title,
        ("", None) => &tool.name,
        (text, _) => text,
    };
    text.chars().take(MAX_DESCRIPTION).collect()
}

#[async_trait]
impl ToolBox for TurnTools {
    fn tools(&self) -> &[Tool] {
        &self.tools
    }

    async fn call(&self, name: &str, input: &Value) -> Answer {
        let Some(way) = self.ways.get(name) else {
            return Answer::error(format!("there is no tool {name}"));
        };
        let empty = Map::new();
        let input = match input {
            Value::Object(input) => input,
            Value::Null => &empty,
            _ => return Answer::error("the arguments must be an object"),
        };
        match way {
            Way::Mcp { link, tool, renamed } => {
                of_stranger(link.call(tool, restore(input, renamed)).await)
            }
            Way::Api { tools, name } => tools.call(name, &Value::Object(input.clone())).await,
            Way::File(kind) => match &self.files {
                Some(files) => files.call(*kind, input).await,
                None => Answer::error("there is no workspace"),
            },
            Way::Skill => skills::call(&self.skills, input),
        }
    }
}

impl Drop for TurnTools {
    /// Servers with sessions are told that theirs are over; programs end with their connection.
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
