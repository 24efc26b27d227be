//! Lanes: every agent its own chats at the providers.
//!
//! `open` finds the lane of whoever calls and makes room for it, `queue` says when a question may
//! go out, `ask` puts it, and `sweep` ends what nobody uses. All of it is in the store: any number
//! of processes share the lanes of one project without getting in each other's way.

mod agents;
mod ask;
mod begin;
mod driver;
mod files;
mod finish;
mod look;
mod offline;
mod open;
mod queue;
mod refusal;
mod sweep;
mod witness;

use std::sync::Arc;
use std::time::Duration;

use shikiri_model::lane::LaneLimits;

pub use agents::{agents, is_tool};
pub use driver::{
    AskError, Asked, Cause, LaneKey, NotNow, PageDriver, Provider, Question, Stage, Witness,
};
pub use files::Imported;
pub use look::{HistoryQuery, LaneInfo};
pub use offline::{NoBrowser, OfflinePages};
pub use refusal::{LaneCode, LaneRefusal};
pub use shikiri_model::lane::{Sent, Timings};
pub(crate) use sweep::keep_lanes;

/// How lanes are kept and questions are put.
#[derive(Clone, Debug)]
pub struct LaneOptions {
    pub limits: LaneLimits,
    /// Questions that are put at once, by all processes on the store together.
    pub max_questions: u32,
    /// Questions of this process that may wait for their turn.
    pub max_queued: usize,
    /// How long one waits at most.
    pub queue_wait: Duration,
    /// A question whose process is silent for so long is not being put any more.
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

/// What this process has of lanes: the way to the pages, and the order among its own callers.
pub(crate) struct Lanes {
    pub(crate) pages: Arc<dyn PageDriver>,
    queue: queue::Queue,
}

impl Lanes {
    pub(crate) fn new(pages: Arc<dyn PageDriver>) -> Self {
        Self { pages, queue: queue::Queue::default() }
    }
}

impl Default for Lanes {
    fn default() -> Self {
        Self::new(Arc::new(NoBrowser))
    }
}
