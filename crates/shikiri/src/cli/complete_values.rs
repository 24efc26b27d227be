//! Completions of ids and names in a shell, from the project's store. They are read only, and silent:
//! without a store, without agreement or when it takes too long, nothing is offered.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use clap::Arg;
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::Shells;
use shikiri_app::App;
use shikiri_model::ids::{ProjectId, TenantId};
use shikiri_model::lane::Lane;
use shikiri_model::record::{Document, RecordPosition, RecordQuery, StoredDocument};
use shikiri_model::team::{Delegation, Dialogue, TeamMessage, TeamTask};

use super::host::names_in_file;
use crate::config::{Config, Settings, Surroundings};
use crate::env_vars;
use crate::exit::Failure;
use crate::trust::ConfigUse;
use crate::wiring::{self, Access};

const BIN: &str = "shikiri";
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
    Key,
    Lane,
    Project,
    Task,
    Message,
    Delegation,
    Dialogue,
    TeamAgent,
    RunnableAgent,
    /// A server that `shikiri host` calls.
    HostServer,
}

/// Answers a shell that asks for completions, or for the script that makes it ask. False if none does.
pub(super) fn answer_shell(words: &[OsString]) -> Result<bool, clap::Error> {
    let folder = std::env::current_dir().ok();
    CompleteEnv::with_factory(super::command_line)
        .var(env_vars::COMPLETE.name)
        .bin(BIN)
        .try_complete(words, folder.as_deref())
}

/// The script that makes a shell ask this program.
pub(super) fn registration(shell: &str) -> std::io::Result<String> {
    let shells = Shells::builtins();
    let unknown = || std::io::Error::other(format!("{shell} cannot ask for completions"));
    let shell = shells.completer(shell).ok_or_else(unknown)?;
    let mut script = Vec::new();
    let program = own_program();
    shell.write_registration(env_vars::COMPLETE.name, BIN, BIN, &program, &mut script)?;
    String::from_utf8(script).map_err(std::io::Error::other)
}

/// This program as it was called; a relative path is made absolute, because a shell changes folders.
fn own_program() -> String {
    let called = std::env::args_os().next().unwrap_or_else(|| BIN.into());
    let path = Path::new(&called);
    let is_in_path = path.components().count() == 1;
    let absolute = std::path::absolute(path).ok().filter(|_| !is_in_path);
    absolute.as_deref().unwrap_or(path).to_string_lossy().into_owned()
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
        ("host", "server" | "words") => StoredName::HostServer,
        ("skills", "name") => StoredName::Skill,
        ("keys", "key") => StoredName::Key,
        ("lanes", "name") => StoredName::Lane,
        ("tasks", "task" | "parent") => StoredName::Task,
        ("messages", "id") => StoredName::Message,
        ("delegations", "delegation") => StoredName::Delegation,
        ("dialogues", "dialogue") => StoredName::Dialogue,
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
    let typed = TypedOptions::of_words(std::env::args_os().skip_while(|word| word != "--").skip(1));
    let found = stored_names(name, &typed).unwrap_or_default();
    let wanted = found.into_iter().filter(|name| name.starts_with(current));
    wanted.map(CompletionCandidate::new).collect()
}

/// The options on the unfinished line that say where to look. The shell passes the words as they
/// are, so they are read without the parser, which would miss what is not typed yet.
#[derive(Debug, Default, PartialEq, Eq)]
struct TypedOptions {
    store: Option<String>,
    tenant: Option<String>,
    project: Option<String>,
}

impl TypedOptions {
    fn of_words(words: impl IntoIterator<Item = OsString>) -> Self {
        let words: Vec<String> =
            words.into_iter().filter_map(|word| word.into_string().ok()).collect();
        let value = |long: &str, short: Option<char>| {
            let at = |index: usize| {
                let rest = option_value(&words[index], long, short)?;
                // Bash gives `--tenant=acme` as three words.
                let next = words.get(index + 1).map(String::as_str);
                let after =
                    if next == Some("=") { words.get(index + 2) } else { words.get(index + 1) };
                let value = if rest.is_empty() { after?.as_str() } else { rest };
                Some(value.to_owned()).filter(|value| !value.is_empty())
            };
            (0..words.len()).find_map(at)
        };
        Self {
            store: value("--store", None),
            tenant: value("--tenant", Some('t')),
            project: value("--project", Some('p')),
        }
    }

    fn tenant(&self) -> TenantId {
        let typed = self.tenant.as_deref().and_then(|tenant| tenant.parse().ok());
        typed.unwrap_or_else(TenantId::local)
    }
}

/// The value in a word that is this option; empty if it is in the next word.
fn option_value<'a>(word: &'a str, long: &str, short: Option<char>) -> Option<&'a str> {
    if let Some(rest) = word.strip_prefix(long) {
        return if rest.is_empty() { Some(rest) } else { rest.strip_prefix('=') };
    }
    let rest = word.strip_prefix('-')?.strip_prefix(short?)?;
    Some(rest.strip_prefix('=').unwrap_or(rest))
}

/// None if there is no store that can be read in time.
fn stored_names(name: StoredName, typed: &TypedOptions) -> Option<Vec<String>> {
    let surroundings = Surroundings { ask: |_| None, ..Surroundings::of_process() };
    let given = Settings { store: typed.store.clone(), ..Settings::default() };
    let config = Config::load_for(&[ConfigUse::Store], given, &surroundings).ok()?;
    let mut names = match name {
        StoredName::HostServer => names_in_file(&config),
        _ => Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let found = runtime.block_on(async {
        tokio::time::timeout(LIMIT, async {
            let app = wiring::open_app(&config, &wiring::offer(&config), Access::Read).await?;
            list(&app, name, typed).await
        })
        .await
    });
    runtime.shutdown_background();
    match found {
        Ok(Ok(found)) => names.extend(found),
        _ if names.is_empty() => return None,
        _ => {}
    }
    Some(names)
}

async fn list(app: &App, name: StoredName, typed: &TypedOptions) -> Result<Vec<String>, Failure> {
    let tenant = typed.tenant();
    let servers = async || app.executions.list_servers(&tenant, None, NEWEST).await;
    Ok(match name {
        StoredName::Run => {
            let runs = app.runtime.list_runs(&tenant, None, None, NEWEST).await?;
            names(runs, |run| run.id.to_string())
        }
        StoredName::Conversation => {
            let talks = app.executions.list_conversations(&tenant, None, None, NEWEST).await?;
            names(talks, |conversation| conversation.id.to_string())
        }
        StoredName::Model => {
            names(app.tenancy.list_models(None, NEWEST).await?, |model| model.id.to_string())
        }
        StoredName::Server => names(servers().await?, |server| server.id.to_string()),
        StoredName::HostServer => names(servers().await?, |server| server.name),
        StoredName::Skill => {
            let skills = app.executions.list_skills(&tenant, None, NEWEST).await?;
            names(skills, |skill| skill.name)
        }
        StoredName::Tenant => {
            names(app.tenancy.list_tenants(None, NEWEST).await?, |tenant| tenant.id.to_string())
        }
        StoredName::Key => {
            let (keys, _) = app.tenancy.list_keys(&tenant, None, NEWEST).await?;
            keys.into_iter().map(|key| key.stored.value.id.to_string()).collect()
        }
        StoredName::Lane => newest::<Lane>(app, &tenant, None, |lane| lane.name).await?,
        StoredName::Project => {
            let projects = app.teams.list_projects(&tenant, None, NEWEST).await?;
            names(projects, |project| project.id.to_string())
        }
        StoredName::RunnableAgent => {
            app.runtime.agent_names().into_iter().map(str::to_owned).collect()
        }
        _ => match project(app, &tenant, typed).await? {
            Some(project) => list_of_project(app, name, &tenant, &project).await?,
            None => Vec::new(),
        },
    })
}

/// The names of a page of records.
fn names<T>(
    page: (Vec<StoredDocument<T>>, Option<RecordPosition>),
    name: impl Fn(T) -> String,
) -> Vec<String> {
    page.0.into_iter().map(|stored| name(stored.value)).collect()
}

/// The project on the line, or else the tenant's only one.
async fn project(
    app: &App,
    tenant: &TenantId,
    typed: &TypedOptions,
) -> Result<Option<ProjectId>, Failure> {
    if let Some(typed) = &typed.project {
        return Ok(typed.parse().ok());
    }
    let (mut projects, _) = app.teams.list_projects(tenant, None, 2).await?;
    let only = if projects.len() == 1 { projects.pop() } else { None };
    Ok(only.map(|stored| stored.value.id))
}

async fn list_of_project(
    app: &App,
    name: StoredName,
    tenant: &TenantId,
    project: &ProjectId,
) -> Result<Vec<String>, Failure> {
    match name {
        StoredName::Task => {
            newest::<TeamTask>(app, tenant, Some(project), |task| task.id.to_string()).await
        }
        StoredName::Message => {
            newest::<TeamMessage>(app, tenant, Some(project), |message| message.id.to_string())
                .await
        }
        StoredName::Delegation => {
            newest::<Delegation>(app, tenant, Some(project), |one| one.id.to_string()).await
        }
        StoredName::Dialogue => {
            newest::<Dialogue>(app, tenant, Some(project), |dialogue| dialogue.id.to_string()).await
        }
        StoredName::TeamAgent => {
            let agents = app.teams.list_team_agents(tenant, project, None, NEWEST).await?;
            Ok(names(agents, |agent| agent.id.to_string()))
        }
        _ => Ok(Vec::new()),
    }
}

/// The names of a tenant's newest records, or of those in one of its projects.
async fn newest<T: Document>(
    app: &App,
    tenant: &TenantId,
    project: Option<&ProjectId>,
    name: impl Fn(T) -> String,
) -> Result<Vec<String>, Failure> {
    let parent = project.map(ToString::to_string);
    let query =
        RecordQuery { parent, newest_first: true, limit: NEWEST, ..RecordQuery::of::<T>(tenant) };
    Ok(names(app.runtime.list_records::<T>(query).await?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_on_an_unfinished_line() {
        let typed = |line: &str| TypedOptions::of_words(line.split(' ').map(OsString::from));
        let of = |store: Option<&str>, tenant: Option<&str>, project: Option<&str>| TypedOptions {
            store: store.map(str::to_owned),
            tenant: tenant.map(str::to_owned),
            project: project.map(str::to_owned),
        };
        for (line, expected) in [
            ("shikiri runs show ", of(None, None, None)),
            ("shikiri runs show --tenant acme ", of(None, Some("acme"), None)),
            ("shikiri runs show --tenant=acme ", of(None, Some("acme"), None)),
            ("shikiri runs show --tenant = acme ", of(None, Some("acme"), None)),
            ("shikiri runs show -t acme run_", of(None, Some("acme"), None)),
            ("shikiri runs show -tacme run_", of(None, Some("acme"), None)),
            ("shikiri tasks show -p site -t acme t", of(None, Some("acme"), Some("site"))),
            ("shikiri --store sqlite:a.db runs show ", of(Some("sqlite:a.db"), None, None)),
            ("shikiri runs show --stored x --tenants y --tenant", of(None, None, None)),
        ] {
            assert_eq!(typed(line), expected, "{line}");
        }
    }
}
