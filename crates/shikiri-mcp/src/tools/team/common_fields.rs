//! Parts that several team tools have in common.

use serde::Serialize;
use serde_json::Value;
use shikiri_teams::TeamError;

use super::tool_arguments::ArgumentField;
use super::tool_schema::ToolFieldKind::{Choice, Object, Text, Whole};
use super::tool_schema::{ToolField, required};

pub(super) const SESSION_TOKEN: ArgumentField = ArgumentField::new::<Option<String>>(
    "session_token",
    "From authenticate. It may be left out where the Authorization header holds it",
);

/// Descriptions of arguments.
pub(super) const TARGET_AGENT: &str = "Another agent of your project";
pub(super) const CONTENT: &str = "What you say, 1 to 4,000 characters";
pub(super) const CARRIED_OUT: &str = "What it carries out";

pub(super) const CONVERSATION_ID: ToolField = required("conversation_id", Text, "");
pub(super) const STATE: ToolField = required("state", Choice(&["pending", "active", "ended"]), "");
pub(super) const MESSAGE_ID: ToolField = required("message_id", Text, "");
pub(super) const DELEGATION_ID: ToolField = required("delegation_id", Text, "");
pub(super) const TURNS_LEFT: &str = "Messages that may still follow, of both sides";

/// The answer of the tools that send a conversation's next message.
pub(super) const SENT_MESSAGE: &[ToolField] =
    &[MESSAGE_ID, required("turns_left", Whole, TURNS_LEFT), STATE];

/// The answer of the tools that show a delegation.
pub(super) const DELEGATION: &[ToolField] =
    &[required("delegation", Object, ""), DELEGATION_ID, required("status", Text, "")];

pub(super) fn to_json(value: &impl Serialize) -> Result<Value, TeamError> {
    Ok(serde_json::to_value(value)?)
}
