//! The tools of a server.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::tool::{ToolDefinition, ToolDescription};

use crate::error::ClientError;
use crate::mcp_headers;
use crate::server::ServerConnection;

/// Bounds on a server's list of tools.
const MAX_PAGES: usize = 100;
const MAX_TOOLS: usize = 5_000;
const MAX_REMARKS: usize = 20;
/// How long a server may take to list them all.
const LISTING: Duration = Duration::from_secs(20);

/// A tool, as the server describes it, without invisible characters.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerTool {
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    pub input_schema: Value,
    pub annotations: Value,
    /// Fingerprint of the whole definition.
    pub fingerprint: String,
    /// Whether, according to the server, sending a call twice is harmless.
    pub is_repeatable: bool,
}

/// The listed tools, and remarks on those that cannot be called.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerToolList {
    pub tools: Vec<ServerTool>,
    pub remarks: Vec<String>,
}

impl ServerConnection {
    pub async fn tools(&self) -> Result<ServerToolList, ClientError> {
        let listed = tokio::time::timeout(LISTING, self.list_tools()).await;
        listed.unwrap_or(Err(ClientError::Slow(LISTING.as_secs())))
    }

    async fn list_tools(&self) -> Result<ServerToolList, ClientError> {
        let mut offer = ServerToolList::default();
        let mut cursor: Option<String> = None;
        let mut pages = 0;
        loop {
            pages += 1;
            let params = match &cursor {
                Some(cursor) => json!({ "cursor": cursor }),
                None => json!({}),
            };
            let page = self.send_request("tools/list", params).await?;
            let tools = page.get("tools").and_then(Value::as_array);
            let tools = tools
                .ok_or_else(|| ClientError::Garbled("its list of tools is no list".to_owned()))?;
            for tool in tools {
                match ServerTool::read(tool) {
                    Ok(tool) => offer.tools.push(tool),
                    Err(remark) => offer.remarks.push(remark),
                }
            }
            let next = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            if next.is_none() || next == cursor || offer.tools.len() > MAX_TOOLS {
                break;
            }
            if pages == MAX_PAGES {
                offer.remarks.push(format!("its list has no end: {MAX_PAGES} pages are read"));
                break;
            }
            cursor = next;
        }
        if offer.remarks.len() > MAX_REMARKS {
            let more = offer.remarks.len() - MAX_REMARKS;
            offer.remarks.truncate(MAX_REMARKS);
            offer.remarks.push(format!("and {more} more of the kind"));
        }
        if offer.tools.len() > MAX_TOOLS {
            offer.tools.truncate(MAX_TOOLS);
            offer.remarks.push(format!("only its first {MAX_TOOLS} tools are listed"));
        }
        Ok(offer)
    }

    /// One tool; None if the server does not have it.
    pub async fn tool(&self, name: &str) -> Result<Option<ServerTool>, ClientError> {
        Ok(self.tools().await?.tools.into_iter().find(|tool| tool.name == name))
    }
}

impl ServerTool {
    /// Reads a tool from a server's list. The error says why it cannot be called.
    pub fn read(tool: &Value) -> Result<Self, String> {
        let ToolDefinition { name, shown, fingerprint } =
            ToolDefinition::read(tool).map_err(|error| error.to_string())?;
        let ToolDescription { title, description, input_schema, annotations } = shown;
        if let Some(problem) = mcp_headers::find_invalid_mark(&input_schema) {
            return Err(format!("the tool {name:?} is left out: {problem}"));
        }
        let hint = |key: &str| annotations.get(key) == Some(&Value::Bool(true));
        // The server recognises a call that it has already received.
        let knows_calls = tool["_meta"].get("shikiri/call") == Some(&Value::Bool(true));
        let is_repeatable = hint("readOnlyHint") || hint("idempotentHint") || knows_calls;
        Ok(Self { name, title, description, input_schema, annotations, fingerprint, is_repeatable })
    }

    /// The definition, for comparison with its pin.
    pub fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: self.name.clone(),
            shown: ToolDescription {
                title: self.title.clone(),
                description: self.description.clone(),
                input_schema: self.input_schema.clone(),
                annotations: self.annotations.clone(),
            },
            fingerprint: self.fingerprint.clone(),
        }
    }

    /// The arguments: name, schema, and whether they are required.
    pub fn arguments(&self) -> Vec<(&str, &Value, bool)> {
        let properties = self.input_schema.get("properties").and_then(Value::as_object);
        let required = self.input_schema.get("required").and_then(Value::as_array);
        let must = |name: &str| required.is_some_and(|all| all.iter().any(|it| it == name));
        let listed = properties.map(|all| {
            all.iter().map(|(name, schema)| (name.as_str(), schema, must(name))).collect()
        });
        listed.unwrap_or_default()
    }
}
