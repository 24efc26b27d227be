//! `shikiri agents add|list|show`.

use std::io::BufRead as _;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use shikiri_app::team::NewAgent;
use shikiri_app::{App, AppError};
use shikiri_model::ids::{AgentId, ModelId};
use shikiri_model::key::Secret;
use shikiri_model::record::Stored;
use shikiri_model::team::{AgentKind, Rank, Spawn, TeamAgent};
use shikiri_web::views::{Page, TeamAgentJson};

use super::parts::{all_pages, or_none, sheet};
use super::team::ProjectArgument;
use super::{JsonArgument, TenantArgument};
use crate::exit::Failure;
use crate::output::{Output, note};
use crate::text::{one_line, short};
use crate::wiring::Access;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Let an agent work in a project; a new one gets a passkey, which is printed this once
    #[command(visible_alias = "create")]
    Add {
        #[command(flatten)]
        new: New,
        #[command(flatten)]
        project: ProjectArgument,
    },
    /// Show the agents of a project
    List {
        #[command(flatten)]
        project: ProjectArgument,
    },
    /// Show one agent
    Show {
        agent: AgentId,
        #[command(flatten)]
        tenant: TenantArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
}

#[derive(Args)]
pub(super) struct New {
    /// 1 to 100 letters, digits, `_` or `-`
    agent: AgentId,
    /// What people call it; its id, if left out
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    #[arg(long, default_value = "ai")]
    kind: Kind,
    #[arg(long, default_value = "worker")]
    rank: RankWord,
    /// What the agent is told of its part
    #[arg(long, value_name = "TEXT")]
    role: Option<String>,
    /// Take the passkey from the first line of stdin instead of making one up
    #[arg(long)]
    passkey_stdin: bool,
    /// What it is started with, in place of the tenant's
    #[arg(long, value_name = "ID")]
    model: Option<ModelId>,
    /// Whether the server starts it when there is work for it
    #[arg(long, default_value = "never")]
    spawn: SpawnWord,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Ai,
    Human,
}

#[derive(Clone, Copy, ValueEnum)]
enum RankWord {
    Manager,
    Worker,
}

#[derive(Clone, Copy, ValueEnum)]
enum SpawnWord {
    Auto,
    Never,
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::Add { .. } => Access::Write,
            Self::List { .. } | Self::Show { .. } => Access::Read,
        }
    }
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    match command {
        Command::Add { new, project } => add(app, new, &project).await,
        Command::List { project } => list(app, &project).await,
        Command::Show { agent, tenant, json } => {
            show(app.team_agent(&tenant.id, &agent).await?, json)
        }
    }
}

/// An agent that was made, with the passkey that nobody has seen yet.
#[derive(Serialize)]
struct Made {
    #[serde(flatten)]
    agent: TeamAgentJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    passkey: Option<String>,
}

async fn add(app: &App, new: New, project: &ProjectArgument) -> Result<(), Failure> {
    let found = project.find(app).await?;
    let is_known = match app.team_agent(&found.tenant, &new.agent).await {
        Ok(_) => true,
        Err(AppError::NotFound { .. }) => false,
        Err(other) => return Err(other.into()),
    };
    let given = if new.passkey_stdin { Some(read_passkey()?) } else { None };
    // One that works elsewhere has its passkey already.
    let made_up = if given.is_none() && !is_known { Some(mint_passkey()?) } else { None };
    let id = new.agent.clone();
    let agent = NewAgent { passkey: given.or_else(|| made_up.clone()), ..new.into_agent() };
    let agent = app.add_agent(&found.tenant, &found.project, agent).await?;
    let output = Output::stdout();
    if project.json.json {
        let passkey = made_up.as_ref().map(|passkey| passkey.reveal().to_owned());
        return output.json(&Made { agent: agent.into(), passkey });
    }
    let Some(passkey) = made_up else {
        return output.line(&format!("{id} works in project {}", found.project));
    };
    // Alone on stdout, so that a script can take it.
    output.line(passkey.reveal())?;
    note(&format!("the passkey of {id}, which works in {}; it is shown this once", found.project));
    Ok(())
}

impl New {
    fn into_agent(self) -> NewAgent {
        NewAgent {
            id: self.agent,
            name: self.name,
            kind: match self.kind {
                Kind::Ai => AgentKind::Ai,
                Kind::Human => AgentKind::Human,
            },
            rank: match self.rank {
                RankWord::Manager => Rank::Manager,
                RankWord::Worker => Rank::Worker,
            },
            role: self.role,
            passkey: None,
            model_id: self.model,
            spawn: match self.spawn {
                SpawnWord::Auto => Spawn::Auto,
                SpawnWord::Never => Spawn::Never,
            },
        }
    }
}

/// What is on a command line can be seen by others, so it comes another way.
fn read_passkey() -> Result<Secret, Failure> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(|error| Failure::usage(format!("stdin: {error}"), "send text in UTF-8"))?;
    let passkey = line.trim_end_matches(['\n', '\r']);
    if passkey.is_empty() {
        return Err(Failure::usage("stdin has no passkey", "write it there on one line"));
    }
    Ok(Secret::from_caller(passkey))
}

fn mint_passkey() -> Result<Secret, Failure> {
    let random = App::mint_secret()?;
    // Not to be taken for a key of the API.
    Ok(Secret::from_caller(&random.reveal().replacen("shk_", "pass_", 1)))
}

async fn list(app: &App, project: &ProjectArgument) -> Result<(), Failure> {
    let found = project.find(app).await?;
    let all = all_pages(async |after| {
        app.list_team_agents(&found.tenant, &found.project, after, 100).await
    });
    let all = all.await?;
    let output = Output::stdout();
    if project.json.json {
        return output.json(&Page::<TeamAgentJson>::new((all, None)));
    }
    let row = |stored: &Stored<TeamAgent>| {
        let agent = &stored.value;
        vec![
            agent.id.to_string(),
            kind_word(agent.kind).to_owned(),
            rank_word(agent.rank).to_owned(),
            spawn_word(agent.spawn).to_owned(),
            short(agent.role.as_deref().unwrap_or(&agent.name), 60),
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    output.table(&["id", "kind", "rank", "spawn", "role"], &rows)
}

fn show(stored: Stored<TeamAgent>, json: JsonArgument) -> Result<(), Failure> {
    if json.json {
        return Output::stdout().json(&TeamAgentJson::from(stored));
    }
    let agent = &stored.value;
    sheet(&[
        ("agent", agent.id.to_string()),
        ("name", one_line(&agent.name)),
        ("kind", kind_word(agent.kind).to_owned()),
        ("rank", rank_word(agent.rank).to_owned()),
        ("role", or_none(agent.role.as_deref())),
        ("passkey", if agent.passkey.is_some() { "set" } else { "none" }.to_owned()),
        ("model", or_none(agent.model_id.as_ref().map(ModelId::as_str))),
        ("spawn", spawn_word(agent.spawn).to_owned()),
        ("created", stored.created_at.to_string()),
    ])
}

fn kind_word(kind: AgentKind) -> &'static str {
    match kind {
        AgentKind::Ai => "ai",
        AgentKind::Human => "human",
    }
}

fn rank_word(rank: Rank) -> &'static str {
    match rank {
        Rank::Manager => "manager",
        Rank::Worker => "worker",
    }
}

fn spawn_word(spawn: Spawn) -> &'static str {
    match spawn {
        Spawn::Auto => "auto",
        Spawn::Never => "never",
    }
}
