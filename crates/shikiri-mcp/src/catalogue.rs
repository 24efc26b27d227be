//! What the server offers: tools that answer at once, agents (tools that are runs), resources and
//! prompts. Each kind is a trait; `McpCatalogue` holds what implements them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use rmcp::model::{JsonObject, Prompt, Resource, ResourceTemplate, Tool, ToolAnnotations};
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::team::ToolPermission;
use shikiri_runtime::run::DurableAgent;

use crate::mcp_caller::McpCaller;
use crate::rpc_error::RpcError;
use crate::tool_groups::ToolGroup;

/// A tool of the server itself, besides the tools that start an agent. It answers at once, or follows a
/// run that is there already.
#[async_trait]
pub trait BuiltinTool: Send + Sync + 'static {
    fn definition(&self) -> Tool;

    /// A `CallToolResult` as JSON.
    async fn call(&self, caller: &McpCaller, arguments: &JsonObject) -> Result<Value, RpcError>;

    /// The session that a team tool requires; None for other tools, which sessions may not use.
    fn permission(&self) -> Option<ToolPermission> {
        None
    }

    /// The group that it belongs to; None for a tool that every client gets.
    fn group(&self) -> Option<ToolGroup> {
        self.permission().map(|_| ToolGroup::Teams)
    }

    /// Follows a run instead of answering, if it returns one.
    fn follows(&self, _arguments: &JsonObject) -> Option<Result<RunWaitRequest, RpcError>> {
        None
    }
}

/// A tool that waits for a run which is there already.
pub struct RunWaitRequest {
    pub run: shikiri_model::ids::RunId,
    pub max_seconds: u64,
}

/// One page of something, and where the next begins.
pub struct CataloguePage<T> {
    pub items: Vec<T>,
    pub next: Option<String>,
}

/// Resources of one kind.
#[async_trait]
pub trait ResourceSource: Send + Sync + 'static {
    /// Refuses a cursor that it did not give out.
    async fn list(
        &self,
        caller: &McpCaller,
        cursor: Option<&str>,
    ) -> Result<CataloguePage<Resource>, RpcError>;

    fn templates(&self) -> Vec<ResourceTemplate>;

    /// The contents, as the protocol's list of them; None if the address is not of this kind.
    async fn read(&self, caller: &McpCaller, uri: &str) -> Option<Result<Vec<Value>, RpcError>>;

    /// The run whose events change the resource, if one does.
    fn run_of(&self, _uri: &str) -> Option<shikiri_model::ids::RunId> {
        None
    }

    /// What a template's variable may be completed to.
    async fn complete(&self, _caller: &McpCaller, _argument: &str, _start: &str) -> Vec<String> {
        Vec::new()
    }

    /// Whether they can be listed. Others are found by links and by the template.
    fn is_listed(&self) -> bool {
        true
    }

    /// Whether an agent's session may read of them, as far as they concern it.
    fn is_for_sessions(&self) -> bool {
        false
    }
}

/// A prompt, with its text or the agent that makes it.
#[async_trait]
pub trait PromptSource: Send + Sync + 'static {
    fn definition(&self) -> Prompt;

    /// A `GetPromptResult` as JSON.
    async fn get(&self, caller: &McpCaller, arguments: &JsonObject) -> Result<Value, RpcError>;

    /// The agent whose run makes the prompt, if that needs one.
    fn agent(&self) -> Option<&'static str> {
        None
    }

    async fn complete(&self, _caller: &McpCaller, _argument: &str, _start: &str) -> Vec<String> {
        Vec::new()
    }
}

/// Tools, resources and prompts of a server beyond its agents.
#[derive(Clone, Default)]
pub struct McpExtras {
    pub tools: Vec<Arc<dyn BuiltinTool>>,
    pub resources: Vec<Arc<dyn ResourceSource>>,
    pub prompts: Vec<Arc<dyn PromptSource>>,
}

pub(crate) enum ToolBackend {
    Server(Arc<dyn BuiltinTool>),
    Agent(Arc<dyn DurableAgent>),
}

/// A tool, ready to be listed and called.
pub(crate) struct RegisteredTool {
    /// Its definition as JSON.
    pub(crate) definition: Value,
    pub(crate) input_schema: Arc<JsonObject>,
    pub(crate) permission: Option<ToolPermission>,
    pub(crate) group: Option<ToolGroup>,
    pub(crate) backend: ToolBackend,
}

pub(crate) struct McpCatalogue {
    pub(crate) tools: BTreeMap<String, RegisteredTool>,
    pub(crate) resources: Vec<Arc<dyn ResourceSource>>,
    pub(crate) prompts: BTreeMap<String, Arc<dyn PromptSource>>,
}

impl McpCatalogue {
    pub(crate) fn new(app: &App, extras: McpExtras) -> Self {
        let immediate =
            extras.tools.into_iter().map(|tool| (tool.definition(), ToolBackend::Server(tool)));
        let agents = app.runtime.agents().map(|agent| {
            let agent = Arc::clone(agent);
            (agent_tool(agent.as_ref()), ToolBackend::Agent(agent))
        });
        let tools = immediate.chain(agents).map(|(tool, backend)| {
            let registered = RegisteredTool {
                input_schema: Arc::clone(&tool.input_schema),
                definition: serde_json::to_value(&tool).unwrap_or_default(),
                permission: match &backend {
                    ToolBackend::Server(tool) => tool.permission(),
                    ToolBackend::Agent(_) => None,
                },
                group: match &backend {
                    ToolBackend::Server(tool) => tool.group(),
                    ToolBackend::Agent(agent) => Some(ToolGroup::of_agent(agent.tool_group())),
                },
                backend,
            };
            (tool.name.into_owned(), registered)
        });
        let prompts = extras.prompts.into_iter().map(|p| (p.definition().name, p));
        Self { tools: tools.collect(), resources: extras.resources, prompts: prompts.collect() }
    }

    /// Resources that the caller may read.
    pub(crate) fn sources(&self, caller: &McpCaller) -> impl Iterator<Item = &dyn ResourceSource> {
        let is_session = caller.session.is_some();
        let all = self.resources.iter().map(AsRef::as_ref);
        all.filter(move |source: &&dyn ResourceSource| !is_session || source.is_for_sessions())
    }

    /// The tool of that name, if it is in a group that the caller asked for.
    pub(crate) fn tool(&self, caller: &McpCaller, name: &str) -> Option<&RegisteredTool> {
        self.tools.get(name).filter(|tool| caller.tools.includes(tool.group))
    }

    /// Prompts that the caller may get; sessions get none. A prompt about an agent goes with its
    /// tool.
    pub(crate) fn prompts(&self, caller: &McpCaller) -> impl Iterator<Item = &dyn PromptSource> {
        let named = self.prompts.iter().filter(|(name, _)| {
            let of_tool =
                self.tools.get(*name).is_none_or(|tool| caller.tools.includes(tool.group));
            of_tool && caller.session.is_none()
        });
        named.map(|(_, prompt)| prompt.as_ref())
    }

    pub(crate) fn prompt(&self, caller: &McpCaller, name: &str) -> Option<&dyn PromptSource> {
        self.prompts(caller).find(|prompt| prompt.definition().name == name)
    }
}

/// The caller's own name for a call, in `_meta`: sent twice, it is one run.
pub(crate) const CALL_KEY: &str = "shikiri/call";

/// An agent as a tool: its own arguments, and whether the caller stays to the end.
fn agent_tool(agent: &dyn DurableAgent) -> Tool {
    let mut input = object(agent.input_schema());
    if let Some(Value::Object(properties)) = input.get_mut("properties") {
        properties.insert("wait".to_owned(), wait_schema());
    } else {
        input.insert("properties".to_owned(), json!({ "wait": wait_schema() }));
    }
    let mut tool = Tool::new(agent.name(), agent.description(), Arc::new(input));
    tool.title = Some(agent.title().to_owned());
    // A call that lasts is answered with the run instead of its result.
    if let Some(result) = agent.output_schema() {
        let output = json!({ "type": "object", "anyOf": [result, run_schema()] });
        tool.output_schema = Some(Arc::new(object(output)));
    }
    // A host may send a call again that it does not know the fate of: it is the same run.
    let meta = object(json!({ CALL_KEY: true }));
    tool.meta = Some(rmcp::model::MetaObject(meta));
    let hints = ToolAnnotations::with_title(agent.title());
    tool.annotations = Some(hints.read_only(false).destructive(false).idempotent(false));
    tool
}

fn wait_schema() -> Value {
    json!({
        "type": "boolean",
        "default": false,
        "description":
            "Keep the call open to the end, instead of answering with the run after 45 seconds",
    })
}

/// The answer of `run_status`.
pub(crate) fn run_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "run_id": { "type": "string" },
            "agent": { "type": "string" },
            "status": {
                "enum": ["queued", "running", "waiting", "completed", "failed", "cancelled"],
            },
            "progress": { "type": ["number", "null"] },
            "total": { "type": ["number", "null"] },
            "message": { "type": ["string", "null"] },
            "questions": { "type": "array", "items": { "type": "object" } },
            "result": {},
            "error": { "type": "object" },
        },
        "required": ["run_id", "status"],
    })
}

pub(crate) fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}
