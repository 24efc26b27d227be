//! The servers of a command: one given by address, those of a file, and those of the store.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use shikiri_app::App;
use shikiri_client::{
    ClientOptions, LoginBrowser, OAuthTokenProvider, TokenProvider, is_loopback_url,
};
use shikiri_host::{Host, SealedTokenStore, open_calls};
use shikiri_model::host::{
    HostCall, HostTransport, OAuthSpec, ServerSpec, expand_variables, http_transport, read_servers,
    sanitize_line,
};
use shikiri_model::ids::TenantId;
use shikiri_model::models::ActiveStatus;
use shikiri_model::server::{McpServerTransport, fill_template};
use shikiri_runtime::Runtime;

use super::login::Terminal;
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::output::note;
use crate::trust::FileRequest;
use crate::{data_folder, env_vars};

/// A larger file is no configuration.
const MAX_FILE: u64 = 1024 * 1024;
const FILE: &str = ".mcp.json";
/// Far more servers than any configuration has.
const MAX_SERVERS: u32 = 200;

#[derive(Args, Clone, Default)]
pub(super) struct Places {
    /// A server by its address, such as http://127.0.0.1:7420/mcp, instead of the file's
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// A header for the server of --url, such as "Authorization: Bearer ${KEY}"
    #[arg(long, global = true, value_name = "NAME: VALUE", requires = "url")]
    header: Vec<String>,
    /// A file that names servers [default: .mcp.json of the project]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Speak only this revision of the protocol, such as 2025-11-25
    #[arg(long, global = true, value_name = "REVISION")]
    protocol: Option<String>,
}

/// What a command needs from the servers.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// Asks the person at the terminal to log in where a server requires it.
    pub(super) asks: bool,
    /// Includes unconfigured servers that have interrupted calls.
    pub(super) left: bool,
    /// The command also works without any server.
    pub(super) nothing: bool,
}

impl Places {
    pub(super) async fn host(
        &self,
        app: App,
        config: &Config,
        wanted: Wanted,
        content: Option<&str>,
    ) -> Result<Host, Failure> {
        let servers = match &self.url {
            Some(url) => vec![self.by_address(url, config)?],
            None => self.by_name(&app, config, wanted, content).await?,
        };
        let introduction = ClientOptions {
            name: "shikiri".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            elicitation: true,
            sampling: true,
            authority: None,
            protocol: self.protocol.clone(),
            addresses: Vec::new(),
        };
        let authority = |spec: &ServerSpec| {
            Some((spec.name.clone(), authority_for(&app, config, spec, wanted.asks)?))
        };
        let authorities: HashMap<_, _> = servers.iter().filter_map(authority).collect();
        let host = Host::new(app.executions.clone(), TenantId::local(), servers, introduction)?
            .with_authorities(authorities);
        Ok(if self.url.is_some() { host.by_address() } else { host })
    }

    fn file(&self, config: &Config) -> PathBuf {
        self.config.clone().unwrap_or_else(|| config.root.join(FILE))
    }

    /// The text of the servers file, if the command needs it. The project's own file counts only
    /// after trust: before that, nothing is expanded, started or sent.
    pub(super) fn content(
        &self,
        config: &Config,
        wanted: Wanted,
    ) -> Result<Option<String>, Failure> {
        if self.url.is_some() || wanted.nothing {
            return Ok(None);
        }
        let file = self.file(config);
        let text = match read_file(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && self.config.is_none() => {
                return Ok(None);
            }
            Err(error) => {
                let what = format!("{} cannot be read: {error}", file.display());
                return Err(Failure::new(Exit::Usage, what, "name another with --config"));
            }
        };
        // Another file given by --config is the person's choice, like every flag.
        let own = config.trust.root().join(FILE);
        if file.canonicalize().ok() == own.canonicalize().ok() {
            let request = FileRequest::mcp_servers(&text);
            config.trust.require(&request, &request.names())?;
        }
        Ok(Some(text))
    }

    /// The names of the servers in the project's file, if it is trusted. For a shell, so no control
    /// characters.
    pub(super) fn names_in_file(&self, config: &Config) -> Vec<String> {
        let wanted = Wanted { asks: false, left: false, nothing: false };
        let text = self.content(config, wanted).ok().flatten().unwrap_or_default();
        let servers = read_servers(&text, &|_| None).unwrap_or_default();
        let names = servers.into_iter().map(|server| match server {
            Ok(server) => server.name,
            // One whose variables are not set has a name too.
            Err(error) => error.name,
        });
        names.filter(|name| sanitize_line(name) == *name).collect()
    }

    fn by_address(&self, url: &str, config: &Config) -> Result<ServerSpec, Failure> {
        let mut headers = BTreeMap::new();
        for header in &self.header {
            let Some((name, value)) = header.split_once(':') else {
                let what = format!("--header {header:?} has no colon");
                return Err(Failure::usage(what, "write it as \"Name: value\""));
            };
            // A secret given as a variable does not appear in the list of processes.
            let value = expand_variables(value.trim(), &|name: &str| std::env::var(name).ok())
                .map_err(|reason| {
                    let name = name.trim();
                    Failure::usage(format!("--header {name:?}: {reason}"), "set it first")
                })?;
            headers.insert(name.trim().to_owned(), value);
        }
        let is_given = headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
        if let Some(key) = key_for(url, config).filter(|_| !is_given) {
            headers.insert("Authorization".to_owned(), format!("Bearer {key}"));
        }
        let reach = http_transport(url, headers)
            .map_err(|reason| Failure::usage(format!("--url: {reason}"), "give a whole address"))?;
        let name = name_of(&reach.endpoint()).to_owned();
        Ok(ServerSpec { name, reach, oauth: OAuthSpec::default() })
    }

    /// The file's servers, then those of the store with other names.
    async fn by_name(
        &self,
        app: &App,
        config: &Config,
        wanted: Wanted,
        content: Option<&str>,
    ) -> Result<Vec<ServerSpec>, Failure> {
        let file = self.file(config);
        let mut servers = match content {
            Some(text) => named(text, &file)?,
            None => Vec::new(),
        };
        let left = if wanted.left { left_by_address(app, config).await? } else { Vec::new() };
        for spec in stored(app).await?.into_iter().chain(left) {
            if !servers.iter().any(|known| known.name == spec.name) {
                servers.push(spec);
            }
        }
        if servers.is_empty() && !wanted.nothing {
            let what = format!("no server is known: there is no {}", file.display());
            return Err(Failure::new(
                Exit::NotFound,
                what,
                "name a server with --url, or write the file",
            ));
        }
        Ok(servers)
    }
}

/// The credentials for this server.
fn authority_for(
    app: &App,
    config: &Config,
    spec: &ServerSpec,
    asks: bool,
) -> Option<Arc<dyn TokenProvider>> {
    let browser = asks.then(|| Arc::new(Terminal) as Arc<dyn LoginBrowser>);
    Some(Arc::new(oauth_for(&app.runtime, config, spec, browser)?))
}

/// Logins are kept in the store, sealed with its key.
pub(super) fn oauth_for(
    runtime: &Runtime,
    config: &Config,
    spec: &ServerSpec,
    browser: Option<Arc<dyn LoginBrowser>>,
) -> Option<OAuthTokenProvider> {
    let vault = SealedTokenStore::new(runtime.clone(), TenantId::local(), config.sealing_key());
    OAuthTokenProvider::new(spec, Arc::new(vault), browser)
}

fn read_file(path: &Path) -> std::io::Result<String> {
    read_bounded(path, MAX_FILE)
}

/// A file's text, up to a size limit.
pub(super) fn read_bounded(path: &Path, limit: u64) -> std::io::Result<String> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() || found.len() > limit {
        return Err(std::io::Error::other("it is no file of a reasonable size"));
    }
    std::fs::read_to_string(path)
}

/// A server that cannot be called is reported; the others still work.
fn named(text: &str, file: &Path) -> Result<Vec<ServerSpec>, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let read = read_servers(text, &variable).map_err(|reason| {
        let what = format!("{}: {reason}", file.display());
        Failure::new(Exit::Usage, what, "mend the file, or name another with --config")
    })?;
    let mut servers = Vec::new();
    for server in read {
        match server {
            Ok(server) => servers.push(server),
            Err(error) => note(&format!("shikiri: {error}; it is left out")),
        }
    }
    Ok(servers)
}

/// The tenant's own servers. Their headers are expanded from the environment.
async fn stored(app: &App) -> Result<Vec<ServerSpec>, Failure> {
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let (listed, _) = app.executions.list_servers(&TenantId::local(), None, MAX_SERVERS).await?;
    let mut servers = Vec::new();
    for server in listed.into_iter().map(|stored| stored.value) {
        if server.status != ActiveStatus::Active {
            continue;
        }
        let headers = server.headers_template.iter().map(|(name, template)| {
            fill_template(template, &environment).map(|value| (name.clone(), value))
        });
        let reach = match (&server.transport, headers.collect::<Result<_, _>>()) {
            (McpServerTransport::Http { url }, Ok(headers)) => {
                HostTransport::Http { url: url.clone(), headers }
            }
            (McpServerTransport::Sse { url }, Ok(headers)) => {
                HostTransport::Sse { url: url.clone(), headers }
            }
            (McpServerTransport::Stdio { command }, Ok(_)) if !command.is_empty() => {
                HostTransport::program(&command[0], &command[1..])
            }
            (_, Err(error)) => {
                note(&format!("shikiri: server {:?}: {error}; it is left out", server.name));
                continue;
            }
            (transport, Ok(_)) => {
                let (name, kind) = (&server.name, transport.kind());
                note(&format!(
                    "shikiri: server {name:?}: {kind} is not spoken here; it is left out"
                ));
                continue;
            }
        };
        servers.push(ServerSpec { name: server.name, reach, oauth: OAuthSpec::default() });
    }
    Ok(servers)
}

/// Servers with interrupted calls that were addressed by `--url`, so that they need not be named
/// again.
async fn left_by_address(app: &App, config: &Config) -> Result<Vec<ServerSpec>, Failure> {
    let mut servers: Vec<ServerSpec> = Vec::new();
    for call in open_calls(&app.runtime, TenantId::local()).await? {
        let HostCall { server, endpoint, .. } = call.value;
        let is_by_address = endpoint.starts_with("http") && name_of(&endpoint) == server;
        if !is_by_address || servers.iter().any(|known| known.name == server) {
            continue;
        }
        let key = key_for(&endpoint, config).map(|key| format!("Bearer {key}"));
        let headers = key.map(|key| ("Authorization".to_owned(), key)).into_iter().collect();
        if let Ok(reach) = http_transport(&endpoint, headers) {
            servers.push(ServerSpec { name: server, reach, oauth: OAuthSpec::default() });
        }
    }
    Ok(servers)
}

/// The name of a server that was given by its address: host and port.
fn name_of(endpoint: &str) -> &str {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

/// The key for one of our servers on this machine: the one set for it, or the project's. Other
/// servers get only what was given for them.
fn key_for(url: &str, config: &Config) -> Option<String> {
    if !is_loopback_url(url) {
        return None;
    }
    let set = std::env::var(env_vars::KEY.name).ok().filter(|key| !key.is_empty());
    let kept = || data_folder::read_key(&config.key_file()).ok().flatten();
    set.or_else(|| kept().map(|key| key.reveal().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_by_address_is_called_by_its_host_and_port() {
        let reach =
            http_transport("https://me:secret@h.example:1/a/mcp?key=k", BTreeMap::new()).unwrap();
        assert_eq!(name_of(&reach.endpoint()), "h.example:1");
    }
}
