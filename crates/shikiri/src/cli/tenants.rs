//! `shikiri tenants create|list|show|set|delete`.

use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use shikiri_app::App;
use shikiri_model::ids::TenantId;
use shikiri_model::record::StoredDocument;
use shikiri_model::tenant::{EgressPolicy, Tenant, TenantStatus, TenantUse};
use shikiri_tenancy::tenants::{LimitsPatch, TenantPatch};
use shikiri_web::views::TenantJson;

use super::JsonArgument;
use super::parts::{all_pages, emptied, none_yet, or_none, print_page, sheet, word};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::table::TableColumn;
use crate::text::{one_line, short};
use crate::wiring::Access;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Make a tenant
    Create {
        /// Its id [default: a fresh one]
        id: Option<TenantId>,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Show all tenants
    List {
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Show one tenant
    Show {
        /// Its id
        id: TenantId,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Change a tenant; what is not named stays
    Set {
        /// Its id
        id: TenantId,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Remove a tenant with its keys and all that it owns, for good
    Delete {
        /// Its id
        id: TenantId,
        /// Yes, for good
        #[arg(long)]
        yes: bool,
    },
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::List { .. } | Self::Show { .. } => Access::Read,
            Self::Create { .. } | Self::Set { .. } | Self::Delete { .. } => Access::Write,
        }
    }
}

#[derive(Args)]
pub(super) struct Change {
    /// What people call it
    #[arg(long)]
    name: Option<String>,
    /// The system prompt of its conversations; empty for none
    #[arg(long, value_name = "TEXT")]
    system_prompt: Option<String>,
    /// Default model; empty for none
    #[arg(long, value_name = "ID")]
    model: Option<String>,
    /// An inactive tenant's keys are refused
    #[arg(long, value_parser = word::<TenantStatus>())]
    status: Option<TenantStatus>,
    /// Whether its conversations have a folder
    #[arg(long, value_name = "BOOL")]
    workspace: Option<bool>,
    /// Where its runs may connect to, besides their own model, tools and servers
    #[arg(long)]
    egress: Option<Egress>,
    /// `none` lifts the limit, here and below
    #[arg(long, value_name = "N")]
    max_concurrent_executions: Option<LimitArgument<u32>>,
    /// Open event streams at a time
    #[arg(long, value_name = "N")]
    max_streams: Option<LimitArgument<u32>>,
    /// API requests per minute
    #[arg(long, value_name = "N")]
    requests_per_minute: Option<LimitArgument<u32>>,
    /// Bytes of events, records, workspaces and engine homes
    #[arg(long, value_name = "N")]
    stored_bytes: Option<LimitArgument<u64>>,
}

/// A number, or `none` for no limit.
#[derive(Clone, Copy)]
struct LimitArgument<N>(Option<N>);

impl<N: FromStr> FromStr for LimitArgument<N> {
    type Err = N::Err;

    fn from_str(text: &str) -> Result<Self, N::Err> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(|limit| Self(Some(limit))) }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Egress {
    /// Nowhere else
    None,
    /// Public addresses
    Public,
    /// Private addresses too, never this host's own
    Open,
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    match command {
        Command::Create { id, change, json } => {
            let tenant = app.tenancy.create_tenant(id, change.into()).await?;
            show(tenant, None, json)
        }
        Command::List { json } => list(app, json).await,
        Command::Show { id, json } => {
            let tenant = app.runtime.tenant(&id).await?;
            show(tenant, Some(app.tenancy.tenant_use(&id).await), json)
        }
        Command::Set { id, change, json } => {
            show(app.tenancy.update_tenant(&id, change.into()).await?, None, json)
        }
        Command::Delete { id, yes } => {
            app.runtime.tenant(&id).await?;
            if !yes {
                let what = format!("this removes tenant {id} and all that it owns for good");
                return Err(Failure::new(Exit::Refused, what, "add --yes if you mean it"));
            }
            let next = "set it inactive instead";
            app.delete_tenant(&id).await.map_err(|error| Failure::not_now(error, next))?;
            Output::stdout().line(&format!("tenant {id} is removed"))
        }
    }
}

impl From<Change> for TenantPatch {
    fn from(change: Change) -> Self {
        Self {
            name: change.name,
            system_prompt: change.system_prompt,
            model_id: emptied(change.model),
            status: change.status,
            workspace_enabled: change.workspace,
            egress: change.egress.map(|egress| match egress {
                Egress::None => EgressPolicy::None,
                Egress::Public => EgressPolicy::Public,
                Egress::Open => EgressPolicy::Open,
            }),
            limits: LimitsPatch {
                max_concurrent_executions: change.max_concurrent_executions.map(|limit| limit.0),
                max_streams: change.max_streams.map(|limit| limit.0),
                requests_per_minute: change.requests_per_minute.map(|limit| limit.0),
                stored_bytes: change.stored_bytes.map(|limit| limit.0),
            },
        }
    }
}

async fn list(app: &App, json: JsonArgument) -> Result<(), Failure> {
    let tenants = all_pages(async |after| app.tenancy.list_tenants(after, 100).await).await?;
    let row = |stored: &StoredDocument<Tenant>| {
        let tenant = &stored.value;
        vec![tenant.id.to_string(), tenant.status.as_str().to_owned(), short(&tenant.name, 60)]
    };
    let columns = [TableColumn::id("id"), TableColumn::state("status"), TableColumn::text("name")];
    let empty = none_yet("tenants", false, "tenants create ID");
    print_page::<TenantJson, _>((tenants, None), json, &columns, &empty, row)
}

fn show(
    stored: StoredDocument<Tenant>,
    used: Option<TenantUse>,
    json: JsonArgument,
) -> Result<(), Failure> {
    if json.json {
        let tenant = TenantJson::from(stored);
        return Output::stdout().json(&match used {
            Some(used) => tenant.with_use(used),
            None => tenant,
        });
    }
    let tenant = &stored.value;
    let limit = |limit: Option<u32>| limit.map_or("none".to_owned(), |n| n.to_string());
    let stored_bytes = tenant.limits.stored_bytes.map_or("none".to_owned(), |n| n.to_string());
    let stored_bytes = match used {
        Some(used) => format!("{stored_bytes} ({} in use)", used.stored_bytes),
        None => stored_bytes,
    };
    sheet(&[
        ("tenant", tenant.id.to_string()),
        ("name", one_line(&tenant.name)),
        ("status", Output::stdout().state(tenant.status.as_str())),
        ("model", or_none(tenant.model_id.as_deref())),
        ("system prompt", short(&tenant.system_prompt, 80)),
        ("workspace", tenant.workspace_enabled.to_string()),
        ("egress", tenant.egress.as_str().to_owned()),
        ("executions at once", limit(tenant.limits.max_concurrent_executions)),
        ("streams at once", limit(tenant.limits.max_streams)),
        ("requests a minute", limit(tenant.limits.requests_per_minute)),
        ("stored bytes", stored_bytes),
        ("created", Output::stdout().time(stored.created_at)),
    ])
}
