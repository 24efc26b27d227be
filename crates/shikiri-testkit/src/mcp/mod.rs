//! Raw MCP clients: they send exactly what a test wants, right or wrong, and show status, headers
//! and every event of what comes back. No library of the protocol stands between.

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

/// Nothing that a test waits for may take longer, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the door is.
const PATH: &str = "/mcp";
/// What a client of the protocol takes.
const ACCEPT: &str = "application/json, text/event-stream";
