//! What an engine is ordered to do: prompt, model, servers, skills and environment.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use shikiri_model::models::{EngineKind, Model};
use shikiri_model::server::Transport;
use tokio_util::sync::CancellationToken;

use super::engine::{Memory, Order, Server};
use super::request::Means;
use super::toolbox::{NoTools, ToolBox};
use crate::app::App;
use crate::error::AppError;
use crate::tools::{DefinitionCheck, Door, LeftOut, Supplies, ToolNews, TurnTools};
use crate::workspace;

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

/// Of an environment, what engines may see.
pub fn inherited(
    environment: impl IntoIterator<Item = (String, String)>,
) -> BTreeMap<String, String> {
    let may_see = |name: &str| {
        INHERITED.contains(&name) || INHERITED_PREFIXES.iter().any(|start| name.starts_with(start))
    };
    environment.into_iter().filter(|(name, _)| may_see(name)).collect()
}

/// Families of models whose name an environment variable may give.
const FAMILIES: [(&str, &str); 3] = [
    ("haiku", "ANTHROPIC_DEFAULT_HAIKU_MODEL"),
    ("sonnet", "ANTHROPIC_DEFAULT_SONNET_MODEL"),
    ("opus", "ANTHROPIC_DEFAULT_OPUS_MODEL"),
];

/// What each alias stands for: by the models' records, then by the environment.
pub(super) fn aliases(means: &Means, env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (alias, variable) in FAMILIES {
        if let Some(name) = env.get(variable) {
            found.insert(alias.to_owned(), name.clone());
        }
    }
    // A model of the same engine says it best.
    let (others, own): (Vec<&Model>, Vec<&Model>) =
        means.models.iter().partition(|model| model.engine != means.model.engine);
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

/// An order, and what comes with it.
pub(super) struct Prepared {
    pub(super) order: Order,
    /// Servers that could not be met.
    pub(super) left_out: LeftOut,
    /// What the servers' owner should know of their tools.
    pub(super) tool_news: ToolNews,
    /// Open for as long as the engine works.
    pub(super) door: Option<Door>,
}

/// What an engine is given to work with, in the form that it takes.
struct Equipment {
    servers: Vec<Server>,
    tools: Arc<dyn ToolBox>,
    left_out: LeftOut,
    tool_news: ToolNews,
    door: Option<Door>,
}

impl Equipment {
    fn none() -> Self {
        Self {
            servers: Vec::new(),
            tools: Arc::new(NoTools),
            left_out: Vec::new(),
            tool_news: Vec::new(),
            door: None,
        }
    }
}

impl App {
    /// What a model's engine may see of this process's environment.
    pub(crate) fn engine_environment(&self, model: &Model) -> BTreeMap<String, String> {
        environment(&self.options.engine_env.0, model)
    }

    pub(super) async fn order(
        &self,
        means: &Means,
        prompt: &str,
        resume: Option<String>,
        cancel: &CancellationToken,
    ) -> Result<Prepared, AppError> {
        let mut env = environment(&self.options.engine_env.0, &means.model);
        if means.servers.iter().any(|server| server.is_own) {
            keep_at_home(&mut env);
        }
        let aliases = aliases(means, &env);
        let resolve = |name: &String| aliases.get(name).unwrap_or(name).clone();
        let subagent_model = means.model.subagent_model.as_ref();
        let subagent_model =
            subagent_model.or_else(|| env.get("CLAUDE_CODE_SUBAGENT_MODEL")).map(resolve);
        let home = self.engine_home(&means.conversation.value.id).unwrap_or_default();
        let work = self.make_engine_home(&home).await?;
        let folder = match means.workspace_enabled() {
            true => self.workspace_folder(&means.conversation.value.id).await?,
            false => work,
        };
        let equipment = tokio::select! {
            equipment = self.equipment(means, &folder) => equipment,
            // Nobody waits for servers that an execution will not use.
            () = cancel.cancelled() => Equipment::none(),
        };
        let Equipment { servers, tools, left_out, tool_news, door } = equipment;
        if door.is_some() {
            keep_at_home(&mut env);
        }
        let order = Order {
            prompt: prompt.to_owned(),
            system_prompt: self.system_prompt(means).await?,
            model: means.model.clone(),
            subagent_model,
            aliases,
            resume,
            loopback_ports: loopback_ports(&servers),
            egress: means.tenant.egress,
            servers,
            skills: means.skills.clone(),
            tools,
            folder,
            home,
            env,
            secrets: secrets(means),
            limits: means.limits.clone(),
            prices: means.prices(),
            memory: Memory::default(),
        };
        Ok(Prepared { order, left_out, tool_news, door })
    }

    /// An engine that calls tools itself gets a box of them. A program of its own gets servers, and
    /// those of them that are APIs behind a door that is opened for this run.
    async fn equipment(&self, means: &Means, folder: &Path) -> Equipment {
        let mut servers = means.servers.clone();
        let mut check = DefinitionCheck::new(self, &means.conversation.value.tenant);
        match means.model.engine {
            EngineKind::Anthropic | EngineKind::Bedrock => {
                let conversation = &means.conversation.value;
                let supplies = Supplies {
                    app: self,
                    tenant: &conversation.tenant,
                    conversation: &conversation.id,
                    has_workspace: means.workspace_enabled() && self.options.data.is_some(),
                    servers: &servers,
                    skills: &means.skills,
                    folder,
                    limit: self.options.execution_timeout,
                };
                let (tools, left_out) = TurnTools::gather(&supplies, &mut check).await;
                let (tools, tool_news) = (Arc::new(tools), check.news);
                Equipment { servers, tools, left_out, tool_news, door: None }
            }
            EngineKind::ClaudeCode => {
                check.narrow(&mut servers, folder).await;
                let (servers, door, left_out) = Door::open(servers, &mut check).await;
                let tool_news = check.news;
                Equipment { servers, left_out, tool_news, door, ..Equipment::none() }
            }
            EngineKind::Offline => Equipment { servers, ..Equipment::none() },
        }
    }

    async fn system_prompt(&self, means: &Means) -> Result<String, AppError> {
        let mut parts = Vec::new();
        if !means.tenant.system_prompt.trim().is_empty() {
            parts.push(means.tenant.system_prompt.clone());
        }
        if means.workspace_enabled() {
            let conversation = &means.conversation.value.id;
            let folder = self.workspace_folder(conversation).await?;
            let files = self.list_files_of(conversation).await?;
            parts.push(workspace::block(&folder, &files));
        }
        if !means.preferred_skills.is_empty() {
            let names = means.preferred_skills.join(", ");
            parts.push(format!(
                "The user prefers these skills: {names}. Use them where they fit the request."
            ));
        }
        Ok(parts.join("\n\n"))
    }
}

/// The ports of the servers that are on this host's loopback.
fn loopback_ports(servers: &[Server]) -> Vec<u16> {
    let mut ports: Vec<u16> = servers.iter().filter_map(loopback_port).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn loopback_port(server: &Server) -> Option<u16> {
    let (Transport::Http { url } | Transport::Sse { url }) = &server.transport else {
        return None;
    };
    let uri: hyper::Uri = url.parse().ok()?;
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    is_loopback.then(|| uri.port_u16().unwrap_or(usual))
}

/// This machine's own door is not asked for at a proxy.
fn keep_at_home(env: &mut BTreeMap<String, String>) {
    const HOME: &str = "127.0.0.1,localhost,::1";
    for name in ["NO_PROXY", "no_proxy"] {
        let known = env.get(name).filter(|known| !known.is_empty());
        let all = known.map_or_else(|| HOME.to_owned(), |known| format!("{known},{HOME}"));
        env.insert(name.to_owned(), all);
    }
}

/// The request's tokens, and the headers of APIs: an engine behind a door does not see those, and
/// still must not repeat them.
fn secrets(means: &Means) -> Vec<String> {
    let is_api = |server: &&Server| matches!(server.transport, Transport::Openapi { .. });
    let headers = means.servers.iter().filter(is_api).flat_map(|server| server.headers.values());
    let both = headers.flat_map(|value| {
        // What follows `Bearer` alone is the secret, too.
        let rest = value.split_once(' ').map(|(_, rest)| rest.to_owned());
        [Some(value.clone()), rest].into_iter().flatten()
    });
    means.secrets.iter().cloned().chain(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_sees_only_what_is_on_the_list() {
        let given = ["PATH", "ANTHROPIC_API_KEY", "AWS_PROFILE", "HOME", "SECRET", "SHIKIRI_STORE"];
        let seen = inherited(given.map(|name| (name.to_owned(), "値".to_owned())));
        let names: Vec<_> = seen.keys().map(String::as_str).collect();
        assert_eq!(names, ["ANTHROPIC_API_KEY", "AWS_PROFILE", "PATH"]);
    }

    #[test]
    fn loopback_ports_are_those_of_servers_on_this_host() {
        let server = |transport| Server {
            id: None,
            name: "s".to_owned(),
            transport,
            headers: BTreeMap::new(),
            allowed_tools: None,
            allow_private: true,
            is_own: false,
        };
        let http = |url: &str| server(Transport::Http { url: url.to_owned() });
        let servers = [
            http("http://localhost:9001/mcp"),
            server(Transport::Sse { url: "https://[::1]/sse".to_owned() }),
            http("http://127.0.0.1:80/"),
            http("http://127.0.0.1/again"),
            http("http://10.0.0.1:9002/"),
            http("http://localhost.example:9003/"),
            server(Transport::Stdio { command: vec!["x".to_owned()] }),
        ];
        assert_eq!(loopback_ports(&servers), [80, 443, 9001]);
    }

    #[test]
    fn the_own_door_is_not_behind_a_proxy() {
        let mut env = BTreeMap::from([("no_proxy".to_owned(), "inside".to_owned())]);
        keep_at_home(&mut env);
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
