//! MCP servers of a tenant: create, update, list, delete, check.

pub mod address_policy;
pub(crate) mod mcp_target;
pub(crate) mod openapi_client;
mod server_check;
mod server_permissions;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use hyper::Uri;
use server_permissions::check_permission;
use shikiri_client::ProxyRules;
use shikiri_model::ids::{ServerId, TenantId};
use shikiri_model::key::KeyScope;
use shikiri_model::models::ActiveStatus;
use shikiri_model::record::{Document, RecordPosition, RecordQuery, StoredDocument};
use shikiri_model::server::{MASK, McpServer, McpServerTransport, mask_template, spec_url};
use shikiri_openapi::{ApiLocation, parse_document};
use shikiri_runtime::field_checks::{check_name, check_text, set};
use shikiri_runtime::sealing::is_sealed;
use shikiri_runtime::{AppError, entropy, transact};
use shikiri_store::StoreExt;

use crate::Executions;

pub use server_check::{ServerIdentity, ServerReport};

/// What a caller may set; absent fields stay as they are.
#[derive(Clone, Default)]
pub struct ServerPatch {
    pub name: Option<String>,
    pub kind: Option<ServerKind>,
    /// For `http` and `sse`. For `openapi`, an address that replaces the document's; an empty text
    /// goes back to the document's.
    pub url: Option<String>,
    /// For `stdio`: the program and its arguments.
    pub command: Option<Vec<String>>,
    /// For `openapi`: the document, or its address.
    pub spec: Option<String>,
    pub headers_template: Option<BTreeMap<String, String>>,
    pub allowed_tools: Option<Option<Vec<String>>>,
    pub allow_private: Option<bool>,
    pub status: Option<ActiveStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    Http,
    Sse,
    Stdio,
    Openapi,
}

const MAX_URL: usize = 2_000;
const MAX_SPEC: usize = 2 * 1024 * 1024;
const MAX_WORDS: usize = 100;
const MAX_WORD: usize = 4_000;
const MAX_HEADERS: usize = 50;
const MAX_HEADER: usize = 8 * 1024;
const MAX_TOOLS: usize = 500;

/// Headers that the connection or the protocol sets, not the server's owner.
const OUR_HEADERS: [&str; 14] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "accept",
    "mcp-session-id",
    "mcp-protocol-version",
    "last-event-id",
];

impl ServerPatch {
    fn apply(&self, server: &mut McpServer) -> Result<(), AppError> {
        set(&mut server.name, self.name.as_ref());
        server.transport = self.transport(Some(&server.transport))?;
        if let Some(headers) = &self.headers_template {
            server.headers_template = unmasked(headers, &server.headers_template)?;
        }
        set(&mut server.allowed_tools, self.allowed_tools.as_ref());
        set(&mut server.allow_private, self.allow_private.as_ref());
        set(&mut server.status, self.status.as_ref());
        check(server)
    }

    /// The transport after the patch: fields of the patch, else the current ones.
    fn transport(&self, old: Option<&McpServerTransport>) -> Result<McpServerTransport, AppError> {
        let Some(kind) = self.kind.or(old.map(kind_of)) else {
            return Err(AppError::invalid("type", "is needed: http, sse, stdio or openapi"));
        };
        self.refuse_stray(kind)?;
        let (mut old_url, mut old_command, mut old_api) = (None, None, None);
        match old {
            Some(McpServerTransport::Http { url } | McpServerTransport::Sse { url }) => {
                old_url = Some(url)
            }
            Some(McpServerTransport::Stdio { command }) => old_command = Some(command),
            Some(McpServerTransport::Openapi { spec, url }) => old_api = Some((spec, url.as_ref())),
            None => {}
        }
        let needed = |field| AppError::invalid(field, "is needed for this type");
        let url = || self.url.as_ref().or(old_url).cloned().ok_or_else(|| needed("url"));
        match kind {
            ServerKind::Http => Ok(McpServerTransport::Http { url: url()? }),
            ServerKind::Sse => Ok(McpServerTransport::Sse { url: url()? }),
            ServerKind::Stdio => {
                let command = self.command.as_ref().or(old_command).cloned();
                Ok(McpServerTransport::Stdio { command: command.ok_or_else(|| needed("command"))? })
            }
            ServerKind::Openapi => {
                let spec = self.spec.as_ref().or(old_api.map(|(spec, _)| spec)).cloned();
                let url = self.url.as_ref().or(old_api.and_then(|(_, url)| url)).cloned();
                let spec = spec.ok_or_else(|| needed("spec"))?;
                Ok(McpServerTransport::Openapi { spec, url: url.filter(|url| !url.is_empty()) })
            }
        }
    }

    /// Refuses fields of another type.
    fn refuse_stray(&self, kind: ServerKind) -> Result<(), AppError> {
        let is_program = kind == ServerKind::Stdio;
        if is_program && self.url.is_some() {
            let reason = "is for http, sse and openapi: stdio has a `command`";
            return Err(AppError::invalid("url", reason));
        }
        if !is_program && self.command.is_some() {
            let reason = "is for stdio: http and sse have a `url`, openapi has a `spec`";
            return Err(AppError::invalid("command", reason));
        }
        if kind != ServerKind::Openapi && self.spec.is_some() {
            return Err(AppError::invalid("spec", "is for the type openapi"));
        }
        Ok(())
    }
}

/// The new headers. A mask stands for the current value.
fn unmasked(
    wanted: &BTreeMap<String, String>,
    old: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, AppError> {
    let value = |(name, value): (&String, &String)| {
        if is_sealed(value) {
            let reason = "holds what looks like a sealed value: give the value itself";
            return Err(AppError::invalid("headers_template", reason));
        }
        if !value.contains(MASK) {
            return Ok((name.clone(), value.clone()));
        }
        let known = old.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        match known.filter(|(_, known)| mask_template(known) == *value) {
            Some((_, known)) => Ok((name.clone(), known.clone())),
            None => {
                let shown: String = name.chars().take(100).collect();
                let reason = format!("{shown:?}: {MASK} stands for a hidden value: give it");
                Err(AppError::invalid("headers_template", reason))
            }
        }
    };
    wanted.iter().map(value).collect()
}

fn kind_of(transport: &McpServerTransport) -> ServerKind {
    match transport {
        McpServerTransport::Http { .. } => ServerKind::Http,
        McpServerTransport::Sse { .. } => ServerKind::Sse,
        McpServerTransport::Stdio { .. } => ServerKind::Stdio,
        McpServerTransport::Openapi { .. } => ServerKind::Openapi,
    }
}

impl Executions {
    /// `by` is the caller's scope: programs and private addresses need the admin's.
    pub async fn create_server(
        &self,
        by: &KeyScope,
        tenant: &TenantId,
        patch: ServerPatch,
    ) -> Result<StoredDocument<McpServer>, AppError> {
        let Some(name) = patch.name.clone() else {
            return Err(AppError::invalid("name", "is needed"));
        };
        let mut server = McpServer {
            id: ServerId::mint(self.runtime.store().now().await?, entropy()?),
            tenant: tenant.clone(),
            name,
            transport: patch.transport(None)?,
            headers_template: BTreeMap::new(),
            allowed_tools: None,
            allow_private: false,
            status: ActiveStatus::Active,
        };
        patch.apply(&mut server)?;
        check_permission(by, None, &server)?;
        self.refuse_taken_name(&server).await?;
        self.runtime.create_in_tenant(tenant, server).await
    }

    pub async fn server(
        &self,
        tenant: &TenantId,
        id: &ServerId,
    ) -> Result<StoredDocument<McpServer>, AppError> {
        let found = self.runtime.store().load::<McpServer>(tenant, id.as_str()).await?;
        found.ok_or_else(|| AppError::not_found(McpServer::KIND, id))
    }

    pub async fn list_servers(
        &self,
        tenant: &TenantId,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<McpServer>>, Option<RecordPosition>), AppError> {
        self.runtime.tenant(tenant).await?;
        self.runtime
            .list_records(RecordQuery { after, limit, ..RecordQuery::of::<McpServer>(tenant) })
            .await
    }

    pub async fn update_server(
        &self,
        by: &KeyScope,
        tenant: &TenantId,
        id: &ServerId,
        patch: ServerPatch,
    ) -> Result<StoredDocument<McpServer>, AppError> {
        let mut wanted = self.server(tenant, id).await?.value;
        apply_patch(by, &patch, &mut wanted)?;
        self.refuse_taken_name(&wanted).await?;
        // The record may have changed meanwhile.
        self.runtime
            .update::<McpServer>(tenant, id.as_str(), |server| apply_patch(by, &patch, server))
            .await
    }

    pub async fn delete_server(&self, tenant: &TenantId, id: &ServerId) -> Result<(), AppError> {
        transact(McpServer::KIND, id.as_str(), || async {
            let pins = self.tenancy.unpin(tenant, id).await?;
            let is_gone = self.runtime.try_delete::<McpServer>(tenant, id.as_str(), pins).await?;
            Ok(is_gone.then_some(()))
        })
        .await
    }

    /// Gives a clear error. The store enforces that names are unique.
    async fn refuse_taken_name(&self, server: &McpServer) -> Result<(), AppError> {
        let found =
            self.runtime.store().find(McpServer::KIND, &server.tenant, &server.name).await?;
        match found.filter(|found| found.key.id != server.id.as_str()) {
            Some(_) => {
                let name = &server.name;
                Err(AppError::NotNow(format!(
                    "there is an MCP server {name} already: choose another name"
                )))
            }
            None => Ok(()),
        }
    }
}

/// Whether the host of a URL is literally a non-public address. Nothing is resolved.
pub fn is_private_url(url: &str) -> bool {
    address_policy::is_private_literal(url)
}

/// Resolves and checks the addresses of a URL's host. A connection may only go there.
pub(crate) async fn addresses(url: &str, allow_private: bool) -> Result<Vec<SocketAddr>, String> {
    let proxies = ProxyRules::from_environment();
    address_policy::resolve(&address_policy::uri(url)?, allow_private, &proxies).await
}

/// Splits a command on one line into its words.
pub fn split_command(line: &str) -> Result<Vec<String>, AppError> {
    if line.contains(['"', '\'', '\\']) {
        let reason = "a line is split at spaces and knows no quotes: give a list of words";
        return Err(AppError::invalid("command", reason));
    }
    Ok(line.split_whitespace().map(str::to_owned).collect())
}

fn apply_patch(by: &KeyScope, patch: &ServerPatch, server: &mut McpServer) -> Result<(), AppError> {
    let before = server.clone();
    patch.apply(server)?;
    refuse_moved_secrets(patch, &before, server)?;
    check_permission(by, Some(&before), server)
}

/// Hidden header values were given for one origin. For another they must be given again: otherwise
/// a caller who may change a server's address but not see the values could have them sent
/// elsewhere.
fn refuse_moved_secrets(
    patch: &ServerPatch,
    before: &McpServer,
    after: &McpServer,
) -> Result<(), AppError> {
    let known = origins(&before.transport);
    if origins(&after.transport).iter().all(|origin| known.contains(origin)) {
        return Ok(());
    }
    let is_hidden = |(_, value): &(&String, &String)| mask_template(value) != **value;
    let is_given = |name: &str| {
        let given = patch.headers_template.as_ref().and_then(|given| given.get(name));
        given.is_some_and(|value| !value.contains(MASK))
    };
    let mut hidden = after.headers_template.iter().filter(is_hidden);
    match hidden.find(|(name, _)| !is_given(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let shown: String = name.chars().take(100).collect();
            let reason = format!("{shown:?}: its hidden value is for another host: give it again");
            Err(AppError::invalid("headers_template", reason))
        }
    }
}

/// Scheme, host and port of each address of a server. For an API, that of its `url`, else of its
/// document.
fn origins(transport: &McpServerTransport) -> Vec<String> {
    let urls: Vec<&str> = match transport {
        McpServerTransport::Http { url } | McpServerTransport::Sse { url } => vec![url],
        McpServerTransport::Openapi { spec, url } => {
            vec![url.as_deref().or(spec_url(spec)).unwrap_or(spec)]
        }
        McpServerTransport::Stdio { .. } => Vec::new(),
    };
    let origin = |url: &str| {
        let uri = address_policy::uri(url).ok()?;
        Some(format!("{}://{}", uri.scheme_str()?, uri.authority()?))
    };
    urls.into_iter().map(|url| origin(url).unwrap_or_else(|| url.to_owned())).collect()
}

fn check(server: &McpServer) -> Result<(), AppError> {
    check_name(&server.name)?;
    match &server.transport {
        McpServerTransport::Http { url } | McpServerTransport::Sse { url } => {
            check_url("url", url)?
        }
        McpServerTransport::Openapi { spec, url } => check_api(spec, url.as_deref())?,
        McpServerTransport::Stdio { command } => {
            check_command(command)?;
            if !server.headers_template.is_empty() {
                let reason = "is for http, sse and openapi: a program gets no headers";
                return Err(AppError::invalid("headers_template", reason));
            }
        }
    }
    check_headers(&server.headers_template)?;
    let tools = server.allowed_tools.as_deref().unwrap_or_default();
    if tools.len() > MAX_TOOLS {
        return Err(AppError::invalid("allowed_tools", "at most 500 can be given"));
    }
    tools.iter().try_for_each(|tool| check_text("allowed_tools", tool, 200))
}

/// Checks an API. A document in the record is parsed as a whole, so that its errors show at once.
fn check_api(spec: &str, url: Option<&str>) -> Result<(), AppError> {
    url.map_or(Ok(()), |url| check_url("url", url))?;
    if let Some(address) = spec_url(spec) {
        return check_url("spec", address);
    }
    if spec.len() > MAX_SPEC {
        let reason = "must have at most 2 MiB: name the address of a larger document";
        return Err(AppError::invalid("spec", reason));
    }
    let translated = parse_document(spec, ApiLocation { url, document: None });
    translated.map(drop).map_err(|error| AppError::invalid("spec", error.to_string()))
}

fn check_url(field: &'static str, url: &str) -> Result<(), AppError> {
    let refuse = |reason: &str| Err(AppError::invalid(field, reason));
    if url.len() > MAX_URL {
        return refuse("must have at most 2,000 characters");
    }
    let Ok(parsed) = url.parse::<Uri>() else {
        return refuse("is not a URL: write http://… or https://…");
    };
    if !matches!(parsed.scheme_str(), Some("http" | "https")) {
        return refuse("must start with http:// or https://");
    }
    if parsed.host().is_none_or(str::is_empty) {
        return refuse("names no host");
    }
    if parsed.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return refuse("must hold no password: put it into headers_template");
    }
    Ok(())
}

fn check_command(command: &[String]) -> Result<(), AppError> {
    let refuse = |reason: &str| Err(AppError::invalid("command", reason));
    if command.first().is_none_or(|program| program.trim().is_empty()) {
        return refuse("must name a program");
    }
    if command.len() > MAX_WORDS || command.iter().any(|word| word.len() > MAX_WORD) {
        return refuse("must have at most 100 words of 4,000 bytes");
    }
    if command.iter().any(|word| word.chars().any(char::is_control)) {
        return refuse("must hold no control character");
    }
    Ok(())
}

fn check_headers(headers: &BTreeMap<String, String>) -> Result<(), AppError> {
    let refuse = |name: &str, reason: &str| {
        let shown: String = name.chars().take(100).collect();
        Err(AppError::invalid("headers_template", format!("{shown:?} {reason}")))
    };
    if headers.len() > MAX_HEADERS {
        return Err(AppError::invalid("headers_template", "at most 50 can be given"));
    }
    let mut seen = std::collections::BTreeSet::new();
    for (name, value) in headers {
        let lower = name.to_ascii_lowercase();
        if hyper::header::HeaderName::from_bytes(name.as_bytes()).is_err() || name.len() > 200 {
            return refuse(name, "is not a header's name");
        }
        if OUR_HEADERS.contains(&lower.as_str()) || lower.starts_with("proxy-") {
            return refuse(name, "is set by the connection itself");
        }
        if value.len() > MAX_HEADER || value.chars().any(char::is_control) {
            return refuse(name, "must have at most 8 KiB and no control character");
        }
        if !seen.insert(lower) {
            return refuse(name, "is given twice");
        }
    }
    Ok(())
}
