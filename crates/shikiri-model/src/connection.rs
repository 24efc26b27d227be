//! A connection: an MCP session with one client, independent of sockets and nodes.
//!
//! In protocol versions before 2026-07-28 the client opens the session with `initialize` and names
//! it on every request. Newer clients have no session, so a caller gets one connection per day for
//! the record of its calls. A connection lives in the store alone: any node can serve any request
//! of it, and a restart does not affect it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::event::{Seq, StreamId};
use crate::ids::{ConnectionId, QuestionId, RunId, TenantId};
use crate::macros::document;
use crate::record::RecordColumns;
use crate::time::Timestamp;

/// The most subscriptions of one client.
pub const MAX_SUBSCRIPTIONS: usize = 256;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct McpConnection {
    pub id: ConnectionId,
    pub tenant: TenantId,
    /// The principal that opened it. Requests of others are refused.
    pub principal: String,
    pub protocol: String,
    pub client: ClientInfo,
    /// The client's capabilities, in the protocol's form.
    #[serde(default)]
    pub capabilities: Value,
    #[serde(default)]
    pub log_level: Option<LogLevel>,
    #[serde(default)]
    pub subscriptions: Vec<String>,
    /// The approximate time of its last use.
    pub seen_at: Timestamp,
    /// The connection ends after this long without use, because clients do not close it.
    pub idle_limit_ms: u64,
    /// Makes its event ids unguessable.
    pub salt: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    pub name: String,
    #[serde(default)]
    pub version: String,
}

/// The least important log messages that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl McpConnection {
    pub fn stream(&self) -> StreamId {
        connection_stream(&self.id)
    }

    pub fn ends_at(&self) -> Timestamp {
        self.seen_at + Duration::from_millis(self.idle_limit_ms)
    }

    /// Whether `seen_at` should be written now: rarely, but often enough that a connection in use
    /// never comes near its end.
    pub fn is_touch_due(&self, now: Timestamp) -> bool {
        now >= self.seen_at + Duration::from_millis(self.idle_limit_ms / 10)
    }

    /// The protocol's event id for a position.
    pub fn event_id(&self, place: EventPosition) -> EventId {
        let EventPosition { call, seq } = place;
        let high = u128::from(call) << 88 | u128::from(seq) << 56;
        EventId(high | u128::from(self.seal(place)))
    }

    /// The position of an event id; None for an id that this connection never issued.
    pub fn parse_event_id(&self, id: &str) -> Option<EventPosition> {
        // Each number has one notation, so that no two texts are the same id.
        let number: u128 = id.parse().ok().filter(|n: &u128| n.to_string() == id)?;
        let place = EventPosition {
            call: u64::try_from(number >> 88).ok()?,
            seq: u64::try_from(number >> 56 & 0xffff_ffff).ok()?,
        };
        let seal = u64::try_from(number & SEAL_MASK).ok()?;
        let is_ours: bool = seal.to_be_bytes().ct_eq(&self.seal(place).to_be_bytes()).into();
        is_ours.then_some(place)
    }

    fn seal(&self, place: EventPosition) -> u64 {
        let mut hash = Sha256::new();
        for part in [self.salt.as_bytes(), b"\0", self.id.as_str().as_bytes(), b"\0"] {
            hash.update(part);
        }
        hash.update(self.principal.as_bytes());
        hash.update(place.call.to_be_bytes());
        hash.update(place.seq.to_be_bytes());
        let digest = hash.finalize();
        let first = digest.iter().take(7).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        first & u64::try_from(SEAL_MASK).unwrap_or(u64::MAX)
    }
}

const SEAL_MASK: u128 = (1 << 56) - 1;

pub fn connection_stream(id: &ConnectionId) -> StreamId {
    StreamId::new(format!("connection/{id}"))
}

/// A position in what a connection was sent: an event of the connection's stream (`call` 0), or of
/// the run that a call follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventPosition {
    /// The number of the call's event in the connection's stream (at most 40 bits).
    pub call: Seq,
    /// At most 32 bits.
    pub seq: Seq,
}

/// A decimal number that rises within a stream and cannot be guessed: its low bits are a seal over
/// position, connection and principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId(u128);

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

document!(McpConnection, "connection", tenant, id, |connection| RecordColumns {
    state: "open".to_owned(),
    parent: Some(connection.principal.clone()),
    due_at: Some(connection.ends_at()),
    ..RecordColumns::default()
});

/// An answer that a call got before the run's end. It is stored so that a second read of the stream
/// returns the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterimReply {
    pub connection: ConnectionId,
    pub tenant: TenantId,
    pub call: Seq,
    /// The run's last event before it.
    pub after: Seq,
    pub reply: Value,
    id: String,
}

impl InterimReply {
    pub fn new(connection: &McpConnection, call: Seq, after: Seq, reply: Value) -> Self {
        let id = Self::id_of(&connection.id, call);
        let (tenant, connection) = (connection.tenant.clone(), connection.id.clone());
        Self { connection, tenant, call, after, reply, id }
    }

    pub fn id_of(connection: &ConnectionId, call: Seq) -> String {
        format!("{connection}-{call}")
    }
}

document!(InterimReply, "handover", tenant, id, |reply| RecordColumns {
    parent: Some(reply.connection.to_string()),
    ..RecordColumns::default()
});

/// The ticket for continuing a call that needs input from its caller, for its principal and the
/// same request, for a limited time. It brings one set of responses. The same request with the same
/// responses may be sent again, and continues the same run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallContinuation {
    /// The hash of the ticket. The ticket itself is not stored.
    pub id: String,
    pub tenant: TenantId,
    pub principal: String,
    pub run: RunId,
    /// The digest of the request that may use the ticket.
    pub request_digest: String,
    /// The run's last event that was sent to the caller.
    pub after: Seq,
    /// The questions to the caller, by the keys of their answers.
    #[serde(default)]
    pub asked: BTreeMap<String, QuestionId>,
    pub expires_at: Timestamp,
    /// How often it was used.
    #[serde(default)]
    pub uses: u32,
    /// The digest of the responses that it was used with.
    #[serde(default)]
    pub responses_digest: Option<String>,
}

impl CallContinuation {
    /// Whether this principal may continue this request now.
    pub fn admits(&self, principal: &str, request_digest: &str, now: Timestamp) -> bool {
        self.principal == principal
            && self.request_digest == request_digest
            && now < self.expires_at
    }

    /// The ticket as used with these responses; None if it was used with others.
    #[must_use]
    pub fn used_with(&self, responses_digest: &str) -> Option<Self> {
        let known = self.responses_digest.as_deref();
        known.is_none_or(|known| known == responses_digest).then(|| Self {
            uses: self.uses.saturating_add(1),
            responses_digest: Some(responses_digest.to_owned()),
            ..self.clone()
        })
    }
}

document!(CallContinuation, "continuation", tenant, id, |continuation| RecordColumns {
    due_at: Some(continuation.expires_at),
    ..RecordColumns::default()
});

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
