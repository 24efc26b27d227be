//! One errand, from the look whether somebody is needed to the end of the run.

use std::collections::BTreeMap;
use std::time::Duration;

use shikiri_model::conversation::ConversationStatus;
use shikiri_model::execution::Executor;
use shikiri_model::ids::{AgentSessionId, ConversationId, RunId, TenantId};
use shikiri_model::key::Secret;
use shikiri_model::native::Limits;
use shikiri_model::record::Stored;
use shikiri_model::run::{Run, RunStatus};
use shikiri_model::server::Transport;
use shikiri_model::team::{
    AgentSession, Errand, Left, Next, Occupant, Place, Seat, TeamAgent, Verdict, is_reason,
};
use shikiri_model::time::Timestamp;
use shikiri_store::StoreExt;

use super::{RETRY, Term, prompt};
use crate::conversations::ConversationPatch;
use crate::error::AppError;
use crate::execution::{NewExecution, Server};
use crate::team::TeamError;
use crate::team::draft::Draft;

/// What the server is called in the names of its tools, `mcp__shikiri__…`.
const SERVER: &str = "shikiri";

/// How long the end of a term may take.
const GRACE: Duration = Duration::from_secs(2);

/// A seat as it was read, or a new one.
struct Found {
    seat: Stored<Seat>,
    is_new: bool,
}

impl Term {
    /// Sees to an errand, and tells when to look at it again.
    pub(super) async fn attend(&self, errand: &Errand) -> Option<Timestamp> {
        let attended = tokio::select! {
            attended = self.try_attend(errand) => attended,
            () = self.given_up() => return None,
        };
        match attended {
            Ok(again) => again,
            Err(_) if self.over.is_cancelled() => None,
            Err(error) => {
                let Errand { place, purpose, .. } = errand;
                let (project, agent) = (&place.project, &place.agent);
                tracing::warn!(%project, %agent, purpose = purpose.as_str(), %error, "not started");
                let now = self.app.store.now().await.ok()?;
                Some(now + RETRY.max(self.app.options.team.spawn_guard / 4))
            }
        }
    }

    /// A while after the end of the term: whoever waits for something else than a run, such as a
    /// program that does not tell its version, waits no longer. The next leader clears up.
    async fn given_up(&self) {
        self.over.cancelled().await;
        tokio::time::sleep(GRACE).await;
    }

    async fn try_attend(&self, errand: &Errand) -> Result<Option<Timestamp>, TeamError> {
        let mut found = self.seat(errand).await?;
        if found.seat.value.occupant.is_none() {
            match self.verdict(&found.seat.value).await? {
                Verdict::Later(at) => return Ok(Some(at)),
                Verdict::NotNeeded => return Ok(None),
                Verdict::Start => self.start(&mut found).await?,
            }
        }
        let Some(occupant) = found.seat.value.occupant.clone() else { return Ok(None) };
        let Some(is_well) = self.follow(errand, &occupant).await? else { return Ok(None) };
        self.leave(found.seat, &occupant, is_well).await
    }

    async fn seat(&self, errand: &Errand) -> Result<Found, TeamError> {
        let id = Seat::id_of(errand);
        if let Some(seat) = self.app.store.load::<Seat>(&errand.tenant, &id).await? {
            return Ok(Found { seat, is_new: false });
        }
        let (value, at) = (Seat::new(errand), self.app.store.now().await?);
        let seat = Stored { version: 0, attempts: 0, created_at: at, updated_at: at, value };
        Ok(Found { seat, is_new: true })
    }

    async fn verdict(&self, seat: &Seat) -> Result<Verdict, TeamError> {
        let (tenant, place) = (&seat.tenant, &seat.place);
        let waiting = self.app.waiting_for(tenant, place, seat.purpose).await?;
        let is_needed = waiting.iter().any(|one| is_reason(&one.value));
        let living = self.app.live_sessions(tenant, place, seat.purpose).await?;
        Ok(seat.decide(is_needed, !living.is_empty(), self.app.store.now().await?))
    }

    /// Writes the seat, and with it a session that is opened for whoever sits there.
    async fn put(
        &self,
        found: &mut Found,
        session: Option<&AgentSession>,
    ) -> Result<(), TeamError> {
        let mut draft = Draft::begin(&self.app, &found.seat.value.tenant).await?;
        if let Some(session) = session {
            draft.add(session)?;
        }
        if found.is_new {
            draft.add(&found.seat.value)?;
        } else {
            draft.put(&found.seat)?;
        }
        let commit = draft.into_commit().guarded_by(self.guard.clone());
        self.app.store.commit(commit).await?;
        found.is_new = false;
        found.seat.version += 1;
        Ok(())
    }

    async fn start(&self, found: &mut Found) -> Result<(), TeamError> {
        let Errand { tenant, place, purpose } = found.seat.value.errand();
        let agent = self.app.team_agent(&tenant, &place.agent).await?.value;
        let conversation = self.conversation(&agent, &found.seat.value).await?;
        found.seat.value.conversation = Some(conversation.clone());
        let (session, token) = self.app.new_session(&tenant, &place, purpose).await?;
        let session = session.not_yet_used(&self.app.options.team);
        found.seat.value.take(&session, self.app.store.now().await?);
        self.put(found, Some(&session)).await?;
        match self.execute(&agent, &found.seat.value, conversation, &token).await {
            Ok(run) => {
                let id = run.value.id;
                tracing::info!(
                    project = %place.project, agent = %place.agent, purpose = purpose.as_str(),
                    execution.id = %id, "started an agent"
                );
                if let Some(occupant) = &mut found.seat.value.occupant {
                    occupant.execution = Some(id.clone());
                }
                let written = self.put(found, None).await;
                if written.is_err() {
                    self.cancel(&found.seat.value, &id).await;
                }
                written
            }
            Err(error) => {
                tracing::warn!(
                    project = %place.project, agent = %place.agent, purpose = purpose.as_str(),
                    %error, "cannot start an agent"
                );
                Ok(())
            }
        }
    }

    /// The one that the seat has, if it can still be used.
    async fn conversation(
        &self,
        agent: &TeamAgent,
        seat: &Seat,
    ) -> Result<ConversationId, TeamError> {
        if let Some(id) = &seat.conversation {
            match self.app.conversation(&seat.tenant, id).await {
                Ok(found) if found.value.status == ConversationStatus::Active => {
                    return Ok(id.clone());
                }
                Ok(_) | Err(AppError::NotFound { .. }) => {}
                Err(other) => return Err(other.into()),
            }
        }
        let title = format!("{} · {} · {}", seat.place.project, agent.id, seat.purpose.as_str());
        let title = Some(Some(title.chars().take(200).collect()));
        let patch = ConversationPatch { title, ..ConversationPatch::default() };
        Ok(self.app.create_conversation(&seat.tenant, patch).await?.value.id)
    }

    async fn execute(
        &self,
        agent: &TeamAgent,
        seat: &Seat,
        conversation: ConversationId,
        token: &Secret,
    ) -> Result<Stored<Run>, AppError> {
        let project = self.app.project(&seat.tenant, &seat.place.project).await?.value;
        let authorization = format!("Bearer {}", token.reveal());
        let door = Server {
            id: None,
            name: SERVER.to_owned(),
            transport: Transport::Http { url: self.door.clone() },
            headers: BTreeMap::from([("Authorization".to_owned(), authorization)]),
            allowed_tools: None,
            allow_private: true,
            is_own: true,
        };
        let name = Some(agent.name.clone());
        let request = NewExecution {
            conversation,
            user_input: prompt::of(agent, &project, seat.purpose),
            executor: Executor { user_id: agent.id.to_string(), name, email: None },
            tokens: BTreeMap::new(),
            preferred_skills: Vec::new(),
            model_id: agent.model_id.clone(),
            idempotency_key: None,
            limits: Limits::default(),
        };
        self.app.execute_with(&seat.tenant, request, Some(door)).await
    }

    /// Waits for the end of a run, and tells whether it ended well; None if the term is over first.
    async fn follow(
        &self,
        errand: &Errand,
        occupant: &Occupant,
    ) -> Result<Option<bool>, TeamError> {
        let Some(id) = &occupant.execution else { return Ok(Some(false)) };
        let guard = self.app.options.team.spawn_guard;
        let now = self.app.store.now().await?;
        let mut patience = (occupant.since + guard).since(now);
        loop {
            tokio::select! {
                ended = self.end_of(errand, id) => return Ok(Some(ended)),
                () = self.over.cancelled() => {
                    self.cancel_run(errand, id).await;
                    return Ok(None);
                }
                () = tokio::time::sleep(patience) => {
                    if !self.has_acted(errand, occupant).await? {
                        let (project, agent) = (&errand.place.project, &errand.place.agent);
                        tracing::warn!(
                            %project, %agent, purpose = errand.purpose.as_str(), execution.id = %id,
                            "gave an agent up that does nothing"
                        );
                        self.cancel_run(errand, id).await;
                    }
                    // The run has a limit of its own.
                    patience = Duration::from_secs(u64::from(u32::MAX));
                }
            }
        }
    }

    /// Whether a session was used since it was opened.
    async fn has_acted(&self, errand: &Errand, occupant: &Occupant) -> Result<bool, TeamError> {
        let id = occupant.session.as_str();
        let session = self.app.store.load::<AgentSession>(&errand.tenant, id).await?;
        Ok(session.is_some_and(|session| session.value.seen_at >= occupant.since))
    }

    /// Whether a run ended well, once it has ended. A store that is away is waited for.
    async fn end_of(&self, errand: &Errand, id: &RunId) -> bool {
        loop {
            match self.try_end_of(errand, id).await {
                Ok(is_well) => return is_well,
                Err(AppError::NotFound { .. }) => return false,
                Err(error) => tracing::debug!(%error, "cannot follow a run; trying again"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn try_end_of(&self, errand: &Errand, id: &RunId) -> Result<bool, AppError> {
        let run = self.app.load_run(&errand.tenant, id).await?.value;
        let mut status = run.status;
        if !status.is_terminal() {
            let mut watch = self.app.watch(&errand.tenant, run.stream(), 0).await?;
            while let Ok(Some(_)) = watch.next().await {}
            status = self.app.load_run(&errand.tenant, id).await?.value.status;
        }
        if status.is_terminal() {
            return Ok(status == RunStatus::Completed);
        }
        Err(AppError::Unavailable("the run has not ended".to_owned()))
    }

    async fn cancel(&self, seat: &Seat, id: &RunId) {
        self.cancel_run(&seat.errand(), id).await;
    }

    async fn cancel_run(&self, errand: &Errand, id: &RunId) {
        // One that has just ended needs no stopping.
        let _ = self.app.cancel_run(&errand.tenant, id).await;
    }

    /// What follows from the end of a run. Its session ends with it.
    async fn leave(
        &self,
        mut seat: Stored<Seat>,
        occupant: &Occupant,
        is_well: bool,
    ) -> Result<Option<Timestamp>, TeamError> {
        let Errand { tenant, place, purpose } = seat.value.errand();
        let waiting = self.app.waiting_for(&tenant, &place, purpose).await?;
        let (limits, now) = (&self.app.options.team, self.app.store.now().await?);
        let left = Left::of(&waiting, occupant, is_well);
        let next = seat.value.leave(is_well, left, limits, now);
        if is_well {
            // First, or a session beside it would be shown what this one has read.
            self.app.take_off(&waiting, &occupant.session).await?;
        }
        self.end_session(&tenant, &occupant.session).await?;
        if next == Next::GiveUp {
            self.app.give_up(&seat.value, &waiting).await?;
        }
        self.put(&mut Found { seat: seat.clone(), is_new: false }, None).await?;
        Ok(again_after(&seat.value, next, is_well, now))
    }

    async fn end_session(
        &self,
        tenant: &TenantId,
        session: &AgentSessionId,
    ) -> Result<(), TeamError> {
        self.app.end_session(tenant, session).await?;
        // A call that it made at the same moment may have kept it alive.
        while self.app.is_session_live(tenant, session).await? {
            self.app.end_session(tenant, session).await?;
        }
        Ok(())
    }
}

/// Tells the log what follows from the end of a run, and when to look at it again.
fn again_after(seat: &Seat, next: Next, is_well: bool, now: Timestamp) -> Option<Timestamp> {
    let (Place { project, agent }, purpose) = (&seat.place, seat.purpose.as_str());
    match next {
        Next::Nothing => {
            tracing::info!(%project, %agent, purpose, is_well, "an agent has ended");
            None
        }
        Next::StartAgain(at) => {
            let (failures, pause_ms) = (seat.failures, at.since(now).as_millis());
            tracing::info!(
                %project, %agent, purpose, is_well, failures, pause_ms,
                "an agent has ended and left work: it is started again"
            );
            Some(at)
        }
        Next::Rest(until) => {
            tracing::warn!(
                %project, %agent, purpose, %until,
                "an agent went wrong too often: it is left alone for a while"
            );
            Some(until)
        }
        Next::GiveUp => {
            tracing::warn!(
                %project, %agent, purpose,
                "an agent went wrong after every rest: nobody is started for what it left"
            );
            None
        }
    }
}
