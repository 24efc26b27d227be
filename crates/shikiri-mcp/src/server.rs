//! Answers requests, for every transport.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::JsonObject;
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::connection::LogLevel;
use shikiri_model::event::Seq;
use shikiri_runtime::random;
use tokio::sync::broadcast;

use crate::catalogue::{McpCatalogue, McpExtras, ToolBackend};
use crate::mcp_caller::{LEGACY, MODERN, McpCaller, ProtocolEra};
use crate::message::RpcRequest;
use crate::modern_connection::ModernConnections;
use crate::request_meta::LANE;
use crate::rpc_error::RpcError;
use crate::run_follower::RunFollower;
use crate::subscriptions_listen::{ListChange, ListenSubscription};
use crate::tool_groups::ToolSelection;
use crate::{list_methods, tasks, tools_call};

/// A call is answered with the run when that has not ended after so long: many clients give up
/// at 60 seconds.
const PATIENCE: Duration = Duration::from_secs(45);
/// Many HTTP clients send a request again whose connection was reset.
const REPEAT_TIME: Duration = Duration::from_secs(2);
/// How long a client may keep what rarely changes.
const LIST_TTL_MS: u64 = 60_000;
/// Characters of the client's name in the name that `server/discover` gives it.
const MAX_NAMED_AFTER: usize = 40;

#[derive(Clone, Debug)]
pub struct McpOptions {
    pub patience: Duration,
    /// A call that brought an answer may be sent again so long after its connection broke, before
    /// its run is stopped.
    pub repeat_time: Duration,
    /// The tools that clients get.
    pub tools: ToolSelection,
}

impl Default for McpOptions {
    fn default() -> Self {
        Self { patience: PATIENCE, repeat_time: REPEAT_TIME, tools: ToolSelection::ALL }
    }
}

/// The server behind every transport.
pub struct McpService {
    pub(crate) app: App,
    pub(crate) catalogue: McpCatalogue,
    pub(crate) options: McpOptions,
    pub(crate) modern_connections: ModernConnections,
    changes: broadcast::Sender<ListChange>,
}

/// How a request is answered.
pub(crate) enum RequestAnswer {
    Now(Result<Value, RpcError>),
    /// The answer to a call that was written down under this number of the connection's stream.
    Logged {
        number: Seq,
        text: String,
    },
    Follow(Box<RunFollower>),
    Listen(Box<ListenSubscription>),
}

impl From<RpcError> for RequestAnswer {
    fn from(fault: RpcError) -> Self {
        Self::Now(Err(fault))
    }
}

impl McpService {
    pub fn new(app: App, extras: McpExtras, options: McpOptions) -> Arc<Self> {
        let extras = crate::tools::with_builtin_tools(&app, extras);
        let catalogue = McpCatalogue::new(&app, extras);
        let changes = broadcast::Sender::new(16);
        Arc::new(Self {
            app,
            catalogue,
            options,
            modern_connections: ModernConnections::default(),
            changes,
        })
    }

    /// Notifies every client that listens.
    pub fn announce(&self, change: ListChange) {
        // There may be no listener.
        let _ = self.changes.send(change);
    }

    pub(crate) fn changes(&self) -> broadcast::Receiver<ListChange> {
        self.changes.subscribe()
    }

    /// Whether the answer may be a stream, for which there must be room before anything is done.
    pub(crate) fn may_stream(&self, request: &RpcRequest) -> bool {
        let name = request.params.get("name").and_then(Value::as_str).unwrap_or_default();
        match request.method.as_str() {
            "tools/call" => {
                self.catalogue.tools.get(name).is_some_and(|tool| match &tool.backend {
                    ToolBackend::Agent(_) => true,
                    ToolBackend::Server(tool) => tool.follows(&JsonObject::new()).is_some(),
                })
            }
            "prompts/get" => {
                self.catalogue.prompts.get(name).is_some_and(|prompt| prompt.agent().is_some())
            }
            "subscriptions/listen" => true,
            _ => false,
        }
    }

    pub(crate) async fn answer(
        self: &Arc<Self>,
        caller: &McpCaller,
        request: &RpcRequest,
    ) -> RequestAnswer {
        let answered = match request.method.as_str() {
            "tools/call" => tools_call::call_tool(self, caller, request).await,
            "prompts/get" => tools_call::get_prompt(self, caller, request).await,
            "subscriptions/listen" if caller.era == ProtocolEra::Modern => {
                ListenSubscription::open(self, caller, request)
                    .map(|l| RequestAnswer::Listen(Box::new(l)))
            }
            _ => self
                .plain(caller, request)
                .await
                .map(|result| RequestAnswer::Now(Ok(finish_result(caller, result)))),
        };
        answered.unwrap_or_else(|fault| {
            caller.receipts.lose();
            RequestAnswer::from(fault)
        })
    }

    async fn plain(&self, caller: &McpCaller, request: &RpcRequest) -> Result<Value, RpcError> {
        match (request.method.as_str(), caller.era) {
            ("tools/list", _) => list_methods::tools(self, caller, request).await,
            ("resources/list", _) => list_methods::resources(self, caller, request).await,
            ("resources/templates/list", _) => list_methods::templates(self, caller, request),
            ("resources/read", era) => list_methods::read(self, caller, request, era).await,
            ("prompts/list", _) => list_methods::prompts(self, caller, request),
            ("completion/complete", _) => list_methods::complete(self, caller, request).await,
            ("ping", ProtocolEra::Legacy) => Ok(json!({})),
            ("logging/setLevel", ProtocolEra::Legacy) => self.set_level(caller, request).await,
            ("resources/subscribe", ProtocolEra::Legacy) => self.subscribe(caller, request).await,
            ("resources/unsubscribe", ProtocolEra::Legacy) => {
                let uri = request.text("uri")?;
                self.app.tenancy.unsubscribe(&caller.connection, uri).await?;
                Ok(json!({}))
            }
            ("server/discover", ProtocolEra::Modern) => discover(caller),
            ("tasks/get", ProtocolEra::Modern) => tasks::get(self, caller, request).await,
            ("tasks/update", ProtocolEra::Modern) => tasks::update(self, caller, request).await,
            ("tasks/cancel", ProtocolEra::Modern) => tasks::cancel(self, caller, request).await,
            (method, _) => Err(RpcError::method(method)),
        }
    }

    async fn set_level(&self, caller: &McpCaller, request: &RpcRequest) -> Result<Value, RpcError> {
        let level = request.params.get("level").cloned().unwrap_or_default();
        let level: LogLevel = serde_json::from_value(level)
            .map_err(|_| RpcError::params("level: must be one of debug, info, notice, warning, error, critical, alert, emergency"))?;
        self.app.tenancy.set_log_level(&caller.connection, level).await?;
        Ok(json!({}))
    }

    async fn subscribe(&self, caller: &McpCaller, request: &RpcRequest) -> Result<Value, RpcError> {
        let uri = request.text("uri")?;
        list_methods::contents(self, caller, uri, caller.era).await?;
        self.app.tenancy.subscribe(&caller.connection, uri).await?;
        Ok(json!({}))
    }
}

pub(crate) fn server_info() -> Value {
    json!({
        "name": "shikiri",
        "title": "Shikiri",
        "version": env!("CARGO_PKG_VERSION"),
        "icons": [{ "src": ICON, "mimeType": "image/svg+xml", "sizes": ["any"] }],
    })
}

/// A drawing of two rooms with a sliding door between them.
pub(crate) const ICON: &str = "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHZpZXdCb3g9IjAgMCAyNCAyNCIgZmlsbD0ibm9uZSIgc3Ryb2tlPSIjMzM0MTU1IiBzdHJva2Utd2lkdGg9IjIiPjxyZWN0IHg9IjMiIHk9IjQiIHdpZHRoPSIxOCIgaGVpZ2h0PSIxNiIvPjxwYXRoIGQ9Ik0xMiA0djE2TTE1IDEydjEiLz48L3N2Zz4=";

const INSTRUCTIONS: &str = "Agents are tools here, and every call of one is a durable run: it goes \
on when the server restarts. Of revision 2026-07-28, a client that leaves a call which it waits for \
stops its run; start with run_agent what must go on. A call that lasts is answered with a run_id \
and a link to the run; wait for it with run_wait, look at it with run_status, answer its questions \
with run_answer, redirect it with run_update, stop it with run_cancel. A call whose answer was lost \
is found with run_list. Agents that work together in a project call authenticate first: its answer \
says how to go on.";

/// The answer to `initialize`.
pub(crate) fn initialized(protocol: &str) -> Value {
    json!({
        "protocolVersion": protocol,
        "capabilities": capabilities(),
        "serverInfo": server_info(),
        "instructions": INSTRUCTIONS,
    })
}

/// What both eras offer.
fn capabilities() -> Value {
    json!({
        "tools": { "listChanged": true },
        "resources": { "subscribe": true },
        "prompts": { "listChanged": true },
        "logging": {},
        "completions": {},
    })
}

/// The answer to `server/discover`. A client that nothing tells from others gets a name, which it
/// may send with its requests.
fn discover(caller: &McpCaller) -> Result<Value, RpcError> {
    let mut versions = vec![MODERN];
    versions.extend(LEGACY);
    let mut capabilities = capabilities();
    capabilities["extensions"] = json!({ rmcp::model::TASKS_EXTENSION_ID: {} });
    let mut found = json!({
        "supportedVersions": versions,
        "capabilities": capabilities,
        "instructions": INSTRUCTIONS,
        "ttlMs": LIST_TTL_MS,
        "cacheScope": "public",
    });
    if caller.identity.is_shared {
        let random = u64::from_le_bytes(random()?);
        let client: String = caller.identity.agent.chars().take(MAX_NAMED_AFTER).collect();
        found["_meta"] = json!({ LANE: format!("{client}-{random:016x}") });
        // The name is for one client alone.
        found["cacheScope"] = json!("private");
    }
    Ok(found)
}

/// For answers that may be kept for a while.
pub(crate) fn cached(mut result: Value, scope: &str) -> Value {
    let ttl = if scope == "public" { LIST_TTL_MS } else { 0 };
    result["ttlMs"] = json!(ttl);
    result["cacheScope"] = json!(scope);
    result
}

/// Adds what results of the newer era must say and removes what those of the older must not.
pub(crate) fn finish_result(caller: &McpCaller, mut result: Value) -> Value {
    let Value::Object(fields) = &mut result else { return result };
    if !caller.takes_links()
        && let Some(Value::Array(content)) = fields.get_mut("content")
    {
        // The text and the data name the run as well.
        content.retain(|part| part["type"] != "resource_link");
    }
    match caller.era {
        ProtocolEra::Legacy => {
            for field in ["ttlMs", "cacheScope"] {
                fields.remove(field);
            }
        }
        ProtocolEra::Modern => {
            fields.entry("resultType").or_insert_with(|| json!("complete"));
            let meta = fields.entry("_meta").or_insert_with(|| json!({}));
            meta["io.modelcontextprotocol/serverInfo"] =
                json!({ "name": "shikiri", "version": env!("CARGO_PKG_VERSION") });
        }
    }
    result
}
