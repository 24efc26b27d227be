//! Completions of ids and names in a shell, from the project's store. They are read only, and silent:
//! without a store, without agreement or when it takes too long, nothing is offered.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::Arg;
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use shikiri_app::App;
use shikiri_model::ids::TenantId;

use crate::config::{Config, Settings, Surroundings};
use crate::env_vars;
use crate::exit::Failure;
use crate::trust::ConfigUse;
use crate::wiring::{self, Access};

/// A person waits for it at every press of the key.
const LIMIT: Duration = Duration::from_millis(200);
/// The newest, of what may be many.
const NEWEST: u32 = 50;

/// What an argument names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoredName {
    Run,
    Conversation,
    Model,
    Server,
    Skill,
    Tenant,
    Project,
    TeamAgent,
    RunnableAgent,
}

/// Answers a shell that asks for completions, or for the script that makes it ask. False if none does.
pub(super) fn answer_shell(words: &[OsString]) -> Result<bool, clap::Error> {
    let folder = std::env::current_dir().ok();
    CompleteEnv::with_factory(super::command_line)
        .var(env_vars::COMPLETE.name)
        .bin("shikiri")
        .try_complete(words, folder.as_deref())
}

/// The argument with its completions, if it names something stored.
pub(super) fn with_completions(path: &str, arg: Arg) -> Arg {
    match stored_name(path, arg.get_id().as_str()) {
        Some(name) => {
            arg.add(ArgValueCompleter::new(move |current: &OsStr| complete(name, current)))
        }
        None => arg,
    }
}

fn stored_name(path: &str, id: &str) -> Option<StoredName> {
    let (group, _) = path.split_once(' ').unwrap_or((path, ""));
    Some(match (group, id) {
        ("hooks", "project") => return None,
        (_, "run" | "execution") => StoredName::Run,
        (_, "conversation") => StoredName::Conversation,
        (_, "tenant") | ("tenants", "id") => StoredName::Tenant,
        (_, "model") | ("models", "id") => StoredName::Model,
        ("servers", "server") => StoredName::Server,
        ("skills", "name") => StoredName::Skill,
        (_, "project") => StoredName::Project,
        ("runs", "agent") => StoredName::RunnableAgent,
        ("agents" | "messages" | "dialogues", "agent") => StoredName::TeamAgent,
        (_, "assignee" | "from" | "to") if matches!(group, "tasks" | "messages") => {
            StoredName::TeamAgent
        }
        _ => return None,
    })
}

fn complete(name: StoredName, current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let found = stored_names(name).unwrap_or_default();
    let wanted = found.into_iter().filter(|name| name.starts_with(current));
    wanted.map(CompletionCandidate::new).collect()
}

/// None if there is no store that can be read in time.
fn stored_names(name: StoredName) -> Option<Vec<String>> {
    let surroundings = Surroundings { ask: |_| None, ..Surroundings::of_process() };
    let config = Config::load_for(&[ConfigUse::Store], Settings::default(), &surroundings).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let found = runtime.block_on(async {
        tokio::time::timeout(LIMIT, async {
            let app = wiring::open_app(&config, &wiring::offer(&config), Access::Read).await?;
            list(&app, name).await
        })
        .await
    });
    runtime.shutdown_background();
    found.ok()?.ok()
}

async fn list(app: &App, name: StoredName) -> Result<Vec<String>, Failure> {
    let tenant = TenantId::local();
    Ok(match name {
        StoredName::Run => {
            let (runs, _) = app.runtime.list_runs(&tenant, None, None, NEWEST).await?;
            runs.into_iter().map(|stored| stored.value.id.to_string()).collect()
        }
        StoredName::Conversation => {
            let listed = app.executions.list_conversations(&tenant, None, None, NEWEST).await?;
            listed.0.into_iter().map(|stored| stored.value.id.to_string()).collect()
        }
        StoredName::Model => {
            let (models, _) = app.tenancy.list_models(None, NEWEST).await?;
            models.into_iter().map(|stored| stored.value.id.to_string()).collect()
        }
        StoredName::Server => {
            let (servers, _) = app.executions.list_servers(&tenant, None, NEWEST).await?;
            servers.into_iter().map(|stored| stored.value.id.to_string()).collect()
        }
        StoredName::Skill => {
            let (skills, _) = app.executions.list_skills(&tenant, None, NEWEST).await?;
            skills.into_iter().map(|stored| stored.value.name).collect()
        }
        StoredName::Tenant => {
            let (tenants, _) = app.tenancy.list_tenants(None, NEWEST).await?;
            tenants.into_iter().map(|stored| stored.value.id.to_string()).collect()
        }
        StoredName::Project => {
            let (projects, _) = app.teams.list_projects(&tenant, None, NEWEST).await?;
            projects.into_iter().map(|stored| stored.value.id.to_string()).collect()
        }
        StoredName::TeamAgent => {
            let (projects, _) = app.teams.list_projects(&tenant, None, 1).await?;
            let Some(project) = projects.first() else { return Ok(Vec::new()) };
            let project = &project.value.id;
            let (agents, _) = app.teams.list_team_agents(&tenant, project, None, NEWEST).await?;
            agents.into_iter().map(|stored| stored.value.id.to_string()).collect()
        }
        StoredName::RunnableAgent => {
            app.runtime.agent_names().into_iter().map(str::to_owned).collect()
        }
    })
}
