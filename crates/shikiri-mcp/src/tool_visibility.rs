//! Which tools a caller is shown. What it may call is decided elsewhere, at each call.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use shikiri_app::App;
use shikiri_model::connection::McpConnection;
use shikiri_model::event::NewEvent;
use shikiri_model::ids::AgentSessionId;
use shikiri_model::team::{CallerSession, SessionPurpose, ToolPermission};
use shikiri_model::time::Timestamp;
use shikiri_runtime::AppError;

use crate::mcp_caller::{McpCaller, ProtocolEra};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolVisibility {
    Everything,
    /// No team tools but what sessions of these purposes may use.
    Sessions {
        task: bool,
        chat: bool,
    },
    /// Nothing but what a session of this purpose may use.
    Only(SessionPurpose),
}

impl ToolVisibility {
    /// Whether a tool with this permission is shown. Tools that are not for teams have none.
    pub(crate) fn includes(self, permission: Option<ToolPermission>) -> bool {
        let Some(permission) = permission else { return !matches!(self, Self::Only(_)) };
        let allows = |purpose| permission.allows(CallerSession::Session(purpose));
        match self {
            Self::Everything => true,
            Self::Only(purpose) => allows(purpose),
            Self::Sessions { task, chat } => {
                permission.allows(CallerSession::Missing)
                    || task && allows(SessionPurpose::Task)
                    || chat && allows(SessionPurpose::Chat)
            }
        }
    }

    /// To this caller, now. In the newer era there is no connection that remembers a login.
    pub(crate) async fn for_caller(app: &App, caller: &McpCaller) -> Result<Self, AppError> {
        if let Some(own) = &caller.session {
            return Ok(Self::Only(own.session.purpose));
        }
        if caller.era == ProtocolEra::Modern {
            return Ok(Self::Everything);
        }
        let ids = sessions_on(app, &caller.connection).await?;
        Ok(Self::on_connection(app, &caller.connection, &ids).await?.0)
    }

    /// On a connection on which these sessions were opened, and how long that stays so at most.
    pub(crate) async fn on_connection(
        app: &App,
        connection: &McpConnection,
        ids: &[AgentSessionId],
    ) -> Result<(Self, Option<Duration>), AppError> {
        if ids.is_empty() {
            return Ok((Self::Everything, None));
        }
        let (mut task, mut chat) = (false, false);
        let mut first_end: Option<Timestamp> = None;
        for id in ids {
            let Some(session) = app.tenancy.live_session(&connection.tenant, id).await? else {
                continue;
            };
            match session.purpose {
                SessionPurpose::Task => task = true,
                SessionPurpose::Chat => chat = true,
            }
            let end = session.ends_at();
            first_end = Some(first_end.map_or(end, |first| first.min(end)));
        }
        let now = app.runtime.store().now().await?;
        let left = first_end.map(|end| u64::try_from(end.as_millis() - now.as_millis()));
        let left = left.map(|left| Duration::from_millis(left.unwrap_or(0) + 1));
        Ok((Self::Sessions { task, chat }, left))
    }
}

/// More logins on one connection than this are forgotten, the oldest first.
const MAX_SESSIONS: usize = 32;

/// The event in a connection's stream that says that a session was opened on it.
pub(crate) const OPENED: &str = "session";

#[derive(Deserialize)]
struct SessionEventData {
    session_id: AgentSessionId,
}

pub(crate) fn session_opened_event(id: &AgentSessionId) -> NewEvent {
    NewEvent::from_value(OPENED, &json!({ "session_id": id }))
}

/// Adds the session that an event tells of.
pub(crate) fn add_opened(ids: &mut Vec<AgentSessionId>, data: &str) {
    if let Ok(opened) = serde_json::from_str::<SessionEventData>(data) {
        ids.push(opened.session_id);
        if ids.len() > MAX_SESSIONS {
            ids.remove(0);
        }
    }
}

/// Sessions that were opened on a connection.
pub(crate) async fn sessions_on(
    app: &App,
    connection: &McpConnection,
) -> Result<Vec<AgentSessionId>, AppError> {
    let mut ids = Vec::new();
    app.tenancy
        .read_connection(connection, |event| {
            if event.kind == OPENED {
                add_opened(&mut ids, event.data);
            }
        })
        .await?;
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shikiri_model::team::SessionRequirement;

    #[test]
    fn sessions_hide_what_none_of_them_may_use() {
        let both = ToolVisibility::Sessions { task: true, chat: true };
        let task = ToolVisibility::Sessions { task: true, chat: false };
        let none = ToolVisibility::Sessions { task: false, chat: false };
        let only = ToolVisibility::Only(SessionPurpose::Chat);
        for (requires, expected) in [
            (Some(SessionRequirement::Nothing), [true, true, true, true, true]),
            (Some(SessionRequirement::Session), [true, true, true, false, true]),
            (Some(SessionRequirement::TaskSession), [true, true, true, false, false]),
            (Some(SessionRequirement::ChatSession), [true, true, false, false, true]),
            (None, [true, true, true, true, false]),
        ] {
            let permission = requires.map(|requires| ToolPermission { tool: "a_tool", requires });
            let all = [ToolVisibility::Everything, both, task, none, only];
            let found = all.map(|visibility| visibility.includes(permission));
            assert_eq!(found, expected, "{requires:?}");
        }
    }
}
