//! A project with three agents and a person.

use std::time::Duration;

use shikiri_model::ids::{AgentId, MessageId, ProjectId, TaskId, TenantId};
use shikiri_model::key::SecretToken;
use shikiri_model::team::{
    AgentKind, AgentRank, SessionPurpose, SessionRequirement, SpawnPolicy, TaskStatus,
    ToolPermission,
};
use shikiri_teams::{
    AgentLoginRequest, AgentSessionHandle, NewDialogue, NewTask, NewTeamAgent, NextAction,
    PendingInbox, TeamError,
};

use crate::world::World;

pub(super) const NO_WAIT: Duration = Duration::ZERO;

pub(super) struct Team {
    pub(super) world: World,
    pub(super) project: ProjectId,
}

impl Team {
    pub(super) async fn new() -> Self {
        let (world, project) = (World::new(Vec::new()).await, "shiritori".parse().unwrap());
        let tenant = TenantId::local();
        world
            .app
            .teams
            .create_project(&tenant, Some("shiritori".parse().unwrap()), None)
            .await
            .unwrap();
        for (id, kind) in [
            ("a", AgentKind::Ai),
            ("b", AgentKind::Ai),
            ("c", AgentKind::Ai),
            ("person", AgentKind::Human),
        ] {
            let new = NewTeamAgent {
                id: id.parse().unwrap(),
                name: None,
                kind,
                rank: AgentRank::Worker,
                role: None,
                passkey: Some(SecretToken::from_caller("合言葉")),
                model_id: None,
                spawn: SpawnPolicy::Never,
            };
            world.app.teams.add_agent(&tenant, &project, new).await.unwrap();
        }
        Self { world, project }
    }

    pub(super) async fn login(&self, agent: &str, purpose: Option<SessionPurpose>) -> SecretToken {
        let login = AgentLoginRequest {
            agent_id: agent.to_owned(),
            passkey: SecretToken::from_caller("合言葉"),
            project_id: self.project.to_string(),
            purpose,
            by: "key".to_owned(),
        };
        self.world.app.teams.authenticate(&TenantId::local(), login).await.unwrap().1
    }

    pub(super) async fn chat(&self, agent: &str) -> Agent<'_> {
        Agent { team: self, token: self.login(agent, Some(SessionPurpose::Chat)).await }
    }

    pub(super) async fn task(&self, agent: &str) -> Agent<'_> {
        Agent { team: self, token: self.login(agent, Some(SessionPurpose::Task)).await }
    }

    pub(super) async fn assign(&self, agent: &str, title: &str) -> TaskId {
        let new = NewTask {
            title: title.to_owned(),
            description: String::new(),
            assignee: Some(agent.parse::<AgentId>().unwrap()),
            parent_id: None,
            priority: 0,
        };
        let task = self.world.app.teams.create_task(&TenantId::local(), &self.project, new).await;
        task.unwrap().value.id
    }
}

/// The permission of the tool of that name.
pub(super) fn permission(tool: &'static str) -> ToolPermission {
    let requires = match tool {
        "get_next_action" | "report_completed" | "delegate_to_chat_session" => {
            SessionRequirement::TaskSession
        }
        "help" | "get_delegation" | "get_conversation_messages" => SessionRequirement::Session,
        _ => SessionRequirement::ChatSession,
    };
    ToolPermission { tool, requires }
}

/// One session.
pub(super) struct Agent<'a> {
    team: &'a Team,
    pub(super) token: SecretToken,
}

impl Agent<'_> {
    pub(super) async fn at(&self, tool: &'static str) -> Result<AgentSessionHandle, TeamError> {
        self.team.world.app.teams.enter_session(&self.token, permission(tool)).await
    }

    pub(super) async fn next(&self) -> NextAction {
        let mut desk = self.at("get_next_action").await.unwrap();
        let action = desk.next_action(NO_WAIT).await.unwrap();
        confirm(&mut desk).await;
        action
    }

    /// The answer is lost on its way.
    pub(super) async fn next_and_lose(&self) -> NextAction {
        self.at("get_next_action").await.unwrap().next_action(NO_WAIT).await.unwrap()
    }

    /// Reports the task that was given to it.
    pub(super) async fn finish(&self, action: &NextAction) {
        let NextAction::Work(task) = action else { panic!("{action:?}") };
        let desk = self.at("report_completed").await.unwrap();
        let id = task.value.id.as_str();
        desk.report_completed(id, TaskStatus::Done, None).await.unwrap();
    }

    pub(super) async fn pending(&self) -> PendingInbox {
        let mut desk = self.at("get_pending_messages").await.unwrap();
        let pending = desk.pending(NO_WAIT).await.unwrap();
        confirm(&mut desk).await;
        pending
    }

    /// The answer is lost on its way.
    pub(super) async fn pending_and_lose(&self) -> PendingInbox {
        self.at("get_pending_messages").await.unwrap().pending(NO_WAIT).await.unwrap()
    }

    pub(super) async fn send(&self, target: &str, content: &str) -> Result<MessageId, TeamError> {
        self.at("send_message").await?.send_message(target, content, None).await
    }

    pub(super) async fn end(&self, conversation: &str) {
        let desk = self.at("end_conversation").await.unwrap();
        desk.end_conversation(conversation, None).await.unwrap();
    }

    pub(super) async fn delegate(&self, target: &str) -> String {
        let desk = self.at("delegate_to_chat_session").await.unwrap();
        desk.delegate(target, "6往復しりとりをしてほしい", None).await.unwrap().id.to_string()
    }

    pub(super) async fn start(
        &self,
        target: &str,
        max_turns: i64,
        delegation: Option<&str>,
    ) -> Result<String, TeamError> {
        let wanted = NewDialogue {
            target: target.to_owned(),
            initial_message: "りんご".to_owned(),
            purpose: None,
            max_turns: Some(max_turns),
            delegation: delegation.map(str::to_owned),
        };
        let started = self.at("start_conversation").await?.start_conversation(&wanted).await?;
        Ok(started.conversation_id.to_string())
    }

    pub(super) async fn say(&self, conversation: &str, content: &str) -> Result<u32, TeamError> {
        let desk = self.at("send_conversation_message").await?;
        Ok(desk.send_dialogue_message(conversation, content).await?.turns_left)
    }
}

/// The answer has come.
pub(super) async fn confirm(desk: &mut AgentSessionHandle) {
    if let Some(receipt) = desk.take_receipt() {
        receipt.confirm().await;
    }
}

pub(super) fn code<T>(result: Result<T, TeamError>) -> &'static str {
    match result {
        Err(TeamError::Refused(refusal)) => refusal.code.as_str(),
        Err(TeamError::App(error)) => panic!("{error}"),
        Ok(_) => "ok",
    }
}
