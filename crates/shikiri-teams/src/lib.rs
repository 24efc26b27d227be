//! Teams: projects, agents and tasks; logins; delegations and dialogues.
//!
//! Every use case loads records, lets the model decide, and commits all consequences at once: the
//! records, the log's events, the inbox items, and a wake-up event for each agent concerned. A
//! waiting session receives that event and looks again.
//!
//! [`Teams`] is the service for people and servers. An agent logs in (`agent_login.rs`) and works through
//! an [`AgentSessionHandle`], whose methods are the tools of a team: `next_action.rs` for task sessions,
//! `inbox_delivery.rs` and `dialogue_lifecycle.rs` for chat sessions. `team_transaction.rs` is how all of
//! them write. `expiry_task.rs` ends what is past its time, and `coordinator/` starts agents that
//! something waits for.

mod agent_changes;
mod agent_login;
mod coordinator;
mod delegations;
mod delivery_receipt;
mod dialogue_lifecycle;
mod dialogue_transcript;
mod expiry_task;
mod inbox;
mod inbox_delivery;
mod login_throttle;
mod message_budgets;
mod messages;
mod next_action;
mod passkey;
mod project_setup;
mod service;
mod session_budget;
mod session_handle;
mod stream_waiter;
mod team_admin;
mod team_removal;
mod team_transaction;

use shikiri_model::team::{RefusalCode, TeamRefusal};
use shikiri_store::{CommitError, StoreError};

use shikiri_runtime::AppError;

pub use agent_changes::TeamAgentPatch;
pub use agent_login::AgentLoginRequest;
pub use coordinator::Coordinator;
pub use delivery_receipt::DeliveryReceipt;
pub use dialogue_lifecycle::{DialogueSendResult, DialogueStartResult, NewDialogue};
pub use dialogue_transcript::{DialogueLine, DialogueTranscript};
pub use expiry_task::ExpiryTask;
pub use inbox::{DialogueInvitation, InboxDelegation, InboxMessage, PendingInbox};
pub use next_action::NextAction;
pub use project_setup::{NewTask, NewTeamAgent};
pub use service::Teams;
pub use session_handle::AgentSessionHandle;
pub use team_admin::TaskPatch;

/// Why a team's tool did nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TeamError {
    /// The caller can fix it.
    #[error(transparent)]
    Refused(#[from] TeamRefusal),
    #[error(transparent)]
    App(#[from] AppError),
}

impl From<StoreError> for TeamError {
    fn from(error: StoreError) -> Self {
        Self::App(error.into())
    }
}

impl From<CommitError> for TeamError {
    fn from(error: CommitError) -> Self {
        Self::App(error.into())
    }
}

impl From<serde_json::Error> for TeamError {
    fn from(error: serde_json::Error) -> Self {
        Self::App(error.into())
    }
}

/// Parses an id that a caller gave. A malformed one counts as not found.
pub(crate) fn parse_id<T: std::str::FromStr>(
    text: &str,
    code: RefusalCode,
) -> Result<T, TeamRefusal> {
    text.parse().map_err(|_| {
        let start: String = text.chars().take(40).collect();
        code.because(format!("there is no {start:?}"))
    })
}
