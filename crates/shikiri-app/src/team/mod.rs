//! Teams: projects, agents and tasks; logins; delegations and dialogues.
//!
//! Every use case loads records, lets the model decide, and commits all that follows in one piece:
//! the records, what is said in the log, what waits for whom, and a ring of the bell for each agent
//! that is concerned. Whoever waits hears the bell and looks again.

mod coordinator;
mod delegations;
mod desk;
mod draft;
mod hand_out;
mod inbox;
mod keeper;
mod login;
mod messages;
mod oversight;
mod passkey;
mod receipt;
mod setup;
mod talk;
mod transcript;
mod tries;
mod undertaking;
mod wait;
mod work;

use shikiri_model::team::{Refusal, RefusalCode};
use shikiri_store::{CommitError, StoreError};

use crate::error::AppError;

pub use coordinator::Coordinator;
pub use desk::Desk;
pub use inbox::{Invitation, NewDelegation, NewMessage, Pending};
pub(crate) use keeper::keep_time;
pub use login::Login;
pub use oversight::TaskPatch;
pub(crate) use receipt::Arrivals;
pub use receipt::Receipt;
pub use setup::{NewAgent, NewTask};
pub use talk::{Conversation, Spoken, Started};
pub use transcript::{Line, Transcript};
pub(crate) use tries::Tries;
pub use work::Action;

/// Why a team's tool did nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TeamError {
    /// The caller can mend it.
    #[error(transparent)]
    Refused(#[from] Refusal),
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

/// An id that a caller gave; one of the wrong form names nothing.
pub(crate) fn parse_id<T: std::str::FromStr>(text: &str, code: RefusalCode) -> Result<T, Refusal> {
    text.parse().map_err(|_| {
        let start: String = text.chars().take(40).collect();
        code.because(format!("there is no {start:?}"))
    })
}

/// Does it again while somebody else was first.
macro_rules! until_settled {
    ($what:expr, $attempt:expr) => {{
        for _ in 0..$crate::app::max_tries() {
            if let Some(done) = $attempt {
                return Ok(done);
            }
        }
        Err($crate::app::busy("team", $what).into())
    }};
}
pub(crate) use until_settled;
