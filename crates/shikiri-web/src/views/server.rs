use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shikiri_executions::servers::{ServerIdentity, ServerKind, ServerReport};
use shikiri_model::ids::ServerId;
use shikiri_model::models::ActiveStatus;
use shikiri_model::record::StoredDocument;
use shikiri_model::server::{McpServer, McpServerTransport};
use shikiri_model::time::Timestamp;
use shikiri_model::tool::{ToolChange, ToolChangeKind, ToolDescription};
use utoipa::ToSchema;

use super::words::{ActiveStatusSchema, ToolChangeKindSchema};

/// An MCP server that a tenant's executions can reach.
#[derive(Serialize, ToSchema)]
#[schema(as = McpServer)]
pub struct ServerJson {
    #[schema(value_type = String)]
    pub(crate) id: ServerId,
    /// Part of its tools' names, `mcp__NAME__TOOL`.
    name: String,
    #[serde(rename = "type")]
    kind: ServerTypeJson,
    /// Of `http` and `sse`; of `openapi`, if it is not where its document says.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// Of `stdio`: the program and its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Vec<String>>,
    /// Of `openapi`: the document as it was given, JSON as an object; or where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<Value>,
    /// Each `${name}` is filled in from the tokens of a request. What is written out is shown as
    /// `***`, which, sent back, leaves the value as it is.
    headers_template: BTreeMap<String, String>,
    /// Only these tools; null for all.
    allowed_tools: Option<Vec<String>>,
    /// Whether it may be at an address of this machine or this network.
    allow_private: bool,
    #[schema(value_type = ActiveStatusSchema)]
    status: ActiveStatus,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

/// How a server is reached; `openapi` is an API whose operations are tools.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = McpServerType)]
pub enum ServerTypeJson {
    Http,
    Sse,
    Stdio,
    Openapi,
}

/// What came of a try.
#[derive(Serialize, ToSchema)]
#[schema(as = McpServerCheck)]
pub struct ServerCheckJson {
    reachable: bool,
    /// What happened, for people.
    detail: String,
    /// As the server calls itself.
    server: Option<TriedServerJson>,
    /// Null if it did not tell.
    tools: Option<Vec<String>>,
    /// How its tools differ from what is known of them. Changed ones are withheld from executions.
    changes: Vec<ToolChangeJson>,
}

/// A tool that is not what it was.
#[derive(Serialize, ToSchema)]
#[schema(as = ToolChange)]
struct ToolChangeJson {
    tool: String,
    #[schema(value_type = ToolChangeKindSchema)]
    kind: ToolChangeKind,
    /// What the server said of it; absent for a new tool, and where too much was said to be kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<ToolDefinitionJson>,
    /// What the server says of it now; absent for a tool that is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<ToolDefinitionJson>,
}

/// What a server says of a tool, without invisible characters.
#[derive(Serialize, ToSchema)]
#[schema(as = ToolDefinition)]
struct ToolDefinitionJson {
    title: Option<String>,
    description: String,
    input_schema: Value,
    annotations: Option<Value>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = TriedMcpServer)]
struct TriedServerJson {
    name: String,
    version: String,
}

impl From<StoredDocument<McpServer>> for ServerJson {
    fn from(stored: StoredDocument<McpServer>) -> Self {
        let server = stored.value;
        let headers_template = server.shown_headers();
        let (kind, url, command, spec) = match server.transport {
            McpServerTransport::Http { url } => (ServerTypeJson::Http, Some(url), None, None),
            McpServerTransport::Sse { url } => (ServerTypeJson::Sse, Some(url), None, None),
            McpServerTransport::Stdio { command } => {
                (ServerTypeJson::Stdio, None, Some(command), None)
            }
            McpServerTransport::Openapi { spec, url } => {
                let object = serde_json::from_str(&spec).ok().filter(Value::is_object);
                let spec = object.unwrap_or(Value::String(spec));
                (ServerTypeJson::Openapi, url, None, Some(spec))
            }
        };
        Self {
            id: server.id,
            name: server.name,
            kind,
            url,
            command,
            spec,
            headers_template,
            allowed_tools: server.allowed_tools,
            allow_private: server.allow_private,
            status: server.status,
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }
    }
}

impl From<ServerTypeJson> for ServerKind {
    fn from(kind: ServerTypeJson) -> Self {
        match kind {
            ServerTypeJson::Http => Self::Http,
            ServerTypeJson::Sse => Self::Sse,
            ServerTypeJson::Stdio => Self::Stdio,
            ServerTypeJson::Openapi => Self::Openapi,
        }
    }
}

impl From<ServerReport> for ServerCheckJson {
    fn from(report: ServerReport) -> Self {
        let ServerReport { reachable, detail, server, tools, changes } = report;
        let server =
            server.map(|ServerIdentity { name, version }| TriedServerJson { name, version });
        let changes = changes.into_iter().map(ToolChangeJson::from).collect();
        Self { reachable, detail, server, tools, changes }
    }
}

impl From<ToolChange> for ToolChangeJson {
    fn from(change: ToolChange) -> Self {
        let ToolChange { tool, kind, before, after } = change;
        Self { tool, kind, before: before.map(Into::into), after: after.map(Into::into) }
    }
}

impl From<ToolDescription> for ToolDefinitionJson {
    fn from(definition: ToolDescription) -> Self {
        let ToolDescription { title, description, input_schema, annotations } = definition;
        let annotations = Some(annotations).filter(|value| !value.is_null());
        Self { title, description, input_schema, annotations }
    }
}
