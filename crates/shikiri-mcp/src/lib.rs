//! Shikiri's MCP server: agents as tools for any MCP client, in both eras of the protocol.
//!
//! [`McpService`] answers requests. Two transports serve it: [`router`] over Streamable HTTP at
//! `/mcp`, and [`serve_stdio`] over a pair of pipes. Each turns a message into a request with its
//! [`McpCaller`]: who calls, in which [`ProtocolEra`], with which capabilities. The answer comes at
//! once or by following a run.
//!
//! What the server offers is a catalogue: every agent of the app is a tool, and [`McpExtras`] adds
//! tools ([`BuiltinTool`]), resources and prompts to the built-in ones.
//!
//! What must outlive a process is in the store: a connection is a record, its stream holds what was
//! sent on it, a question belongs to its run.
//!
//! To find your way, read `README.md` beside this file, which explains the two eras, then
//! `server.rs`, then `tools_call.rs`.

mod agent_call;
mod catalogue;
mod client_responses;
mod http;
mod list_methods;
mod mcp_caller;
mod message;
mod modern_connection;
mod notification_stream;
mod request_digest;
mod request_meta;
mod request_receipts;
mod rpc_error;
mod run_follower;
mod run_questions;
mod run_view;
mod server;
mod stdio;
mod subscriptions_listen;
mod tasks;
mod tool_groups;
mod tool_visibility;
mod tools;
mod tools_call;
mod unique_json;

pub use catalogue::{
    BuiltinTool, CataloguePage, McpExtras, PromptSource, ResourceSource, RunWaitRequest,
};
pub use http::router;
pub use mcp_caller::{McpCaller, McpCallerSession, ProtocolEra};
pub use request_receipts::RequestReceipts;
pub use rmcp::model;
pub use rpc_error::{RPC_ERRORS, RpcError};
pub use run_view::tool_error;
pub use server::{McpOptions, McpService};
pub use stdio::serve_stdio;
pub use subscriptions_listen::ListChange;
pub use tool_groups::{ToolGroup, ToolSelection};
pub use tools::RunToolErrorCode;
