//! Which session a team tool requires of its caller. Each tool states its own requirement where it
//! is defined; here is the rule that every call of one is checked by.

use super::agent_session::SessionPurpose;
use super::team_refusal::{RefusalCode, TeamRefusal};

/// What a tool requires of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionRequirement {
    /// No session.
    Nothing,
    /// A session of either purpose.
    Session,
    TaskSession,
    ChatSession,
}

/// The session of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerSession {
    Missing,
    Session(SessionPurpose),
}

/// Who may use a team tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolPermission {
    /// The tool's name, for the refusal.
    pub tool: &'static str,
    pub requires: SessionRequirement,
}

impl ToolPermission {
    pub fn allows(self, caller: CallerSession) -> bool {
        self.check(caller).is_ok()
    }

    pub fn check(self, caller: CallerSession) -> Result<(), TeamRefusal> {
        let Self { tool, requires } = self;
        let missing = match (requires, caller) {
            (SessionRequirement::Nothing, _)
            | (SessionRequirement::Session, CallerSession::Session(_))
            | (SessionRequirement::TaskSession, CallerSession::Session(SessionPurpose::Task))
            | (SessionRequirement::ChatSession, CallerSession::Session(SessionPurpose::Chat)) => {
                return Ok(());
            }
            (_, CallerSession::Missing) => RefusalCode::NotAuthenticated
                .because("call authenticate first, and give its session_token with every call"),
            (SessionRequirement::TaskSession, CallerSession::Session(SessionPurpose::Chat)) => {
                RefusalCode::TaskSessionRequired.because(format!(
                    "{tool} is for task sessions: authenticate with purpose \"task\""
                ))
            }
            (SessionRequirement::ChatSession, CallerSession::Session(SessionPurpose::Task)) => {
                RefusalCode::ChatSessionRequired.because(format!(
                    "{tool} is for chat sessions: state what you want with \
                     delegate_to_chat_session, and your chat session does it"
                ))
            }
        };
        Err(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_requirement_and_every_caller() {
        use CallerSession::{Missing, Session};
        use SessionPurpose::{Chat, Task};
        let login = Some("notAuthenticated");
        for (requires, expected) in [
            (SessionRequirement::Nothing, [None, None, None]),
            (SessionRequirement::Session, [login, None, None]),
            (SessionRequirement::TaskSession, [login, None, Some("taskSessionRequired")]),
            (SessionRequirement::ChatSession, [login, Some("chatSessionRequired"), None]),
        ] {
            let permission = ToolPermission { tool: "some_tool", requires };
            let code = |caller| permission.check(caller).err().map(|refusal| refusal.code.as_str());
            let found = [Missing, Session(Task), Session(Chat)].map(code);
            assert_eq!(found, expected, "{requires:?}");
        }
    }
}
