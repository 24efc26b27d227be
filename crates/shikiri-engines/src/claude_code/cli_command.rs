//! The CLI's command line, environment and MCP servers, as the Agent SDK sets them. The command line
//! holds no secret.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use serde_json::{Map, Value, json};
use shikiri_executions::execution::{ResolvedServer, TurnRequest};
use shikiri_model::server::McpServerTransport;

use super::cli_version::InstalledCli;

/// Set for every run: no updates, no reports, no model requests of the CLI's own, and events that say
/// whether it is working or idle.
const ALWAYS: [(&str, &str); 7] = [
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1"),
    ("CLAUDE_CODE_ENTRYPOINT", "sdk-ts"),
    ("CLAUDE_CODE_SDK_READS_SESSION_STATE", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
    ("DISABLE_ERROR_REPORTING", "1"),
    ("DISABLE_TELEMETRY", "1"),
];
/// How long the CLI waits for an MCP server that does not answer, unless the request sets it: 2.1.325
/// starts the turn only after that.
const MCP_TIMEOUT_MS: &str = "10000";
/// Model aliases, with the variable from which the CLI takes their model.
const FAMILIES: [(&str, &str); 3] = [
    ("haiku", "ANTHROPIC_DEFAULT_HAIKU_MODEL"),
    ("sonnet", "ANTHROPIC_DEFAULT_SONNET_MODEL"),
    ("opus", "ANTHROPIC_DEFAULT_OPUS_MODEL"),
];

/// Files that are named on the command line.
#[derive(Clone, Copy, Default)]
pub(super) struct CliFilePaths<'a> {
    pub(super) servers: Option<&'a Path>,
    pub(super) plugin: Option<&'a Path>,
}

pub(super) fn arguments(
    order: &TurnRequest,
    files: CliFilePaths<'_>,
    cli: &InstalledCli,
) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = [
        "--output-format",
        "stream-json",
        "--verbose",
        "--input-format",
        "stream-json",
        "--include-partial-messages",
        "--permission-prompt-tool=stdio",
        "--setting-sources=",
        "--permission-mode=default",
        "--strict-mcp-config",
    ]
    .map(OsString::from)
    .to_vec();
    // The `=` keeps a value that starts with a dash from becoming an option.
    arguments.push(format!("--model={}", order.model.model_name).into());
    if cli.can_forward_subagents {
        arguments.push("--forward-subagent-text".into());
    }
    if let Some(turns) = order.limits.max_turns {
        arguments.push(format!("--max-turns={turns}").into());
    }
    if let Some(cost) = order.limits.max_cost_usd {
        arguments.push(format!("--max-budget-usd={}", cost.dollars()).into());
    }
    if let Some(session) = &order.resume {
        arguments.push(format!("--resume={session}").into());
    }
    for (option, file) in [("--mcp-config", files.servers), ("--plugin-dir", files.plugin)] {
        if let Some(file) = file {
            arguments.extend([OsString::from(option), file.into()]);
        }
    }
    arguments
}

/// The whole environment of the CLI.
pub(super) fn environment(order: &TurnRequest) -> BTreeMap<String, OsString> {
    let given = order.env.iter().map(|(name, value)| (name.clone(), OsString::from(value)));
    let mut env: BTreeMap<_, _> = given.collect();
    for (name, value) in ALWAYS {
        env.insert(name.to_owned(), value.into());
    }
    for (alias, variable) in FAMILIES {
        if let Some(model) = order.aliases.get(alias) {
            env.entry(variable.to_owned()).or_insert_with(|| model.into());
        }
    }
    if let Some(model) = &order.subagent_model {
        env.insert("CLAUDE_CODE_SUBAGENT_MODEL".to_owned(), model.into());
    }
    env.entry("MCP_TIMEOUT".to_owned()).or_insert_with(|| MCP_TIMEOUT_MS.into());
    env.insert("HOME".to_owned(), order.home.clone().into());
    for (name, folder) in [("CLAUDE_CONFIG_DIR", "claude"), ("TMPDIR", "tmp")] {
        env.insert(name.to_owned(), order.home.join(folder).into());
    }
    if rustix::process::geteuid().is_root() {
        // The CLI refuses some of its modes to root outside of a sandbox.
        env.insert("IS_SANDBOX".to_owned(), "1".into());
    }
    env
}

/// The servers in the CLI's format, and the names of those that are left out.
pub(super) fn servers(servers: &[ResolvedServer]) -> (Map<String, Value>, Vec<&str>) {
    let (mut given, mut left_out) = (Map::new(), Vec::new());
    for server in servers {
        let form = match &server.transport {
            McpServerTransport::Http { url } | McpServerTransport::Sse { url } => json!({
                "type": server.transport.kind(), "url": url, "headers": server.headers,
            }),
            McpServerTransport::Stdio { command } => json!({
                "type": "stdio",
                "command": command.first(),
                "args": command.get(1..).unwrap_or_default(),
            }),
            // These are served by a loopback MCP server, which is in the list as `Http`.
            McpServerTransport::Openapi { .. } => continue,
        };
        // The CLI would insert variables of its environment here, such as a key of the model API.
        if form.to_string().contains("${") {
            left_out.push(server.name.as_str());
        } else {
            given.insert(server.name.clone(), form);
        }
    }
    (given, left_out)
}

#[cfg(test)]
#[path = "cli_command_tests.rs"]
mod tests;
