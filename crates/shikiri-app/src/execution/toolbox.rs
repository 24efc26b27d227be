//! The tools of one turn, for engines that call tools themselves. An engine that is a program of its
//! own brings its tools along and is only told of servers.

use async_trait::async_trait;
use serde_json::Value;

#[async_trait]
pub trait ToolBox: Send + Sync + 'static {
    /// What there is, under names that no two tools share. It stays the same for the whole turn.
    fn tools(&self) -> &[Tool];

    /// Calls one of them. Whatever goes wrong is the model's to know, so it is an answer as well: an
    /// unknown name, arguments that do not fit, a server that is away. Dropping the future gives the
    /// call up; what it has done by then is done.
    async fn call(&self, name: &str, input: &Value) -> Answer;
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// As the model calls it: `mcp__server__tool` for those of a server.
    pub name: String,
    pub description: String,
    /// JSON Schema of an object.
    pub input_schema: Value,
    /// Calling it once more does no harm, so a call whose outcome is unknown may be made again.
    pub is_repeatable: bool,
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub content: Vec<Piece>,
    pub is_error: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Text(String),
    /// In base64.
    Image {
        media_type: String,
        data: String,
    },
}

impl Answer {
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Piece::Text(text.into())], is_error: false }
    }

    pub fn error(text: impl Into<String>) -> Self {
        Self { content: vec![Piece::Text(text.into())], is_error: true }
    }
}

/// A turn without tools.
pub struct NoTools;

#[async_trait]
impl ToolBox for NoTools {
    fn tools(&self) -> &[Tool] {
        &[]
    }

    async fn call(&self, name: &str, _input: &Value) -> Answer {
        Answer::error(format!("there is no tool {name}"))
    }
}
