//! Plans: calls at several servers that need one another's results, over their servers' deaths and
//! their own.

mod bad;
mod models;
mod scripted;
mod servers;
mod stub;

use std::path::Path;

use serde_json::{Value, json};
use shikiri_testkit::{Cli, Ended, TestApp};
use stub::Stub;
use tempfile::TempDir;

use crate::PROGRAM;

/// A folder with a store of its own and an `.mcp.json`, from which plans are run.
struct Desk {
    folder: TempDir,
    cli: Cli,
}

impl Desk {
    fn new(servers: Value) -> Self {
        let folder = TempDir::new().unwrap();
        let file = json!({ "mcpServers": servers }).to_string();
        std::fs::write(folder.path().join(".mcp.json"), file).unwrap();
        let cli = Cli::new(PROGRAM, folder.path()).env("SHIKIRI_TRUST", "1");
        Self { folder, cli }
    }

    fn with_stubs(stubs: &[(&str, &Stub)]) -> Self {
        let servers = stubs
            .iter()
            .map(|(name, stub)| ((*name).to_owned(), json!({ "type": "http", "url": stub.url() })));
        Self::new(Value::Object(servers.collect()))
    }

    fn with_servers(apps: &[(&str, &TestApp)]) -> Self {
        let servers = apps.iter().map(|(name, app)| {
            let bearer = format!("Bearer {}", app.admin_key());
            let url = format!("http://127.0.0.1:{}/mcp", app.port());
            let headers = json!({ "Authorization": bearer });
            ((*name).to_owned(), json!({ "type": "http", "url": url, "headers": headers }))
        });
        Self::new(Value::Object(servers.collect()))
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, plan: &str) {
        std::fs::write(self.path().join("plan.toml"), plan).unwrap();
    }

    /// Runs a plan to its end, off the threads on which stubs answer.
    async fn run(&self, plan: &str, more: &[&str]) -> Ended {
        self.write(plan);
        self.command(&[&["host", "run", "plan.toml"], more].concat()).await
    }

    async fn command(&self, args: &[&str]) -> Ended {
        let cli = self.cli.clone();
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let running = tokio::task::spawn_blocking(move || {
            cli.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
        });
        running.await.unwrap()
    }
}

/// A task of a report.
#[track_caller]
fn task<'a>(report: &'a Value, id: &str) -> &'a Value {
    let found = report["tasks"].as_array().unwrap().iter().find(|task| task["id"] == id);
    found.unwrap_or_else(|| panic!("no {id} in {report:#}"))
}

/// Every task with its state, where it was and how often it was tried.
fn course(report: &Value) -> Vec<(&str, &str, &str, u64)> {
    let tasks = report["tasks"].as_array().unwrap().iter();
    tasks
        .map(|task| {
            let said = |key: &str| task[key].as_str().unwrap_or("-");
            (said("id"), said("state"), said("server"), task["attempts"].as_u64().unwrap())
        })
        .collect()
}
