//! Lanes: every agent has its own chats at the providers.
//!
//! `open_lane` finds the lane of a caller and makes room for it, `question_queue` says when a
//! question may go out, `ask_question` asks it, and `lane_sweep` ends lanes that are not used. The
//! state is in the store, so any number of processes share the lanes of one project.
//!
//! # One question
//!
//! 1. `ask_chatgpt_web` is a tool like every agent (`ask_agents`), and asking is a step of its run.
//!    The run's origin holds the caller's identity ([`shikiri_model::lane::CallerIdentity`]):
//!    process, connection or token, and the subagent if the hooks reported one.
//! 2. `ask_question` waits for its turn in this lane (`question_queue`). `acquire_lane` waits for
//!    one of the slots for questions and finds or opens the lane. One commit holds both leases, the
//!    lane and the `ProviderQuestion`.
//! 3. The [`PageDriver`] types the question. Right before it sends, it awaits the [`SendGate`],
//!    which commits that the question is about to be sent (`ask_progress`). Such a question is never
//!    sent again.
//! 4. `record_answer` commits the answer, the chat's address and the release of the leases. Then the
//!    step is over and the caller gets the result.
//! 5. `lane_sweep` ends lanes that are not used; `lane_files` imports and exports them.
//!
//! `docs/decisions/0013-lanes.md` explains why, `shikiri-browser` is the driver for real pages.

mod acquire_lane;
mod ask_agents;
mod ask_progress;
mod ask_question;
mod lane_error;
mod lane_files;
mod lane_queries;
mod lane_sweep;
mod offline;
mod open_lane;
mod page_driver;
mod question_queue;
mod record_answer;
mod service;

use std::sync::Arc;
use std::time::Duration;

use shikiri_model::lane::LaneLimits;

pub use ask_agents::{agents, is_tool};
pub use lane_error::{LaneErrorCode, LaneRefusal};
pub use lane_files::LaneImportReport;
pub use lane_queries::{HistoryQuery, LaneInfo};
pub use lane_sweep::LaneSweep;
pub use offline::{NoBrowser, OfflinePages};
pub use page_driver::{
    AskError, AskErrorCause, AskStage, LaneKey, PageAnswer, PageDriver, PageQuestion, ProviderInfo,
    SendGate, SendRefusal,
};
pub use service::Lanes;
pub use shikiri_model::lane::{AskTimings, SendStatus};

/// Options of lanes and questions.
#[derive(Clone, Debug)]
pub struct LaneOptions {
    pub limits: LaneLimits,
    /// Questions at the same time, over all processes on the store.
    pub max_questions: u32,
    /// Questions of this process that may wait.
    pub max_queued: usize,
    /// The longest wait of a question.
    pub queue_wait: Duration,
    /// The lease of a question: it ends if its process is silent for this long.
    pub lease: Duration,
    /// The project's name, for histories.
    pub project: String,
}

impl Default for LaneOptions {
    fn default() -> Self {
        Self {
            limits: LaneLimits::default(),
            max_questions: 10,
            max_queued: 64,
            queue_wait: Duration::from_secs(300),
            lease: Duration::from_secs(30),
            project: String::new(),
        }
    }
}

/// The lanes of this process: their options, the page driver, and the queue of its own callers.
pub struct LaneRuntime {
    pub(crate) options: LaneOptions,
    pub(crate) pages: Arc<dyn PageDriver>,
    queue: question_queue::QuestionQueue,
}

impl LaneRuntime {
    pub fn new(pages: Arc<dyn PageDriver>, options: LaneOptions) -> Self {
        Self { options, pages, queue: question_queue::QuestionQueue::default() }
    }
}
