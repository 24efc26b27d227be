use std::collections::BTreeMap;

use serde::Serialize;
use shikiri_model::ids::{InquiryId, LaneId, RunId};
use shikiri_model::lane::{
    AskTimings, Lane, ProviderChat, ProviderQuestion, ProviderQuestionError, ProviderQuestionState,
    SendStatus, TabId,
};
use shikiri_model::record::StoredDocument;
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

use super::schemas::{InquiryErrorSchema, TimingsSchema};
use super::words::{ProviderQuestionStateSchema, SendStatusSchema};

/// An agent's own chats at the providers.
#[derive(Serialize, ToSchema)]
#[schema(as = Lane)]
pub struct LaneJson {
    #[schema(value_type = String)]
    id: LaneId,
    /// The instance, with the subagent if it is one's: `claude-code-12345`.
    name: String,
    agent: String,
    /// Whoever comes back under this agent's name gets the chats back.
    is_declared: bool,
    instance: String,
    subagent: Option<String>,
    state: LaneStateJson,
    #[schema(value_type = String, format = DateTime)]
    last_access: Timestamp,
    /// When it ends unless it is used.
    #[schema(value_type = String, format = DateTime)]
    ends_at: Timestamp,
    /// By provider.
    threads: BTreeMap<String, ThreadJson>,
    /// Providers to which a question is being put.
    in_flight: Vec<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LaneState)]
enum LaneStateJson {
    Open,
    Ended,
}

/// A chat at a provider.
#[derive(Serialize, ToSchema)]
#[schema(as = ProviderThread)]
struct ThreadJson {
    url: Option<String>,
    /// A browser's target id; a number if it was imported.
    #[schema(value_type = Option<Object>)]
    tab_id: Option<TabId>,
}

impl From<StoredDocument<Lane>> for LaneJson {
    fn from(stored: StoredDocument<Lane>) -> Self {
        let StoredDocument { created_at, updated_at, value: lane, .. } = stored;
        let thread = |thread: ProviderChat| ThreadJson { url: thread.url, tab_id: thread.tab };
        Self {
            ends_at: lane.ends_at(),
            id: lane.id,
            name: lane.name,
            agent: lane.agent,
            is_declared: lane.is_declared,
            instance: lane.instance,
            subagent: lane.subagent,
            state: if lane.is_ended { LaneStateJson::Ended } else { LaneStateJson::Open },
            last_access: lane.last_access,
            threads: lane.threads.into_iter().map(|(p, t)| (p, thread(t))).collect(),
            in_flight: lane.in_flight.into_keys().collect(),
            created_at,
            updated_at,
        }
    }
}

/// A question that was put to a provider.
#[derive(Serialize, ToSchema)]
#[schema(as = Inquiry)]
pub struct InquiryJson {
    #[schema(value_type = String)]
    id: InquiryId,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    agent: String,
    instance: String,
    subagent: Option<String>,
    lane: String,
    /// An agent's session, or else Claude Code's, or else the connection.
    session: Option<String>,
    /// The run that asked.
    #[schema(value_type = String)]
    execution: RunId,
    project: String,
    provider: String,
    question: String,
    /// Text of a web page: not to be trusted.
    answer: Option<String>,
    url: Option<String>,
    #[schema(value_type = ProviderQuestionStateSchema)]
    status: ProviderQuestionState,
    /// Whether the provider has the question.
    #[schema(value_type = SendStatusSchema)]
    sent: SendStatus,
    #[schema(value_type = Option<InquiryErrorSchema>)]
    error: Option<ProviderQuestionError>,
    #[schema(value_type = TimingsSchema)]
    timings: AskTimings,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
}

impl From<StoredDocument<ProviderQuestion>> for InquiryJson {
    fn from(StoredDocument { value, .. }: StoredDocument<ProviderQuestion>) -> Self {
        Self {
            id: value.id,
            at: value.asked_at,
            agent: value.agent,
            instance: value.instance,
            subagent: value.subagent,
            lane: value.lane_name,
            session: value.session,
            execution: value.execution,
            project: value.project,
            provider: value.provider,
            question: value.question,
            answer: value.answer,
            url: value.url,
            status: value.state,
            sent: value.sent,
            error: value.error,
            timings: value.timings,
            ended_at: value.ended_at,
        }
    }
}
