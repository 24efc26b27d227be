//! A connection: one MCP client's acquaintance with us, over however many sockets and nodes.
//!
//! In the protocol's older era the client asks for it (`initialize`) and names it on every
//! request; in the newer one there is nothing to ask for, so a caller gets one per day, to hold
//! the record of its calls. Nothing about a connection lives in memory alone: any node can serve
//! any request of it, and a restart is not noticed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::event::{Seq, StreamId};
use crate::ids::{ConnectionId, QuestionId, RunId, TenantId};
use crate::record::{Columns, Document};
use crate::time::Timestamp;

/// What one client may watch at once.
pub const MAX_SUBSCRIPTIONS: usize = 256;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    pub id: ConnectionId,
    pub tenant: TenantId,
    /// Whoever opened it; nobody else may use it.
    pub principal: String,
    pub protocol: String,
    pub client: ClientInfo,
    /// What the client said it can do, in the protocol's form.
    #[serde(default)]
    pub capabilities: Value,
    #[serde(default)]
    pub log_level: Option<LogLevel>,
    #[serde(default)]
    pub subscriptions: Vec<String>,
    /// About when it was last used.
    pub seen_at: Timestamp,
    /// It ends when it was not used for so long: clients do not say goodbye.
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

/// How much a client wants to hear, least important first.
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

impl Connection {
    pub fn stream(&self) -> StreamId {
        stream_of(&self.id)
    }

    pub fn ends_at(&self) -> Timestamp {
        self.seen_at + Duration::from_millis(self.idle_limit_ms)
    }

    /// Whether its use should be written down: not every time, but often enough that a
    /// connection in use never comes near its end.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        now >= self.seen_at + Duration::from_millis(self.idle_limit_ms / 10)
    }

    /// The number that the protocol calls an event id.
    pub fn event_id(&self, place: Place) -> EventId {
        let Place { call, seq } = place;
        let high = u128::from(call) << 88 | u128::from(seq) << 56;
        EventId(high | u128::from(self.seal(place)))
    }

    /// Where an id of ours points; None for one that was never given out on this connection.
    pub fn place_of(&self, id: &str) -> Option<Place> {
        // A number has one way to be written, so that two texts are never one id.
        let number: u128 = id.parse().ok().filter(|n: &u128| n.to_string() == id)?;
        let place = Place {
            call: u64::try_from(number >> 88).ok()?,
            seq: u64::try_from(number >> 56 & 0xffff_ffff).ok()?,
        };
        let seal = u64::try_from(number & SEAL_MASK).ok()?;
        let is_ours: bool = seal.to_be_bytes().ct_eq(&self.seal(place).to_be_bytes()).into();
        is_ours.then_some(place)
    }

    fn seal(&self, place: Place) -> u64 {
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

pub fn stream_of(id: &ConnectionId) -> StreamId {
    StreamId::new(format!("connection/{id}"))
}

/// A position in what a connection was sent: an event of the connection's stream (`call` 0), or
/// of the run that a call of it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the call's event in the connection's stream (at most 40 bits).
    pub call: Seq,
    /// At most 32 bits.
    pub seq: Seq,
}

/// A decimal number that rises within a stream and cannot be guessed: its low bits are a seal
/// over place, connection and principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId(u128);

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Document for Connection {
    const KIND: &'static str = "connection";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn columns(&self) -> Columns {
        Columns {
            state: "open".to_owned(),
            parent: Some(self.principal.clone()),
            due_at: Some(self.ends_at()),
            ..Columns::default()
        }
    }
}

/// The answer that a call got instead of the run's end, so that whoever reads its stream again
/// reads the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handover {
    pub connection: ConnectionId,
    pub tenant: TenantId,
    pub call: Seq,
    /// The run's last event before it.
    pub after: Seq,
    pub reply: Value,
    id: String,
}

impl Handover {
    pub fn new(connection: &Connection, call: Seq, after: Seq, reply: Value) -> Self {
        let id = Self::id_of(&connection.id, call);
        let (tenant, connection) = (connection.tenant.clone(), connection.id.clone());
        Self { connection, tenant, call, after, reply, id }
    }

    pub fn id_of(connection: &ConnectionId, call: Seq) -> String {
        format!("{connection}-{call}")
    }
}

impl Document for Handover {
    const KIND: &'static str = "handover";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn columns(&self) -> Columns {
        Columns { parent: Some(self.connection.to_string()), ..Columns::default() }
    }
}

/// Where a call that needs its caller's input goes on: a ticket that works once, for its
/// principal, for the same request, for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Continuation {
    /// The hash of the ticket; the ticket itself is not kept.
    pub id: String,
    pub tenant: TenantId,
    pub principal: String,
    pub run: RunId,
    /// Of the request that may go on with it.
    pub request_digest: String,
    /// The run's last event that the caller was told of.
    pub after: Seq,
    /// The questions that its caller was asked, by the keys of their answers.
    #[serde(default)]
    pub asked: BTreeMap<String, QuestionId>,
    pub expires_at: Timestamp,
}

impl Continuation {
    /// Whether this principal may go on with this request now.
    pub fn admits(&self, principal: &str, request_digest: &str, now: Timestamp) -> bool {
        self.principal == principal
            && self.request_digest == request_digest
            && now < self.expires_at
    }
}

impl Document for Continuation {
    const KIND: &'static str = "continuation";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn columns(&self) -> Columns {
        Columns { due_at: Some(self.expires_at), ..Columns::default() }
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
