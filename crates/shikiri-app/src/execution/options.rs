//! What an engine is ordered to do: prompt, model, servers, skills and environment.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use shikiri_model::ids::ConversationId;
use shikiri_model::models::Model;

use super::engine::{Memory, Order};
use super::request::Means;
use super::toolbox::NoTools;
use crate::app::App;
use crate::error::AppError;
use crate::workspace;

/// Variables of the server's environment that an engine may see, besides those that start with a
/// prefix below. `HOME` is the engine's own.
const INHERITED: [&str; 14] = [
    "PATH",
    "LANG",
    "TZ",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_SUBAGENT_MODEL",
    "CLAUDE_CODE_MAX_RETRIES",
];
const INHERITED_PREFIXES: [&str; 2] = ["ANTHROPIC_", "AWS_"];

/// Of an environment, what engines may see.
pub fn inherited(
    environment: impl IntoIterator<Item = (String, String)>,
) -> BTreeMap<String, String> {
    let may_see = |name: &str| {
        INHERITED.contains(&name) || INHERITED_PREFIXES.iter().any(|start| name.starts_with(start))
    };
    environment.into_iter().filter(|(name, _)| may_see(name)).collect()
}

/// Families of models whose name an environment variable may give.
const FAMILIES: [(&str, &str); 3] = [
    ("haiku", "ANTHROPIC_DEFAULT_HAIKU_MODEL"),
    ("sonnet", "ANTHROPIC_DEFAULT_SONNET_MODEL"),
    ("opus", "ANTHROPIC_DEFAULT_OPUS_MODEL"),
];

/// What each alias stands for: by the models' records, then by the environment.
pub(super) fn aliases(means: &Means, env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (alias, variable) in FAMILIES {
        if let Some(name) = env.get(variable) {
            found.insert(alias.to_owned(), name.clone());
        }
    }
    // A model of the same engine says it best.
    let (others, own): (Vec<&Model>, Vec<&Model>) =
        means.models.iter().partition(|model| model.engine != means.model.engine);
    for model in others.into_iter().chain(own) {
        for alias in &model.aliases {
            found.insert(alias.clone(), model.model_name.clone());
        }
    }
    found
}

pub(super) fn environment(
    inherited: &BTreeMap<String, String>,
    model: &Model,
) -> BTreeMap<String, String> {
    let mut env = inherited.clone();
    env.insert("ANTHROPIC_MODEL".to_owned(), model.model_name.clone());
    if let Some(region) = &model.region {
        // Only Bedrock has regions.
        env.insert("CLAUDE_CODE_USE_BEDROCK".to_owned(), "1".to_owned());
        env.insert("AWS_REGION".to_owned(), region.clone());
    }
    env.extend(model.env.clone());
    env
}

impl App {
    /// What a model's engine may see of this process's environment.
    pub(crate) fn engine_environment(&self, model: &Model) -> BTreeMap<String, String> {
        environment(&self.options.engine_env.0, model)
    }

    pub(super) async fn order(
        &self,
        means: &Means,
        prompt: &str,
        resume: Option<String>,
    ) -> Result<Order, AppError> {
        let mut env = environment(&self.options.engine_env.0, &means.model);
        if means.servers.iter().any(|server| server.is_own) {
            keep_at_home(&mut env);
        }
        let aliases = aliases(means, &env);
        let resolve = |name: &String| aliases.get(name).unwrap_or(name).clone();
        let subagent_model = means.model.subagent_model.as_ref();
        let subagent_model =
            subagent_model.or_else(|| env.get("CLAUDE_CODE_SUBAGENT_MODEL")).map(resolve);
        let home = self.engine_home(&means.conversation.value.id).unwrap_or_default();
        let folder = match means.workspace_enabled() {
            true => self.workspace_folder(&means.conversation.value.id).await?,
            false => home.join("work"),
        };
        if self.options.data.is_some() {
            make_private(&home)?;
            make_private(&folder)?;
        }
        Ok(Order {
            prompt: prompt.to_owned(),
            system_prompt: self.system_prompt(means).await?,
            model: means.model.clone(),
            subagent_model,
            aliases,
            resume,
            servers: means.servers.clone(),
            skills: means.skills.clone(),
            tools: Arc::new(NoTools),
            folder,
            home,
            env,
            secrets: means.secrets.clone(),
            limits: means.limits.clone(),
            prices: means.prices(),
            memory: Memory::default(),
        })
    }

    /// It belongs to the conversation: what the engine needs to resume lies there.
    pub(crate) fn engine_home(&self, conversation: &ConversationId) -> Option<PathBuf> {
        Some(self.options.data.as_ref()?.join("engines").join(conversation.as_str()))
    }

    async fn system_prompt(&self, means: &Means) -> Result<String, AppError> {
        let mut parts = Vec::new();
        if !means.tenant.system_prompt.trim().is_empty() {
            parts.push(means.tenant.system_prompt.clone());
        }
        if means.workspace_enabled() {
            let conversation = &means.conversation.value.id;
            let folder = self.workspace_folder(conversation).await?;
            let files = self.list_files_of(conversation).await?;
            parts.push(workspace::block(&folder, &files));
        }
        if !means.preferred_skills.is_empty() {
            let names = means.preferred_skills.join(", ");
            parts.push(format!(
                "The user prefers these skills: {names}. Use them where they fit the request."
            ));
        }
        Ok(parts.join("\n\n"))
    }
}

/// This machine's own door is not asked for at a proxy.
fn keep_at_home(env: &mut BTreeMap<String, String>) {
    const HOME: &str = "127.0.0.1,localhost,::1";
    for name in ["NO_PROXY", "no_proxy"] {
        let known = env.get(name).filter(|known| !known.is_empty());
        let all = known.map_or_else(|| HOME.to_owned(), |known| format!("{known},{HOME}"));
        env.insert(name.to_owned(), all);
    }
}

fn make_private(folder: &std::path::Path) -> Result<(), AppError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| AppError::Broken(format!("cannot make {}: {error}", folder.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_sees_only_what_is_on_the_list() {
        let given = ["PATH", "ANTHROPIC_API_KEY", "AWS_PROFILE", "HOME", "SECRET", "SHIKIRI_STORE"];
        let seen = inherited(given.map(|name| (name.to_owned(), "値".to_owned())));
        let names: Vec<_> = seen.keys().map(String::as_str).collect();
        assert_eq!(names, ["ANTHROPIC_API_KEY", "AWS_PROFILE", "PATH"]);
    }

    #[test]
    fn the_own_door_is_not_behind_a_proxy() {
        let mut env = BTreeMap::from([("no_proxy".to_owned(), "inside".to_owned())]);
        keep_at_home(&mut env);
        assert_eq!(env["NO_PROXY"], "127.0.0.1,localhost,::1");
        assert_eq!(env["no_proxy"], "inside,127.0.0.1,localhost,::1");
    }

    #[test]
    fn a_region_means_bedrock_and_the_record_has_the_last_word() {
        let mut model = Model::offline();
        let server = BTreeMap::from([("AWS_REGION".to_owned(), "here".to_owned())]);
        let env = environment(&server, &model);
        assert_eq!(
            (env["AWS_REGION"].as_str(), env.get("CLAUDE_CODE_USE_BEDROCK")),
            ("here", None)
        );
        model.region = Some("us-west-2".to_owned());
        model.env.insert("ANTHROPIC_MODEL".to_owned(), "mine".to_owned());
        let env = environment(&server, &model);
        assert_eq!(env["AWS_REGION"], "us-west-2");
        assert_eq!(env["CLAUDE_CODE_USE_BEDROCK"], "1");
        assert_eq!(env["ANTHROPIC_MODEL"], "mine");
    }
}
