//! Lanes: every instance of an agent has its own chats at the providers, and nobody else's.
//!
//! Who calls is settled first (`identity`), and only by what cannot be mistaken: a process, a
//! connection, a token, a subagent. A lane (`record`) holds that caller's chats. What was asked is
//! kept beside it (`inquiry`), so that a lane may end and history does not.

mod files;
#[cfg(test)]
mod files_tests;
mod identity;
mod inquiry;
mod limits;
mod place;
mod record;
mod url;

pub use files::{Entry, FileError, ImportPlan, SessionsFile, export, plan_import, read_sessions};
pub use identity::{Identity, Way};
pub use inquiry::{Inquiry, InquiryError, InquiryState, Sent, Timings};
pub use limits::{DEFAULT_MAX_LANES, DEFAULT_TTL_MINUTES, LaneLimits, MAX_QUESTION};
pub use place::{AllBusy, Find, find, make_room};
pub use record::{Lane, Roster, Tab, Thread};
pub use url::{is_conversation, is_web};
