//! Tries a server: says hello as an MCP client does, and asks for its tools; of an API, reads the
//! document and knocks. Nothing is called.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::host::clean_line;
use shikiri_model::ids::{ServerId, TenantId};
use shikiri_model::server::{McpServer, TemplateError, Transport, fill_in};
use shikiri_model::tool::{Definition, ToolChange, ToolDefinition};

use super::http::{Http, Target};
use super::openapi::OpenApi;
use super::sse::Sse;
use super::stdio::Stdio;
use crate::app::App;
use crate::error::AppError;
use crate::sealing::refuse_sealed;
use crate::tool_pins::{Accepted, PinOwner};
use crate::tools::definitions_of_api as definitions;

/// What came of a try.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerReport {
    pub reachable: bool,
    /// What happened, for people.
    pub detail: String,
    pub server: Option<TriedServer>,
    /// None if it did not tell.
    pub tools: Option<Vec<String>>,
    /// How its tools differ from what is known of them.
    pub changes: Vec<ToolChange>,
}

/// A report, and what was said of the tools.
type Tried = (ServerReport, Vec<ToolDefinition>);

/// As the server calls itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedServer {
    pub name: String,
    pub version: String,
}

const PATIENCE: Duration = Duration::from_secs(10);
/// For an API to answer at all, once its document is read.
const KNOCKING: Duration = Duration::from_secs(5);
const PROTOCOL: &str = "2025-11-25";
/// A server that lists its tools in more pages than this is not listed to its end.
const MAX_PAGES: u64 = 100;
/// Tools that are compared, and those of them that are named.
const MAX_TOOLS: usize = 5_000;
const MAX_NAMED: usize = 1_000;
const MAX_TOKENS: usize = 100;
/// Words of the other side that are repeated.
const MAX_SHOWN: usize = 300;
/// In place of a secret.
const HIDDEN: &str = "***";

impl App {
    /// Tries a server with these tokens, within 10 s. That it does not answer is an answer too. Changes
    /// of its tools are told, and with `accept_changes` they are what is known from now on.
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
        let tried = tokio::time::timeout(PATIENCE, try_it(&server, headers)).await;
        let tried = tried.unwrap_or_else(|_| Err("did not answer within 10 s".to_owned()));
        let (mut report, listed) = tried.unwrap_or_else(|detail| {
            let (server, tools, changes) = (None, None, Vec::new());
            (ServerReport { reachable: false, detail, server, tools, changes }, Vec::new())
        });
        if report.tools.is_some() {
            let owner = PinOwner::of_server(tenant, id, &server.transport)?;
            report.changes = match accept_changes {
                true => self.accept_tools(&owner, &listed, Accepted::All).await?,
                false => self.compare_tools(&owner, &listed).await?,
            };
        }
        let literal = server.headers_template.values().flat_map(|value| literals(value));
        let secrets = tokens.values().map(String::as_str).chain(literal).collect::<Vec<_>>();
        Ok(report.without(&secrets))
    }
}

impl ServerReport {
    /// The other side may say what it was sent: secrets are not repeated.
    fn without(mut self, secrets: &[&str]) -> Self {
        let name = self.server.iter_mut().flat_map(|it| [&mut it.name, &mut it.version]);
        let tools = self.tools.iter_mut().flatten();
        for text in std::iter::once(&mut self.detail).chain(name).chain(tools) {
            // Shorter ones are no secrets, and stars would be put in the place of stars.
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

/// The same in a tool's definition.
fn redact(definition: &mut Definition, secrets: &[&str]) {
    let Ok(mut text) = serde_json::to_string(definition) else { return };
    for secret in secrets.iter().filter(|secret| secret.len() > HIDDEN.len()) {
        // As it stands in JSON.
        let quoted = Value::from(*secret).to_string();
        text = text.replace(quoted.trim_matches('"'), HIDDEN);
    }
    if let Ok(redacted) = serde_json::from_str(&text) {
        *definition = redacted;
    }
}

/// What a header holds literally: as a whole, and after a word such as `Bearer`.
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
    let fill = |(name, template): (&String, &String)| match fill_in(template, tokens) {
        Ok(value) => Ok((name.clone(), value)),
        Err(error @ TemplateError::Missing(_)) => Err(AppError::MissingToken(error.to_string())),
        Err(error @ TemplateError::Unfit(_)) => Err(AppError::invalid("tokens", error.to_string())),
    };
    server.headers_template.iter().map(fill).collect()
}

async fn try_it(server: &McpServer, headers: BTreeMap<String, String>) -> Result<Tried, String> {
    if let Transport::Openapi { spec, url } = &server.transport {
        return try_api(spec, url.as_deref(), headers, server).await;
    }
    let mut channel = match &server.transport {
        Transport::Http { url } => {
            Channel::Http(Http::new(Target::find(url, &headers, server.allow_private).await?))
        }
        Transport::Sse { url } => {
            let target = Target::find(url, &headers, server.allow_private).await?;
            Channel::Sse(Sse::open(target).await?)
        }
        Transport::Stdio { command } => Channel::Stdio(Stdio::start(command)?),
        Transport::Openapi { .. } => return Err("is described by a document".to_owned()),
    };
    let tried = talk(&mut channel).await;
    channel.close().await;
    tried
}

/// Its document says what there is; whether anybody is there is asked without calling anything.
async fn try_api(
    spec: &str,
    url: Option<&str>,
    headers: BTreeMap<String, String>,
    server: &McpServer,
) -> Result<Tried, String> {
    let opened = OpenApi::open(spec, url, headers, server.allow_private).await?;
    let allowed = server.allowed_tools.as_ref();
    let names = opened.api.operations.iter().map(|operation| operation.name.clone());
    let names = names.filter(|name| allowed.is_none_or(|allowed| allowed.contains(name)));
    let about = TriedServer { name: opened.api.title.clone(), version: opened.api.version.clone() };
    let knocked = tokio::time::timeout(KNOCKING, opened.knock()).await;
    let knocked = knocked.unwrap_or_else(|_| Err("did not answer within 5 s".to_owned()));
    let mut detail = match &knocked {
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
    let (reachable, server, changes) = (knocked.is_ok(), Some(about), Vec::new());
    let report = ServerReport { reachable, detail, server, tools, changes };
    Ok((report, definitions(&opened)))
}

/// How messages go there and come back.
enum Channel {
    Http(Http),
    Sse(Sse),
    Stdio(Stdio),
}

impl Channel {
    /// Sends a request and waits for its answer.
    async fn ask(&mut self, request: &Value) -> Result<Value, String> {
        match self {
            Self::Http(http) => http.ask(request).await,
            Self::Sse(sse) => sse.ask(request).await,
            Self::Stdio(stdio) => stdio.ask(request).await,
        }
    }

    async fn tell(&mut self, notification: &Value) -> Result<(), String> {
        match self {
            Self::Http(http) => http.tell(notification).await,
            Self::Sse(sse) => sse.tell(notification).await,
            Self::Stdio(stdio) => stdio.tell(notification).await,
        }
    }

    async fn close(self) {
        match self {
            Self::Http(http) => http.close().await,
            Self::Sse(_) => {}
            Self::Stdio(stdio) => stdio.close().await,
        }
    }
}

async fn talk(channel: &mut Channel) -> Result<Tried, String> {
    let client = json!({ "name": "shikiri", "version": env!("CARGO_PKG_VERSION") });
    let params = json!({ "protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client });
    let welcome = result(channel.ask(&request(1, "initialize", params)).await?)?;
    let Some(version) = welcome["protocolVersion"].as_str() else {
        return Err("it answered, but not as an MCP server does".to_owned());
    };
    if let Channel::Http(http) = channel {
        http.speak(version);
    }
    channel.tell(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
    let part = |name: &str| welcome["serverInfo"][name].as_str().unwrap_or_default().to_owned();
    let server = TriedServer { name: part("name"), version: part("version") };
    let mut detail = format!("answers, with MCP {version}");
    let tools = if welcome["capabilities"]["tools"].is_object() {
        list_tools(channel).await.map_err(|error| {
            detail = format!("answers, but does not list its tools: {error}");
        })
    } else {
        Ok(Vec::new())
    };
    let listed = tools.iter().flatten().filter_map(|tool| ToolDefinition::read(tool).ok());
    let listed = listed.collect();
    let names = tools.map(|tools| {
        let names = tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned);
        names.take(MAX_NAMED).collect()
    });
    let (server, changes) = (Some(server), Vec::new());
    let report = ServerReport { reachable: true, detail, server, tools: names.ok(), changes };
    Ok((report, listed))
}

async fn list_tools(channel: &mut Channel) -> Result<Vec<Value>, String> {
    let (mut listed, mut cursor) = (Vec::new(), None);
    for page in 0..MAX_PAGES {
        let params = cursor.map_or(json!({}), |cursor: Value| json!({ "cursor": cursor }));
        let mut answer = result(channel.ask(&request(2 + page, "tools/list", params)).await?)?;
        let Value::Array(tools) = answer["tools"].take() else {
            return Err("it gave no list".to_owned());
        };
        listed.extend(tools);
        listed.truncate(MAX_TOOLS);
        cursor = Some(answer["nextCursor"].take()).filter(Value::is_string);
        if cursor.is_none() {
            break;
        }
    }
    Ok(listed)
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn result(mut answer: Value) -> Result<Value, String> {
    if let Some(error) = answer.get("error") {
        let message = error["message"].as_str().unwrap_or("no message");
        return Err(format!("it refused: {message}"));
    }
    Ok(answer["result"].take())
}

/// The answer to a request, among whatever else the other side says.
pub(super) fn is_answer(message: &Value, request: &Value) -> bool {
    message["id"] == request["id"]
        && (message.get("result").is_some() || message.get("error").is_some())
}

/// Words of the other side on one line, and not too many.
pub(super) fn shown(text: &str) -> String {
    clean_line(text).chars().take(MAX_SHOWN).collect()
}
