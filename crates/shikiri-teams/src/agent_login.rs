//! Agent logins: sessions for tasks or for talk.

use shikiri_model::ids::{AgentId, AgentSessionId, ProjectId, TenantId};
use shikiri_model::key::SecretToken;
use shikiri_model::record::RecordQuery;
use shikiri_model::team::{
    AgentSession, CallerSession, ProjectMember, ProjectMembership, RefusalCode, SessionPurpose,
    TeamAgent, TeamRefusal, ToolPermission,
};
use shikiri_runtime::{entropy, random, transact};
use shikiri_store::StoreExt;

use super::session_handle::{AgentSessionHandle, session_over};
use super::team_transaction::TeamTransaction;
use super::{TeamError, parse_id, passkey};
use crate::Teams;

/// What a caller gives to log in.
pub struct AgentLoginRequest {
    pub agent_id: String,
    pub passkey: SecretToken,
    pub project_id: String,
    pub purpose: Option<SessionPurpose>,
    /// The asking client, as far as the transport can tell. Wrong passkeys count against it alone.
    pub by: String,
}

/// Live sessions of one agent, project and purpose. Past this limit the one idle for longest ends.
const MAX_SESSIONS: usize = 16;

impl Teams {
    /// Opens a session. The token is in the answer and nowhere else.
    pub async fn authenticate(
        &self,
        tenant: &TenantId,
        login: AgentLoginRequest,
    ) -> Result<(AgentSession, SecretToken), TeamError> {
        // All ids that cannot be valid count as one agent, however they are written.
        let id = login.agent_id.parse::<AgentId>().ok();
        let name = id.as_ref().map_or("", AgentId::as_str);
        let mut wrong = self.login_throttle.of(format!("{tenant}/{name}/{}", login.by)).await;
        let now = self.runtime.store().now().await?;
        wrong.check(now)?;
        let agent = match &id {
            Some(id) => self.runtime.store().load::<TeamAgent>(tenant, id.as_str()).await?,
            None => None,
        };
        let stored = agent.as_ref().and_then(|agent| agent.value.passkey.as_deref());
        let is_right = passkey::verify_passkey(&login.passkey, stored).await?;
        let Some(agent) = agent.filter(|_| is_right) else {
            wrong.add(now);
            return Err(wrong_passkey().into());
        };
        drop(wrong);
        let member = self.find_member(tenant, &login.project_id, &agent.value.id).await?;
        let purpose = match login.purpose {
            Some(purpose) => purpose,
            None => self.waiting_purpose(tenant, &member).await?,
        };
        self.open_session(tenant, &member, purpose).await
    }

    /// Opens a session for an agent whose identity is known.
    pub async fn open_session(
        &self,
        tenant: &TenantId,
        member: &ProjectMember,
        purpose: SessionPurpose,
    ) -> Result<(AgentSession, SecretToken), TeamError> {
        let (session, token) = self.new_session(tenant, member, purpose).await?;
        transact("agent", member.agent.as_str(), || self.try_open_session(&session)).await?;
        self.end_surplus_sessions(&session).await?;
        Ok((session, token))
    }

    async fn try_open_session(&self, session: &AgentSession) -> Result<Option<()>, TeamError> {
        let ProjectMember { project, agent } = &session.place;
        let mut transaction = TeamTransaction::begin(self, &session.tenant).await?;
        // Refuses the login if the tenant was removed or the agent has left the project.
        transaction.require(&self.membership(&session.tenant, project, agent).await?);
        transaction.add(session)?;
        transaction.try_commit(self, ()).await
    }

    /// A session that is not committed yet, with its token.
    pub(super) async fn new_session(
        &self,
        tenant: &TenantId,
        member: &ProjectMember,
        purpose: SessionPurpose,
    ) -> Result<(AgentSession, SecretToken), TeamError> {
        let (token, now) =
            (SecretToken::mint_session(tenant, random()?), self.runtime.store().now().await?);
        let session = AgentSession::start(
            AgentSessionId::mint(now, entropy()?),
            tenant.clone(),
            member.clone(),
            purpose,
            token.hash(),
            &self.limits,
            now,
        );
        Ok((session, token))
    }

    /// Checks that a session token may use a tool.
    pub async fn enter_session(
        &self,
        token: &SecretToken,
        permission: ToolPermission,
    ) -> Result<AgentSessionHandle, TeamError> {
        let Some(session) = self.tenancy.session_of(token).await? else {
            permission.check(CallerSession::Missing)?;
            let message = "this session_token opens no session: call authenticate";
            return Err(RefusalCode::NotAuthenticated.because(message).into());
        };
        let now = self.runtime.store().now().await?;
        if !session.value.is_live(now) {
            return Err(session_over().into());
        }
        permission.check(CallerSession::Session(session.value.purpose))?;
        let mut handle = AgentSessionHandle::new(self.clone(), session.value);
        handle.touch_session(now).await?;
        handle.acknowledge().await?;
        Ok(handle)
    }

    /// Live sessions of an agent for one purpose.
    pub(super) async fn live_sessions(
        &self,
        tenant: &TenantId,
        member: &ProjectMember,
        purpose: SessionPurpose,
    ) -> Result<Vec<AgentSession>, TeamError> {
        let now = self.runtime.store().now().await?;
        let sessions: Vec<AgentSession> = self
            .runtime
            .list_all(RecordQuery {
                state: Some(purpose.as_str().to_owned()),
                owner: Some(member.key()),
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
        let session = self.runtime.store().load::<AgentSession>(tenant, id.as_str()).await?;
        let now = self.runtime.store().now().await?;
        Ok(session.is_some_and(|session| session.value.is_live(now)))
    }

    /// The agent's membership in a project. A missing project and one that is not the agent's give
    /// the same error.
    async fn find_member(
        &self,
        tenant: &TenantId,
        project: &str,
        agent: &AgentId,
    ) -> Result<ProjectMember, TeamError> {
        let project: ProjectId = parse_id(project, RefusalCode::NoProject)?;
        let member = ProjectMember::new(&project, agent);
        let id = ProjectMembership::id_of(&member);
        if self.runtime.store().load::<ProjectMembership>(tenant, &id).await?.is_none() {
            let message = format!("you have no project {project}");
            return Err(RefusalCode::NoProject.because(message).into());
        }
        Ok(member)
    }

    /// Chooses the purpose by what is waiting. Tasks come first, and are the default.
    async fn waiting_purpose(
        &self,
        tenant: &TenantId,
        member: &ProjectMember,
    ) -> Result<SessionPurpose, TeamError> {
        if self.has_task_work(tenant, member).await? {
            return Ok(SessionPurpose::Task);
        }
        let talk = self.inbox_items(tenant, member, SessionPurpose::Chat).await?;
        Ok(if talk.is_empty() { SessionPurpose::Task } else { SessionPurpose::Chat })
    }

    async fn end_surplus_sessions(&self, newest: &AgentSession) -> Result<(), TeamError> {
        let (tenant, member) = (&newest.tenant, &newest.place);
        let mut living = self.live_sessions(tenant, member, newest.purpose).await?;
        living.retain(|session| session.id != newest.id);
        living.sort_by_key(|session| session.seen_at);
        let surplus = (living.len() + 1).saturating_sub(MAX_SESSIONS);
        for session in living.iter().take(surplus) {
            self.end_session(tenant, &session.id).await?;
        }
        Ok(())
    }
}

fn wrong_passkey() -> TeamRefusal {
    RefusalCode::NotAuthenticated.because("agent_id and passkey do not belong together")
}
