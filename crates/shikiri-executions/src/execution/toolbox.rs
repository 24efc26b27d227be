//! The tools of one turn, for engines that call tools themselves. An engine that is a separate
//! program has its own tools and is only given servers.

use async_trait::async_trait;
use serde_json::Value;

#[async_trait]
pub trait ToolBox: Send + Sync + 'static {
    /// The tools, under unique names. The list stays the same for the whole turn.
    fn tools(&self) -> &[ToolSpec];

    /// Calls a tool. Every failure is an answer for the model: an unknown name, invalid arguments,
    /// an unreachable server. Dropping the future abandons the call but does not undo its effects.
    async fn call(&self, name: &str, input: &Value) -> ToolCallResult;
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// The name that the model uses: `mcp__server__tool` for a server's tool.
    pub name: String,
    pub description: String,
    /// JSON Schema of an object.
    pub input_schema: Value,
    /// Whether repeating a call is harmless. A call with an unknown outcome may then be repeated.
    pub is_repeatable: bool,
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCallResult {
    pub content: Vec<ToolContent>,
    pub is_error: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ToolContent {
    Text(String),
    /// In base64.
    Image {
        media_type: String,
        data: String,
    },
}

impl ToolCallResult {
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![ToolContent::Text(text.into())], is_error: false }
    }

    pub fn error(text: impl Into<String>) -> Self {
        Self { content: vec![ToolContent::Text(text.into())], is_error: true }
    }
}

/// A turn without tools.
pub struct NoTools;

#[async_trait]
impl ToolBox for NoTools {
    fn tools(&self) -> &[ToolSpec] {
        &[]
    }

    async fn call(&self, name: &str, _input: &Value) -> ToolCallResult {
        ToolCallResult::error(format!("there is no tool {name}"))
    }
}
