//! OpenAPI schemas of the model's enums.
//!
//! The model does not know OpenAPI, so each enum has a schema type here. Its values are taken from
//! serde, so that schema and JSON agree.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use shikiri_model::audit::AuditAction;
use shikiri_model::conversation::ConversationStatus;
use shikiri_model::execution::MessageKind;
use shikiri_model::hook::SubagentState;
use shikiri_model::lane::{ProviderQuestionState, SendStatus};
use shikiri_model::models::{ActiveStatus, EngineKind};
use shikiri_model::run::{QuestionKind, RunStatus};
use shikiri_model::team::{
    AgentKind, AgentRank, DelegationStatus, DialogueEndReason, DialogueState, SpawnPolicy,
    TaskStatus,
};
use shikiri_model::tenant::{EgressPolicy, TenantStatus};
use shikiri_model::tool::ToolChangeKind;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// An enum whose values are single words in JSON.
pub trait Word: Copy + Send + Sync + Serialize + DeserializeOwned + 'static {
    /// All values, in display order.
    const ALL: &'static [Self];

    fn word(self) -> String {
        match serde_json::to_value(self) {
            Ok(Value::String(word)) => word,
            _ => String::new(),
        }
    }

    fn parse(word: &str) -> Option<Self> {
        serde_json::from_value(Value::from(word)).ok()
    }
}

macro_rules! words {
    ($($(#[doc = $doc:literal])* $schema:ident, $name:literal: $model:ident {
        $($variant:ident),+
    })+) => {$(
        impl Word for $model {
            const ALL: &'static [Self] = {
                // Does not compile if the model has a value that is not listed.
                const fn check(word: $model) -> $model {
                    match word { $($model::$variant => word),+ }
                }
                &[$(check($model::$variant)),+]
            };
        }

        pub(crate) enum $schema {}

        impl PartialSchema for $schema {
            fn schema() -> RefOr<Schema> {
                let doc: &[&str] = &[$($doc),*];
                let doc = doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n");
                let schema = ObjectBuilder::new()
                    .schema_type(Type::String)
                    .description(Some(doc).filter(|doc| !doc.is_empty()))
                    .enum_values(Some($model::ALL.iter().map(|value| value.word())));
                Schema::Object(schema.build()).into()
            }
        }

        impl ToSchema for $schema {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }
        }
    )+};
}

words! {
    /// What is inactive is kept and not used.
    ActiveStatusSchema, "Status": ActiveStatus { Active, Inactive }
    AgentKindSchema, "AgentKind": AgentKind { Ai, Human }
    AuditActionSchema, "AuditAction": AuditAction { Create, Change, Remove }
    ConversationStatusSchema, "ConversationStatus": ConversationStatus { Active, Archived }
    DelegationStatusSchema, "DelegationStatus": DelegationStatus {
        Pending, Processing, Completed, Failed
    }
    DialogueStateSchema, "DialogueState": DialogueState { Pending, Active, Ended }
    /// Where runs may connect to besides their own model API, tools and MCP servers: nowhere, public
    /// addresses, or private ones too. The host's own addresses are never reachable.
    EgressSchema, "EgressPolicy": EgressPolicy { None, Public, Open }
    EndReasonSchema, "EndReason": DialogueEndReason {
        InitiatorEnded, ParticipantEnded, MaxTurns, Timeout, SessionExpired, Cancelled
    }
    EngineSchema, "Engine": EngineKind { ClaudeCode, Anthropic, Bedrock, Offline }
    MessageKindSchema, "MessageType": MessageKind { System, Assistant, User, Result }
    QuestionKindSchema, "QuestionKind": QuestionKind { Human, Model, Roots }
    RankSchema, "Rank": AgentRank { Manager, Worker }
    RunStatusSchema, "RunStatus": RunStatus {
        Queued, Running, Waiting, Completed, Failed, Cancelled
    }
    SendStatusSchema, "Sent": SendStatus { No, Yes, Unknown }
    /// Whether the server starts the agent when there is work for it.
    SpawnSchema, "Spawn": SpawnPolicy { Auto, Never }
    ProviderQuestionStateSchema, "InquiryStatus": ProviderQuestionState { Asking, Answered, Failed }
    SubagentStateSchema, "SubagentState": SubagentState { Active, Ended }
    TaskStatusSchema, "TaskStatus": TaskStatus { Todo, InProgress, Blocked, Done }
    TenantStatusSchema, "TenantStatus": TenantStatus { Active, Inactive }
    ToolChangeKindSchema, "ToolChangeKind": ToolChangeKind { Changed, Added, Removed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_json_and_lead_back_to_their_values() {
        let words = <TaskStatus as Word>::ALL.iter().map(|status| status.word());
        assert_eq!(words.collect::<Vec<_>>(), ["todo", "in_progress", "blocked", "done"]);
        assert_eq!(TaskStatus::parse("in_progress"), Some(TaskStatus::InProgress));
        assert_eq!(TaskStatus::parse("InProgress"), None);
    }
}
