//! `lane_info`: which agent and lane the caller counts as, and where its chats are.

use std::sync::Arc;

use async_trait::async_trait;
use rmcp::model::{Icon, JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use shikiri_app::App;
use shikiri_model::lane::SHARED_LANE_WARNING;
use shikiri_runtime::AppError;

use super::{answer_or_refuse, arguments};
use crate::catalogue::{BuiltinTool, object};
use crate::mcp_caller::McpCaller;
use crate::rpc_error::RpcError;
use crate::run_view::structured_answer;
use crate::server::ICON;
use crate::tool_groups::ToolGroup;

pub(super) struct LaneInfoTool(pub(super) App);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LaneInfoArguments {}

#[async_trait]
impl BuiltinTool for LaneInfoTool {
    fn definition(&self) -> Tool {
        let input = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        let text = json!({ "type": "string" });
        let output = json!({
            "type": "object",
            "properties": {
                "agent": text,
                "instance": text,
                "subagent": text,
                "lane": text,
                "is_open": { "type": "boolean" },
                "is_declared": { "type": "boolean" },
                "last_access": text,
                "ends_at": text,
                "threads": { "type": "object" },
                "in_flight": { "type": "array", "items": text },
                "providers": { "type": "array", "items": { "type": "object" } },
                "warning": text,
            },
            "required": ["agent", "instance", "lane", "is_open", "threads", "providers"],
        });
        let description = "Tells which agent and instance this caller is taken for, its lane, and \
                           its chats at the providers";
        let mut tool = Tool::new("lane_info", description, Arc::new(object(input)));
        tool.title = Some("Show the caller's lane".to_owned());
        tool.output_schema = Some(Arc::new(object(output)));
        tool.annotations = Some(ToolAnnotations::new().read_only(true));
        tool.icons = Some(vec![Icon::new(ICON).with_mime_type("image/svg+xml")]);
        tool
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(ToolGroup::Lanes)
    }

    async fn call(&self, caller: &McpCaller, arguments: &JsonObject) -> Result<Value, RpcError> {
        answer_or_refuse(self.find_lane(caller, arguments).await.map(structured_answer))
    }
}

impl LaneInfoTool {
    async fn find_lane(
        &self,
        caller: &McpCaller,
        arguments: &JsonObject,
    ) -> Result<Value, AppError> {
        let LaneInfoArguments {} = arguments::read(arguments)?;
        let who = &caller.identity;
        let info = self.0.lanes.lane_info(&caller.connection.tenant, who).await?;
        let providers = info.providers.iter().map(|provider| {
            json!({ "id": provider.id, "name": provider.name, "is_enabled": provider.is_enabled })
        });
        let mut found = json!({
            "agent": who.agent,
            "is_declared": who.is_declared,
            "instance": who.instance,
            "lane": who.lane_name(),
            "is_open": info.lane.is_some(),
            "threads": {},
            "in_flight": [],
            "providers": providers.collect::<Vec<_>>(),
        });
        if let Some(subagent) = &who.subagent {
            found["subagent"] = json!(subagent);
        }
        if who.is_shared {
            found["warning"] = json!(SHARED_LANE_WARNING);
        }
        if let Some(lane) = info.lane.map(|stored| stored.value) {
            let threads = lane.threads.iter();
            let threads: Map<_, _> = threads
                .filter_map(|(provider, thread)| {
                    Some((provider.clone(), json!({ "url": thread.url.as_ref()? })))
                })
                .collect();
            found["lane"] = json!(lane.name);
            found["threads"] = Value::Object(threads);
            found["in_flight"] = json!(lane.in_flight.keys().collect::<Vec<_>>());
            found["last_access"] = json!(lane.last_access);
            found["ends_at"] = json!(lane.ends_at());
        }
        Ok(found)
    }
}
