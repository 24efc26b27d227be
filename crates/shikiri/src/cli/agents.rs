//! `shikiri agents add|list|show|set|remove`.

use std::io::BufRead as _;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;
use shikiri_app::App;
use shikiri_model::ids::{AgentId, ModelId};
use shikiri_model::key::SecretToken;
use shikiri_model::record::StoredDocument;
use shikiri_model::team::{AgentKind, AgentRank, SpawnPolicy, TeamAgent};
use shikiri_runtime::AppError;
use shikiri_teams::{NewTeamAgent, TeamAgentPatch};
use shikiri_tenancy::Tenancy;
use shikiri_web::views::{TeamAgentJson, Word};

use super::parts::{all_pages, emptied, none_yet, or_none, print_page, print_record, word};
use super::team::ProjectArgument;
use super::{CommonArguments, JsonArgument};
use crate::exit::Failure;
use crate::output::{Output, note};
use crate::table::TableColumn;
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
        /// Its id
        agent: AgentId,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Change an agent, in all its projects; what is not named stays
    Set {
        /// Its id
        agent: AgentId,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        project: ProjectArgument,
    },
    /// Remove an agent from a project; its sessions and dialogues end, its tasks can still be read
    Remove {
        /// Its id
        agent: AgentId,
        #[command(flatten)]
        project: ProjectArgument,
    },
}

#[derive(Args)]
pub(super) struct Change {
    /// What people call it
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Its place in the project, which its prompt names
    #[arg(long, value_parser = word::<AgentRank>())]
    rank: Option<AgentRank>,
    /// What the agent is told of its part; empty for nothing
    #[arg(long, value_name = "TEXT")]
    role: Option<String>,
    /// Make up another passkey and print it this once; open sessions go on
    #[arg(long)]
    new_passkey: bool,
    /// Take another passkey from the first line of stdin; open sessions go on
    #[arg(long, conflicts_with = "new_passkey")]
    passkey_stdin: bool,
    /// What it is started with; empty for the tenant's
    #[arg(long, value_name = "ID")]
    model: Option<String>,
    /// Whether the server starts it when there is work for it
    #[arg(long, value_parser = word::<SpawnPolicy>())]
    spawn: Option<SpawnPolicy>,
}

#[derive(Args)]
pub(super) struct New {
    /// 1 to 100 letters, digits, `_` or `-`
    agent: AgentId,
    /// What people call it; its id, if left out
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Whether it is a program or a person
    #[arg(long, default_value = "ai", value_parser = word::<AgentKind>())]
    kind: AgentKind,
    /// Its place in the project, which its prompt names
    #[arg(long, default_value = "worker", value_parser = word::<AgentRank>())]
    rank: AgentRank,
    /// Its part in the project, for its prompt
    #[arg(long, value_name = "TEXT")]
    role: Option<String>,
    /// Take the passkey from the first line of stdin instead of making one up
    #[arg(long)]
    passkey_stdin: bool,
    /// What it is started with, in place of the tenant's
    #[arg(long, value_name = "ID")]
    model: Option<ModelId>,
    /// Whether the server starts it when there is work for it
    #[arg(long, default_value = "never", value_parser = word::<SpawnPolicy>())]
    spawn: SpawnPolicy,
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::Add { .. } | Self::Set { .. } | Self::Remove { .. } => Access::Write,
            Self::List { .. } | Self::Show { .. } => Access::Read,
        }
    }
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    match command {
        Command::Add { new, project } => add(app, new, &project).await,
        Command::List { project } => list(app, &project).await,
        Command::Show { agent, common } => {
            show(app.teams.team_agent(&common.tenant.id, &agent).await?, common.json)
        }
        Command::Set { agent, change, project } => set(app, &agent, change, &project).await,
        Command::Remove { agent, project } => {
            let found = project.find(app).await?;
            app.teams.remove_agent(&found.tenant, &found.project, &agent).await?;
            if project.json.json {
                let removed = json!({ "agent_id": agent, "project_id": found.project });
                return Output::stdout().json(&removed);
            }
            let gone = format!("{agent} no longer works in project {}", found.project);
            Output::stdout().line(&gone)
        }
    }
}

/// A created agent with its passkey, which is shown only once.
#[derive(Serialize)]
struct Made {
    #[serde(flatten)]
    agent: TeamAgentJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    passkey: Option<String>,
}

async fn add(app: &App, new: New, project: &ProjectArgument) -> Result<(), Failure> {
    let found = project.find(app).await?;
    let is_known = match app.teams.team_agent(&found.tenant, &new.agent).await {
        Ok(_) => true,
        Err(AppError::NotFound { .. }) => false,
        Err(other) => return Err(other.into()),
    };
    let given = if new.passkey_stdin { Some(read_passkey()?) } else { None };
    // An agent that exists in another project has its passkey already.
    let made_up = if given.is_none() && !is_known { Some(mint_passkey()?) } else { None };
    let id = new.agent.clone();
    let agent = NewTeamAgent { passkey: given.or_else(|| made_up.clone()), ..new.into_agent() };
    let agent = app.teams.add_agent(&found.tenant, &found.project, agent).await?;
    let output = Output::stdout();
    if project.json.json {
        let passkey = made_up.as_ref().map(|passkey| passkey.reveal().to_owned());
        return output.json(&Made { agent: agent.into(), passkey });
    }
    let Some(passkey) = made_up else {
        return output.line(&format!("{id} works in project {}", found.project));
    };
    // Alone on stdout, so that a script can read it.
    output.line(passkey.reveal())?;
    note(&format!("the passkey of {id}, which works in {}; it is shown this once", found.project));
    Ok(())
}

async fn set(
    app: &App,
    agent: &AgentId,
    change: Change,
    project: &ProjectArgument,
) -> Result<(), Failure> {
    let found = project.find(app).await?;
    let made_up = if change.new_passkey { Some(mint_passkey()?) } else { None };
    let given = if change.passkey_stdin { Some(read_passkey()?) } else { None };
    let model = match emptied(change.model) {
        Some(Some(id)) => Some(Some(id.parse::<ModelId>().map_err(|error| {
            Failure::usage(error, "`shikiri models list` shows what there is")
        })?)),
        Some(None) => Some(None),
        None => None,
    };
    let patch = TeamAgentPatch {
        name: change.name,
        rank: change.rank,
        role: emptied(change.role),
        passkey: given.or_else(|| made_up.clone()).map(Some),
        model_id: model,
        spawn: change.spawn,
    };
    let changed = app.teams.change_agent(&found.tenant, &found.project, agent, patch).await?;
    let Some(passkey) = made_up else { return show(changed, project.json) };
    if project.json.json {
        let passkey = Some(passkey.reveal().to_owned());
        return Output::stdout().json(&Made { agent: changed.into(), passkey });
    }
    // Alone on stdout, so that a script can read it.
    Output::stdout().line(passkey.reveal())?;
    note(&format!("the new passkey of {agent}; it is shown this once"));
    Ok(())
}

impl New {
    fn into_agent(self) -> NewTeamAgent {
        NewTeamAgent {
            id: self.agent,
            name: self.name,
            kind: self.kind,
            rank: self.rank,
            role: self.role,
            passkey: None,
            model_id: self.model,
            spawn: self.spawn,
        }
    }
}

/// Other users can see a command line, so the passkey is read from elsewhere.
fn read_passkey() -> Result<SecretToken, Failure> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(|error| Failure::usage(format!("stdin: {error}"), "send text in UTF-8"))?;
    let passkey = line.trim_end_matches(['\n', '\r']);
    if passkey.is_empty() {
        return Err(Failure::usage("stdin has no passkey", "write it there on one line"));
    }
    Ok(SecretToken::from_caller(passkey))
}

fn mint_passkey() -> Result<SecretToken, Failure> {
    let random = Tenancy::mint_secret()?;
    // The prefix must differ from an API key's.
    Ok(SecretToken::from_caller(&random.reveal().replacen("shk_", "pass_", 1)))
}

async fn list(app: &App, project: &ProjectArgument) -> Result<(), Failure> {
    let found = project.find(app).await?;
    let all = all_pages(async |after| {
        app.teams.list_team_agents(&found.tenant, &found.project, after, 100).await
    });
    let all = all.await?;
    let row = |stored: &StoredDocument<TeamAgent>| {
        let agent = &stored.value;
        vec![
            agent.id.to_string(),
            agent.kind.word(),
            agent.rank.word(),
            agent.spawn.word(),
            short(agent.role.as_deref().unwrap_or(&agent.name), 60),
        ]
    };
    let columns = [
        TableColumn::id("id"),
        TableColumn::text("kind"),
        TableColumn::text("rank"),
        TableColumn::text("spawn"),
        TableColumn::text("role"),
    ];
    print_page::<TeamAgentJson, _>(
        (all, None),
        project.json,
        &columns,
        &none_yet("agents", false, "agents add ID"),
        row,
    )
}

fn show(stored: StoredDocument<TeamAgent>, json: JsonArgument) -> Result<(), Failure> {
    print_record::<TeamAgentJson, _>(stored, json, |stored| {
        let agent = &stored.value;
        vec![
            ("agent", agent.id.to_string()),
            ("name", one_line(&agent.name)),
            ("kind", agent.kind.word()),
            ("rank", agent.rank.word()),
            ("role", or_none(agent.role.as_deref())),
            ("passkey", if agent.passkey.is_some() { "set" } else { "none" }.to_owned()),
            ("model", or_none(agent.model_id.as_ref().map(ModelId::as_str))),
            ("spawn", agent.spawn.word()),
            ("created", Output::stdout().time(stored.created_at)),
        ]
    })
}
