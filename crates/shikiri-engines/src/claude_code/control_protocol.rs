//! The control protocol: requests to the CLI, and answers to its requests. No person is present, so
//! every request is answered here.

use serde_json::{Value, json};
use shikiri_executions::execution::ResolvedServer;

pub(super) const INITIALIZE: &str = "initialize";
pub(super) const INTERRUPT: &str = "interrupt";

/// The first request. `systemPromptSnapshot: false` makes a resumed session use the new system prompt
/// instead of its first one; older versions ignore the field and always do so.
pub(super) fn initialize(system_prompt: &str) -> Value {
    let mut request = json!({ "subtype": "initialize", "systemPromptSnapshot": false });
    if !system_prompt.is_empty() {
        request["appendSystemPrompt"] = system_prompt.into();
    }
    control_request(INITIALIZE, &request)
}

pub(super) fn interrupt() -> Value {
    control_request(INTERRUPT, &json!({ "subtype": "interrupt" }))
}

fn control_request(id: &str, request: &Value) -> Value {
    json!({ "type": "control_request", "request_id": id, "request": request })
}

pub(super) fn turn(prompt: &str) -> Value {
    json!({
        "type": "user",
        "message": { "role": "user", "content": prompt },
        "parent_tool_use_id": null,
        "session_id": "",
    })
}

/// The tools that the model may use: all, except that an MCP server may be limited to some.
pub(super) struct CliToolPolicy(Vec<(String, Option<Vec<String>>)>);

impl CliToolPolicy {
    pub(super) fn new(servers: &[ResolvedServer]) -> Self {
        let allowed = servers.iter().map(|server| {
            (format!("mcp__{}__", sanitize_tool_name(&server.name)), server.allowed_tools.clone())
        });
        Self(allowed.collect())
    }

    /// The answer to a control request of the CLI.
    pub(super) fn answer(&self, line: &Value) -> Value {
        let request = &line["request"];
        let answer = match request["subtype"].as_str().unwrap_or_default() {
            "can_use_tool" => Ok(self.permission(request)),
            "elicitation" => Ok(json!({ "action": "cancel" })),
            "hook_callback" => Ok(json!({})),
            other => Err(format!("unsupported request {other:?}")),
        };
        let id = &line["request_id"];
        let response = match answer {
            Ok(answer) => json!({ "subtype": "success", "request_id": id, "response": answer }),
            Err(error) => json!({ "subtype": "error", "request_id": id, "error": error }),
        };
        json!({ "type": "control_response", "response": response })
    }

    fn permission(&self, request: &Value) -> Value {
        let refusal = match request["tool_name"].as_str().unwrap_or_default() {
            "AskUserQuestion" => Some("Nobody is there to answer. Decide yourself.".to_owned()),
            tool if !self.allows(tool) => Some(format!("The tool {tool} is not allowed here.")),
            _ => None,
        };
        let id = &request["tool_use_id"];
        match refusal {
            Some(message) => json!({ "behavior": "deny", "message": message, "toolUseID": id }),
            None => json!({
                "behavior": "allow", "updatedInput": request["input"], "toolUseID": id,
            }),
        }
    }

    fn allows(&self, tool: &str) -> bool {
        if !tool.starts_with("mcp__") {
            return true;
        }
        self.0.iter().any(|(start, allowed)| {
            let Some(name) = tool.strip_prefix(start.as_str()) else { return false };
            allowed.as_ref().is_none_or(|allowed| {
                allowed.iter().any(|one| sanitize_tool_name(one) == name || one == tool)
            })
        })
    }
}

/// A server's or tool's name as the CLI writes it in a tool name.
fn sanitize_tool_name(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    name.chars().map(|c| if fits(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shikiri_model::server::McpServerTransport;

    use super::*;

    fn server(name: &str, allowed: Option<&[&str]>) -> ResolvedServer {
        ResolvedServer {
            id: None,
            name: name.to_owned(),
            transport: McpServerTransport::Http { url: "http://x".to_owned() },
            headers: BTreeMap::new(),
            allowed_tools: allowed.map(|a| a.iter().map(ToString::to_string).collect()),
            allow_private: false,
            is_own: false,
        }
    }

    fn answered(request: Value) -> Value {
        let servers = [server("open", None), server("my docs", Some(&["read", "a.b"]))];
        let line = json!({ "type": "control_request", "request_id": "r1", "request": request });
        let answer = CliToolPolicy::new(&servers).answer(&line);
        assert_eq!(answer["response"]["request_id"], "r1");
        answer["response"].clone()
    }

    #[test]
    fn tools_are_allowed_except_those_that_a_server_may_not_offer() {
        let may = |tool: &str| {
            let request = json!({
                "subtype": "can_use_tool", "tool_name": tool, "input": { "a": 1 },
                "tool_use_id": "t1",
            });
            let answer = answered(request)["response"].clone();
            assert_eq!(answer["toolUseID"], "t1");
            if answer["behavior"] == "allow" {
                assert_eq!(answer["updatedInput"], json!({ "a": 1 }));
            }
            answer["behavior"] == "allow"
        };
        for tool in ["Bash", "mcp__open__anything", "mcp__my_docs__read", "mcp__my_docs__a_b"] {
            assert!(may(tool), "{tool}");
        }
        for tool in ["mcp__my_docs__write", "mcp__other__read", "mcp__", "AskUserQuestion"] {
            assert!(!may(tool), "{tool}");
        }
    }

    #[test]
    fn every_control_request_has_an_answer() {
        let subtype = |subtype: &str| answered(json!({ "subtype": subtype }));
        assert_eq!(subtype("elicitation")["response"], json!({ "action": "cancel" }));
        assert_eq!(subtype("hook_callback")["response"], json!({}));
        assert_eq!(subtype("new_in_3.0")["subtype"], "error");
        assert_eq!(subtype("new_in_3.0")["error"], "unsupported request \"new_in_3.0\"");
    }

    #[test]
    fn every_turn_appends_its_system_prompt() {
        let request = initialize("be brief")["request"].clone();
        assert_eq!(request["appendSystemPrompt"], "be brief");
        assert_eq!(request["systemPromptSnapshot"], false);
        assert_eq!(initialize("")["request"].get("appendSystemPrompt"), None);
    }
}
