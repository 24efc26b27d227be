//! Lanes: every instance of an agent has its own chats at the providers.
//!
//! `caller_identity` identifies the caller, by properties that cannot be confused: process,
//! connection, token and subagent. A [`Lane`] holds that caller's chats. Every question is stored
//! beside it as a [`ProviderQuestion`], so that the history outlives the lane.

mod caller_identity;
mod chat_url;
#[cfg(test)]
mod files_tests;
mod lane_assignment;
mod lane_limits;
mod provider_question;
mod record;
mod sessions_file;

pub use caller_identity::{
    CallerIdentity, CallerOrigin, LANE_HEADER, SHARED_LANE_WARNING, read_lane_handle,
};
pub use chat_url::{is_chat_url, is_web};
pub use lane_assignment::{AllLanesBusy, LaneMatch, choose_evictions, match_lane};
pub use lane_limits::{DEFAULT_MAX_LANES, DEFAULT_TTL_MINUTES, LaneLimits, MAX_QUESTION};
pub use provider_question::{
    AskTimings, ProviderQuestion, ProviderQuestionError, ProviderQuestionState, SendStatus,
};
pub use record::{Lane, LaneCounter, ProviderChat, TabId};
pub use sessions_file::{
    ImportPlan, SessionsFile, SessionsFileEntry, SessionsFileError, export, plan_import,
    read_sessions,
};
