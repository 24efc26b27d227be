//! `shikiri host list` and `tools`.

use clap::Args;
use serde_json::{Value, json};
use shikiri_client::ServerTool;
use shikiri_host::{Host, ServerListing};
use shikiri_model::host::sanitize_line;
use shikiri_model::tool::ToolChangeKind;

use super::count;
use crate::cli::JsonArgument;
use crate::exit::{Exit, Failure};
use crate::output::{Output, note};
use crate::spinner::show_waiting;
use crate::table::TableColumn;
use crate::terminal::host::{changes_line, difference};

#[derive(Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    json: JsonArgument,
}

#[derive(Args)]
pub(super) struct ToolsArguments {
    /// Only this server's
    server: Option<String>,
    /// Know its tools as they are now, after their definitions changed
    #[arg(long, requires = "server")]
    accept: bool,
    #[command(flatten)]
    json: JsonArgument,
}

impl ToolsArguments {
    pub(super) fn is_of_one(&self) -> bool {
        self.server.is_some()
    }
}

pub(super) async fn list(host: &Host, arguments: ListArguments) -> Result<(), Failure> {
    let listed = show_waiting("asking the servers", host.list()).await;
    if arguments.json.json {
        let items: Vec<Value> = listed.iter().map(described).collect();
        Output::stdout().json(&json!({ "items": items }))?;
    } else {
        let rows: Vec<_> = listed.iter().map(list_row).collect();
        Output::stdout().table(&TableColumn::texts(&LIST_HEAD), &rows, NO_SERVERS)?;
    }
    failed_all(&listed)
}

/// What a person is told in place of an empty list.
const NO_SERVERS: &str = "No servers yet. Name them in shikiri.toml, or one with --url.";

pub(super) const LIST_HEAD: [&str; 5] = ["server", "address", "protocol", "offers", "is"];
pub(super) const TOOLS_HEAD: [&str; 4] = ["server", "tool", "arguments", "does"];

pub(super) fn list_row(listed: &ServerListing) -> Vec<String> {
    let state = match &listed.offer {
        Ok((server, offer)) => vec![
            sanitize_line(server.protocol()),
            count(offer.tools.len(), "tool"),
            sanitize_line(&format!("{} {}", server.about().name, server.about().version)),
        ],
        Err(error) => vec!["-".to_owned(), "-".to_owned(), sanitize_line(&error.to_string())],
    };
    [vec![sanitize_line(&listed.server), sanitize_line(&listed.endpoint)], state].concat()
}

/// Fails if every server failed.
fn failed_all(listed: &[ServerListing]) -> Result<(), Failure> {
    if listed.iter().any(|listed| listed.offer.is_ok()) {
        return Ok(());
    }
    Err(Failure::new(Exit::Unavailable, "no server could be reached", "look at what each said"))
}

fn described(listed: &ServerListing) -> Value {
    match &listed.offer {
        Ok((server, offer)) => json!({
            "server": listed.server,
            "address": listed.endpoint,
            "reachable": true,
            "protocol": server.protocol(),
            "name": server.about().name,
            "version": server.about().version,
            "tools": offer.tools.len(),
            "remarks": offer.remarks,
        }),
        Err(error) => json!({
            "server": listed.server,
            "address": listed.endpoint,
            "reachable": false,
            "detail": error.to_string(),
        }),
    }
}

pub(super) async fn tools(host: &Host, arguments: &ToolsArguments) -> Result<(), Failure> {
    let mut found: Vec<(String, Vec<ServerTool>)> = Vec::new();
    match &arguments.server {
        Some(name) => {
            let server = show_waiting("connecting to the server", host.connect(name)).await?;
            let offer = server.tools().await.map_err(|error| {
                Failure::told(super::exit_of(&error), format!("{name}: {error}"))
            })?;
            offer
                .remarks
                .iter()
                .for_each(|remark| note(&format!("shikiri: {name}: {}", sanitize_line(remark))));
            let changes = host.changes(name, &offer.tools).await?;
            changes.iter().for_each(|change| note(&difference(name, change)));
            if arguments.accept {
                host.accept_all(name, &offer.tools).await?;
                note(&format!("shikiri: the tools of {name} are known as they are now"));
            } else if changes.iter().any(|change| change.kind == ToolChangeKind::Changed) {
                note(&format!("shikiri: accept this with `shikiri host tools {name} --accept`"));
            }
            found.push((name.clone(), offer.tools));
        }
        None => {
            let listed = show_waiting("asking the servers", host.list()).await;
            for one in &listed {
                if !one.changes.is_empty() {
                    note(&changes_line(&one.server, &one.changes));
                }
                match &one.offer {
                    Ok((_, offer)) => found.push((one.server.clone(), offer.tools.clone())),
                    Err(error) => {
                        note(&sanitize_line(&format!("shikiri: {}: {error}", one.server)))
                    }
                }
            }
            failed_all(&listed)?;
        }
    }
    if arguments.json.json {
        let items: Vec<Value> = found
            .iter()
            .flat_map(|(server, tools)| tools.iter().map(move |tool| tool_json(server, tool)))
            .collect();
        return Output::stdout().json(&json!({ "items": items }));
    }
    let rows: Vec<_> = found
        .iter()
        .flat_map(|(server, tools)| tools.iter().map(move |tool| tool_row(server, tool)))
        .collect();
    Output::stdout().table(&TableColumn::texts(&TOOLS_HEAD), &rows, "It has no tools.")
}

fn tool_json(server: &str, tool: &ServerTool) -> Value {
    json!({
        "server": server,
        "tool": tool.name,
        "title": tool.title,
        "description": tool.description,
        "input_schema": tool.input_schema,
    })
}

pub(super) fn tool_row(server: &str, tool: &ServerTool) -> Vec<String> {
    let arguments = tool.arguments().into_iter().map(|(name, _, required)| {
        let name = sanitize_line(name);
        if required { name } else { format!("[{name}]") }
    });
    let does = sanitize_line(tool.title.as_deref().unwrap_or(&tool.description));
    let does: String = does.chars().take(80).collect();
    vec![sanitize_line(server), tool.name.clone(), arguments.collect::<Vec<_>>().join(" "), does]
}
