//! Which instance of which agent calls.
//!
//! The order is: what was declared, then what the client calls itself, then nothing but the process.
//! A name alone never makes an instance: two clients have the same one every day. What makes it is
//! the process, the connection or the token, and, inside one Claude Code, the subagent.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// A name is a client's word: kept, but not at any length.
const MAX_NAME: usize = 100;
/// Of an id, to tell instances apart for people; the whole one stands in `holder`.
const SHORT: usize = 8;

/// How a caller came to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// It started a process of ours for itself, over stdio.
    Process { pid: u32, started_ms: u128, declared: Option<String> },
    /// Over HTTP, in the era of connections.
    Connection { principal: String, connection: String },
    /// Over HTTP, where every request stands alone: the token says who it is. Callers that share
    /// one tell themselves apart by a handle of their own.
    Token { principal: String, handle: Option<String> },
}

/// A caller as far as lanes are concerned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// What it was declared as, or calls itself.
    pub agent: String,
    /// Whoever comes back under a declared name is the same agent.
    pub is_declared: bool,
    /// As people see it: `my-agent-12345`.
    pub instance: String,
    /// What really makes the instance. No two that live at once have the same.
    pub holder: String,
    /// The process that is the instance, while it is one that carries runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The agent inside Claude Code that calls, where its hooks tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
}

impl Identity {
    /// `client` is what the caller says it is called; it may be empty.
    pub fn of(way: &Way, client: &str) -> Self {
        let client = named(client);
        let (agent, instance, holder) = match way {
            Way::Process { pid, started_ms, declared } => {
                let holder = format!("process:{pid}:{started_ms}");
                match declared.as_deref().and_then(named).or(client) {
                    Some(name) => (name.clone(), format!("{name}-{pid}"), holder),
                    None => ("agent".to_owned(), format!("agent-{pid}-{started_ms}"), holder),
                }
            }
            Way::Connection { principal, connection } => {
                let name = client.unwrap_or_else(|| "agent".to_owned());
                let instance = format!("{name}-{}", short(connection));
                (name, instance, format!("connection:{principal}:{connection}"))
            }
            Way::Token { principal, handle } => {
                let handle = handle.as_deref().and_then(named);
                let name = handle.clone().or(client).unwrap_or_else(|| "agent".to_owned());
                let instance = format!("{name}-{}", short(principal));
                let kind = if handle.is_some() { "handle" } else { "client" };
                (name.clone(), instance, format!("token:{principal}:{kind}:{name}"))
            }
        };
        let is_declared = match way {
            Way::Process { declared, .. } => declared.as_deref().and_then(named).is_some(),
            Way::Connection { .. } | Way::Token { .. } => false,
        };
        Self { agent, is_declared, instance, holder, node: None, subagent: None }
    }

    /// The same instance, for an agent inside it.
    #[must_use]
    pub fn for_subagent(mut self, agent_id: Option<&str>) -> Self {
        self.subagent = agent_id.and_then(named);
        self
    }

    /// What its lane is called. No name of an instance is taken for that of a subagent: what comes
    /// before the dot is an instance's whole name, and the holder is compared as well.
    pub fn lane_name(&self) -> String {
        match &self.subagent {
            Some(subagent) => format!("{}.{subagent}", self.instance),
            None => self.instance.clone(),
        }
    }

    /// What makes its lane.
    pub fn lane_holder(&self) -> String {
        match &self.subagent {
            Some(subagent) => format!("{}/{subagent}", self.holder),
            None => self.holder.clone(),
        }
    }
}

/// A name without what would break a line; None if nothing is left of it.
fn named(text: &str) -> Option<String> {
    let shown = text.trim().chars().filter(|c| !c.is_control()).take(MAX_NAME);
    Some(shown.collect::<String>()).filter(|name| !name.is_empty())
}

/// The end of an id, which is its random part.
fn short(id: &str) -> &str {
    let start = id.char_indices().rev().nth(SHORT - 1).map_or(0, |(at, _)| at);
    id.get(start..).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(declared: Option<&str>) -> Way {
        Way::Process { pid: 12_345, started_ms: 1_700, declared: declared.map(str::to_owned) }
    }

    fn instance(way: &Way, client: &str) -> String {
        Identity::of(way, client).instance
    }

    #[test]
    fn a_declared_name_comes_first_then_the_clients_then_the_process() {
        assert_eq!(instance(&process(Some("my-agent")), "claude-code"), "my-agent-12345");
        assert_eq!(instance(&process(None), "claude-code"), "claude-code-12345");
        assert_eq!(instance(&process(Some("  ")), "claude-code"), "claude-code-12345");
        assert_eq!(instance(&process(None), ""), "agent-12345-1700");
        assert_eq!(instance(&process(None), " \u{7}"), "agent-12345-1700");
        assert!(Identity::of(&process(Some("my-agent")), "").is_declared);
        assert!(!Identity::of(&process(None), "claude-code").is_declared);
    }

    #[test]
    fn the_same_client_name_never_makes_two_callers_one() {
        let one = Identity::of(&process(None), "claude-code");
        let other = Way::Process { pid: 12_346, started_ms: 1_700, declared: None };
        let other = Identity::of(&other, "claude-code");
        assert_ne!(one.instance, other.instance);
        assert_ne!(one.holder, other.holder);
        // A process number that was used before, by a process that is gone.
        let later = Way::Process { pid: 12_345, started_ms: 1_800, declared: None };
        let later = Identity::of(&later, "claude-code");
        assert_eq!(one.instance, later.instance);
        assert_ne!(one.holder, later.holder);
    }

    #[test]
    fn over_http_the_connection_or_the_token_tells() {
        let principal = "key_0a".to_owned();
        let over = |connection: &str| Way::Connection {
            principal: principal.clone(),
            connection: connection.to_owned(),
        };
        let (a, b) = (over("con_00000000aaaaaaaa"), over("con_00000000bbbbbbbb"));
        assert_eq!(instance(&a, "claude-code"), "claude-code-aaaaaaaa");
        assert_eq!(instance(&a, ""), "agent-aaaaaaaa");
        assert_ne!(Identity::of(&a, "x").holder, Identity::of(&b, "x").holder);
        // Whose ids end alike are told apart all the same.
        let c = over("con_11111111aaaaaaaa");
        assert_eq!(instance(&a, "x"), instance(&c, "x"));
        assert_ne!(Identity::of(&a, "x").holder, Identity::of(&c, "x").holder);

        let by = |handle: Option<&str>| Way::Token {
            principal: "key_1234567890".to_owned(),
            handle: handle.map(str::to_owned),
        };
        assert_eq!(instance(&by(None), "claude-code"), "claude-code-34567890");
        assert_eq!(instance(&by(Some("left")), "claude-code"), "left-34567890");
        let holders = [by(None), by(Some("left")), by(Some("right"))];
        let holders = holders.map(|way| Identity::of(&way, "left").holder);
        assert!(holders[0] != holders[1] && holders[1] != holders[2]);
    }

    #[test]
    fn a_subagent_has_a_lane_of_its_own() {
        let main = Identity::of(&process(None), "claude-code");
        let sub = main.clone().for_subagent(Some("a6f3"));
        assert_eq!(sub.lane_name(), "claude-code-12345.a6f3");
        assert_ne!(sub.lane_holder(), main.lane_holder());
        assert_eq!(main.clone().for_subagent(None), main);
    }

    #[test]
    fn names_of_any_script_and_length_are_borne() {
        let way = process(Some("調査係\n👍"));
        assert_eq!(instance(&way, ""), "調査係👍-12345");
        let long = Identity::of(&process(None), &"あ".repeat(5_000));
        assert_eq!(long.agent.chars().count(), MAX_NAME);
        assert_eq!(short("あいうえおかきくけこ"), "うえおかきくけこ");
        assert_eq!(short("ab"), "ab");
    }
}
