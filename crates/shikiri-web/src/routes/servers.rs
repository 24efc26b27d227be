//! `/v1/tenants/{t}/mcp-servers`

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value};
use shikiri_executions::servers::{ServerKind, ServerPatch, split_command};
use shikiri_model::models::ActiveStatus;
use utoipa::ToSchema;

use super::created;
use crate::access_extractors::{ActingApp, TenantAccess};
use crate::json_extractor::{Json, some};
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::path_items::ServerAccess;
use crate::problem_response::ProblemResponse;
use crate::query_extractor::{PageQuery, Query};
use crate::views::{ActiveStatusSchema, ListPage, ServerCheckJson, ServerJson, ServerTypeJson};
use crate::web_state::SharedWebState;

/// A new MCP server: `http` and `sse` have a `url`, `stdio` has a `command`, `openapi` has a `spec`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewServer)]
pub(crate) struct NewServerBody {
    /// Unique in the tenant: 1 to 64 letters, digits, `_` or `-`.
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    name: String,
    /// `stdio` needs the admin key: it starts a program on the server's machine.
    #[serde(rename = "type")]
    kind: ServerTypeJson,
    /// For `openapi`, only if the API is not where its document says.
    url: Option<String>,
    command: Option<ServerCommandBody>,
    /// Of `openapi`: a document of version 3.0 or 3.1, as an object or as text (JSON or YAML, at most
    /// 2 MiB), or its address.
    spec: Option<ApiSpecBody>,
    /// Each `${name}` is filled in from the tokens of a request.
    headers_template: Option<BTreeMap<String, String>>,
    /// Only these tools; all, if left out.
    allowed_tools: Option<Vec<String>>,
    /// Whether it may be at an address of this machine or this network: true needs the admin key.
    allow_private: Option<bool>,
    #[schema(value_type = Option<ActiveStatusSchema>)]
    status: Option<ActiveStatus>,
}

/// What is left out stays as it is. A server of type `stdio` needs the admin key, and so do
/// `allow_private` and another `url` or `type` for a server that has it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ServerChange)]
pub(crate) struct ServerChangeBody {
    name: Option<String>,
    #[serde(rename = "type")]
    kind: Option<ServerTypeJson>,
    url: Option<String>,
    command: Option<ServerCommandBody>,
    spec: Option<ApiSpecBody>,
    /// In place of all that there were.
    headers_template: Option<BTreeMap<String, String>>,
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<Vec<String>>)]
    allowed_tools: Option<Option<Vec<String>>>,
    allow_private: Option<bool>,
    #[schema(value_type = Option<ActiveStatusSchema>)]
    status: Option<ActiveStatus>,
}

/// The program and its arguments: a list, or one line that is split at spaces.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = McpServerCommand)]
enum ServerCommandBody {
    Words(Vec<String>),
    Line(String),
}

/// A document that describes an API: an object, or text in JSON or YAML; or its address.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = OpenApiSpec)]
enum ApiSpecBody {
    Text(String),
    #[schema(value_type = Object)]
    Document(Map<String, Value>),
}

/// With what to try.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CheckServer)]
pub(crate) struct CheckServerBody {
    /// Secrets for the headers; they are not kept.
    #[serde(default)]
    tokens: BTreeMap<String, String>,
    /// Know its tools as they are now: changed ones are no longer withheld from executions.
    #[serde(default)]
    accept_changes: bool,
}

impl ServerCommandBody {
    fn words(self) -> Result<Vec<String>, ProblemResponse> {
        match self {
            Self::Words(words) => Ok(words),
            Self::Line(line) => Ok(split_command(&line)?),
        }
    }
}

impl ApiSpecBody {
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Document(document) => Value::Object(document).to_string(),
        }
    }
}

impl ServerChangeBody {
    fn patch(self) -> Result<ServerPatch, ProblemResponse> {
        Ok(ServerPatch {
            name: self.name,
            kind: self.kind.map(ServerKind::from),
            url: self.url,
            command: self.command.map(ServerCommandBody::words).transpose()?,
            spec: self.spec.map(ApiSpecBody::text),
            headers_template: self.headers_template,
            allowed_tools: self.allowed_tools,
            allow_private: self.allow_private,
            status: self.status,
        })
    }
}

impl From<NewServerBody> for ServerChangeBody {
    fn from(new: NewServerBody) -> Self {
        Self {
            name: Some(new.name),
            kind: Some(new.kind),
            url: new.url,
            command: new.command,
            spec: new.spec,
            headers_template: new.headers_template,
            allowed_tools: Some(new.allowed_tools),
            allow_private: new.allow_private,
            status: new.status,
        }
    }
}

/// Makes an MCP server
#[utoipa::path(post, path = "/v1/tenants/{t}/mcp-servers", tag = "mcp-servers",
    params(("t" = String, Path)), request_body = NewServerBody,
    responses((status = 201, description = "The new server", body = ServerJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn create_server(
    access: TenantAccess,
    ActingApp(app): ActingApp,
    Json(new): Json<NewServerBody>,
) -> Result<Response, ProblemResponse> {
    let (tenant, by) = (&access.tenant, &access.caller.scope);
    let patch = ServerChangeBody::from(new).patch()?;
    let server = ServerJson::from(app.executions.create_server(by, tenant, patch).await?);
    Ok(created(&format!("/v1/tenants/{tenant}/mcp-servers/{}", server.id), &server))
}

/// Lists a tenant's MCP servers
#[utoipa::path(get, path = "/v1/tenants/{t}/mcp-servers", tag = "mcp-servers",
    params(("t" = String, Path), PageQuery),
    responses((status = 200, description = "A page of servers", body = ListPage<ServerJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_servers(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    Query(paging): Query<PageQuery>,
) -> Result<axum::Json<ListPage<ServerJson>>, ProblemResponse> {
    let (after, limit) = paging.position_and_limit()?;
    Ok(axum::Json(ListPage::new(
        web.app.executions.list_servers(&access.tenant, after, limit).await?,
    )))
}

/// Shows an MCP server
#[utoipa::path(get, path = "/v1/tenants/{t}/mcp-servers/{s}", tag = "mcp-servers",
    params(("t" = String, Path), ("s" = String, Path)),
    responses((status = 200, description = "The server", body = ServerJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn show_server(
    ServerAccess { access, id: server }: ServerAccess,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<ServerJson>, ProblemResponse> {
    Ok(axum::Json(web.app.executions.server(&access.tenant, &server).await?.into()))
}

/// Changes an MCP server
#[utoipa::path(patch, path = "/v1/tenants/{t}/mcp-servers/{s}", tag = "mcp-servers",
    params(("t" = String, Path), ("s" = String, Path)), request_body = ServerChangeBody,
    responses((status = 200, description = "The server", body = ServerJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn change_server(
    ServerAccess { access, id: server }: ServerAccess,
    ActingApp(app): ActingApp,
    Json(change): Json<ServerChangeBody>,
) -> Result<axum::Json<ServerJson>, ProblemResponse> {
    let (tenant, by) = (&access.tenant, &access.caller.scope);
    Ok(axum::Json(app.executions.update_server(by, tenant, &server, change.patch()?).await?.into()))
}

/// Removes an MCP server
#[utoipa::path(delete, path = "/v1/tenants/{t}/mcp-servers/{s}", tag = "mcp-servers",
    params(("t" = String, Path), ("s" = String, Path)),
    responses((status = 204, description = "Removed"), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn remove_server(
    ServerAccess { access, id: server }: ServerAccess,
    ActingApp(app): ActingApp,
) -> Result<StatusCode, ProblemResponse> {
    app.executions.delete_server(&access.tenant, &server).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Tries an MCP server, for at most 10 s: says hello and asks for its tools, or reads its document
#[utoipa::path(post, path = "/v1/tenants/{t}/mcp-servers/{s}/check", tag = "mcp-servers",
    params(("t" = String, Path), ("s" = String, Path)), request_body = CheckServerBody,
    responses((status = 200, description = "What came of it", body = ServerCheckJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn check_server(
    ServerAccess { access, id: server }: ServerAccess,
    ActingApp(app): ActingApp,
    Json(with): Json<CheckServerBody>,
) -> Result<axum::Json<ServerCheckJson>, ProblemResponse> {
    let report = app
        .executions
        .check_server(&access.tenant, &server, &with.tokens, with.accept_changes)
        .await?;
    Ok(axum::Json(report.into()))
}
