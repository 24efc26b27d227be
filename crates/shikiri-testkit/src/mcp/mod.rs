//! Raw MCP clients: they send exactly what a test wants, valid or not, and show status, headers and
//! every event of the response. They use no library of the protocol.

mod exchange;
mod legacy;
mod modern;
mod resuming;
mod stdio;

pub use exchange::{Exchange, Message};
pub use legacy::{Hello, McpClient};
pub use modern::{ModernClient, Prepared};
pub use resuming::{Policy, Resuming, Sent, StreamLog};
pub use stdio::StdioClient;

use std::time::Duration;

/// No expected event may take longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The path of the endpoint.
const PATH: &str = "/mcp";
/// The content types that a client accepts.
const ACCEPT: &str = "application/json, text/event-stream";
