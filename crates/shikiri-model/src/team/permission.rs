//! Who may use which tool. This table is all there is to it: a tool that is not in it is refused.

use super::refusal::{Refusal, RefusalCode};
use super::session::Purpose;

/// What a tool asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Anybody.
    Nothing,
    /// A session of either purpose.
    Session,
    TaskSession,
    ChatSession,
}

/// Who calls, as far as permission goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    Nobody,
    Session(Purpose),
}

pub const TOOLS: [(&str, Need); 15] = [
    ("authenticate", Need::Nothing),
    ("help", Need::Session),
    ("get_next_action", Need::TaskSession),
    ("report_completed", Need::TaskSession),
    ("delegate_to_chat_session", Need::TaskSession),
    ("get_delegation", Need::Session),
    ("get_conversation_messages", Need::Session),
    ("get_pending_messages", Need::ChatSession),
    ("respond_chat", Need::ChatSession),
    ("send_message", Need::ChatSession),
    ("start_conversation", Need::ChatSession),
    ("send_conversation_message", Need::ChatSession),
    ("respond_conversation_message", Need::ChatSession),
    ("end_conversation", Need::ChatSession),
    ("report_delegation_completed", Need::ChatSession),
];

pub fn need_of(tool: &str) -> Option<Need> {
    TOOLS.iter().find(|(name, _)| *name == tool).map(|(_, need)| *need)
}

pub fn allows(tool: &str, caller: Caller) -> bool {
    check(tool, caller).is_ok()
}

pub fn check(tool: &str, caller: Caller) -> Result<(), Refusal> {
    let Some(need) = need_of(tool) else {
        let message = format!("{tool} is not a tool for sessions: `help` lists those that are");
        return Err(RefusalCode::ToolNotAllowed.because(message));
    };
    let missing = match (need, caller) {
        (Need::Nothing, _)
        | (Need::Session, Caller::Session(_))
        | (Need::TaskSession, Caller::Session(Purpose::Task))
        | (Need::ChatSession, Caller::Session(Purpose::Chat)) => return Ok(()),
        (_, Caller::Nobody) => {
            let message = "call authenticate first, and give its session_token with every call";
            return Err(RefusalCode::NotAuthenticated.because(message));
        }
        (Need::TaskSession, _) => RefusalCode::TaskSessionRequired
            .because(format!("{tool} is for task sessions: authenticate with purpose \"task\"")),
        (Need::ChatSession, _) => RefusalCode::ChatSessionRequired.because(format!(
            "{tool} is for chat sessions: state what you want with delegate_to_chat_session, \
             and your chat session does it"
        )),
    };
    Err(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_one_row() {
        for (at, (name, _)) in TOOLS.iter().enumerate() {
            assert_eq!(TOOLS.iter().position(|(other, _)| other == name), Some(at), "{name}");
        }
    }

    #[test]
    fn every_tool_and_every_caller() {
        use Caller::{Nobody, Session};
        use Purpose::{Chat, Task};
        for (name, need) in TOOLS {
            let code = |caller| check(name, caller).err().map(|refusal| refusal.code.as_str());
            let (nobody, task, chat) = (code(Nobody), code(Session(Task)), code(Session(Chat)));
            let login = Some("notAuthenticated");
            let expected = match need {
                Need::Nothing => (None, None, None),
                Need::Session => (login, None, None),
                Need::TaskSession => (login, None, Some("taskSessionRequired")),
                Need::ChatSession => (login, Some("chatSessionRequired"), None),
            };
            assert_eq!((nobody, task, chat), expected, "{name}");
        }
        for caller in [Nobody, Session(Task), Session(Chat)] {
            assert!(!allows("travel_agent", caller));
        }
    }
}
