//! `shikiri run --my-login`: the login to use, and the model.

use std::path::PathBuf;

use shikiri_engines::claude_login::ClaudeLogin;
use shikiri_model::ids::{ConversationId, TenantId};
use shikiri_model::models::EngineKind;

use super::run::{Arguments, active, first_on};
use crate::env_vars;
use crate::exit::{Exit, Failure};
use crate::terminal::{Here, ModelChoice};

/// Where Claude Code keeps this user's settings and login. `flag` names the flag that needs it.
pub(super) fn claude_config_dir(flag: &str) -> Result<PathBuf, Failure> {
    let set = |variable: env_vars::EnvVar| {
        std::env::var_os(variable.name).filter(|value| !value.is_empty()).map(PathBuf::from)
    };
    let home = || set(env_vars::HOME).map(|home| home.join(".claude"));
    set(env_vars::CLAUDE_CONFIG_DIR).or_else(home).ok_or_else(|| {
        let what = format!("{flag}: your home folder is not known");
        Failure::usage(what, "set HOME or CLAUDE_CONFIG_DIR")
    })
}

/// The requested or default model, if it runs on Claude Code; otherwise the first that does.
pub(super) async fn model(
    here: &Here,
    arguments: &Arguments,
    conversation: Option<&ConversationId>,
) -> Result<String, Failure> {
    let models = here.models().await?;
    let is_claude_code = |id: &str| {
        let runs_on_it = |model: &ModelChoice| model.engine == EngineKind::ClaudeCode.as_str();
        models.iter().any(|model| model.id == id && model.is_active && runs_on_it(model))
    };
    let other = |what: String| Err(Failure::usage(what, "your login is for Claude Code alone"));
    match (arguments.engine, &arguments.model) {
        (None | Some(EngineKind::ClaudeCode), None) => {}
        (Some(_), _) => return other("--my-login: --engine names another engine".to_owned()),
        (None, Some(model)) => match active(model, &models)? {
            id if is_claude_code(&id) => return Ok(id),
            id => return other(format!("--my-login: the model {id} runs on another engine")),
        },
    }
    match here.usual_model(conversation).await? {
        Some(id) if is_claude_code(&id) => Ok(id),
        _ => first_on(EngineKind::ClaudeCode, &models),
    }
}

/// The login that Claude Code keeps for this user.
pub(super) fn find(tenant: &TenantId) -> Result<ClaudeLogin, Failure> {
    if *tenant != TenantId::local() {
        let what = format!("--my-login: the tenant {tenant} is not yours alone");
        return Err(Failure::new(Exit::Refused, what, "it is for the tenant local"));
    }
    let token = std::env::var(env_vars::CLAUDE_CODE_OAUTH_TOKEN.name).ok();
    let found = ClaudeLogin::find(token.as_deref(), &claude_config_dir("--my-login")?);
    found.map_err(|error| Failure::told(Exit::Refused, error))
}
