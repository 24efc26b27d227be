//! Claude Code's hooks, for doors that take them: what a hook process does on its project's file,
//! done by a server on its store.

mod claims;
mod reports;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use shikiri_model::hook::{
    BadPayload, Change, Conventions, Decision, Evidence, Outcome, Payload, PromptRole, ReadTo, Want,
};
use shikiri_model::ids::TenantId;
use shikiri_store::{HookTurn, Store};

pub(crate) use claims::Claims;
use claims::InFlight;
pub use reports::{Spent, SubagentView};

use crate::app::App;
use crate::error::AppError;

/// Claude Code has its answer by then, or goes on without.
const DEADLINE: Duration = Duration::from_secs(2);

/// From then on nothing is looked up that can be done without.
const HURRY: Duration = Duration::from_millis(1_500);

/// Where no transcript tells: a Claude Code that posts its events is new enough to say in each which
/// subagent it comes from, and one that says none is the main agent's.
const NAMES_AGENTS: Option<bool> = Some(true);

/// What is on the disk of this machine: conventions, and what Claude Code wrote. All of it blocks.
pub trait HookFiles: Send + Sync + 'static {
    /// What holds now; nothing if there is no file, or one that cannot be read.
    fn conventions(&self) -> Arc<Conventions>;

    /// The project that conventions are about.
    fn project(&self) -> Option<String>;

    /// Looks it up. What cannot be found or must not be read is answered with nothing. `read` is
    /// how far the session's transcript was read before; how far it is now is in the answer.
    fn find(
        &self,
        payload: &Payload,
        want: &Want,
        evidence: &mut Evidence,
        read: Option<ReadTo>,
    ) -> Vec<(String, ReadTo)>;

    /// Whether a hook process that claimed is still there.
    fn lives(&self, claimant: &str) -> bool;
}

/// An event's answer.
pub struct HookAnswer {
    /// As Claude Code reads it; none if there is nothing to say.
    pub json: Option<Value>,
    /// To be confirmed when the answer has been given. Dropped before that, it was not given: what
    /// it holds is delivered again.
    pub delivery: Option<HookDelivery>,
}

pub struct HookDelivery {
    store: Arc<dyn Store>,
    tenant: TenantId,
    changes: Vec<Change>,
    claim: InFlight,
}

impl HookDelivery {
    /// An error if this comes too late: then another answer holds the same, and this one must not
    /// be taken.
    pub async fn confirm(self) -> Result<(), AppError> {
        let hooks = self.store.hooks();
        match hooks.confirm(&self.tenant, self.claim.name(), self.changes).await? {
            true => Ok(()),
            false => Err(AppError::NotNow("another answer has said it meanwhile".to_owned())),
        }
    }
}

impl App {
    /// Takes one event of Claude Code's hooks.
    pub async fn hook(&self, tenant: &TenantId, text: &[u8]) -> Result<HookAnswer, AppError> {
        let started = Instant::now();
        let payload = Arc::new(read(text)?);
        let claim = self.claims.begin();
        let settled = self.settle_hook(tenant, &payload, claim.name(), started);
        let decision = tokio::time::timeout(DEADLINE, settled).await.map_err(|_| {
            AppError::Unavailable("the event could not be decided in time".to_owned())
        })??;
        let json = decision.answer.to_json(&payload.event);
        let delivery = (!decision.confirm.is_empty()).then(|| HookDelivery {
            store: Arc::clone(&self.store),
            tenant: tenant.clone(),
            changes: decision.confirm,
            claim,
        });
        Ok(HookAnswer { json, delivery })
    }

    async fn settle_hook(
        &self,
        tenant: &TenantId,
        payload: &Arc<Payload>,
        me: &str,
        started: Instant,
    ) -> Result<Decision, AppError> {
        let (conventions, project) = match self.hook_files.clone() {
            Some(files) => blocking(move || (files.conventions(), files.project())).await?,
            None => Default::default(),
        };
        let evidence = Evidence { me: me.to_owned(), project, ..Evidence::default() };
        let payload = Arc::clone(payload);
        let mut turn = HookTurn { payload, conventions, evidence, read: Vec::new(), started };
        loop {
            turn.evidence.is_late = started.elapsed() > HURRY;
            match self.store.hooks().take(tenant, turn.clone()).await? {
                Outcome::Done(decision) => return Ok(*decision),
                Outcome::Wants(want) => self.look_up(tenant, &want, &mut turn).await?,
            }
        }
    }

    async fn look_up(
        &self,
        tenant: &TenantId,
        want: &Want,
        turn: &mut HookTurn,
    ) -> Result<(), AppError> {
        if let Want::Claimant { by } = want {
            turn.evidence.claimants.push((by.clone(), self.claimant_lives(by)));
            return Ok(());
        }
        // This machine's files are those of whoever runs the server: another tenant that names
        // one must not learn from it.
        let files = self.hook_files.clone().filter(|_| *tenant == TenantId::local());
        let Some(files) = files else {
            find_nothing(want, &mut turn.evidence);
            return Ok(());
        };
        let read = match (want, &turn.payload.transcript_path) {
            (Want::Spawns, Some(path)) => self.store.hooks().read_to(path).await?,
            _ => None,
        };
        let (payload, want) = (Arc::clone(&turn.payload), want.clone());
        let mut evidence = std::mem::take(&mut turn.evidence);
        let found = blocking(move || {
            let read = files.find(&payload, &want, &mut evidence, read);
            (evidence, read)
        });
        let (mut evidence, read) = found.await?;
        evidence.names_agents = evidence.names_agents.map(|told| told.or(NAMES_AGENTS));
        turn.evidence = evidence;
        turn.read.extend(read);
        Ok(())
    }

    fn claimant_lives(&self, by: &str) -> bool {
        if let Some(lives) = self.claims.lives(by) {
            return lives;
        }
        // A process of this machine can be looked for; of others, only time tells.
        match &self.hook_files {
            Some(files) if self.store.backend() == "sqlite" => files.lives(by),
            _ => true,
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, AppError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| AppError::Unavailable(format!("a look at files was given up: {error}")))
}

fn read(text: &[u8]) -> Result<Payload, AppError> {
    let payload = Payload::parse(text).map_err(|problem| match problem {
        BadPayload::Missing(field) => AppError::invalid(field, "is missing"),
        BadPayload::NoJson(reason) => AppError::invalid("body", reason),
    })?;
    let inputs = [payload.input("subagent_type"), payload.input("name")];
    let names = [
        Some(payload.session_id.as_str()),
        Some(payload.event.as_str()),
        payload.agent_id.as_deref(),
        payload.agent_type.as_deref(),
        payload.tool_use_id.as_deref(),
        payload.response("agentId"),
    ];
    // PostgreSQL has no form for it, and no name of Claude Code's holds it.
    if names.into_iter().chain(inputs).flatten().any(|name| name.contains('\0')) {
        return Err(AppError::invalid("body", "has a NUL in a name"));
    }
    Ok(payload)
}

/// It was looked for, and there is none.
fn find_nothing(want: &Want, evidence: &mut Evidence) {
    match want {
        Want::Meta { .. } => evidence.meta = Some(None),
        Want::Spawns => evidence.spawns = Some(Vec::new()),
        Want::PromptRole { .. } => evidence.prompt_role = Some(PromptRole::Unread),
        Want::NamesAgents => evidence.names_agents = Some(NAMES_AGENTS),
        Want::Tokens { .. } => evidence.tokens = Some(None),
        Want::Usage { agent_id } => evidence.usage.push((agent_id.clone(), None)),
        Want::Claimant { by } => evidence.claimants.push((by.clone(), true)),
    }
}
