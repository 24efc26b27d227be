//! Checks a server: connects as an MCP client and lists its tools. For an API, reads the document
//! and sends a HEAD request. No tool is called.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use shikiri_client::{ClientError, ServerConnection, ServerTool, ServerToolList};
use shikiri_model::host::sanitize_line;
use shikiri_model::ids::{ServerId, TenantId};
use shikiri_model::server::{McpServer, McpServerTransport, TemplateError, fill_template};
use shikiri_model::tool::{ToolChange, ToolDefinition, ToolDescription};
use shikiri_runtime::AppError;
use shikiri_runtime::sealing::refuse_sealed;
use shikiri_tenancy::tool_pins::{AcceptedTools, PinOwner};

use super::mcp_target::{AddressScope, McpTarget};
use super::openapi_client::OpenApiClient;
use crate::Executions;
use crate::tools::definitions_of_api as definitions;

/// The result of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerReport {
    pub reachable: bool,
    /// The result as a text for users.
    pub detail: String,
    pub server: Option<ServerIdentity>,
    /// None if it did not list them.
    pub tools: Option<Vec<String>>,
    /// How its tools differ from their pins.
    pub changes: Vec<ToolChange>,
}

/// A report, and the tool definitions.
type ServerCheckOutcome = (ServerReport, Vec<ToolDefinition>);

/// The server's name and version for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    pub name: String,
    pub version: String,
}

const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for an API's answer, after its document was read.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of tools that a report names.
const MAX_NAMED: usize = 1_000;
const MAX_TOKENS: usize = 100;
/// The number of characters of the server's texts that are repeated.
const MAX_SHOWN: usize = 300;
/// Replaces a secret.
const HIDDEN: &str = "***";

impl Executions {
    /// Checks a server with these tokens, within 10 s. A server that does not answer gives a report
    /// too. The report lists tool changes; `accept_changes` pins the new definitions.
    pub async fn check_server(
        &self,
        tenant: &TenantId,
        id: &ServerId,
        tokens: &BTreeMap<String, String>,
        accept_changes: bool,
    ) -> Result<ServerReport, AppError> {
        if tokens.len() > MAX_TOKENS {
            return Err(AppError::invalid("tokens", "at most 100 can be given"));
        }
        let server = self.server(tenant, id).await?.value;
        let headers = fill_headers(&server, tokens)?;
        let tried = tokio::time::timeout(CHECK_TIMEOUT, probe_server(&server, headers)).await;
        let tried = tried.unwrap_or_else(|_| Err("did not answer within 10 s".to_owned()));
        let (mut report, listed) = tried.unwrap_or_else(|detail| {
            let (server, tools, changes) = (None, None, Vec::new());
            (ServerReport { reachable: false, detail, server, tools, changes }, Vec::new())
        });
        if report.tools.is_some() {
            let owner = PinOwner::of_server(tenant, id, &server.transport)?;
            report.changes = match accept_changes {
                true => self.tenancy.accept_tools(&owner, &listed, AcceptedTools::All).await?,
                false => self.tenancy.compare_tools(&owner, &listed).await?,
            };
        }
        let literal = server.headers_template.values().flat_map(|value| literals(value));
        let secrets = tokens.values().map(String::as_str).chain(literal).collect::<Vec<_>>();
        Ok(report.redact_secrets(&secrets))
    }
}

impl ServerReport {
    /// Removes secrets: the server's texts may contain what it was sent.
    fn redact_secrets(mut self, secrets: &[&str]) -> Self {
        let name = self.server.iter_mut().flat_map(|it| [&mut it.name, &mut it.version]);
        let tools = self.tools.iter_mut().flatten();
        for text in std::iter::once(&mut self.detail).chain(name).chain(tools) {
            // Shorter values are no secrets, and replacing them could replace the stars themselves.
            for secret in secrets.iter().filter(|secret| secret.len() > HIDDEN.len()) {
                *text = text.replace(secret, HIDDEN);
            }
            *text = shown(text);
        }
        for change in &mut self.changes {
            let parts = [&mut change.before, &mut change.after];
            for definition in parts.into_iter().flatten() {
                redact(definition, secrets);
            }
        }
        self
    }
}

/// Removes secrets from a tool's definition.
fn redact(definition: &mut ToolDescription, secrets: &[&str]) {
    let Ok(mut text) = serde_json::to_string(definition) else { return };
    for secret in secrets.iter().filter(|secret| secret.len() > HIDDEN.len()) {
        // The secret as it is escaped in JSON.
        let quoted = Value::from(*secret).to_string();
        text = text.replace(quoted.trim_matches('"'), HIDDEN);
    }
    if let Ok(redacted) = serde_json::from_str(&text) {
        *definition = redacted;
    }
}

/// The literal value of a header: the whole, and the part after a word such as `Bearer`.
fn literals(template: &str) -> Vec<&str> {
    if template.contains("${") {
        return Vec::new();
    }
    let rest = template.split_once(' ').map(|(_, rest)| rest);
    std::iter::once(template).chain(rest).collect()
}

fn fill_headers(
    server: &McpServer,
    tokens: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, AppError> {
    refuse_sealed(&format!("the server {}", server.name), server.headers_template.values())?;
    let fill = |(name, template): (&String, &String)| match fill_template(template, tokens) {
        Ok(value) => Ok((name.clone(), value)),
        Err(error @ TemplateError::Missing(_)) => Err(AppError::MissingToken(error.to_string())),
        Err(error @ TemplateError::Unfit(_)) => Err(AppError::invalid("tokens", error.to_string())),
    };
    server.headers_template.iter().map(fill).collect()
}

async fn probe_server(
    server: &McpServer,
    headers: BTreeMap<String, String>,
) -> Result<ServerCheckOutcome, String> {
    if let McpServerTransport::Openapi { spec, url } = &server.transport {
        return probe_api(spec, url.as_deref(), headers, server).await;
    }
    let scope = if server.allow_private { AddressScope::Any } else { AddressScope::Public };
    let (transport, folder) = (&server.transport, std::env::temp_dir());
    let target = McpTarget::find(&server.name, transport, &headers, scope, &folder).await?;
    let connection = target.connect().await.map_err(|error| describe_error(&error))?;
    let tried = probe_mcp(&connection).await;
    connection.close(true).await;
    Ok(tried)
}

/// Lists the operations of its document, and sends a HEAD request to see whether it answers.
async fn probe_api(
    spec: &str,
    url: Option<&str>,
    headers: BTreeMap<String, String>,
    server: &McpServer,
) -> Result<ServerCheckOutcome, String> {
    let opened = OpenApiClient::open(spec, url, headers, server.allow_private).await?;
    let allowed = server.allowed_tools.as_ref();
    let names = opened.api.operations.iter().map(|operation| operation.name.clone());
    let names = names.filter(|name| allowed.is_none_or(|allowed| allowed.contains(name)));
    let about =
        ServerIdentity { name: opened.api.title.clone(), version: opened.api.version.clone() };
    let probed = tokio::time::timeout(PROBE_TIMEOUT, opened.probe()).await;
    let probed = probed.unwrap_or_else(|_| Err("did not answer within 5 s".to_owned()));
    let mut detail = match &probed {
        Ok(status) => format!("answers with {status}, described by OpenAPI {}", opened.api.openapi),
        Err(why) => format!("is described by OpenAPI {}, but {why}", opened.api.openapi),
    };
    if let missing @ [_, ..] = opened.missing().as_slice() {
        detail.push_str(&format!("; its operations want {}", missing.join(", ")));
    }
    if let Some(remark) = opened.api.remarks.first() {
        let more = opened.api.remarks.len();
        detail.push_str(&format!("; {more} cannot be called, such as: {remark}"));
    }
    let tools = Some(names.take(MAX_NAMED).collect());
    let (reachable, server, changes) = (probed.is_ok(), Some(about), Vec::new());
    let report = ServerReport { reachable, detail, server, tools, changes };
    Ok((report, definitions(&opened)))
}

async fn probe_mcp(connection: &ServerConnection) -> ServerCheckOutcome {
    let about = connection.about();
    let server = ServerIdentity { name: about.name.clone(), version: about.version.clone() };
    let mut detail = format!("answers, with MCP {}", connection.protocol());
    let listed = match about.capabilities["tools"].is_object() {
        true => connection.tools().await.map_err(|error| {
            detail = format!("answers, but does not list its tools: {}", describe_error(&error));
        }),
        false => Ok(ServerToolList::default()),
    };
    let listed = listed.map(|offer| offer.tools).ok();
    let definitions = listed.iter().flatten().map(ServerTool::definition).collect();
    let tools = listed
        .map(|tools| tools.into_iter().map(|tool| tool.name).take(MAX_NAMED).collect::<Vec<_>>());
    let (server, changes) = (Some(server), Vec::new());
    (ServerReport { reachable: true, detail, server, tools, changes }, definitions)
}

/// A refusal names the fields to look at.
fn describe_error(error: &ClientError) -> String {
    let refused = |status: &str| format!("answered {status}: look at headers_template and tokens");
    match error {
        ClientError::Unauthorized(_) => refused("401 Unauthorized"),
        ClientError::Refused { status: 403, .. } => refused("403 Forbidden"),
        ClientError::Rpc(error) => format!("it refused: {}", error.message),
        other => other.to_string(),
    }
}

/// A text of the server on one line, cut to a bound.
pub(super) fn shown(text: &str) -> String {
    sanitize_line(text).chars().take(MAX_SHOWN).collect()
}
