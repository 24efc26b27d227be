//! Shikiri's own server on a store where every commit is on the disk, with two more tools: `echo`,
//! which is short, and `burst`, which is a run that tells its progress.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use clap::Args;
use serde_json::{Value, json};
use shikiri_app::{App, AppOptions};
use shikiri_mcp::model::{JsonObject, Tool};
use shikiri_mcp::{BuiltinTool, McpCaller, McpExtras, McpOptions, McpService, RpcError};
use shikiri_runtime::run::{AgentError, DurableAgent, RunContext};
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_tenancy::gate::{AccessGate, GateOptions};
use shikiri_web::{WebOptions, WebServer, bind};
use tokio_util::sync::CancellationToken;

use crate::child;

#[derive(Args)]
pub(crate) struct Arguments {
    database: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(ours(arguments))
}

/// Serves until the parent is done.
async fn ours(arguments: &Arguments) -> Result<()> {
    let store = SqliteStore::open(&arguments.database, SqliteOptions::default())?;
    let app = App::new(Arc::new(store), vec![Arc::new(Burst)], AppOptions::default());
    app.tenancy.ensure_local_tenant().await?;
    let secret = shikiri_tenancy::Tenancy::mint_secret()?;
    app.tenancy.ensure_admin_key(&secret).await?;
    let _node = app.start_worker();
    let options = WebOptions { listen: ([127, 0, 0, 1], 0).into(), ..WebOptions::default() };
    let listener = bind(&options).await?;
    child::tell(&format!("listening {}", listener.local_addr()?))?;
    child::tell(&format!("key {}", secret.reveal()))?;
    let gate = AccessGate::new(app.tenancy.clone(), GateOptions::default());
    let extras = McpExtras { tools: vec![Arc::new(Echo)], ..McpExtras::default() };
    let mcp = McpService::new(app.clone(), extras, McpOptions::default());
    let door = shikiri_mcp::router(mcp, Arc::clone(&gate));
    tokio::spawn(
        WebServer::new(app, gate, options).mount(door).serve(listener, CancellationToken::new()),
    );
    child::command().await.map(drop)
}

struct Echo;

#[async_trait]
impl BuiltinTool for Echo {
    fn definition(&self) -> Tool {
        let input = json!({
            "type": "object",
            "properties": { "text": { "type": "string" } },
            "required": ["text"],
        });
        let input = input.as_object().cloned().unwrap_or_default();
        Tool::new("echo", "Says the same again", Arc::new(input))
    }

    async fn call(&self, _: &McpCaller, arguments: &JsonObject) -> Result<Value, RpcError> {
        let text = arguments.get("text").cloned().unwrap_or_default();
        Ok(json!({ "content": [{ "type": "text", "text": text }], "isError": false }))
    }
}

struct Burst;

#[async_trait]
impl DurableAgent for Burst {
    fn name(&self) -> &'static str {
        "burst"
    }

    fn description(&self) -> &'static str {
        "Tells its progress as fast as it may"
    }

    fn input_schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": { "count": { "type": "integer" } },
            "required": ["count"],
        })
    }

    fn check(&self, input: &Value) -> Result<(), String> {
        input["count"].as_u64().map(drop).ok_or_else(|| "count must be a number".to_owned())
    }

    async fn run(&self, context: RunContext, input: Value) -> Result<Value, AgentError> {
        let count = input["count"].as_u64().unwrap_or(0);
        for number in 1..=count {
            context.progress(number as f64, count as f64, &format!("event {number}")).await;
        }
        Ok(json!({ "told": count }))
    }
}
