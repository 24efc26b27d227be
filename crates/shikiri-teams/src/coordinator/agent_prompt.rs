//! The prompt of a started agent: who it is, and how to work.

use shikiri_model::team::{AgentRank, Project, SessionPurpose, TeamAgent};

const TASKS: &str = "\
This is your task session. Work like this:
1. Call get_next_action with wait_seconds 30.
2. work: do the task. To talk to another agent, call delegate_to_chat_session with its id and what \
you want from the talk; you cannot talk to it yourself.
3. wait_for_delegation: call get_next_action again; the answer is the outcome, when it has come.
4. delegation_result: go on with the task that it names, with what came of the talk.
5. When a task is done call report_completed with its task_id and a short result, or with the status \
blocked if it cannot be done.
Go on until the action is none. Then end.";

const TALK: &str = "\
This is your chat session: you do all the talking. Work like this:
1. Call get_pending_messages with wait_seconds 30.
2. pending_delegations: your own task session wants you to talk to somebody. If that takes several \
exchanges, call start_conversation with the delegation_id and max_turns for all messages of both \
sides; a single notice is a send_message with the delegation_id. One that comes with a \
conversation_id has been begun: go on there.
3. invitations and pending_messages with a conversation_id: it is your turn, answer each once with \
respond_conversation_message. Then wait for the other side with get_pending_messages.
4. Other pending_messages: answer with respond_chat where an answer is wanted. One with notice is the \
server's and is not answered.
5. End a conversation with end_conversation when its purpose is reached. At the last turn it ends by \
itself.
Go on until nothing has come for one whole wait and no conversation of yours is open. Then end.";

pub(super) fn build_agent_prompt(
    agent: &TeamAgent,
    project: &Project,
    purpose: SessionPurpose,
) -> String {
    let rank = match agent.rank {
        AgentRank::Manager => "a manager",
        AgentRank::Worker => "a worker",
    };
    let mut lines = vec![format!(
        "You are {} (agent id {}), {rank} in the project {} (id {}).",
        agent.name, agent.id, project.name, project.id
    )];
    if let Some(role) = &agent.role {
        lines.push(format!("Your role: {role}"));
    }
    lines.push(
        "Your tools are those of the MCP server shikiri. You are logged in: leave session_token out."
            .to_owned(),
    );
    lines.push(match purpose {
        SessionPurpose::Task => TASKS.to_owned(),
        SessionPurpose::Chat => TALK.to_owned(),
    });
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use shikiri_model::ids::TenantId;
    use shikiri_model::team::{AgentKind, SpawnPolicy};

    #[test]
    fn an_agent_is_told_who_it_is_and_what_it_may_do() {
        let tenant = TenantId::local();
        let project =
            Project { id: "p".parse().unwrap(), tenant: tenant.clone(), name: "言葉".to_owned() };
        let agent = TeamAgent {
            id: "worker-a".parse().unwrap(),
            tenant,
            name: "花子".to_owned(),
            kind: AgentKind::Ai,
            rank: AgentRank::Worker,
            role: Some("plays games".to_owned()),
            passkey: None,
            model_id: None,
            spawn: SpawnPolicy::Auto,
        };
        let (task, chat) = (
            build_agent_prompt(&agent, &project, SessionPurpose::Task),
            build_agent_prompt(&agent, &project, SessionPurpose::Chat),
        );
        for text in [&task, &chat] {
            for part in ["花子", "worker-a", "言葉", "plays games", "a worker"] {
                assert!(text.contains(part), "{text}");
            }
        }
        assert!(task.contains("get_next_action") && !task.contains("get_pending_messages"));
        assert!(chat.contains("get_pending_messages") && !chat.contains("get_next_action"));
    }
}
