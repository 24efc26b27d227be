//! Who is at the other end: which era of the protocol they speak and what they can do.

use std::sync::Arc;

use rmcp::model::TASKS_EXTENSION_ID;
use serde_json::Value;
use shikiri_model::connection::{ClientInfo, Connection, LogLevel};
use shikiri_model::key::Secret;
use shikiri_model::lane::Identity;
use shikiri_model::run::QuestionKind;
use shikiri_model::team::AgentSession;
use tokio_util::sync::CancellationToken;

use crate::fault::Fault;
use crate::message::Request;
use crate::receipts::Receipts;

/// The protocol has two: before 2026-07-28 a client connects first and streams can be resumed;
/// since then every request stands alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    Legacy,
    Modern,
}

/// The revisions with a handshake, newest first.
pub(crate) const LEGACY: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];
/// The revision without.
pub(crate) const MODERN: &str = "2026-07-28";
/// What a client says of itself is kept with every connection.
const MAX_CAPABILITIES: usize = 16 * 1024;
/// From this revision on a stream begins with an id to resume it by.
const PRIMED_SINCE: &str = "2025-11-25";

/// One caller of one request.
#[derive(Clone, Debug)]
pub struct Caller {
    pub connection: Arc<Connection>,
    pub era: Era,
    /// What the client said it can do.
    pub capabilities: Arc<Value>,
    /// The least level of log message that it wants.
    pub log_level: Option<LogLevel>,
    /// Which living process or connection of which agent this is.
    pub identity: Identity,
    /// In place of a key it came with an agent's session, which opens nothing but team tools.
    pub session: Option<Arc<OwnSession>>,
    /// Cancelled when it no longer waits for the answer, or the process drains.
    pub given_up: CancellationToken,
    /// For what the answer shows, confirmed as it is written.
    pub receipts: Receipts,
}

/// The session that a caller is.
#[derive(Debug)]
pub struct OwnSession {
    pub token: Secret,
    pub session: AgentSession,
}

impl Caller {
    /// In the older era everything was said when the connection was opened.
    pub(crate) fn connected(
        connection: Arc<Connection>,
        identity: Identity,
        session: Option<Arc<OwnSession>>,
        given_up: CancellationToken,
    ) -> Self {
        let log_level = Some(connection.log_level.unwrap_or(LogLevel::Info));
        let capabilities = Arc::new(connection.capabilities.clone());
        let era = Era::Legacy;
        let receipts = Receipts::default();
        Self { connection, era, capabilities, log_level, identity, session, given_up, receipts }
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
        self.era == Era::Modern
            && self.capabilities["extensions"].get(TASKS_EXTENSION_ID).is_some_and(Value::is_object)
    }

    pub(crate) fn primes_streams(&self) -> bool {
        self.era == Era::Legacy && self.connection.protocol.as_str() >= PRIMED_SINCE
    }

    fn has(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(Value::is_object)
    }
}

/// What `initialize` says about its sender: the revision to speak, the client, what it can do.
pub(crate) fn introduced(
    request: &Request,
    wanted: &str,
) -> Result<(String, ClientInfo, Value), Fault> {
    // A revision that we do not know, or one without a handshake, gets our newest with one.
    let protocol = LEGACY.into_iter().find(|known| *known == wanted).unwrap_or(LEGACY[0]);
    let capabilities = match request.params.get("capabilities") {
        Some(capabilities @ Value::Object(_))
            if capabilities.to_string().len() <= MAX_CAPABILITIES =>
        {
            capabilities.clone()
        }
        Some(Value::Object(_)) => return Err(Fault::params("capabilities: are over 16 KiB")),
        _ => return Err(Fault::params("capabilities: must be an object")),
    };
    let client = client_info(request.params.get("clientInfo"))
        .ok_or_else(|| Fault::params("clientInfo: must have a name"))?;
    Ok((protocol.to_owned(), client, capabilities))
}

/// A client's word about itself: kept, but not at any length, and never acted upon.
pub(crate) fn client_info(value: Option<&Value>) -> Option<ClientInfo> {
    let text = |name: &str| value.and_then(|info| info[name].as_str());
    let short = |text: &str| text.chars().take(100).collect::<String>();
    Some(ClientInfo {
        name: short(text("name")?),
        version: text("version").map(short).unwrap_or_default(),
    })
}
