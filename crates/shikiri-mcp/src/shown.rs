//! Which tools a caller is shown. What it may call is decided elsewhere, at each call.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use shikiri_app::{App, AppError};
use shikiri_model::connection::Connection;
use shikiri_model::event::NewEvent;
use shikiri_model::ids::AgentSessionId;
use shikiri_model::team::{self, Purpose};
use shikiri_model::time::Timestamp;

use crate::client::{Caller, Era};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Everything,
    /// No team tools but what sessions of these purposes may use.
    Sessions {
        task: bool,
        chat: bool,
    },
    /// Nothing but what a session of this purpose may use.
    Only(Purpose),
}

impl Shown {
    pub(crate) fn has(self, tool: &str) -> bool {
        let allows = |caller| team::allows(tool, caller);
        match self {
            Self::Everything => true,
            Self::Only(purpose) => allows(team::Caller::Session(purpose)),
            Self::Sessions { .. } if team::need_of(tool).is_none() => true,
            Self::Sessions { task, chat } => {
                allows(team::Caller::Nobody)
                    || task && allows(team::Caller::Session(Purpose::Task))
                    || chat && allows(team::Caller::Session(Purpose::Chat))
            }
        }
    }

    /// To this caller, now. In the newer era there is no connection that remembers a login.
    pub(crate) async fn to(app: &App, caller: &Caller) -> Result<Self, AppError> {
        if let Some(own) = &caller.session {
            return Ok(Self::Only(own.session.purpose));
        }
        if caller.era == Era::Modern {
            return Ok(Self::Everything);
        }
        let ids = sessions_on(app, &caller.connection).await?;
        Ok(Self::on_connection(app, &caller.connection, &ids).await?.0)
    }

    /// On a connection on which these sessions were opened, and how long that stays so at most.
    pub(crate) async fn on_connection(
        app: &App,
        connection: &Connection,
        ids: &[AgentSessionId],
    ) -> Result<(Self, Option<Duration>), AppError> {
        if ids.is_empty() {
            return Ok((Self::Everything, None));
        }
        let (mut task, mut chat) = (false, false);
        let mut first_end: Option<Timestamp> = None;
        for id in ids {
            let Some(session) = app.living_session(&connection.tenant, id).await? else { continue };
            match session.purpose {
                Purpose::Task => task = true,
                Purpose::Chat => chat = true,
            }
            let end = session.ends_at();
            first_end = Some(first_end.map_or(end, |first| first.min(end)));
        }
        let now = app.store().now().await?;
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
struct Opened {
    session_id: AgentSessionId,
}

pub(crate) fn opened(id: &AgentSessionId) -> NewEvent {
    NewEvent::from_value(OPENED, &json!({ "session_id": id }))
}

/// Adds the session that an event tells of.
pub(crate) fn add_opened(ids: &mut Vec<AgentSessionId>, data: &str) {
    if let Ok(opened) = serde_json::from_str::<Opened>(data) {
        ids.push(opened.session_id);
        if ids.len() > MAX_SESSIONS {
            ids.remove(0);
        }
    }
}

/// Sessions that were opened on a connection.
pub(crate) async fn sessions_on(
    app: &App,
    connection: &Connection,
) -> Result<Vec<AgentSessionId>, AppError> {
    let mut ids = Vec::new();
    app.read_connection(connection, |event| {
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

    #[test]
    fn sessions_hide_what_none_of_them_may_use() {
        let both = Shown::Sessions { task: true, chat: true };
        let task = Shown::Sessions { task: true, chat: false };
        let none = Shown::Sessions { task: false, chat: false };
        let only = Shown::Only(Purpose::Chat);
        for (tool, shown) in [
            ("authenticate", [true, true, true, true, true]),
            ("help", [true, true, true, false, true]),
            ("get_next_action", [true, true, true, false, false]),
            ("send_message", [true, true, false, false, true]),
            ("run_list", [true, true, true, true, false]),
        ] {
            let all = [Shown::Everything, both, task, none, only];
            assert_eq!(all.map(|shown| shown.has(tool)), shown, "{tool}");
        }
    }
}
