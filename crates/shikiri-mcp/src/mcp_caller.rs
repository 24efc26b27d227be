//! The caller of a request: its era of the protocol, its capabilities and its identity.

use std::sync::Arc;

use rmcp::model::TASKS_EXTENSION_ID;
use serde_json::Value;
use shikiri_model::connection::{ClientInfo, LogLevel, McpConnection};
use shikiri_model::key::SecretToken;
use shikiri_model::lane::CallerIdentity;
use shikiri_model::run::QuestionKind;
use shikiri_model::team::AgentSession;
use tokio_util::sync::CancellationToken;

use crate::message::RpcRequest;
use crate::request_receipts::RequestReceipts;
use crate::rpc_error::RpcError;
use crate::tool_groups::ToolSelection;

/// The protocol has two: before 2026-07-28 a client connects first and streams can be resumed;
/// since then every request stands alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolEra {
    Legacy,
    Modern,
}

/// The revisions with a handshake, newest first.
pub(crate) const LEGACY: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];
/// The revision without.
pub(crate) const MODERN: &str = "2026-07-28";
/// From this revision on a tool's result may link to a resource.
const LINKED_SINCE: &str = "2025-06-18";
/// What a client says of itself is kept with every connection.
const MAX_CAPABILITIES: usize = 16 * 1024;
/// From this revision on a stream begins with an id to resume it by.
const PRIMED_SINCE: &str = "2025-11-25";

/// One caller of one request.
#[derive(Clone, Debug)]
pub struct McpCaller {
    pub connection: Arc<McpConnection>,
    pub era: ProtocolEra,
    /// What the client said it can do.
    pub capabilities: Arc<Value>,
    /// The least level of log message that it wants.
    pub log_level: Option<LogLevel>,
    /// The agent, and which process or connection of it calls.
    pub identity: CallerIdentity,
    /// In place of a key it came with an agent's session, which opens nothing but team tools.
    pub session: Option<Arc<McpCallerSession>>,
    /// The tools that it asked for.
    pub tools: ToolSelection,
    /// Cancelled when the caller no longer waits for the answer, or the process drains.
    pub cancel_token: CancellationToken,
    /// For what the answer shows, confirmed as it is written.
    pub receipts: RequestReceipts,
}

/// The agent session whose token a caller came with.
#[derive(Debug)]
pub struct McpCallerSession {
    pub token: SecretToken,
    pub session: AgentSession,
}

impl McpCaller {
    /// In the older era everything was said when the connection was opened.
    pub(crate) fn on_connection(
        connection: Arc<McpConnection>,
        identity: CallerIdentity,
        session: Option<Arc<McpCallerSession>>,
        tools: ToolSelection,
        cancel_token: CancellationToken,
    ) -> Self {
        let log_level = Some(connection.log_level.unwrap_or(LogLevel::Info));
        let capabilities = Arc::new(connection.capabilities.clone());
        let era = ProtocolEra::Legacy;
        let receipts = RequestReceipts::default();
        Self {
            connection,
            era,
            capabilities,
            log_level,
            identity,
            session,
            tools,
            cancel_token,
            receipts,
        }
    }

    pub(crate) fn can_answer(&self, kind: QuestionKind) -> bool {
        match kind {
            // Nothing in it means forms, as does the word itself; addresses alone do not.
            QuestionKind::Human => match self.capabilities.get("elicitation") {
                Some(Value::Object(modes)) => modes.is_empty() || modes.contains_key("form"),
                _ => false,
            },
            QuestionKind::Model => self.has("sampling"),
            QuestionKind::Roots => self.has("roots"),
        }
    }

    pub(crate) fn has_tasks(&self) -> bool {
        self.era == ProtocolEra::Modern
            && self.capabilities["extensions"].get(TASKS_EXTENSION_ID).is_some_and(Value::is_object)
    }

    pub(crate) fn primes_streams(&self) -> bool {
        self.era == ProtocolEra::Legacy && self.connection.protocol.as_str() >= PRIMED_SINCE
    }

    pub(crate) fn takes_links(&self) -> bool {
        self.era == ProtocolEra::Modern || self.connection.protocol.as_str() >= LINKED_SINCE
    }

    fn has(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(Value::is_object)
    }
}

/// What `initialize` says about its sender: the revision to speak, the client, what it can do.
pub(crate) fn parse_initialize(
    request: &RpcRequest,
    wanted: &str,
) -> Result<(String, ClientInfo, Value), RpcError> {
    if is_too_old(wanted) {
        return Err(RpcError::too_old(wanted, &LEGACY));
    }
    // A revision that we do not know, or one without a handshake, gets our newest with one.
    let protocol = LEGACY.into_iter().find(|known| *known == wanted).unwrap_or(LEGACY[0]);
    let capabilities = match request.params.get("capabilities") {
        Some(capabilities @ Value::Object(_))
            if capabilities.to_string().len() <= MAX_CAPABILITIES =>
        {
            capabilities.clone()
        }
        Some(Value::Object(_)) => return Err(RpcError::params("capabilities: are over 16 KiB")),
        _ => return Err(RpcError::params("capabilities: must be an object")),
    };
    let client = client_info(request.params.get("clientInfo"))
        .ok_or_else(|| RpcError::params("clientInfo: must have a name"))?;
    Ok((protocol.to_owned(), client, capabilities))
}

/// Whether it is the date of a revision before our oldest. Such a client has no use for a newer one.
fn is_too_old(revision: &str) -> bool {
    let is_date = revision.len() == 10
        && revision.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    is_date && LEGACY.into_iter().all(|known| revision < known)
}

/// What a client says about itself: kept at a bounded length, and never acted upon.
pub(crate) fn client_info(value: Option<&Value>) -> Option<ClientInfo> {
    let text = |name: &str| value.and_then(|info| info[name].as_str());
    let short = |text: &str| text.chars().take(100).collect::<String>();
    Some(ClientInfo {
        name: short(text("name")?),
        version: text("version").map(short).unwrap_or_default(),
    })
}
