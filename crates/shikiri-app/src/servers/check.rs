//! Tries a server: says hello as an MCP client does, and asks for its tools; of an API, reads the
//! document and knocks. Nothing is called.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::ids::{ServerId, TenantId};
use shikiri_model::server::{McpServer, TemplateError, Transport, fill_in};

use super::http::{Http, Target};
use super::openapi::OpenApi;
use super::sse::Sse;
use super::stdio::Stdio;
use crate::app::App;
use crate::error::AppError;

/// What came of a try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    pub reachable: bool,
    /// What happened, for people.
    pub detail: String,
    pub server: Option<TriedServer>,
    /// None if it did not tell.
    pub tools: Option<Vec<String>>,
}

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
const MAX_PAGES: u64 = 20;
const MAX_TOOLS: usize = 1_000;
const MAX_TOKENS: usize = 100;
/// Words of the other side that are repeated.
const MAX_SHOWN: usize = 300;
/// In place of a secret.
const HIDDEN: &str = "***";

impl App {
    /// Tries a server with these tokens, within 10 s. That it does not answer is an answer too.
    pub async fn check_server(
        &self,
        tenant: &TenantId,
        id: &ServerId,
        tokens: &BTreeMap<String, String>,
    ) -> Result<ServerReport, AppError> {
        if tokens.len() > MAX_TOKENS {
            return Err(AppError::invalid("tokens", "at most 100 can be given"));
        }
        let server = self.server(tenant, id).await?.value;
        let headers = fill_headers(&server, tokens)?;
        let tried = tokio::time::timeout(PATIENCE, try_it(&server, headers)).await;
        let tried = tried.unwrap_or_else(|_| Err("did not answer within 10 s".to_owned()));
        let report = tried.unwrap_or_else(|detail| ServerReport {
            reachable: false,
            detail,
            server: None,
            tools: None,
        });
        Ok(report.without(tokens))
    }
}

impl ServerReport {
    /// The other side may say what it was sent: secrets are not repeated.
    fn without(mut self, tokens: &BTreeMap<String, String>) -> Self {
        let name = self.server.iter_mut().flat_map(|it| [&mut it.name, &mut it.version]);
        let tools = self.tools.iter_mut().flatten();
        for text in std::iter::once(&mut self.detail).chain(name).chain(tools) {
            // Shorter ones are no secrets, and stars would be put in the place of stars.
            for secret in tokens.values().filter(|secret| secret.len() > HIDDEN.len()) {
                *text = text.replace(secret.as_str(), HIDDEN);
            }
            *text = shown(text);
        }
        self
    }
}

fn fill_headers(
    server: &McpServer,
    tokens: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, AppError> {
    let fill = |(name, template): (&String, &String)| match fill_in(template, tokens) {
        Ok(value) => Ok((name.clone(), value)),
        Err(error @ TemplateError::Missing(_)) => Err(AppError::MissingToken(error.to_string())),
        Err(error @ TemplateError::Unfit(_)) => Err(AppError::invalid("tokens", error.to_string())),
    };
    server.headers_template.iter().map(fill).collect()
}

async fn try_it(
    server: &McpServer,
    headers: BTreeMap<String, String>,
) -> Result<ServerReport, String> {
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
) -> Result<ServerReport, String> {
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
    let tools = Some(names.take(MAX_TOOLS).collect());
    Ok(ServerReport { reachable: knocked.is_ok(), detail, server: Some(about), tools })
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

async fn talk(channel: &mut Channel) -> Result<ServerReport, String> {
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
    Ok(ServerReport { reachable: true, detail, server: Some(server), tools: tools.ok() })
}

async fn list_tools(channel: &mut Channel) -> Result<Vec<String>, String> {
    let (mut names, mut cursor) = (Vec::new(), None);
    for page in 0..MAX_PAGES {
        let params = cursor.map_or(json!({}), |cursor: Value| json!({ "cursor": cursor }));
        let mut answer = result(channel.ask(&request(2 + page, "tools/list", params)).await?)?;
        let tools = answer["tools"].as_array().ok_or("it gave no list")?;
        names.extend(tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned));
        names.truncate(MAX_TOOLS);
        cursor = Some(answer["nextCursor"].take()).filter(Value::is_string);
        if cursor.is_none() {
            break;
        }
    }
    Ok(names)
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
    let line = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    line.take(MAX_SHOWN).collect()
}
