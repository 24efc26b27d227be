//! Shikiri's MCP door: agents as tools for any MCP client, in both eras of the protocol.
//!
//! A transport (`http`, `stdio`) reads messages and knows which era they are of; `server` answers
//! them, at once or by following a run (`call`). What must outlive a process is in the store: a
//! connection is a record, its stream holds what was sent on it, a question is the run's.

mod answers;
mod call;
mod calls;
mod catalogue;
mod client;
mod daily;
mod digest;
mod fault;
mod http;
mod listen;
mod lists;
mod message;
mod notices;
mod question;
mod receipts;
mod run_view;
mod server;
mod shown;
mod stated;
mod stdio;
mod tasks;
mod tools;
mod unique_json;

pub use catalogue::{Extras, Following, Listed, PromptSource, ResourceSource, ShortTool};
pub use client::{Caller, Era, OwnSession};
pub use fault::Fault;
pub use http::router;
pub use listen::Change;
pub use receipts::Receipts;
pub use rmcp::model;
pub use run_view::tool_error;
pub use server::{Mcp, McpOptions};
pub use stdio::serve_stdio;
