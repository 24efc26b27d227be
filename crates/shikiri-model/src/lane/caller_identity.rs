//! Identifies the instance of an agent that calls.
//!
//! An identity comes from a declaration, else from the client's name, else from the process alone.
//! A name alone never identifies an instance, because several clients have the same name. The
//! instance is identified by the process, the connection or the token and, inside one Claude Code,
//! by the subagent.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// Names come from clients, so their length is limited.
const MAX_NAME: usize = 100;
/// The characters of an id that people see in instance names. `holder` has the whole id.
const SHORT: usize = 8;
/// The characters of the name that a caller over HTTP gives itself.
const MAX_HANDLE: usize = 64;

/// The HTTP header by which a caller names itself where no connection tells it from others.
pub const LANE_HEADER: &str = "shikiri-lane";

/// What a caller learns that nothing tells from others.
pub const SHARED_LANE_WARNING: &str = "Nothing tells this caller from others that use the same key, \
    so each of its questions goes to a chat of its own, with which no later question goes on. Give \
    every agent a name of its own: send the HTTP header `Shikiri-Lane: NAME` with each request, or \
    NAME as `shikiri/lane` in its `_meta`.";

/// How a caller reached the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerOrigin {
    /// Over stdio: the client started this process for itself.
    Process { pid: u32, started_ms: u128, declared: Option<String> },
    /// Over HTTP with a connection.
    Connection { principal: String, connection: String },
    /// Over HTTP without a connection: the token identifies the caller. Callers that share a token
    /// use handles.
    Token { principal: String, handle: Option<String> },
    /// Over HTTP with a token that others may use as well, and with nothing that tells who it is.
    SharedToken { principal: String },
}

/// The identity of a caller for lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerIdentity {
    /// The declared name, or the name that the client reports.
    pub agent: String,
    /// A caller that returns under a declared name is the same agent.
    pub is_declared: bool,
    /// The instance's name for people: `my-agent-12345`.
    pub instance: String,
    /// The unique key of the instance. No two live instances share one.
    pub holder: String,
    /// Others may have the same identity, as nothing tells this caller from them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shared: bool,
    /// The process of the instance, if that process executes runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The calling agent inside Claude Code, if the hooks report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
}

impl CallerIdentity {
    /// `client` is the name that the client reports. It may be empty.
    pub fn of(way: &CallerOrigin, client: &str) -> Self {
        let client = named(client);
        let (agent, instance, holder) = match way {
            CallerOrigin::Process { pid, started_ms, declared } => {
                let holder = format!("process:{pid}:{started_ms}");
                match declared.as_deref().and_then(named).or(client) {
                    Some(name) => (name.clone(), format!("{name}-{pid}"), holder),
                    None => ("agent".to_owned(), format!("agent-{pid}-{started_ms}"), holder),
                }
            }
            CallerOrigin::Connection { principal, connection } => {
                let name = client.unwrap_or_else(|| "agent".to_owned());
                let instance = format!("{name}-{}", short(connection));
                (name, instance, format!("connection:{principal}:{connection}"))
            }
            CallerOrigin::Token { principal, handle } => {
                let handle = handle.as_deref().and_then(named);
                let name = handle.clone().or(client).unwrap_or_else(|| "agent".to_owned());
                let instance = format!("{name}-{}", short(principal));
                let kind = if handle.is_some() { "handle" } else { "client" };
                (name.clone(), instance, format!("token:{principal}:{kind}:{name}"))
            }
            CallerOrigin::SharedToken { principal } => {
                let name = client.unwrap_or_else(|| "agent".to_owned());
                let instance = format!("{name}-{}", short(principal));
                let holder = format!("shared:{principal}:{name}");
                (name, instance, holder)
            }
        };
        let is_declared = match way {
            CallerOrigin::Process { declared, .. } => declared.as_deref().and_then(named).is_some(),
            CallerOrigin::Connection { .. }
            | CallerOrigin::Token { .. }
            | CallerOrigin::SharedToken { .. } => false,
        };
        let is_shared = matches!(way, CallerOrigin::SharedToken { .. });
        Self { agent, is_declared, instance, holder, is_shared, node: None, subagent: None }
    }

    /// The same caller, told from others by the id of something that is its alone, such as a run.
    #[must_use]
    pub fn told_apart_by(self, id: &str) -> Self {
        Self {
            instance: format!("{}-{}", self.agent, short(id)),
            holder: format!("{}:{id}", self.holder),
            is_shared: false,
            ..self
        }
    }

    /// The same instance for a subagent inside it.
    #[must_use]
    pub fn for_subagent(mut self, agent_id: Option<&str>) -> Self {
        self.subagent = agent_id.and_then(named);
        self
    }

    /// The name of the lane. An instance name cannot collide with a subagent's: the part before the
    /// dot is the whole name of an instance, and the holder is compared as well.
    pub fn lane_name(&self) -> String {
        match &self.subagent {
            Some(subagent) => format!("{}.{subagent}", self.instance),
            None => self.instance.clone(),
        }
    }

    /// The key of the lane's holder.
    pub fn lane_holder(&self) -> String {
        match &self.subagent {
            Some(subagent) => format!("{}/{subagent}", self.holder),
            None => self.holder.clone(),
        }
    }
}

/// The name that a caller over HTTP gives itself: of 1 to 64 characters. None if it is not.
pub fn read_lane_handle(text: &str) -> Option<String> {
    let text = text.trim();
    let is_good = (1..=MAX_HANDLE).contains(&text.chars().count());
    (is_good && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// The name without line breaks; None if nothing is left.
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

    fn process(declared: Option<&str>) -> CallerOrigin {
        CallerOrigin::Process {
            pid: 12_345,
            started_ms: 1_700,
            declared: declared.map(str::to_owned),
        }
    }

    fn instance(way: &CallerOrigin, client: &str) -> String {
        CallerIdentity::of(way, client).instance
    }

    #[test]
    fn a_declared_name_comes_first_then_the_clients_then_the_process() {
        assert_eq!(instance(&process(Some("my-agent")), "claude-code"), "my-agent-12345");
        assert_eq!(instance(&process(None), "claude-code"), "claude-code-12345");
        assert_eq!(instance(&process(Some("  ")), "claude-code"), "claude-code-12345");
        assert_eq!(instance(&process(None), ""), "agent-12345-1700");
        assert_eq!(instance(&process(None), " \u{7}"), "agent-12345-1700");
        assert!(CallerIdentity::of(&process(Some("my-agent")), "").is_declared);
        assert!(!CallerIdentity::of(&process(None), "claude-code").is_declared);
    }

    #[test]
    fn the_same_client_name_never_makes_two_callers_one() {
        let one = CallerIdentity::of(&process(None), "claude-code");
        let other = CallerOrigin::Process { pid: 12_346, started_ms: 1_700, declared: None };
        let other = CallerIdentity::of(&other, "claude-code");
        assert_ne!(one.instance, other.instance);
        assert_ne!(one.holder, other.holder);
        // A reused process number of a process that is gone.
        let later = CallerOrigin::Process { pid: 12_345, started_ms: 1_800, declared: None };
        let later = CallerIdentity::of(&later, "claude-code");
        assert_eq!(one.instance, later.instance);
        assert_ne!(one.holder, later.holder);
    }

    #[test]
    fn over_http_the_connection_or_the_token_tells() {
        let principal = "key_0a".to_owned();
        let over = |connection: &str| CallerOrigin::Connection {
            principal: principal.clone(),
            connection: connection.to_owned(),
        };
        let (a, b) = (over("con_00000000aaaaaaaa"), over("con_00000000bbbbbbbb"));
        assert_eq!(instance(&a, "claude-code"), "claude-code-aaaaaaaa");
        assert_eq!(instance(&a, ""), "agent-aaaaaaaa");
        assert_ne!(CallerIdentity::of(&a, "x").holder, CallerIdentity::of(&b, "x").holder);
        // Ids with the same end are still different holders.
        let c = over("con_11111111aaaaaaaa");
        assert_eq!(instance(&a, "x"), instance(&c, "x"));
        assert_ne!(CallerIdentity::of(&a, "x").holder, CallerIdentity::of(&c, "x").holder);

        let by = |handle: Option<&str>| CallerOrigin::Token {
            principal: "key_1234567890".to_owned(),
            handle: handle.map(str::to_owned),
        };
        assert_eq!(instance(&by(None), "claude-code"), "claude-code-34567890");
        assert_eq!(instance(&by(Some("left")), "claude-code"), "left-34567890");
        let holders = [by(None), by(Some("left")), by(Some("right"))];
        let holders = holders.map(|way| CallerIdentity::of(&way, "left").holder);
        assert!(holders[0] != holders[1] && holders[1] != holders[2]);
    }

    #[test]
    fn who_shares_a_token_without_a_name_is_told_apart_by_each_run() {
        let way = CallerOrigin::SharedToken { principal: "key_1234567890".to_owned() };
        let shared = CallerIdentity::of(&way, "planner");
        assert!(shared.is_shared);
        assert_eq!(shared.instance, "planner-34567890");
        let runs = ["run_00000000aaaaaaaa", "run_00000000bbbbbbbb"];
        let [a, b] = runs.map(|run| shared.clone().told_apart_by(run));
        assert_eq!((a.instance.as_str(), a.is_shared), ("planner-aaaaaaaa", false));
        assert_eq!((a.agent.as_str(), b.agent.as_str()), ("planner", "planner"));
        assert!(a.holder != b.holder && a.holder != shared.holder);
        let named = CallerOrigin::Token { principal: "key_1234567890".to_owned(), handle: None };
        assert!(!CallerIdentity::of(&named, "planner").is_shared);
    }

    #[test]
    fn a_name_over_http_has_1_to_64_characters_of_text() {
        assert_eq!(read_lane_handle(" 左 "), Some("左".to_owned()));
        assert_eq!(read_lane_handle(&"あ".repeat(64)), Some("あ".repeat(64)));
        for bad in ["", "  ", "a\nb", &"x".repeat(65)] {
            assert_eq!(read_lane_handle(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_subagent_has_a_lane_of_its_own() {
        let main = CallerIdentity::of(&process(None), "claude-code");
        let sub = main.clone().for_subagent(Some("a6f3"));
        assert_eq!(sub.lane_name(), "claude-code-12345.a6f3");
        assert_ne!(sub.lane_holder(), main.lane_holder());
        assert_eq!(main.clone().for_subagent(None), main);
    }

    #[test]
    fn names_of_any_script_and_length_are_borne() {
        let way = process(Some("調査係\n👍"));
        assert_eq!(instance(&way, ""), "調査係👍-12345");
        let long = CallerIdentity::of(&process(None), &"あ".repeat(5_000));
        assert_eq!(long.agent.chars().count(), MAX_NAME);
        assert_eq!(short("あいうえおかきくけこ"), "うえおかきくけこ");
        assert_eq!(short("ab"), "ab");
    }
}
