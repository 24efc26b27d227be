//! Shikiri's own server on a store where every commit is on the disk, with one more agent: it
//! waits at the gate and then logs as fast as it may.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use clap::Args;
use serde_json::{Value, json};
use shikiri_app::{App, AppOptions};
use shikiri_runtime::run::{AgentError, DurableAgent, RunContext};
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_tenancy::gate::GateOptions;
use shikiri_web::{WebOptions, WebServer, bind};
use tokio_util::sync::CancellationToken;

use super::gate::Gate;
use crate::{child, payload};

#[derive(Args)]
pub(crate) struct Arguments {
    database: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let gate = Arc::new(Gate::default());
        let store = SqliteStore::open(&arguments.database, SqliteOptions::default())?;
        let agent = Arc::new(Producer { gate: Arc::clone(&gate) });
        let app = App::new(Arc::new(store), vec![agent], AppOptions::default());
        app.tenancy.ensure_local_tenant().await?;
        let secret = shikiri_tenancy::Tenancy::mint_secret()?;
        app.tenancy.ensure_admin_key(&secret).await?;
        let _node = app.start_worker();
        let options = WebOptions { listen: ([127, 0, 0, 1], 0).into(), ..WebOptions::default() };
        let listener = bind(&options).await?;
        child::tell(&format!("listening {}", listener.local_addr()?))?;
        child::tell(&format!("key {}", secret.reveal()))?;
        let entrance =
            shikiri_tenancy::gate::AccessGate::new(app.tenancy.clone(), GateOptions::default());
        tokio::spawn(
            WebServer::new(app, entrance, options).serve(listener, CancellationToken::new()),
        );
        gate.obey().await
    })
}

struct Producer {
    gate: Arc<Gate>,
}

#[async_trait]
impl DurableAgent for Producer {
    fn name(&self) -> &'static str {
        "bench"
    }

    fn description(&self) -> &'static str {
        "Logs as fast as it may"
    }

    fn input_schema(&self) -> Value {
        json!({ "type": "object" })
    }

    fn check(&self, _input: &Value) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, context: RunContext, input: Value) -> Result<Value, AgentError> {
        self.gate.pass().await;
        for _ in 0..input["events"].as_u64().unwrap_or(0) {
            context.log("info", "bench", payload::text()).await;
        }
        Ok(json!({}))
    }
}
