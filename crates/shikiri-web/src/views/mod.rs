//! What the outside sees of things, as JSON. The command line prints the same.

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
mod server;
mod skill;
mod team;
mod tenant;
mod usage;

use serde::Serialize;
use shikiri_model::record::Position;
use utoipa::ToSchema;

pub use audit::{AuditJson, AuditPage};
pub use conversation::{ConversationJson, ConversationStatusJson, MessageJson};
pub use dialogue::{
    DelegationJson, DelegationStatusJson, DialogueJson, DialogueLineJson, DialogueStateJson,
    TeamMessageJson,
};
pub use execution::{ExecutionJson, UsageJson};
pub(crate) use execution::{ToolCallJson, UsageRowJson, Whole};
pub use file::FileJson;
pub use hook::{HookLogJson, HookStatsJson, SubagentJson, SubagentStateJson};
pub(crate) use key::KeyScopeJson;
pub use key::{KeyJson, MadeKey};
pub use lane::{InquiryJson, LaneJson};
pub use model::{EngineJson, ModelJson, StatusJson};
pub use run::RunJson;
pub(crate) use run::Status as RunStatusJson;
pub use server::{ServerCheckJson, ServerJson, ServerTypeJson};
pub use skill::SkillJson;
pub use team::{
    AgentKindJson, ProjectJson, RankJson, SpawnJson, TaskJson, TaskStatusJson, TeamAgentJson,
};
pub use tenant::TenantJson;
pub(crate) use tenant::{EgressJson, Status as TenantStatusJson};
pub use usage::UsageReportJson;

/// A page of a list.
#[derive(Serialize, ToSchema)]
pub struct Page<T> {
    items: Vec<T>,
    /// Where the next page starts; null on the last.
    next_cursor: Option<String>,
}

impl<T> Page<T> {
    pub fn new<U>((items, next): (Vec<U>, Option<Position>)) -> Self
    where
        T: From<U>,
    {
        Self {
            items: items.into_iter().map(T::from).collect(),
            next_cursor: next.map(|position| position.encode()),
        }
    }
}
