//! The request for an execution, and the checks before anything starts.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::{Value, json};
use shikiri_model::confinement::{Confinement, ConfinementLevel};
use shikiri_model::conversation::{Conversation, ConversationStatus, conversation_lock};
use shikiri_model::execution::{ExecutionUser, PriceList};
use shikiri_model::ids::{ConversationId, ModelId, TenantId};
use shikiri_model::models::{ActiveStatus, EngineKind, Model};
use shikiri_model::native::ExecutionLimits;
use shikiri_model::record::{RecordQuery, StoredDocument};
use shikiri_model::run::Run;
use shikiri_model::server::{McpServer, TemplateError, fill_template};
use shikiri_model::skill::Skill;
use shikiri_model::tenant::{Tenant, TenantStatus};
use shikiri_runtime::AppError;
use shikiri_runtime::sealing::refuse_sealed;

use super::engine::{Engine, ResolvedServer};
use crate::Executions;

/// A request for one turn of a conversation.
#[derive(Clone)]
pub struct NewExecution {
    pub conversation: ConversationId,
    pub user_input: String,
    pub executor: ExecutionUser,
    /// Secrets for the headers of MCP servers. They live in memory only.
    pub tokens: BTreeMap<String, String>,
    pub preferred_skills: Vec<String>,
    pub model_id: Option<ModelId>,
    pub idempotency_key: Option<String>,
    /// Claude Code enforces turns and cost; native engines enforce all.
    pub limits: ExecutionLimits,
}

const MAX_INPUT: usize = 1024 * 1024;
const MAX_NAME: usize = 200;
const MAX_TOKENS: usize = 100;
const MAX_TOKEN: usize = 16 * 1024;
const MAX_SKILLS: usize = 100;

/// What a request led to.
#[derive(Clone, Debug)]
pub struct ExecutionStart {
    pub run: StoredDocument<Run>,
    /// Whether an earlier request with the same idempotency key asked for it.
    pub is_repeated: bool,
}

impl ExecutionStart {
    pub(super) fn new(run: StoredDocument<Run>) -> Self {
        Self { run, is_repeated: false }
    }

    pub(super) fn repeated(run: StoredDocument<Run>) -> Self {
        Self { run, is_repeated: true }
    }
}

impl NewExecution {
    /// Whether a known execution with this request's idempotency key is what the request asks for.
    /// Tokens are not compared: they are not stored, and may have been renewed.
    pub(super) fn is_repeated_by(&self, known: &Run) -> bool {
        let Some(execution) = &known.execution else { return false };
        known.input == self.input()
            && execution.executor.user_id == self.executor.user_id
            && self.model_id.as_ref().is_none_or(|model| *model == execution.model_id)
    }

    pub(super) fn check(&self) -> Result<(), AppError> {
        if self.user_input.trim().is_empty() {
            return Err(AppError::invalid("user_input", "must not be empty"));
        }
        if self.user_input.len() > MAX_INPUT {
            return Err(AppError::invalid("user_input", "must have at most 1 MiB"));
        }
        check_executor(&self.executor)?;
        if self.preferred_skills.len() > MAX_SKILLS {
            return Err(AppError::invalid("preferred_skills", "at most 100 can be preferred"));
        }
        if self.tokens.len() > MAX_TOKENS {
            return Err(AppError::invalid("tokens", "at most 100 can be given"));
        }
        for (name, value) in &self.tokens {
            if name.chars().count() > MAX_NAME || value.len() > MAX_TOKEN {
                return Err(AppError::invalid("tokens", "a token has at most 16 KiB"));
            }
            // A line break would let a token add headers of its own.
            if value.chars().any(char::is_control) {
                let reason = "a value holds a line break or another control character";
                return Err(AppError::invalid("tokens", reason));
            }
        }
        self.limits.check().map_err(|error| AppError::invalid(error.field, error.reason))?;
        let key = self.idempotency_key.as_deref();
        if !key.is_none_or(shikiri_runtime::run::is_good_key) {
            let reason = "must have 1 to 200 characters, none of them a control character";
            return Err(AppError::invalid("Idempotency-Key", reason));
        }
        Ok(())
    }

    /// The request as it is stored: without the tokens.
    pub(super) fn input(&self) -> Value {
        let mut input =
            json!({ "user_input": self.user_input, "preferred_skills": self.preferred_skills });
        if !self.limits.is_none() {
            input["limits"] = json!(self.limits);
        }
        input
    }

    /// The idempotency key, unique in the tenant and scoped to the conversation.
    pub(super) fn unique_key(&self) -> Option<String> {
        let key = self.idempotency_key.as_ref()?;
        Some(format!("execution:{}:{key}", self.conversation))
    }
}

fn check_executor(executor: &ExecutionUser) -> Result<(), AppError> {
    let fits = |text: &str| {
        (1..=MAX_NAME).contains(&text.chars().count()) && !text.chars().any(char::is_control)
    };
    let reason = "must have 1 to 200 characters, none of them a control character";
    if !fits(&executor.user_id) {
        return Err(AppError::invalid("executor.user_id", reason));
    }
    if !executor.name.as_deref().is_none_or(fits) {
        return Err(AppError::invalid("executor.name", reason));
    }
    if !executor.email.as_deref().is_none_or(fits) {
        return Err(AppError::invalid("executor.email", reason));
    }
    Ok(())
}

/// Claude Code keeps two of the limits, for the whole turn.
fn check_cli_limits(limits: &ExecutionLimits) -> Result<(), AppError> {
    let reason = "the engine claude-code keeps max_turns and max_cost_usd only: use anthropic or \
                  bedrock";
    if limits.max_tokens.is_some() {
        return Err(AppError::invalid("limits.max_tokens", reason));
    }
    if limits.subagent.is_some() {
        return Err(AppError::invalid("limits.subagent", reason));
    }
    Ok(())
}

/// Everything that the checks looked up for the turn.
pub(crate) struct ResolvedRequest {
    pub(super) tenant: Tenant,
    pub(super) conversation: StoredDocument<Conversation>,
    /// The execution that holds the conversation's lock.
    pub(super) locked_by: Option<String>,
    pub(super) model: Model,
    /// All active models, for aliases and prices.
    pub(super) models: Vec<Model>,
    pub(super) servers: Vec<ResolvedServer>,
    /// Servers that are left out, with the reason.
    pub(super) unreachable: Vec<(String, String)>,
    pub(super) skills: Vec<Skill>,
    pub(super) preferred_skills: Vec<String>,
    /// The request's tokens.
    pub(super) secrets: Vec<String>,
    pub(super) limits: ExecutionLimits,
    pub(super) engine: std::sync::Arc<dyn Engine>,
    /// The confinement of the engine's programs, if it starts any.
    pub(super) confinement: Option<ConfinementLevel>,
}

impl ResolvedRequest {
    pub(super) fn prices(&self) -> PriceList {
        // Two records may name the same model: the execution's own takes precedence.
        let models = std::iter::once(&self.model).chain(&self.models);
        PriceList::new(models.map(|model| (model.model_name.clone(), model.prices)))
    }

    /// Whether another process could finish the turn. That needs an engine whose steps are
    /// journaled, and no secret that only this process knows.
    pub(super) fn can_resume_elsewhere(&self) -> bool {
        let has_own_server = self.servers.iter().any(|server| server.is_own);
        self.engine.is_native() && self.secrets.is_empty() && !has_own_server
    }

    fn check_limits(&self) -> Result<(), AppError> {
        let engine = self.model.engine;
        match engine {
            EngineKind::Anthropic | EngineKind::Bedrock => {}
            // The CLI counts its own turns and cost, with its own prices.
            EngineKind::ClaudeCode => return check_cli_limits(&self.limits),
            EngineKind::Offline if self.limits.is_none() => {}
            EngineKind::Offline => {
                let engine = engine.as_str();
                let reason = format!("the engine {engine} keeps none: use anthropic or bedrock");
                return Err(AppError::invalid("limits", reason));
            }
        }
        let prices = self.prices();
        let has_prices = prices.of(&self.model.model_name).is_some_and(|known| !known.is_unset());
        if self.limits.needs_prices() && !has_prices {
            let reason = format!("the model {} has no prices to count with", self.model.id);
            return Err(AppError::invalid("limits.max_cost_usd", reason));
        }
        Ok(())
    }

    pub(super) fn workspace_enabled(&self) -> bool {
        self.conversation.value.workspace_enabled.unwrap_or(self.tenant.workspace_enabled)
    }
}

impl Executions {
    /// Looks up everything that the request names, and refuses what does not exist or is inactive.
    /// The lookups run in parallel.
    pub(super) async fn resolve_request(
        &self,
        tenant: &TenantId,
        request: &NewExecution,
        own_server: Option<&ResolvedServer>,
    ) -> Result<ResolvedRequest, AppError> {
        let lock = conversation_lock(&request.conversation);
        let (tenant, conversation, models, skills, servers, lock) = tokio::join!(
            self.runtime.tenant(tenant),
            self.active_conversation(tenant, &request.conversation),
            self.active_models(),
            self.active::<Skill>(tenant),
            self.active::<McpServer>(tenant),
            self.runtime.store().lease(&lock),
        );
        let tenant = tenant?.value;
        if tenant.status == TenantStatus::Inactive {
            return Err(AppError::Inactive { kind: "tenant", id: tenant.id.to_string() });
        }
        let (conversation, models, skills) = (conversation?, models?, skills?);
        let wanted = request.model_id.as_ref().or(conversation.value.model_id.as_ref());
        let model = self.model_for(&tenant, wanted, &models).await?;
        for name in &request.preferred_skills {
            if !skills.iter().any(|skill| skill.name == *name) {
                return Err(AppError::NoSuchSkill(name.clone()));
            }
        }
        let (mut servers, mut unreachable) = self.split_by_reachability(servers?).await;
        if let Some(own_server) = own_server {
            // No user can provide tokens here, and no other server may use our own server's name.
            servers.retain(|server| server.name != own_server.name);
            unreachable.extend(remove_servers_without_tokens(&mut servers));
        }
        let mut servers = resolve_servers(servers, &request.tokens)?;
        servers.extend(own_server.cloned());
        let engine = self.engine_for(&model).await?;
        let confinement = self.confinement_for(&tenant, &*engine).await?;
        let resolved = ResolvedRequest {
            tenant,
            conversation,
            locked_by: lock?.filter(|(_, lapsed)| !lapsed).map(|(lease, _)| lease.owner),
            model,
            models,
            servers,
            unreachable,
            skills,
            preferred_skills: request.preferred_skills.clone(),
            secrets: request.tokens.values().cloned().collect(),
            limits: request.limits.clone(),
            engine,
            confinement,
        };
        resolved.check_limits()?;
        Ok(resolved)
    }

    /// Splits servers into those at allowed addresses and the others, with the reason.
    async fn split_by_reachability(
        &self,
        servers: Vec<McpServer>,
    ) -> (Vec<McpServer>, Vec<(String, String)>) {
        let looked = servers.into_iter().map(|server| async {
            let reachable = self.reachable(&server).await;
            (server, reachable)
        });
        let (mut allowed, mut refused) = (Vec::new(), Vec::new());
        for (server, reachable) in join_all(looked).await {
            match reachable {
                Ok(()) => allowed.push(server),
                Err(why) => refused.push((server.name, why)),
            }
        }
        (allowed, refused)
    }

    pub(super) async fn active_conversation(
        &self,
        tenant: &TenantId,
        id: &ConversationId,
    ) -> Result<StoredDocument<Conversation>, AppError> {
        let conversation = self.conversation(tenant, id).await?;
        if conversation.value.status == ConversationStatus::Archived {
            let text = format!("conversation {id} is archived: start another");
            return Err(AppError::NotNow(text));
        }
        Ok(conversation)
    }

    /// The model of the execution, else of the conversation, else of the tenant.
    async fn model_for(
        &self,
        tenant: &Tenant,
        wanted: Option<&ModelId>,
        active: &[Model],
    ) -> Result<Model, AppError> {
        let wanted = wanted.map(ModelId::as_str).or(tenant.model_id.as_deref());
        let Some(wanted) = wanted else {
            let reason = "neither the request nor the conversation nor the tenant names a model";
            return Err(AppError::invalid("model_id", reason));
        };
        if let Some(model) = active.iter().find(|model| model.id.as_str() == wanted) {
            refuse_sealed(&format!("the model {wanted}"), model.env.values())?;
            return Ok(model.clone());
        }
        let id = wanted.parse().map_err(|_| AppError::not_found("model", wanted))?;
        self.tenancy.model(&id).await?;
        Err(AppError::Inactive { kind: "model", id: wanted.to_owned() })
    }

    async fn engine_for(&self, model: &Model) -> Result<std::sync::Arc<dyn Engine>, AppError> {
        let Some(engine) = self.engines.get(model.engine) else {
            let kind = model.engine.as_str();
            let text = format!("model {}: this server has no engine {kind:?}", model.id);
            return Err(AppError::NoEngine(text));
        };
        let env = self.engine_environment(model);
        engine.check(model, &env).await.map_err(|error| AppError::NoEngine(error.to_string()))?;
        Ok(std::sync::Arc::clone(engine))
    }

    /// The engine's confinement level for this tenant. Too low a level is refused.
    async fn confinement_for(
        &self,
        tenant: &Tenant,
        engine: &dyn Engine,
    ) -> Result<Option<ConfinementLevel>, AppError> {
        let Some(reached) = engine.confinement().await else { return Ok(None) };
        let policy = self.options.confinement_policy;
        if policy.accepts(tenant.id == TenantId::local(), reached) {
            return Ok(Some(reached.level));
        }
        Err(AppError::NoSandbox(refusal(reached)))
    }

    /// The confinement of programs that engines start here; None if no engine starts any.
    pub async fn confinement(&self) -> Option<Confinement> {
        self.engines.confinement().await
    }

    async fn active_models(&self) -> Result<Vec<Model>, AppError> {
        self.active(&TenantId::system()).await
    }

    async fn active<T: shikiri_model::record::Document + Send>(
        &self,
        tenant: &TenantId,
    ) -> Result<Vec<T>, AppError> {
        self.runtime
            .list_all(RecordQuery {
                state: Some(ActiveStatus::Active.as_str().to_owned()),
                ..RecordQuery::of::<T>(tenant)
            })
            .await
    }
}

fn refusal(reached: Confinement) -> String {
    format!(
        "engines can be confined only at the level {:?} here, which does not keep tenants apart: let \
         the server make user namespaces, or run it as root with its folder where other users can \
         pass, on a kernel with Landlock; or accept the risk with unconfined_engines = true",
        reached.level.as_str()
    )
}

/// Puts the request's tokens into the headers of each server.
fn resolve_servers(
    servers: Vec<McpServer>,
    tokens: &BTreeMap<String, String>,
) -> Result<Vec<ResolvedServer>, AppError> {
    let filled = servers.into_iter().map(|server| {
        refuse_sealed(&format!("the server {}", server.name), server.headers_template.values())?;
        let headers = server.headers_template.iter().map(|(name, template)| {
            let value = fill_template(template, tokens).map_err(|error| match error {
                TemplateError::Missing(_) => {
                    AppError::MissingToken(format!("{error}, for the server {}", server.name))
                }
                TemplateError::Unfit(_) => AppError::invalid("tokens", error.to_string()),
            })?;
            Ok((name.clone(), value))
        });
        Ok(ResolvedServer {
            headers: headers.collect::<Result<_, AppError>>()?,
            id: Some(server.id),
            name: server.name,
            transport: server.transport,
            allowed_tools: server.allowed_tools,
            allow_private: server.allow_private,
            is_own: false,
        })
    });
    filled.collect()
}

/// Removes the servers that need a token, and returns them with the reason.
fn remove_servers_without_tokens(servers: &mut Vec<McpServer>) -> Vec<(String, String)> {
    let missing = |server: &McpServer| {
        let templates = server.headers_template.values();
        templates.filter_map(|text| fill_template(text, &BTreeMap::new()).err()).next()
    };
    let mut unfilled = Vec::new();
    servers.retain(|server| match missing(server) {
        Some(why) => {
            unfilled.push((server.name.clone(), why.to_string()));
            false
        }
        None => true,
    });
    unfilled
}
