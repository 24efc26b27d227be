//! Claude Code's hook events on a server: the server handles an event on its store as a hook
//! process does on the file of its project.
//!
//! [`Subagents`] is the service. `POST /hooks/claude` calls it with a payload. It loads the rows that the
//! event concerns, lets `shikiri_model::hook::decide` decide, and writes the changes in one commit. The
//! answer says which text the subagent gets, or which rule refuses its tool call. Within two seconds
//! there is an answer, or none, and Claude Code continues.
//!
//! The differences to `shikiri-hook`: the rows belong to a tenant and may be on PostgreSQL, and only
//! evidence on this machine can be read. `hook_reports.rs` has what people ask of it afterwards: the
//! tree of subagents, their tokens, the log; `hook_usage.rs` what they spent, `claude_sessions.rs` what
//! they do now. `hook_claims.rs` keeps two events of one subagent, which arrive at once, from delivering
//! a text twice.

mod claude_sessions;
mod hook_claims;
mod hook_reports;
mod hook_usage;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use claude_sessions::ClaudeSessionView;
use hook_claims::{HookClaim, HookClaims};
pub use hook_reports::{SubagentSpending, SubagentView};
pub use hook_usage::{HookSessionView, HookSpending};
use serde_json::Value;
use shikiri_model::hook::{
    Conventions, EvidenceRequest, HookDecision, HookEvidence, HookInput, HookInputError,
    HookOutcome, HookOutput, HookRowChange, HookRows, PathFacts, PromptRole, TranscriptOffset,
    TranscriptUsage, decide, paths_of_call,
};
use shikiri_model::ids::TenantId;
use shikiri_model::time::Timestamp;
use shikiri_store::{HookEventInput, Store};

use shikiri_runtime::AppError;
use shikiri_runtime::Runtime;
use shikiri_tenancy::Tenancy;

/// An event that takes longer is not decided: Claude Code continues without an answer.
const DEADLINE: Duration = Duration::from_secs(2);

/// After this time only indispensable evidence is looked up.
const HURRY: Duration = Duration::from_millis(1_500);

/// How long the agent of another call may take to start, before it is looked for again.
const START_PAUSE: Duration = Duration::from_millis(20);
const START_WAITS: u32 = 50;

/// Assumed where no transcript shows it: a Claude Code that posts its events is new enough to name
/// the subagent in each. An event without a name is the main agent's.
const NAMES_AGENTS: Option<bool> = Some(true);

/// Access to files of this machine: conventions, and what Claude Code wrote. All methods block.
pub trait HookFiles: Send + Sync + 'static {
    /// The current conventions. Empty if there is no file; with their problem if it cannot be read.
    fn conventions(&self) -> Arc<Conventions>;

    /// The project that conventions are about.
    fn project(&self) -> Option<String>;

    /// Finds where the paths of a call lead.
    fn resolve(&self, payload: &HookInput, paths: &[String]) -> PathFacts;

    /// Looks up evidence. What cannot be found or must not be read stays empty. `read` is how far
    /// the session's transcript was read before; the result says how far it is read now.
    fn find(
        &self,
        payload: &HookInput,
        want: &EvidenceRequest,
        evidence: &mut HookEvidence,
        read: Option<TranscriptOffset>,
    ) -> Vec<(String, TranscriptOffset)>;

    /// Whether the hook process that has this claim still runs.
    fn is_claimant_alive(&self, claimant: &str) -> bool;
}

/// The answer to one hook event.
pub struct HookAnswer {
    /// In the form that Claude Code reads. None if there is nothing to say.
    pub json: Option<Value>,
    /// To be confirmed after the answer was sent. If it is dropped before, its content is delivered
    /// again.
    pub delivery: Option<HookDelivery>,
}

pub struct HookDelivery {
    store: Arc<dyn Store>,
    tenant: TenantId,
    changes: Vec<HookRowChange>,
    claim: HookClaim,
}

impl HookDelivery {
    /// Fails if it comes too late: then another answer has the same content, and this one must not
    /// be used.
    pub async fn confirm(self) -> Result<(), AppError> {
        let hooks = self.store.hooks();
        match hooks.confirm(&self.tenant, self.claim.name(), self.changes).await? {
            true => Ok(()),
            false => Err(AppError::NotNow("another answer has said it meanwhile".to_owned())),
        }
    }
}

/// Handles hook events, and reports on the subagents that they mention.
#[derive(Clone)]
pub struct Subagents {
    runtime: Runtime,
    tenancy: Tenancy,
    claims: Arc<HookClaims>,
    hook_files: Option<Arc<dyn HookFiles>>,
}

impl Subagents {
    pub fn new(tenancy: Tenancy, hook_files: Option<Arc<dyn HookFiles>>) -> Self {
        let runtime = tenancy.runtime().clone();
        Self { runtime, tenancy, claims: Arc::default(), hook_files }
    }

    /// The same service, whose changes are made through `runtime`.
    #[must_use]
    pub fn with_runtime(&self, runtime: Runtime) -> Self {
        let tenancy = self.tenancy.with_runtime(runtime.clone());
        Self { runtime, tenancy, ..self.clone() }
    }

    /// Handles one event of Claude Code's hooks.
    pub async fn hook(&self, tenant: &TenantId, text: &[u8]) -> Result<HookAnswer, AppError> {
        let started = Instant::now();
        let payload = Arc::new(read(text)?);
        let claim = self.claims.begin();
        let input = self.begin_event(tenant, &payload, claim.name(), started).await?;
        let deciding = self.decide_hook(tenant, input.clone());
        let decision = tokio::time::timeout(DEADLINE, deciding).await.unwrap_or_else(|_| {
            Err(AppError::Unavailable("the event could not be decided in time".to_owned()))
        });
        let decision = match decision {
            Err(error) if is_of_store(&error) => {
                self.decide_without_rows(tenant, input, error).await?
            }
            decided => decided?,
        };
        let json = decision.answer.to_json(&payload.event);
        let delivery = (!decision.confirm.is_empty()).then(|| HookDelivery {
            store: Arc::clone(self.runtime.store()),
            tenant: tenant.clone(),
            changes: decision.confirm,
            claim,
        });
        Ok(HookAnswer { json, delivery })
    }

    /// The event with what is known before anything is looked up.
    async fn begin_event(
        &self,
        tenant: &TenantId,
        payload: &Arc<HookInput>,
        me: &str,
        started: Instant,
    ) -> Result<HookEventInput, AppError> {
        let mut evidence = HookEvidence { me: me.to_owned(), ..HookEvidence::default() };
        let mut conventions = Arc::default();
        if let Some(files) = self.hook_files.clone() {
            // Only the operator's own events learn where links of this machine lead.
            let (payload, is_local) = (Arc::clone(payload), *tenant == TenantId::local());
            (conventions, evidence.project, evidence.paths) = blocking(move || {
                let (conventions, project) = (files.conventions(), files.project());
                let paths = paths_of_call(&payload, &conventions, project.as_deref());
                let facts = match is_local {
                    true => files.resolve(&payload, &paths),
                    false => PathFacts::default(),
                };
                (conventions, project, facts)
            })
            .await?;
        }
        let payload = Arc::clone(payload);
        Ok(HookEventInput { payload, conventions, evidence, read: Vec::new(), started })
    }

    async fn decide_hook(
        &self,
        tenant: &TenantId,
        mut input: HookEventInput,
    ) -> Result<HookDecision, AppError> {
        loop {
            input.evidence.is_late = input.started.elapsed() > HURRY;
            match self.runtime.store().hooks().handle_event(tenant, input.clone()).await? {
                HookOutcome::Done(decision) => return Ok(*decision),
                HookOutcome::Wants(want) => self.look_up(tenant, &want, &mut input).await?,
            }
        }
    }

    /// Applies the rules that need no rows. If they have nothing to say, the error is the answer.
    async fn decide_without_rows(
        &self,
        tenant: &TenantId,
        mut input: HookEventInput,
        error: AppError,
    ) -> Result<HookDecision, AppError> {
        input.evidence.store_problem = Some(error.to_string());
        let now = Timestamp::default();
        // The role in the prompt is all that can be asked for.
        for _ in 0..2 {
            let HookEventInput { payload, conventions, evidence, .. } = &input;
            match decide(payload, &HookRows::default(), evidence, conventions, now) {
                HookOutcome::Wants(want) => self.look_up(tenant, &want, &mut input).await?,
                HookOutcome::Done(decision) if decision.answer != HookOutput::default() => {
                    return Ok(*decision);
                }
                HookOutcome::Done(_) => break,
            }
        }
        Err(error)
    }

    async fn look_up(
        &self,
        tenant: &TenantId,
        want: &EvidenceRequest,
        input: &mut HookEventInput,
    ) -> Result<(), AppError> {
        if let EvidenceRequest::Claimant { by } = want {
            input.evidence.claimants.push((by.clone(), self.is_claimant_alive(by)));
            return Ok(());
        }
        if let EvidenceRequest::Start { .. } = want {
            tokio::time::sleep(START_PAUSE).await;
            input.evidence.note_start_wait(START_WAITS);
            return Ok(());
        }
        // The files of this machine belong to the operator of the server: another tenant that names
        // one must not learn from it.
        let files = self.hook_files.clone().filter(|_| *tenant == TenantId::local());
        let Some(files) = files else {
            find_nothing(want, &mut input.evidence);
            return Ok(());
        };
        let read = match (want, &input.payload.transcript_path) {
            (EvidenceRequest::Spawns, Some(path)) => {
                self.runtime.store().hooks().read_to(path).await?
            }
            _ => None,
        };
        let (payload, want) = (Arc::clone(&input.payload), want.clone());
        let mut evidence = std::mem::take(&mut input.evidence);
        let found = blocking(move || {
            let read = files.find(&payload, &want, &mut evidence, read);
            (evidence, read)
        });
        let (mut evidence, read) = found.await?;
        evidence.names_agents = evidence.names_agents.map(|known| known.or(NAMES_AGENTS));
        input.evidence = evidence;
        input.read.extend(read);
        Ok(())
    }

    fn is_claimant_alive(&self, by: &str) -> bool {
        if let Some(is_open) = self.claims.is_open(by) {
            return is_open;
        }
        // Only processes of this machine can be checked. Others count as alive.
        match &self.hook_files {
            Some(files) if self.runtime.store().backend() == "sqlite" => {
                files.is_claimant_alive(by)
            }
            _ => true,
        }
    }
}

/// Whether the store could not do its part, so that the rules are evaluated without it.
fn is_of_store(error: &AppError) -> bool {
    matches!(error, AppError::Unavailable(_) | AppError::Unknown(_) | AppError::Broken(_))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, AppError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| AppError::Unavailable(format!("a look at files was given up: {error}")))
}

fn read(text: &[u8]) -> Result<HookInput, AppError> {
    let payload = HookInput::parse(text).map_err(|problem| match problem {
        HookInputError::Missing(field) => AppError::invalid(field, "is missing"),
        HookInputError::NoJson(reason) => AppError::invalid("body", reason),
    })?;
    let inputs = [payload.input("subagent_type"), payload.input("name")];
    let names = [
        Some(payload.session_id.as_str()),
        Some(payload.event.as_str()),
        payload.agent_id.as_deref(),
        payload.agent_type.as_deref(),
        payload.tool_use_id.as_deref(),
        payload.response("agentId"),
        payload.transcript_path.as_deref(),
        payload.agent_transcript_path.as_deref(),
    ];
    // PostgreSQL cannot store a NUL, and names of Claude Code have none.
    if names.into_iter().chain(inputs).flatten().any(|name| name.contains('\0')) {
        return Err(AppError::invalid("body", "has a NUL in a name"));
    }
    Ok(payload)
}

/// Notes that the evidence was looked up and not found.
fn find_nothing(want: &EvidenceRequest, evidence: &mut HookEvidence) {
    match want {
        EvidenceRequest::Meta { .. } => evidence.meta = Some(None),
        EvidenceRequest::Spawns => evidence.spawns = Some(Vec::new()),
        EvidenceRequest::PromptRole { .. } => evidence.prompt_role = Some(PromptRole::Unread),
        EvidenceRequest::NamesAgents => evidence.names_agents = Some(NAMES_AGENTS),
        EvidenceRequest::Tokens { .. } => evidence.tokens = Some(None),
        EvidenceRequest::Heard { .. } => evidence.is_heard = Some(false),
        EvidenceRequest::Usage(requests) => {
            let found = requests.iter().map(|it| (it.agent_id.clone(), TranscriptUsage::default()));
            evidence.usage.extend(found);
        }
        EvidenceRequest::Start { .. } => evidence.note_start_wait(1),
        EvidenceRequest::Claimant { by } => evidence.claimants.push((by.clone(), true)),
    }
}
