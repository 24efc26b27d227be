//! Team tools: agents that work on tasks, delegate and talk. What they do is decided by the use
//! cases.
//!
//! Each tool is one file, named as the tool: its arguments, definition, required session and call.
//! `TEAM_TOOLS` registers it. Listing, permission, schemas and dispatch follow from that row.

mod authenticate;
mod common_fields;
mod delegate_to_chat_session;
mod dialogues;
mod end_conversation;
mod get_conversation_messages;
mod get_delegation;
mod get_next_action;
mod get_pending_messages;
mod help;
mod report_completed;
mod report_delegation_completed;
mod respond_chat;
mod respond_conversation_message;
mod send_conversation_message;
mod send_message;
mod start_conversation;
mod team_tool;
mod tool_arguments;
mod tool_schema;
mod views;

use std::sync::Arc;

use shikiri_app::App;
use team_tool::{RegisteredTeamTool, TeamTool};

use crate::catalogue::{BuiltinTool, ResourceSource};

/// Every team tool, in the order in which `help` lists them.
static TEAM_TOOLS: [RegisteredTeamTool; 15] = [
    authenticate::AUTHENTICATE,
    RegisteredTeamTool::for_sessions::<help::Help>(),
    RegisteredTeamTool::for_sessions::<get_next_action::GetNextAction>(),
    RegisteredTeamTool::for_sessions::<report_completed::ReportCompleted>(),
    RegisteredTeamTool::for_sessions::<delegate_to_chat_session::DelegateToChatSession>(),
    RegisteredTeamTool::for_sessions::<get_delegation::GetDelegation>(),
    RegisteredTeamTool::for_sessions::<get_conversation_messages::GetConversationMessages>(),
    RegisteredTeamTool::for_sessions::<get_pending_messages::GetPendingMessages>(),
    RegisteredTeamTool::for_sessions::<respond_chat::RespondChat>(),
    RegisteredTeamTool::for_sessions::<send_message::SendMessage>(),
    RegisteredTeamTool::for_sessions::<start_conversation::StartConversation>(),
    RegisteredTeamTool::for_sessions::<send_conversation_message::SendConversationMessage>(),
    RegisteredTeamTool::for_sessions::<respond_conversation_message::RespondConversationMessage>(),
    RegisteredTeamTool::for_sessions::<end_conversation::EndConversation>(),
    RegisteredTeamTool::for_sessions::<report_delegation_completed::ReportDelegationCompleted>(),
];

pub(super) fn tools(app: &App) -> impl Iterator<Item = Arc<dyn BuiltinTool>> {
    TEAM_TOOLS.iter().map(|registered| {
        Arc::new(TeamTool { app: app.clone(), registered }) as Arc<dyn BuiltinTool>
    })
}

pub(super) fn resources(app: &App) -> Arc<dyn ResourceSource> {
    Arc::new(dialogues::DialogueResources(app.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use shikiri_model::team::SessionRequirement;
    use std::collections::BTreeSet;

    #[test]
    fn every_registered_tool_is_defined_completely() {
        let mut names = BTreeSet::new();
        for registered in &TEAM_TOOLS {
            let tool = serde_json::to_value(registered.tool()).unwrap();
            let name = tool["name"].as_str().unwrap().to_owned();
            for text in ["title", "description"] {
                assert!(tool[text].as_str().is_some_and(|text| !text.is_empty()), "{name}: {text}");
            }
            let input = &tool["inputSchema"];
            let mut properties: BTreeSet<_> = keys(&input["properties"]);
            let takes_token = properties.remove("session_token");
            let requires = registered.permission().requires;
            assert_eq!(takes_token, requires != SessionRequirement::Nothing, "{name}");
            let arguments = registered.arguments.iter();
            let arguments: BTreeSet<_> = arguments.map(|known| known.field.name).collect();
            assert_eq!(properties, arguments, "{name}");
            assert_eq!(input["additionalProperties"], json!(false), "{name}");
            assert!(!keys(&tool["outputSchema"]["properties"]).is_empty(), "{name}");
            assert_eq!(registered.permission().tool, name);
            assert!(names.insert(name), "registered twice: {tool}");
        }
    }

    fn keys(object: &Value) -> BTreeSet<&str> {
        object.as_object().unwrap().keys().map(String::as_str).collect()
    }

    /// What outsiders rely on. A session of the wrong purpose must not get a tool by mistake.
    #[test]
    fn each_tool_requires_the_session_that_is_documented() {
        use SessionRequirement::{ChatSession, Nothing, Session, TaskSession};
        let found = TEAM_TOOLS.iter().map(RegisteredTeamTool::permission);
        let found: Vec<_> = found.map(|one| (one.tool, one.requires)).collect();
        let expected = [
            ("authenticate", Nothing),
            ("help", Session),
            ("get_next_action", TaskSession),
            ("report_completed", TaskSession),
            ("delegate_to_chat_session", TaskSession),
            ("get_delegation", Session),
            ("get_conversation_messages", Session),
            ("get_pending_messages", ChatSession),
            ("respond_chat", ChatSession),
            ("send_message", ChatSession),
            ("start_conversation", ChatSession),
            ("send_conversation_message", ChatSession),
            ("respond_conversation_message", ChatSession),
            ("end_conversation", ChatSession),
            ("report_delegation_completed", ChatSession),
        ];
        assert_eq!(found, expected);
    }
}
