//! Ids: opaque strings that start with their kind. Fresh ones are time-ordered (UUID v7) with 74
//! random bits; a caller may choose the ids of tenants, models, agents and projects.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::time::Timestamp;

/// The random part of one new id.
pub type Entropy = [u8; 10];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid id: use 1 to 100 letters, digits, `_` or `-`")]
pub struct InvalidId {
    text: String,
}

/// Whether a text has the form of an id, generated or chosen.
pub fn is_valid(text: &str) -> bool {
    (1..=100).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn mint(prefix: &str, now: Timestamp, entropy: Entropy) -> String {
    let millis = u64::try_from(now.as_millis()).unwrap_or(0);
    let uuid = uuid::Builder::from_unix_timestamp_millis(millis, &entropy).into_uuid();
    format!("{prefix}{}", uuid.simple())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            pub fn mint(now: Timestamp, entropy: Entropy) -> Self {
                Self(mint($prefix, now, entropy))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The time of creation; None for an id that was chosen by a caller.
            pub fn minted_at(&self) -> Option<Timestamp> {
                let millis = self.0.strip_prefix($prefix)?.get(..12)?;
                i64::from_str_radix(millis, 16).ok().map(Timestamp::from_millis)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                if is_valid(text) {
                    return Ok(Self(text.to_owned()));
                }
                // The id may be long, so the message repeats only its start.
                Err(InvalidId { text: text.chars().take(40).collect() })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// A tenant, the owner of everything else. Local use is the tenant `local`.
    TenantId,
    "ten_"
);
id!(
    /// One durable piece of agent work.
    RunId,
    "run_"
);
id!(
    /// A question of a run to a person or a model. Never a transport's request number.
    QuestionId,
    "q_"
);
id!(
    /// An API key's record; the key itself is never stored.
    KeyId,
    "key_"
);
id!(
    /// One living server process.
    NodeId,
    "nod_"
);

id!(
    /// An MCP session.
    ConnectionId,
    "con_"
);

id!(
    /// A thread of executions.
    ConversationId,
    "cnv_"
);
id!(
    /// An AI model with its engine and prices.
    ModelId,
    "mdl_"
);
id!(
    /// An MCP server of a tenant.
    ServerId,
    "mcp_"
);

id!(
    /// An agent's own chats at the providers.
    LaneId,
    "lan_"
);
id!(
    /// A question to a provider.
    InquiryId,
    "inq_"
);

id!(
    /// A project in which agents work together.
    ProjectId,
    "prj_"
);
id!(
    /// A declared participant of a team, AI or human.
    AgentId,
    "agt_"
);
id!(
    /// A task that is assigned to an agent.
    TaskId,
    "tsk_"
);
id!(
    /// An agent's login session for one purpose in one project. Not its token.
    AgentSessionId,
    "ses_"
);
id!(
    /// A request of a task session that its agent's chat session talk to another agent.
    DelegationId,
    "dlg_"
);
id!(
    /// A bounded conversation between two agents.
    DialogueId,
    "dia_"
);
id!(
    /// A message from one agent to another.
    MessageId,
    "msg_"
);

id!(
    /// A call of the MCP host at a server.
    HostCallId,
    "hcl_"
);
id!(
    /// A plan of such calls.
    PlanId,
    "pln_"
);

impl RunId {
    /// For a run that is an execution.
    pub fn mint_execution(now: Timestamp, entropy: Entropy) -> Self {
        Self(mint("exe_", now, entropy))
    }

    /// Whether it was created for an execution.
    pub fn is_execution(&self) -> bool {
        self.0.starts_with("exe_")
    }
}

impl ModelId {
    pub fn offline() -> Self {
        Self("offline".to_owned())
    }
}

impl AgentId {
    /// The sender of the server's own notices. It is no agent of a team.
    pub fn server() -> Self {
        Self("shikiri".to_owned())
    }
}

impl TenantId {
    pub fn local() -> Self {
        Self("local".to_owned())
    }

    /// The owner of records that belong to no tenant: tenants, models, and keys by hash.
    pub fn system() -> Self {
        Self("_system".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_ids_carry_their_kind_and_sort_by_time() {
        let early = RunId::mint(Timestamp::from_millis(1_000), [7; 10]);
        let late = RunId::mint(Timestamp::from_millis(2_000), [1; 10]);
        assert!(early.as_str().starts_with("run_"));
        assert!(early < late);
        assert_eq!(late.minted_at(), Some(Timestamp::from_millis(2_000)));
        assert_eq!("run_chosen".parse::<RunId>().unwrap().minted_at(), None);
        assert_eq!(early.as_str().parse(), Ok(early));
    }

    #[test]
    fn ids_of_other_shapes_are_refused() {
        for bad in ["", "a b", "../x", "日本", "a/b", "x\n", &"a".repeat(101)] {
            assert!(bad.parse::<TenantId>().is_err(), "{bad:?}");
        }
        assert!("a".repeat(100).parse::<TenantId>().is_ok());
    }
}
