//! Builds the engine's request: prompt, model, servers, skills and environment.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use shikiri_model::known_secrets::KnownSecrets;
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::server::McpServerTransport;
use shikiri_runtime::AppError;
use tokio_util::sync::CancellationToken;

use super::engine::{ResolvedServer, ResumeState, TurnRequest};
use super::execution_request::ResolvedRequest;
use super::toolbox::{NoTools, ToolBox};
use crate::tools::{
    DefinitionCheck, LoopbackMcpServer, SkippedServers, ToolSources, ToolWarnings, TurnTools,
};
use crate::{Executions, workspace};

/// Variables of the server's environment that an engine may see, besides those that start with a
/// prefix below. `HOME` is the engine's own.
const INHERITED: [&str; 15] = [
    "PATH",
    "LANG",
    "TZ",
    "RUSTUP_HOME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_SUBAGENT_MODEL",
    "CLAUDE_CODE_MAX_RETRIES",
];
const INHERITED_PREFIXES: [&str; 2] = ["ANTHROPIC_", "AWS_"];

/// The variables of an environment that engines may see.
pub fn inherited_environment(
    environment: impl IntoIterator<Item = (String, String)>,
) -> BTreeMap<String, String> {
    let may_see = |name: &str| {
        INHERITED.contains(&name) || INHERITED_PREFIXES.iter().any(|start| name.starts_with(start))
    };
    environment.into_iter().filter(|(name, _)| may_see(name)).collect()
}

/// Model families whose model name an environment variable may set.
const FAMILIES: [(&str, &str); 3] = [
    ("haiku", "ANTHROPIC_DEFAULT_HAIKU_MODEL"),
    ("sonnet", "ANTHROPIC_DEFAULT_SONNET_MODEL"),
    ("opus", "ANTHROPIC_DEFAULT_OPUS_MODEL"),
];

/// The model name for each alias. Model records take precedence over the environment.
pub(super) fn aliases(
    resolved: &ResolvedRequest,
    env: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (alias, variable) in FAMILIES {
        if let Some(name) = env.get(variable) {
            found.insert(alias.to_owned(), name.clone());
        }
    }
    // Models of the same engine take precedence.
    let (others, own): (Vec<&Model>, Vec<&Model>) =
        resolved.models.iter().partition(|model| model.engine != resolved.model.engine);
    for model in others.into_iter().chain(own) {
        for alias in &model.aliases {
            found.insert(alias.clone(), model.model_name.clone());
        }
    }
    found
}

pub(super) fn environment(
    inherited: &BTreeMap<String, String>,
    model: &Model,
) -> BTreeMap<String, String> {
    let mut env = inherited.clone();
    env.insert("ANTHROPIC_MODEL".to_owned(), model.model_name.clone());
    if let Some(region) = &model.region {
        // Only Bedrock has regions.
        env.insert("CLAUDE_CODE_USE_BEDROCK".to_owned(), "1".to_owned());
        env.insert("AWS_REGION".to_owned(), region.clone());
    }
    env.extend(model.env.clone());
    env
}

/// A request for the engine, and what belongs to it.
pub(super) struct PreparedTurn {
    pub(super) request: TurnRequest,
    /// Servers that could not be connected.
    pub(super) left_out: SkippedServers,
    /// Warnings about tools for the servers' owner.
    pub(super) tool_warnings: ToolWarnings,
    /// Kept open while the engine works.
    pub(super) loopback_server: Option<LoopbackMcpServer>,
}

/// The tools of a turn, in the form that the engine takes.
struct ToolSetup {
    servers: Vec<ResolvedServer>,
    tools: Arc<dyn ToolBox>,
    left_out: SkippedServers,
    tool_warnings: ToolWarnings,
    loopback_server: Option<LoopbackMcpServer>,
}

impl ToolSetup {
    fn none() -> Self {
        Self {
            servers: Vec::new(),
            tools: Arc::new(NoTools),
            left_out: Vec::new(),
            tool_warnings: Vec::new(),
            loopback_server: None,
        }
    }
}

impl Executions {
    /// The part of this process's environment that a model's engine may see.
    pub fn engine_environment(&self, model: &Model) -> BTreeMap<String, String> {
        environment(&self.options.engine_env.0, model)
    }

    pub(super) async fn build_turn_request(
        &self,
        resolved: &ResolvedRequest,
        prompt: &str,
        resume: Option<String>,
        cancel: &CancellationToken,
    ) -> Result<PreparedTurn, AppError> {
        let mut env = environment(&self.options.engine_env.0, &resolved.model);
        if resolved.servers.iter().any(|server| server.is_own) {
            bypass_proxy_for_loopback(&mut env);
        }
        let aliases = aliases(resolved, &env);
        let resolve = |name: &String| aliases.get(name).unwrap_or(name).clone();
        let subagent_model = resolved.model.subagent_model.as_ref();
        let subagent_model =
            subagent_model.or_else(|| env.get("CLAUDE_CODE_SUBAGENT_MODEL")).map(resolve);
        let home = self.engine_home(&resolved.conversation.value.id).unwrap_or_default();
        let work = self.make_engine_home(&home).await?;
        let folder = match resolved.workspace_enabled() {
            true => self.workspace_folder(&resolved.conversation.value.id).await?,
            false => work,
        };
        let tool_setup = tokio::select! {
            tool_setup = self.set_up_tools(resolved, &folder) => tool_setup,
            // A cancelled execution needs no servers.
            () = cancel.cancelled() => ToolSetup::none(),
        };
        let ToolSetup { servers, tools, left_out, tool_warnings, loopback_server } = tool_setup;
        if loopback_server.is_some() {
            bypass_proxy_for_loopback(&mut env);
        }
        let request = TurnRequest {
            prompt: prompt.to_owned(),
            system_prompt: self.system_prompt(resolved).await?,
            model: resolved.model.clone(),
            subagent_model,
            aliases,
            resume,
            loopback_ports: loopback_ports(&servers),
            egress: resolved.tenant.egress,
            servers,
            skills: resolved.skills.clone(),
            tools,
            folder,
            home,
            env,
            secrets: secrets(resolved),
            limits: resolved.limits.clone(),
            prices: resolved.prices(),
            memory: ResumeState::default(),
        };
        Ok(PreparedTurn { request, left_out, tool_warnings, loopback_server })
    }

    /// An engine that calls tools itself gets a toolbox. A separate program gets servers; APIs and
    /// servers with headers are reached through a `LoopbackMcpServer` of this run.
    async fn set_up_tools(&self, resolved: &ResolvedRequest, folder: &Path) -> ToolSetup {
        let mut servers = resolved.servers.clone();
        let mut check = DefinitionCheck::new(self, &resolved.conversation.value.tenant);
        match resolved.model.engine {
            EngineKind::Anthropic | EngineKind::Bedrock => {
                let conversation = &resolved.conversation.value;
                let sources = ToolSources {
                    executions: self,
                    tenant: &conversation.tenant,
                    conversation: &conversation.id,
                    has_workspace: resolved.workspace_enabled()
                        && self.runtime.options().data.is_some(),
                    servers: &servers,
                    skills: &resolved.skills,
                    folder,
                    limit: self.options.timeout,
                };
                let (tools, left_out) = TurnTools::connect_all(&sources, &mut check).await;
                let (tools, tool_warnings) = (Arc::new(tools), check.warnings);
                ToolSetup { servers, tools, left_out, tool_warnings, loopback_server: None }
            }
            EngineKind::ClaudeCode => {
                check.restrict_allowed_tools(&mut servers, folder).await;
                let secrets = KnownSecrets::new(secrets(resolved));
                let (servers, loopback_server, left_out) =
                    LoopbackMcpServer::open(servers, &secrets, &mut check).await;
                let tool_warnings = check.warnings;
                ToolSetup { servers, left_out, tool_warnings, loopback_server, ..ToolSetup::none() }
            }
            EngineKind::Offline => ToolSetup { servers, ..ToolSetup::none() },
        }
    }

    async fn system_prompt(&self, resolved: &ResolvedRequest) -> Result<String, AppError> {
        let mut parts = Vec::new();
        if !resolved.tenant.system_prompt.trim().is_empty() {
            parts.push(resolved.tenant.system_prompt.clone());
        }
        if resolved.workspace_enabled() {
            let conversation = &resolved.conversation.value.id;
            let folder = self.workspace_folder(conversation).await?;
            let files = self.list_files_of(conversation).await?;
            parts.push(workspace::workspace_prompt(&folder, &files));
        }
        if !resolved.preferred_skills.is_empty() {
            let names = resolved.preferred_skills.join(", ");
            parts.push(format!(
                "The user prefers these skills: {names}. Use them where they fit the request."
            ));
        }
        Ok(parts.join("\n\n"))
    }
}

/// The ports of the servers on this host's loopback.
fn loopback_ports(servers: &[ResolvedServer]) -> Vec<u16> {
    let mut ports: Vec<u16> = servers.iter().filter_map(loopback_port).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn loopback_port(server: &ResolvedServer) -> Option<u16> {
    let (McpServerTransport::Http { url } | McpServerTransport::Sse { url }) = &server.transport
    else {
        return None;
    };
    let uri: hyper::Uri = url.parse().ok()?;
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    is_loopback.then(|| uri.port_u16().unwrap_or(usual))
}

/// Servers on this machine's loopback are not reached through a proxy.
fn bypass_proxy_for_loopback(env: &mut BTreeMap<String, String>) {
    const HOME: &str = "127.0.0.1,localhost,::1";
    for name in ["NO_PROXY", "no_proxy"] {
        let known = env.get(name).filter(|known| !known.is_empty());
        let all = known.map_or_else(|| HOME.to_owned(), |known| format!("{known},{HOME}"));
        env.insert(name.to_owned(), all);
    }
}

/// The request's tokens and the servers' headers. An engine that uses the loopback server never sees
/// those headers, but must not output them either.
fn secrets(resolved: &ResolvedRequest) -> Vec<String> {
    let headers = resolved.servers.iter().flat_map(ResolvedServer::secret_values);
    resolved.secrets.iter().cloned().chain(headers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_sees_only_what_is_on_the_list() {
        let given = ["PATH", "ANTHROPIC_API_KEY", "AWS_PROFILE", "HOME", "SECRET", "SHIKIRI_STORE"];
        let seen = inherited_environment(given.map(|name| (name.to_owned(), "値".to_owned())));
        let names: Vec<_> = seen.keys().map(String::as_str).collect();
        assert_eq!(names, ["ANTHROPIC_API_KEY", "AWS_PROFILE", "PATH"]);
    }

    #[test]
    fn loopback_ports_are_those_of_servers_on_this_host() {
        let server = |transport| ResolvedServer {
            id: None,
            name: "s".to_owned(),
            transport,
            headers: BTreeMap::new(),
            allowed_tools: None,
            allow_private: true,
            is_own: false,
        };
        let http = |url: &str| server(McpServerTransport::Http { url: url.to_owned() });
        let servers = [
            http("http://localhost:9001/mcp"),
            server(McpServerTransport::Sse { url: "https://[::1]/sse".to_owned() }),
            http("http://127.0.0.1:80/"),
            http("http://127.0.0.1/again"),
            http("http://10.0.0.1:9002/"),
            http("http://localhost.example:9003/"),
            server(McpServerTransport::Stdio { command: vec!["x".to_owned()] }),
        ];
        assert_eq!(loopback_ports(&servers), [80, 443, 9001]);
    }

    #[test]
    fn the_own_door_is_not_behind_a_proxy() {
        let mut env = BTreeMap::from([("no_proxy".to_owned(), "inside".to_owned())]);
        bypass_proxy_for_loopback(&mut env);
        assert_eq!(env["NO_PROXY"], "127.0.0.1,localhost,::1");
        assert_eq!(env["no_proxy"], "inside,127.0.0.1,localhost,::1");
    }

    #[test]
    fn a_region_means_bedrock_and_the_record_has_the_last_word() {
        let mut model = Model::offline();
        let server = BTreeMap::from([("AWS_REGION".to_owned(), "here".to_owned())]);
        let env = environment(&server, &model);
        assert_eq!(
            (env["AWS_REGION"].as_str(), env.get("CLAUDE_CODE_USE_BEDROCK")),
            ("here", None)
        );
        model.region = Some("us-west-2".to_owned());
        model.env.insert("ANTHROPIC_MODEL".to_owned(), "mine".to_owned());
        let env = environment(&server, &model);
        assert_eq!(env["AWS_REGION"], "us-west-2");
        assert_eq!(env["CLAUDE_CODE_USE_BEDROCK"], "1");
        assert_eq!(env["ANTHROPIC_MODEL"], "mine");
    }
}
