//! The limit: rmcp as it comes, with both eras, in memory, on sockets without Nagle's algorithm.

use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::serve::ListenerExt;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    ProgressNotificationParam, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::child;

pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let service = StreamableHttpService::new(
            || Ok(Tools),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        );
        let router = Router::new().route_service("/mcp", service);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        child::tell(&format!("listening {}", listener.local_addr()?))?;
        let listener = listener.tap_io(|stream| {
            // With the delay it would be 44 ms for each reply, which shows.
            let _ = stream.set_nodelay(true);
        });
        tokio::spawn(async { axum::serve(listener, router).await });
        child::command().await.map(drop)
    })
}

struct Tools;

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let text = match (&*request.name, arguments.get("text"), arguments.get("count")) {
            ("echo", Some(Value::String(text)), _) => text.clone(),
            ("burst", _, Some(Value::Number(count))) => {
                burst(count.as_u64().unwrap_or(0), &context).await?;
                "done".to_owned()
            }
            _ => return Err(ErrorData::invalid_params("no such tool or argument", None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

async fn burst(count: u64, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    let token = context
        .meta
        .get_progress_token()
        .ok_or_else(|| ErrorData::invalid_params("no progress token", None))?;
    for number in 1..=count {
        let told = ProgressNotificationParam::new(token.clone(), number as f64)
            .with_total(count as f64)
            .with_message(format!("event {number}"));
        let sent = context.peer.notify_progress(told).await;
        sent.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    }
    Ok(())
}
