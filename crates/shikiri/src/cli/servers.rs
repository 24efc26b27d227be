//! `shikiri servers create|list|show|set|remove|check`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use shikiri_app::App;
use shikiri_executions::servers::{ServerKind, ServerPatch, ServerReport, is_private_url};
use shikiri_model::ids::{ServerId, TenantId};
use shikiri_model::key::KeyScope;
use shikiri_model::models::ActiveStatus;
use shikiri_model::record::StoredDocument;
use shikiri_model::server::{McpServer, McpServerTransport, spec_url};
use shikiri_model::tool::{ToolChange, ToolChangeKind};
use shikiri_web::views::{ServerCheckJson, ServerJson};

use super::id_argument::IdArgument;
use super::parts::{all_pages, none_yet, one_of, pair, print_page, print_record, sheet, word};
use super::{CommonArguments, JsonArgument, TenantArgument};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::spinner::show_waiting;
use crate::table::TableColumn;
use crate::text::{one_line, short};
use crate::wiring::Access;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Make an MCP server that a tenant's executions can reach
    Create {
        /// Part of its tools' names: 1 to 64 letters, digits, _ or -
        name: String,
        /// How it is reached
        #[arg(long = "type", value_name = "TYPE", value_parser = one_of(KINDS))]
        kind: ServerKind,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Show the MCP servers of a tenant
    List {
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Show one MCP server
    Show {
        /// Its name, its id, a unique ending of the id, or @last for the newest
        server: IdArgument<ServerId>,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Change an MCP server; what is not named stays
    Set {
        /// Its name, its id, a unique ending of the id, or @last for the newest
        server: IdArgument<ServerId>,
        /// Part of its tools' names: 1 to 64 letters, digits, _ or -
        #[arg(long)]
        name: Option<String>,
        /// How it is reached
        #[arg(long = "type", value_name = "TYPE", value_parser = one_of(KINDS))]
        kind: Option<ServerKind>,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Remove an MCP server
    Remove {
        /// Its name, its id, a unique ending of the id, or @last for the newest
        server: IdArgument<ServerId>,
        #[command(flatten)]
        tenant: TenantArgument,
    },
    /// Try an MCP server from here, for at most 10 s; exit code 5 if it does not answer
    Check {
        /// Its name, its id, a unique ending of the id, or @last for the newest
        server: IdArgument<ServerId>,
        /// A token for its headers, with its value or with that of the environment variable of
        /// this name; can be given several times
        #[arg(long, value_name = "NAME[=VALUE]", value_parser = pair)]
        token: Vec<(String, String)>,
        /// Know its tools as they are now, so that executions may use changed ones again
        #[arg(long)]
        accept_changes: bool,
        #[command(flatten)]
        common: CommonArguments,
    },
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::Check { accept_changes: true, .. } => Access::Write,
            Self::List { .. } | Self::Show { .. } | Self::Check { .. } => Access::Read,
            Self::Create { .. } | Self::Set { .. } | Self::Remove { .. } => Access::Write,
        }
    }
}

const KINDS: [(&str, ServerKind); 4] = [
    ("http", ServerKind::Http),
    ("sse", ServerKind::Sse),
    ("stdio", ServerKind::Stdio),
    ("openapi", ServerKind::Openapi),
];
const MAX_SPEC: u64 = 2 * 1024 * 1024;

#[derive(Args)]
pub(super) struct Change {
    /// Where it is, for http and sse; for openapi, if it is not where its document says
    #[arg(long)]
    url: Option<String>,
    /// For openapi: the file with the document, JSON or YAML, or its address
    #[arg(long, value_name = "FILE|URL")]
    spec: Option<String>,
    /// A header, such as 'Authorization: Bearer ${github}', where ${…} is a token of each request;
    /// can be given several times, empty for none
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<Option<(String, String)>>,
    /// Only this tool; can be given several times, empty for all
    #[arg(long = "allowed-tool", value_name = "TOOL")]
    allowed_tools: Vec<String>,
    /// Let it be at an address of this machine or this network [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    allow_private: Option<bool>,
    /// An inactive server is not used
    #[arg(long, value_parser = word::<ActiveStatus>())]
    status: Option<ActiveStatus>,
    /// The program and its arguments after --, for stdio
    #[arg(last = true)]
    command: Vec<String>,
}

/// None for an empty value.
fn header(text: &str) -> Result<Option<(String, String)>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let (name, value) = text.split_once(':').ok_or("write it as 'Name: value'")?;
    Ok(Some((name.trim().to_owned(), value.trim().to_owned())))
}

/// The document in a file; an address is returned as it is.
fn read_spec(spec: String) -> Result<String, Failure> {
    if spec_url(&spec).is_some() {
        return Ok(spec);
    }
    let next = "name a file with an OpenAPI document of UTF-8 text, or its address";
    let unreadable =
        |error: std::io::Error| Failure::usage(format!("cannot read {spec}: {error}"), next);
    let size = std::fs::metadata(&spec).map_err(unreadable)?.len();
    if size > MAX_SPEC {
        let next = "a document has at most 2 MiB: name the address of a larger one";
        return Err(Failure::usage(format!("{spec} has {size} bytes"), next));
    }
    std::fs::read_to_string(&spec).map_err(unreadable)
}

impl Change {
    fn patch(self) -> Result<ServerPatch, Failure> {
        let change = self;
        let spec = change.spec.map(read_spec).transpose()?;
        let headers = (!change.headers.is_empty())
            .then(|| change.headers.into_iter().flatten().collect::<BTreeMap<_, _>>());
        let tools = (!change.allowed_tools.is_empty()).then(|| {
            let named = change.allowed_tools.into_iter().filter(|tool| !tool.is_empty());
            Some(named.collect::<Vec<_>>()).filter(|tools| !tools.is_empty())
        });
        Ok(ServerPatch {
            name: None,
            kind: None,
            url: change.url,
            command: Some(change.command).filter(|words| !words.is_empty()),
            spec,
            headers_template: headers,
            allowed_tools: tools,
            allow_private: change.allow_private,
            status: change.status,
        })
    }
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    // A user of this command has access to the store itself.
    let by = &KeyScope::Admin;
    match command {
        Command::Create { name, kind, change, common } => {
            let patch = ServerPatch { name: Some(name), kind: Some(kind), ..change.patch()? };
            refuse_out_of_reach(&patch)?;
            show(app.executions.create_server(by, &common.tenant.id, patch).await?, common.json)
        }
        Command::List { common } => list(app, &common.tenant.id, common.json).await,
        Command::Show { server, common } => {
            let server = find(app, &common.tenant.id, &server).await?;
            show(app.executions.server(&common.tenant.id, &server).await?, common.json)
        }
        Command::Set { server, name, kind, change, common } => {
            let server = find(app, &common.tenant.id, &server).await?;
            let patch = ServerPatch { name, kind, ..change.patch()? };
            show(
                app.executions.update_server(by, &common.tenant.id, &server, patch).await?,
                common.json,
            )
        }
        Command::Remove { server, tenant } => {
            let server = find(app, &tenant.id, &server).await?;
            app.executions.delete_server(&tenant.id, &server).await?;
            Output::stdout().line(&format!("MCP server {server} is removed"))
        }
        Command::Check { server, token, accept_changes, common } => {
            let server = find(app, &common.tenant.id, &server).await?;
            let tokens = token.into_iter().collect();
            let checking =
                app.executions.check_server(&common.tenant.id, &server, &tokens, accept_changes);
            let report = show_waiting("asking the MCP server", checking).await?;
            print_report(report, accept_changes, common.json)
        }
    }
}

/// The id of a server, which may be meant by its name.
async fn find(
    app: &App,
    tenant: &TenantId,
    typed: &IdArgument<ServerId>,
) -> Result<ServerId, Failure> {
    let servers =
        all_pages(async |after| app.executions.list_servers(tenant, after, 100).await).await?;
    let named = servers.into_iter().find(|stored| stored.value.name == typed.text());
    match named {
        Some(named) => Ok(named.value.id),
        None => typed.resolve(app, tenant).await,
    }
}

/// Without `allow_private`, a server at a private address could never be reached.
fn refuse_out_of_reach(patch: &ServerPatch) -> Result<(), Failure> {
    match patch.url.as_deref().filter(|url| is_private_url(url)) {
        Some(url) if patch.allow_private.is_none() => {
            let what = format!("{} is a private address", one_line(url));
            Err(Failure::new(Exit::Refused, what, "add --allow-private if that is meant"))
        }
        _ => Ok(()),
    }
}

async fn list(app: &App, tenant: &TenantId, json: JsonArgument) -> Result<(), Failure> {
    let servers =
        all_pages(async |after| app.executions.list_servers(tenant, after, 100).await).await?;
    let row = |stored: &StoredDocument<McpServer>| {
        let server = &stored.value;
        vec![
            server.id.to_string(),
            server.name.clone(),
            server.transport.kind().to_owned(),
            server.status.as_str().to_owned(),
            short(&address_of(&server.transport), 60),
        ]
    };
    let columns = [
        TableColumn::id("id"),
        TableColumn::text("name"),
        TableColumn::text("type"),
        TableColumn::state("status"),
        TableColumn::text("where").minor(),
    ];
    print_page::<ServerJson, _>(
        (servers, None),
        json,
        &columns,
        &none_yet("MCP servers", false, "servers create NAME --type http --url https://…"),
        row,
    )
}

fn address_of(transport: &McpServerTransport) -> String {
    match transport {
        McpServerTransport::Http { url } | McpServerTransport::Sse { url } => url.clone(),
        McpServerTransport::Stdio { command } => command.join(" "),
        McpServerTransport::Openapi { spec, url } => {
            let document = spec_url(spec).unwrap_or("a document of its own");
            url.as_ref().map_or_else(|| document.to_owned(), |url| format!("{url} ({document})"))
        }
    }
}

fn show(stored: StoredDocument<McpServer>, json: JsonArgument) -> Result<(), Failure> {
    print_record::<ServerJson, _>(stored, json, |stored| {
        let server = &stored.value;
        let tools = server.allowed_tools.as_ref();
        let headers = server.shown_headers();
        let headers = headers.iter().map(|(name, value)| format!("{name}: {value}"));
        let mut lines = vec![
            ("MCP server", server.id.to_string()),
            ("name", server.name.clone()),
            ("type", server.transport.kind().to_owned()),
            ("where", one_line(&address_of(&server.transport))),
        ];
        lines.extend(headers.map(|header| ("header", one_line(&header))));
        lines.extend([
            ("tools", tools.map_or("all".to_owned(), |tools| one_line(&tools.join(" ")))),
            ("private addresses", server.allow_private.to_string()),
            ("status", Output::stdout().state(server.status.as_str())),
            ("created", Output::stdout().time(stored.created_at)),
        ]);
        lines
    })
}

/// The former and the current definitions of the server's tools.
fn tell_changes(changes: &[ToolChange], is_accepted: bool) -> Result<(), Failure> {
    let output = Output::stdout();
    for line in changes.iter().flat_map(ToolChange::lines) {
        output.line(&line)?;
    }
    if is_accepted {
        return output.line("its tools are known as they are now");
    }
    if changes.iter().any(|change| change.kind == ToolChangeKind::Changed) {
        output.line("changed tools are withheld from executions until you add --accept-changes")?;
    }
    Ok(())
}

fn print_report(
    report: ServerReport,
    is_accepted: bool,
    json: JsonArgument,
) -> Result<(), Failure> {
    let reachable = report.reachable;
    let detail = report.detail.clone();
    if json.json {
        Output::stdout().json(&ServerCheckJson::from(report))?;
    } else if reachable || report.tools.is_some() {
        let named = report.server.map(|server| format!("{} {}", server.name, server.version));
        let tools = report.tools.map(|tools| tools.join(" "));
        sheet(&[
            ("it", one_line(&detail)),
            ("server", one_line(&named.unwrap_or_default())),
            ("tools", tools.map_or("unknown".to_owned(), |tools| one_line(&tools))),
        ])?;
        tell_changes(&report.changes, is_accepted)?;
    }
    if reachable {
        return Ok(());
    }
    let next = "look at its url, headers and command with `shikiri servers show ID`";
    Err(Failure::new(Exit::Unavailable, format!("the MCP server {detail}"), next))
}
