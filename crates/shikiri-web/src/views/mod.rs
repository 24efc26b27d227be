//! The JSON views of records, for the REST API and the command line.

mod audit;
mod conversation;
mod dialogue;
mod execution;
mod file;
mod hook;
mod key;
mod lane;
mod model;
mod run;
mod schemas;
mod server;
mod skill;
mod team;
mod tenant;
mod usage;
mod words;

use serde::Serialize;
use shikiri_model::record::RecordPosition;
use utoipa::ToSchema;

pub use audit::AuditPage;
pub use conversation::{ConversationJson, MessageJson};
pub use dialogue::{DelegationJson, DialogueJson, DialogueLineJson, TeamMessageJson};
pub use execution::ExecutionJson;
pub(crate) use execution::{ToolCallJson, UnpagedList, UsageRowJson};
pub use file::FileJson;
pub use hook::{HookSessionJson, HookSpendingJson, SubagentJson};
pub(crate) use key::KeyScopeJson;
pub use key::{CreatedKeyJson, KeyJson};
pub use lane::{InquiryJson, LaneJson};
pub use model::ModelJson;
pub use run::{OpenQuestionJson, RunJson};
pub(crate) use schemas::{HookLogSchema, HookStatsSchema};
pub use server::{ServerCheckJson, ServerJson, ServerTypeJson};
pub use skill::SkillJson;
pub use team::{ProjectJson, TaskJson, TeamAgentJson};
pub use tenant::TenantJson;
pub use usage::UsageReportJson;
pub use words::Word;
pub(crate) use words::*;

/// A page of a list.
#[derive(Serialize, ToSchema)]
#[schema(as = Page)]
pub struct ListPage<T> {
    items: Vec<T>,
    /// Where the next page starts; null on the last.
    next_cursor: Option<String>,
}

impl<T> ListPage<T> {
    pub fn new<U>((items, next): (Vec<U>, Option<RecordPosition>)) -> Self
    where
        T: From<U>,
    {
        Self {
            items: items.into_iter().map(T::from).collect(),
            next_cursor: next.map(|position| position.encode()),
        }
    }
}
