//! Logging in, for tasks or for talk.

use shikiri_model::ids::{AgentId, AgentSessionId, ProjectId, TenantId};
use shikiri_model::key::Secret;
use shikiri_model::record::{Document, RecordQuery, Stored};
use shikiri_model::team::{
    AgentSession, Caller, Membership, Place, Purpose, Refusal, RefusalCode, TeamAgent, check,
};
use shikiri_store::{StoreExt, store};

use super::desk::{Desk, session_over};
use super::draft::Draft;
use super::{TeamError, parse_id, passkey};
use crate::app::{App, entropy, random};

/// What a caller gives to log in.
pub struct Login {
    pub agent_id: String,
    pub passkey: Secret,
    pub project_id: String,
    pub purpose: Option<Purpose>,
    /// Whoever asks, as far as the door can tell: wrong passkeys are held against them alone.
    pub by: String,
}

/// Sessions of one agent, project and purpose that may live at once. Past that the one that was
/// idle for the longest ends.
const MAX_SESSIONS: usize = 16;

impl App {
    /// Opens a session. The token is in the answer and nowhere else.
    pub async fn authenticate(
        &self,
        tenant: &TenantId,
        login: Login,
    ) -> Result<(AgentSession, Secret), TeamError> {
        // What cannot be an id is counted as one agent, however it is written.
        let id = login.agent_id.parse::<AgentId>().ok();
        let name = id.as_ref().map_or("", AgentId::as_str);
        let mut wrong = self.tries.of(format!("{tenant}/{name}/{}", login.by)).await;
        let now = self.store.now().await?;
        wrong.check(now)?;
        let agent = match &id {
            Some(id) => self.store.load::<TeamAgent>(tenant, id.as_str()).await?,
            None => None,
        };
        let stored = agent.as_ref().and_then(|agent| agent.value.passkey.as_deref());
        let is_right = passkey::is_right(&login.passkey, stored).await?;
        let Some(agent) = agent.filter(|_| is_right) else {
            wrong.add(now);
            return Err(wrong_passkey().into());
        };
        drop(wrong);
        let place = self.place_of(tenant, &login.project_id, &agent.value.id).await?;
        let purpose = match login.purpose {
            Some(purpose) => purpose,
            None => self.waiting_purpose(tenant, &place).await?,
        };
        self.open_session(tenant, &place, purpose).await
    }

    /// Opens a session for an agent that is known to be who it is.
    pub async fn open_session(
        &self,
        tenant: &TenantId,
        place: &Place,
        purpose: Purpose,
    ) -> Result<(AgentSession, Secret), TeamError> {
        let (session, token) = self.new_session(tenant, place, purpose).await?;
        let mut draft = Draft::begin(self, tenant).await?;
        // With the tenant gone, or the agent from its project, there is nothing to log in to.
        draft.require(&self.membership(tenant, &place.project, &place.agent).await?);
        draft.add(&session)?;
        self.store.commit(draft.into_commit()).await?;
        self.end_surplus_sessions(&session).await?;
        Ok((session, token))
    }

    /// A session that is not written yet.
    pub(super) async fn new_session(
        &self,
        tenant: &TenantId,
        place: &Place,
        purpose: Purpose,
    ) -> Result<(AgentSession, Secret), TeamError> {
        let (token, now) = (Secret::mint_session(tenant, random()?), self.store.now().await?);
        let session = AgentSession::start(
            AgentSessionId::mint(now, entropy()?),
            tenant.clone(),
            place.clone(),
            purpose,
            token.hash(),
            &self.options.team,
            now,
        );
        Ok((session, token))
    }

    /// Proves that a token may use a tool.
    pub async fn enter_session(&self, token: &Secret, tool: &str) -> Result<Desk, TeamError> {
        let Some(session) = self.session_of(token).await? else {
            check(tool, Caller::Nobody)?;
            let message = "this session_token opens no session: call authenticate";
            return Err(RefusalCode::NotAuthenticated.because(message).into());
        };
        let now = self.store.now().await?;
        if !session.value.is_live(now) {
            return Err(session_over().into());
        }
        check(tool, Caller::Session(session.value.purpose))?;
        let mut desk = Desk::new(self.clone(), session.value);
        desk.give_sign_of_life(now).await?;
        desk.acknowledge().await?;
        Ok(desk)
    }

    /// The session that a token opened, living or not.
    pub async fn session_of(
        &self,
        token: &Secret,
    ) -> Result<Option<Stored<AgentSession>>, TeamError> {
        let Some(tenant) = token.session_tenant() else { return Ok(None) };
        let hash = token.hash();
        let found = self.store.find(AgentSession::KIND, &tenant, hash.as_str()).await?;
        let session = found.map(|found| store::decode::<AgentSession>(&found)).transpose()?;
        Ok(session.filter(|session| session.value.hash == hash))
    }

    /// Those of an agent that live.
    pub(super) async fn live_sessions(
        &self,
        tenant: &TenantId,
        place: &Place,
        purpose: Purpose,
    ) -> Result<Vec<AgentSession>, TeamError> {
        let now = self.store.now().await?;
        let sessions: Vec<AgentSession> = self
            .list_all(RecordQuery {
                state: Some(purpose.as_str().to_owned()),
                owner: Some(place.key()),
                ..RecordQuery::of::<AgentSession>(tenant)
            })
            .await?;
        Ok(sessions.into_iter().filter(|session| session.is_live(now)).collect())
    }

    pub(super) async fn is_session_live(
        &self,
        tenant: &TenantId,
        id: &AgentSessionId,
    ) -> Result<bool, TeamError> {
        let session = self.store.load::<AgentSession>(tenant, id.as_str()).await?;
        let now = self.store.now().await?;
        Ok(session.is_some_and(|session| session.value.is_live(now)))
    }

    /// Where an agent works. A project that is not there and one that is not the agent's are not
    /// told apart.
    async fn place_of(
        &self,
        tenant: &TenantId,
        project: &str,
        agent: &AgentId,
    ) -> Result<Place, TeamError> {
        let project: ProjectId = parse_id(project, RefusalCode::NoProject)?;
        let place = Place::new(&project, agent);
        let id = Membership::id_of(&place);
        if self.store.load::<Membership>(tenant, &id).await?.is_none() {
            let message = format!("you have no project {project}");
            return Err(RefusalCode::NoProject.because(message).into());
        }
        Ok(place)
    }

    /// What waits decides, tasks first; with nothing there, tasks too.
    async fn waiting_purpose(
        &self,
        tenant: &TenantId,
        place: &Place,
    ) -> Result<Purpose, TeamError> {
        if self.has_task_work(tenant, place).await? {
            return Ok(Purpose::Task);
        }
        let talk = self.waiting_for(tenant, place, Purpose::Chat).await?;
        Ok(if talk.is_empty() { Purpose::Task } else { Purpose::Chat })
    }

    async fn end_surplus_sessions(&self, newest: &AgentSession) -> Result<(), TeamError> {
        let (tenant, place) = (&newest.tenant, &newest.place);
        let mut living = self.live_sessions(tenant, place, newest.purpose).await?;
        living.retain(|session| session.id != newest.id);
        living.sort_by_key(|session| session.seen_at);
        let surplus = (living.len() + 1).saturating_sub(MAX_SESSIONS);
        for session in living.iter().take(surplus) {
            self.end_session(tenant, &session.id).await?;
        }
        Ok(())
    }
}

fn wrong_passkey() -> Refusal {
    RefusalCode::NotAuthenticated.because("agent_id and passkey do not belong together")
}
