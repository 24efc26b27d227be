//! What a person is told of a record that is not there: where it was looked for, a name that is
//! close, and the command that lists what there is.

use clap::ArgMatches;
use shikiri_app::App;
use shikiri_model::ids::{ProjectId, TenantId};

use super::Global;
use super::parts::all_pages;
use crate::config::{Config, Surroundings};
use crate::exit::{Exit, Failure, MissingRecord, list_command};
use crate::near_name::nearest;
use crate::trust::ConfigUse;
use crate::wiring::{self, Access};

/// The same failure with more about a missing record. Any other failure stays as it is.
pub(super) async fn explain(global: &Global, scope: &LookupScope, failure: Failure) -> Failure {
    let missing = match failure {
        Failure::Told { missing: Some(missing), .. } => missing,
        other => return other,
    };
    if let Some(server) = &scope.server {
        return failure_of(&missing, &format!(" at {server}"), None, scope);
    }
    let settings = global.settings();
    let config = Config::load_for(&[ConfigUse::Store], settings, &Surroundings::of_process());
    let Ok(config) = config else { return failure_of(&missing, "", None, scope) };
    let place = format!(" in {}", config.store);
    let near = match wiring::open_app(&config, &wiring::offer(&config), Access::Read).await {
        Ok(app) => near_id(&app, &missing, scope).await.ok().flatten(),
        Err(_) => None,
    };
    failure_of(&missing, &place, near, scope)
}

/// Where the command line says to look.
pub(super) struct LookupScope {
    /// Not in the store of this project.
    server: Option<String>,
    tenant: Option<TenantId>,
    project: Option<ProjectId>,
}

impl LookupScope {
    pub(super) fn of(matches: &ArgMatches) -> Self {
        let mut at = matches;
        while let Some((_, sub)) = at.subcommand() {
            at = sub;
        }
        let tenant = at.try_get_one::<TenantId>("tenant").ok().flatten().cloned();
        let project = at.try_get_one::<ProjectId>("project").ok().flatten().cloned();
        // `run --server URL`; elsewhere an argument of this name is an id.
        let server = at.try_get_one::<String>("server").ok().flatten().cloned();
        Self { server, tenant, project }
    }

    /// Its flags, as far as they are not the defaults.
    fn flags(&self) -> String {
        let project = self.project.as_ref().map(|project| format!(" --project {project}"));
        self.tenant_flag() + &project.unwrap_or_default()
    }

    fn tenant_flag(&self) -> String {
        let tenant = self.tenant.as_ref().filter(|tenant| **tenant != TenantId::local());
        tenant.map(|tenant| format!(" --tenant {tenant}")).unwrap_or_default()
    }
}

fn failure_of(
    missing: &MissingRecord,
    place: &str,
    near: Option<String>,
    scope: &LookupScope,
) -> Failure {
    let MissingRecord { kind, id } = missing;
    let noun = kind.replace('_', " ");
    let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    let what = format!("there is no {noun} {id}{place}{near}");
    let flags = match *kind {
        "tenant" | "model" => String::new(),
        "project" => scope.tenant_flag(),
        _ => scope.flags(),
    };
    match list_command(kind) {
        Some(command) => {
            Failure::new(Exit::NotFound, what, &format!("`{command}{flags}` shows what there is"))
        }
        None => Failure::told(Exit::NotFound, what),
    }
}

/// The id of a record whose id or name is close. Only where there are few.
async fn near_id(
    app: &App,
    missing: &MissingRecord,
    scope: &LookupScope,
) -> Result<Option<String>, Failure> {
    let tenant = scope.tenant.clone().unwrap_or_else(TenantId::local);
    let known: Vec<(String, String)> = match missing.kind {
        "tenant" => {
            let page = async |after| app.tenancy.list_tenants(after, PAGE).await;
            let found = all_pages(page).await?.into_iter();
            found.map(|stored| (stored.value.id.to_string(), stored.value.name)).collect()
        }
        "model" => {
            let page = async |after| app.tenancy.list_models(after, PAGE).await;
            let found = all_pages(page).await?.into_iter();
            found.map(|stored| (stored.value.id.to_string(), stored.value.model_name)).collect()
        }
        "mcp_server" => {
            let page = async |after| app.executions.list_servers(&tenant, after, PAGE).await;
            let found = all_pages(page).await?.into_iter();
            found.map(|stored| (stored.value.id.to_string(), stored.value.name)).collect()
        }
        "skill" => {
            let page = async |after| app.executions.list_skills(&tenant, after, PAGE).await;
            let found = all_pages(page).await?.into_iter();
            found.map(|stored| (stored.value.name.clone(), stored.value.name)).collect()
        }
        "project" => {
            let page = async |after| app.teams.list_projects(&tenant, after, PAGE).await;
            let found = all_pages(page).await?.into_iter();
            found.map(|stored| (stored.value.id.to_string(), stored.value.name)).collect()
        }
        "agent" => agents(app, &tenant, scope.project.as_ref()).await?,
        _ => return Ok(None),
    };
    let words = known.iter().flat_map(|(id, name)| [id.as_str(), name.as_str()]);
    let Some(word) = nearest(&missing.id, words) else { return Ok(None) };
    Ok(known.iter().find(|(id, name)| id == word || name == word).map(|(id, _)| id.clone()))
}

const PAGE: u32 = 200;

/// The agents of the project, or of the only one.
async fn agents(
    app: &App,
    tenant: &TenantId,
    project: Option<&ProjectId>,
) -> Result<Vec<(String, String)>, Failure> {
    let project = match project {
        Some(project) => project.clone(),
        None => match app.teams.list_projects(tenant, None, 2).await?.0.as_slice() {
            [only] => only.value.id.clone(),
            _ => return Ok(Vec::new()),
        },
    };
    let page = async |after| app.teams.list_team_agents(tenant, &project, after, PAGE).await;
    let found = all_pages(page).await?.into_iter();
    Ok(found.map(|stored| (stored.value.id.to_string(), stored.value.name)).collect())
}
