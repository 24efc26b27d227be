//! One spawned agent: decides whether it is needed, starts it, and follows its run to the end.

use std::collections::BTreeMap;
use std::time::Duration;

use shikiri_executions::conversations::ConversationPatch;
use shikiri_executions::execution::{NewExecution, ResolvedServer};
use shikiri_model::conversation::ConversationStatus;
use shikiri_model::execution::ExecutionUser;
use shikiri_model::ids::{AgentSessionId, ConversationId, RunId, TenantId};
use shikiri_model::key::SecretToken;
use shikiri_model::native::ExecutionLimits;
use shikiri_model::record::StoredDocument;
use shikiri_model::run::{Run, RunStatus};
use shikiri_model::server::McpServerTransport;
use shikiri_model::team::{
    AfterRunAction, AgentSession, ProjectMember, RemainingWork, SpawnDecision, SpawnSlot,
    SpawnTarget, SpawnedRun, TeamAgent, is_reason,
};
use shikiri_model::time::Timestamp;
use shikiri_runtime::AppError;
use shikiri_store::StoreExt;

use super::{LeadershipTerm, RETRY, agent_prompt};
use crate::TeamError;
use crate::team_transaction::TeamTransaction;

/// The MCP server's name, as in the tool names `mcp__shikiri__…`.
const SERVER: &str = "shikiri";

/// How long the end of a term may take.
const GRACE: Duration = Duration::from_secs(2);

/// A slot as it was loaded, or a new one.
struct LoadedSpawnSlot {
    slot: StoredDocument<SpawnSlot>,
    is_new: bool,
}

impl LeadershipTerm {
    /// Runs the agent of a target, and returns when to look at it again.
    pub(super) async fn run_agent(&self, target: &SpawnTarget) -> Option<Timestamp> {
        let attended = tokio::select! {
            attended = self.try_run_agent(target) => attended,
            () = self.given_up() => return None,
        };
        match attended {
            Ok(again) => again,
            Err(_) if self.over.is_cancelled() => None,
            Err(error) => {
                let SpawnTarget { place: member, purpose, .. } = target;
                let (project, agent) = (&member.project, &member.agent);
                tracing::warn!(%project, %agent, purpose = purpose.as_str(), %error, "not started");
                let now = self.teams.runtime.store().now().await.ok()?;
                Some(now + RETRY.max(self.teams.limits.spawn_guard / 4))
            }
        }
    }

    /// Returns a while after the end of the term. It bounds waits that are not for a run, such as
    /// for a program that never reports its version. The next leader cleans up.
    async fn given_up(&self) {
        self.over.cancelled().await;
        tokio::time::sleep(GRACE).await;
    }

    async fn try_run_agent(&self, target: &SpawnTarget) -> Result<Option<Timestamp>, TeamError> {
        let mut found = self.load_slot(target).await?;
        if found.slot.value.occupant.is_none() {
            match self.verdict(&found.slot.value).await? {
                SpawnDecision::Later(at) => return Ok(Some(at)),
                SpawnDecision::NotNeeded => return Ok(None),
                SpawnDecision::Start => self.start(&mut found).await?,
            }
        }
        let Some(occupant) = found.slot.value.occupant.clone() else { return Ok(None) };
        let Some(is_well) = self.follow(target, &occupant).await? else { return Ok(None) };
        self.finish_agent_run(found.slot, &occupant, is_well).await
    }

    async fn load_slot(&self, target: &SpawnTarget) -> Result<LoadedSpawnSlot, TeamError> {
        let id = SpawnSlot::id_of(target);
        if let Some(slot) =
            self.teams.runtime.store().load::<SpawnSlot>(&target.tenant, &id).await?
        {
            return Ok(LoadedSpawnSlot { slot, is_new: false });
        }
        let (value, at) = (SpawnSlot::new(target), self.teams.runtime.store().now().await?);
        let slot =
            StoredDocument { version: 0, attempts: 0, created_at: at, updated_at: at, value };
        Ok(LoadedSpawnSlot { slot, is_new: true })
    }

    async fn verdict(&self, slot: &SpawnSlot) -> Result<SpawnDecision, TeamError> {
        let (tenant, member) = (&slot.tenant, &slot.place);
        let waiting = self.teams.inbox_items(tenant, member, slot.purpose).await?;
        if !self.teams.can_be_started(tenant, member).await? {
            // It was changed or removed since these came.
            for one in waiting.iter().filter(|one| is_reason(&one.value)) {
                self.teams.set_aside(tenant, &one.value.id).await?;
            }
            return Ok(SpawnDecision::NotNeeded);
        }
        let is_needed = waiting.iter().any(|one| is_reason(&one.value));
        let living = self.teams.live_sessions(tenant, member, slot.purpose).await?;
        Ok(slot.decide(is_needed, !living.is_empty(), self.teams.runtime.store().now().await?))
    }

    /// Writes the slot, together with a session that is opened for its occupant.
    async fn put(
        &self,
        found: &mut LoadedSpawnSlot,
        session: Option<&AgentSession>,
    ) -> Result<(), TeamError> {
        let mut transaction = TeamTransaction::begin(&self.teams, &found.slot.value.tenant).await?;
        if let Some(session) = session {
            transaction.add(session)?;
        }
        if found.is_new {
            transaction.add(&found.slot.value)?;
        } else {
            transaction.put(&found.slot)?;
        }
        let commit = transaction.into_commit().guarded_by(self.guard.clone());
        self.teams.runtime.store().commit(commit).await?;
        found.is_new = false;
        found.slot.version += 1;
        Ok(())
    }

    async fn start(&self, found: &mut LoadedSpawnSlot) -> Result<(), TeamError> {
        let SpawnTarget { tenant, place: member, purpose } = found.slot.value.spawn_target();
        let agent = self.teams.team_agent(&tenant, &member.agent).await?.value;
        let conversation = self.conversation(&agent, &found.slot.value).await?;
        found.slot.value.conversation = Some(conversation.clone());
        let (session, token) = self.teams.new_session(&tenant, &member, purpose).await?;
        let session = session.not_yet_used(&self.teams.limits);
        found.slot.value.take(&session, self.teams.runtime.store().now().await?);
        self.put(found, Some(&session)).await?;
        match self.execute(&agent, &found.slot.value, conversation, &token).await {
            Ok(run) => {
                let id = run.value.id;
                tracing::info!(
                    project = %member.project, agent = %member.agent, purpose = purpose.as_str(),
                    execution.id = %id, "started an agent"
                );
                if let Some(occupant) = &mut found.slot.value.occupant {
                    occupant.execution = Some(id.clone());
                }
                let written = self.put(found, None).await;
                if written.is_err() {
                    self.cancel(&found.slot.value, &id).await;
                }
                written
            }
            Err(error) => {
                tracing::warn!(
                    project = %member.project, agent = %member.agent, purpose = purpose.as_str(),
                    %error, "cannot start an agent"
                );
                Ok(())
            }
        }
    }

    /// The slot's conversation if it is still usable, otherwise a new one.
    async fn conversation(
        &self,
        agent: &TeamAgent,
        slot: &SpawnSlot,
    ) -> Result<ConversationId, TeamError> {
        if let Some(id) = &slot.conversation {
            match self.teams.executions.conversation(&slot.tenant, id).await {
                Ok(found) if found.value.status == ConversationStatus::Active => {
                    return Ok(id.clone());
                }
                Ok(_) | Err(AppError::NotFound { .. }) => {}
                Err(other) => return Err(other.into()),
            }
        }
        let title = format!("{} · {} · {}", slot.place.project, agent.id, slot.purpose.as_str());
        let title = Some(Some(title.chars().take(200).collect()));
        let patch = ConversationPatch { title, ..ConversationPatch::default() };
        Ok(self.teams.executions.create_conversation(&slot.tenant, patch).await?.value.id)
    }

    async fn execute(
        &self,
        agent: &TeamAgent,
        slot: &SpawnSlot,
        conversation: ConversationId,
        token: &SecretToken,
    ) -> Result<StoredDocument<Run>, AppError> {
        let project = self.teams.project(&slot.tenant, &slot.place.project).await?.value;
        let authorization = format!("Bearer {}", token.reveal());
        let team_server = ResolvedServer {
            id: None,
            name: SERVER.to_owned(),
            transport: McpServerTransport::Http { url: self.mcp_url.clone() },
            headers: BTreeMap::from([("Authorization".to_owned(), authorization)]),
            allowed_tools: None,
            allow_private: true,
            is_own: true,
        };
        let name = Some(agent.name.clone());
        let request = NewExecution {
            conversation,
            user_input: agent_prompt::build_agent_prompt(agent, &project, slot.purpose),
            executor: ExecutionUser { user_id: agent.id.to_string(), name, email: None },
            tokens: BTreeMap::new(),
            preferred_skills: Vec::new(),
            model_id: agent.model_id.clone(),
            idempotency_key: None,
            limits: ExecutionLimits::default(),
        };
        self.teams.executions.execute_with(&slot.tenant, request, Some(team_server)).await
    }

    /// Waits for the end of a run and returns whether it succeeded; None if the term ends first.
    async fn follow(
        &self,
        target: &SpawnTarget,
        occupant: &SpawnedRun,
    ) -> Result<Option<bool>, TeamError> {
        let Some(id) = &occupant.execution else { return Ok(Some(false)) };
        let guard = self.teams.limits.spawn_guard;
        let now = self.teams.runtime.store().now().await?;
        let mut patience = (occupant.since + guard).since(now);
        loop {
            tokio::select! {
                ended = self.wait_for_run_end(target, id) => return Ok(Some(ended)),
                () = self.over.cancelled() => {
                    self.cancel_run(target, id).await;
                    return Ok(None);
                }
                () = tokio::time::sleep(patience) => {
                    if !self.has_acted(target, occupant).await? {
                        let (project, agent) = (&target.place.project, &target.place.agent);
                        tracing::warn!(
                            %project, %agent, purpose = target.purpose.as_str(), execution.id = %id,
                            "gave an agent up that does nothing"
                        );
                        self.cancel_run(target, id).await;
                    }
                    // From here on the run's own time limit applies.
                    patience = Duration::from_secs(u64::from(u32::MAX));
                }
            }
        }
    }

    /// Whether the session was used since it was opened.
    async fn has_acted(
        &self,
        target: &SpawnTarget,
        occupant: &SpawnedRun,
    ) -> Result<bool, TeamError> {
        let id = occupant.session.as_str();
        let session = self.teams.runtime.store().load::<AgentSession>(&target.tenant, id).await?;
        Ok(session.is_some_and(|session| session.value.seen_at >= occupant.since))
    }

    /// Waits for a run to end and returns whether it succeeded. Retries while the store is
    /// unavailable.
    async fn wait_for_run_end(&self, target: &SpawnTarget, id: &RunId) -> bool {
        loop {
            match self.try_wait_for_run_end(target, id).await {
                Ok(is_well) => return is_well,
                Err(AppError::NotFound { .. }) => return false,
                Err(error) => tracing::debug!(%error, "cannot follow a run; trying again"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn try_wait_for_run_end(
        &self,
        target: &SpawnTarget,
        id: &RunId,
    ) -> Result<bool, AppError> {
        let run = self.teams.runtime.load_run(&target.tenant, id).await?.value;
        let mut status = run.status;
        if !status.is_terminal() {
            let mut watch = self.teams.runtime.watch(&target.tenant, run.stream(), 0).await?;
            while let Ok(Some(_)) = watch.next().await {}
            status = self.teams.runtime.load_run(&target.tenant, id).await?.value.status;
        }
        if status.is_terminal() {
            return Ok(status == RunStatus::Completed);
        }
        Err(AppError::Unavailable("the run has not ended".to_owned()))
    }

    async fn cancel(&self, slot: &SpawnSlot, id: &RunId) {
        self.cancel_run(&slot.spawn_target(), id).await;
    }

    async fn cancel_run(&self, target: &SpawnTarget, id: &RunId) {
        // A run that has just ended needs no cancelling.
        let _ = self.teams.runtime.cancel_run(&target.tenant, id).await;
    }

    /// Records the end of a run, and ends its session.
    async fn finish_agent_run(
        &self,
        mut slot: StoredDocument<SpawnSlot>,
        occupant: &SpawnedRun,
        is_well: bool,
    ) -> Result<Option<Timestamp>, TeamError> {
        let SpawnTarget { tenant, place: member, purpose } = slot.value.spawn_target();
        let waiting = self.teams.inbox_items(&tenant, &member, purpose).await?;
        let (limits, now) = (&self.teams.limits, self.teams.runtime.store().now().await?);
        let left = RemainingWork::of(&waiting, occupant, is_well);
        let next = slot.value.finish_run(is_well, left, limits, now);
        if is_well {
            // This comes first: otherwise another session would be shown what this one has read.
            self.teams.remove_handled_items(&waiting, &occupant.session).await?;
        }
        self.end_session(&tenant, &occupant.session).await?;
        if !self.teams.is_member(&tenant, &member).await? {
            self.teams.remove_slot(&slot).await?;
            return Ok(None);
        }
        if next == AfterRunAction::GiveUp {
            self.teams.stop_spawning_for(&slot.value, &waiting).await?;
        }
        self.put(&mut LoadedSpawnSlot { slot: slot.clone(), is_new: false }, None).await?;
        Ok(again_after(&slot.value, next, is_well, now))
    }

    async fn end_session(
        &self,
        tenant: &TenantId,
        session: &AgentSessionId,
    ) -> Result<(), TeamError> {
        self.teams.end_session(tenant, session).await?;
        // A call that it made at the same moment may have renewed the session.
        while self.teams.is_session_live(tenant, session).await? {
            self.teams.end_session(tenant, session).await?;
        }
        Ok(())
    }
}

/// Logs the outcome of a run, and returns when to look at its target again.
fn again_after(
    slot: &SpawnSlot,
    next: AfterRunAction,
    is_well: bool,
    now: Timestamp,
) -> Option<Timestamp> {
    let (ProjectMember { project, agent }, purpose) = (&slot.place, slot.purpose.as_str());
    match next {
        AfterRunAction::Nothing => {
            tracing::info!(%project, %agent, purpose, is_well, "an agent has ended");
            None
        }
        AfterRunAction::StartAgain(at) => {
            let (failures, pause_ms) = (slot.failures, at.since(now).as_millis());
            tracing::info!(
                %project, %agent, purpose, is_well, failures, pause_ms,
                "an agent has ended and left work: it is started again"
            );
            Some(at)
        }
        AfterRunAction::Rest(until) => {
            tracing::warn!(
                %project, %agent, purpose, %until,
                "an agent went wrong too often: it is left alone for a while"
            );
            Some(until)
        }
        AfterRunAction::GiveUp => {
            tracing::warn!(
                %project, %agent, purpose,
                "an agent failed after every pause: no agent is started for what it left"
            );
            None
        }
    }
}
